//! Registers, constants and special registers of a kernel, and its symbols.

use super::{Col, PCol, R};
use crate::diag::{Diagnostic, Place};
use crate::parse::ast::{RegDecl, Space};
use crate::parse::type_bytes;
use rustc_hash::FxHashMap;

/// Most registers of 32 bits, and most predicates, of a kernel: their numbers have 16 bits.
const MOST: u32 = 60_000;

/// Address of a variable.
#[derive(Copy, Clone, Debug)]
pub struct Symbol {
    /// Its space.
    pub space: Space,
    /// Address in that space.
    pub address: u64,
}

/// Variables by name.
pub type Symbols = FxHashMap<String, Symbol>;

/// What names mean besides registers, by `{ }` scope: variables, labels, tables of `brx.idx`.
/// Scope 0 is the module with the entry's parameters, scope 1 the body; the others follow in order of the text.
#[derive(Default)]
pub struct Names {
    scopes: Vec<Named>,
}

#[derive(Default)]
struct Named {
    parent: usize,
    symbols: Symbols,
    labels: FxHashMap<String, u32>,
    tables: FxHashMap<String, Vec<String>>,
}

impl Names {
    /// Opens a scope and returns its number.
    pub fn open(&mut self, parent: usize) -> usize {
        self.scopes.push(Named { parent, ..Named::default() });
        self.scopes.len() - 1
    }

    /// The scope around one.
    pub fn parent(&self, scope: usize) -> usize {
        self.scopes[scope].parent
    }

    /// Adds a variable; false when the scope has one of that name.
    pub fn symbol(&mut self, scope: usize, name: &str, s: Symbol) -> bool {
        self.scopes[scope].symbols.insert(name.into(), s).is_none()
    }

    /// Adds a label; false when the scope has one of that name.
    pub fn label(&mut self, scope: usize, name: &str, pc: u32) -> bool {
        self.scopes[scope].labels.insert(name.into(), pc).is_none()
    }

    /// Adds the table that a label names.
    pub fn table(&mut self, scope: usize, name: &str, labels: &[String]) {
        self.scopes[scope].tables.insert(name.into(), labels.to_vec());
    }

    /// The innermost meaning of a name, seen from a scope.
    fn find<T>(&self, scope: usize, of: impl Fn(&Named) -> Option<T>) -> Option<T> {
        let mut at = scope;
        loop {
            let s = &self.scopes[at];
            match of(s) {
                None if at != s.parent => at = s.parent,
                found => return found,
            }
        }
    }

    /// The variable of a name.
    pub fn find_symbol(&self, scope: usize, name: &str) -> Option<Symbol> {
        self.find(scope, |s| s.symbols.get(name).copied())
    }

    /// The instruction a label stands before.
    pub fn find_label(&self, scope: usize, name: &str) -> Option<u32> {
        self.find(scope, |s| s.labels.get(name).copied())
    }

    /// The labels of a table.
    pub fn find_table(&self, scope: usize, name: &str) -> Option<Vec<String>> {
        self.find(scope, |s| s.tables.get(name).cloned())
    }
}

/// Special registers whose value a warp has from its start.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub enum Special {
    /// `%tid`.
    Tid(u8),
    /// `%ntid`.
    Ntid(u8),
    /// `%ctaid`.
    Ctaid(u8),
    /// `%nctaid`.
    Nctaid(u8),
    /// `%laneid`.
    LaneId,
    /// `%warpid`.
    WarpId,
    /// `%nwarpid`.
    NWarpId,
    /// `%smid`.
    SmId,
    /// `%nsmid`.
    NSmId,
    /// `%lanemask_eq`, `_lt`, `_le`, `_gt`, `_ge`.
    LaneMask(u8),
    /// `%dynamic_smem_size`.
    DynamicSmem,
    /// `%total_smem_size`.
    TotalSmem,
    /// `%clusterid`.
    ClusterId(u8),
    /// `%nclusterid`.
    NClusterId(u8),
    /// `%cluster_ctaid`.
    ClusterCtaid(u8),
    /// `%cluster_nctaid`.
    ClusterNctaid(u8),
    /// `%cluster_ctarank`.
    ClusterCtaRank,
    /// `%cluster_nctarank`.
    ClusterNctaRank,
    /// `%clock`, which stands still: nothing is timed here.
    Clock,
}

