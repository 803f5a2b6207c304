//! Random kernels.
//!
//! In: structured entropy. Out: a module, a launch and its memory. Every kernel is right by the manual's rules: its
//! threads work on registers, memory of their own and what barriers hand over, so it has one result under any timing.
//! Wrong kernels come from [`damaged`]. Registers, shared memory and buffers have a fixed plan, see [`Gen`].

mod blocks;

use super::forms::{self, Form};
use crate::layout::tma_map::{MapDesc, OobFill, TensorMap, TmaType};
use crate::{Arg, BufferId, Launch, Memory, Swizzle};
use arbitrary::{Result, Unstructured};
use std::fmt::Write;

/// A kernel with what it needs to run.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The module.
    pub text: String,
    /// Its launch.
    pub launch: Launch,
    /// Memory before the launch.
    pub memory: Memory,
    /// Buffers that a run may change.
    pub buffers: Vec<BufferId>,
}

/// Bytes of a thread's part of the output.
const OUT: u32 = 256;
/// Bytes of shared memory, see the plan in [`Gen`].
const SHARED: u32 = 35_840;
/// Elements of the tensors behind the maps.
const TENSOR_BYTES: usize = 16_384;

/// A kernel under construction.
///
/// Registers: `%h0..7`, `%r0..15`, `%d0..7`, `%p0..7` hold the threads' values; `%u…`, `%v…`, `%q…` serve the fixed
/// pieces. Shared memory from `%s`: mbarriers at 0 and 8, the address of tensor memory at 64, 64 bytes of each thread
/// from 1024, 4 bytes of each thread for exchange from 9216, matrix operands from 10240 and 14336, the box of
/// loads from 16384, the box of stores from 24576, matrix tiles of the warps from 32768.
struct Gen<'a, 'u> {
    u: &'a mut Unstructured<'u>,
    text: String,
    threads: u32,
    blackwell: bool,
    labels: u32,
    /// Instructions left to draw, so that nesting stays bounded.
    fuel: u32,
    load: MapDesc,
    store: MapDesc,
    ctas: u32,
    /// Whether the CTAs are a cluster.
    cluster: bool,
}

/// Draws a kernel.
///
/// # Errors
/// When the data ends.
pub fn kernel(u: &mut Unstructured<'_>) -> Result<Kernel> {
    let blackwell = u.ratio(2, 3)?;
    let threads = *u.choose(&[32u32, 64, 128, 128])?;
    let ctas = u.int_in_range(1..=2)?;
    let cluster = ctas == 2 && u.ratio(2, 3)?;
    let mut memory = Memory::new();
    let out = memory.alloc(vec![0; (OUT * threads * ctas) as usize]);
    let sums = memory.alloc(vec![0; 64]);
    let source = memory.alloc((0..TENSOR_BYTES).map(|i| (i * 37 + i / 251) as u8).collect());
    let target = memory.alloc(vec![0x11; TENSOR_BYTES]);
    let load = tensor(u, memory.address(source), false)?;
    let store = tensor(u, memory.address(target), true)?;
    let fuel = u.int_in_range(4..=60)?;
    let mut g =
        Gen { u, text: String::new(), threads, blackwell, labels: 0, fuel, load, store, ctas, cluster };
    g.prologue();
    while g.fuel > 0 {
        g.piece(0)?;
    }
    g.epilogue();
    let args = vec![
        Arg::u64(memory.address(out)),
        Arg::u64(memory.address(sums)),
        Arg::u64(memory.address(source)),
        Arg::u64(memory.address(target)),
        Arg::map(g.load),
        Arg::map(g.store),
    ];
    let launch = Launch {
        grid: [ctas, 1, 1],
        block: [threads, 1, 1],
        dynamic_smem: SHARED,
        args,
        ..Launch::default()
    };
    Ok(Kernel { text: g.text, launch, memory, buffers: vec![out, sums, target] })
}

