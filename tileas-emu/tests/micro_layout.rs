//! The layouts of the crate against the expected bytes of the micro-kernels, which were made by
//! reshaping arrays: every matrix, copy and tensor-memory case is computed without the interpreter.

use crate::support;

use support::{Case, cases, words};
use tileas_emu::layout::Swizzle;
use tileas_emu::layout::frag::{self, MatrixForm};
use tileas_emu::layout::idesc::{Elem, Idesc, Kind};
use tileas_emu::layout::operand::{Family, Major, Operand, SmemDesc};
use tileas_emu::layout::tma::RedOp;
use tileas_emu::layout::tma_map::{MapDesc, OobFill, TensorMap, TmaType};
use tileas_emu::layout::tmem::{self, DataPath, Shape};
use tileas_emu::layout::tmem_cp::CpShape;
use tileas_emu::num::format::{BF16, E4M3, E5M2, F16, TF32};
use tileas_emu::num::{Format, convert, mma};

/// Where the kernels' shared memory starts; any multiple of 1024 will do.
const BASE: u32 = 1024;

/// Element at byte `at` as a number.
fn element(bytes: &[u8], at: usize, elem: Elem) -> f32 {
    let raw = |n: usize| (0..n).fold(0u64, |x, i| x | u64::from(bytes[at + i]) << (8 * i));
    match elem {
        Elem::Float(f) => convert::f32_from(f, raw(f.bits as usize / 8)),
        Elem::U8 => raw(1) as f32,
        Elem::S8 => raw(1) as u8 as i8 as f32,
        Elem::S32 => raw(4) as u32 as i32 as f32,
    }
}

fn elem(name: &str) -> Elem {
    match name {
        "u8" => Elem::U8,
        "s8" => Elem::S8,
        "s32" => Elem::S32,
        name => Elem::Float(Format::by_name(name).unwrap()),
    }
}

fn size(e: Elem) -> u32 {
    match e {
        Elem::Float(f) => f.bits / 8,
        Elem::U8 | Elem::S8 => 1,
        Elem::S32 => 4,
    }
}

/// Rows `[mn][k]` of an operand over all K steps; the descriptor (bits, step, steps) advances as the
/// kernel adds.
fn fetch(image: &[u8], along: [u64; 3], family: Family, major: Major, e: Elem, mn: u32) -> Vec<Vec<f32>> {
    let [desc, step, steps] = along;
    let mut rows = vec![vec![]; mn as usize];
    for s in 0..steps {
        let bits = desc + (u64::from(BASE) >> 4) + s * step;
        let op = Operand::new(SmemDesc::decode(bits, family).unwrap(), major, size(e), mn);
        op.check().unwrap();
        for (row, out) in (0..).zip(&mut rows) {
            out.extend((0..op.k).map(|k| element(image, (op.address(row, k) - BASE) as usize, e)));
        }
    }
    rows
}

fn product(a: &[Vec<f32>], b: &[Vec<f32>], sign: f64) -> Vec<Vec<f64>> {
    a.iter().map(|x| b.iter().map(|y| sign * mma::dot(x, y, 0.0)).collect()).collect()
}

