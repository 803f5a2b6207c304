//! From metadata and arguments to a launch.

use crate::arg::{Arg, ArgKind, Device};
use crate::elem::Elem;
use crate::error::{Code, Error};
use crate::expr::{Binary, Expr};
use crate::meta::{L2, LaunchMetadata, Oob, ParamKind, Swizzle, TensorMapMeta};
use smallvec::SmallVec;

/// The value of one parameter of the entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// The first `size` bytes, 1 to 8, of a little-endian number.
    Bits {
        /// The number.
        bits: u64,
        /// How many bytes count.
        size: u8,
    },
    /// A tensor map that is to be encoded.
    Map(Box<MapArg>),
}

/// A tensor map to encode; as for `cuTensorMapEncodeTiled`, innermost dimension first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapArg {
    /// Element type.
    pub elem: Elem,
    /// Address of the tensor.
    pub address: u64,
    /// Extents in elements.
    pub dims: SmallVec<[u64; 5]>,
    /// Strides in bytes of all dimensions but the innermost.
    pub strides: SmallVec<[u64; 5]>,
    /// Box extents.
    pub box_dims: SmallVec<[u32; 5]>,
    /// Element strides.
    pub element_strides: SmallVec<[u32; 5]>,
    /// Swizzle.
    pub swizzle: Swizzle,
    /// Fill outside the tensor.
    pub oob: Oob,
    /// L2 promotion.
    pub l2: L2,
}

/// A launch with everything resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// CTAs.
    pub grid: [u32; 3],
    /// Threads per CTA.
    pub block: [u32; 3],
    /// CTAs per cluster.
    pub cluster: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub dynamic_smem: u32,
    /// Values of the entry's parameters, in order.
    pub params: Vec<Value>,
}

/// Blocks of a grid along x; along y and z 65 535. Source: CUDA C programming guide, technical specifications.
const MOST_BLOCKS: [u32; 3] = [0x7fff_ffff, 65_535, 65_535];

impl LaunchMetadata {
    /// The launch for these arguments, one for each of [`LaunchMetadata::args`]. `grid` replaces the suggested one.
    ///
    /// # Errors
    /// `E1102`–`E1107`; the first thing that is wrong.
    pub fn launch(&self, args: &[Arg], device: &Device, grid: Option<[u32; 3]>) -> Result<Launch, Error> {
        self.check_args(args)?;
        if let Some(n) = self.unmet(args, device)? {
            return Err(self.requirement_error(n, args));
        }
        let given = grid.is_some();
        let grid = match grid {
            Some(grid) => grid,
            None => self.suggested_grid(args, device)?,
        };
        if let Some(d) = (0..3).find(|&d| grid[d] == 0) {
            let why = match given {
                true => String::new(),
                false => format!(", as `{}` is 0", self.grid[d].text(&self.args)),
            };
            let text = format!("nothing is to be launched: the grid is {grid:?}{why}");
            return Err(Error::new(Code::E1106, text));
        }
        if let Some(d) =
            (0..3).find(|&d| grid[d] > MOST_BLOCKS[d] || !grid[d].is_multiple_of(self.cluster[d].max(1)))
        {
            let (most, cluster) = (MOST_BLOCKS[d], self.cluster[d]);
            let text = format!(
                "a grid of {grid:?}: at most {most} CTAs along dimension {d}, whole clusters of {cluster}"
            );
            return Err(Error::new(Code::E1106, text));
        }
        let params = self.params.iter().map(|p| {
            let number = |v: i64, elem| integer(&p.name, v, elem);
            match &p.kind {
                ParamKind::TensorMap(n) => {
                    let map = self.tensor_maps.get(usize::from(*n));
                    let map = map.ok_or_else(|| {
                        Error::new(Code::E1101, format!("parameter {}: no such tensor map", p.name))
                    })?;
                    self.map_arg(map, args, device).map(|m| Value::Map(Box::new(m)))
                }
                ParamKind::Pointer { view, .. } => Ok(Value::Bits {
                    bits: Expr::Addresses(vec![*view]).value(args, device)? as u64,
                    size: 8,
                }),
                ParamKind::Extent { view, dim, elem } => {
                    number(Expr::Extent(*view, *dim).value(args, device)?, *elem)
                }
                ParamKind::Stride { view, dim, elem } => {
                    number(Expr::Stride(*view, *dim).value(args, device)?, *elem)
                }
                ParamKind::Value { expr, elem } => number(expr.value(args, device)?, *elem),
                ParamKind::Scalar { arg, elem } => match args.get(usize::from(*arg)) {
                    Some(&Arg::Int(v)) if !elem.is_float() => number(v, *elem),
                    Some(&Arg::Int(v)) => float(&p.name, v as f64, *elem),
                    Some(&Arg::Float(x)) if elem.is_float() => float(&p.name, x, *elem),
                    _ => Err(Error::new(
                        Code::E1103,
                        format!("parameter {}: a number of type {} is wanted", p.name, elem.name()),
                    )),
                },
            }
        });
        let params = params.collect::<Result<Vec<Value>, Error>>()?;
        Ok(Launch { grid, block: self.block, cluster: self.cluster, dynamic_smem: self.dynamic_smem, params })
    }

