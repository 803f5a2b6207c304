//! tcgen05: allocation, MMA, copy and commit.
//!
//! Each thread has one pipe; its operations complete in order of issue. The descriptors are decoded
//! and checked at issue, data is read at completion.
//! Source: PTX ISA, "TensorCore 5th Generation Family Instructions".

use super::operands::{OperandMap, row_times, transpose};
use super::{PipeOp, Site};
use crate::decode::build::{Addr, Build, PredSrc};
use crate::decode::table::{Row, row};
use crate::decode::{Col, Collective, Exec, R};
use crate::detect::{Agent, Ticket, Who};
use crate::exec::cx::{Cx, Peers, lanes};
use crate::exec::{Flow, Trap, Wait, X};
use crate::layout::idesc::{Elem, Idesc, Kind};
use crate::layout::operand::{Family, Major, Operand, SmemDesc};
use crate::layout::tmem::{DataPath, a_column, split_address};
use crate::layout::tmem_cp::CpShape;
use crate::mem::cta::Cta;
use crate::num::mma::finish;
use crate::parse::ast;
use crate::trace::Lane;
use std::rc::Rc;
use std::sync::Arc;

/// What a pipe operation does.
pub enum Work {
    /// Matrix multiply and accumulate.
    Mma(Box<Mma>),
    /// Copy of shared memory to tensor memory: shape, descriptor, first column.
    Copy(CpShape, SmemDesc, u32),
    /// Arrival on an mbarrier of each of these CTAs (numbers plus one), at the same address.
    Commit(Vec<u32>, u32),
}

/// Operand A.
pub enum OperandA {
    /// In shared memory.
    Shared(Arc<OperandMap>),
    /// In tensor memory from a column.
    Tensor(u32),
}

/// A tcgen05.mma.
pub struct Mma {
    /// The instruction descriptor.
    pub idesc: Idesc,
    /// Accumulator: lane offset and column.
    pub d: (u32, u32),
    /// Operand A.
    pub a: OperandA,
    /// Operand B.
    pub b: Arc<OperandMap>,
    /// Whether the accumulator takes part.
    pub accumulate: bool,
    /// Factor of the accumulator.
    pub scale: f64,
    /// Lanes that are not written.
    pub disabled: [u32; 4],
}

impl Cta {
    /// Completes a pipe operation.
    pub fn finish_pipe(&mut self, op: &PipeOp, peers: &mut Peers<'_>) -> X<()> {
        match &op.work {
            Work::Commit(ctas, mbar) => {
                let mut release = self.completion(&op.ticket);
                if let Some(k) = &op.ticket.know {
                    // A commit also orders the tensor memory its thread's operations touched.
                    release.own.t.join(&k.t);
                    release.own.t.raise(op.ticket.agent, op.ticket.clock);
                }
                self.log(Lane::Tensor, op.site.line, "commit", u64::from(*mbar));
                let from = self.det.cta;
                for &to in ctas {
                    let cta = if to == from { &mut *self } else { peers.member(to)? };
                    cta.signals(*mbar, op.site)?;
                    cta.receive(*mbar, &release.moved(from, to), from, true)?;
                    cta.arrive(*mbar, 1)?;
                }
                Ok(())
            }
            Work::Copy(shape, desc, column) => {
                self.copy(op, *shape, *desc, *column)?;
                self.log(Lane::Tensor, op.site.line, "tcgen05.cp complete", u64::from(*column));
                Ok(())
            }
            Work::Mma(m) => {
                self.multiply(m, &op.ticket, op.site)?;
                self.log(Lane::Tensor, op.site.line, "mma complete", u64::from(m.d.1));
                Ok(())
            }
        }
    }

