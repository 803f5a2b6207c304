//! Atomics and reductions, and the order that acquire and release accesses make.
//! Source: PTX ISA, "atom", "red".

use super::cx::{Cx, Loc, lanes};
use super::int::sx;
use super::{Flow, Trap, X};
use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{Exec, R};
use crate::detect::clock::{Released, Scope, Sent};
use crate::num::arith::{self, MinMax};
use crate::num::{Cvt, Format, Rounding};
use crate::parse::ast::Operand;
use crate::parse::type_bytes;
use rustc_hash::FxHashMap;
use std::rc::Rc;

impl Cx<'_> {
    /// What was released to addresses of a memory, and the address there.
    fn sent(&mut self, at: Loc) -> X<(&mut FxHashMap<u64, Vec<Sent>>, u64)> {
        Ok(match at {
            Loc::Shared(a) => {
                let (cta, a) = self.peers.at(self.cta, a)?;
                (&mut cta.sync_vars, a.into())
            }
            Loc::Global(a) => (&mut self.gshadow.sync_vars, a),
            Loc::Param(_) | Loc::Local(_) => (&mut self.gshadow.sync_vars, 0),
        })
    }

    fn send(&mut self, at: Loc, scope: Scope, what: &Released) -> X<()> {
        let own = self.cta.det.cta;
        let (all, address) = self.sent(at)?;
        Sent::add(all.entry(address).or_default(), own, scope, what);
        Ok(())
    }

    /// Takes in what was released to an address: at once, or at the next fence. Both sides must be for a scope that
    /// has the other.
    pub fn acquire_from(&mut self, at: Loc, at_once: bool, scope: Scope) -> X<()> {
        if !self.cta.det.on.races {
            return Ok(());
        }
        let (all, address) = self.sent(at)?;
        let Some(list) = all.remove(&address) else { return Ok(()) };
        let det = &self.cta.det;
        let know = &mut self.w.frags[self.f].know;
        for s in &list {
            let scope = scope.min(s.scope);
            if scope < det.reach(s.cta) {
                continue;
            }
            if at_once {
                know.acquire_of(s.cta, det.cta, &s.what);
            } else {
                Sent::add(&mut know.fence_in, s.cta, scope, &s.what);
            }
        }
        self.sent(at)?.0.insert(address, list);
        Ok(())
    }

    /// Hands over to an address what the fragment knows, or what it knew at its last fences.
    pub fn release_to(&mut self, at: Loc, lane: usize, at_once: bool, scope: Scope) -> X<()> {
        if !self.cta.det.on.races {
            return Ok(());
        }
        if at_once {
            let r = self.release(1 << lane);
            return self.send(at, scope, &r);
        }
        let fences = self.know().fence_out.clone();
        let mut wider: Option<&Rc<Released>> = None;
        for k in [Scope::Device, Scope::Cluster, Scope::Cta].into_iter().filter(|&k| k <= scope) {
            let Some(r) = &fences[k as usize] else { continue };
            if !wider.is_some_and(|w| Rc::ptr_eq(w, r)) {
                self.send(at, k, r)?;
            }
            wider = Some(r);
        }
        Ok(())
    }
}

/// What an atomic makes of the old value and its operands.
pub type Update = dyn Fn(u64, u64, u64) -> u64 + Send + Sync;

