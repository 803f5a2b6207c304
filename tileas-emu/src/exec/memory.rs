//! Loads and stores.
//! A thread may put aside in shared or local memory what it has no value of, such as rows that a tile in tensor memory
//! lacks, and take it back; what it gets then is no value either. Nobody else may read it.
//! Source: PTX ISA, "ld", "ld.global.nc", "st".

use super::cx::{Cx, Loc, lanes, rank_of};
use super::int::sx;
use super::{Flow, Trap, X};
use crate::decode::build::{Addr, Build};
use crate::decode::table::{Row, row};
use crate::decode::{Col, Exec, R};
use crate::detect::clock::Scope;
use crate::parse::ast::{Operand, Space};
use crate::parse::type_bytes;

#[derive(Copy, Clone, PartialEq, Eq)]
enum In {
    Generic,
    Global,
    Shared,
    Cluster,
    Param,
    Local,
}

fn space(b: &Build<'_>, name: &str) -> R<In> {
    Ok(match name {
        "" => In::Generic,
        "global" | "const" => In::Global,
        "shared" | "shared::cta" => In::Shared,
        "shared::cluster" => In::Cluster,
        "param" => In::Param,
        "local" => In::Local,
        _ => return Err(b.error("P011", format!("space `{name}`"))),
    })
}