/// A tensor map whose box fits the plan: any rank, odd extents, element strides, swizzles.
fn tensor(u: &mut Unstructured<'_>, address: u64, store: bool) -> Result<MapDesc> {
    let types: &[TmaType] = if store {
        &[TmaType::U32, TmaType::S32, TmaType::F32, TmaType::F16, TmaType::U8, TmaType::U64]
    } else {
        &[TmaType::U8, TmaType::U16, TmaType::F16, TmaType::Bf16, TmaType::F32, TmaType::Tf32, TmaType::U64]
    };
    loop {
        let rank = u.int_in_range(1..=5usize)?;
        let elem = *u.choose(types)?;
        let bytes = elem.bits() / 8;
        let mut dims = vec![u.int_in_range(1..=60u64)?];
        let (mut strides, mut stride) = (Vec::new(), (dims[0] * u64::from(bytes)).next_multiple_of(16));
        let inner = u.int_in_range(1..=8u32)? * 16 / bytes;
        let mut box_dims = vec![inner];
        for _ in 1..rank {
            strides.push(stride);
            let d = u.int_in_range(1..=7u64)?;
            stride *= d;
            dims.push(d);
            box_dims.push(u.int_in_range(1..=6u32)?);
        }
        let element_strides = if u.ratio(1, 4)? {
            (0..rank).map(|_| u.int_in_range(1..=3u32)).collect::<Result<Vec<_>>>()?
        } else {
            Vec::new()
        };
        let swizzle = Swizzle::DRIVER_ORDER[u.int_in_range(0..=6)?];
        let oob = if u.ratio(1, 4)? { OobFill::Nan } else { OobFill::Zero };
        let desc = MapDesc { elem, address, dims, strides, box_dims, element_strides, swizzle, oob };
        let fits = TensorMap::new(&desc).is_ok_and(|m| m.smem_bytes() <= 8192);
        if fits && stride <= TENSOR_BYTES as u64 {
            return Ok(desc);
        }
        if u.is_empty() {
            return Ok(MapDesc {
                elem: TmaType::U32,
                address,
                dims: vec![64],
                strides: vec![],
                box_dims: vec![32],
                element_strides: vec![],
                swizzle: Swizzle::None,
                oob: OobFill::Zero,
            });
        }
    }
}

