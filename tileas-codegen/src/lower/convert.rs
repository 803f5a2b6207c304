//! Tiles from one register layout to another, and the memory between the warps of an agent.
//!
//! In: a tile and the plan of [`crate::storage::scratch`]: registers are renamed or selected by thread, words are shuffled, or all goes
//! through shared memory. Elements below 32 bits stay packed; those of 64 bits go as halves, truth values as words.
//! Guarantee: every thread of the agent takes part in every shuffle and barrier. Between the last access of one use of the memory
//! and the first of the next stands a barrier.

use super::tile::packing;
use super::{Lower, TileVal, Val};
use crate::error::{Code, CodegenResult};
use crate::ir::{Layout, Op, Scalar, Value};
use crate::layout::gf2::{Columns, Span, sum};
use crate::layout::{Form, LinearMap, Moves, Plan, Scope, Shuffle, Side, Trip, Way, is_identity};
use crate::nvvm::{Operand, PtxOp, Reg, RegTy};
use crate::storage::scratch::Conversion;
use smallvec::{SmallVec, smallvec};

/// All lanes of a warp.
pub(super) const ALL_LANES: u32 = 0xffff_ffff;

/// What the warps of an agent have for themselves.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Scratch {
    /// Byte offset from the base.
    pub at: u32,
    /// Bytes.
    pub bytes: u32,
    /// Named barrier.
    pub named: u32,
    /// Each instance of the agent has such memory.
    pub own: bool,
}

/// A place in a packed word: the word, and which of its elements.
type Piece = (usize, u32);

/// Registers as words of packed elements.
pub(super) struct Words {
    /// One operand for each word.
    pub(super) list: Vec<Operand>,
    /// log2 of the elements of a word.
    packed: u32,
    /// What words are.
    pub(super) ty: RegTy,
}

/// The least range that holds both.
pub(super) fn hull(a: Option<(u32, u32)>, b: Option<(u32, u32)>) -> Option<(u32, u32)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    }
}

