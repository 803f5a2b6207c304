//! Atomics and reductions, and the order that acquire and release accesses make.
//! Source: PTX ISA, "atom", "red".

use super::cx::{Cx, Loc, lanes};
use super::int::sx;
use super::{Flow, Trap, X};
use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{Exec, R};
use crate::num::arith::{self, MinMax};
use crate::num::{Cvt, Format, Rounding};
use crate::parse::ast::Operand;
use crate::parse::type_bytes;

fn key(at: Loc) -> u64 {
    match at {
        Loc::Shared(a) => u64::from(a),
        Loc::Global(a) => a,
        Loc::Param(_) | Loc::Local(_) => 0,
    }
}

impl Cx<'_> {
    /// Takes in what was released to an address: at once, or at the next fence.
    pub fn acquire_from(&mut self, at: Loc, at_once: bool) {
        if !self.cta.det.on.races {
            return;
        }
        let own = self.cta.det.cta;
        let sync = match at {
            Loc::Shared(_) => &self.cta.sync_vars,
            _ => &self.gshadow.sync_vars,
        };
        let Some(list) = sync.get(&key(at)) else { return };
        let know = &mut self.w.frags[self.f].know;
        for (cta, r) in list {
            if at_once {
                know.acquire_of(*cta, own, r);
            } else {
                know.keep_for_fence(*cta, r);
            }
        }
    }

    /// Hands over to an address what the fragment knows, or what it knew at its last fence.
    pub fn release_to(&mut self, at: Loc, lane: usize, at_once: bool) {
        if !self.cta.det.on.races {
            return;
        }
        let r = if at_once {
            self.release(1 << lane)
        } else {
            match &self.w.frags[self.f].know.fence_out {
                Some(r) => (**r).clone(),
                None => return,
            }
        };
        let own = self.cta.det.cta;
        let sync = match at {
            Loc::Shared(_) => &mut self.cta.sync_vars,
            _ => &mut self.gshadow.sync_vars,
        };
        let list = sync.entry(key(at)).or_default();
        match list.iter_mut().find(|x| x.0 == own) {
            Some(x) => x.1.join(&r),
            None => list.push((own, r)),
        }
    }
}

type Update = Box<dyn Fn(u64, u64, u64) -> u64 + Send + Sync>;

fn update(b: &Build<'_>, op: &str, ty: &str) -> R<Update> {
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
        &["global", "shared", "shared::cta"],
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
    let shared = space.starts_with("shared");
    let global = space == "global";
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let at = if shared {
                Loc::Shared(cx.shared_address(a, l)?)
            } else if global {
                Loc::Global(cx.w.address(a, l))
            } else {
                cx.generic(cx.w.address(a, l))
            };
            cx.release_to(at, l, release);
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
                    // Atomics on shared memory do not race with each other; their bytes are checked by hand.
                    Loc::Shared(s) => {
                        cx.cta.smem.check(s, n, n, "atomic")?;
                        cx.cta.smem.check_defined(s, n, "atomic")?;
                        if cx.cta.smem.in_mbarrier(s, n) {
                            return Err(Trap::new(
                                "barrier.bytes",
                                format!("atomic on an mbarrier at {s:#x}"),
                            ));
                        }
                        cx.cta.footprint.bytes(s, n, true);
                        bytes.copy_from_slice(cx.cta.smem.slice(s, n));
                    }
                    Loc::Global(_) => cx.load(at, bytes, l, true)?,
                    _ => return Err(Trap::new("bounds", "atomic on parameter or local memory")),
                }
                let old = u64::from_le_bytes(buffer);
                let new = f(old, super::int::get(cx, x, n, l), super::int::get(cx, y, n, l)).to_le_bytes();
                match at {
                    Loc::Shared(s) => {
                        shared_epoch(cx, s, n, l)?;
                        cx.cta.smem.write(s, &new[..n as usize]);
                        cx.cta.changed();
                    }
                    _ => cx.store(at, &new[..n as usize], l, true)?,
                }
                if let Some(d) = d {
                    super::int::set(cx, d, n, l, old);
                }
            }
            cx.note(l, at, whole);
            cx.acquire_from(at, acquire);
        }
        Ok(Flow::Yield)
    }))
}

fn shared_epoch(cx: &mut Cx<'_>, address: u32, bytes: u32, lane: usize) -> X<()> {
    if cx.cta.det.on.races {
        let epoch = crate::detect::shadow::Epoch { atomic: true, ..cx.lane_epoch(lane) };
        let who = crate::detect::Who { epoch, know: &cx.w.frags[cx.f].know, since: cx.w.since };
        cx.cta.det.shared(address, bytes, true, &who)?;
    }
    Ok(())
}

/// Rows of this family. Semantics, scope and space stand in any order: assemblers take that.
pub const ROWS: &[Row] = &[
    row(
        "atom.{relaxed,acquire,release,acq_rel,cta,cluster,gpu,sys,global,shared,shared::cta}?.{relaxed,acquire,release,acq_rel,cta,cluster,gpu,sys,global,shared,shared::cta}?.{relaxed,acquire,release,acq_rel,cta,cluster,gpu,sys,global,shared,shared::cta}?.{add,and,or,xor,exch,cas,min,max,inc,dec}.noftz?.{v2,v4,v8}?.{b16,b32,u32,s32,f32,b64,u64,s64,f64,f16,f16x2,bf16,bf16x2}",
        atom,
    ),
    row(
        "red.{relaxed,release,acq_rel,cta,cluster,gpu,sys,global,shared,shared::cta}?.{relaxed,release,acq_rel,cta,cluster,gpu,sys,global,shared,shared::cta}?.{relaxed,release,acq_rel,cta,cluster,gpu,sys,global,shared,shared::cta}?.{add,and,or,xor,min,max,inc,dec}.noftz?.{v2,v4,v8}?.{b32,u32,s32,f32,b64,u64,s64,f64,f16,f16x2,bf16,bf16x2}",
        atom,
    ),
];