    /// Refuses to do without a grid of the host's where none follows from the kernel.
    ///
    /// # Errors
    /// `E1106`.
    pub fn has_grid(&self) -> Result<(), Error> {
        if self.grid_follows {
            return Ok(());
        }
        let text = format!("no grid follows from what {} stores: the host states it", self.kernel);
        Err(Error::new(Code::E1106, text))
    }

    /// The suggested grid.
    ///
    /// # Errors
    /// `E1105`, `E1106`.
    pub fn suggested_grid(&self, args: &[Arg], device: &Device) -> Result<[u32; 3], Error> {
        let mut grid = [1; 3];
        for (n, e) in grid.iter_mut().zip(&self.grid) {
            let v = e.value(args, device)?;
            let wrong =
                || Error::new(Code::E1106, format!("a grid of {v}, as `{}` says", e.text(&self.args)));
            *n = u32::try_from(v).map_err(|_| wrong())?;
        }
        Ok(grid)
    }

    /// The first requirement that does not hold, by its position.
    ///
    /// # Errors
    /// `E1103`, `E1105`: one that has no value.
    pub fn unmet(&self, args: &[Arg], device: &Device) -> Result<Option<usize>, Error> {
        for (n, e) in self.requires.iter().enumerate() {
            if e.value(args, device)? == 0 {
                return Ok(Some(n));
            }
        }
        Ok(None)
    }

    /// Number, kinds, types and ranks of arguments.
    fn check_args(&self, args: &[Arg]) -> Result<(), Error> {
        if args.len() != self.args.len() {
            let names: Vec<&str> = self.args.iter().map(|a| a.name.as_str()).collect();
            let text = format!(
                "{} takes {} arguments ({}), {} are given",
                self.kernel,
                names.len(),
                names.join(", "),
                args.len()
            );
            return Err(Error::new(Code::E1102, text));
        }
        for (meta, arg) in self.args.iter().zip(args) {
            let wrong = |text: String| Err(Error::new(Code::E1103, format!("{} {text}", meta.name)));
            match (&meta.kind, arg) {
                (ArgKind::View { elem, rank, written }, Arg::View(view)) => {
                    if *written && view.read_only {
                        return wrong("is written to, what is given is for reading only".into());
                    }
                    if view.extents.len() != view.strides.len() {
                        return wrong(format!(
                            "has {} extents and {} strides",
                            view.extents.len(),
                            view.strides.len()
                        ));
                    }
                    if let Some(rank) = rank.filter(|&r| usize::from(r) != view.extents.len()) {
                        let n = view.extents.len();
                        return wrong(format!(
                            "has rank {rank}, {n} extent{} given",
                            if n == 1 { " is" } else { "s are" }
                        ));
                    }
                    if let Some((want, have)) = elem.zip(view.elem).filter(|(want, have)| !want.takes(*have))
                    {
                        return wrong(format!(
                            "has elements of type {}, {} are given",
                            want.name(),
                            have.name()
                        ));
                    }
                    if view.extents.iter().any(|&n| n < 0) {
                        return wrong(format!("has a negative extent: {:?}", view.extents.as_slice()));
                    }
                }
                (ArgKind::View { .. }, _) => return wrong("is a view, a number is given".into()),
                (ArgKind::Scalar { .. }, Arg::View(_)) => {
                    return wrong("is a number, a view is given".into());
                }
                (ArgKind::Scalar { elem: Some(elem) }, Arg::Float(_)) if !elem.is_float() => {
                    return wrong(format!("is of type {}, a number with a fraction is given", elem.name()));
                }
                (ArgKind::Scalar { .. }, _) => {}
            }
        }
        Ok(())
    }

