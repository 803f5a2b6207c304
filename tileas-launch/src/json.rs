//! The JSON document that stands beside a PTX module.
//!
//! One kernel, a list, or `{"kernels": [...]}`. What the compiler writes has every field; who writes by hand may leave out `args`
//! (they follow from the parameters), types, and all that has an obvious default. Expressions are text, see [`super::expr`].

use crate::arg::{ArgKind, ArgMeta};
use crate::elem::Elem;
use crate::error::{Code, Error};
use crate::expr::Expr;
use crate::expr::text::{self, Names};
use crate::meta::{L2, LaunchMetadata, Oob, ParamKind, ParamMeta, Swizzle, TensorMapMeta};
use serde::{Deserialize, Serialize};

/// A number or an expression.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Number {
    Int(i64),
    Text(String),
}

#[derive(Serialize, Deserialize)]
struct ArgDoc {
    name: String,
    kind: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    elem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u8>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    written: bool,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct ParamDoc {
    name: String,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    map: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dim: Option<u8>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    elem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    align: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expr: Option<Number>,
}

#[derive(Serialize, Deserialize)]
struct MapDoc {
    view: String,
    #[serde(rename = "type")]
    elem: String,
    dims: Vec<Number>,
    strides_bytes: Vec<Number>,
    #[serde(rename = "box")]
    box_dims: Vec<u32>,
    #[serde(default)]
    element_strides: Vec<u32>,
    #[serde(default = "none")]
    swizzle: String,
    #[serde(default = "none")]
    interleave: String,
    #[serde(default = "zero")]
    oob: String,
    #[serde(default = "none")]
    l2: String,
}

fn none() -> String {
    "none".to_owned()
}

fn zero() -> String {
    "zero".to_owned()
}

#[derive(Serialize, Deserialize)]
struct Document {
    kernel: String,
    #[serde(default)]
    target: String,
    #[serde(default)]
    ptx_version: String,
    block: Vec<u32>,
    #[serde(default)]
    cluster: Vec<u32>,
    grid: Vec<Number>,
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    grid_follows: bool,
    #[serde(default)]
    dynamic_smem: u32,
    #[serde(default)]
    tmem_columns: u32,
    #[serde(default)]
    named_barriers: u32,
    #[serde(default)]
    setmaxnreg: Option<Vec<u32>>,
    #[serde(default)]
    args: Option<Vec<ArgDoc>>,
    params: Vec<ParamDoc>,
    #[serde(default)]
    tensor_maps: Vec<MapDoc>,
    #[serde(default)]
    requires: Vec<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Documents {
    Many { kernels: Vec<Document> },
    List(Vec<Document>),
    One(Box<Document>),
}

/// Reads a launch document: one kernel, a list, or `{"kernels": [...]}`.
///
/// # Errors
/// `E1101`: malformed JSON, missing fields, unknown words.
pub fn read(json: &str) -> Result<Vec<LaunchMetadata>, Error> {
    let all = match serde_json::from_str(json) {
        Ok(Documents::Many { kernels }) | Ok(Documents::List(kernels)) => kernels,
        Ok(Documents::One(one)) => vec![*one],
        Err(_) => {
            // Of a document that is none of the three, what is wrong with it as one kernel says most.
            let as_one = serde_json::from_str::<Document>(json).err();
            let why = as_one.map_or_else(|| "neither a kernel nor a list".to_owned(), |e| e.to_string());
            return Err(wrong(format!("launch document: {why}")));
        }
    };
    all.into_iter().map(Document::metadata).collect()
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_true(x: &bool) -> bool {
    *x
}

impl LaunchMetadata {
    /// The document of this kernel.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(&Document::of(self)).unwrap_or_default()
    }
}

/// `{"kernels": [...]}`.
pub fn write_all<'a>(kernels: impl IntoIterator<Item = &'a LaunchMetadata>) -> String {
    #[derive(Serialize)]
    struct All {
        kernels: Vec<Document>,
    }
    let kernels = kernels.into_iter().map(Document::of).collect();
    serde_json::to_string_pretty(&All { kernels }).unwrap_or_default()
}

#[cold]
fn wrong(message: impl Into<String>) -> Error {
    Error::new(Code::E1101, message)
}

/// The type of that name.
fn elem(name: &str) -> Result<Elem, Error> {
    Elem::by_name(name).ok_or_else(|| wrong(format!("there is no type {name}")))
}

/// One of several words.
fn word<T>(found: Option<T>, name: &str, what: &str) -> Result<T, Error> {
    found.ok_or_else(|| wrong(format!("there is no {what} {name}")))
}

fn triple(list: &[u32], what: &str) -> Result<[u32; 3], Error> {
    if list.len() > 3 || list.contains(&0) {
        return Err(wrong(format!("{what} of {list:?}: one to three numbers above 0 are wanted")));
    }
    let mut out = [1; 3];
    out[..list.len()].copy_from_slice(list);
    Ok(out)
}

impl Number {
    fn expr(&self, args: &mut Vec<ArgMeta>, open: bool) -> Result<Expr, Error> {
        match self {
            Number::Int(v) => Ok(Expr::Int(*v)),
            Number::Text(text) => parse(text, args, open),
        }
    }
}

fn parse(text: &str, args: &mut Vec<ArgMeta>, open: bool) -> Result<Expr, Error> {
    text::parse(text, &mut if open { Names::Growing(args) } else { Names::Known(args) })
}

/// The position of an argument; where there is no list of them, one more.
fn position(args: &mut Vec<ArgMeta>, open: bool, name: &str, kind: ArgKind) -> Result<u16, Error> {
    let is_view = matches!(kind, ArgKind::View { .. });
    if let Some(n) = args.iter().position(|a| a.name == name) {
        let known = &mut args[n].kind;
        if matches!(known, ArgKind::View { .. }) != is_view {
            return Err(wrong(format!("{name} is a view and a scalar")));
        }
        if open {
            match (known, kind) {
                (ArgKind::View { elem, rank, .. }, ArgKind::View { elem: e, rank: r, .. }) => {
                    (*elem, *rank) = (elem.or(e), rank.or(r));
                }
                (ArgKind::Scalar { elem }, ArgKind::Scalar { elem: e }) => *elem = elem.or(e),
                _ => {}
            }
        }
        return Ok(n as u16);
    }
    if !open {
        return Err(wrong(format!("nothing is called {name}")));
    }
    args.push(ArgMeta { name: name.to_owned(), kind });
    u16::try_from(args.len() - 1).map_err(|_| wrong("too many arguments"))
}

impl Document {
    fn metadata(self) -> Result<LaunchMetadata, Error> {
        let open = self.args.is_none();
        let mut args = Vec::new();
        for a in self.args.unwrap_or_default() {
            let ty = a.elem.as_deref().map(elem).transpose()?;
            let kind = match a.kind.as_str() {
                "view" => ArgKind::View { elem: ty, rank: a.rank, written: a.written },
                "scalar" => ArgKind::Scalar { elem: ty },
                other => return Err(wrong(format!("argument {}: unknown kind {other}", a.name))),
            };
            if args.iter().any(|b: &ArgMeta| b.name == a.name) {
                return Err(wrong(format!("two arguments are called {}", a.name)));
            }
            args.push(ArgMeta { name: a.name, kind });
        }
        let args_mut = &mut args;
        let mut params = Vec::with_capacity(self.params.len());
        for p in self.params {
            let of = p.of.as_deref().unwrap_or(&p.name);
            let ty = p.elem.as_deref().map(elem).transpose()?;
            let dim = p.dim.unwrap_or(0);
            let mut view =
                |rank| position(args_mut, open, of, ArgKind::View { elem: None, rank, written: false });
            let kind = match p.kind.as_str() {
                "tensor_map" => {
                    let n = p.map.filter(|&n| usize::from(n) < self.tensor_maps.len());
                    ParamKind::TensorMap(
                        n.ok_or_else(|| wrong(format!("parameter {}: no such tensor map", p.name)))?,
                    )
                }
                "pointer" => ParamKind::Pointer { view: view(p.rank)?, align: p.align.unwrap_or(1) },
                "size" => ParamKind::Extent { view: view(None)?, dim, elem: ty.unwrap_or(Elem::U32) },
                "stride" => ParamKind::Stride { view: view(None)?, dim, elem: ty.unwrap_or(Elem::U32) },
                "scalar" => {
                    let elem = ty.unwrap_or(Elem::U32);
                    let arg = position(args_mut, open, of, ArgKind::Scalar { elem: Some(elem) })?;
                    ParamKind::Scalar { arg, elem }
                }
                "expr" => {
                    let expr =
                        p.expr.as_ref().ok_or_else(|| wrong(format!("parameter {}: no expr", p.name)))?;
                    ParamKind::Value { expr: expr.expr(args_mut, open)?, elem: ty.unwrap_or(Elem::U32) }
                }
                other => return Err(wrong(format!("parameter {}: unknown kind {other}", p.name))),
            };
            params.push(ParamMeta { name: p.name, kind });
        }
        let mut tensor_maps = Vec::with_capacity(self.tensor_maps.len());
        for m in self.tensor_maps {
            let ty = elem(&m.elem)?;
            let rank = u8::try_from(m.dims.len()).ok();
            let ones = || vec![1; m.box_dims.len()];
            if m.interleave != "none" {
                return Err(wrong(format!(
                    "tensor map over {}: interleaved layouts are not supported",
                    m.view
                )));
            }
            let mut list = |all: &[Number]| -> Result<Vec<Expr>, Error> {
                all.iter().map(|n| n.expr(args_mut, open)).collect()
            };
            tensor_maps.push(TensorMapMeta {
                dims: list(&m.dims)?,
                strides_bytes: list(&m.strides_bytes)?,
                view: position(
                    args_mut,
                    open,
                    &m.view,
                    ArgKind::View { elem: Some(ty), rank, written: false },
                )?,
                elem: ty,
                element_strides: if m.element_strides.is_empty() { ones() } else { m.element_strides },
                box_dims: m.box_dims,
                swizzle: word(Swizzle::by_name(&m.swizzle), &m.swizzle, "swizzle")?,
                oob: word(Oob::by_name(&m.oob), &m.oob, "fill")?,
                l2: word(L2::by_name(&m.l2), &m.l2, "L2 promotion")?,
            });
        }
        let mut grid = [Expr::Int(1), Expr::Int(1), Expr::Int(1)];
        if self.grid.len() > 3 {
            return Err(wrong(format!("a grid has three extents, not {}", self.grid.len())));
        }
        for (to, n) in grid.iter_mut().zip(&self.grid) {
            *to = n.expr(args_mut, open)?;
        }
        let requires = self
            .requires
            .iter()
            .map(|text| parse(text, args_mut, open))
            .collect::<Result<Vec<Expr>, Error>>()?;
        let version = self.ptx_version.split_once('.');
        let ptx_version = match version.map(|(a, b)| (a.parse(), b.parse())) {
            Some((Ok(major), Ok(minor))) => (major, minor),
            _ if self.ptx_version.is_empty() => (0, 0),
            _ => return Err(wrong(format!("PTX version {}", self.ptx_version))),
        };
        Ok(LaunchMetadata {
            kernel: self.kernel,
            target: self.target,
            ptx_version,
            block: triple(&self.block, "a block")?,
            cluster: triple(&self.cluster, "a cluster")?,
            grid,
            grid_follows: self.grid_follows,
            dynamic_smem: self.dynamic_smem,
            tmem_columns: self.tmem_columns,
            named_barriers: self.named_barriers,
            setmaxnreg: self.setmaxnreg,
            args,
            params,
            tensor_maps,
            requires,
        })
    }