#[test]
fn wgmma_cases() {
    let mut count = 0;
    // Questions to the hardware have rounding in their results; the interpreter's test covers them.
    for case in cases("wgmma_").into_iter().filter(|c| !c.name().contains(".q_")) {
        let text = case.kernel();
        let at = text.find("mma_async.sync.aligned.m64n").unwrap() + "mma_async.sync.aligned.m64n".len();
        let shape = text[at..].split_whitespace().next().unwrap();
        let mut parts = shape.split('.');
        let n: u32 = parts.next().unwrap().split('k').next().unwrap().parse().unwrap();
        let types: Vec<Elem> = parts.map(elem).collect();
        let [d, a, b] = types[..] else { panic!("{shape}") };
        let kernel = case.json["kernel"].as_str().unwrap().trim_end_matches(".ptx");
        let has = |suffix: &str| kernel.contains(suffix);
        let [_, da, db, sa, sb, steps] = case.scalars()[..] else { panic!("{}", case.name()) };
        let image = case.input("image");
        let major = |t: bool| if t { Major::Mn } else { Major::K };
        let rows = if has("_rs") {
            let regs = case.input("areg");
            let e = size(a);
            let mut rows = vec![vec![0.0; (steps * 32) as usize / e as usize]; 64];
            for (step, t, r) in
                (0..steps as u32).flat_map(|s| (0..128).flat_map(move |t| (0..4).map(move |r| (s, t, r))))
            {
                for part in 0..4 / e {
                    let (row, k) = frag::wgmma_a(t, r, part, e);
                    let at = step * 2048 + t * 16 + r * 4 + part * e;
                    rows[row as usize][(step * 32 / e + k) as usize] = element(&regs, at as usize, a);
                }
            }
            rows
        } else {
            fetch(&image, [da, sa, steps], Family::Wgmma, major(has("_ta")), a, 64)
        };
        let cols = fetch(&image, [db, sb, steps], Family::Wgmma, major(has("_tb")), b, n);
        let want = case.expect("out");
        let result = product(&rows, &cols, if has("_neg") { -1.0 } else { 1.0 });
        let regs = n / if size(d) == 2 { 4 } else { 2 };
        for t in 0..128 {
            for r in 0..regs {
                for part in 0..4 / size(d) {
                    let (row, col) =
                        if size(d) == 2 { frag::wgmma_d16(t, r, part) } else { frag::wgmma_d32(t, r) };
                    let at = (t * regs + r) * 4 + part * size(d);
                    let got = result[row as usize][col as usize] as f32;
                    assert_eq!(
                        got,
                        element(&want, at as usize, d),
                        "{} thread {t} register {r}",
                        case.name()
                    );
                }
            }
        }
        count += 1;
    }
    assert!(count >= 25, "{count}");
}

#[test]
fn mma_sync_cases() {
    for (name, a, b, d, k) in [
        ("bf16", Elem::Float(&BF16), Elem::Float(&BF16), "f32", 16),
        ("f16", Elem::Float(&F16), Elem::Float(&F16), "f16", 16),
        ("tf32", Elem::Float(&TF32), Elem::Float(&TF32), "f32", 8),
        ("e4m3", Elem::Float(&E4M3), Elem::Float(&E5M2), "f32", 32),
        ("s8", Elem::S8, Elem::U8, "s32", 32),
    ] {
        let (case, d) = (&cases(&format!("mma_{name}"))[0], elem(d));
        let e = size(a);
        let (fa, fb, fc, want) = (case.input("a"), case.input("b"), case.input("c"), case.expect("out"));
        let (mut ra, mut rb) = (vec![vec![0.0; k]; 16], vec![vec![0.0; k]; 8]);
        for (lane, reg, part) in
            (0..32).flat_map(|l| (0..4).flat_map(move |r| (0..4 / e).map(move |p| (l, r, p))))
        {
            let (row, kk) = frag::mma_a(lane, reg, part, e);
            ra[row as usize][kk as usize] = element(&fa, (lane * 16 + reg * 4 + part * e) as usize, a);
            if reg < 2 {
                let (kk, col) = frag::mma_b(lane, reg, part, e);
                rb[col as usize][kk as usize] = element(&fb, (lane * 8 + reg * 4 + part * e) as usize, b);
            }
        }
        let result = product(&ra, &rb, 1.0);
        let regs = if size(d) == 2 { 2 } else { 4 };
        for (lane, reg, part) in
            (0..32).flat_map(|l| (0..regs).flat_map(move |r| (0..4 / size(d)).map(move |p| (l, r, p))))
        {
            let (row, col) =
                if size(d) == 2 { frag::mma_d16(lane, reg, part) } else { frag::mma_d32(lane, reg) };
            let at = (lane * regs * 4 + reg * 4 + part * size(d)) as usize;
            let got = result[row as usize][col as usize] as f32 + element(&fc, at, d);
            assert_eq!(got, element(&want, at, d), "{name} lane {lane} register {reg}");
        }
    }
}

/// Form, matrices and transposition of the ldmatrix or stmatrix lines of a kernel.
fn forms(text: &str) -> Vec<(MatrixForm, u32, bool, String)> {
    let lines = text
        .lines()
        .filter_map(|l| l.trim().split_once("matrix.sync.aligned."))
        .map(|(_, l)| l.split_whitespace().next().unwrap());
    lines
        .map(|l| {
            let form = if l.starts_with("m8n8") {
                MatrixForm::M8N8B16
            } else if l.starts_with("m16n16") {
                MatrixForm::M16N16B8
            } else if l.starts_with("m16n8") {
                MatrixForm::M16N8B8
            } else {
                MatrixForm::M8N16B8
            };
            let count = l.split(".x").nth(1).unwrap().chars().next().unwrap().to_digit(10).unwrap();
            assert!(form.count_ok(count));
            (form, count, l.contains("trans"), l.to_string())
        })
        .collect()
}

