//! What an op holds of the machine, and for how long.
//!
//! In: an op of placed IR. Out: a [`Footprint`]: slots, pools and latency of its class in the machine tables. Copies
//! take their class from the spaces they move between. An `if` is as one op: inside an arm the ops follow each other
//! as in a serial schedule; of the arms, the slot-wise maximum in each cycle and the larger latency count.
//! In the real-cycle model the slots are the hardware units, held for as long as the work of the tile takes, and one
//! slot per agent that computes in registers: it runs one op after the other.
//! Guarantee: a start that suits the footprint of an `if` suits either arm.

use crate::error::CodegenResult;
use crate::ir::{Block, Function, Op, Opcode, Space};
use crate::isa::{MachineModel, OpClass, PoolId, PoolRole, SlotId};
use crate::plan::{AgentKind, AgentPlan};
use crate::schedule::CycleModel;
use crate::storage::cost;
use cranelift_entity::EntityRef;
use smallvec::SmallVec;

/// A slot held by an op.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SlotUse {
    /// The slot.
    pub slot: SlotId,
    /// Cycles after the op's start.
    pub offset: u32,
    /// Cycles held.
    pub duration: u32,
    /// Units.
    pub occupancy: u32,
}

/// A pool charged by an op, from its start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PoolCharge {
    /// The pool.
    pub pool: PoolId,
    /// Units.
    pub count: u32,
    /// Cycles.
    pub duration: u32,
}

/// Slots, pools and latency of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Slots.
    pub uses: SmallVec<[SlotUse; 4]>,
    /// Pools.
    pub pools: SmallVec<[PoolCharge; 2]>,
    /// Cycles until a reader may start.
    pub latency: u32,
}

/// Slot numbers of agents in the real-cycle model, up to the largest there is; those of units lie below.
const FIRST_AGENT: u8 = 32;
const LAST_SLOT: u8 = 64;

/// The name of a slot of the real-cycle model.
pub fn unit_name(machine: &MachineModel, slot: SlotId) -> String {
    match slot.get().checked_sub(FIRST_AGENT) {
        Some(agent) => format!("agent{agent}"),
        None => {
            let unit = machine.units.get(usize::from(slot.get()).wrapping_sub(1));
            unit.map_or_else(|| "?".to_owned(), |u| u.name.to_owned())
        }
    }
}

impl Footprint {
    /// The footprint of an op that an agent runs, or of an `if` around such ops.
    ///
    /// # Errors
    /// Those of [`cost::class_of`].
    pub fn of(
        func: &Function,
        plan: &AgentPlan,
        machine: &MachineModel,
        model: CycleModel,
        op: Op,
    ) -> CodegenResult<Footprint> {
        if func.regions(op).is_empty() {
            let class = cost::class_of(func, op)?;
            return match model {
                CycleModel::Slot => Footprint::of_class(func, machine, op, class),
                CycleModel::Real => Ok(Footprint::real(func, plan, machine, op, class)),
            };
        }
        let mut whole = Footprint::default();
        for &r in func.regions(op) {
            let arm = Footprint::of_block(func, plan, machine, model, func.region_block(r))?;
            whole.widen(arm);
        }
        Ok(whole)
    }

    fn of_class(func: &Function, machine: &MachineModel, op: Op, class: OpClass) -> CodegenResult<Footprint> {
        let uses = machine.uses(class).iter().map(|u| SlotUse {
            slot: u.slot,
            offset: u.offset.into(),
            duration: u.duration.into(),
            occupancy: u.occupancy.into(),
        });
        // Banks of tensor memory are charged to accumulators that live there.
        let acc = func.named_operand(op, "acc").and_then(|v| func.value_data(v).space());
        let in_tmem = acc.is_none_or(|s| s == Space::Tmem);
        let banks = machine.pool_for(PoolRole::Accumulators).filter(|_| !in_tmem);
        let pools = machine.pool_uses(class).iter().filter(|p| banks.is_none_or(|b| b.id != p.pool));
        let pools =
            pools.map(|p| PoolCharge { pool: p.pool, count: p.count.into(), duration: p.duration.into() });
        Ok(Footprint { uses: uses.collect(), pools: pools.collect(), latency: machine.latency(class) })
    }

