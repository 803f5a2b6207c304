//! Synthetic loops, shared by tests and benchmarks.

use tileas_schedule::{Node, NodeDef, Problem, Slot, Use};

/// Name, latency, (slot, duration).
type Kind = (&'static str, u32, &'static [(usize, u32)]);

/// A loop of `ops` ops: blocks of twelve (two loads, an MMA into a carried accumulator, a tensor-memory read, register
/// math on several units with a carried reduction, a shared-memory write and a store), every block on its own data.
pub fn synthetic(ops: usize) -> Problem {
    let mut p = Problem::new("synthetic");
    let names = ["xu", "fp32x2", "alu", "dual_alu", "mma", "tma", "smem_rd", "smem_wr", "tmem_rd", "tp_mma"];
    let slots: Vec<Slot> = (1..).zip(names).map(|(id, name)| p.add_slot(id, name, 1)).collect();
    let kinds: [Kind; 12] = [
        ("load", 8, &[(5, 8), (7, 8)]),
        ("load", 8, &[(5, 8), (7, 8)]),
        ("dot", 16, &[(4, 8), (9, 8)]),
        ("t2r", 7, &[(8, 7)]),
        ("max", 4, &[(2, 4)]),
        ("scale", 4, &[(1, 4)]),
        ("exp", 4, &[(0, 4)]),
        ("sum", 2, &[(3, 2)]),
        ("fma", 4, &[(1, 4)]),
        ("cvt", 4, &[(2, 4)]),
        ("r2s", 7, &[(7, 7)]),
        ("store", 8, &[(5, 8), (6, 7)]),
    ];
    let mut block: Vec<Node> = Vec::new();
    for i in 0..ops {
        let (name, latency, uses) = kinds[i % 12];
        let uses: Vec<Use> = uses
            .iter()
            .map(|&(s, duration)| Use { slot: slots[s], offset: 0, duration, occupancy: 1 })
            .collect();
        let id = format!("{name}{i}");
        let node = p.add_node(&NodeDef { id: &id, name, latency, uses: &uses, ..NodeDef::default() });
        if i % 12 == 0 {
            block.clear();
        }
        block.push(node);
        let from: &[usize] = match i % 12 {
            0 | 1 => &[],
            2 => &[0, 1],
            6 => &[5, 4],
            8 => &[6, 5],
            9 => &[8],
            k => &[[0, 0, 0, 2, 3, 3, 0, 6, 0, 0, 9, 10][k]],
        };
        for &f in from {
            p.add_edge(block[f], node, kinds[f].1 as i32, 0);
        }
        match i % 12 {
            2 => _ = p.add_edge(node, node, 8, 1),
            4 => _ = p.add_edge(node, node, 4, 1),
            7 => _ = p.add_edge(node, block[6], 2, 2),
            _ => {}
        }
    }
    p
}
