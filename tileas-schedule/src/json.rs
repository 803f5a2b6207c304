//! `tileas-schedule/1` documents: read a bare dependence graph, write it back with its schedule.
//!
//! In: text. Out: [`Document`]s, each a [`Problem`] plus the JSON it came from, so that `slots`, `pools`, `ops` and
//! `edges` are echoed unchanged and in their order; only the results are added. A problem built by calls is turned into
//! a document by [`Document::of`]. Any slot ids, capacities, pools and offsets are accepted: the document is the machine.
//!
//! Errors carry a JSON pointer and a stable code; all of a document's are collected (at most [`MAX_ERRORS`]).
//!
//! Optional on input: `name`, `pools`, `uses`, `group`, `max_depth` and `force_serial` (a boolean, ours: written only
//! where true; a reader that does not know it sees a schedule that is legal without it). `rounds` and `status.truncated`
//! are ours too, and written only where a loop was refined. Cost: O(text).
//! Source: `tileas-schedule/1`.

use crate::entities::{Node, Place, Pool, Slot};
use crate::error::{Code, Diagnostic};
use crate::options::Limits;
use crate::problem::{MAX_QUANTITY, NodeDef, PoolUse, Problem, Use};
use crate::rounds::Round;
use crate::schedule::{Generator, RegionSchedule, Status};
use cranelift_entity::EntityRef;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

/// The schema name.
pub const SCHEMA: &str = "tileas-schedule/1";

/// Errors reported per text before reading stops.
pub const MAX_ERRORS: usize = 100;

/// One region: the problem and the JSON it came from.
#[derive(Clone, Debug)]
pub struct Document {
    /// The problem.
    pub problem: Problem,
    input: Map<String, Value>,
}

/// The regions of one text.
#[derive(Clone, Debug)]
pub struct Documents {
    /// One per region.
    pub regions: Vec<Document>,
    /// Whether the text was an array; the answer then is one too.
    pub is_array: bool,
}

impl Documents {
    /// Reads a document or an array of documents, and checks every problem.
    ///
    /// # Errors
    /// Everything found, each message beginning with the JSON pointer of its place.
    pub fn read(text: &str, limits: &Limits) -> Result<Documents, Vec<Diagnostic>> {
        let value: Value = match serde_json::from_str(text) {
            Ok(value) => value,
            Err(e) => {
                let at = byte_offset(text, e.line(), e.column());
                return Err(vec![Diagnostic::new(Code::E0301, Place::Text(at), format!("at ``: {e}"))]);
            }
        };
        let mut errors = Vec::new();
        let mut regions = Vec::new();
        let is_array = value.is_array();
        match value {
            Value::Array(items) => {
                for (i, item) in items.into_iter().enumerate() {
                    regions.extend(Reader::new(format!("/{i}"), &mut errors, limits).document(item));
                }
            }
            one => regions.extend(Reader::new(String::new(), &mut errors, limits).document(one)),
        }
        if errors.is_empty() { Ok(Documents { regions, is_array }) } else { Err(errors) }
    }

    /// The answer as text: pretty-printed, one trailing newline. `schedules` has one entry per region.
    pub fn write(&self, schedules: &[RegionSchedule]) -> String {
        let mut filled: Vec<Value> = self.regions.iter().zip(schedules).map(|(d, s)| d.filled(s)).collect();
        let value = match (self.is_array, filled.len()) {
            (false, 1) => filled.swap_remove(0),
            _ => Value::Array(filled),
        };
        format!("{value:#}\n")
    }
}

