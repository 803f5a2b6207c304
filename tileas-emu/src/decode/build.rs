//! Decoding one instruction: table lookup and operand access for the build functions.
//!
//! Each table row names a function `fn(&mut Build) -> R<Exec>`. It takes its operands through
//! [`Build`], which checks widths and records the registers read and written.

use super::pattern::Choices;
use super::regs::{Names, Reg, RegFile};
use super::{Col, Collective, Inst, PCol, R};
use crate::diag::Diagnostic;
use crate::parse::ast::{self, Operand, Space};

/// Address operand: `regs[base] + offset`.
#[derive(Copy, Clone, Debug)]
pub struct Addr {
    /// First column of the base.
    pub base: Col,
    /// Whether the base has 64 bits.
    pub wide: bool,
    /// Constant offset.
    pub offset: i64,
}

/// State of decoding one instruction.
pub struct Build<'a> {
    /// The instruction.
    pub inst: &'a ast::Inst,
    /// What the pattern's variable parts took.
    pub choices: Choices<'a>,
    regs: &'a mut RegFile,
    names: &'a Names,
    scope: usize,
    reads: Vec<Col>,
    writes: Vec<Col>,
    preads: Vec<PCol>,
    pwrites: Vec<PCol>,
    collective: Collective,
    visible: bool,
    polls: bool,
    /// See [`Inst::taints`].
    pub taints: bool,
    target: Option<u32>,
}

/// Decodes an instruction.
pub fn instruction(i: &ast::Inst, regs: &mut RegFile, names: &Names, scope: usize) -> R<Inst> {
    let (row, choices) = super::table::find(i)?;
    let mut b = Build {
        inst: i,
        choices,
        regs,
        names,
        scope,
        reads: Vec::new(),
        writes: Vec::new(),
        preads: Vec::new(),
        pwrites: Vec::new(),
        collective: Collective::No,
        visible: false,
        polls: false,
        taints: !i.opcode.starts_with("tcgen05.st") && !i.opcode.starts_with("tcgen05.ld"),
        target: None,
    };
    let guard = match &i.guard {
        Some((name, negated)) => match b.regs.find(name) {
            Some(Reg::Pred(p)) => Some((p, *negated)),
            _ => return Err(b.error("P013", format!("guard `{name}` is not a declared predicate"))),
        },
        None => None,
    };
    let exec = (row.build)(&mut b)?;
    Ok(Inst {
        exec,
        guard,
        reads: b.reads.into(),
        writes: b.writes.into(),
        preads: b.preads.into(),
        pwrites: b.pwrites.into(),
        collective: b.collective,
        visible: b.visible,
        taints: b.taints,
        target: b.target,
        spins: false,
        looped: false,
        polls: b.polls,
        kind: crate::stats::Kind::of(&i.opcode),
        turns: None,
        line: i.at.line,
        text: i.text.clone(),
    })
}

impl<'a> Build<'a> {
    /// An error at the instruction.
    pub fn error(&self, code: &'static str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(code, self.inst.at, format!("{} in `{}`", message.into(), self.inst.text))
    }