#[test]
fn matrix_move_cases() {
    for name in ["ldmatrix", "ldmatrix_b8"] {
        let all = cases(name);
        let case = all.iter().find(|c| c.name() == name).unwrap();
        let (image, offs, want) = (case.input("image"), words(&case.input("offs")), case.expect("out"));
        let forms = forms(&case.kernel());
        let total: u32 = forms.iter().map(|(f, n, ..)| f.regs() * n).sum();
        let mut first = 0;
        for (form, count, trans, text) in forms {
            for (lane, matrix, reg) in
                (0..32).flat_map(|l| (0..count).flat_map(move |m| (0..form.regs()).map(move |r| (l, m, r))))
            {
                for part in 0..4 / form.elem() {
                    let (row, col) = form.element(trans, lane, reg, part);
                    let start = offs[form.address_lane(matrix, row) as usize] as usize;
                    let at = ((lane * total + first + matrix * form.regs() + reg) * 4 + part * form.elem())
                        as usize;
                    let bits = if text.contains("b4x16") {
                        4
                    } else if text.contains("b6x16") {
                        6
                    } else {
                        8 * form.elem()
                    };
                    let window = (0..3).fold(0u32, |w, i| {
                        w | u32::from(image[start + (col * bits / 8) as usize + i]) << (8 * i)
                    });
                    let got = window >> (col * bits % 8) & ((1 << bits) - 1);
                    let found =
                        (0..form.elem()).fold(0u32, |w, i| w | u32::from(want[at + i as usize]) << (8 * i));
                    assert_eq!(got, found, "{text} lane {lane} matrix {matrix} register {reg} part {part}");
                }
            }
            first += count * form.regs();
        }
    }
    for name in ["stmatrix", "stmatrix_b8"] {
        let all = cases(name);
        let case = all.iter().find(|c| c.name() == name).unwrap();
        let (regs, offs, want) = (case.input("regs"), words(&case.input("offs")), case.expect("out"));
        for (i, (form, count, trans, text)) in forms(&case.kernel()).into_iter().enumerate() {
            let mut smem = vec![0xA5u8; 1024];
            for (lane, matrix) in (0..32).flat_map(|l| (0..count).map(move |m| (l, m))) {
                for byte in 0..4 {
                    let (row, col) = form.element(trans, lane, 0, byte / form.elem());
                    let at = offs[form.address_lane(matrix, row) as usize]
                        + col * form.elem()
                        + byte % form.elem();
                    smem[at as usize] = regs[(lane * 16 + matrix * 4 + byte) as usize];
                }
            }
            assert_eq!(smem, want[1024 * i..1024 * (i + 1)], "{text}");
        }
    }
}

fn tensor_map(case: &Case) -> TensorMap {
    let m = case.map();
    let numbers =
        |key: &str| m[key].as_array().unwrap().iter().map(|v| v.as_u64().unwrap()).collect::<Vec<_>>();
    let small = |key: &str| numbers(key).into_iter().map(|v| v as u32).collect::<Vec<_>>();
    let map = TensorMap::new(&MapDesc {
        elem: TmaType::by_name(m["type"].as_str().unwrap()).unwrap(),
        address: 0x1_0000,
        dims: numbers("dims"),
        strides: numbers("strides"),
        box_dims: small("box"),
        element_strides: small("element_strides"),
        swizzle: Swizzle::by_name(m["swizzle"].as_str().unwrap()).unwrap(),
        oob: OobFill::Zero,
    });
    map.unwrap()
}

