//! Numbers of what a problem has, and places in it.

use cranelift_entity::{EntityRef, entity_impl};

/// An op of the loop body. Numbered in program order.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(u32);
entity_impl!(Node, "node");

/// A dependence between two ops.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Edge(u32);
entity_impl!(Edge, "edge");

/// A slot of the machine, by position in the problem; its external number is [`crate::Resource::id`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u32);
entity_impl!(Slot, "slot");

/// A counted pool of the machine, by position in the problem; its external number is [`crate::Resource::id`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pool(u32);
entity_impl!(Pool, "pool");

/// Where in a problem an error is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The problem as a whole.
    Whole,
    /// A byte of the document it is read from.
    Text(usize),
    /// A slot.
    Slot(Slot),
    /// A pool.
    Pool(Pool),
    /// An op.
    Node(Node),
    /// The n-th slot reservation of an op.
    Use(Node, u32),
    /// The n-th pool charge of an op.
    PoolUse(Node, u32),
    /// An edge.
    Edge(Edge),
}

impl Place {
    /// The JSON pointer of this place in a `tileas-schedule/1` document.
    pub fn pointer(self) -> String {
        match self {
            Place::Whole | Place::Text(_) => String::new(),
            Place::Slot(s) => format!("/slots/{}", s.index()),
            Place::Pool(p) => format!("/pools/{}", p.index()),
            Place::Node(n) => format!("/ops/{}", n.index()),
            Place::Use(n, k) => format!("/ops/{}/uses/{k}", n.index()),
            Place::PoolUse(n, k) => format!("/ops/{}/pools/{k}", n.index()),
            Place::Edge(e) => format!("/edges/{}", e.index()),
        }
    }
}