    fn copy(&mut self, op: &PipeOp, shape: CpShape, desc: SmemDesc, column: u32) -> X<()> {
        let epoch = self.det.ticket_epoch(&op.ticket, op.site.pc);
        self.tmem.check(column, shape.columns(), "tcgen05.cp")?;
        self.footprint.tensor();
        for row in 0..shape.rows() {
            for c in 0..shape.columns() {
                let a = shape.source(desc, row, c);
                self.smem.check(a, 4, 4, "tcgen05.cp")?;
                self.smem.check_defined(a, 4, "tcgen05.cp")?;
                if self.explore {
                    self.footprint.bytes(a, 4, false);
                }
                if let Some(k) = &op.ticket.know {
                    self.det.shared(a, 4, false, &Who { epoch, know: k, since: 0 })?;
                }
                let v = self.smem.u32(a);
                let (to, n) = shape.lanes(row);
                for &lane in &to[..n] {
                    if let Some(k) = &op.ticket.know {
                        self.det.tensor(lane, column + c, true, &Who { epoch, know: k, since: 0 })?;
                    }
                    self.tmem.set(lane, column + c, v);
                }
            }
        }
        Ok(())
    }

    fn multiply(&mut self, m: &Mma, ticket: &Ticket, site: Site) -> X<()> {
        let i = &m.idesc;
        let epoch = self.det.ticket_epoch(ticket, site.pc);
        let who = ticket.know.as_ref().map(|k| Who { epoch, know: k, since: 0 });
        let path = DataPath::of(i.m, 1).ok_or_else(|| Trap::new("layout", format!("M = {}", i.m)))?;
        let (rows, n, k) = (i.m, i.n as usize, i.kind.k() as usize);
        self.footprint.tensor();
        self.tmem.check(m.d.1, i.n, "accumulator")?;
        if let OperandA::Tensor(c) = m.a {
            self.tmem.check(c, 8, "operand A")?;
        }
        self.touch_operand(&m.b, who.as_ref(), "operand B")?;
        if let OperandA::Shared(a) = &m.a {
            self.touch_operand(a, who.as_ref(), "operand A")?;
        }
        let lane_of = |row: u32| path.at(row, 0, i.n).1 + m.d.0;
        // Tensor-memory side: A is read, D read when it takes part, and written.
        for row in 0..rows {
            let lane = lane_of(row);
            if let OperandA::Tensor(c) = m.a {
                self.tmem.check_defined(lane, c, 8, "operand A")?;
                if let Some(w) = &who {
                    for j in 0..8 {
                        self.det.tensor(lane, c + j, false, w)?;
                    }
                }
            }
            if m.accumulate {
                self.tmem.check_defined(lane, m.d.1, i.n, "accumulation")?;
            }
            if let Some(w) = &who {
                for j in 0..i.n {
                    self.det.tensor(lane, m.d.1 + j, true, w)?;
                }
            }
        }
        if i.kind == Kind::I8 {
            return self.multiply_int(m, &lane_of);
        }
        let (Elem::Float(fa), Elem::Float(fb), Elem::Float(fd)) = (i.a, i.b, i.d) else {
            return Err(Trap::new("layout", "types of the MMA are not emulated"));
        };
        let elem = i.kind.elem();
        let a = match &m.a {
            OperandA::Shared(a) => self.operand_values(a, elem, fa),
            OperandA::Tensor(c) => {
                let f = super::operands::decoder(fa);
                let mut v = Vec::with_capacity(rows as usize * k);
                for row in 0..rows {
                    for kk in 0..k as u32 {
                        let (col, shift) = a_column(kk, elem);
                        let bits = self.tmem.get(lane_of(row), c + col) >> shift;
                        v.push(f(if elem == 1 {
                            bits & 0xFF
                        } else if elem == 2 {
                            bits & 0xFFFF
                        } else {
                            bits
                        }));
                    }
                }
                v
            }
        };
        let bt = transpose(&self.operand_values(&m.b, elem, fb), n, k);
        let sign = if i.negate_a != i.negate_b { -1.0 } else { 1.0 };
        let mut sum = vec![0.0f64; n];
        let wide = fd.bits == 32;
        for row in 0..rows {
            let lane = lane_of(row);
            row_times(&a[row as usize * k..(row as usize + 1) * k], &bt, n, &mut sum);
            if m.disabled[(lane / 32) as usize] >> (lane % 32) & 1 != 0 {
                continue;
            }
            for (j, &s) in sum.iter().enumerate() {
                let col = m.d.1 + j as u32;
                let c = if m.accumulate {
                    let old = self.tmem.get(lane, col);
                    let old = if wide {
                        f32::from_bits(old)
                    } else {
                        crate::num::f32_from(fd, u64::from(old & 0xFFFF))
                    };
                    f64::from(old) * m.scale
                } else {
                    0.0
                };
                self.tmem.set(lane, col, finish(fd, sign * s + c) as u32);
            }
        }
        Ok(())
    }