impl Document {
    /// A document for a problem that was not read from JSON.
    pub fn of(problem: Problem) -> Document {
        let p = &problem;
        let slots = p.slots().values();
        let slots: Vec<Value> =
            slots.map(|s| json!({"id": s.id, "name": s.name, "capacity": s.capacity})).collect();
        let pools = p.pools().values();
        let pools: Vec<Value> =
            pools.map(|s| json!({"index": s.id, "name": s.name, "capacity": s.capacity})).collect();
        let ops: Vec<Value> = p
            .nodes()
            .map(|n| {
                let slot = |u: &Use| {
                    let id = p.slots()[u.slot].id;
                    json!({"slot": id, "offset": u.offset, "duration": u.duration, "occupancy": u.occupancy})
                };
                let pool = |u: &PoolUse| {
                    json!({"index": p.pools()[u.pool].id, "count": u.count, "duration": u.duration})
                };
                let mut op = json!({
                    "id": p.id(n), "name": p.op_name(n), "latency": p.latency(n),
                    "uses": p.uses(n).iter().map(slot).collect::<Vec<_>>(),
                    "pools": p.pool_uses(n).iter().map(pool).collect::<Vec<_>>(),
                    "group": p.group(n), "max_depth": p.max_depth(n),
                });
                if p.force_serial(n) {
                    op["force_serial"] = Value::Bool(true);
                }
                if !p.members(n).is_empty() {
                    op["members"] = p.members(n).into();
                }
                op
            })
            .collect();
        let edge = |e: &crate::problem::EdgeData| json!({"from": p.id(e.from), "to": p.id(e.to), "latency": e.latency, "distance": e.distance});
        let edges: Vec<Value> = p.edges().values().map(edge).collect();
        let mut input = Map::new();
        input.insert("schema".to_owned(), SCHEMA.into());
        input.insert("name".to_owned(), p.name().into());
        for (key, list) in [("slots", slots), ("pools", pools), ("ops", ops), ("edges", edges)] {
            input.insert(key.to_owned(), Value::Array(list));
        }
        Document { problem, input }
    }

    /// The complete document: the input with `schedule` filled in.
    pub fn filled(&self, schedule: &RegionSchedule) -> Value {
        let p = &self.problem;
        let mut out = Map::new();
        let mut put = |key: &str, value: Value| out.insert(key.to_owned(), value);
        put("schema", SCHEMA.into());
        put("name", self.input.get("name").cloned().unwrap_or_else(|| p.name().into()));
        put("generator", schedule.generator.to_string().into());
        put("ii", schedule.ii.into());
        put("stage_count", schedule.stage_count.into());
        let Status { converged, budget_exceeded, serial_fallback, truncated } = schedule.status;
        let mut status = json!({"converged": converged, "budget_exceeded": budget_exceeded, "serial_fallback": serial_fallback});
        if truncated {
            status["truncated"] = Value::Bool(true);
        }
        put("status", status);
        put("bounds", bounds(p, schedule));
        if let Some(o) = &schedule.optimality {
            let range = |(lower, upper): (u32, u32)| json!({"lower": lower, "upper": upper});
            put(
                "optimality",
                json!({
                    "verdict": o.verdict(), "ii": range(o.ii), "stages": range(o.stages),
                    "stage_count": range(o.stage_count), "steps": o.steps,
                }),
            );
        }
        for key in ["slots", "pools", "ops", "edges"] {
            put(key, self.input.get(key).cloned().unwrap_or_else(|| Value::Array(Vec::new())));
        }
        // Keys this version does not know are echoed too.
        for (key, value) in &self.input {
            if !out.contains_key(key) {
                out.insert(key.clone(), value.clone());
            }
        }
        if !schedule.rounds.is_empty() {
            out.insert("rounds".to_owned(), schedule.rounds.iter().map(round).collect());
        }
        if let Some(Value::Array(ops)) = out.get_mut("ops") {
            for (op, n) in ops.iter_mut().zip(p.nodes()) {
                let results =
                    [("start", &schedule.start), ("stage", &schedule.stage), ("order", &schedule.order)];
                if let Value::Object(op) = op {
                    for (key, map) in results {
                        op.insert(key.to_owned(), map.get(n).copied().into());
                    }
                }
            }
        }
        Value::Object(out)
    }

    /// The schedule the input already carried, if it was complete: what an outside tool claims, for [`crate::verify`].
    pub fn given_schedule(&self) -> Option<RegionSchedule> {
        let number = |v: Option<&Value>| v?.as_u64().and_then(|v| u32::try_from(v).ok());
        let input = &self.input;
        let mut s = RegionSchedule { name: self.problem.name().to_owned(), ..RegionSchedule::default() };
        s.generator = match input.get("generator")?.as_str()? {
            "serial" => Generator::Serial,
            "cost-based" => Generator::CostBased,
            _ => Generator::Modulo,
        };
        s.ii = number(input.get("ii"))?;
        s.stage_count = number(input.get("stage_count"))?;
        let flag = |key: &str| input.get("status")?.get(key)?.as_bool();
        s.status = Status {
            converged: flag("converged")?,
            budget_exceeded: flag("budget_exceeded")?,
            serial_fallback: flag("serial_fallback")?,
            truncated: flag("truncated").unwrap_or(false),
        };
        let bound = |key: &str| number(input.get("bounds").and_then(|b| b.get(key))).unwrap_or(1);
        s.bounds.resource = bound("resource");
        s.bounds.recurrence = bound("recurrence");
        s.bounds.fine_density = bound("fine_density");
        s.bounds.dependency = bound("dependency");
        for op in input.get("ops")?.as_array()? {
            s.start.push(number(op.get("start"))?);
            s.stage.push(number(op.get("stage"))?);
            s.order.push(number(op.get("order"))?);
        }
        Some(s)
    }
}

