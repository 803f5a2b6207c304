//! From the command line to a launch: global memory with its tensors, scalars, arguments.

use super::args::{self, Init, Tensor};
use super::{Args, Kernel, usage};
use crate::Failure;
use crate::diagnostics::complain;
use crate::input::say;
use crate::npy;
use std::collections::{BTreeMap, BTreeSet};
use tileas_codegen::ir::{Dim, Opcode, Scalar, TypeData};
use tileas_emu::host::data::{Elem, Fill, Placed, ViewSpec, place};
use tileas_emu::{Launch, Memory};
use tileas_launch::{Arg, ArgKind, Device, Expr, LaunchMetadata, Named, expr::Binary};

/// A tensor in memory.
pub struct View {
    /// Where it is.
    pub placed: Placed,
    /// Element type.
    pub elem: String,
}

/// Everything a run begins with.
pub struct Setup {
    /// Memory before the run.
    pub memory: Memory,
    /// Tensors by name.
    pub views: BTreeMap<String, View>,
    /// Arguments by name.
    pub args: Named,
    /// The launch.
    pub launch: Launch,
}

/// What the kernel takes, as far as it is known.
#[derive(Default)]
struct Wanted {
    views: BTreeSet<String>,
    scalars: BTreeSet<String>,
    /// Element types of views.
    elems: BTreeMap<String, String>,
}

impl Wanted {
    fn of(metadata: &LaunchMetadata) -> Wanted {
        let mut w = Wanted::default();
        for arg in &metadata.args {
            match arg.kind {
                ArgKind::View { elem, .. } => {
                    w.views.insert(arg.name.clone());
                    w.elems.extend(elem.map(|e| (arg.name.clone(), e.name().to_owned())));
                }
                ArgKind::Scalar { .. } => _ = w.scalars.insert(arg.name.clone()),
            }
        }
        w
    }
}

impl Setup {
    /// Reads the arguments and makes the launch.
    pub fn new(args: &Args, kernel: &Kernel, sms: u32) -> Result<Setup, Failure> {
        let mut s = Setup {
            memory: Memory::new(),
            views: BTreeMap::new(),
            args: Named::default(),
            launch: Launch::default(),
        };
        let device = Device { sms };
        let wanted = kernel.metadata.as_ref().map(Wanted::of);
        let mut given = BTreeMap::new();
        for (name, value) in &args.args {
            if given.insert(name.as_str(), value.as_str()).is_some() {
                return usage(format!("--arg {name} is given twice"));
            }
        }
        check_names(kernel, wanted.as_ref(), &given)?;
        let is_view = |name: &str, value: &str| match &wanted {
            Some(w) => w.views.contains(name),
            None => args::looks_like_tensor(value),
        };
        let mut left = args.max_bytes;
        for (&name, &value) in given.iter().filter(|(n, v)| is_view(n, v)) {
            let known = wanted.as_ref().and_then(|w| w.elems.get(name)).map(String::as_str);
            s.tensor(name, value, known, args.seed, &mut left)?;
        }
        for (&name, &value) in given.iter().filter(|(n, v)| !is_view(n, v)) {
            let scalar = match (value.parse(), value.parse()) {
                (Ok(i), _) => Arg::Int(i),
                (_, Ok(x)) => Arg::Float(x),
                _ => match s.args.value(value, &device) {
                    Ok(i) => Arg::Int(i),
                    Err(e) => return usage(format!("--arg {name}: {e}")),
                },
            };
            s.args.insert(name, scalar);
        }
        s.launch = match &kernel.metadata {
            Some(metadata) => {
                let launch = s
                    .args
                    .of(metadata)
                    .and_then(|list| metadata.launch(&list, &device, args.grid)?.emulated(&kernel.name));
                launch.map_err(|e| {
                    let help = stride_help(kernel, metadata, &s.args, &given, &device);
                    complain(&format!("error[{}]: {}: {}{help}\n", e.code, kernel.name, e.message));
                    Failure::Usage
                })?
            }
            None => s.plain_launch(args, kernel)?,
        };
        Ok(s)
    }

