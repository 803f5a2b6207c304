//! Order (R1): each agent emits the ops of a region by increasing (start + II · i, program order).
//!
//! What the function tells: `origin` is an op's number in the program order of the placed function; a scheduled loop
//! notes its `ii`, and each of its ops its `start`. In such a loop, with r the agent's least start, the local stage of
//! an op is (start - r) div II and the loop must show its ops by ((start - r) mod II, origin); prologue and epilogue
//! repeat that order. Every other region shows its ops by origin. Uniform ops belong to no agent, have no origin and
//! no place. That loops of one origin agree about `ii` is checked too. Errors: E0709. Cost: linear in the ops.

use super::linear::note;
use super::model::Model;
use crate::error::Code;
use crate::ir::{Block, Function, Op, Opcode, keys};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// An op of the agent, by what the schedule says of it.
struct Item {
    op: Op,
    origin: i64,
    start: Option<i64>,
    local: i64,
}

type Items = SmallVec<[Item; 16]>;

/// Items of one group of a prologue or epilogue.
struct Copy {
    of: i64,
    /// Step, counted on through the epilogue; with the skew of the loop added there.
    epilogue: bool,
    step: i64,
    items: Items,
}

struct Check<'a> {
    func: &'a Function,
    iis: FxHashMap<i64, i64>,
    /// Reads of scalar channels.
    received: &'a [Op],
    found: Vec<(Op, String)>,
}

/// Checks every region of every agent.
pub fn check(m: &mut Model<'_>) {
    let func = m.func;
    let received: SmallVec<[Op; 8]> =
        m.receives.iter().map(|r| r.2).filter(|&op| m.is_received(op)).collect();
    let mut c = Check { func, iis: FxHashMap::default(), received: &received, found: Vec::new() };
    for op in func.block_ops(func.entry()) {
        if func.opcode(op) == Opcode::AsyncPipelineAgentSwitch {
            for n in 0..func.regions(op).len() {
                if let Some(b) = func.op_block_at(op, n) {
                    c.block(b);
                }
            }
        }
    }
    for (op, text) in c.found {
        m.error(Code::E0709, op, text);
    }
}

/// Whether an agent does something of its own in it: uniform branches are cloned wherever they are needed.
pub(super) fn has_work(func: &Function, op: Op) -> bool {
    let mut found = false;
    for &r in func.regions(op) {
        func.walk(func.region_block(r), &mut |o| {
            found |= func.regions(o).is_empty() && note(func, o, keys::ORIGIN).is_some();
            found |= matches!(
                func.opcode(o),
                Opcode::AsyncPipelineProducerAcquire | Opcode::AsyncPipelineConsumerWait
            );
        });
    }
    found
}