    /// Clocks of the units, and of the agent where that is busy itself.
    fn real(func: &Function, plan: &AgentPlan, machine: &MachineModel, op: Op, class: OpClass) -> Footprint {
        let work = cost::work(func, op);
        let held = |slot, duration| SlotUse { slot: SlotId::new(slot), offset: 0, duration, occupancy: 1 };
        let slot = |u: usize| u8::try_from(u + 1).ok().filter(|&s| s < FIRST_AGENT);
        let units = machine.real_uses(class, &work).filter(|u| u.clocks > 0);
        let mut uses: SmallVec<[SlotUse; 4]> =
            units.filter_map(|u| Some(held(slot(u.unit.index())?, u.clocks))).collect();
        let busy = machine.real_occupancy(class, &work);
        let agent = plan.op_agent[op].expand().filter(|&a| plan.agents[a].kind == AgentKind::Simt);
        let number = agent
            .and_then(|a| FIRST_AGENT.checked_add(u8::try_from(a.index()).ok()?))
            .filter(|&slot| slot <= LAST_SLOT);
        uses.extend(number.filter(|_| busy > 0).map(|slot| held(slot, busy)));
        Footprint { uses, pools: SmallVec::new(), latency: machine.real_latency(class, &work) }
    }

    /// One op after the other.
    fn of_block(
        func: &Function,
        plan: &AgentPlan,
        machine: &MachineModel,
        model: CycleModel,
        block: Block,
    ) -> CodegenResult<Footprint> {
        let mut all = Footprint::default();
        for op in func.block_ops(block) {
            let runs = plan.op_agent[op].is_some() || func.opcode(op) == Opcode::If;
            if !runs {
                continue;
            }
            let one = Footprint::of(func, plan, machine, model, op)?;
            let at = all.latency;
            all.uses.extend(one.uses.iter().map(|u| SlotUse { offset: u.offset.saturating_add(at), ..*u }));
            // Pools are charged from the start: up to the end of the last charge.
            for p in &one.pools {
                all.charge(PoolCharge { duration: p.duration.saturating_add(at), ..*p });
            }
            all.latency = at.saturating_add(one.latency.max(one.end()));
        }
        Ok(all)
    }

    fn charge(&mut self, p: PoolCharge) {
        match self.pools.iter_mut().find(|q| q.pool == p.pool) {
            Some(q) => {
                q.count = q.count.max(p.count);
                q.duration = q.duration.max(p.duration);
            }
            None => self.pools.push(p),
        }
    }

    /// Last cycle of any reservation.
    fn end(&self) -> u32 {
        self.pools.iter().map(|p| p.duration).fold(self.hold(), u32::max)
    }

    /// Last cycle of a slot: how long the op holds what it reads.
    pub fn hold(&self) -> u32 {
        self.uses.iter().map(|u| u.offset.saturating_add(u.duration)).max().unwrap_or(0)
    }

    /// Units of a slot held in a cycle.
    fn held(uses: &[SlotUse], cycle: u32) -> u32 {
        let at = |u: &&SlotUse| cycle >= u.offset && cycle - u.offset < u.duration;
        uses.iter().filter(at).map(|u| u.occupancy).fold(0, u32::saturating_add)
    }

    /// The cycle-wise maximum of two footprints.
    fn widen(&mut self, mut other: Footprint) {
        self.latency = self.latency.max(other.latency);
        for p in std::mem::take(&mut other.pools) {
            self.charge(p);
        }
        if self.uses.is_empty() || other.uses.is_empty() {
            self.uses.append(&mut other.uses);
            return;
        }
        let key = |u: &SlotUse| (u.slot.get(), u.offset);
        let (mut a, mut b) = (std::mem::take(&mut self.uses), other.uses);
        a.sort_by_key(key);
        b.sort_by_key(key);
        let mut slots: Vec<SlotId> = a.iter().chain(&b).map(|u| u.slot).collect();
        slots.sort_unstable_by_key(|s| s.get());
        slots.dedup();
        let of_slot = |uses: &[SlotUse], slot: SlotId| {
            let from = uses.partition_point(|u| u.slot.get() < slot.get());
            let to = uses.partition_point(|u| u.slot.get() <= slot.get());
            from..to
        };
        let mut cuts = Vec::new();
        for slot in slots {
            let (x, y) = (&a[of_slot(&a, slot)], &b[of_slot(&b, slot)]);
            cuts.clear();
            cuts.extend(x.iter().chain(y).flat_map(|u| [u.offset, u.offset.saturating_add(u.duration)]));
            cuts.sort_unstable();
            cuts.dedup();
            let first = self.uses.len();
            for span in cuts.windows(2) {
                let occupancy = Footprint::held(x, span[0]).max(Footprint::held(y, span[0]));
                if occupancy == 0 {
                    continue;
                }
                match self.uses[first..].last_mut() {
                    Some(u) if u.occupancy == occupancy && u.offset + u.duration == span[0] => {
                        u.duration = span[1] - u.offset;
                    }
                    _ => self.uses.push(SlotUse {
                        slot,
                        offset: span[0],
                        duration: span[1] - span[0],
                        occupancy,
                    }),
                }
            }
        }
    }
}