#[test]
fn bulk_copy_cases() {
    let mut count = 0;
    for case in cases("tma_").into_iter().filter(|c| !c.name().contains(".q_")) {
        let map = tensor_map(&case);
        let scalars = case.scalars();
        let load = case.name().starts_with("tma_load") || case.name().starts_with("tma_gather");
        let gather = case.name().starts_with("tma_gather");
        // Loads: bytes, transaction bytes, offset of the box (not for gathers), coordinates.
        let at = if load && !gather { scalars[2] as u32 } else { 0 };
        let first = if gather {
            2
        } else if load {
            3
        } else {
            1
        };
        let coords: Vec<i32> = scalars[first..].iter().map(|&v| v as u32 as i32).collect();
        let mut pieces = vec![];
        if gather {
            map.row_gather(coords[..].try_into().unwrap(), BASE, &mut pieces).unwrap();
        } else {
            map.check_box(&coords, BASE + at, !load).unwrap();
            map.pieces(&coords, BASE + at, !load, &mut pieces).unwrap();
        }
        if load {
            let mut smem = vec![0xA5u8; scalars[0] as usize];
            let global = case.input("src");
            let rows = if gather { 4 } else { 1 };
            assert_eq!(u64::from(map.tx_bytes() * rows), scalars[1], "{}", case.name());
            for p in &pieces {
                for i in 0..p.bytes {
                    smem[(p.smem - BASE + i) as usize] =
                        p.global.map_or(0, |g| global[(g - map.address) as usize + i as usize]);
                }
            }
            assert!(smem == case.expect("out"), "{}", case.name());
        } else {
            let (image, mut global) = (case.input("image"), case.input("dst"));
            let kernel = case.json["kernel"].as_str().unwrap();
            let op = kernel
                .strip_prefix("tma_red_")
                .map(|k| RedOp::by_name(k.split('_').next().unwrap()).unwrap());
            assert!(op.is_none_or(|op| op.allowed(map.elem)));
            let bytes = map.elem.bits() as usize / 8;
            for p in &pieces {
                let Some(g) = p.global else { continue };
                for i in (0..p.bytes as usize).step_by(bytes) {
                    let (to, from) = ((g - map.address) as usize + i, (p.smem - BASE) as usize + i);
                    let value = |b: &[u8]| (0..bytes).fold(0u64, |x, j| x | u64::from(b[j]) << (8 * j));
                    let new = value(&image[from..]);
                    let stored = op.map_or(new, |op| op.apply(map.elem, value(&global[to..]), new));
                    global[to..to + bytes].copy_from_slice(&stored.to_le_bytes()[..bytes]);
                }
            }
            assert!(global == case.expect("dst"), "{}", case.name());
        }
        count += 1;
    }
    assert!(count >= 40, "{count}");
}

#[test]
fn tensor_memory_move_cases() {
    for (prefix, load) in [("tmem_ld_", true), ("tmem_st_", false)] {
        for case in cases(prefix) {
            let text = case.kernel();
            let verb = if load { "tcgen05.ld.sync.aligned." } else { "tcgen05.st.sync.aligned." };
            // The kernel also fills or dumps with 32x32b.x32; the move is the other one.
            let lines: Vec<&str> = text.lines().filter_map(|l| l.trim().strip_prefix(verb)).collect();
            let line = if load { lines[0] } else { lines[1] };
            let mut parts = line.split_whitespace().next().unwrap().split('.');
            let shape = Shape::by_name(parts.next().unwrap()).unwrap();
            let repeat: u32 = parts.next().unwrap()[1..].parse().unwrap();
            let packed = line.contains("pack::16b");
            let imm = if shape == Shape::L16x32bx2 { 24 } else { 0 };
            let regs = shape.regs(repeat);
            let fill = words(&case.input("fill"));
            let columns = fill.len() / 128;
            let given = words(&case.input("regs"));
            let (mut out, mut cells) = (vec![], fill.clone());
            for t in 0..128u32 {
                let at = case.scalars()[1] as u32 + ((t / 32 * 32) << 16);
                let (lane, column) = shape.base(at, t / 32).unwrap();
                for r in 0..regs {
                    let place = |(l, c): (u32, u32)| ((lane + l) as usize * columns) + (column + c) as usize;
                    let list = if packed {
                        shape.packed(t % 32, r, imm).to_vec()
                    } else {
                        vec![shape.at(t % 32, r, imm)]
                    };
                    if load {
                        let v: Vec<u32> = list.iter().map(|&p| fill[place(p)]).collect();
                        out.push(if packed { v[0] & 0xFFFF | v[1] << 16 } else { v[0] });
                    } else {
                        let w = given[(t * regs + r) as usize];
                        let v = if packed { vec![w & 0xFFFF, w >> 16] } else { vec![w] };
                        list.iter().zip(v).for_each(|(&p, v)| cells[place(p)] = v);
                    }
                }
            }
            assert!(shape.repeat_ok(repeat) && shape.width(repeat, imm, packed) <= columns as u32);
            assert_eq!(if load { out } else { cells }, words(&case.expect("out")), "{}", case.name());
        }
    }
}