    fn tensor(
        &mut self,
        name: &str,
        value: &str,
        known: Option<&str>,
        seed: u64,
        left: &mut u64,
    ) -> Result<(), Failure> {
        let wrong = |e: String| {
            complain(&format!("error: --arg {name}: {e}\n"));
            Failure::Usage
        };
        let tensor = args::tensor(value).map_err(wrong)?;
        let file = match &tensor.init {
            Init::File(file) => match std::fs::read(file) {
                Ok(bytes) => Some(bytes),
                Err(e) => {
                    complain(&format!("error: cannot read {file}: {e}\n"));
                    return Err(Failure::Io);
                }
            },
            Init::Fill(_) => None,
        };
        let spec = specify(&tensor, known, file.as_deref()).map_err(wrong)?;
        let bytes = spec.bytes().map_err(wrong)? as u64;
        *left = match left.checked_sub(bytes) {
            Some(left) => left,
            None => return usage(format!("--arg {name}: the tensors take more than --max-bytes")),
        };
        let seed = tensor.seed.unwrap_or(seed);
        let placed = place(name, &spec, seed, &mut self.memory).or_else(usage)?;
        let view =
            tileas_launch::View::emulated(&placed, &self.memory, tileas_launch::Elem::by_name(&spec.elem));
        self.args.insert(name, view);
        self.views.insert(name.to_owned(), View { placed, elem: spec.elem });
        Ok(())
    }

    /// A launch of pointers and scalars.
    fn plain_launch(&self, args: &Args, kernel: &Kernel) -> Result<Launch, Failure> {
        let Some(k) = kernel.program.kernel(Some(&kernel.name)) else {
            return usage(format!("there is no kernel {}", kernel.name));
        };
        let Some(block) = args.block.or(k.bounds.reqntid) else {
            return usage("the kernel has no .reqntid; give --block or --launch");
        };
        let mut list = Vec::new();
        for p in &k.params {
            let size = p.size as usize;
            let unfit = |what: String| usage(format!("--arg {}: {what}", p.name));
            let scalar = self.args.get(&p.name).filter(|a| !matches!(a, Arg::View(_)));
            list.push(match (self.views.get(&p.name), scalar) {
                _ if size == 128 => {
                    return usage(format!("parameter {} is a tensor map; give --launch", p.name));
                }
                (Some(_), _) if size != 8 => {
                    return unfit(format!("a tensor for a parameter of {size} bytes"));
                }
                (Some(v), _) => {
                    tileas_emu::Arg::u64(self.memory.address(v.placed.buffer) + v.placed.offset as u64)
                }
                (None, Some(&Arg::Int(i))) if size <= 8 => {
                    let bits = 8 * size as u32;
                    let fits = bits >= 64 || (-(1i64 << (bits - 1))..1i64 << bits).contains(&i);
                    if !fits {
                        return unfit(format!("{i} does not fit into {size} bytes"));
                    }
                    tileas_emu::Arg::Bytes(i.to_le_bytes()[..size].to_vec())
                }
                (None, Some(&Arg::Float(x))) if size == 4 => tileas_emu::Arg::f32(x as f32),
                (None, Some(&Arg::Float(x))) if size == 8 => tileas_emu::Arg::Bytes(x.to_le_bytes().to_vec()),
                (None, Some(_)) => return unfit(format!("not for a parameter of {size} bytes")),
                (None, None) => return usage(format!("parameter {} needs an --arg", p.name)),
            });
        }
        Ok(Launch {
            kernel: Some(kernel.name.clone()),
            grid: args.grid.or(args.cluster).or(k.bounds.cluster).unwrap_or([1; 3]),
            cluster: args.cluster,
            block,
            dynamic_smem: args.smem,
            args: list,
        })
    }

    /// The first byte in which two memories differ, in words.
    /// `floats`: those of floats as well.
    pub fn difference(&self, a: &Memory, b: &Memory, floats: bool) -> Option<String> {
        self.views.iter().filter(|(_, v)| floats || matches!(v.placed.elem, Elem::Int(..))).find_map(
            |(name, v)| {
                let (x, y) = (a.bytes(v.placed.buffer), b.bytes(v.placed.buffer));
                let k = (0..x.len()).find(|&k| x[k] != y[k])?;
                Some(format!("{name}{}", v.placed.describe(k)))
            },
        )
    }