    fn of(m: &LaunchMetadata) -> Document {
        let name = |n: u16| m.args.get(usize::from(n)).map_or_else(String::new, |a| a.name.clone());
        let text = |e: &Expr| Number::Text(e.text(&m.args).to_string());
        let ty = |e: &Option<Elem>| e.map(|e| e.name().to_owned());
        let args = m.args.iter().map(|a| match &a.kind {
            ArgKind::View { elem, rank, written } => {
                let (name, elem) = (a.name.clone(), ty(elem));
                ArgDoc { name, kind: "view".into(), elem, rank: *rank, written: *written }
            }
            ArgKind::Scalar { elem } => {
                let (name, elem) = (a.name.clone(), ty(elem));
                ArgDoc { name, kind: "scalar".into(), elem, rank: None, written: false }
            }
        });
        let params = m.params.iter().map(|p| {
            let new =
                |kind: &str| ParamDoc { name: p.name.clone(), kind: kind.into(), ..ParamDoc::default() };
            let rank = |view: u16| match m.args.get(usize::from(view)).map(|a| a.kind) {
                Some(ArgKind::View { rank, .. }) => rank,
                _ => None,
            };
            match &p.kind {
                ParamKind::TensorMap(n) => {
                    ParamDoc { map: Some(*n), align: Some(64), size: Some(128), ..new("tensor_map") }
                }
                ParamKind::Pointer { view, align } => ParamDoc {
                    of: Some(name(*view)),
                    rank: rank(*view),
                    align: Some(*align),
                    ..new("pointer")
                },
                ParamKind::Extent { view, dim, elem } => {
                    ParamDoc { of: Some(name(*view)), dim: Some(*dim), elem: ty(&Some(*elem)), ..new("size") }
                }
                ParamKind::Stride { view, dim, elem } => ParamDoc {
                    of: Some(name(*view)),
                    dim: Some(*dim),
                    elem: ty(&Some(*elem)),
                    ..new("stride")
                },
                ParamKind::Scalar { arg, elem } => {
                    ParamDoc { of: Some(name(*arg)), elem: ty(&Some(*elem)), ..new("scalar") }
                }
                ParamKind::Value { expr, elem } => {
                    ParamDoc { expr: Some(text(expr)), elem: ty(&Some(*elem)), ..new("expr") }
                }
            }
        });
        let maps = m.tensor_maps.iter().map(|t| MapDoc {
            view: name(t.view),
            elem: t.elem.name().into(),
            dims: t.dims.iter().map(text).collect(),
            strides_bytes: t.strides_bytes.iter().map(text).collect(),
            box_dims: t.box_dims.clone(),
            element_strides: t.element_strides.clone(),
            swizzle: t.swizzle.name().into(),
            interleave: none(),
            oob: t.oob.name().into(),
            l2: t.l2.name().into(),
        });
        Document {
            kernel: m.kernel.clone(),
            target: m.target.clone(),
            ptx_version: format!("{}.{}", m.ptx_version.0, m.ptx_version.1),
            block: m.block.into(),
            cluster: m.cluster.into(),
            grid: m.grid.iter().map(text).collect(),
            grid_follows: m.grid_follows,
            dynamic_smem: m.dynamic_smem,
            tmem_columns: m.tmem_columns,
            named_barriers: m.named_barriers,
            setmaxnreg: m.setmaxnreg.clone(),
            args: Some(args.collect()),
            params: params.collect(),
            tensor_maps: maps.collect(),
            requires: m.requires.iter().map(|e| e.text(&m.args).to_string()).collect(),
        }
    }
}