impl Cx<'_> {
    fn place(&self, space: In, a: Addr, l: usize) -> X<Loc> {
        let v = self.w.address(a, l);
        let small = |v: u64, f: fn(u32) -> Loc| {
            u32::try_from(v)
                .map(f)
                .map_err(|_| Trap::new("bounds", format!("address {v:#x} is outside its space")))
        };
        Ok(match space {
            In::Generic => self.generic(v),
            In::Global => Loc::Global(v),
            In::Shared => Loc::Shared(self.shared_address(a, l)?),
            In::Cluster => Loc::Shared(self.cluster_address(a, l)?),
            In::Param => small(v, Loc::Param)?,
            In::Local => small(v, Loc::Local)?,
        })
    }

    /// Number of the lane's thread in the CTA.
    fn thread(&self, lane: usize) -> u32 {
        self.w.id * 32 + lane as u32
    }

    /// Requires that an address does not depend on what holds no value.
    fn address_known(&self, a: Addr, active: u32) -> X<()> {
        let of = |c: Col| self.w.taint[usize::from(c)];
        let taint = of(a.base) | if a.wide { of(a.base + 1) } else { 0 };
        if taint & active == 0 {
            return Ok(());
        }
        Err(Trap::new("undefined", "an address depends on tensor memory that holds no value"))
    }

    /// Whether what lies there was stored by the lane, which had no value of it.
    fn put_aside(&self, at: Loc, n: u32, lane: usize) -> X<bool> {
        Ok(match at {
            Loc::Shared(a) => self.cta.smem.undefined_by(a, n, self.thread(lane)),
            Loc::Local(a) => {
                let from = self.local(a, n, lane)?;
                self.w.local_taint.get(from..from + n as usize).is_some_and(|t| t.contains(&true))
            }
            _ => false,
        })
    }

    /// Notes that the lane had no value of what it stored there.
    fn set_aside(&mut self, at: Loc, n: u32, lane: usize) -> X<()> {
        match at {
            Loc::Shared(a) => {
                if rank_of(a).is_some() {
                    return Err(Trap::new("undefined", "store to another CTA of what holds no value"));
                }
                self.cta.smem.undefine(a, n, self.thread(lane));
            }
            Loc::Local(a) => {
                let to = self.local(a, n, lane)?;
                self.w.local_taint.resize(self.w.local.len(), false);
                self.w.local_taint[to..to + n as usize].fill(true);
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads bytes of a place into `out`.
    pub fn load(&mut self, at: Loc, out: &mut [u8], lane: usize, atomic: bool) -> X<()> {
        let n = out.len() as u32;
        let aligned = |a: u64| {
            if a.is_multiple_of(u64::from(n)) {
                Ok(())
            } else {
                Err(Trap::new("align", format!("load of {n} bytes at {a:#x} is misaligned")))
            }
        };
        match at {
            Loc::Shared(a) => {
                self.touch_shared(a, n, false, atomic, Some(lane))?;
                let thread = self.thread(lane);
                let own = rank_of(a).is_none();
                let (cta, a) = self.peers.at(self.cta, a)?;
                if !(own && cta.smem.undefined_by(a, n, thread)) {
                    cta.smem.check_defined(a, n, "read")?;
                }
                out.copy_from_slice(cta.smem.slice(a, n));
            }
            Loc::Global(a) => {
                aligned(a)?;
                let s = self.mem.slice(a, n)?;
                out.copy_from_slice(s);
                self.touch_global(a, n, false, atomic, lane)?;
            }
            Loc::Param(a) => {
                aligned(a.into())?;
                let s = self.env.params.get(a as usize..a as usize + n as usize);
                out.copy_from_slice(s.ok_or_else(|| {
                    Trap::new("bounds", format!("parameter offset {a:#x} is out of range"))
                })?);
            }
            Loc::Local(a) => {
                aligned(a.into())?;
                let from = self.local(a, n, lane)?;
                let defined = self.w.local_defined.get(from..from + n as usize).unwrap_or(&[]);
                if let Some(i) = defined.iter().position(|d| !d) {
                    let at = a as usize + i;
                    return Err(Trap::new(
                        "undefined",
                        format!("read of local memory of lane {lane} at {at:#x}, which holds no value"),
                    ));
                }
                out.copy_from_slice(&self.w.local[from..from + n as usize]);
            }
        }
        Ok(())
    }

    fn local(&self, a: u32, n: u32, lane: usize) -> X<usize> {
        if a.checked_add(n).is_none_or(|e| e > self.kernel.local_bytes) {
            return Err(Trap::new(
                "bounds",
                format!("local access of {n} bytes at {a:#x} of {} bytes", self.kernel.local_bytes),
            ));
        }
        Ok(lane * self.kernel.local_bytes as usize + a as usize)
    }

    /// Writes bytes to a place. A polling thread sees no change where they are there already, nor in local memory: a loop may
    /// store what it has over and over while it waits.
    pub fn store(&mut self, at: Loc, data: &[u8], lane: usize, atomic: bool) -> X<()> {
        let n = data.len() as u32;
        let aligned = |a: u64| {
            if a.is_multiple_of(u64::from(n)) {
                Ok(())
            } else {
                Err(Trap::new("align", format!("store of {n} bytes at {a:#x} is misaligned")))
            }
        };
        let changes = match at {
            Loc::Shared(a) => {
                self.touch_shared(a, n, true, atomic, Some(lane))?;
                let (cta, a) = self.peers.at(self.cta, a)?;
                let changes = cta.smem.slice(a, n) != data;
                cta.smem.write(a, data);
                if changes {
                    cta.changed();
                }
                return Ok(());
            }
            Loc::Global(a) => {
                aligned(a)?;
                let place = self.mem.slice_mut(a, n)?;
                let changes = place != data;
                place.copy_from_slice(data);
                if changes {
                    self.mem.changed();
                }
                self.touch_global(a, n, true, atomic, lane)?;
                changes
            }
            Loc::Param(a) => return Err(Trap::new("bounds", format!("store to parameter memory at {a:#x}"))),
            Loc::Local(a) => {
                aligned(a.into())?;
                let to = self.local(a, n, lane)?;
                self.w.local[to..to + n as usize].copy_from_slice(data);
                if let Some(defined) = self.w.local_defined.get_mut(to..to + n as usize) {
                    defined.fill(true);
                }
                if let Some(taint) = self.w.local_taint.get_mut(to..to + n as usize) {
                    taint.fill(false);
                }
                false
            }
        };
        if changes {
            self.cta.changed();
        }
        Ok(())
    }
}

/// Address whose variable, if it names one, must be in the instruction's space.
fn address(b: &mut Build<'_>, k: usize, want: In) -> R<Addr> {
    let o = b.operand(k)?;
    let (a, s) = b.address(o)?;
    let fits = match s {
        None => true,
        Some(Space::Param) => want == In::Param,
        Some(Space::Shared) => matches!(want, In::Shared | In::Cluster),
        Some(Space::Local) => want == In::Local,
        Some(Space::Global | Space::Const) => matches!(want, In::Global | In::Generic),
    };
    if fits { Ok(a) } else { Err(b.error("P012", "the variable is in another state space")) }
}

fn shape(b: &Build<'_>, vector: usize) -> R<(u32, bool, usize)> {
    let t = b.inst.opcode.rsplit('.').next().unwrap_or("");
    let n = type_bytes(t).ok_or_else(|| b.error("P011", "not a type"))?;
    let v = match b.ms(vector) {
        "v2" => 2,
        "v4" => 4,
        "v8" => 8,
        _ => 1,
    };
    if n * v as u32 > 32 || n == 16 && v > 1 {
        return Err(b.error("P011", "access wider than 256 bits"));
    }
    Ok((n, t.starts_with('s'), v))
}

fn words(bytes: &[u8], signed: bool) -> [u32; 4] {
    let mut w = [0u32; 4];
    for (i, &x) in bytes.iter().enumerate() {
        w[i / 4] |= u32::from(x) << (8 * (i % 4));
    }
    if signed && bytes.len() < 8 {
        let v = sx(u64::from(w[0]), bytes.len() as u32);
        w[0] = v as u32;
        w[1] = (v >> 32) as u32;
    }
    w
}

fn ld(b: &mut Build<'_>) -> R<Exec> {
    let parts: Vec<&str> = b.inst.opcode.split('.').collect();
    let atomic = parts.iter().any(|p| matches!(*p, "relaxed" | "acquire" | "volatile"));
    let acquire = parts.contains(&"acquire");
    let scope = Scope::of(&b.inst.opcode).unwrap_or(Scope::Device);
    let want = space(b, b.ms(1))?;
    let (n, signed, v) = shape(b, 3)?;
    b.count(if b.inst.opcode.contains("cache_hint") { 3 } else { 2 })?;
    let a = address(b, 1, want)?;
    if b.len() == 3 {
        b.src(2, 8)?;
    }
    if !matches!(want, In::Param | In::Local) {
        b.visible();
    }
    if atomic {
        b.polls();
    }
    let items = b.items(0)?;
    if items.len() != v {
        return Err(b.error("P012", format!("{v} destination registers expected")));
    }
    let mut to: Vec<Option<(Col, u32)>> = Vec::new();
    for o in items {
        to.push(if *o == Operand::Sink { None } else { Some(b.dest_wide(o, n)?) });
    }
    let private = !atomic && matches!(want, In::Shared | In::Cluster | In::Local);
    b.taints &= !private;
    Ok(Box::new(move |cx, m| {
        let mut buffer = [0u8; 32];
        let bytes = &mut buffer[..n as usize * v];
        let tainted = private && cx.w.any_taint;
        if tainted {
            cx.address_known(a, m)?;
        }
        for l in lanes(m) {
            let at = cx.place(want, a, l)?;
            cx.load(at, bytes, l, atomic)?;
            cx.note(l, at, bytes.len() as u32);
            if atomic {
                cx.acquire_from(at, acquire, scope)?;
            }
            for (k, d) in to.iter().enumerate() {
                let Some((d, have)) = *d else { continue };
                let w = words(&bytes[k * n as usize..(k + 1) * n as usize], signed);
                if tainted {
                    let aside = cx.put_aside(at.plus(k as u32 * n), n, l)?;
                    for t in &mut cx.w.taint[usize::from(d)..][..have.div_ceil(4) as usize] {
                        *t = *t & !(1 << l) | u32::from(aside) << l;
                    }
                }
                for (i, &x) in w.iter().enumerate().take(have.div_ceil(4) as usize) {
                    cx.w.set32(d + i as Col, l, if have < 4 { x & ((1 << (8 * have)) - 1) } else { x });
                }
            }
        }
        Ok(if atomic { Flow::Yield } else { Flow::Next })
    }))
}

fn st(b: &mut Build<'_>) -> R<Exec> {
    let parts: Vec<&str> = b.inst.opcode.split('.').collect();
    let atomic = parts.iter().any(|p| matches!(*p, "relaxed" | "release" | "volatile"));
    let release = parts.contains(&"release");
    let scope = Scope::of(&b.inst.opcode).unwrap_or(Scope::Device);
    let want = space(b, b.ms(1))?;
    let (n, _, v) = shape(b, 3)?;
    b.count(if b.inst.opcode.contains("cache_hint") { 3 } else { 2 })?;
    let a = address(b, 0, want)?;
    if b.len() == 3 {
        b.src(2, 8)?;
    }
    if want != In::Local {
        b.visible();
    }
    let items = b.items(1)?;
    if items.len() != v {
        return Err(b.error("P012", format!("{v} source registers expected")));
    }
    let from = items.iter().map(|o| b.src_wide(o, n)).collect::<R<Vec<Col>>>()?;
    let private = !atomic && matches!(want, In::Shared | In::Cluster | In::Local);
    b.taints &= !private;
    Ok(Box::new(move |cx, m| {
        let mut buffer = [0u8; 32];
        let tainted = private && cx.w.any_taint;
        if tainted {
            cx.address_known(a, m)?;
        }
        for l in lanes(m) {
            for (k, &x) in from.iter().enumerate() {
                for i in 0..n as usize {
                    buffer[k * n as usize + i] = (cx.w.u32(x + (i / 4) as Col, l) >> (8 * (i % 4))) as u8;
                }
            }
            let at = cx.place(want, a, l)?;
            cx.store(at, &buffer[..n as usize * v], l, atomic)?;
            // Who reads this knows of this store too.
            if atomic {
                cx.release_to(at, l, release, scope)?;
            }
            cx.note(l, at, n * v as u32);
            if tainted {
                // Each register for itself: a vector may have values in some of its parts only.
                for (k, &x) in from.iter().enumerate() {
                    let words = (n as usize).div_ceil(4);
                    if cx.w.taint[usize::from(x)..][..words].iter().any(|t| t >> l & 1 != 0) {
                        cx.set_aside(at.plus(k as u32 * n), n, l)?;
                    }
                }
            }
        }
        Ok(Flow::Next)
    }))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row(
        "ld.{weak,volatile,relaxed,acquire}?.{cta,cluster,gpu,sys}?.{param,local,const,global,shared,shared::cta,shared::cluster}?.{nc}?.{ca,cg,cs,lu,cv,L1::evict_normal,L1::no_allocate,L1::evict_first,L1::evict_last}?.L2::cache_hint?.{L2::64B,L2::128B,L2::256B}?.{v2,v4,v8}?.{b8,u8,s8,b16,u16,s16,b32,u32,s32,f32,b64,u64,s64,f64,b128}",
        |b| reorder(b, ld),
    ),
    row(
        "st.{weak,volatile,relaxed,release}?.{cta,cluster,gpu,sys}?.{local,global,shared,shared::cta,shared::cluster}?.{wb,cg,cs,wt,L1::evict_normal,L1::no_allocate,L1::evict_first,L1::evict_last}?.L2::cache_hint?.{v2,v4,v8}?.{b8,u8,s8,b16,u16,s16,b32,u32,s32,f32,b64,u64,s64,f64,b128}",
        |b| reorder(b, st),
    ),
];

/// Brings the choices to the order semantics, space, cache, vector.
fn reorder(b: &mut Build<'_>, f: fn(&mut Build<'_>) -> R<Exec>) -> R<Exec> {
    let mods: Vec<&str> = b.inst.opcode.split('.').skip(1).collect();
    let pick = |names: &[&str]| mods.iter().copied().find(|c| names.contains(c));
    let s = pick(&["param", "local", "const", "global", "shared", "shared::cta", "shared::cluster"]);
    let v = pick(&["v2", "v4", "v8"]);
    b.choices = vec![None, s, None, v];
    f(b)
}