#[test]
fn tensor_core_cases() {
    let mut count = 0;
    for case in cases("umma_") {
        let kernel = case.json["kernel"]
            .as_str()
            .unwrap()
            .trim_end_matches(".ptx")
            .trim_start_matches("umma_")
            .to_string();
        let kind = Kind::by_name(kernel.trim_end_matches("_ts")).unwrap();
        let [_, da, db, sa, sb, steps, idesc, d_at] = case.scalars()[..] else { panic!() };
        let i = Idesc::decode(idesc as u32, kind, 1).unwrap();
        let (image, fill) = (case.input("image"), case.input("fill"));
        let columns = fill.len() / 512;
        let path = DataPath::of(i.m, 1).unwrap();
        let (lane0, col0) = tmem::split_address(d_at as u32);
        path.check_lane(lane0).unwrap();
        let e = kind.elem();
        let a = if kernel.ends_with("_ts") {
            let (a_lane, a_col) = tmem::split_address(da as u32);
            assert_eq!(a_lane, lane0);
            (0..i.m)
                .map(|row| {
                    let lane = path.at(row, 0, i.n).1 + a_lane;
                    let all = (0..steps as u32).flat_map(|s| (0..kind.k()).map(move |k| (s, k)));
                    all.map(|(s, k)| {
                        let (c, shift) = tmem::a_column(k, e);
                        let cell = lane as usize * columns + (a_col + s * sa as u32 + c) as usize;
                        element(&fill, cell * 4 + shift as usize / 8, i.a)
                    })
                    .collect()
                })
                .collect()
        } else {
            fetch(&image, [da, sa, steps], Family::Tcgen05, i.a_major, i.a, i.m)
        };
        let b = fetch(&image, [db, sb, steps], Family::Tcgen05, i.b_major, i.b, i.n);
        let d = product(&a, &b, if i.negate_a != i.negate_b { -1.0 } else { 1.0 });
        let mut cells = words(&fill);
        for row in 0..i.m {
            for col in 0..i.n {
                let (_, lane, c) = path.at(row, col, i.n);
                let v = d[row as usize][col as usize];
                let bits = if i.d == Elem::S32 { v as i32 as u32 } else { (v as f32).to_bits() };
                cells[(lane0 + lane) as usize * columns + (col0 + c) as usize] = bits;
            }
        }
        // Zero products may carry either sign in the formula.
        for (at, (got, want)) in cells.into_iter().zip(words(&case.expect("out"))).enumerate() {
            assert!(
                got == want || (got | want) == 0x8000_0000,
                "{} cell {at}: {got:#x}, want {want:#x}",
                case.name()
            );
        }
        count += 1;
    }
    assert!(count >= 18, "{count}");
}

#[test]
fn tensor_memory_copy_cases() {
    for case in cases("tmem_cp_") {
        let text = case.kernel();
        let (_, rest) = text.split_once("tcgen05.cp.cta_group::1.").unwrap();
        let (shape, multicast) =
            rest.split_whitespace().next().map(|s| s.split_once('.').unwrap_or((s, ""))).unwrap();
        let cp = CpShape::by_name(shape, multicast).unwrap();
        let image = case.input("image");
        let desc = SmemDesc::decode(case.scalars()[1] + (u64::from(BASE) >> 4), Family::Tcgen05).unwrap();
        let want = words(&case.expect("out"));
        let columns = want.len() / 128;
        let mut cells = vec![0x5555_5555u32; want.len()];
        for row in 0..cp.rows() {
            let (lanes, n) = cp.lanes(row);
            for c in 0..cp.columns() {
                let at = (cp.source(desc, row, c) - BASE) as usize;
                for lane in &lanes[..n] {
                    cells[*lane as usize * columns + 4 + c as usize] =
                        u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
                }
            }
        }
        assert_eq!(cells, want, "{}", case.name());
    }
}