    fn multiply_int(&mut self, m: &Mma, lane_of: &dyn Fn(u32) -> u32) -> X<()> {
        let i = &m.idesc;
        let k = i.kind.k() as usize;
        let av = match &m.a {
            OperandA::Shared(a) => self.operand_bytes(a, i.a == Elem::S8),
            OperandA::Tensor(c) => {
                let mut v = Vec::with_capacity(i.m as usize * k);
                for row in 0..i.m {
                    for kk in 0..k as u32 {
                        let (col, shift) = a_column(kk, 1);
                        let byte = (self.tmem.get(lane_of(row), c + col) >> shift) as u8;
                        v.push(if i.a == Elem::S8 { i32::from(byte as i8) } else { i32::from(byte) });
                    }
                }
                v
            }
        };
        let bv = self.operand_bytes(&m.b, i.b == Elem::S8);
        for row in 0..i.m {
            for col in 0..i.n {
                let (x, y) = (row as usize * k, col as usize * k);
                let old = if m.accumulate { self.tmem.get(lane_of(row), m.d.1 + col) as i32 } else { 0 };
                let v = crate::num::mma::dot_int(&av[x..x + k], &bv[y..y + k], old, i.saturate);
                self.tmem.set(lane_of(row), m.d.1 + col, v as u32);
            }
        }
        Ok(())
    }
}

impl Cx<'_> {
    /// Queues an operation on the tensor pipe of a lane's thread.
    pub fn issue_pipe(&mut self, lane: usize, work: Work) -> X<()> {
        self.room(0)?;
        let (w, thread) = (self.w.id, self.w.id * 32 + lane as u32);
        let own = self.own(1 << lane);
        let know = &self.w.frags[self.f].know;
        let det = &mut self.cta.det;
        let ticket = if det.on.races {
            let agent = det.agent(Agent::Tensor(thread));
            det.issue(w, know, agent, own)
        } else {
            Ticket::default()
        };
        if let Work::Commit(ctas, mbar) = &work {
            let from = self.cta.det.cta;
            for &to in ctas.iter().filter(|&&to| to != from) {
                let know = ticket.know.as_ref().map(|k| Rc::new(k.moved(from, to)));
                self.peers.member(to)?.check_published(*mbar, &Ticket { know, ..ticket })?;
            }
            if ctas.contains(&from) {
                self.cta.check_published(*mbar, &ticket)?;
            }
        }
        let (id, site) = (self.cta.op_id(), self.site());
        self.cta.pipes.entry(thread).or_default().push_back(PipeOp { id, ticket, work, site });
        Ok(())
    }
}

