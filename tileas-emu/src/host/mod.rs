//! The host's side of a launch: from launch metadata, views and scalars to the arguments of a kernel.
//!
//! In: the JSON document that stands beside a PTX module (what the parameters are, how to encode each tensor map,
//! what the code relies on), views of global memory, scalars. Out: grid, block, shared memory and one [`HostArg`]
//! per parameter. Guarantee: everything the document demands under `requires` holds, or an error names it.
//! Reads the document only; knows nothing of the compiler that wrote it.

pub mod check;
pub mod data;
pub mod expr;
pub mod formula;
pub mod syntax;

use crate::{Arg, Launch, MapDesc, OobFill, Swizzle, TmaType};
use expr::{Names, evaluate};
use serde::Deserialize;
use std::collections::BTreeMap;
use syntax::{Binary, Expr, Kind};

/// A number or an expression in a launch document.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Number {
    /// A number.
    Int(i64),
    /// An expression, see [`expr`].
    Text(String),
}

/// One parameter of a launch document.
#[derive(Clone, Debug, Deserialize)]
pub struct ParamDoc {
    /// Name in the PTX.
    pub name: String,
    /// `tensor_map`, `pointer`, `size`, `stride`, `scalar` or `expr`.
    pub kind: String,
    /// The view or scalar meant.
    pub of: Option<String>,
    /// Number of the tensor map.
    pub map: Option<usize>,
    /// Dimensions of the view of a pointer.
    pub rank: Option<usize>,
    /// Dimension of a size or stride.
    pub dim: Option<usize>,
    /// Type: `i32`, `u64`, `f32`, …
    #[serde(rename = "type")]
    pub ty: Option<String>,
    /// Value of an `expr`.
    pub expr: Option<Number>,
}

/// One tensor map of a launch document, innermost dimension first.
#[derive(Clone, Debug, Deserialize)]
pub struct MapDoc {
    /// The view.
    pub view: String,
    /// Element type.
    #[serde(rename = "type")]
    pub elem: String,
    /// Extents in elements.
    pub dims: Vec<Number>,
    /// Strides in bytes of all dimensions but the innermost.
    pub strides_bytes: Vec<Number>,
    /// Box extents.
    #[serde(rename = "box")]
    pub box_dims: Vec<Number>,
    /// Element strides; all 1 if absent.
    #[serde(default)]
    pub element_strides: Vec<u32>,
    /// `none`, `b32`, `b64`, `b128`.
    #[serde(default)]
    pub swizzle: Option<String>,
    /// `zero` or `nan`.
    #[serde(default)]
    pub oob: Option<String>,
    /// Only `none`.
    #[serde(default)]
    pub interleave: Option<String>,
}

/// The launch document of one kernel.
#[derive(Clone, Debug, Deserialize)]
pub struct LaunchDoc {
    /// Entry name.
    pub kernel: String,
    /// Threads per CTA.
    pub block: Vec<Number>,
    /// Suggested grid.
    pub grid: Vec<Number>,
    /// CTAs per cluster.
    #[serde(default)]
    pub cluster: Vec<u32>,
    /// Dynamic shared memory in bytes.
    #[serde(default)]
    pub dynamic_smem: Option<Number>,
    /// Parameters in order.
    pub params: Vec<ParamDoc>,
    /// Tensor maps by number.
    #[serde(default)]
    pub tensor_maps: Vec<MapDoc>,
    /// Conditions that the arguments must meet.
    #[serde(default)]
    pub requires: Vec<String>,
}

/// A document with several kernels, as the compiler prints it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Document {
    Many { kernels: Vec<LaunchDoc> },
    List(Vec<LaunchDoc>),
    One(Box<LaunchDoc>),
}

/// Reads a launch document: one kernel, a list, or `{"kernels": [...]}`.
///
/// # Errors
/// Malformed JSON or missing fields, with the place.
pub fn read_launch(json: &str) -> Result<Vec<LaunchDoc>, String> {
    match serde_json::from_str(json) {
        Ok(Document::Many { kernels }) | Ok(Document::List(kernels)) => Ok(kernels),
        Ok(Document::One(doc)) => Ok(vec![*doc]),
        Err(e) => Err(format!("launch document: {e}")),
    }
}

/// A strided view of a buffer. Sizes and strides count elements, outermost dimension first.
#[derive(Clone, Debug)]
pub struct HostView {
    /// Address of the first element.
    pub address: u64,
    /// Extents.
    pub sizes: Vec<i64>,
    /// Strides.
    pub strides: Vec<i64>,
}

/// A scalar argument.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum HostScalar {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
}

