//! The kernels of clusters in `data`, what they are launched with, and what is right afterwards.
#![allow(dead_code)]

use tileas_emu::{Arg, BufferId, Launch, Memory};

/// The kernels that [`Case`] knows.
pub const NAMES: [&str; 8] = ["ring", "reduce", "send", "copy", "count", "flag", "mail", "commit"];

/// The kernel of a name, as a module.
pub fn entry(name: &str) -> String {
    let file = match name {
        "commit" => include_str!("../data/clusters_sm100a.ptx"),
        _ => include_str!("../data/clusters_sm90a.ptx"),
    };
    let head = &file[file.find(".version").unwrap()..file.find(".address_size").unwrap()];
    let from = file.find(&format!(".visible .entry {name}(")).unwrap_or_else(|| panic!("no kernel {name}"));
    let body = &file[from..];
    format!("{head}.address_size 64\n{}", &body[..body.find("\n}\n").unwrap() + 3])
}

/// A kernel's launch and memory.
pub struct Case {
    pub launch: Launch,
    pub memory: Memory,
    out: BufferId,
    want: Vec<u32>,
}

impl Case {
    pub fn new(name: &str) -> Case {
        let (ctas, want) = plan(name);
        let mut memory = Memory::new();
        let x = memory.alloc((0..256).flat_map(|i| word(i).to_le_bytes()).collect());
        let out = memory.alloc(vec![0xEE; 4 * want.len()]);
        let args = vec![Arg::u64(memory.address(x)), Arg::u64(memory.address(out)), Arg::u32(ROWS as u32)];
        let block = [if name == "ring" { 64 } else { 32 }, 1, 1];
        let launch = Launch { grid: [ctas, 1, 1], block, args, ..Launch::default() };
        Case { launch, memory, out, want }
    }

    /// Compares the result.
    pub fn right(&self, memory: &Memory) -> Result<(), String> {
        let got = words(memory.bytes(self.out));
        if got == self.want { Ok(()) } else { Err(format!("{got:?}")) }
    }
}

pub fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// Grid, words of the result, and what is to be in them, of a kernel on 256 words.
fn plan(name: &str) -> (u32, Vec<u32>) {
    let x = |i: usize| word(i);
    let each = |f: &dyn Fn(usize, usize) -> u32, ctas: usize| {
        (0..ctas * 32).map(|i| f(i / 32, i % 32)).collect::<Vec<u32>>()
    };
    match name {
        "ring" => (4, each(&|_, l| (0..ROWS).fold(0u32, |s, i| s.wrapping_add(x(i * 32 + l))), 4)),
        "reduce" => (8, each(&|c, l| (0..4).fold(0u32, |s, i| s.wrapping_add(x((c * 4 + i) * 32 + l))), 2)),
        "send" => (4, each(&|c, l| x((c ^ 1) * 32 + l) + 2 * l as u32 + 5, 4)),
        "copy" => (4, each(&|c, l| x((c ^ 1) * 32 + l), 4)),
        "count" => (4, (0..2).flat_map(|c| [(0..64).map(|i| x(c * 64 + i)).sum(), 64]).collect()),
        "flag" | "mail" => (4, (0..2).map(x).collect()),
        "commit" => (4, (0..128).collect()),
        _ => panic!("{name}"),
    }
}

const ROWS: usize = 7;

pub fn word(i: usize) -> u32 {
    (i as u32).wrapping_mul(2_654_435_761) >> 12
}