    /// Modifier that variable part `k` of the pattern took.
    pub fn m(&self, k: usize) -> Option<&'a str> {
        self.choices.get(k).copied().flatten()
    }

    /// Modifier of part `k`, or the empty text.
    pub fn ms(&self, k: usize) -> &'a str {
        self.m(k).unwrap_or("")
    }

    /// Whether the first space that the opcode names is the shared memory of the CTA alone.
    pub fn own_shared(&self) -> bool {
        let first = self.inst.opcode.split('.').find(|m| m.starts_with("shared") || *m == "global");
        first.is_some_and(|m| matches!(m, "shared" | "shared::cta"))
    }

    /// Number of operands.
    pub fn len(&self) -> usize {
        self.inst.operands.len()
    }

    /// Whether there are no operands.
    pub fn is_empty(&self) -> bool {
        self.inst.operands.is_empty()
    }

    /// Requires a number of operands.
    pub fn count(&self, n: usize) -> R<()> {
        if self.len() == n {
            Ok(())
        } else {
            Err(self.error("P012", format!("{n} operands expected, found {}", self.len())))
        }
    }

    /// Marks the instruction as visible to others.
    pub fn visible(&mut self) {
        self.visible = true;
    }

    /// Marks the instruction as one whose result depends on when it executes.
    pub fn polls(&mut self) {
        self.polls = true;
    }

    /// Sets which lanes must come together.
    pub fn collective(&mut self, c: Collective) {
        self.collective = c;
    }

    /// Takes columns out of the lists that the machine checks: the instruction checks them itself.
    pub fn forget(&mut self, cols: &[Col]) {
        self.reads.retain(|c| !cols.contains(c));
        self.writes.retain(|c| !cols.contains(c));
    }

    /// Operand `k` as written.
    pub fn operand(&self, k: usize) -> R<&'a Operand> {
        self.inst.operands.get(k).ok_or_else(|| self.error("P012", format!("operand {} is missing", k + 1)))
    }

    fn read_words(&mut self, c: Col, words: u32) {
        self.reads.extend((0..words as Col).map(|k| c + k));
    }

    /// Columns of a source operand of `bytes` bytes (1, 2 and 4 take one column).
    pub fn source(&mut self, o: &Operand, bytes: u32) -> R<Col> {
        let words = bytes.div_ceil(4);
        let value = match o {
            Operand::Name(n) => {
                if let Some(r) = self.regs.find(n) {
                    return match r {
                        Reg::Data(c, have) if have == bytes || have.max(bytes) <= 2 => {
                            self.read_words(c, words);
                            Ok(c)
                        }
                        Reg::Data(_, have) => Err(self
                            .error("P014", format!("`{n}` has {} bits, {} expected", have * 8, bytes * 8))),
                        Reg::Pred(_) => Err(self.error("P014", format!("`{n}` is a predicate"))),
                    };
                }
                if let Some(c) = self.regs.special(n, self.inst.at) {
                    let c = c?;
                    if bytes > 4 {
                        return Err(self.error("P014", format!("`{n}` has 32 bits")));
                    }
                    self.read_words(c, 1);
                    return Ok(c);
                }
                match self.names.find_symbol(self.scope, n) {
                    Some(s) => s.address,
                    None => return Err(self.error("P013", format!("`{n}` is not declared"))),
                }
            }
            Operand::Int(v) => {
                let fits = bytes >= 8
                    || *v >> (8 * bytes) == 0
                    || (*v as i64) >= -(1i64 << (8 * bytes - 1)) && (*v as i64) < 0;
                if !fits {
                    return Err(self.error("P017", format!("{v:#x} does not fit in {} bits", bytes * 8)));
                }
                if bytes >= 8 { *v } else { *v & ((1 << (8 * bytes)) - 1) }
            }
            Operand::F32(v) if bytes == 4 => u64::from(*v),
            Operand::F64(v) if bytes == 8 => *v,
            Operand::F64(v) if bytes == 4 => u64::from((f64::from_bits(*v) as f32).to_bits()),
            _ => return Err(self.error("P012", "a register or an immediate is expected")),
        };
        if words > 2 {
            return Err(self.error("P012", "a register is expected"));
        }
        self.regs.constant(value, words, self.inst.at)
    }

    /// Source operand `k`.
    pub fn src(&mut self, k: usize, bytes: u32) -> R<Col> {
        let o = self.operand(k)?;
        self.source(o, bytes)
    }

    /// Source register of at least `bytes` bytes (stores and conversions take wider ones).
    pub fn src_wide(&mut self, o: &Operand, bytes: u32) -> R<Col> {
        if let Operand::Name(n) = o
            && let Some(Reg::Data(c, have)) = self.regs.find(n)
            && have >= bytes
        {
            self.read_words(c, bytes.div_ceil(4));
            return Ok(c);
        }
        self.source(o, bytes)
    }

    /// Destination register of exactly `bytes` bytes.
    pub fn dest(&mut self, o: &Operand, bytes: u32) -> R<Col> {
        match self.dest_wide(o, bytes)? {
            (c, have) if have == bytes.max(1) || have.max(bytes) <= 2 => Ok(c),
            (_, have) => {
                Err(self.error("P014", format!("destination has {} bits, {} expected", have * 8, bytes * 8)))
            }
        }
    }

    /// Destination register of at least `bytes` bytes, and its size.
    pub fn dest_wide(&mut self, o: &Operand, bytes: u32) -> R<(Col, u32)> {
        let Operand::Name(n) = o else {
            return Err(self.error("P012", "a destination register is expected"));
        };
        match self.regs.find(n) {
            Some(Reg::Data(c, have)) if have >= bytes || have.max(bytes) <= 2 => {
                self.writes.extend((0..have.div_ceil(4) as Col).map(|k| c + k));
                Ok((c, have))
            }
            Some(Reg::Data(_, have)) => {
                Err(self.error("P014", format!("`{n}` has {} bits, {} expected", have * 8, bytes * 8)))
            }
            Some(Reg::Pred(_)) => Err(self.error("P014", format!("`{n}` is a predicate"))),
            None => Err(self.error("P013", format!("register `{n}` is not declared"))),
        }
    }

    /// Destination operand `k`.
    pub fn dst(&mut self, k: usize, bytes: u32) -> R<Col> {
        let o = self.operand(k)?;
        self.dest(o, bytes)
    }

    /// Bytes of the register an operand names.
    pub fn width(&self, o: &Operand) -> Option<u32> {
        match o {
            Operand::Name(n) => match self.regs.find(n)? {
                Reg::Data(_, b) => Some(b),
                Reg::Pred(_) => None,
            },
            _ => None,
        }
    }

    /// Source predicate and whether it is negated; an integer is a constant, true where it is not 0.
    pub fn pred(&mut self, o: &Operand) -> R<PredSrc> {
        match o {
            Operand::Int(v) => Ok(PredSrc::Const(*v != 0)),
            Operand::Not(x) => match self.pred(x)? {
                PredSrc::Reg(p, n) => Ok(PredSrc::Reg(p, !n)),
                PredSrc::Const(c) => Ok(PredSrc::Const(!c)),
            },
            Operand::Name(n) => match self.regs.find(n) {
                Some(Reg::Pred(p)) => {
                    self.preads.push(p);
                    Ok(PredSrc::Reg(p, false))
                }
                None if let Some(p) = self.regs.special_pred(n) => Ok(PredSrc::Reg(p, false)),
                _ => Err(self.error("P013", format!("`{n}` is not a declared predicate"))),
            },
            _ => Err(self.error("P012", "a predicate is expected")),
        }
    }

    /// Destination predicate; `None` for the sink `_`.
    pub fn pred_dst(&mut self, o: &Operand) -> R<Option<PCol>> {
        match o {
            Operand::Sink => Ok(None),
            Operand::Name(n) => match self.regs.find(n) {
                Some(Reg::Pred(p)) => {
                    self.pwrites.push(p);
                    Ok(Some(p))
                }
                _ => Err(self.error("P013", format!("`{n}` is not a declared predicate"))),
            },
            _ => Err(self.error("P012", "a predicate is expected")),
        }
    }

    /// Whether operand `k` names a predicate.
    pub fn is_pred(&self, k: usize) -> bool {
        match self.inst.operands.get(k) {
            Some(Operand::Name(n)) => matches!(self.regs.find(n), Some(Reg::Pred(_))),
            Some(Operand::Not(_)) => true,
            _ => false,
        }
    }

    /// Address operand, and the space of the variable it names.
    pub fn address(&mut self, o: &Operand) -> R<(Addr, Option<Space>)> {
        let Operand::Memory { base, offset, coords: None } = o else {
            return Err(self.error("P012", "an address in brackets is expected"));
        };
        self.base(base.as_deref(), *offset)
    }

    fn base(&mut self, base: Option<&str>, offset: i64) -> R<(Addr, Option<Space>)> {
        let Some(n) = base else {
            let base = self.regs.constant(offset as u64, 2, self.inst.at)?;
            return Ok((Addr { base, wide: true, offset: 0 }, None));
        };
        match self.regs.find(n) {
            Some(Reg::Data(c, 4)) => {
                self.read_words(c, 1);
                Ok((Addr { base: c, wide: false, offset }, None))
            }
            Some(Reg::Data(c, 8)) => {
                self.read_words(c, 2);
                Ok((Addr { base: c, wide: true, offset }, None))
            }
            Some(_) => Err(self.error("P014", format!("`{n}` cannot hold an address"))),
            None => match self.names.find_symbol(self.scope, n) {
                Some(s) => {
                    let base = self.regs.constant(s.address, 2, self.inst.at)?;
                    Ok((Addr { base, wide: true, offset }, Some(s.space)))
                }
                None => Err(self.error("P013", format!("`{n}` is not declared"))),
            },
        }
    }

    /// Address operand `k`.
    pub fn mem(&mut self, k: usize) -> R<Addr> {
        let o = self.operand(k)?;
        Ok(self.address(o)?.0)
    }

    /// `[map, {coordinates}]` as the map's address and the coordinates' columns.
    pub fn tensor(&mut self, k: usize, rank: usize) -> R<(Addr, Vec<Col>)> {
        match self.operand(k)? {
            Operand::Memory { base, offset, coords: Some(c) } if c.len() == rank => {
                let a = self.base(base.as_deref(), *offset)?.0;
                let c = c.iter().map(|x| self.source(x, 4)).collect::<R<Vec<_>>>()?;
                Ok((a, c))
            }
            _ => Err(self.error("P012", format!("[map, {{{rank} coordinates}}] is expected"))),
        }
    }

    /// Items of a vector operand; a scalar is a vector of one.
    pub fn items(&self, k: usize) -> R<&'a [Operand]> {
        Ok(match self.operand(k)? {
            Operand::Vector(v) => v,
            o => std::slice::from_ref(o),
        })
    }

    /// Immediate operand `k`.
    pub fn imm(&self, k: usize) -> R<u64> {
        match self.operand(k)? {
            Operand::Int(v) => Ok(*v),
            _ => Err(self.error("P012", format!("operand {} must be an immediate", k + 1))),
        }
    }

    /// Instruction number of the label operand `k` names.
    pub fn label(&mut self, k: usize) -> R<u32> {
        let Operand::Name(n) = self.operand(k)? else {
            return Err(self.error("P012", "a label is expected"));
        };
        self.jump(n)
    }

    fn jump(&mut self, name: &str) -> R<u32> {
        let Some(t) = self.names.find_label(self.scope, name) else {
            return Err(self.error("P016", format!("label `{name}` is not defined")));
        };
        self.target = Some(self.target.map_or(t, |x| x.min(t)));
        Ok(t)
    }

    /// Instruction numbers of the table of labels that operand `k` names.
    pub fn table(&mut self, k: usize) -> R<Vec<u32>> {
        let Operand::Name(n) = self.operand(k)? else {
            return Err(self.error("P012", "a table of labels is expected"));
        };
        let Some(list) = self.names.find_table(self.scope, n) else {
            return Err(self.error("P016", format!("`{n}` names no .branchtargets")));
        };
        list.iter().map(|l| self.jump(l)).collect()
    }
}

/// A predicate operand.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PredSrc {
    /// Register, and whether it is negated.
    Reg(PCol, bool),
    /// Constant.
    Const(bool),
}
