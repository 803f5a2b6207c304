//! Branches, exits and instructions without effect on a machine without time.

use super::cx::{Frag, first, lanes};
use super::{Flow, Trap};
use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{Collective, Exec, R};
use crate::exec::Wait;

fn bra(b: &mut Build<'_>) -> R<Exec> {
    b.count(1)?;
    let target = b.label(0)?;
    let uniform = b.m(0).is_some();
    Ok(Box::new(move |cx, m| {
        let all = cx.w.frags[cx.f].mask;
        if uniform && m != all {
            let what = format!("bra.uni is taken by lanes {m:#x} of {all:#x} only");
            return Err(Trap::new("divergent", what));
        }
        Ok(Flow::Jump(target))
    }))
}

/// `brx.idx`: a branch to one of a table's labels, by lane.
fn indexed(b: &mut Build<'_>) -> R<Exec> {
    b.count(2)?;
    // Everybody sees where a branch goes: the index must hold a value.
    b.visible();
    let x = b.src(0, 4)?;
    let targets = b.table(1)?;
    let uniform = b.m(0).is_some();
    Ok(Box::new(move |cx, m| {
        let index = cx.w.u32(x, first(m));
        let Some(&target) = targets.get(index as usize) else {
            return Err(Trap::new("branch", format!("index {index} of a table of {} labels", targets.len())));
        };
        let away = lanes(m).filter(|&l| cx.w.u32(x, l) != index).fold(0, |a, l| a | 1 << l);
        if uniform && away != 0 {
            return Err(Trap::new("divergent", "lanes that execute brx.idx.uni differ in the index"));
        }
        if away != 0 {
            // They execute it again, by themselves.
            let f = &mut cx.w.frags[cx.f];
            f.mask &= !away;
            let rest = Frag { pc: cx.pc, mask: away, wait: Wait::Ready, ..f.clone() };
            cx.w.frags.push(rest);
        }
        Ok(Flow::Jump(target))
    }))
}

fn exit(b: &mut Build<'_>) -> R<Exec> {
    b.count(0)?;
    Ok(Box::new(|_, _| Ok(Flow::Exit)))
}

fn trap(b: &mut Build<'_>) -> R<Exec> {
    b.count(0)?;
    Ok(Box::new(|_, _| Err(Trap::new("trap", "the kernel executed trap"))))
}

fn nothing(b: &mut Build<'_>) -> R<Exec> {
    b.count(0)?;
    Ok(Box::new(|_, _| Ok(Flow::Next)))
}

fn nanosleep(b: &mut Build<'_>) -> R<Exec> {
    b.count(1)?;
    b.src(0, 4)?;
    Ok(Box::new(|_, _| Ok(Flow::Yield)))
}

fn prefetch(b: &mut Build<'_>) -> R<Exec> {
    b.count(1)?;
    let a = b.mem(0)?;
    let map = b.inst.opcode.contains("tensormap");
    Ok(Box::new(move |cx, m| {
        if map {
            for l in lanes(m) {
                cx.tensor_map(cx.w.address(a, l))?;
            }
        }
        Ok(Flow::Next)
    }))
}

/// Changes the warp's register share; an increase waits until the CTA's pool has them.
fn setmaxnreg(b: &mut Build<'_>) -> R<Exec> {
    b.count(1)?;
    b.visible();
    b.collective(Collective::Aligned);
    let n = u32::try_from(b.imm(0)?).unwrap_or(0);
    if !(24..=256).contains(&n) || !n.is_multiple_of(8) {
        return Err(b.error("P017", "the count must be a multiple of 8 in 24..256"));
    }
    let inc = b.ms(0) == "inc";
    Ok(Box::new(move |cx, _| {
        let have = cx.w.reg_cap;
        if have == 0 {
            // Without a known register count at entry the assembler ignores it.
            return Ok(Flow::Next);
        }
        if inc && n < have || !inc && n > have {
            return Err(Trap::new(
                "setmaxnreg",
                format!("{} to {n} with {have} registers", if inc { "inc" } else { "dec" }),
            ));
        }
        if inc {
            let need = (n - have) * 32;
            if need > cx.cta.free_registers {
                return Ok(Flow::Retry(Wait::Registers(need)));
            }
            cx.cta.free_registers -= need;
        } else {
            cx.cta.free_registers += (have - n) * 32;
        }
        cx.w.reg_cap = n;
        cx.cta.changed();
        cx.log("setmaxnreg", n.into());
        Ok(Flow::Next)
    }))
}

/// `createpolicy`: an opaque value.
fn policy(b: &mut Build<'_>) -> R<Exec> {
    let d = b.dst(0, 8)?;
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            cx.w.set64(d, l, 0x1000_0000_0000_0000);
        }
        let _ = first(m);
        Ok(Flow::Next)
    }))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row("bra.uni?", bra),
    row("brx.idx.uni?", indexed),
    row("ret.uni?", exit),
    row("exit", exit),
    row("trap", trap),
    row("nanosleep.u32", nanosleep),
    row("griddepcontrol.{wait,launch_dependents}", nothing),
    row("prefetch.tensormap", prefetch),
    row("prefetch.{global,param}?.{L1,L2}", prefetch),
    row("setmaxnreg.{inc,dec}.sync.aligned.u32", setmaxnreg),
    row(
        "createpolicy.fractional.{L2::evict_first,L2::evict_last,L2::evict_normal,L2::evict_unchanged}.b64",
        policy,
    ),
];