fn special(name: &str) -> Option<Special> {
    let (base, axis) = name.split_once('.').map_or((name, None), |(b, a)| (b, Some(a)));
    let axis = match axis {
        None => None,
        Some("x") => Some(0),
        Some("y") => Some(1),
        Some("z") => Some(2),
        Some(_) => return None,
    };
    Some(match (base, axis) {
        ("%tid", Some(k)) => Special::Tid(k),
        ("%ntid", Some(k)) => Special::Ntid(k),
        ("%ctaid", Some(k)) => Special::Ctaid(k),
        ("%nctaid", Some(k)) => Special::Nctaid(k),
        ("%laneid", None) => Special::LaneId,
        ("%warpid", None) => Special::WarpId,
        ("%nwarpid", None) => Special::NWarpId,
        ("%smid", None) => Special::SmId,
        ("%nsmid", None) => Special::NSmId,
        ("%lanemask_eq", None) => Special::LaneMask(0),
        ("%lanemask_lt", None) => Special::LaneMask(1),
        ("%lanemask_le", None) => Special::LaneMask(2),
        ("%lanemask_gt", None) => Special::LaneMask(3),
        ("%lanemask_ge", None) => Special::LaneMask(4),
        ("%dynamic_smem_size", None) => Special::DynamicSmem,
        ("%total_smem_size", None) => Special::TotalSmem,
        ("%clusterid", Some(k)) => Special::ClusterId(k),
        ("%nclusterid", Some(k)) => Special::NClusterId(k),
        ("%cluster_ctaid", Some(k)) => Special::ClusterCtaid(k),
        ("%cluster_nctaid", Some(k)) => Special::ClusterNctaid(k),
        ("%cluster_ctarank", None) => Special::ClusterCtaRank,
        ("%cluster_nctarank", None) => Special::ClusterNctaRank,
        ("%clock", None) => Special::Clock,
        _ => return None,
    })
}

/// A register.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reg {
    /// Predicate.
    Pred(PCol),
    /// First column and bytes (1, 2, 4, 8, 16).
    Data(Col, u32),
}

/// Names of one scope.
#[derive(Default)]
struct Scope {
    one: FxHashMap<String, Reg>,
    /// By prefix: first register, step in columns, count.
    many: FxHashMap<String, (Reg, u32, u32)>,
}

/// The ways to read a name as a prefix and a number.
fn numbered(name: &str) -> impl Iterator<Item = (&str, u32)> {
    let from = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    (from..name.len()).filter_map(|i| {
        let (prefix, digits) = name.split_at(i);
        let plain = digits.len() == 1 || !digits.starts_with('0');
        Some((prefix, digits.parse().ok()?)).filter(|_| plain)
    })
}

impl Scope {
    fn find(&self, name: &str) -> Option<Reg> {
        if let Some(r) = self.one.get(name) {
            return Some(*r);
        }
        numbered(name).find_map(|(prefix, k)| {
            let &(r, step, _) = self.many.get(prefix).filter(|m| k < m.2)?;
            Some(match r {
                Reg::Pred(p) => Reg::Pred(p + k as PCol),
                Reg::Data(c, bytes) => Reg::Data(c + (k * step) as Col, bytes),
            })
        })
    }

    /// A register that `name` or `name<count>` would declare a second time.
    fn twice(&self, name: &str, count: Option<u32>) -> Option<String> {
        let Some(count) = count else { return self.find(name).map(|_| name.to_string()) };
        let inside = |x: &str| numbered(x).any(|(prefix, k)| prefix == name && k < count);
        let one = self.one.keys().filter(|x| inside(x)).min().cloned();
        let family = |(prefix, m): (&String, &(Reg, u32, u32))| {
            let digits = |long: &str, short: &str| {
                long.strip_prefix(short).is_some_and(|d| d.bytes().all(|c| c.is_ascii_digit()))
            };
            // Only where one prefix goes on with digits after the other can both have a name in common.
            if digits(prefix, name) {
                return (0..m.2).map(|k| format!("{prefix}{k}")).find(|x| inside(x));
            }
            let common = |x: &String| numbered(x).any(|(p, k)| p == prefix && k < m.2);
            digits(name, prefix).then(|| (0..count).map(|k| format!("{name}{k}")).find(common))?
        };
        one.or_else(|| self.many.iter().filter_map(family).min())
    }
}

/// Registers of a kernel.
#[derive(Default)]
pub struct RegFile {
    scopes: Vec<Scope>,
    consts: FxHashMap<(u64, u32), Col>,
    specials: FxHashMap<Special, Col>,
    columns: u32,
    preds: u32,
    /// Constant columns: first column, value, 32-bit words.
    pub const_list: Vec<(Col, u64, u32)>,
    /// Special registers and their columns.
    pub special_list: Vec<(Special, Col)>,
    /// The predicate `%is_explicit_cluster`, if the kernel reads it.
    pub explicit_cluster: Option<PCol>,
    /// Names for messages, by column; empty for constants.
    names: Vec<(Col, String, Option<u32>)>,
}

