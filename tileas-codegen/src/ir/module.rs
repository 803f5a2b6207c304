//! A module: kernels and the target they are for.

use super::function::Function;
use std::sync::Arc;

/// A list of kernels.
#[derive(Clone, Default)]
pub struct Module {
    /// The cpu name the text asked for (`target "sm_100a"`), if any.
    pub target: Option<String>,
    /// Kernels in source order; names are unique.
    pub functions: Vec<Function>,
    /// The text it was read from, in which the locations of its ops lie; none for modules that are built by calls.
    pub source: Option<Arc<str>>,
    /// The name of the file with that text, where it has one: for the line information of PTX.
    pub file: Option<Arc<str>>,
}

impl Module {
    /// An empty module.
    pub fn new() -> Module {
        Module::default()
    }

    /// The kernel of that name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|f| f.name == name)
    }
}
