//! Entities that are not of the function they are used in.
//!
//! In: any function. Out: an error for each op, parameter or call that names a value, type, attribute or name of another
//! function, or of none. Functions say so by the marks of [`Function::has_value`] and its like; those that passes make
//! have no marks and are not looked at. Also here, since nothing may walk it before: the size of attributes.

use crate::error::{Code, CodegenError, Loc};
use crate::ir::attrs::{AttrData, AttrDict};
use crate::ir::entities::{Attr, Op, Type, Value};
use crate::ir::function::Function;

/// Values of one attribute, one inside the other, each as often as it is printed.
const MOST_ATTR_VALUES: usize = 1 << 20;
/// Lists inside lists, as in text.
const DEEPEST: usize = 256;

/// All that is not of the function.
pub(super) fn find(func: &Function) -> Vec<CodegenError> {
    find_in(func, false)
}

/// `inner`: of a function that an op carries, whose own ops carry none.
fn find_in(func: &Function, inner: bool) -> Vec<CodegenError> {
    let mut errors = func.misuse().to_vec();
    if !func.knows_its_own() && !inner {
        return errors;
    }
    let mut s = Search { func, loc: func.loc, who: "kernel", inner, errors: &mut errors };
    s.dict(&func.attrs);
    func.params().iter().for_each(|&p| s.value_type(p));
    for op in func.ops() {
        s.op(op);
    }
    errors
}

struct Search<'a> {
    func: &'a Function,
    loc: Loc,
    who: &'static str,
    inner: bool,
    errors: &'a mut Vec<CodegenError>,
}

impl Search<'_> {
    #[cold]
    fn report(&mut self, code: Code, text: String) {
        self.errors.push(CodegenError::new(code, self.loc, format!("{}: {text}", self.who)));
    }

    fn op(&mut self, op: Op) {
        let func = self.func;
        (self.loc, self.who) = (func.op_loc(op), func.opcode(op).name());
        for &v in func.operands(op) {
            if !func.has_value(v) {
                self.report(Code::E0228, format!("operand {v} is no value of this function"));
            }
        }
        func.results(op).iter().for_each(|&r| self.value_type(r));
        for &r in func.regions(op) {
            func.block_params(func.region_block(r)).iter().for_each(|&p| self.value_type(p));
        }
        self.dict(func.inherent(op));
        self.dict(func.discardable(op));
    }

    fn value_type(&mut self, v: Value) {
        if let Some(name) = self.func.value_sym(v).filter(|&s| !self.func.has_symbol(s)) {
            self.report(Code::E0228, format!("the name {name} of {v} is none of this function"));
        }
        self.ty(self.func.value_type(v));
    }

    fn ty(&mut self, ty: Type) {
        if !self.func.has_type(ty) {
            self.report(Code::E0228, format!("{ty} is no type of this function"));
        }
    }

    fn dict(&mut self, dict: &AttrDict) {
        for (key, value) in dict.iter() {
            if !self.func.has_symbol(key) {
                self.report(Code::E0228, format!("attribute name {key} is none of this function"));
            }
            let mut left = MOST_ATTR_VALUES;
            self.attr(value, 0, &mut left);
        }
    }

    /// One value and those inside; `left` of them may follow.
    fn attr(&mut self, a: Attr, depth: usize, left: &mut usize) {
        let func = self.func;
        if *left == 0 {
            return;
        }
        *left -= 1;
        if *left == 0 {
            self.report(Code::E1001, format!("attribute of more than {MOST_ATTR_VALUES} values"));
        } else if depth > DEEPEST {
            *left = 0;
            self.report(Code::E0008, format!("attribute nested deeper than {DEEPEST} levels"));
        } else if !func.has_attr_value(a) {
            self.report(Code::E0228, format!("{a} is no attribute of this function"));
        } else {
            let (name, list) = match func.attr_data(a) {
                AttrData::Name(name) => (Some(*name), &[][..]),
                AttrData::Call(name, list) => (Some(*name), list.as_slice()),
                AttrData::Array(list) => (None, list.as_slice()),
                AttrData::Type(ty) => return self.ty(*ty),
                AttrData::Combiner(c) => {
                    if self.inner {
                        return self.report(Code::E0213, "expected no combiner within a combiner".into());
                    }
                    self.errors.extend(find_in(c.function(), true));
                    return;
                }
                _ => return,
            };
            if let Some(name) = name.filter(|&n| !func.has_symbol(n)) {
                self.report(Code::E0228, format!("name {name} is none of this function"));
            }
            list.iter().for_each(|&inner| self.attr(inner, depth + 1, left));
        }
    }
}
