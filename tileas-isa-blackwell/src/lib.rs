//! Blackwell.
