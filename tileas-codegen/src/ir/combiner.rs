//! How two elements become one: the function that `combine` and `scan` carry as an attribute.
//!
//! A combiner is a function of its own over scalars: for k tiles it takes k elements of what is combined so far, then k of what comes behind,
//! and yields k. Text form: `(%a: f32, %b: f32) { %s = addf %a, %b : f32  yield %s }`. It is shared, not copied, when ops are.
//! Two combiners are equal when they print alike.

use super::function::Function;
use super::printer::print_function;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A combiner.
#[derive(Clone)]
pub struct Combiner(Arc<(String, Function)>);

impl Combiner {
    /// The combiner that is the body of a function of scalars: for k tiles k parameters for what is combined so far, then k for what comes behind;
    /// it ends with [`FunctionBuilder::end_func`](super::FunctionBuilder::end_func), of k values. The verifier checks it where it is used.
    ///
    /// ```
    /// use tileas_codegen::ir::{AttrData, Combiner, Function, FunctionBuilder, Module, Scalar};
    /// let mut add = Function::new("add");
    /// let mut b = FunctionBuilder::new(&mut add);
    /// let number = b.scalar_type(Scalar::F32);
    /// let (before, behind) = (b.param(number), b.param(number));
    /// let sum = b.addf(before, behind);
    /// b.end_func(&[sum]);
    ///
    /// let mut kernel = Function::new("running_sums");
    /// let mut b = FunctionBuilder::new(&mut kernel);
    /// let view = b.view_type(&[tileas_codegen::ir::Dim::Dynamic], Scalar::F32);
    /// let (x, tile) = (b.param(view), b.tile_type(&[256], Scalar::F32));
    /// let zero = b.const_i32(0);
    /// let loaded = b.tiled_load(x, &[zero], tile);
    /// let scan = b.scan(&[loaded], 0, AttrData::Combiner(Combiner::new(add)), &[tile]);
    /// let sums = b.func().results(scan)[0];
    /// b.tiled_store(sums, x, &[zero]);
    /// b.ret();
    /// let module = Module { functions: vec![kernel], ..Module::default() };
    /// assert!(tileas_codegen::ir::verify_module(&module).is_empty());
    /// ```
    pub fn new(mut func: Function) -> Combiner {
        func.name = "combiner".into();
        let text = print_function(&func);
        let text = text.strip_prefix("kernel @combiner").unwrap_or(&text);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        Combiner(Arc::new((lines.join(" "), func)))
    }

    /// Its ops.
    pub fn function(&self) -> &Function {
        &self.0.1
    }

    /// Its text on one line.
    pub fn text(&self) -> &str {
        &self.0.0
    }
}

impl PartialEq for Combiner {
    fn eq(&self, other: &Combiner) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.text() == other.text()
    }
}

impl Eq for Combiner {}

impl Hash for Combiner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

impl PartialOrd for Combiner {
    fn partial_cmp(&self, other: &Combiner) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Combiner {
    fn cmp(&self, other: &Combiner) -> Ordering {
        self.text().cmp(other.text())
    }
}

impl fmt::Debug for Combiner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