    /// Prints a line for each tensor.
    pub fn summary(&self, after: &Memory) -> Result<(), Failure> {
        for (name, v) in &self.views {
            let extents: Vec<String> = v.placed.shape.iter().map(usize::to_string).collect();
            let size = v.placed.elem.bytes();
            let (old, new) = (v.placed.dense(&self.memory), v.placed.dense(after));
            let changed = old.chunks(size).zip(new.chunks(size)).filter(|(a, b)| a != b).count();
            let numbers = v.placed.numbers(after);
            let bound = |f: fn(f64, f64) -> f64, start: f64| numbers.iter().copied().fold(start, f);
            let nans = numbers.iter().filter(|x| x.is_nan()).count();
            let first: Vec<String> = numbers.iter().take(6).map(f64::to_string).collect();
            let form = extents.iter().chain([&v.elem]).cloned().collect::<Vec<_>>().join("x");
            let range = match numbers.len() - nans {
                0 => String::new(),
                _ => {
                    format!(", {} to {}", bound(f64::min, f64::INFINITY), bound(f64::max, f64::NEG_INFINITY))
                }
            };
            let nans = if nans == 0 { String::new() } else { format!(", {nans} NaN") };
            say(&format!(
                "{name}: {form}, {changed} changed, hash {:016x}{range}{nans}: {}{}",
                hash(&new),
                first.join(" "),
                if numbers.len() > first.len() { " …" } else { "" }
            ))?;
        }
        Ok(())
    }

    /// Writes a tensor to a file.
    pub fn write(&self, name: &str, file: &str, after: &Memory) -> Result<(), Failure> {
        let Some(v) = self.views.get(name) else { return usage(format!("-o {name}: no such tensor")) };
        let dense = v.placed.dense(after);
        let bytes = match file.ends_with(".npy") {
            true => npy::write(&v.elem, &v.placed.shape, &dense).unwrap_or(dense),
            false => dense,
        };
        std::fs::write(file, bytes).map_err(|e| {
            complain(&format!("error: cannot write {file}: {e}\n"));
            Failure::Io
        })
    }
}

/// What helps against a stride, or an extent, that is no multiple of what the code asks for; empty where that is not what is wrong.
fn stride_help(
    kernel: &Kernel,
    metadata: &LaunchMetadata,
    args: &Named,
    given: &BTreeMap<&str, &str>,
    device: &Device,
) -> String {
    let wanted = || {
        let list = args.of(metadata).ok()?;
        let unmet = &metadata.requires[metadata.unmet(&list, device).ok()??];
        let Expr::Binary(Binary::Eq, sides) = unmet else { return None };
        let Expr::Binary(Binary::Rem, sides) = &sides[0] else { return None };
        match **sides {
            [Expr::Stride(n, _), Expr::Int(unit @ 1..=0xffff)] => Some((list, n, Some(unit))),
            [Expr::Extent(n, _), Expr::Int(_)] => Some((list, n, None)),
            _ => None,
        }
    };
    let Some((mut arguments, n, unit)) = wanted() else { return String::new() };
    let name = metadata.args[usize::from(n)].name.as_str();
    let Some(Arg::View(view)) = arguments.get_mut(usize::from(n)) else { return String::new() };
    let mut help = String::new();
    if let Some(unit) = unit {
        let mut strides = vec![1i64; view.extents.len()];
        for d in (1..strides.len()).rev() {
            let row = view.extents[d].max(1).saturating_mul(strides[d]);
            strides[d - 1] = row.saturating_add(unit - 1) / unit * unit;
        }
        let list =
            |numbers: &[i64], by: &str| numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(by);
        // Everything else as it was given; what a file says stands before its name.
        let text = given.get(name).copied().unwrap_or_default();
        let (form, init) = match text.split_once(':') {
            _ if text.starts_with('@') => (list(&view.extents, "x"), Some(text)),
            Some((form, init)) => (form.to_owned(), Some(init)),
            None => (text.to_owned(), None),
        };
        let form = form.split('/').next().unwrap_or_default();
        let init = init.map(|init| format!(":{init}")).unwrap_or_default();
        let text = format!("\nhelp: strides that fit: --arg {name}={form}/{}{init}", list(&strides, ","));
        view.strides = strides.into_iter().collect();
        // More may be asked of the tensor than its strides.
        let about = |e: &Expr| matches!(e, Expr::Binary(_, sides) if matches!(&sides[0], Expr::Binary(_, s) if matches!(s[0], Expr::Extent(v, _) if v == n)));
        let next = metadata.unmet(&arguments, device).ok().flatten();
        if !next.is_some_and(|next| about(&metadata.requires[next])) {
            help = text;
        }
    }
    // Without a tensor map the code takes any stride, unless the type lets it count on whole vectors; registers hold few types.
    let rewritten = kernel.source.as_ref().is_some_and(|(f, _)| {
        let view = |v| f.value_name(v) == Some(name);
        let written = f.ops().any(|op| {
            f.opcode(op) == Opcode::MakeTiledTmaDesc && f.named_operand(op, "view").is_some_and(view)
        });
        let ragged = f.params().iter().filter(|&&p| view(p)).any(|&p| match f.value_data(p) {
            TypeData::View { dims, elem, .. } => {
                use Scalar::{BF16, F16, F32, I16, I32};
                dims.last() == Some(&Dim::Dynamic) && matches!(elem, F16 | BF16 | F32 | I16 | I32)
            }
            _ => false,
        });
        ragged && !written
    });
    if rewritten && metadata.tensor_maps.iter().any(|m| m.view == n) {
        let or = if help.is_empty() { "" } else { "or " };
        help.push_str(&format!("\nhelp: {or}do without tensor maps: --set tma-rewrite=false"));
    }
    help
}