impl Lower<'_> {
    /// Every thread of the agent has passed what stands before, once any goes on.
    pub(super) fn agent_barrier(&mut self, op: Op) -> CodegenResult<()> {
        self.close_section();
        if self.agent.warps == 1 {
            self.b.bar_warp_sync(ALL_LANES);
            return Ok(());
        }
        let Some(s) = self.agent.scratch else {
            return self.err(Code::E0803, op, "the agent has no memory between its warps");
        };
        let (id, threads) = (self.barrier_id(s.named, s.own), self.threads());
        self.b.bar_sync(id, threads);
        Ok(())
    }

    /// Base and offset of memory of the agent, `bytes` of which may be written now. What lies beside that which other threads may
    /// still read needs no barrier: exchanges that take turns have one each. `scope`: who meets between writing and reading.
    pub(super) fn scratch(&mut self, op: Op, bytes: u32, scope: Scope) -> CodegenResult<(Reg, i32)> {
        let Some(s) = self.agent.scratch.filter(|s| s.bytes >= bytes) else {
            let text = format!("{bytes} bytes between the warps of the agent are needed");
            return self.err(Code::E0803, op, text);
        };
        let behind = |to: u32| to.next_multiple_of(16);
        let from = match self.reading {
            None => 0,
            Some((from, _)) if bytes <= from => 0,
            Some((_, to)) if behind(to) + bytes <= s.bytes => behind(to),
            Some(_) => {
                self.agent_barrier(op)?;
                self.reading = None;
                0
            }
        };
        let own = Some((from, from + bytes));
        // All threads that meet between have read what was before.
        self.reading = if scope == Scope::Agent { own } else { hull(self.reading, own) };
        Ok((self.base_of(s.own), (s.at + from) as i32))
    }

    /// A function of the thread's number that is a sum of columns, by bit of the number.
    pub(super) fn by_thread(&mut self, columns: &[u32]) -> Operand {
        let lane = self.lane.map_or(Operand::Imm(0), Operand::Reg);
        let warp = self.agent.warp;
        let (lanes, warps) = columns.split_at(columns.len().min(5));
        let mut all = Operand::Imm(0);
        for (x, columns) in [(lane, lanes), (warp, warps)] {
            let mut b = 0;
            while b < columns.len() {
                if columns[b] == 0 {
                    b += 1;
                    continue;
                }
                // A run of doubling single bits is taken at once.
                let mut e = b + 1;
                while e < columns.len()
                    && columns[b].is_power_of_two()
                    && columns[e] == columns[e - 1].wrapping_mul(2)
                {
                    e += 1;
                }
                let bits = self.b.fold_shr(x, b as u32);
                let bits = if e == columns.len() && b == 0 {
                    x
                } else {
                    self.b.fold_and(bits, (1i64 << (e - b)) - 1)
                };
                let part = match columns[b] {
                    c if c.is_power_of_two() => self.b.fold_shl(bits, c.trailing_zeros()),
                    c => self.b.fold_mul(bits, i64::from(c)),
                };
                all = self.b.fold_xor(all, part);
                b = e;
            }
        }
        all
    }

    /// Predicate that an odd number of the bits of a mask is set in the thread's number.
    fn parity(&mut self, mask: u32) -> Reg {
        let (lane, warp) = (self.lane.map_or(Operand::Imm(0), Operand::Reg), self.agent.warp);
        let (low, high) = (mask & 31, mask >> 5);
        let low = self.b.fold_and(lane, low);
        let high = self.b.fold_and(warp, high);
        let high = self.b.fold_shl(high, 5);
        let both = self.b.fold_xor(low, high);
        let both = self.b.as_reg(RegTy::B32, both);
        if mask.count_ones() == 1 {
            return self.b.setp_ne_u32(both, 0);
        }
        let count = self.b.popc_b32(both);
        let odd = self.b.and_b32(count, 1);
        self.b.setp_ne_u32(odd, 0)
    }

    fn select(&mut self, ty: RegTy, p: Reg, yes: Operand, no: Operand) -> Operand {
        if yes == no {
            return yes;
        }
        let form = if ty == RegTy::F32 { PtxOp::SelpF32 } else { PtxOp::SelpB32 };
        let d = self.b.reg(ty);
        self.b.emit(form, &[d.into(), yes, no, p.into()]);
        d.into()
    }

    /// Word w becomes word `w ^ f(thread)`, where f is a sum of columns by bit of the thread.
    fn turn_words(&mut self, list: &mut [Operand], ty: RegTy, columns: &[u32]) {
        let span = Span::of(columns);
        let pivots: SmallVec<[usize; 8]> =
            (0..columns.len()).filter(|k| span.pivots() >> k & 1 == 1).collect();
        for &p in &pivots {
            // The threads in whose sum this column is.
            let mut mask = 0;
            for (k, &c) in columns.iter().enumerate() {
                if span.solve(c).is_some_and(|used| used >> p & 1 == 1) {
                    mask |= 1u32 << k;
                }
            }
            let odd = self.parity(mask);
            let by = columns[p] as usize;
            let before = list.to_vec();
            for (w, x) in list.iter_mut().enumerate() {
                *x = self.select(ty, odd, before[w ^ by], before[w]);
            }
        }
    }

    /// One word of these elements.
    fn assemble(&mut self, words: &Words, pieces: &[Piece]) -> Operand {
        let whole = |k: usize, p: &Piece| p.0 == pieces[0].0 && p.1 == k as u32;
        if words.packed == 0
            || (pieces.len() == 1 << words.packed && pieces.iter().enumerate().all(|(k, p)| whole(k, p)))
        {
            return words.list[pieces[0].0];
        }
        // Bytes of the source words, lowest first.
        let width = 4u32 >> words.packed;
        let bytes: SmallVec<[(usize, u32); 4]> = (0..4)
            .map(|b| (pieces[(b / width) as usize % pieces.len()], b % width))
            .map(|((w, s), b)| (w, s * width + b))
            .collect();
        let mut sources: SmallVec<[usize; 4]> = bytes.iter().map(|x| x.0).collect();
        sources.sort_unstable();
        sources.dedup();
        let merge = |this: &mut Self, of: &[(usize, u32)]| -> (Operand, usize) {
            let first = of[0].0;
            let second = of.iter().map(|x| x.0).find(|&w| w != first).unwrap_or(first);
            let selector = of
                .iter()
                .enumerate()
                .fold(0, |all, (k, x)| all | (x.1 + if x.0 == first { 0 } else { 4 }) << (4 * k));
            let (a, b) = (words.list[first], words.list[second]);
            (this.b.prmt_b32(a, b, i64::from(selector)).into(), of.len())
        };
        if sources.len() <= 2 {
            return merge(self, &bytes).0;
        }
        let (low, _) = merge(self, &bytes[..2]);
        let (high, _) = merge(self, &bytes[2..]);
        self.b.prmt_b32(low, high, 0x5410).into()
    }

    /// Words of which the elements of register r are the pieces that `at` says.
    fn gather(&mut self, words: &Words, count: usize, at: impl Fn(u32) -> Piece) -> Words {
        let per = 1usize << words.packed;
        let list = (0..count.div_ceil(per))
            .map(|w| {
                let pieces: SmallVec<[Piece; 4]> =
                    (w * per..((w + 1) * per).min(count)).map(|r| at(r as u32)).collect();
                self.assemble(words, &pieces)
            })
            .collect();
        Words { list, packed: words.packed, ty: words.ty }
    }

    /// The same elements, one in each word.
    fn unpacked(&mut self, words: &Words, count: usize) -> Words {
        if words.packed == 0 {
            return Words { list: words.list.clone(), ..*words };
        }
        let per = 1usize << words.packed;
        let bits = 32 >> words.packed;
        let list = (0..count)
            .map(|r| {
                let x = words.list[r / per];
                self.b.fold_shr(x, (r % per) as u32 * bits)
            })
            .collect();
        Words { list, packed: 0, ty: RegTy::B32 }
    }

    /// Elements, one in each word, as packed words.
    fn repacked(&mut self, words: Words, packed: u32) -> Words {
        let per = 1usize << packed;
        let width = 4u32 >> packed;
        let mut list = Vec::with_capacity(words.list.len().div_ceil(per));
        for some in words.list.chunks(per) {
            list.push(match *some {
                [one] => one,
                [a, b] => {
                    let selector = if width == 2 { 0x5410 } else { 0x0040 };
                    self.b.prmt_b32(a, b, selector).into()
                }
                [a, b, c, d] => {
                    let low = self.b.prmt_b32(a, b, 0x0040);
                    let high = self.b.prmt_b32(c, d, 0x0040);
                    self.b.prmt_b32(low, high, 0x5410).into()
                }
                _ => some[0],
            });
        }
        Words { list, packed, ty: RegTy::B32 }
    }

    /// Lowers `convert_layout`.
    pub(super) fn convert(
        &mut self,
        op: Op,
        result: Value,
        dims: &[u32],
        elem: Scalar,
        layout: Layout,
    ) -> CodegenResult<()> {
        let Some(&source) = self.f.operands(op).first() else {
            return self.err(Code::E0803, op, "needs a source");
        };
        let (t, ty) = (self.tile(op, source)?, self.f.value_type(result));
        if t.splat || t.layout == layout {
            self.vals[result] = Val::Tile(TileVal { ty, layout, ..t });
            return Ok(());
        }
        let held = t.held.unwrap_or(elem);
        let (sl, dl) = (self.linear(op, t.layout, dims)?, self.linear(op, layout, dims)?);
        let Some(c) = self.conversions.find(&sl, &dl, held).cloned() else {
            let text = format!(
                "of a tile this large goes from layout {} to {layout} by no more than {} bytes of shared memory; a loop over parts of the tile does",
                t.layout,
                1u32 << crate::storage::scratch::MOST_ROOM
            );
            return self.unsupported(op, text);
        };
        let words = self.words(&t, held);
        let out = match &c.plan {
            Plan::Moves(m) => self.moves(&words, m, &c),
            Plan::Shuffle(s) => self.shuffled(&words, s, &c),
            Plan::Trip(trip) => self.trip(op, &words, trip, &c)?,
        };
        let regs = self.units_of(out, held);
        let held = t.held;
        self.vals[result] = Val::Tile(TileVal { regs, splat: false, ty, elem, held, layout });
        Ok(())
    }

    /// The registers of a tile as words.
    pub(super) fn words(&mut self, t: &TileVal, elem: Scalar) -> Words {
        let units = t.regs.range();
        match elem.bits() {
            1 => {
                let list = units
                    .map(|i| match self.units[i] {
                        Operand::Reg(p) => self.b.selp_b32(1, 0, p).into(),
                        x => x,
                    })
                    .collect();
                Words { list, packed: 0, ty: RegTy::B32 }
            }
            64 => {
                let mut list = Vec::with_capacity(2 * units.len());
                for i in units {
                    let x = self.units[i];
                    let x = self.b.as_reg(RegTy::B64, x);
                    list.extend(self.b.unpack_b64_b32(x).iter().map(Operand::Reg));
                }
                Words { list, packed: 0, ty: RegTy::B32 }
            }
            _ => {
                let packed = packing(elem);
                let ty = super::control::element_reg(elem);
                let list = units
                    .map(|i| {
                        let x = self.units[i];
                        self.b.as_reg(ty, x).into()
                    })
                    .collect();
                Words { list, packed, ty }
            }
        }
    }

    /// The operands of a tile whose registers are these words.
    pub(super) fn units_of(&mut self, words: Words, elem: Scalar) -> super::Units {
        let start = self.units.len();
        match elem.bits() {
            1 => {
                for x in words.list {
                    let p = self.b.setp_ne_u32(x, 0);
                    self.units.push(p.into());
                }
            }
            64 => {
                for pair in words.list.chunks(2) {
                    let both = self.b.reg(RegTy::B64);
                    let list = self.b.list(&pair);
                    self.b.emit(PtxOp::PackB64B32, &[both.into(), list]);
                    self.units.push(both.into());
                }
            }
            _ => self.units.extend(words.list),
        }
        self.units_from(start)
    }

    /// Every thread has what it wants.
    fn moves(&mut self, words: &Words, m: &Moves, c: &Conversion) -> Words {
        let count = 1usize << c.result.register().len();
        let from = 1usize << c.source.register().len();
        let low = (1u32 << words.packed) - 1;
        let static_part = |r: u32| sum(&m.by_register, r);
        if m.by_thread.iter().all(|&x| x == 0) {
            return self.gather(words, count, |r| piece(static_part(r), words.packed));
        }
        if m.by_thread.iter().all(|x| x & low == 0) {
            let mut turned = Words { list: words.list.clone(), ..*words };
            let columns: Columns = m.by_thread.iter().map(|x| x >> words.packed).collect();
            self.turn_words(&mut turned.list, words.ty, &columns);
            return self.gather(&turned, count, |r| piece(static_part(r), words.packed));
        }
        let mut single = self.unpacked(words, from);
        self.turn_words(&mut single.list, single.ty, &m.by_thread);
        let out = self.gather(&single, count, |r| piece(static_part(r), 0));
        self.repacked(out, words.packed)
    }

    /// Other lanes of the warp have it.
    fn shuffled(&mut self, words: &Words, s: &Shuffle, c: &Conversion) -> Words {
        let from = 1usize << c.source.register().len();
        let count = 1usize << c.result.register().len();
        if s.slot_by_thread.iter().any(|&x| x != 0) {
            // The place in a word depends on the thread: one element in each.
            if let Some(single) = Shuffle::plan(&c.source, &c.result, 0) {
                let one = self.unpacked(words, from);
                let out = self.shuffled(&one, &single, c);
                return self.repacked(out, words.packed);
            }
        }
        let slots = s.source_slot.len() as u32;
        // Words that are sent, each with the elements that stay together.
        let sent = 1u32 << s.source_word.len();
        let mut list: Vec<Operand> = Vec::with_capacity(sent as usize);
        for w in 0..sent {
            let pieces: SmallVec<[Piece; 4]> = (0..1u32 << slots)
                .map(|k| piece(sum(&s.source_word, w) ^ sum(&s.source_slot, k), words.packed))
                .collect();
            list.push(self.assemble(words, &pieces));
        }
        let received = self.send(words.ty, list, s);
        // A word that was received holds `1 << slots` elements in its lowest places.
        let got = Words { list: received, packed: words.packed, ty: words.ty };
        self.gather(&got, count, |r| {
            let at = sum(&s.result, r);
            let word = at >> slots;
            let slot = (at & ((1 << slots) - 1)) ^ sum(&s.slot_by_word, word);
            (word as usize, slot)
        })
    }

    /// The rounds of shuffles.
    fn send(&mut self, ty: RegTy, mut list: Vec<Operand>, s: &Shuffle) -> Vec<Operand> {
        let words = 1u32 << s.words;
        match &s.way {
            Way::Turns { send_by_round, send_by_thread, lane_by_round, lane_by_thread, turn } => {
                self.turn_words(&mut list, ty, send_by_thread);
                let own = is_identity(lane_by_thread);
                let lane = if own { Operand::Imm(0) } else { self.by_thread(lane_by_thread) };
                let mut out: Vec<Operand> = (0..words)
                    .map(|k| {
                        let x = list[sum(send_by_round, k) as usize];
                        self.shuffle(ty, x, own, lane, sum(lane_by_round, k))
                    })
                    .collect();
                self.turn_words(&mut out, ty, turn);
                out
            }
            Way::Direct { word_by_word, word_by_thread, lane_by_word, lane_by_thread } => {
                let own = is_identity(lane_by_thread);
                let lane = if own { Operand::Imm(0) } else { self.by_thread(lane_by_thread) };
                let span = Span::of(word_by_thread);
                let pivots: SmallVec<[usize; 8]> =
                    (0..word_by_thread.len()).filter(|k| span.pivots() >> k & 1 == 1).collect();
                let choices: Columns = pivots.iter().map(|&p| word_by_thread[p]).collect();
                // Of the choices each thread takes one, a bit at a time.
                let odd: SmallVec<[Reg; 8]> = pivots
                    .iter()
                    .map(|&p| {
                        let mask = word_by_thread.iter().enumerate().fold(0, |m, (k, &c)| {
                            let used = span.solve(c).unwrap_or(0);
                            m | (used >> p & 1) << k
                        });
                        self.parity(mask)
                    })
                    .collect();
                (0..words)
                    .map(|x| {
                        let first = sum(word_by_word, x);
                        let by = sum(lane_by_word, x);
                        let mut some: Vec<Operand> = (0..1u32 << choices.len())
                            .map(|z| {
                                let word = list[(first ^ sum(&choices, z)) as usize];
                                self.shuffle(ty, word, own, lane, by)
                            })
                            .collect();
                        for &p in &odd {
                            some = some.chunks(2).map(|c| self.select(ty, p, c[1], c[0])).collect();
                        }
                        some[0]
                    })
                    .collect()
            }
        }
    }

    /// What the lane `lane ^ by` has; of the own number where `own`.
    pub(super) fn shuffle(&mut self, ty: RegTy, x: Operand, own: bool, lane: Operand, by: u32) -> Operand {
        if own && by == 0 {
            return x;
        }
        let x = self.b.as_reg(ty, x);
        let d = self.b.reg(ty);
        let (form, from) = match own {
            true => (PtxOp::ShflSyncBflyB32, Operand::Imm(i64::from(by))),
            false => (PtxOp::ShflSyncIdxB32, self.b.fold_xor(lane, i64::from(by))),
        };
        self.b.emit(form, &[d.into(), x.into(), from, 31u32.into(), ALL_LANES.into()]);
        d.into()
    }

    /// Through shared memory.
    fn trip(&mut self, op: Op, words: &Words, t: &Trip, c: &Conversion) -> CodegenResult<Words> {
        let bits = t.order.len() as u32;
        let elem = c.means.width - 3;
        let bytes = (1u32 << (bits - t.rounds)) << elem;
        let (base, at) = self.scratch(op, bytes, t.scope)?;
        let count = 1usize << c.result.register().len();
        let mut places: Vec<Option<(Operand, u32)>> = vec![None; count];
        let below = (1u32 << (bits - t.rounds)) - 1;
        let store_at = self.side_place((base, at), &t.store, elem, below);
        let load_at = self.side_place((base, at), &t.load, elem, below);
        let guard = self.copies_guard(t.store.copies);
        for round in 0..1u32 << t.rounds {
            if round > 0 {
                self.trip_barrier(op, t.scope)?;
            }
            let of_round = |at: u32| (at >> (bits - t.rounds) == round).then_some(at & below);
            self.store_side(words, &t.store, &store_at, guard, of_round);
            self.trip_barrier(op, t.scope)?;
            self.load_side(words.ty, &t.load, &load_at, of_round, &mut places);
        }
        let list = self.placed(words.packed, words.ty, &places, &c.result);
        Ok(Words { list, packed: words.packed, ty: words.ty })
    }

    fn trip_barrier(&mut self, op: Op, scope: Scope) -> CodegenResult<()> {
        match scope {
            Scope::Warp => {
                self.b.bar_warp_sync(ALL_LANES);
                Ok(())
            }
            Scope::Agent => self.agent_barrier(op),
        }
    }

    /// Where the threads make the accesses of one side, whose elements have `1 << elem` bytes. `below`: bits of the offsets that are those of a
    /// round.
    pub(super) fn side_place(
        &mut self,
        (base, at): (Reg, i32),
        side: &Side,
        elem: u32,
        below: u32,
    ) -> SidePlace {
        let (columns, group) = side.addresses(below);
        let columns: Columns = columns.iter().map(|o| o << elem).collect();
        let taken = columns.iter().fold(0, |all, c| all | c);
        SidePlace { base, at, own: self.by_thread(&columns), taken, elem, group }
    }

    /// Predicate of the threads that store: of those that hold the same one does.
    pub(super) fn copies_guard(&mut self, (lanes, warps): (u32, u32)) -> Option<Reg> {
        let mask = lanes | warps << 5;
        if mask == 0 {
            return None;
        }
        let lane = self.lane.map_or(Operand::Imm(0), Operand::Reg);
        let low = self.b.fold_and(lane, lanes);
        let high = self.b.fold_and(self.agent.warp, warps);
        let both = match (low, high) {
            (x, Operand::Imm(0)) | (Operand::Imm(0), x) => x,
            (x, y) => {
                let x = self.b.as_reg(RegTy::B32, x);
                self.b.or_b32(x, y).into()
            }
        };
        let both = self.b.as_reg(RegTy::B32, both);
        Some(self.b.setp_eq_u32(both, 0))
    }

    /// The address of an access, whose offset is in elements.
    fn access_address(&mut self, p: &SidePlace, offset: u32) -> Operand {
        let bytes = offset << p.elem;
        // Bits that threads do not have are added, others put in.
        let (inside, beside) = (bytes & p.taken, bytes & !p.taken);
        let own = self.b.fold_xor(p.own, i64::from(inside));
        match own {
            Operand::Imm(n) => Operand::addr(p.base, p.at + n as i32 + beside as i32),
            x => {
                let r = self.b.add_u32(p.base, x);
                Operand::addr(r, p.at + beside as i32)
            }
        }
    }

    /// Stores what the accesses of a side move to which `offset` gives a place, from their own one.
    pub(super) fn store_side(
        &mut self,
        words: &Words,
        side: &Side,
        p: &SidePlace,
        guard: Option<Reg>,
        offset: impl Fn(u32) -> Option<u32>,
    ) {
        for a in p.leaders(side) {
            let Some(offset) = offset(sum(&side.offsets, a)) else { continue };
            let addr = self.access_address(p, offset);
            let data: SmallVec<[Reg; 4]> = p
                .numbers(a)
                .flat_map(|a| {
                    let first = sum(&side.accesses, a);
                    (0..1u32 << side.slots.len()).map(move |k| (first, k))
                })
                .map(|(first, k)| piece(first ^ sum(&side.slots, k), words.packed))
                .collect::<SmallVec<[Piece; 16]>>()
                .chunks(1 << words.packed.min(side.slots.len() as u32))
                .map(|pieces| {
                    let x = self.assemble(words, pieces);
                    self.b.as_reg(words.ty, x)
                })
                .collect();
            let (form, value) = match side.form {
                Form::Vector(v) => self.vector_store(v + p.elem, &data, words.ty),
                form => self.matrix_store(form, data, words.ty),
            };
            let Some(p) = guard else {
                self.b.emit(form, &[addr, value]);
                continue;
            };
            if matches!(side.form, Form::Vector(_)) {
                self.b.on(p);
                self.b.emit(form, &[addr, value]);
            } else {
                // Matrices are stored by whole warps, which a predicate does not show.
                let end = self.b.block();
                self.b.br_on_not(p, end);
                self.b.emit(form, &[addr, value]);
                self.b.place(end);
            }
        }
    }

    /// A store of `1 << bytes` bytes.
    fn vector_store(&mut self, bytes: u32, data: &[Reg], ty: RegTy) -> (PtxOp, Operand) {
        let f32 = ty == RegTy::F32;
        match (1u32 << bytes, data) {
            (1, &[x, ..]) => (PtxOp::StSharedU8, x.into()),
            (2, &[x, ..]) => (PtxOp::StSharedB16, self.b.cvt_u16_u32(x).into()),
            (4, &[x, ..]) => (if f32 { PtxOp::StSharedF32 } else { PtxOp::StSharedB32 }, x.into()),
            (8, all) => (if f32 { PtxOp::StSharedV2F32 } else { PtxOp::StSharedV2B32 }, self.b.list(&all)),
            (_, all) => (if f32 { PtxOp::StSharedV4F32 } else { PtxOp::StSharedV4B32 }, self.b.list(&all)),
        }
    }

    fn matrix_store(&mut self, form: Form, mut data: SmallVec<[Reg; 4]>, ty: RegTy) -> (PtxOp, Operand) {
        if ty != RegTy::B32 {
            data.iter_mut().for_each(|r| *r = self.b.mov_bits_b32(*r));
        }
        let form = match (data.len(), form == Form::Transposed) {
            (1, false) => PtxOp::StmatrixX1,
            (1, true) => PtxOp::StmatrixX1Trans,
            (2, false) => PtxOp::StmatrixX2,
            (2, true) => PtxOp::StmatrixX2Trans,
            (_, false) => PtxOp::StmatrixX4,
            (_, true) => PtxOp::StmatrixX4Trans,
        };
        (form, self.b.list(&data.as_slice()))
    }

    /// Loads what the accesses of a side move to which `offset` gives a place, from their own one; `places`: by register the word that has its
    /// element, and where in it.
    pub(super) fn load_side(
        &mut self,
        ty: RegTy,
        side: &Side,
        p: &SidePlace,
        offset: impl Fn(u32) -> Option<u32>,
        places: &mut [Option<(Operand, u32)>],
    ) {
        for a in p.leaders(side) {
            let Some(offset) = offset(sum(&side.offsets, a)) else { continue };
            let addr = self.access_address(p, offset);
            let got = match side.form {
                Form::Vector(v) => self.vector_load(v + p.elem, addr, ty),
                form => self.matrix_load(form, 1 << p.group.len(), addr, ty),
            };
            let slots = side.slots.len() as u32;
            for (m, a) in (0..).zip(p.numbers(a)) {
                let first = sum(&side.accesses, a);
                for k in 0..1u32 << slots {
                    let byte = ((m << slots) + k) << p.elem;
                    let register = (first ^ sum(&side.slots, k)) as usize;
                    if let (Some(x), Some(&word)) = (places.get_mut(register), got.get((byte / 4) as usize)) {
                        *x = Some((word, (byte % 4) >> p.elem));
                    }
                }
            }
        }
    }

    /// Words of a load of `1 << bytes` bytes.
    fn vector_load(&mut self, bytes: u32, addr: Operand, ty: RegTy) -> SmallVec<[Operand; 4]> {
        let f32 = ty == RegTy::F32;
        match 1u32 << bytes {
            1 => {
                let d = self.b.reg(RegTy::B32);
                self.b.emit(PtxOp::LdSharedU8, &[d.into(), addr]);
                smallvec![d.into()]
            }
            2 => {
                let h = self.b.reg(RegTy::B16);
                self.b.emit(PtxOp::LdSharedB16, &[h.into(), addr]);
                smallvec![self.b.cvt_u32_u16(h).into()]
            }
            4 => {
                let d = self.b.reg(ty);
                self.b.emit(if f32 { PtxOp::LdSharedF32 } else { PtxOp::LdSharedB32 }, &[d.into(), addr]);
                smallvec![d.into()]
            }
            bytes => {
                let regs = self.b.regs(ty, (bytes / 4) as usize);
                let form = match (bytes, f32) {
                    (8, true) => PtxOp::LdSharedV2F32,
                    (8, false) => PtxOp::LdSharedV2B32,
                    (_, true) => PtxOp::LdSharedV4F32,
                    (_, false) => PtxOp::LdSharedV4B32,
                };
                let list = self.b.list(&regs);
                self.b.emit(form, &[list, addr]);
                regs.iter().map(Operand::Reg).collect()
            }
        }
    }

    fn matrix_load(&mut self, form: Form, count: u32, addr: Operand, ty: RegTy) -> SmallVec<[Operand; 4]> {
        let regs = self.b.regs(RegTy::B32, count as usize);
        let op = match (count, form == Form::Transposed) {
            (1, false) => PtxOp::LdmatrixX1,
            (1, true) => PtxOp::LdmatrixX1Trans,
            (2, false) => PtxOp::LdmatrixX2,
            (2, true) => PtxOp::LdmatrixX2Trans,
            (_, false) => PtxOp::LdmatrixX4,
            (_, true) => PtxOp::LdmatrixX4Trans,
        };
        let list = self.b.list(&regs);
        self.b.emit(op, &[list, addr]);
        let typed = |x: Reg| -> Operand {
            if ty != RegTy::F32 {
                return x.into();
            }
            let d = self.b.reg(ty);
            self.b.mov_bits_b32_to(d, x);
            d.into()
        };
        regs.iter().map(typed).collect()
    }

    /// Words of the registers whose elements were loaded; of registers that hold the same one was.
    pub(super) fn placed(
        &mut self,
        packed: u32,
        ty: RegTy,
        places: &[Option<(Operand, u32)>],
        map: &LinearMap,
    ) -> Vec<Operand> {
        let own = Span::of(map.register());
        let mut list: Vec<Operand> = Vec::new();
        let mut at: Vec<Piece> = Vec::with_capacity(places.len());
        for (r, p) in places.iter().enumerate() {
            let found = p.or_else(|| {
                let other = own.solve(map.element(r as u32, 0, 0))?;
                places.get(other as usize).copied().flatten()
            });
            let (word, slot) = found.unwrap_or((Operand::Imm(0), 0));
            let n = list.iter().rposition(|x| *x == word).unwrap_or_else(|| {
                list.push(word);
                list.len() - 1
            });
            at.push((n, slot));
        }
        let loaded = Words { list, packed, ty };
        self.gather(&loaded, places.len(), |r| at[r as usize]).list
    }
}

/// Where the threads make the accesses of one side.
pub(super) struct SidePlace {
    base: Reg,
    at: i32,
    /// A thread's own bytes, and the bits that are not 0 in them.
    own: Operand,
    taken: u32,
    /// log2 of the bytes of an element.
    elem: u32,
    /// Bits of the number of an access: of the matrices that one instruction moves.
    group: SmallVec<[u32; 2]>,
}

impl SidePlace {
    /// Numbers of the first accesses of all instructions.
    fn leaders(&self, side: &Side) -> impl Iterator<Item = u32> + use<> {
        let others = self.group.iter().fold(0, |all, bit| all | 1 << bit);
        (0..side.count()).filter(move |a| a & others == 0)
    }

    /// Numbers of all accesses of the instruction that begins with this one.
    fn numbers(&self, leader: u32) -> impl Iterator<Item = u32> + '_ {
        let bits =
            move |m: u32| self.group.iter().enumerate().fold(0, |all, (k, bit)| all | (m >> k & 1) << bit);
        (0..1u32 << self.group.len()).map(move |m| leader | bits(m))
    }
}

/// Where the element of a register is among packed words.
fn piece(register: u32, packed: u32) -> Piece {
    ((register >> packed) as usize, register & ((1 << packed) - 1))
}