impl Check<'_> {
    /// The items of a block through guards, and the copies in it.
    fn items(&self, b: Block, items: &mut Items, copies: &mut Vec<Copy>) {
        let func = self.func;
        for op in func.block_ops(b) {
            let get = |key| note(func, op, key);
            let Some(origin) = get(keys::ORIGIN) else {
                let Some(inner) = func.op_block_at(op, 0).filter(|_| func.opcode(op) == Opcode::If) else {
                    continue;
                };
                match get(keys::OF) {
                    None => self.items(inner, items, copies),
                    Some(of) => {
                        let mut list = Items::new();
                        self.items(inner, &mut list, &mut Vec::new());
                        let epilogue = get(keys::EPILOGUE);
                        let step = epilogue.or(get(keys::PROLOGUE)).unwrap_or(-1);
                        copies.push(Copy { of, epilogue: epilogue.is_some(), step, items: list });
                    }
                }
                continue;
            };
            // A scalar of another agent is received where it is first needed, with its wait.
            let received = self.received.contains(&op);
            if !received && (func.regions(op).is_empty() || has_work(func, op)) {
                let local = get(keys::LOCAL).unwrap_or(0);
                items.push(Item { op, origin, start: get(keys::START), local });
            }
        }
    }

    fn block(&mut self, b: Block) {
        let func = self.func;
        let (mut items, mut copies) = (Items::new(), Vec::new());
        self.items(b, &mut items, &mut copies);
        let parent = func.block_parent(b).filter(|&l| func.opcode(l) == Opcode::For);
        match parent.and_then(|l| note(func, l, keys::II)) {
            Some(ii) => self.scheduled(&items, ii.max(1)),
            None => self.sequence(&items),
        }
        for item in &items {
            for n in 0..func.regions(item.op).len() {
                if let Some(inner) = func.op_block_at(item.op, n) {
                    self.block(inner);
                }
            }
            if func.opcode(item.op) == Opcode::For {
                self.loops(item, &copies);
            }
        }
        // Regions in copies: by program order, as in the loop.
        for item in copies.iter().flat_map(|c| &c.items) {
            for n in 0..func.regions(item.op).len() {
                if let Some(inner) = func.op_block_at(item.op, n) {
                    self.block(inner);
                }
            }
        }
    }

    /// Program order.
    fn sequence(&mut self, items: &[Item]) {
        if let Some(x) = items.iter().find(|x| x.start.is_some() || x.local > 0) {
            self.found.push((x.op, format!("op{} has a start in a region without a schedule", x.origin)));
        }
        if let Some(w) = items.windows(2).find(|w| w[0].origin > w[1].origin) {
            let text = format!(
                "op{} is emitted before op{}, program order is the reverse",
                w[0].origin, w[1].origin
            );
            self.found.push((w[1].op, text));
        }
    }

    /// The order of one iteration of a scheduled loop.
    fn scheduled(&mut self, items: &[Item], ii: i64) {
        let Some(r) = items.iter().filter_map(|x| x.start).min() else { return };
        let mut last: Option<(i64, &Item)> = None;
        for x in items {
            let Some(start) = x.start else {
                self.found.push((x.op, format!("op{} has no start in a scheduled loop", x.origin)));
                continue;
            };
            let (at, stage) = ((start - r) % ii, (start - r) / ii);
            if x.local != stage {
                let text = format!(
                    "op{} is emitted in local stage {}, its start {start} after {r} at II {ii} is in {stage}",
                    x.origin, x.local
                );
                self.found.push((x.op, text));
            }
            if let Some((before, y)) = last
                && (before, y.origin) > (at, x.origin)
            {
                let text = format!(
                    "op{} (start {}) is emitted before op{} (start {start}): at II {ii} the order is the reverse",
                    y.origin,
                    y.start.unwrap_or(0),
                    x.origin
                );
                self.found.push((x.op, text));
            }
            last = Some((at, x));
        }
    }

    /// The loop agrees with the other agents about its II, and its copies repeat its order.
    fn loops(&mut self, l: &Item, copies: &[Copy]) {
        let func = self.func;
        let ii = note(func, l.op, keys::II).unwrap_or(0);
        let known = *self.iis.entry(l.origin).or_insert(ii);
        if known != ii {
            self.found.push((l.op, format!("op{} has II {ii} here and {known} in another agent", l.origin)));
        }
        if func.inherent(l.op).get(keys::STEADY).is_none() {
            return;
        }
        let mut body = Items::new();
        if let Some(b) = func.op_block_at(l.op, 0) {
            self.items(b, &mut body, &mut Vec::new());
        }
        let skew = note(func, l.op, keys::SKEW).unwrap_or(0);
        for epilogue in [false, true] {
            for step in 0..skew {
                let here = |c: &&Copy| (c.of, c.epilogue, c.step) == (l.origin, epilogue, step);
                let have =
                    copies.iter().filter(here).flat_map(|c| &c.items).map(|x| (x.origin, x.local, x.start));
                let want = body
                    .iter()
                    .filter(|x| (x.local > step) == epilogue)
                    .map(|x| (x.origin, x.local, x.start));
                if !have.eq(want) {
                    let part = if epilogue { "epilogue" } else { "prologue" };
                    let text = format!("step {step} of the {part} of op{} differs from the loop", l.origin);
                    self.found.push((l.op, text));
                }
            }
        }
    }
}