impl RegFile {
    /// Columns in all.
    pub fn columns(&self) -> usize {
        self.columns as usize
    }

    /// Predicates in all.
    pub fn preds(&self) -> usize {
        self.preds as usize
    }

    /// Name of the register that holds a column.
    pub fn name(&self, col: Col) -> String {
        match self.names.partition_point(|x| x.0 <= col).checked_sub(1).map(|i| &self.names[i]) {
            Some((first, n, Some(step))) => format!("{n}{}", u32::from(col - first) / step),
            Some((_, n, None)) => n.clone(),
            None => format!("column {col}"),
        }
    }

    fn columns_for(&mut self, n: u32, at: Place) -> R<Col> {
        let first = self.columns;
        if first + n > MOST {
            let text =
                format!("more than {MOST} words of registers and constants, which is all the emulator has");
            return Err(Diagnostic::new("P017", at, text));
        }
        self.columns += n;
        Ok(first as Col)
    }

    /// Opens a scope of names.
    pub fn open(&mut self) {
        self.scopes.push(Scope::default());
    }

    /// Closes the innermost scope.
    pub fn close(&mut self) {
        self.scopes.pop();
    }

    /// Declares registers in the innermost scope.
    pub fn declare(&mut self, d: &RegDecl) -> R<()> {
        if self.scopes.is_empty() {
            self.open();
        }
        let n = d.count.unwrap_or(1);
        if n > MOST {
            return Err(Diagnostic::new("P017", d.at, format!("{n} registers in one declaration")));
        }
        let (reg, step) = if d.ty == "pred" {
            let first = self.preds;
            self.preds += n;
            if self.preds > MOST {
                return Err(Diagnostic::new("P017", d.at, "too many predicates"));
            }
            (Reg::Pred(first as PCol), 1)
        } else {
            let bytes = type_bytes(&d.ty).unwrap_or(4);
            let step = bytes.div_ceil(4);
            let first = self.columns_for(n * step, d.at)?;
            self.names.push((first, d.name.clone(), d.count.map(|_| step)));
            (Reg::Data(first, bytes), step)
        };
        let Some(scope) = self.scopes.last_mut() else { return Ok(()) };
        if let Some(name) = scope.twice(&d.name, d.count) {
            return Err(Diagnostic::new("P015", d.at, format!("register `{name}` is declared twice")));
        }
        match d.count {
            Some(_) => drop(scope.many.insert(d.name.clone(), (reg, step, n))),
            None => drop(scope.one.insert(d.name.clone(), reg)),
        }
        Ok(())
    }

    /// A declared register.
    pub fn find(&self, name: &str) -> Option<Reg> {
        self.scopes.iter().rev().find_map(|s| s.find(name))
    }

    /// Column of a constant of 32-bit words (1 or 2).
    pub fn constant(&mut self, value: u64, words: u32, at: Place) -> R<Col> {
        let value = if words == 1 { value & 0xFFFF_FFFF } else { value };
        if let Some(&c) = self.consts.get(&(value, words)) {
            return Ok(c);
        }
        let c = self.columns_for(words, at)?;
        self.names.push((c, format!("constant {value:#x}"), None));
        self.consts.insert((value, words), c);
        self.const_list.push((c, value, words));
        Ok(c)
    }

    /// The special register that is a predicate.
    pub fn special_pred(&mut self, name: &str) -> Option<PCol> {
        if name == "%is_explicit_cluster" && self.explicit_cluster.is_none() && self.preds < MOST {
            self.explicit_cluster = Some(self.preds as PCol);
            self.preds += 1;
        }
        self.explicit_cluster.filter(|_| name == "%is_explicit_cluster")
    }

    /// Column of a special register.
    pub fn special(&mut self, name: &str, at: Place) -> Option<R<Col>> {
        let s = special(name)?;
        if let Some(&c) = self.specials.get(&s) {
            return Some(Ok(c));
        }
        let c = match self.columns_for(1, at) {
            Ok(c) => c,
            Err(e) => return Some(Err(e)),
        };
        self.names.push((c, name.to_string(), None));
        self.specials.insert(s, c);
        self.special_list.push((s, c));
        Some(Ok(c))
    }
}