fn bounds(p: &Problem, s: &RegionSchedule) -> Value {
    let b = &s.bounds;
    let ids = |nodes: &[Node]| Value::from(nodes.iter().map(|&n| p.id(n)).collect::<Vec<_>>());
    let mut witness = Map::new();
    if let Some(slot) = b.resource_slot {
        witness.insert("resource".to_owned(), p.slots()[slot].name.as_str().into());
    }
    if !b.recurrence_cycle.is_empty() {
        witness.insert("recurrence".to_owned(), ids(&b.recurrence_cycle));
    }
    if let Some(pool) = b.density_pool {
        witness.insert("fine_density".to_owned(), p.pools()[pool].name.as_str().into());
    }
    if !b.dependency_chain.is_empty() {
        witness.insert("dependency".to_owned(), ids(&b.dependency_chain));
    }
    json!({
        "resource": b.resource, "recurrence": b.recurrence,
        "fine_density": b.fine_density, "dependency": b.dependency, "witness": witness,
    })
}

/// One round of refinement.
fn round(r: &Round) -> Value {
    let added = r.added.iter().map(|a| {
        json!({
            "number": a.number, "family": a.family.name(), "asker": a.asker, "rule": a.rule, "why": a.why,
        })
    });
    let lifted = r.lifted.iter().map(|(number, why)| json!({"number": number, "why": why}));
    json!({
        "number": r.number, "status": r.status.bits(), "cycles": r.cycles.0, "cycles_on_trial": r.cycles.1,
        "added": added.collect::<Vec<_>>(), "on_trial": r.trial, "kept": r.kept,
        "lifted": lifted.collect::<Vec<_>>(),
    })
}

fn byte_offset(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    (before + column.saturating_sub(1)).min(text.len())
}

/// Escapes a key for a JSON pointer.
fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

struct Reader<'a> {
    root: String,
    errors: &'a mut Vec<Diagnostic>,
    limits: &'a Limits,
}

impl<'a> Reader<'a> {
    fn new(root: String, errors: &'a mut Vec<Diagnostic>, limits: &'a Limits) -> Self {
        Reader { root, errors, limits }
    }

    fn error(&mut self, code: Code, at: &str, message: impl std::fmt::Display) {
        if self.errors.len() < MAX_ERRORS {
            let text = format!("at `{}{at}`: {message}", self.root);
            self.errors.push(Diagnostic::new(code, Place::Whole, text));
        }
    }

    fn document(&mut self, value: Value) -> Option<Document> {
        let before = self.errors.len();
        let Value::Object(input) = value else {
            self.error(Code::E0301, "", format_args!("expected an object, found {}", kind(&value)));
            return None;
        };
        match input.get("schema") {
            Some(Value::String(s)) if s == SCHEMA => {}
            Some(other) => {
                self.error(Code::E0302, "/schema", format_args!("expected \"{SCHEMA}\", found {other}"));
                return None;
            }
            None => {
                self.error(Code::E0302, "/schema", format_args!("missing, expected \"{SCHEMA}\""));
                return None;
            }
        }
        let name = self.string(&input, "", "name", Some(""));
        let mut p = Problem::new(name.unwrap_or_default());
        let slots = self.resources(&input, "slots", "id", &mut p);
        let pools = self.resources(&input, "pools", "index", &mut p);
        let ops = self.list(&input, "", "ops", false);
        let edges = self.list(&input, "", "edges", false);
        if ops.len() > self.limits.max_ops {
            let (n, limit) = (ops.len(), self.limits.max_ops);
            self.error(Code::E0308, "/ops", format_args!("{n} ops, the limit `limits.max-ops` is {limit}"));
            return None;
        }
        if edges.len() > self.limits.max_edges {
            let (n, limit) = (edges.len(), self.limits.max_edges);
            self.error(
                Code::E0308,
                "/edges",
                format_args!("{n} edges, the limit `limits.max-edges` is {limit}"),
            );
            return None;
        }
        let mut by_id: FxHashMap<&str, Node> = FxHashMap::default();
        for (i, op) in ops.iter().enumerate() {
            let at = format!("/ops/{i}");
            let id = self.op(op, &at, &slots, &pools, &mut p);
            if let Some(id) = id
                && by_id.insert(id, Node::new(p.num_nodes() - 1)).is_some()
            {
                self.error(Code::E0304, &format!("{at}/id"), format_args!("op id `{id}` is used twice"));
            }
        }
        for (i, edge) in edges.iter().enumerate() {
            self.edge(edge, &format!("/edges/{i}"), &by_id, &mut p);
        }
        if self.errors.len() == before {
            for e in p.check(self.limits) {
                self.error(e.code, &e.place.pointer(), e.message);
            }
        }
        (self.errors.len() == before).then_some(Document { problem: p, input })
    }

