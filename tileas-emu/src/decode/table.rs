//! The instruction table: all rows of all families.
//!
//! A row is a pattern of mnemonic and modifiers and the function that decodes it; the rows of a
//! family stand beside its functions.

use super::build::Build;
use super::pattern::{self, Choices};
use super::{Exec, R};
use crate::diag::Diagnostic;
use crate::parse::ast;
use rustc_hash::FxHashMap;
use std::sync::OnceLock;

/// One instruction form.
pub struct Row {
    /// Mnemonic and modifiers, see [`pattern`].
    pub pattern: &'static str,
    /// Decodes it.
    pub build: fn(&mut Build<'_>) -> R<Exec>,
}

/// A row.
pub const fn row(pattern: &'static str, build: fn(&mut Build<'_>) -> R<Exec>) -> Row {
    Row { pattern, build }
}

const FAMILIES: &[&[Row]] = &[
    crate::exec::int::ROWS,
    crate::exec::float::ROWS,
    crate::exec::cvt::ROWS,
    crate::exec::control::ROWS,
    crate::exec::print::ROWS,
    crate::exec::memory::ROWS,
    crate::exec::address::ROWS,
    crate::exec::atomic::ROWS,
    crate::exec::warp::ROWS,
    crate::exec::matrix::ROWS,
    crate::sync::mbarrier::ROWS,
    crate::sync::named::ROWS,
    crate::sync::cluster::ROWS,
    crate::sync::fence::ROWS,
    crate::async_ops::tma::ROWS,
    crate::async_ops::bulk::ROWS,
    crate::async_ops::remote::ROWS,
    crate::async_ops::copy::ROWS,
    crate::async_ops::tcgen05::ROWS,
    crate::async_ops::tmem_move::ROWS,
    crate::async_ops::wgmma::ROWS,
];

/// All rows by mnemonic.
pub fn rows() -> &'static FxHashMap<&'static str, Vec<&'static Row>> {
    static MAP: OnceLock<FxHashMap<&'static str, Vec<&'static Row>>> = OnceLock::new();
    MAP.get_or_init(|| {
        let mut m: FxHashMap<_, Vec<_>> = FxHashMap::default();
        for r in FAMILIES.iter().flat_map(|f| f.iter()) {
            m.entry(pattern::mnemonic(r.pattern)).or_default().push(r);
        }
        m
    })
}

/// Row of an instruction, and its modifiers.
pub fn find(i: &ast::Inst) -> R<(&'static Row, Choices<'_>)> {
    let name = pattern::mnemonic(&i.opcode);
    let Some(list) = rows().get(name) else {
        return Err(Diagnostic::new("P010", i.at, format!("unsupported instruction `{}`", i.opcode)));
    };
    for r in list {
        if let Some(c) = pattern::matches(r.pattern, &i.opcode) {
            return Ok((r, c));
        }
    }
    Err(Diagnostic::new("P011", i.at, format!("unsupported modifiers of `{name}`: `{}`", i.opcode)))
}
