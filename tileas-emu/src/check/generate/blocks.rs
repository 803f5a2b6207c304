//! Pieces with a fixed shape: memory, barriers, asynchronous copies, matrix instructions.
//!
//! All but [`Gen::memory`] and [`Gen::atomic`] are for the place where all lanes of the block are together. Shared
//! memory that several threads touch is handed over by a barrier before and after.

use super::Gen;
use crate::layout::tma_map::{MapDesc, TensorMap};
use arbitrary::Result;
use std::fmt::Write;

impl Gen<'_, '_> {
    /// A load or store of memory that is the thread's own, or a load of constant memory.
    pub(super) fn memory(&mut self) -> Result<()> {
        let ty = self
            .one(&["b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "s64", "f64"])?;
        let n = super::forms::bytes(ty);
        let vector = *self.u.choose(&[1u32, 1, 2, 4])?;
        let vector = if n * vector > 16 { 16 / n } else { vector };
        let at = self.upto(64 / (n * vector) - 1)? * n * vector;
        let place = match self.upto(3)? {
            0 | 1 => ("shared", format!("[%u0+{at}]")),
            2 => ("local", format!("[own+{at}]")),
            _ => ("global", format!("[%v2+{at}]")),
        };
        let items = (0..vector).map(|_| self.register(n)).collect::<Result<Vec<_>>>()?;
        let regs = if vector == 1 { items[0].clone() } else { format!("{{{}}}", items.join(", ")) };
        let v = ["", ".v2", "", ".v4"][(vector - 1) as usize];
        if place.0 == "global" || self.u.arbitrary()? {
            // A destination may not occur twice.
            let distinct = items.iter().enumerate().all(|(i, r)| !items[..i].contains(r));
            let nc = if place.0 == "global" && self.u.arbitrary()? { ".nc" } else { "" };
            if distinct {
                let _ = writeln!(self.text, "ld.{}{nc}{v}.{ty} {regs}, {};", place.0, place.1);
            }
        } else {
            let ty = ty.replace('s', if n == 1 { "u" } else { "b" });
            let _ = writeln!(self.text, "st.{}{v}.{ty} {}, {regs};", place.0, place.1);
        }
        Ok(())
    }

    /// A reduction whose order does not matter, each operation on a word of its own.
    pub(super) fn atomic(&mut self) -> Result<()> {
        let ops = ["add.u32", "min.u32", "max.u32", "and.b32", "or.b32", "xor.b32", "min.s32", "max.s32"];
        let i = self.u.choose_index(ops.len())?;
        let r = self.register(4)?;
        let scope = self.one(&["", ".relaxed.gpu", ".relaxed.sys"])?;
        let _ = writeln!(self.text, "red{scope}.global.{} [%v1+{}], {r};", ops[i], 4 * i);
        Ok(())
    }

    pub(super) fn block(&mut self) -> Result<()> {
        match self.upto(if self.cluster { 13 } else { 9 })? {
            10 | 11 => self.neighbour(),
            12 | 13 => self.multicast(),
            0 => self.exchange(),
            1 => self.vote(),
            2 => self.arrivals(),
            3 => self.bulk_load(),
            4 => self.tensor_load(),
            5 if self.ctas == 1 => self.tensor_store(),
            6 => self.matrices(),
            7 => self.mma(),
            8 if self.threads == 128 && self.blackwell => self.tcgen05(),
            8 if self.threads == 128 => self.wgmma(),
            9 if self.threads == 128 && self.blackwell => self.tensor_memory(),
            _ => self.tensor_load(),
        }
    }

    /// Each thread hands a word to another one.
    fn exchange(&mut self) -> Result<()> {
        let (from, to) = (self.register(4)?, self.register(4)?);
        let other = self.upto(self.threads - 1)?;
        let barrier = match self.upto(2)? {
            0 => "bar.sync 0".to_string(),
            1 => format!("bar.sync {}, {}", 1 + self.upto(14)?, self.threads),
            _ => format!("barrier.cta.sync.aligned {}, {}", 1 + self.upto(14)?, self.threads),
        };
        let _ = writeln!(
            self.text,
            "shl.b32 %u4, %t, 2;\nadd.u32 %u4, %u4, %s;\nst.shared.b32 [%u4+9216], {from};\n{barrier};\n\
             xor.b32 %u4, %t, {other};\nrem.u32 %u4, %u4, {};\nshl.b32 %u4, %u4, 2;\nadd.u32 %u4, %u4, %s;\n\
             ld.shared.b32 {to}, [%u4+9216];\nbar.sync 0;",
            self.threads
        );
        Ok(())
    }

    /// The barrier of the cluster, with release and acquire.
    fn cluster_barrier(&mut self) -> Result<String> {
        let arrive = self.one(&[
            "barrier.cluster.arrive.release.aligned",
            "barrier.cluster.arrive.aligned",
            "fence.acq_rel.cluster;\nbarrier.cluster.arrive.relaxed.aligned",
            "bar.warp.sync -1;\nbarrier.cluster.arrive",
        ])?;
        let wait = self.one(&["barrier.cluster.wait.acquire.aligned", "barrier.cluster.wait"])?;
        Ok(format!("{arrive};\n{wait};\nbar.warp.sync -1;"))
    }

    /// Each thread takes a word of a thread of the other CTA, or sends it one.
    fn neighbour(&mut self) -> Result<()> {
        let (from, to) = (self.register(4)?, self.register(4)?);
        let (first, barrier, last) =
            (self.cluster_barrier()?, self.cluster_barrier()?, self.cluster_barrier()?);
        let address = "shl.b32 %u4, %t, 2;\nadd.u32 %u4, %u4, %s;\nadd.u32 %u4, %u4, 9216;";
        let there = match self.u.arbitrary()? {
            true => {
                "mov.u32 %u5, %cluster_ctarank;\nxor.b32 %u5, %u5, 1;\nmapa.shared::cluster.u32 %u5, %u4, %u5;"
            }
            false => {
                "mov.u32 %u5, %cluster_ctarank;\nxor.b32 %u5, %u5, 1;\ncvt.u64.u32 %v4, %u4;\ncvta.shared.u64 %v4, %v4;\n\
                 mapa.u64 %v4, %v4, %u5;\ncvta.to.shared::cluster.u64 %v4, %v4;\ncvt.u32.u64 %u5, %v4;"
            }
        };
        let (store, load) = match self.u.arbitrary()? {
            true => ("st.shared::cluster.b32 [%u5]", "ld.shared.b32"),
            false => ("st.shared.b32 [%u4]", "ld.shared::cluster.b32"),
        };
        let source = if load == "ld.shared.b32" { "%u4" } else { "%u5" };
        let _ = writeln!(
            self.text,
            "{address}\n{there}\n{first}\n{store}, {from};\n{barrier}\n{load} {to}, [{source}];\n{last}"
        );
        Ok(())
    }

    /// Both CTAs load a part of the box into both.
    fn multicast(&mut self) -> Result<()> {
        let n = self.label();
        let bytes = 16 * (1 + self.upto(127)?);
        let from = 16 * self.upto(100)?;
        let barrier = self.cluster_barrier()?;
        let _ = writeln!(
            self.text,
            "{barrier}\n@%q0 bra L{n};\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%s], {};\n\
             mov.u32 %u5, %cluster_ctarank;\nmad.lo.u32 %u4, %u5, {bytes}, %s;\nadd.u32 %u4, %u4, 16384;\n\
             mov.u32 %u6, 3;\n{{\n.reg .b16 %mask;\ncvt.u16.u32 %mask, %u6;\n\
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%u4], [%v2+{from}], {bytes}, [%s], %mask;\n}}\nL{n}:",
            2 * bytes
        );
        self.loaded()
    }

    /// `bar.red` over the block.
    fn vote(&mut self) -> Result<()> {
        let (p, q, r) = (self.upto(7)?, self.upto(7)?, self.register(4)?);
        let line = match self.upto(2)? {
            0 => format!("bar.red.popc.u32 {r}, 2, %p{p};"),
            1 => format!("bar.red.or.pred %p{q}, 3, {}, !%p{p};", self.threads),
            _ => format!("bar.red.and.pred %p{q}, 0, %p{p};"),
        };
        self.put(&line);
        Ok(())
    }

    /// A phase of the barrier at which every thread arrives.
    fn arrivals(&mut self) -> Result<()> {
        let n = self.label();
        let (from, to) = (self.register(4)?, self.register(4)?);
        let by_state: bool = self.u.arbitrary()?;
        let (state, wait, key) = if by_state { ("%v4", "", "%v4") } else { ("_", ".parity", "%pt") };
        let _ = writeln!(
            self.text,
            "shl.b32 %u4, %t, 2;\nadd.u32 %u4, %u4, %s;\nst.shared.b32 [%u4+9216], {from};\n\
             mbarrier.arrive.shared::cta.b64 {state}, [%s+8];\nW{n}:\n\
             mbarrier.try_wait{wait}.shared::cta.b64 %q2, [%s+8], {key};\n@!%q2 bra W{n};\nxor.b32 %pt, %pt, 1;\n\
             bar.warp.sync -1;\nxor.b32 %u4, %u4, 4;\nld.shared.b32 {to}, [%u4+9216];\nbar.sync 0;"
        );
        Ok(())
    }

    /// Waits for the phase that one thread's transactions complete, reads some of the box, and lets all know.
    fn loaded(&mut self) -> Result<()> {
        let n = self.label();
        let (r, at) = (self.register(4)?, self.upto(1023)? / 128 * 512);
        let poll = self.one(&["try_wait", "try_wait", "test_wait"])?;
        let _ = writeln!(
            self.text,
            "bar.warp.sync -1;\nW{n}:\nmbarrier.{poll}.parity.shared::cta.b64 %q2, [%s], %ph;\n@!%q2 bra W{n};\n\
             xor.b32 %ph, %ph, 1;\nbar.warp.sync -1;\nshl.b32 %u4, %t, 2;\nadd.u32 %u4, %u4, %s;\n\
             ld.shared.b32 {r}, [%u4+{}];\nfence.proxy.async.shared::cta;\nbar.sync 0;",
            16_384 + at
        );
        Ok(())
    }

    fn bulk_load(&mut self) -> Result<()> {
        let n = self.label();
        let bytes = 16 * (1 + self.upto(127)?);
        let (at, from) = (16 * self.upto(100)?, 16 * self.upto(100)?);
        let _ = writeln!(
            self.text,
            "@%q0 bra L{n};\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%s], {bytes};\nadd.u32 %u4, %s, {};\n\
             add.u64 %v3, %v2, {from};\n\
             cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%u4], [%v3], {bytes}, [%s];\nL{n}:",
            16_384 + at
        );
        self.loaded()
    }

    /// Coordinates of a box, outside the tensor too; not negative for stores, and at multiples of 16 bytes in the innermost dimension.
    fn coordinates(&mut self, d: &MapDesc, store: bool) -> Result<String> {
        let mut c = Vec::new();
        for &n in &d.dims {
            let low = if store { 0 } else { -9 };
            let step = if c.is_empty() { i64::from(128 / d.elem.bits()) } else { 1 };
            c.push((self.u.int_in_range(low..=n as i64 + 5)? / step * step).to_string());
        }
        Ok(c.join(", "))
    }

    fn tensor_load(&mut self) -> Result<()> {
        let n = self.label();
        let d = self.load.clone();
        let bytes = TensorMap::new(&d).map_or(0, |m| m.tx_bytes());
        let c = self.coordinates(&d, false)?;
        let space = self.one(&["shared::cta", "shared::cluster"])?;
        let _ = writeln!(
            self.text,
            "@%q0 bra L{n};\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%s], {bytes};\nadd.u32 %u4, %s, 16384;\n\
             cvta.param.u64 %v3, tl;\n\
             cp.async.bulk.tensor.{}d.{space}.global.tile.mbarrier::complete_tx::bytes [%u4], [%v3, {{{c}}}], [%s];\nL{n}:",
            d.dims.len()
        );
        self.loaded()
    }

    fn tensor_store(&mut self) -> Result<()> {
        use crate::layout::tma::RedOp;
        let n = self.label();
        let d = self.store.clone();
        let c = self.coordinates(&d, true)?;
        let bytes = 8192 / self.threads;
        let _ = writeln!(self.text, "mad.lo.u32 %u4, %t, {bytes}, %s;");
        for i in 0..bytes / 16 {
            let (a, b) = (self.register(4)?, self.register(4)?);
            let _ = writeln!(self.text, "st.shared.v4.b32 [%u4+{}], {{{a}, {b}, {a}, %t}};", 24_576 + 16 * i);
        }
        let op = self.one(&["add", "min", "max", "and", "or", "xor", "inc", "dec", ""])?;
        let op = RedOp::by_name(op).filter(|o| o.allowed(d.elem)).map(|_| op);
        let what = match op {
            Some(op) => format!("cp.reduce.async.bulk.tensor.{}d.global.shared::cta.{op}.tile", d.dims.len()),
            None => format!("cp.async.bulk.tensor.{}d.global.shared::cta.tile", d.dims.len()),
        };
        let wait = self.one(&["cp.async.bulk.wait_group.read 0;\n", ""])?;
        let _ = writeln!(
            self.text,
            "fence.proxy.async.shared::cta;\nbar.sync 0;\n@%q0 bra L{n};\ncvta.param.u64 %v3, ts;\nadd.u32 %u4, %s, 24576;\n\
             {what}.bulk_group [%v3, {{{c}}}], [%u4];\ncp.async.bulk.commit_group;\n{wait}\
             cp.async.bulk.wait_group 0;\nL{n}:\nbar.warp.sync -1;\nbar.sync 0;"
        );
        Ok(())
    }

    /// `stmatrix` to the warp's tiles and `ldmatrix` from them.
    fn matrices(&mut self) -> Result<()> {
        let regs = |g: &mut Self| -> Result<String> {
            let first = g.upto(12)?;
            Ok(format!("{{%r{first}, %r{}, %r{}, %r{}}}", first + 1, first + 2, first + 3))
        };
        let (from, to) = (regs(self)?, regs(self)?);
        let (a, b) = (self.one(&["", ".trans"])?, self.one(&["", ".trans"])?);
        let _ = writeln!(
            self.text,
            "shl.b32 %u4, %t, 4;\nadd.u32 %u4, %u4, %s;\n\
             stmatrix.sync.aligned.m8n8.x4{a}.shared.b16 [%u4+32768], {from};\nbar.warp.sync -1;\n\
             ldmatrix.sync.aligned.m8n8.x4{b}.shared.b16 {to}, [%u4+32768];\nbar.warp.sync -1;"
        );
        Ok(())
    }

    fn mma(&mut self) -> Result<()> {
        let (shape, types, nd) = *self.u.choose(&[
            ("m16n8k16", "f32.f16.f16.f32", 4),
            ("m16n8k16", "f32.bf16.bf16.f32", 4),
            ("m16n8k16", "f16.f16.f16.f16", 2),
            ("m16n8k8", "f32.tf32.tf32.f32", 4),
            ("m16n8k32", "f32.e4m3.e5m2.f32", 4),
            ("m16n8k32", "s32.s8.u8.s32", 4),
            ("m16n8k32", "satfinite.s32.u8.u8.s32", 4),
        ])?;
        let list =
            |from: u32, n: u32| (from..from + n).map(|i| format!("%r{i}")).collect::<Vec<_>>().join(", ");
        let (d, a, b, c) =
            (self.upto(16 - nd)?.min(12), self.upto(12)?, self.upto(14)?, self.upto(16 - nd)?.min(12));
        let _ = writeln!(
            self.text,
            "mma.sync.aligned.{shape}.row.col.{types} {{{}}}, {{{}}}, {{{}}}, {{{}}};",
            list(d, nd),
            list(a, 4),
            list(b, 2),
            list(c, nd)
        );
        Ok(())
    }

    /// Writes operands of 32 bytes per row: `rows_a` rows of A, `rows_b` of B, in the layout without swizzle.
    fn operands(&mut self, rows_b: u32) -> Result<()> {
        let (x, y) = (self.register(4)?, self.register(4)?);
        // Every thread writes a row of A, and of B where there is one.
        let _ = writeln!(
            self.text,
            "shr.u32 %u4, %t, 3;\nshl.b32 %u4, %u4, 8;\nand.b32 %u5, %t, 7;\nshl.b32 %u5, %u5, 4;\nadd.u32 %u4, %u4, %u5;\n\
             add.u32 %u4, %u4, %s;\nst.shared.v4.b32 [%u4+10240], {{{x}, {y}, {x}, 0}};\n\
             st.shared.v4.b32 [%u4+10368], {{{y}, 1, {x}, {y}}};\nsetp.ge.u32 %q3, %t, {rows_b};\n\
             @!%q3 st.shared.v4.b32 [%u4+14336], {{{x}, 7, {y}, {x}}};\n\
             @!%q3 st.shared.v4.b32 [%u4+14464], {{1, {y}, {x}, {x}}};\nfence.proxy.async.shared::cta;"
        );
        Ok(())
    }

    /// Descriptors of A in `%v5` and of B in `%v6`: 128 bytes between the columns of core matrices, 256 between rows.
    fn descriptors(&mut self, high: u32) {
        for (v, at) in [(5, 10_240), (6, 14_336)] {
            let _ = writeln!(
                self.text,
                "add.u32 %u4, %s, {at};\nshr.u32 %u4, %u4, 4;\nor.b32 %u4, %u4, 0x80000;\nmov.b64 %v{v}, {{%u4, {high:#x}}};"
            );
        }
    }

    fn wgmma(&mut self) -> Result<()> {
        let n = 8 * (1 + self.upto(3)?);
        let (types, k) = *self.u.choose(&[
            ("f32.f16.f16", 16),
            ("f32.bf16.bf16", 16),
            ("f32.tf32.tf32", 8),
            ("f32.e4m3.e5m2", 32),
            ("s32.s8.u8", 32),
        ])?;
        let tail = match k {
            16 => ", 1, -1, 0, 0",
            _ if types.starts_with('s') => "",
            _ => ", 1, 1",
        };
        self.operands(n)?;
        self.descriptors(16);
        let list = (0..n / 2).map(|i| format!("%a{i}")).collect::<Vec<_>>().join(", ");
        let again = self.upto(2)?;
        self.put("bar.sync 0;\nwgmma.fence.sync.aligned;");
        for i in 0..=again {
            let p = u32::from(i > 0);
            let _ = writeln!(
                self.text,
                "setp.ne.u32 %q2, {p}, 0;\nwgmma.mma_async.sync.aligned.m64n{n}k{k}.{types} {{{list}}}, %v5, %v6, %q2{tail};"
            );
        }
        self.put("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;");
        for i in 0..4 {
            let _ = writeln!(self.text, "xor.b32 %r{0}, %r{0}, %a{i};", 4 * i);
        }
        self.put("bar.sync 0;");
        Ok(())
    }

    /// Allocates tensor memory and puts its address in `%ta`.
    fn allocate(&mut self, columns: u32) {
        let n = self.label();
        let _ = writeln!(
            self.text,
            "setp.ne.u32 %q2, %w, 0;\n@%q2 bra A{n};\n\
             tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%s+64], {columns};\nA{n}:\n\
             tcgen05.fence::before_thread_sync;\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\nld.shared.b32 %ta, [%s+64];\n\
             shl.b32 %u6, %w, 21;\nadd.u32 %u6, %u6, %ta;"
        );
    }

    fn free(&mut self, columns: u32) {
        let n = self.label();
        let _ = writeln!(
            self.text,
            "tcgen05.fence::before_thread_sync;\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\n\
             setp.ne.u32 %q2, %w, 0;\n@%q2 bra F{n};\n\
             tcgen05.dealloc.cta_group::1.sync.aligned.b32 %ta, {columns};\nF{n}:\nbar.warp.sync -1;\nbar.sync 0;"
        );
    }

    /// A product of 128 rows into tensor memory, and some of its columns back in registers.
    fn tcgen05(&mut self) -> Result<()> {
        let n = 16 * (1 + self.upto(3)?);
        // Kind, types of A and B, type of D.
        let (kind, a, b, d) = *self.u.choose(&[
            ("f16", 0, 0, 1),
            ("f16", 1, 1, 1),
            ("f16", 0, 0, 0),
            ("tf32", 2, 2, 1),
            ("f8f6f4", 0, 1, 1),
            ("f8f6f4", 3, 5, 1),
            ("f8f6f4", 4, 0, 0),
            ("i8", 0, 1, 2),
        ])?;
        let negate = if kind == "i8" { 0 } else { self.upto(3)? << 13 };
        let idesc = d << 4 | a << 7 | b << 10 | negate | n >> 3 << 17 | 8 << 24;
        let again = self.upto(2)?;
        self.operands(n)?;
        self.descriptors(16 | 1 << 14);
        let l = self.label();
        self.allocate(64);
        let _ = writeln!(self.text, "@%q0 bra M{l};");
        for i in 0..=again {
            let _ = writeln!(
                self.text,
                "setp.ne.u32 %q2, {}, 0;\ntcgen05.mma.cta_group::1.kind::{kind} [%ta], %v5, %v6, {idesc:#x}, %q2;",
                u32::from(i > 0)
            );
        }
        let _ = writeln!(
            self.text,
            "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%s];\nM{l}:\nbar.warp.sync -1;\nX{l}:\n\
             mbarrier.try_wait.parity.shared::cta.b64 %q2, [%s], %ph;\n@!%q2 bra X{l};\nxor.b32 %ph, %ph, 1;\n\
             bar.warp.sync -1;\ntcgen05.fence::after_thread_sync;"
        );
        let columns = 1u32 << self.upto(4)?;
        self.read_back(columns, self.threads / 32)?;
        self.free(64);
        Ok(())
    }

    fn read_back(&mut self, columns: u32, _warps: u32) -> Result<()> {
        let list = (0..columns).map(|i| format!("%a{i}")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            self.text,
            "tcgen05.ld.sync.aligned.32x32b.x{columns}.b32 {{{list}}}, [%u6];\ntcgen05.wait::ld.sync.aligned;"
        );
        for i in 0..columns.min(16) {
            let _ = writeln!(self.text, "xor.b32 %r{i}, %r{i}, %a{i};");
        }
        Ok(())
    }

    /// Registers to tensor memory and back, in different shapes.
    fn tensor_memory(&mut self) -> Result<()> {
        self.allocate(64);
        let columns = 1u32 << self.upto(4)?;
        let list = (0..columns).map(|i| format!("%r{i}")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            self.text,
            "tcgen05.st.sync.aligned.32x32b.x{columns}.b32 [%u6], {{{list}}};\ntcgen05.wait::st.sync.aligned;"
        );
        self.read_back(columns, self.threads / 32)?;
        // Sixteen lanes of the same columns, if there are two at least.
        if columns >= 2 {
            let half = self.one(&["0", "0x100000"])?;
            let _ = writeln!(
                self.text,
                "add.u32 %u7, %u6, {half};\ntcgen05.ld.sync.aligned.16x64b.x1.b32 {{%a1}}, [%u7];\n\
                 tcgen05.wait::ld.sync.aligned;\nxor.b32 %r1, %r1, %a1;"
            );
        }
        self.free(64);
        Ok(())
    }
}