/// The function of an operation and a type.
pub fn update(b: &Build<'_>, op: &str, ty: &str) -> R<Box<Update>> {
    let n = type_bytes(ty).unwrap_or(4);
    let signed = ty.starts_with('s');
    if let Some(f) = Format::by_name(ty.strip_suffix("x2").unwrap_or(ty)) {
        let pairs = ty.ends_with("x2");
        let how = Cvt::with(Rounding::Rn);
        if !matches!(op, "add" | "min" | "max" | "exch") {
            return Err(b.error("P011", "operation not of this type"));
        }
        let g: fn(&Format, u64, u64, Cvt) -> u64 = match op {
            "add" => arith::add,
            "min" => |f, x, y, _| arith::min_max(f, x, y, MinMax::default()),
            "max" => |f, x, y, _| arith::min_max(f, x, y, MinMax { max: true, ..MinMax::default() }),
            _ => |_, _, y, _| y,
        };
        return Ok(Box::new(move |x, y, _| {
            if pairs {
                let (w, m) = (f.bits, (1u64 << f.bits) - 1);
                g(f, x & m, y & m, how) | g(f, x >> w & m, y >> w & m, how) << w
            } else {
                g(f, x, y, how)
            }
        }));
    }
    Ok(match op {
        "add" => Box::new(|x, y, _| x.wrapping_add(y)),
        "and" => Box::new(|x, y, _| x & y),
        "or" => Box::new(|x, y, _| x | y),
        "xor" => Box::new(|x, y, _| x ^ y),
        "exch" => Box::new(|_, y, _| y),
        "cas" => Box::new(|x, y, z| if x == y { z } else { x }),
        "min" if signed => Box::new(move |x, y, _| sx(x, n).min(sx(y, n)) as u64),
        "max" if signed => Box::new(move |x, y, _| sx(x, n).max(sx(y, n)) as u64),
        "min" => Box::new(|x, y, _| x.min(y)),
        "max" => Box::new(|x, y, _| x.max(y)),
        "inc" => Box::new(|x, y, _| if x >= y { 0 } else { x + 1 }),
        "dec" => Box::new(|x, y, _| if x == 0 || x > y { y } else { x - 1 }),
        _ => return Err(b.error("P011", "unknown operation")),
    })
}

