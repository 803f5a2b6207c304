//! Later.
/// Later.
pub struct Builder;
