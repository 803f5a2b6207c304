//! Pipelines of a materialised function, as data: what one `async.pipeline.create_pipeline` says.
//!
//! The op and its attributes are the text form; [`PipeDef::of`] and [`PipeDef::put`] are its only reader and writer in the
//! compiler: materialisation puts, the proof behind it and lowering read. Numbers are as they are written, in or out of
//! range; the verifiers refuse what makes no sense. Attributes that are missing read as [`Signal::None`], 0 or nothing.

use super::{AttrData, Function, Op, Scalar, Sym, keys};
use smallvec::SmallVec;

/// How one side of a pipeline is signalled.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Not at all.
    None,
    /// Arrivals, the last of which announces bytes that TMA loads write.
    Tx {
        /// Arrivals of a phase.
        count: i64,
        /// Bytes.
        bytes: i64,
    },
    /// The matrix engine, when what was issued before is complete.
    Commit(i64),
    /// Threads.
    Arrive(i64),
    /// Lanes that have waited for their bulk groups.
    Bulk(i64),
}

impl Signal {
    /// Arrivals of a phase.
    pub fn count(self) -> i64 {
        match self {
            Signal::None => 0,
            Signal::Tx { count, .. } => count,
            Signal::Commit(n) | Signal::Arrive(n) | Signal::Bulk(n) => n,
        }
    }

    /// Transaction bytes.
    pub fn bytes(self) -> i64 {
        if let Signal::Tx { bytes, .. } = self { bytes } else { 0 }
    }

    fn of(func: &Function, op: Op, key: Sym) -> Signal {
        let Some((name, args)) = func.attr_call(op, key) else { return Signal::None };
        let arg = |n: usize| args.get(n).copied();
        let count = arg(0).unwrap_or(1);
        match name {
            "tx" => Signal::Tx { count, bytes: arg(1).unwrap_or(0) },
            "commit" => Signal::Commit(count),
            "arrive" => Signal::Arrive(count),
            "bulk" => Signal::Bulk(count),
            _ => Signal::None,
        }
    }

    fn put(self, func: &mut Function, op: Op, key: Sym) {
        let (name, args): (&str, &[i64]) = match self {
            Signal::None => ("none", &[]),
            Signal::Tx { count, bytes } => ("tx", &[count, bytes]),
            Signal::Commit(n) => ("commit", &[n]),
            Signal::Arrive(n) => ("arrive", &[n]),
            Signal::Bulk(n) => ("bulk", &[n]),
        };
        set_call(func, op, key, name, args);
    }
}

/// Fence that a commit by threads needs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Publish {
    /// None.
    None,
    /// Shared memory written by threads, read by an asynchronous engine.
    Proxy,
    /// Tensor memory written by threads.
    Tmem,
    /// Global memory written by threads or bulk stores, read by an asynchronous engine.
    Global,
}

impl Publish {
    const NAMES: [(Publish, &'static str); 4] = [
        (Publish::None, "none"),
        (Publish::Proxy, "proxy"),
        (Publish::Tmem, "tmem"),
        (Publish::Global, "global"),
    ];
}

/// One pipeline. Its buffers are the op's operands, its ends the op's results.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PipeDef {
    /// Slots.
    pub slots: i64,
    /// Agent that produces.
    pub producer: i64,
    /// Agent that consumes, the first of several.
    pub consumer: i64,
    /// Iterations between the commit of a slot and its use.
    pub distance: i64,
    /// How the full side is signalled.
    pub full: Signal,
    /// How the empty side is.
    pub empty: Signal,
    /// Fence of the commit.
    pub publish: Publish,
    /// A named barrier takes the place of both sides: all of it is one agent's.
    pub named: Option<i64>,
    /// Byte offset of the full barriers in shared memory.
    pub full_at: Option<i64>,
    /// Byte offset of the empty ones.
    pub empty_at: Option<i64>,
    /// Number of the channel it was made for.
    pub channel: Option<i64>,
}