fn atom(b: &mut Build<'_>) -> R<Exec> {
    b.visible();
    b.polls();
    let red = b.inst.opcode.starts_with("red");
    let mods: Vec<&str> = b.inst.opcode.split('.').collect();
    let ty = mods.last().copied().unwrap_or("");
    let n = type_bytes(ty).ok_or_else(|| b.error("P011", "not a type"))?;
    let kinds: [&[&str]; 4] = [
        &["relaxed", "acquire", "release", "acq_rel"],
        &["cta", "cluster", "gpu", "sys"],
        &["global", "shared", "shared::cta", "shared::cluster"],
        &["v2", "v4", "v8"],
    ];
    if kinds.iter().any(|k| mods.iter().filter(|m| k.contains(m)).count() > 1) {
        return Err(b.error("P011", "two modifiers of one kind"));
    }
    let find = |names: &[&str]| mods[1..].iter().copied().find(|m| names.contains(m));
    let op = find(&["add", "and", "or", "xor", "exch", "cas", "min", "max", "inc", "dec"]).unwrap_or("");
    let space = find(kinds[2]).unwrap_or("");
    let parts = find(kinds[3]).map_or(1, |v| usize::from(v.as_bytes()[1] - b'0'));
    let (acquire, release) =
        (find(&["acquire", "acq_rel"]).is_some(), find(&["release", "acq_rel"]).is_some());
    let scope = Scope::of(&b.inst.opcode).unwrap_or(Scope::Device);
    let f = update(b, op, ty)?;
    let k = usize::from(!red);
    b.count(k + if op == "cas" { 3 } else { 2 })?;
    let items = |b: &Build<'_>, i: usize| match b.items(i)? {
        v if v.len() == parts => Ok(v.to_vec()),
        _ => Err(b.error("P012", format!("{parts} registers expected"))),
    };
    if parts > 1 && (op == "cas" || n * parts as u32 > 16) {
        return Err(b.error("P011", "not a vector operation"));
    }
    let d = match (red, b.operand(0)?) {
        (true, _) | (_, Operand::Sink) => vec![None; parts],
        _ => items(b, 0)?.iter().map(|o| b.dest(o, n).map(Some)).collect::<R<Vec<_>>>()?,
    };
    let a = b.mem(k)?;
    let x = items(b, k + 1)?.iter().map(|o| b.source(o, n)).collect::<R<Vec<_>>>()?;
    let y = if op == "cas" { b.src(k + 2, n)? } else { x[0] };
    let (shared, cluster) = (space.starts_with("shared"), space == "shared::cluster");
    let global = space == "global";
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let at = if cluster {
                Loc::Shared(cx.cluster_address(a, l)?)
            } else if shared {
                Loc::Shared(cx.shared_address(a, l)?)
            } else if global {
                Loc::Global(cx.w.address(a, l))
            } else {
                cx.generic(cx.w.address(a, l))
            };
            let whole = n * parts as u32;
            if let Loc::Global(g) = at
                && !g.is_multiple_of(whole.into())
            {
                return Err(Trap::new("align", format!("atomic of {whole} bytes at {g:#x} is misaligned")));
            }
            for (i, (&x, &d)) in x.iter().zip(&d).enumerate() {
                let at = at.plus(i as u32 * n);
                let mut buffer = [0u8; 8];
                let bytes = &mut buffer[..n as usize];
                match at {
                    // One access, which both reads and writes.
                    Loc::Shared(s) => {
                        cx.touch_shared(s, n, true, true, Some(l))?;
                        let (cta, s) = cx.peers.at(cx.cta, s)?;
                        cta.smem.check_defined(s, n, "atomic")?;
                        bytes.copy_from_slice(cta.smem.slice(s, n));
                    }
                    Loc::Global(_) => cx.load(at, bytes, l, true)?,
                    _ => return Err(Trap::new("bounds", "atomic on parameter or local memory")),
                }
                let old = u64::from_le_bytes(buffer);
                let new = f(old, super::int::get(cx, x, n, l), super::int::get(cx, y, n, l)).to_le_bytes();
                match at {
                    Loc::Shared(s) => {
                        let (cta, s) = cx.peers.at(cx.cta, s)?;
                        cta.smem.write(s, &new[..n as usize]);
                        cta.changed();
                    }
                    _ => cx.store(at, &new[..n as usize], l, true)?,
                }
                if let Some(d) = d {
                    super::int::set(cx, d, n, l, old);
                }
            }
            cx.note(l, at, whole);
            cx.release_to(at, l, release, scope)?;
            cx.acquire_from(at, acquire, scope)?;
        }
        Ok(Flow::Yield)
    }))
}

/// Rows of this family. Semantics, scope and space stand in any order: assemblers take that.
pub const ROWS: &[Row] = &[
    row(
        "atom.{relaxed,acquire,release,acq_rel,cta,cluster,gpu,sys,global,shared,shared::cta,shared::cluster}?.{relaxed,acquire,release,acq_rel,cta,cluster,gpu,sys,global,shared,shared::cta,shared::cluster}?.{relaxed,acquire,release,acq_rel,cta,cluster,gpu,sys,global,shared,shared::cta,shared::cluster}?.{add,and,or,xor,exch,cas,min,max,inc,dec}.noftz?.{v2,v4,v8}?.{b16,b32,u32,s32,f32,b64,u64,s64,f64,f16,f16x2,bf16,bf16x2}",
        atom,
    ),
    row(
        "red.{relaxed,release,acq_rel,cta,cluster,gpu,sys,global,shared,shared::cta,shared::cluster}?.{relaxed,release,acq_rel,cta,cluster,gpu,sys,global,shared,shared::cta,shared::cluster}?.{relaxed,release,acq_rel,cta,cluster,gpu,sys,global,shared,shared::cta,shared::cluster}?.{add,and,or,xor,min,max,inc,dec}.noftz?.{v2,v4,v8}?.{b32,u32,s32,f32,b64,u64,s64,f64,f16,f16x2,bf16,bf16x2}",
        atom,
    ),
];
