//! (next)
use crate::error::CodegenError;
use crate::ir::Function;
use crate::isa::TargetIsa;
/// Report.
#[derive(Default, Debug)]
pub struct SyncReport {}
/// Verify.
pub fn verify_materialized(_func: &Function, _isa: &dyn TargetIsa) -> Result<SyncReport, Vec<CodegenError>> {
    Ok(SyncReport {})
}