impl PipeDef {
    /// What an op says.
    pub fn of(func: &Function, op: Op) -> PipeDef {
        let int = |key| func.attr_int(op, key);
        let publish = func.attr_name(op, keys::PUBLISH);
        let publish = Publish::NAMES.iter().find(|p| Some(p.1) == publish).map_or(Publish::None, |p| p.0);
        PipeDef {
            slots: int(keys::NUM_STAGES).unwrap_or(0),
            producer: int(keys::PRODUCER_GROUP_ID).unwrap_or(0),
            consumer: int(keys::CONSUMER_GROUP_ID).unwrap_or(0),
            distance: int(keys::DISTANCE).unwrap_or(0),
            full: Signal::of(func, op, keys::FULL),
            empty: Signal::of(func, op, keys::EMPTY),
            publish,
            named: int(keys::NAMED),
            full_at: int(keys::FULL_AT),
            empty_at: int(keys::EMPTY_AT),
            channel: int(keys::CHANNEL),
        }
    }

    /// Makes an op say it.
    pub fn put(&self, func: &mut Function, op: Op) {
        func.set_attr(op, keys::NUM_STAGES, AttrData::Int(self.slots, Some(Scalar::I32)));
        func.set_attr(op, keys::PRODUCER_GROUP_ID, AttrData::Int(self.producer, Some(Scalar::I8)));
        func.set_attr(op, keys::CONSUMER_GROUP_ID, AttrData::Int(self.consumer, Some(Scalar::I8)));
        func.set_int(op, keys::DISTANCE, self.distance);
        self.full.put(func, op, keys::FULL);
        self.empty.put(func, op, keys::EMPTY);
        let publish = Publish::NAMES.iter().find(|p| p.0 == self.publish).map_or("none", |p| p.1);
        set_call(func, op, keys::PUBLISH, publish, &[]);
        let numbers = [
            (keys::NAMED, self.named),
            (keys::FULL_AT, self.full_at),
            (keys::EMPTY_AT, self.empty_at),
            (keys::CHANNEL, self.channel),
        ];
        for (key, n) in numbers {
            if let Some(n) = n {
                func.set_int(op, key, n);
            }
        }
    }
}

/// `name(args)`, or the bare name where there are none.
fn set_call(func: &mut Function, op: Op, key: Sym, name: &str, args: &[i64]) {
    let name = func.intern_symbol(name);
    let data = if args.is_empty() {
        AttrData::Name(name)
    } else {
        let mut list = SmallVec::new();
        for &v in args {
            list.push(func.intern_attr(AttrData::Int(v, None)));
        }
        AttrData::Call(name, list)
    };
    func.set_attr(op, key, data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Opcode, parse_module, print_function};

    #[test]
    fn what_is_put_is_read() {
        let text = "kernel @k() { return }";
        let mut func = parse_module(text).unwrap_or_else(|e| panic!("{e}")).functions.remove(0);
        let signals = [
            Signal::None,
            Signal::Tx { count: 1, bytes: 32768 },
            Signal::Commit(1),
            Signal::Arrive(128),
            Signal::Bulk(2),
        ];
        for (n, full) in signals.into_iter().enumerate() {
            for (publish, _) in Publish::NAMES {
                let op =
                    func.make_op(Opcode::AsyncPipelineCreatePipeline, &[], &[0], &[], Default::default());
                let said = PipeDef {
                    slots: 3,
                    producer: 1,
                    consumer: 2,
                    distance: 1,
                    full,
                    empty: signals[signals.len() - 1 - n],
                    publish,
                    named: (n == 0).then_some(4),
                    full_at: (n > 0).then_some(64),
                    empty_at: (n > 1).then_some(128),
                    channel: Some(7),
                };
                said.put(&mut func, op);
                assert_eq!(PipeDef::of(&func, op), said, "{}", print_function(&func));
            }
        }
    }
}
