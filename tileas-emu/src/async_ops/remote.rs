//! Asynchronous operations between the CTAs of a cluster: `st.async`, `red.async`, bulk copies of shared memory.
//!
//! Each writes shared memory of one CTA and signals an mbarrier there with the bytes it has written. Stores and reductions
//! are weak accesses of the generic proxy. A bulk copy reads its source when it completes: what signals the
//! destination also says that the source may be written again.
//! Source: PTX ISA, "st.async", "red.async", "cp.async.bulk".

use super::{Order, Source};
use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{Exec, R};
use crate::exec::atomic::update;
use crate::exec::cx::{Cx, lanes};
use crate::exec::{Flow, Trap, X};
use crate::layout::tma::Piece;
use crate::parse::type_bytes;
use std::sync::Arc;

/// Queues what writes `bytes` to an address of shared memory of the cluster and signals an mbarrier.
fn send(cx: &mut Cx<'_>, l: usize, to: (u32, u32), bytes: u32, source: Source) -> X<()> {
    let (ranks, smem, mbar) = cx.targets(to.0, to.1, None)?;
    let align = if matches!(source, Source::Shared(..)) { 16 } else { bytes };
    for rank in ranks {
        let piece = Piece { smem, global: None, bytes };
        cx.peers.of_rank(cx.cta, rank)?.smem.check(smem, bytes, align, "asynchronous store")?;
        let (pieces, signal) = (vec![piece], (mbar, bytes));
        cx.issue_load(l, rank, Order { pieces, map: None, signal, source: source.clone() })?;
    }
    Ok(())
}

fn copy(b: &mut Build<'_>) -> R<Exec> {
    b.visible();
    b.count(4)?;
    let (dst, src, n, mbar) = (b.mem(0)?, b.mem(1)?, b.src(2, 4)?, b.mem(3)?);
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let to = (cx.cluster_address(dst, l)?, cx.cluster_address(mbar, l)?);
            let (from, bytes) = (cx.shared_address(src, l)?, cx.w.u32(n, l));
            if bytes == 0 || !bytes.is_multiple_of(16) {
                let what = format!("bulk copy of {bytes} bytes, which must be a multiple of 16");
                return Err(Trap::new("align", what));
            }
            cx.cta.smem.check(from, bytes, 16, "bulk copy")?;
            let (w, own, cta) = (cx.w.id, cx.own(1 << l), cx.cta.det.cta);
            let know = &cx.w.frags[cx.f].know;
            let det = &mut cx.cta.det;
            let reading = if det.on.races {
                let agent = det.load_agent(know)?;
                det.issue(w, know, agent, own)
            } else {
                Default::default()
            };
            send(cx, l, to, bytes, Source::Shared(cta, from, reading))?;
        }
        Ok(Flow::Next)
    }))
}

fn store(b: &mut Build<'_>) -> R<Exec> {
    b.visible();
    b.count(3)?;
    let n = type_bytes(b.ms(4)).ok_or_else(|| b.error("P011", "not a type"))?;
    let parts = match b.ms(3) {
        "v2" => 2,
        "v4" => 4,
        _ => 1,
    };
    let (dst, mbar, items) = (b.mem(0)?, b.mem(2)?, b.items(1)?);
    if items.len() != parts || n * parts as u32 > 16 {
        return Err(b.error("P012", format!("{parts} source registers of at most 16 bytes expected")));
    }
    let from = items.iter().map(|o| b.source(o, n)).collect::<R<Vec<_>>>()?;
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let to = (cx.cluster_address(dst, l)?, cx.cluster_address(mbar, l)?);
            let mut data = Vec::new();
            for &c in &from {
                data.extend_from_slice(&crate::exec::int::get(cx, c, n, l).to_le_bytes()[..n as usize]);
            }
            send(cx, l, to, data.len() as u32, Source::Registers(data))?;
        }
        Ok(Flow::Next)
    }))
}

fn reduce(b: &mut Build<'_>) -> R<Exec> {
    b.visible();
    b.count(3)?;
    let (op, ty) = (b.ms(1), b.ms(2));
    let n = type_bytes(ty).ok_or_else(|| b.error("P011", "not a type"))?;
    if n == 8 && op != "add" || ty == "b32" && !matches!(op, "and" | "or" | "xor") {
        return Err(b.error("P011", "operation not of this type"));
    }
    let f: Arc<crate::exec::atomic::Update> = update(b, op, ty)?.into();
    let (dst, x, mbar) = (b.mem(0)?, b.src(1, n)?, b.mem(2)?);
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let to = (cx.cluster_address(dst, l)?, cx.cluster_address(mbar, l)?);
            let value = crate::exec::int::get(cx, x, n, l);
            send(cx, l, to, n, Source::Reduce(value, f.clone()))?;
        }
        Ok(Flow::Next)
    }))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes", copy),
    row(
        "st.async.weak?.shared::cluster?.mbarrier::complete_tx::bytes?.{v2,v4}?.{b32,u32,s32,f32,b64,u64,s64,f64}",
        store,
    ),
    row(
        "red.async.relaxed.cluster.shared::cluster?.mbarrier::complete_tx::bytes.{add,min,max,inc,dec,and,or,xor}.{b32,u32,s32,u64,s64}",
        reduce,
    ),
];