    /// Reads `slots` or `pools`: external number → position.
    fn resources(
        &mut self,
        input: &Map<String, Value>,
        list: &str,
        key: &str,
        p: &mut Problem,
    ) -> FxHashMap<u32, u32> {
        let mut by_id = FxHashMap::default();
        let items = self.list(input, "", list, list == "pools");
        for (i, item) in items.iter().enumerate() {
            let at = format!("/{list}/{i}");
            let Some(item) = self.object(item, &at) else { continue };
            let id = self.number(item, &at, key, None);
            let capacity = self.number(item, &at, "capacity", None);
            let name = self.string(item, &at, "name", Some("")).unwrap_or_default();
            let (Some(id), Some(capacity)) = (id, capacity) else { continue };
            let position = if list == "slots" {
                p.add_slot(id, name, capacity).as_u32()
            } else {
                p.add_pool(id, name, capacity).as_u32()
            };
            if by_id.insert(id, position).is_some() {
                self.error(Code::E0304, &format!("{at}/{key}"), format_args!("{key} {id} is used twice"));
            }
        }
        by_id
    }

    /// Reads an op and adds it whatever is wrong with it, so that positions stay those of the document.
    fn op<'v>(
        &mut self,
        op: &'v Value,
        at: &str,
        slots: &FxHashMap<u32, u32>,
        pools: &FxHashMap<u32, u32>,
        p: &mut Problem,
    ) -> Option<&'v str> {
        let Some(op) = self.object(op, at) else {
            p.add_node(&NodeDef::default());
            return None;
        };
        let id = self.string(op, at, "id", None);
        let mut def = NodeDef {
            id: id.unwrap_or_default(),
            name: self.string(op, at, "name", Some("")).unwrap_or_default(),
            latency: self.number(op, at, "latency", None).unwrap_or(0),
            max_depth: self.number(op, at, "max_depth", Some(0)).unwrap_or(0),
            ..NodeDef::default()
        };
        let mut uses = Vec::new();
        for (k, item) in self.list(op, at, "uses", true).iter().enumerate() {
            let at = format!("{at}/uses/{k}");
            let Some(item) = self.object(item, &at) else { continue };
            let slot = self.number(item, &at, "slot", None);
            let position = slot.and_then(|s| slots.get(&s).copied());
            if let (Some(slot), None) = (slot, position) {
                self.error(Code::E0303, &format!("{at}/slot"), format_args!("unknown slot {slot}"));
            }
            uses.push(Use {
                slot: Slot::from_u32(position.unwrap_or(0)),
                offset: self.number(item, &at, "offset", Some(0)).unwrap_or(0),
                duration: self.number(item, &at, "duration", None).unwrap_or(0),
                occupancy: self.number(item, &at, "occupancy", Some(1)).unwrap_or(0),
            });
        }
        let mut charges = Vec::new();
        for (k, item) in self.list(op, at, "pools", true).iter().enumerate() {
            let at = format!("{at}/pools/{k}");
            let Some(item) = self.object(item, &at) else { continue };
            let pool = self.number(item, &at, "index", None);
            let position = pool.and_then(|s| pools.get(&s).copied());
            if let (Some(pool), None) = (pool, position) {
                self.error(Code::E0303, &format!("{at}/index"), format_args!("unknown pool {pool}"));
            }
            charges.push(PoolUse {
                pool: Pool::from_u32(position.unwrap_or(0)),
                count: self.number(item, &at, "count", None).unwrap_or(0),
                duration: self.number(item, &at, "duration", None).unwrap_or(0),
            });
        }
        match op.get("group") {
            None | Some(Value::Null) => {}
            Some(v) => match v.as_i64().and_then(|g| i32::try_from(g).ok()) {
                // Group numbers are names: the bit pattern tells them apart.
                Some(g) => def.group = Some(g as u32),
                None => self.bad_number(v, &format!("{at}/group")),
            },
        }
        match op.get("force_serial") {
            None | Some(Value::Null) => {}
            Some(Value::Bool(b)) => def.force_serial = *b,
            Some(v) => {
                let text = format!("expected true or false, found {}", kind(v));
                self.error(Code::E0301, &format!("{at}/force_serial"), text);
            }
        }
        (def.uses, def.pools) = (&uses, &charges);
        p.add_node(&def);
        id
    }

    fn edge(&mut self, edge: &Value, at: &str, by_id: &FxHashMap<&str, Node>, p: &mut Problem) {
        let Some(edge) = self.object(edge, at) else { return };
        let mut end = |key: &str| {
            let id = self.string(edge, at, key, None)?;
            let node = by_id.get(id).copied();
            if node.is_none() {
                self.error(Code::E0303, &format!("{at}/{key}"), format_args!("unknown op `{id}`"));
            }
            node
        };
        let (from, to) = (end("from"), end("to"));
        let distance = self.number(edge, at, "distance", None);
        let latency = match edge.get("latency") {
            None => {
                self.error(Code::E0301, &format!("{at}/latency"), "missing");
                None
            }
            Some(v) => {
                let fits = v.as_i64().and_then(|l| i32::try_from(l).ok()).filter(|&l| l != i32::MIN);
                if fits.is_none() {
                    self.bad_number(v, &format!("{at}/latency"));
                }
                fits
            }
        };
        if let (Some(from), Some(to), Some(latency), Some(distance)) = (from, to, latency, distance) {
            p.add_edge(from, to, latency, distance);
        }
    }

    fn object<'v>(&mut self, v: &'v Value, at: &str) -> Option<&'v Map<String, Value>> {
        let object = v.as_object();
        if object.is_none() {
            self.error(Code::E0301, at, format_args!("expected an object, found {}", kind(v)));
        }
        object
    }

    fn list<'v>(&mut self, of: &'v Map<String, Value>, at: &str, key: &str, optional: bool) -> &'v [Value] {
        match of.get(key) {
            Some(Value::Array(items)) => items,
            None if optional => &[],
            None => {
                self.error(Code::E0301, &format!("{at}/{}", escape(key)), "missing");
                &[]
            }
            Some(v) => {
                let text = format!("expected an array, found {}", kind(v));
                self.error(Code::E0301, &format!("{at}/{}", escape(key)), text);
                &[]
            }
        }
    }

    fn string<'v>(
        &mut self,
        of: &'v Map<String, Value>,
        at: &str,
        key: &str,
        default: Option<&'static str>,
    ) -> Option<&'v str> {
        match (of.get(key), default) {
            (Some(Value::String(s)), _) => Some(s),
            (None, Some(d)) => Some(d),
            (None, None) => {
                self.error(Code::E0301, &format!("{at}/{key}"), "missing");
                None
            }
            (Some(v), _) => {
                let text = format!("expected a string, found {}", kind(v));
                self.error(Code::E0301, &format!("{at}/{key}"), text);
                None
            }
        }
    }

    /// A number of 31 bits, `default` where it is absent.
    fn number(&mut self, of: &Map<String, Value>, at: &str, key: &str, default: Option<u32>) -> Option<u32> {
        let Some(v) = of.get(key) else {
            if default.is_none() {
                self.error(Code::E0301, &format!("{at}/{key}"), "missing");
            }
            return default;
        };
        let fits = v.as_u64().and_then(|v| u32::try_from(v).ok()).filter(|&v| v <= MAX_QUANTITY);
        if fits.is_none() {
            self.bad_number(v, &format!("{at}/{key}"));
        }
        fits
    }

    fn bad_number(&mut self, v: &Value, at: &str) {
        if v.is_number() {
            self.error(Code::E0307, at, format_args!("{v} is no integer of this range (31 bits)"));
        } else {
            self.error(Code::E0301, at, format_args!("expected an integer, found {}", kind(v)));
        }
    }
}

fn kind(v: &Value) -> &'static str {
    match v {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