/// What the host knows by name.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Views by parameter name.
    pub views: BTreeMap<String, HostView>,
    /// Scalars by parameter name.
    pub scalars: BTreeMap<String, HostScalar>,
    /// Processors of the device, for grids that depend on them.
    pub sms: u32,
}

impl Names for Host {
    fn scalar(&self, name: &str) -> Option<i64> {
        match self.scalars.get(name) {
            Some(HostScalar::Int(v)) => Some(*v),
            _ => (name == "sms").then_some(i64::from(self.sms)),
        }
    }
    fn extent(&self, view: &str, d: usize) -> Option<i64> {
        self.views.get(view)?.sizes.get(d).copied()
    }
    fn stride(&self, view: &str, d: usize) -> Option<i64> {
        self.views.get(view)?.strides.get(d).copied()
    }
    fn address(&self, view: &str) -> Option<u64> {
        Some(self.views.get(view)?.address)
    }
}

/// A tensor map to encode; fields as for `cuTensorMapEncodeTiled`, innermost dimension first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMap {
    /// Element type name.
    pub elem: String,
    /// Address of the tensor.
    pub address: u64,
    /// Extents in elements.
    pub dims: Vec<u64>,
    /// Strides in bytes of all dimensions but the innermost.
    pub strides: Vec<u64>,
    /// Box extents.
    pub box_dims: Vec<u32>,
    /// Element strides.
    pub element_strides: Vec<u32>,
    /// `none`, `b32`, `b64`, `b128`.
    pub swizzle: String,
    /// Fill outside the tensor: NaN instead of 0.
    pub nan: bool,
}

/// One kernel argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostArg {
    /// Bytes of a pointer or scalar.
    Bytes(Vec<u8>),
    /// A tensor map.
    Map(HostMap),
}

/// A launch with all names resolved.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// CTAs.
    pub grid: [u32; 3],
    /// Threads per CTA.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub dynamic_smem: u32,
    /// Arguments in order, with the parameter's name.
    pub args: Vec<(String, HostArg)>,
}

/// Resolves a launch. `grid` replaces the suggested one.
///
/// # Errors
/// Unknown names, requirements that do not hold, numbers out of range.
pub fn prepare(doc: &LaunchDoc, host: &Host, grid: Option<[u32; 3]>) -> Result<Prepared, String> {
    let eval = |n: &Number| match n {
        Number::Int(v) => Ok(*v),
        Number::Text(t) => evaluate(t, host),
    };
    if doc.cluster.iter().any(|&c| c > 1) {
        return Err("clusters are not supported".into());
    }
    check_ranks(doc, host)?;
    if let Some(text) = unmet(doc, host)? {
        let why = meaning(text, doc, host).map_or(String::new(), |w| format!(": {w}"));
        return Err(format!("launch requirement `{text}` does not hold{why}"));
    }
    let triple = |list: &[Number], what: &str| -> Result<[u32; 3], String> {
        let mut out = [1; 3];
        for (o, n) in out.iter_mut().zip(list) {
            let v = eval(n)?;
            *o = u32::try_from(v).map_err(|_| format!("{what} of {v}"))?;
        }
        Ok(out)
    };
    let grid = match grid {
        Some(g) => g,
        None => triple(&doc.grid, "a grid")?,
    };
    if let Some((Number::Text(e), _)) = doc.grid.iter().zip(grid).find(|&(_, n)| n == 0) {
        return Err(format!("nothing is to be launched: the grid is {grid:?}, as `{e}` is 0"));
    }
    let mut maps = Vec::new();
    for m in &doc.tensor_maps {
        maps.push(tensor_map(m, host, &eval)?);
    }
    let mut args = Vec::new();
    for p in &doc.params {
        let arg = match p.kind.as_str() {
            "tensor_map" => match p.map.and_then(|n| maps.get(n)) {
                Some(m) => HostArg::Map(m.clone()),
                None => return Err(format!("parameter {}: no such tensor map", p.name)),
            },
            _ => HostArg::Bytes(scalar(p, host, &eval)?),
        };
        args.push((p.name.clone(), arg));
    }
    let smem = match &doc.dynamic_smem {
        Some(n) => eval(n)?,
        None => 0,
    };
    Ok(Prepared {
        grid,
        block: triple(&doc.block, "a block")?,
        dynamic_smem: u32::try_from(smem).map_err(|_| format!("{smem} bytes of shared memory"))?,
        args,
    })
}