impl Gen<'_, '_> {
    fn put(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn label(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }

    fn upto(&mut self, most: u32) -> Result<u32> {
        self.u.int_in_range(0..=most)
    }

    fn one<'s>(&mut self, of: &[&'s str]) -> Result<&'s str> {
        Ok(of[self.u.choose_index(of.len())?])
    }

    fn prologue(&mut self) {
        let target = if self.blackwell { "sm_100a" } else { "sm_90a" };
        let threads = self.threads;
        let cluster = if self.cluster { ".reqnctapercluster 2, 1, 1\n" } else { "" };
        let _ = writeln!(
            self.text,
            ".version 8.7\n.target {target}\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n\
             .visible .entry k(.param .u64 out, .param .u64 sums, .param .u64 from, .param .u64 to,\n\
             .param .align 64 .b8 tl[128], .param .align 64 .b8 ts[128])\n.reqntid {threads}\n{cluster}.minnctapersm 1\n{{\n\
             .reg .pred %p<8>, %q<4>;\n.reg .b16 %h<8>;\n.reg .b32 %r<16>, %u<24>, %a<64>, %t, %l, %w, %s, %ph, %pt, %ta;\n\
             .reg .b64 %d<8>, %v<12>;\n.local .align 16 .b8 own[64];\n\
             mov.u32 %t, %tid.x;\nand.b32 %l, %t, 31;\nshr.u32 %w, %t, 5;\nmov.u32 %s, smem;\n\
             shl.b32 %u0, %t, 6;\nadd.u32 %u0, %u0, %s;\nadd.u32 %u0, %u0, 1024;\n\
             mov.u32 %u1, %ctaid.x;\nmad.lo.u32 %u1, %u1, {threads}, %t;\nld.param.u64 %v0, [out];\n\
             mad.wide.u32 %v0, %u1, {OUT}, %v0;\nld.param.u64 %v1, [sums];\nld.param.u64 %v2, [from];\n\
             mov.u32 %ph, 0;\nmov.u32 %pt, 0;"
        );
        for i in 0..16 {
            let _ =
                writeln!(self.text, "mad.lo.u32 %r{i}, %t, {}, {};", 0x9E37 * (i + 1), 0x3F80_0000 - 77 * i);
        }
        for i in 0..8 {
            let _ = writeln!(self.text, "mov.b64 %d{i}, {{%r{i}, %r{}}};", i + 8);
            let _ = writeln!(self.text, "cvt.u16.u32 %h{i}, %r{};\nsetp.lt.u32 %p{i}, %r{i}, %r15;", i + 4);
        }
        for i in 0..4 {
            let _ = writeln!(self.text, "st.shared.v4.b32 [%u0+{}], {{%r0, %r1, %r2, %r3}};", 16 * i);
            let _ = writeln!(self.text, "st.local.v4.b32 [own+{}], {{%r4, %r5, %r6, %r7}};", 16 * i);
        }
        // The box of loads holds values before the first of them.
        let bytes = 8192 / threads;
        let _ = writeln!(self.text, "mad.lo.u32 %u2, %t, {bytes}, %s;");
        for i in 0..bytes / 16 {
            let _ =
                writeln!(self.text, "st.shared.v4.b32 [%u2+{}], {{%r0, %r1, %r2, %r3}};", 16_384 + 16 * i);
        }
        let _ = writeln!(
            self.text,
            "fence.proxy.async.shared::cta;\nsetp.ne.u32 %q0, %t, 0;\n@%q0 bra READY;\n\
             mbarrier.init.shared::cta.b64 [%s], 1;\nmbarrier.init.shared::cta.b64 [%s+8], {threads};\n\
             fence.mbarrier_init.release.cluster;\nREADY:\nbar.warp.sync -1;\nbar.sync 0;"
        );
        if self.cluster {
            // Barriers and boxes of both CTAs are ready.
            self.put("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;");
        }
    }

    /// Everything a thread holds goes to its part of the output.
    fn epilogue(&mut self) {
        for i in 0..4 {
            let r = 4 * i;
            let _ = writeln!(
                self.text,
                "st.global.v4.b32 [%v0+{}], {{%r{r}, %r{}, %r{}, %r{}}};\nst.global.v2.b64 [%v0+{}], {{%d{}, %d{}}};",
                16 * i,
                r + 1,
                r + 2,
                r + 3,
                64 + 16 * i,
                2 * i,
                2 * i + 1
            );
        }
        for i in 0..8 {
            let _ = writeln!(
                self.text,
                "st.global.b16 [%v0+{}], %h{i};\nselp.u32 %u3, 1, 0, %p{i};\nst.global.b32 [%v0+{}], %u3;",
                128 + 2 * i,
                144 + 4 * i
            );
        }
        for i in 0..4 {
            let _ = writeln!(
                self.text,
                "ld.local.v4.b32 {{%u4, %u5, %u6, %u7}}, [own+{0}];\nld.shared.v4.b32 {{%u8, %u9, %u10, %u11}}, [%u0+{0}];\n\
                 xor.b32 %u4, %u4, %u8;\nst.global.v4.b32 [%v0+{1}], {{%u4, %u5, %u10, %u7}};",
                16 * i,
                176 + 16 * i
            );
        }
        self.put("ret;\n}");
    }

    /// One piece; `depth` counts the loops and branches around it, lanes are together where it is 0.
    fn piece(&mut self, depth: u32) -> Result<()> {
        self.fuel = self.fuel.saturating_sub(1);
        match self.upto(if depth == 0 { 19 } else { 11 })? {
            0..=6 => self.compute(),
            7 | 8 => self.memory(),
            9 => self.branch(depth),
            10 => self.count(depth),
            11 => self.atomic(),
            12 | 13 => self.warp(),
            _ => self.block(),
        }
    }

    /// Lanes go apart by a predicate of their own and meet again.
    fn branch(&mut self, depth: u32) -> Result<()> {
        let (n, p) = (self.label(), self.upto(7)?);
        let not = if self.u.arbitrary()? { "!" } else { "" };
        let _ = writeln!(self.text, "@{not}%p{p} bra B{n};");
        for _ in 0..self.upto(3)? {
            self.inner(depth)?;
        }
        if self.u.arbitrary()? {
            let _ = writeln!(self.text, "bra E{n};\nB{n}:");
            for _ in 0..self.upto(3)? {
                self.inner(depth)?;
            }
            let _ = writeln!(self.text, "E{n}:");
        } else {
            let _ = writeln!(self.text, "B{n}:");
        }
        if depth == 0 {
            self.put("bar.warp.sync -1;");
        }
        Ok(())
    }

    /// A loop whose count differs between lanes.
    fn count(&mut self, depth: u32) -> Result<()> {
        let (n, counter) = (self.label(), 12 + depth.min(3));
        let mask = self.upto(3)?;
        let _ = writeln!(self.text, "and.b32 %u{counter}, %l, {mask};\nC{n}:");
        for _ in 0..=self.upto(2)? {
            self.inner(depth)?;
        }
        let _ = writeln!(
            self.text,
            "setp.eq.u32 %q1, %u{counter}, 0;\n@%q1 bra D{n};\nsub.u32 %u{counter}, %u{counter}, 1;\nbra C{n};\nD{n}:"
        );
        if depth == 0 {
            self.put("bar.warp.sync -1;");
        }
        Ok(())
    }

    fn inner(&mut self, depth: u32) -> Result<()> {
        if depth >= 3 { self.compute() } else { self.piece(depth + 1) }
    }

    /// An instruction on registers, guarded now and then.
    fn compute(&mut self) -> Result<()> {
        let own = if self.blackwell && self.u.ratio(1, 6)? { forms::BLACKWELL } else { forms::COMMON };
        if self.u.ratio(1, 4)? {
            let not = if self.u.arbitrary()? { "!" } else { "" };
            let p = self.upto(7)?;
            let _ = write!(self.text, "@{not}%p{p} ");
        }
        let form = own[self.u.choose_index(own.len())?];
        self.form(form)
    }

    fn warp(&mut self) -> Result<()> {
        let form = forms::WARP[self.u.choose_index(forms::WARP.len())?];
        self.form(form)
    }

    fn form(&mut self, (pattern, shape): Form) -> Result<()> {
        let opcode = self.opcode(pattern)?;
        let mut types = opcode.rsplit('.').map(forms::bytes);
        let (last, before) = (types.next().unwrap_or(4), types.next().unwrap_or(4));
        let mut operands = Vec::new();
        for o in shape.split(' ') {
            let (kind, width) = o.split_at(1);
            let n = match width {
                "t" => last,
                "u" => before,
                "w" => 2 * last,
                n => n.parse().unwrap_or(4),
            };
            operands.push(match kind {
                "d" | "r" => self.register(n)?,
                "s" if self.u.ratio(1, 4)? => {
                    let v = self.immediate(n)?;
                    // Floats have immediates of their own, and only two of the types have any.
                    let float = opcode
                        .split('.')
                        .any(|p| p.contains("f16") || p.contains("f32") || p.contains("f64"));
                    match (n, float || opcode.contains("x2")) {
                        (_, false) => v,
                        (4, _) if opcode.ends_with(".f32") => format!("0f{:0>8}", &v[2..]),
                        (8, _) if opcode.ends_with(".f64") => format!("0d{:0>16}", &v[2..]),
                        _ => self.register(n)?,
                    }
                }
                "s" => self.register(n)?,
                "n" => format!("{}", 1 + self.upto(100)?),
                "P" => format!("%p{}", self.upto(7)?),
                "Q" if self.u.arbitrary()? => {
                    let p = self.upto(7)?;
                    format!("%p{p}|%p{}", (p + 1) % 8)
                }
                "Q" | "p" => format!("%p{}", self.upto(7)?),
                "!" => format!("{}%p{}", if self.u.arbitrary()? { "!" } else { "" }, self.upto(7)?),
                "b" => format!("{}", self.upto(255)?),
                "c" => format!("{:#x}", self.upto(31)? << 8 | self.upto(31)?),
                _ => "0xffffffff".to_string(),
            });
        }
        let _ = writeln!(self.text, "{opcode} {};", operands.join(", "));
        Ok(())
    }

    fn opcode(&mut self, pattern: &str) -> Result<String> {
        let (mut out, mut rest) = (String::new(), pattern);
        while !rest.is_empty() {
            // A part ends at a dot outside braces.
            let mut depth = 0;
            let at = rest.find(|c| {
                depth += i32::from(c == '{') - i32::from(c == '}');
                c == '.' && depth == 0
            });
            let (part, next) = at.map_or((rest, ""), |i| (&rest[..i], &rest[i + 1..]));
            rest = next;
            let (part, keep) = match part.strip_suffix('?') {
                Some(p) => (p, self.u.arbitrary()?),
                None => (part, true),
            };
            if !keep {
                continue;
            }
            let word = match part.strip_prefix('{').and_then(|p| p.strip_suffix('}')) {
                Some(p) => {
                    let all: Vec<&str> = p.split(',').collect();
                    all[self.u.choose_index(all.len())?]
                }
                None => part,
            };
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(word);
        }
        Ok(out)
    }

    fn register(&mut self, bytes: u32) -> Result<String> {
        Ok(match bytes {
            1 | 2 => format!("%h{}", self.upto(7)?),
            8 => format!("%d{}", self.upto(7)?),
            _ => format!("%r{}", self.upto(15)?),
        })
    }

    fn immediate(&mut self, bytes: u32) -> Result<String> {
        let v: u64 = match self.upto(4)? {
            0 => 0,
            1 => 1,
            2 => u64::MAX >> 1,
            3 => 1 << 63,
            _ => self.u.arbitrary()?,
        };
        let bits = 8 * bytes.min(8);
        Ok(format!("{:#x}", v >> (64 - bits)))
    }
}