fn mma(b: &mut Build<'_>) -> R<Exec> {
    b.visible();
    let Some(kind) = b.ms(0).strip_prefix("kind::").and_then(Kind::by_name) else {
        return Err(b.error("P011", "kind is not emulated"));
    };
    if !(4..=7).contains(&b.len()) {
        return Err(b.error("P012", "wrong number of operands"));
    }
    let d = b.mem(0)?;
    enum A {
        Desc(Col),
        Tensor(Addr),
    }
    let a = match b.operand(1)? {
        ast::Operand::Memory { .. } => A::Tensor(b.mem(1)?),
        _ => A::Desc(b.src(1, 8)?),
    };
    let (bd, id) = (b.src(2, 8)?, b.src(3, 4)?);
    let mut next = 4;
    let mut mask = Vec::new();
    if matches!(b.inst.operands.get(4), Some(ast::Operand::Vector(_))) {
        let items = b.items(4)?;
        if items.len() != 4 {
            return Err(b.error("P012", "the lane mask has 4 registers"));
        }
        mask = items.iter().map(|o| b.source(o, 4)).collect::<R<Vec<Col>>>()?;
        next = 5;
    }
    let enable = if b.len() > next {
        let o = b.operand(next)?;
        b.pred(o)?
    } else {
        PredSrc::Const(true)
    };
    let scale = if b.len() > next + 1 {
        let s = b.imm(next + 1)?;
        if s > 15 || !matches!(kind, Kind::F16 | Kind::Tf32) {
            return Err(b.error("P017", "scale-input-d is 0..15, of kinds f16 and tf32"));
        }
        (-(s as f64)).exp2()
    } else {
        1.0
    };
    if b.len() > next + 2 {
        return Err(b.error("P012", "too many operands"));
    }
    Ok(Box::new(move |cx, m| {
        let l = cx.single(m)?;
        let idesc = Idesc::decode(cx.w.u32(id, l), kind, 1)?;
        if idesc.sparse {
            return Err(Trap::new("unsupported", "sparse MMA"));
        }
        let (lane, column) = split_address(cx.w.address(d, l) as u32);
        let path = DataPath::of(idesc.m, 1).ok_or_else(|| Trap::new("layout", format!("M = {}", idesc.m)))?;
        path.check_lane(lane)?;
        cx.cta.tmem.check(column, idesc.n, "accumulator")?;
        let operand = |cx: &mut Cx<'_>, bits: u64, major: Major, mn: u32| {
            let desc = SmemDesc::decode(bits, Family::Tcgen05)?;
            cx.cta.operand_map(Operand::new(desc, major, kind.elem(), mn))
        };
        let av = match a {
            A::Desc(c) => {
                let bits = cx.w.u64(c, l);
                OperandA::Shared(operand(cx, bits, idesc.a_major, idesc.m)?)
            }
            A::Tensor(t) => {
                let (al, ac) = split_address(cx.w.address(t, l) as u32);
                if al != lane {
                    return Err(Trap::new(
                        "tmem.lane",
                        format!("operand A in lane {al}, the accumulator in lane {lane}"),
                    ));
                }
                if idesc.a_major == Major::Mn {
                    return Err(Trap::new("layout", "operand A in tensor memory cannot be transposed"));
                }
                cx.cta.tmem.check(ac, 8, "operand A")?;
                if ac < column + idesc.n && column < ac + 8 {
                    return Err(Trap::new("tmem.bounds", "operand A overlaps the accumulator"));
                }
                OperandA::Tensor(ac)
            }
        };
        let bits = cx.w.u64(bd, l);
        let bv = operand(cx, bits, idesc.b_major, idesc.n)?;
        let mut disabled = [0; 4];
        for (x, &c) in disabled.iter_mut().zip(&mask) {
            *x = cx.w.u32(c, l);
        }
        let accumulate = cx.w.pred(enable) >> l & 1 != 0;
        let work = Mma { idesc, d: (lane, column), a: av, b: bv, accumulate, scale, disabled };
        cx.issue_pipe(l, Work::Mma(Box::new(work)))?;
        cx.log("mma issued", column.into());
        Ok(Flow::Next)
    }))
}

fn cp(b: &mut Build<'_>) -> R<Exec> {
    b.visible();
    b.count(2)?;
    let shape = match CpShape::by_name(b.ms(0), b.ms(1)) {
        Ok(s) => s,
        Err(e) => return Err(b.error("P011", e.to_string())),
    };
    let (t, d) = (b.mem(0)?, b.src(1, 8)?);
    Ok(Box::new(move |cx, m| {
        let l = cx.single(m)?;
        let (lane, column) = split_address(cx.w.address(t, l) as u32);
        if lane != 0 {
            return Err(Trap::new("tmem.lane", format!("tcgen05.cp to lane {lane}")));
        }
        cx.cta.tmem.check(column, shape.columns(), "tcgen05.cp")?;
        let desc = SmemDesc::decode(cx.w.u64(d, l), Family::Tcgen05)?;
        cx.issue_pipe(l, Work::Copy(shape, desc, column))?;
        Ok(Flow::Next)
    }))
}