    /// What a requirement that does not hold says of a view, and what was given.
    fn requirement_error(&self, n: usize, args: &[Arg]) -> Error {
        let e = &self.requires[n];
        let view = |v: &u16| match args.get(usize::from(*v)) {
            Some(Arg::View(view)) => Some((view, self.args[usize::from(*v)].name.as_str())),
            _ => None,
        };
        let sides = |e: &Expr, op: Binary| match e {
            Expr::Binary(o, two) if *o == op => Some([two[0].clone(), two[1].clone()]),
            _ => None,
        };
        let why = sides(e, Binary::Eq).and_then(|[left, right]| {
            let Expr::Int(want) = right else { return None };
            if let Some([Expr::Stride(v, d), Expr::Int(unit)]) = sides(&left, Binary::Rem) {
                let (view, name) = view(&v)?;
                let given = view.strides.get(usize::from(d))?;
                let tma = if self.tensor_maps.iter().any(|m| m.view == v) { " for TMA" } else { "" };
                return Some(format!(
                    ": the stride of {name} along dimension {d} is {given} elements and must be a multiple of {unit}{tma}"
                ));
            }
            if let Some([Expr::Addresses(views), Expr::Int(unit)]) = sides(&left, Binary::Rem) {
                let unit = u64::try_from(unit).ok().filter(|&n| n > 0)?;
                let (view, name) =
                    views.iter().filter_map(view).find(|(view, _)| !view.address.is_multiple_of(unit))?;
                return Some(format!(": {name} is at address {:#x}, no multiple of {unit}", view.address));
            }
            if let Some([Expr::Extent(v, d), Expr::Int(unit)]) = sides(&left, Binary::Rem) {
                let (view, name) = view(&v)?;
                let given = view.extents.get(usize::from(d))?;
                return Some(format!(
                    ": TMA stores 16 bytes at once, so that the {given} elements of {name} along dimension {d} must be a multiple of {unit}, or the store `no_tma`"
                ));
            }
            Some(match left {
                Expr::Extent(v, d) => {
                    let (view, name) = view(&v)?;
                    let given = view.extents.get(usize::from(d))?;
                    format!(": extent {d} of {name} is {want} in its type, {given} is given")
                }
                Expr::Stride(v, d) => {
                    let (view, name) = view(&v)?;
                    let given = view.strides.get(usize::from(d))?;
                    format!(": the stride of {name} along dimension {d} must be {want}, {given} is given")
                }
                _ => return None,
            })
        });
        let text =
            format!("launch requirement `{}` does not hold{}", e.text(&self.args), why.unwrap_or_default());
        Error::new(Code::E1104, text)
    }

    fn map_arg(&self, m: &TensorMapMeta, args: &[Arg], device: &Device) -> Result<MapArg, Error> {
        let name = self.args.get(usize::from(m.view)).map_or("?", |a| &a.name);
        let Some(Arg::View(view)) = args.get(usize::from(m.view)) else {
            return Err(Error::new(Code::E1107, format!("tensor map over {name}, which is no view")));
        };
        if let Some(d) = view.extents.iter().position(|&n| n == 0) {
            let text = format!(
                "extent {d} of {name} is 0, and no tensor map is of an empty tensor (`tma-rewrite=false` does without)"
            );
            return Err(Error::new(Code::E1107, text));
        }
        let list = |all: &[Expr]| -> Result<SmallVec<[u64; 5]>, Error> {
            let one = |e: &Expr| {
                let v = e.value(args, device)?;
                u64::try_from(v).map_err(|_| {
                    Error::new(Code::E1107, format!("tensor map over {name}: {v} is out of range"))
                })
            };
            all.iter().map(one).collect()
        };
        Ok(MapArg {
            elem: m.elem,
            address: view.address,
            dims: list(&m.dims)?,
            strides: list(&m.strides_bytes)?,
            box_dims: SmallVec::from_slice(&m.box_dims),
            element_strides: SmallVec::from_slice(&m.element_strides),
            swizzle: m.swizzle,
            oob: m.oob,
            l2: m.l2,
        })
    }
}

/// An integer as a parameter. Both readings of a bit pattern are accepted.
fn integer(name: &str, v: i64, elem: Elem) -> Result<Value, Error> {
    let bits = if elem == Elem::I1 { 1 } else { elem.bits() };
    if elem.is_float() || bits < 64 && !(-(1_i64 << (bits - 1))..1 << bits).contains(&v) {
        return Err(Error::new(
            Code::E1103,
            format!("parameter {name}: {v} does not fit into {}", elem.name()),
        ));
    }
    Ok(Value::Bits { bits: v as u64, size: elem.bytes() as u8 })
}

fn float(name: &str, x: f64, elem: Elem) -> Result<Value, Error> {
    let none =
        || Error::new(Code::E1103, format!("parameter {name}: no scalars are of type {}", elem.name()));
    Ok(Value::Bits { bits: elem.encode(x).ok_or_else(none)?, size: elem.bytes() as u8 })
}