/// A part of a text, so that small edits meet a small text: whole, or with a run of lines left out.
///
/// # Errors
/// When the data ends.
pub fn cut(u: &mut Unstructured<'_>, text: &str) -> Result<String> {
    let lines: Vec<&str> = text.lines().collect();
    let (from, n) = (u.choose_index(lines.len())?, u.int_in_range(0..=lines.len())?);
    let kept = lines[..from].iter().chain(lines.iter().skip(from.saturating_add(n)));
    Ok(kept.copied().collect::<Vec<_>>().join("\n"))
}

/// A text with lines deleted, doubled and moved, and numbers, registers and modifiers changed.
///
/// # Errors
/// When the data ends.
pub fn damaged(u: &mut Unstructured<'_>, text: &str, edits: u32) -> Result<String> {
    const NUMBERS: &[&str] = &[
        "0",
        "1",
        "2",
        "3",
        "7",
        "16",
        "31",
        "32",
        "33",
        "63",
        "64",
        "127",
        "128",
        "255",
        "256",
        "1023",
        "1024",
        "4096",
        "65535",
        "65536",
        "0x7fffffff",
        "0x80000000",
        "0xffffffff",
        "0x100000000",
        "0x7fffffffffffffff",
        "0xffffffffffffffff",
        "99999999999999999999",
        "0f7fc00000",
        "1.5",
    ];
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    for _ in 0..edits {
        if lines.is_empty() {
            break;
        }
        let i = u.choose_index(lines.len())?;
        match u.int_in_range(0..=7)? {
            0 => drop(lines.remove(i)),
            1 => lines.insert(i, lines[i].clone()),
            2 => {
                let j = u.choose_index(lines.len())?;
                lines.swap(i, j);
            }
            3 | 4 => lines[i] = renumbered(u, &lines[i], |u| Ok(u.choose(NUMBERS)?.to_string()))?,
            5 => lines[i] = renumbered(u, &lines[i], |u| Ok(u.arbitrary::<u32>()?.to_string()))?,
            6 => {
                let parts: Vec<&str> = lines[i].split('.').collect();
                let k = u.choose_index(parts.len())?;
                let kept = parts.iter().enumerate().filter(|x| x.0 != k || k == 0);
                lines[i] = kept.map(|x| *x.1).collect::<Vec<_>>().join(".");
            }
            _ => {
                let chars: Vec<char> = lines[i].chars().collect();
                let at = u.int_in_range(0..=chars.len())?;
                let c =
                    *u.choose(&['{', '}', '[', ']', '(', ',', ';', '%', '@', '-', '"', '/', '_', '\u{e9}'])?;
                lines[i] = chars[..at].iter().chain([&c]).chain(&chars[at..]).collect();
            }
        }
    }
    Ok(lines.join("\n"))
}

/// A line with one run of digits replaced.
fn renumbered(
    u: &mut Unstructured<'_>,
    line: &str,
    new: impl Fn(&mut Unstructured<'_>) -> Result<String>,
) -> Result<String> {
    let digit = |i: usize| line.as_bytes().get(i).is_some_and(u8::is_ascii_digit);
    let starts: Vec<usize> = (0..line.len()).filter(|&i| digit(i) && (i == 0 || !digit(i - 1))).collect();
    if starts.is_empty() {
        return Ok(line.to_string());
    }
    let from = starts[u.choose_index(starts.len())?];
    let to = (from..line.len()).find(|&i| !digit(i)).unwrap_or(line.len());
    Ok(format!("{}{}{}", &line[..from], new(u)?, &line[to..]))
}