fn commit(b: &mut Build<'_>) -> R<Exec> {
    b.visible();
    let multicast = b.inst.opcode.contains("multicast");
    b.count(1 + usize::from(multicast))?;
    let a = b.mem(0)?;
    let mask = if multicast { Some(b.src(1, 2)?) } else { None };
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let mbar = cx.cluster_address(a, l)?;
            let (ranks, mbar, _) = cx.targets(mbar, mbar, mask.map(|c| cx.w.u32(c, l)))?;
            let ctas = ranks.iter().map(|&r| {
                let cta = cx.peers.of_rank(cx.cta, r)?;
                cta.mbarrier(mbar)?;
                Ok(cta.det.cta)
            });
            let ctas = ctas.collect::<X<Vec<u32>>>()?;
            cx.issue_pipe(l, Work::Commit(ctas, mbar))?;
            cx.log("commit issued", mbar.into());
        }
        Ok(Flow::Next)
    }))
}

fn alloc(b: &mut Build<'_>) -> R<Exec> {
    b.visible();
    b.count(2)?;
    b.collective(Collective::Aligned);
    let (a, n) = (b.mem(0)?, b.src(1, 4)?);
    Ok(Box::new(move |cx, m| {
        let l = crate::exec::cx::first(m);
        let columns = cx.w.u32(n, l);
        let address = cx.shared_address(a, l)?;
        let (w, line) = (cx.w.id, cx.inst.line);
        let Some(at) = cx.cta.tmem.allocate(columns, w, line)? else {
            return Ok(Flow::Retry(Wait::TensorMemory(columns)));
        };
        cx.touch_shared(address, 4, true, false, Some(l))?;
        cx.cta.smem.write(address, &at.to_le_bytes());
        cx.cta.changed();
        cx.log("tcgen05.alloc", at.into());
        Ok(Flow::Next)
    }))
}

fn dealloc(b: &mut Build<'_>) -> R<Exec> {
    b.visible();
    b.count(2)?;
    b.collective(Collective::Aligned);
    let (a, n) = (b.src(0, 4)?, b.src(1, 4)?);
    Ok(Box::new(move |cx, m| {
        let l = crate::exec::cx::first(m);
        let (address, columns) = (cx.w.u32(a, l), cx.w.u32(n, l));
        // Freed columns may be given to others at once: everything that touches them must be over.
        if cx.cta.det.on.races {
            let epoch = cx.epoch();
            for lane in 0..128 {
                for c in address..address.saturating_add(columns).min(512) {
                    let who = Who { epoch, know: &cx.w.frags[cx.f].know, since: u32::MAX };
                    cx.cta.det.free_tensor(lane, c, &who)?;
                }
            }
        }
        cx.cta.tmem.free(address, columns)?;
        cx.cta.changed();
        cx.log("tcgen05.dealloc", address.into());
        Ok(Flow::Next)
    }))
}

fn relinquish(b: &mut Build<'_>) -> R<Exec> {
    b.count(0)?;
    b.collective(Collective::Aligned);
    Ok(Box::new(|cx, _| {
        cx.cta.tmem.permit = false;
        Ok(Flow::Next)
    }))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row(
        "tcgen05.mma.cta_group::1.{kind::f16,kind::tf32,kind::f8f6f4,kind::i8}.{collector::a::fill,collector::a::use,collector::a::lastuse,collector::a::discard}?",
        mma,
    ),
    row(
        "tcgen05.cp.cta_group::1.{128x256b,4x256b,128x128b,64x128b,32x128b}.{warpx2::02_13,warpx2::01_23,warpx4}?",
        cp,
    ),
    row(
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.{shared::cluster}?.multicast::cluster?.b64",
        commit,
    ),
    row("tcgen05.alloc.cta_group::1.sync.aligned.{shared::cta}?.b32", alloc),
    row("tcgen05.dealloc.cta_group::1.sync.aligned.b32", dealloc),
    row("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned", relinquish),
];