/// FNV-1a, 64 bits.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// Every name must mean something, and everything needed must be there.
fn check_names(
    kernel: &Kernel,
    wanted: Option<&Wanted>,
    given: &BTreeMap<&str, &str>,
) -> Result<(), Failure> {
    let plain: BTreeSet<String> = match wanted {
        Some(_) => BTreeSet::new(),
        None => {
            let params = kernel.program.kernel(Some(&kernel.name)).map(|k| k.params.as_slice());
            params.unwrap_or_default().iter().map(|p| p.name.clone()).collect()
        }
    };
    let (views, scalars) = match wanted {
        Some(w) => (&w.views, &w.scalars),
        None => (&plain, &plain),
    };
    let all: BTreeSet<&str> = views.iter().chain(scalars).map(String::as_str).collect();
    let names = all.iter().copied().collect::<Vec<_>>().join(", ");
    if let Some(name) = given.keys().find(|n| !all.contains(**n)) {
        return usage(format!("--arg {name}: {} has no such parameter; it takes {names}", kernel.name));
    }
    let missing: Vec<&str> = all.iter().copied().filter(|n| !given.contains_key(n)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    usage(format!("{} takes {names}; there is no --arg for {}", kernel.name, missing.join(", ")))
}

/// What a tensor looks like, from its text, the type the kernel wants and its file.
fn specify(tensor: &Tensor, known: Option<&str>, file: Option<&[u8]>) -> Result<ViewSpec, String> {
    if let (Some(given), Some(known)) = (&tensor.elem, known)
        && Elem::by_name(given).map(|e| e.bytes()) != Elem::by_name(known).map(|e| e.bytes())
    {
        return Err(format!("the kernel's elements are {known}, not {given}"));
    }
    let array = file.filter(|f| npy::is_npy(f)).map(npy::read).transpose()?;
    let from_file = array.as_ref().and_then(|a| npy::elem_of(a.descr));
    let elem = tensor.elem.as_deref().or(known).or(from_file);
    let elem = elem.ok_or("give an element type, as in 200x136xf16")?.to_owned();
    if let Some(a) = &array
        && !npy::fits(&elem, a.descr)
    {
        return Err(format!("the file's elements are {}, not {elem}", a.descr));
    }
    let shape = match (&tensor.shape, &array) {
        (Some(shape), Some(a)) if *shape != a.shape => {
            return Err(format!("the file's extents are {:?}, not {shape:?}", a.shape));
        }
        (Some(shape), _) => shape.clone(),
        (None, Some(a)) => a.shape.clone(),
        (None, None) => return Err("the file is no .npy; give its extents, as in 200x136xf16:@FILE".into()),
    };
    let fill = match (&tensor.init, file) {
        (Init::Fill(fill), _) => fill.clone(),
        (Init::File(_), bytes) => {
            let data = array.map_or(bytes.unwrap_or_default(), |a| a.data);
            let size = Elem::by_name(&elem).map_or(1, Elem::bytes);
            let bytes = shape.iter().try_fold(size, |n, &d| n.checked_mul(d));
            if bytes != Some(data.len()) {
                return Err(format!("the file has {} bytes, not those of {shape:?} {elem}", data.len()));
            }
            Fill::Bytes(data.to_vec())
        }
    };
    Ok(ViewSpec { shape, strides: tensor.strides.clone(), elem, fill, pad: 0 })
}