/// Every view must have as many extents as the kernel's parameter.
fn check_ranks(doc: &LaunchDoc, host: &Host) -> Result<(), String> {
    let pointers = doc.params.iter().filter_map(|p| Some((p.of.as_ref().unwrap_or(&p.name), p.rank?)));
    for (name, rank) in pointers.chain(doc.tensor_maps.iter().map(|m| (&m.view, m.dims.len()))) {
        if let Some(given) = host.views.get(name).map(|v| v.sizes.len()).filter(|&n| n != rank) {
            let s = if given == 1 { " is" } else { "s are" };
            return Err(format!("{name} has rank {rank}, {given} extent{s} given"));
        }
    }
    Ok(())
}

/// The first requirement of a document that does not hold.
///
/// # Errors
/// Requirements that have no value.
pub fn unmet<'d>(doc: &'d LaunchDoc, host: &Host) -> Result<Option<&'d str>, String> {
    for text in &doc.requires {
        if evaluate(text, host)? == 0 {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

/// What a requirement that does not hold says of a view, and what was given.
fn meaning(text: &str, doc: &LaunchDoc, host: &Host) -> Option<String> {
    let member = |e: &Expr| match &e.kind {
        Kind::Member(view, part) => match &view.kind {
            Kind::Name(view) => Some((view.clone(), part.get(..1)?.to_owned(), part.get(1..)?.parse().ok()?)),
            _ => None,
        },
        _ => None,
    };
    let Kind::Binary(Binary::Eq, left, right) = syntax::parse(text).ok()?.kind else { return None };
    let Kind::Int(want) = right.kind else { return None };
    if let Kind::Binary(Binary::Rem, stride, unit) = &left.kind {
        let ((view, _, d), Kind::Int(unit)) = (member(stride).filter(|m| m.1 == "s")?, &unit.kind) else {
            return None;
        };
        let given = host.stride(&view, d)?;
        let why = if doc.tensor_maps.iter().any(|m| m.view == view) { " for TMA" } else { "" };
        return Some(format!(
            "the stride of {view} along dimension {d} is {given} elements and must be a multiple of {unit}{why}"
        ));
    }
    let (view, part, d) = member(&left)?;
    Some(match part.as_str() {
        "d" => format!("extent {d} of {view} is {want} in its type, {} is given", host.extent(&view, d)?),
        "s" => format!(
            "the stride of {view} along dimension {d} must be {want}, {} is given",
            host.stride(&view, d)?
        ),
        _ => return None,
    })
}

fn tensor_map(
    m: &MapDoc,
    host: &Host,
    eval: &impl Fn(&Number) -> Result<i64, String>,
) -> Result<HostMap, String> {
    let Some(view) = host.views.get(&m.view) else { return Err(format!("there is no view {}", m.view)) };
    let list = |numbers: &[Number], max: i64| -> Result<Vec<u64>, String> {
        let one = |n| match eval(n)? {
            v if (0..=max).contains(&v) => Ok(v as u64),
            v => Err(format!("tensor map over {}: {v} is out of range", m.view)),
        };
        numbers.iter().map(one).collect()
    };
    if m.interleave.as_deref().is_some_and(|i| i != "none") {
        return Err(format!("tensor map over {}: interleaved layouts are not supported", m.view));
    }
    if let Some(d) = view.sizes.iter().position(|&n| n == 0) {
        return Err(format!("extent {d} of {} is 0, and no tensor map is of an empty tensor", m.view));
    }
    let box_dims = list(&m.box_dims, i64::from(u32::MAX))?.iter().map(|&v| v as u32).collect::<Vec<_>>();
    Ok(HostMap {
        elem: m.elem.clone(),
        address: view.address,
        dims: list(&m.dims, i64::MAX)?,
        strides: list(&m.strides_bytes, i64::MAX)?,
        element_strides: if m.element_strides.is_empty() {
            vec![1; box_dims.len()]
        } else {
            m.element_strides.clone()
        },
        box_dims,
        swizzle: m.swizzle.clone().unwrap_or_else(|| "none".into()),
        nan: m.oob.as_deref() == Some("nan"),
    })
}

/// Little-endian bytes of a parameter that is no tensor map.
fn scalar(
    p: &ParamDoc,
    host: &Host,
    eval: &impl Fn(&Number) -> Result<i64, String>,
) -> Result<Vec<u8>, String> {
    let of = p.of.as_deref().unwrap_or(&p.name);
    let fail = |what: &str| Err(format!("parameter {}: {what}", p.name));
    let dim = p.dim.unwrap_or(0);
    let ty = p.ty.as_deref().unwrap_or(if p.kind == "pointer" { "u64" } else { "u32" });
    let value = match p.kind.as_str() {
        "pointer" => host.address(of).map(|a| HostScalar::Int(a as i64)),
        "size" => host.extent(of, dim).map(HostScalar::Int),
        "stride" => host.stride(of, dim).map(HostScalar::Int),
        "scalar" => host.scalars.get(of).copied(),
        "expr" => match &p.expr {
            Some(e) => Some(HostScalar::Int(eval(e)?)),
            None => None,
        },
        kind => return fail(&format!("unknown kind {kind}")),
    };
    let Some(value) = value else { return fail(&format!("nothing is called {of}")) };
    let bits: u32 = ty.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(32);
    let bytes = (bits.div_ceil(8) as usize).clamp(1, 8);
    let float = data::Elem::by_name(ty).filter(|e| matches!(e, data::Elem::Float(_)));
    let raw = match (value, float) {
        (v, Some(elem)) => elem.encode(number(v)),
        // Both readings of the bit pattern are accepted.
        (HostScalar::Int(v), _) if bits < 64 && !(-(1i64 << (bits - 1))..1i64 << bits).contains(&v) => {
            return fail(&format!("{v} does not fit into {ty}"));
        }
        (HostScalar::Int(v), _) => v as u64,
        (HostScalar::Float(_), _) => return fail(&format!("a float for a parameter of type {ty}")),
    };
    Ok(raw.to_le_bytes()[..bytes].to_vec())
}

fn number(v: HostScalar) -> f64 {
    match v {
        HostScalar::Int(i) => i as f64,
        HostScalar::Float(x) => x,
    }
}

impl Prepared {
    /// The launch the machine runs.
    ///
    /// # Errors
    /// Element types or swizzles that no tensor map has.
    pub fn launch(&self, kernel: &str) -> Result<Launch, String> {
        let mut args = Vec::with_capacity(self.args.len());
        for (name, arg) in &self.args {
            args.push(match arg {
                HostArg::Bytes(b) => Arg::Bytes(b.clone()),
                HostArg::Map(m) => Arg::map(m.describe().map_err(|e| format!("parameter {name}: {e}"))?),
            });
        }
        let (grid, block, dynamic_smem) = (self.grid, self.block, self.dynamic_smem);
        Ok(Launch { kernel: Some(kernel.into()), grid, block, dynamic_smem, args })
    }
}

impl HostMap {
    fn describe(&self) -> Result<MapDesc, String> {
        let elem = TmaType::by_name(&self.elem).ok_or_else(|| format!("no element type {}", self.elem))?;
        let swizzle = match self.swizzle.as_str() {
            "none" => Swizzle::None,
            "b32" => Swizzle::B32,
            "b64" => Swizzle::B64,
            "b128" => Swizzle::B128,
            other => return Err(format!("no swizzle {other}")),
        };
        Ok(MapDesc {
            elem,
            address: self.address,
            dims: self.dims.clone(),
            strides: self.strides.clone(),
            box_dims: self.box_dims.clone(),
            element_strides: self.element_strides.clone(),
            swizzle,
            oob: if self.nan { OobFill::Nan } else { OobFill::Zero },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_scalars_have_their_bytes() {
        let bytes = |ty: &str, value| {
            let json = format!(
                r#"{{"kernel": "k", "block": [32], "grid": ["1"], "params": [{{"name": "x", "kind": "scalar", "type": "{ty}"}}]}}"#
            );
            let mut host = Host::default();
            host.scalars.insert("x".into(), value);
            prepare(&read_launch(&json).unwrap()[0], &host, None).map(|p| p.args[0].1.clone())
        };
        let is =
            |ty, value, want: &[u8]| assert_eq!(bytes(ty, value), Ok(HostArg::Bytes(want.to_vec())), "{ty}");
        is("i16", HostScalar::Int(-3), &[0xfd, 0xff]);
        is("i16", HostScalar::Int(65535), &[0xff, 0xff]);
        is("i8", HostScalar::Int(-128), &[0x80]);
        is("i1", HostScalar::Int(1), &[1]);
        is("f16", HostScalar::Float(0.5), &[0, 0x38]);
        is("bf16", HostScalar::Int(-2), &[0, 0xc0]);
        for (ty, value) in [("i16", 65536), ("i16", -32769), ("i8", 256), ("i1", 2)] {
            assert!(bytes(ty, HostScalar::Int(value)).unwrap_err().contains("does not fit"), "{ty} {value}");
        }
        assert!(bytes("i16", HostScalar::Float(0.5)).is_err());
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let json = r#"{"kernel": "k", "block": [32], "grid": ["ceildiv(c.d0, 64)", 1], "params": [
              {"name": "c", "kind": "pointer", "of": "c", "rank": 1}, {"name": "tm", "kind": "tensor_map", "map": 0}],
            "tensor_maps": [{"view": "a", "type": "f16", "dims": ["a.d1", "a.d0"], "strides_bytes": ["a.s0 * 2"],
              "box": [64, 32]}],
            "requires": ["a.d1 == 64", "a.s0 % 8 == 0", "c.s0 == 1", "ptr(a, c) % 16 == 0"]}"#;
        let doc = &read_launch(json).unwrap()[0];
        /// Extents and strides.
        type Form<'a> = (&'a [i64], &'a [i64]);
        let error = |a: Form<'_>, c: Form<'_>| {
            let view = |v: Form<'_>| HostView { address: 0x10, sizes: v.0.into(), strides: v.1.into() };
            let views = BTreeMap::from([("a".to_owned(), view(a)), ("c".to_owned(), view(c))]);
            prepare(doc, &Host { views, ..Host::default() }, None).err().unwrap_or_default()
        };
        let (a, c): (Form<'_>, Form<'_>) = ((&[8, 64], &[64, 1]), (&[70], &[1]));
        assert_eq!(error(a, c), "");
        // Ranks come first: the extents that a requirement names may be others.
        assert_eq!(error(a, (&[7, 10], &[10, 1])), "c has rank 1, 2 extents are given");
        assert_eq!(error((&[64], &[1]), c), "a has rank 2, 1 extent is given");
        assert_eq!(
            error((&[8, 60], &[64, 1]), c),
            "launch requirement `a.d1 == 64` does not hold: extent 1 of a is 64 in its type, 60 is given"
        );
        assert_eq!(
            error((&[8, 64], &[68, 1]), c),
            "launch requirement `a.s0 % 8 == 0` does not hold: the stride of a along dimension 0 is 68 elements and must be a multiple of 8 for TMA"
        );
        assert_eq!(
            error(a, (&[70], &[2])),
            "launch requirement `c.s0 == 1` does not hold: the stride of c along dimension 0 must be 1, 2 is given"
        );
        assert_eq!(
            error(a, (&[0], &[1])),
            "nothing is to be launched: the grid is [0, 1, 1], as `ceildiv(c.d0, 64)` is 0"
        );
        assert_eq!(
            error((&[0, 64], &[64, 1]), c),
            "extent 0 of a is 0, and no tensor map is of an empty tensor"
        );
    }

    #[test]
    fn a_document_becomes_arguments() {
        let json = r#"{"kernels": [{"kernel": "k", "block": [128, 1, 1], "grid": ["ceildiv(a.d0, 64)", "1", "1"],
            "dynamic_smem": 4096, "params": [
              {"name": "tm", "kind": "tensor_map", "map": 0}, {"name": "p", "kind": "pointer", "of": "a"},
              {"name": "n", "kind": "size", "of": "a", "dim": 1, "type": "u32"},
              {"name": "x", "kind": "scalar", "type": "f32"}],
            "tensor_maps": [{"view": "a", "type": "f16", "dims": ["a.d1", "a.d0"], "strides_bytes": ["a.s0 * 2"],
              "box": [64, 32], "swizzle": "b128"}], "requires": ["a.s0 % 8 == 0"]}]}"#;
        let docs = read_launch(json).unwrap();
        let mut host = Host { sms: 4, ..Host::default() };
        host.views
            .insert("a".into(), HostView { address: 0x1000, sizes: vec![100, 72], strides: vec![72, 1] });
        host.scalars.insert("x".into(), HostScalar::Float(1.5));
        let p = prepare(&docs[0], &host, None).unwrap();
        assert_eq!((p.grid, p.block, p.dynamic_smem), ([2, 1, 1], [128, 1, 1], 4096));
        assert_eq!(p.args[1].1, HostArg::Bytes(vec![0, 16, 0, 0, 0, 0, 0, 0]));
        assert_eq!(p.args[2].1, HostArg::Bytes(vec![72, 0, 0, 0]));
        assert_eq!(p.args[3].1, HostArg::Bytes(1.5f32.to_le_bytes().to_vec()));
        let HostArg::Map(m) = &p.args[0].1 else { panic!("a map") };
        assert_eq!((m.dims.as_slice(), m.strides.as_slice()), ([72, 100].as_slice(), [144].as_slice()));
        host.views.get_mut("a").unwrap().strides[0] = 73;
        assert!(prepare(&docs[0], &host, None).unwrap_err().contains("a.s0 % 8"));
        assert!(read_launch("{\"kernel\": 1}").is_err());
    }
}
