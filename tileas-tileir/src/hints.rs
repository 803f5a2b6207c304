//! Optimization hints, resolved for a target.
//!
//! Of each hint the target's own value counts, then that of `default`. Hints never change what a kernel computes, so an unknown
//! target or name, or a value out of range, is a warning (W1601).

use crate::attr::Attr;
use crate::entities::Str;
use crate::error::{Code, Error};
use crate::module::{FuncRef, Module, OpRef};
use tileas_meta::tileir::Key;

/// What a front end would like of a kernel.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct EntryHints {
    /// CTAs of a cluster.
    pub num_cta_in_cga: Option<u32>,
    /// CTAs on one SM.
    pub occupancy: Option<u32>,
    /// Warps that compute.
    pub num_worker_warps_per_cta: Option<u32>,
}

/// What a front end would like of an access.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct AccessHints {
    /// How costly it is thought to be, 1 to 10.
    pub latency: Option<u32>,
    /// Whether TMA may be used.
    pub allow_tma: Option<bool>,
}

type Entries = [(Str, Attr)];

/// The entries of one target.
fn of_target<'a>(module: &Module, hints: &'a Entries, target: &str) -> &'a Entries {
    match hints.iter().find(|(name, _)| module.str(*name) == target) {
        Some((_, Attr::Dict(entries))) => entries,
        _ => &[],
    }
}

fn value<'a>(module: &Module, hints: &'a Entries, target: &str, key: &str) -> Option<&'a Attr> {
    // `sm_90a` is `sm_90` with all it has.
    let plain = target.trim_end_matches(|c: char| c.is_ascii_lowercase());
    [plain, "default"].into_iter().find_map(|t| {
        of_target(module, hints, t).iter().find(|(name, _)| module.str(*name) == key).map(|(_, value)| value)
    })
}

/// What a hint may say.
fn check(key: &str, value: &Attr) -> Result<(), &'static str> {
    let in_range = |attr: &Attr, ok: fn(u64) -> bool| matches!(*attr, Attr::Int { bits, .. } if ok(bits));
    let (ok, wanted) = match key {
        "num_cta_in_cga" => (in_range(value, |n| n.is_power_of_two() && n <= 16), "a power of two up to 16"),
        "occupancy" => (in_range(value, |n| (1..=32).contains(&n)), "1 to 32"),
        "num_worker_warps_per_cta" => {
            (in_range(value, |n| n.is_power_of_two() && n <= 32), "a power of two up to 32")
        }
        "latency" => (in_range(value, |n| (1..=10).contains(&n)), "1 to 10"),
        _ => (matches!(value, Attr::Bool(_)), "a truth value"),
    };
    if ok { Ok(()) } else { Err(wanted) }
}

fn number(module: &Module, hints: &Entries, target: &str, key: &str) -> Option<u32> {
    match value(module, hints, target, key)? {
        attr @ Attr::Int { bits, .. } if check(key, attr).is_ok() => u32::try_from(*bits).ok(),
        _ => None,
    }
}

fn warnings(
    module: &Module,
    hints: &Entries,
    keys: &[&str],
    at: impl Fn(String) -> Box<Error>,
    out: &mut Vec<Error>,
) {
    for (target, entries) in hints {
        let target = module.lossy(*target);
        let known = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
        if target != "default" && !target.strip_prefix("sm_").is_some_and(known) {
            out.push(*at(format!("hints for `{target}`, which is no target: `default` or `sm_90` would be")));
        }
        let Attr::Dict(entries) = entries else { continue };
        for (key, value) in entries {
            let key = module.lossy(*key);
            if !keys.contains(&key.as_str()) {
                out.push(*at(format!("hint `{key}` for `{target}` is not known here: {}", keys.join(", "))));
            } else if let Err(wanted) = check(&key, value) {
                out.push(*at(format!("hint `{key}` for `{target}` is out of range: {wanted} expected")));
            }
        }
    }
}

impl FuncRef<'_> {
    /// Hints for the kernel on a target, as `sm_90`.
    pub fn hints(self, target: &str) -> EntryHints {
        let get = |key| number(self.module, &self.func.hints, target, key);
        EntryHints {
            num_cta_in_cga: get("num_cta_in_cga"),
            occupancy: get("occupancy"),
            num_worker_warps_per_cta: get("num_worker_warps_per_cta"),
        }
    }

    /// What of the hints of the kernel and its ops is not known or out of range, for any target.
    pub fn hint_warnings(self) -> Vec<Error> {
        let mut out = Vec::new();
        let keys = &["num_cta_in_cga", "occupancy", "num_worker_warps_per_cta"];
        warnings(self.module, &self.func.hints, keys, |m| self.error(Code::W1601, m), &mut out);
        for op in self.ops() {
            let view = op.row().attrs.iter().any(|a| a.key == Key::Inbounds);
            let keys: &[&str] = if view { &["latency", "allow_tma"] } else { &["latency"] };
            warnings(self.module, op.entries(), keys, |m| op.error(Code::W1601, m), &mut out);
        }
        out
    }
}

impl OpRef<'_> {
    fn entries(&self) -> &Entries {
        if let Some(Attr::Hints(entries)) = self.attr(Key::Hints) { entries } else { &[] }
    }

    /// Hints for the access on a target, as `sm_90`.
    pub fn hints(self, target: &str) -> AccessHints {
        let module = self.func.module;
        let allow_tma = match value(module, self.entries(), target, "allow_tma") {
            Some(&Attr::Bool(allow)) => Some(allow),
            _ => None,
        };
        AccessHints { latency: number(module, self.entries(), target, "latency"), allow_tma }
    }
}
