//! The grammar of `--arg` and of the other options `NAME=…`.
//!
//! In: texts of the command line. Out: what they say, not yet related to a kernel. No files are read here.

use tileas_emu::host::data::{Elem, Fill};

/// The help on arguments.
pub const HELP: &str = "\
Arguments (--arg NAME=VALUE, by parameter name):
  kt=7  alpha=0.5  kt='ceildiv(a.d1, 64)'
      a scalar: a number, or an integer expression over the tensors (a.d1: extent, a.s0: stride)
  a=200x136xf16[/STRIDES][:INIT[:SEED]]
      a tensor: extents and element type. The type may be left out where the kernel or the launch metadata name it.
      /144,1    strides in elements; default: dense
      INIT      ints (-2 to 2; default), uniform (0 to 1), normal, ramp, special (infinities, NaN, subnormals, …),
                LO..HI (random integers from LO on, below HI: indices), zeros, ones, nan, a number, or @FILE
      SEED      of the data; default: --seed
  a=@in.npy
      a tensor with extents and type of a numpy file. @FILE that is no .npy holds the elements' bytes in row-major order.
Types: f16 bf16 f32 f64 tf32 e4m3 e5m2 ue8m0, i1 i8 i16 i32 i64, u8 u16 u32 u64. Elements of i4 and e2m1
  are passed as i8, two in each: 128x64xi4 is 128x32xi8.

A run prints one line for each tensor: extents, how many elements changed, the FNV-1a hash (64 bits) of the elements'
bytes in row-major order, smallest and largest number, the first elements.

Examples:
  tileas run examples/gemm_f16.tileas --arg a=200x136 --arg b=264x136 --arg bias=264 --arg c=200x264:nan \\
      --arg kt='ceildiv(a.d1, 64)' --mode latest,random --seeds 8 --check
  tileas run k.ptx --launch k.ptx.json --arg x=64xf32:normal:7 --arg y=64xf32:zeros --expect 'y=relu(x)' -o y=y.npy
  tileas run k.ptx --arg table=512x64xf16 --arg rows=96xi32:0..512 --arg out=96x64xf16:nan
  tileas run k.ptx --grid 2 --block 128 --arg out=256xf32:nan --arg n=256";

/// A tensor of the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Extents; `None`: those of the file.
    pub shape: Option<Vec<usize>>,
    /// Element type.
    pub elem: Option<String>,
    /// Strides in elements.
    pub strides: Option<Vec<usize>>,
    /// Contents.
    pub init: Init,
    /// Seed of the contents.
    pub seed: Option<u64>,
}

/// Contents of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// Made up.
    Fill(Fill),
    /// Read.
    File(String),
}

/// Splits `NAME=VALUE`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.trim().to_owned(), value.to_owned()))
        }
        _ => Err("expected NAME=VALUE".into()),
    }
}

/// Up to three extents above 0: `4`, `2,3` or `2,3,1`.
pub fn extents(text: &str) -> Result<[u32; 3], String> {
    let mut out = [1; 3];
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 3 {
        return Err("expected X[,Y[,Z]]".into());
    }
    for (o, part) in out.iter_mut().zip(parts) {
        *o = part.trim().parse().map_err(|_| "expected X[,Y[,Z]]".to_owned())?;
        if *o == 0 {
            return Err("extents are above 0".into());
        }
    }
    Ok(out)
}

/// Whether a text is a tensor by its form: it names an element type or a file.
pub fn looks_like_tensor(text: &str) -> bool {
    text.starts_with('@') || tensor(text).is_ok_and(|t| t.elem.is_some())
}

/// Reads `EXTENTSxTYPE/STRIDES:INIT:SEED`.
pub fn tensor(text: &str) -> Result<Tensor, String> {
    if let Some(file) = text.strip_prefix('@') {
        let init = Init::File(file.to_owned());
        return Ok(Tensor { shape: None, elem: None, strides: None, init, seed: None });
    }
    let (form, init) = match text.split_once(':') {
        Some((form, init)) => (form, Some(init)),
        None => (text, None),
    };
    let (form, strides) = match form.split_once('/') {
        Some((form, list)) => {
            let numbers: Result<Vec<usize>, _> = list.split(',').map(|n| n.trim().parse()).collect();
            (form, Some(numbers.map_err(|_| format!("strides `{list}`"))?))
        }
        None => (form, None),
    };
    let (mut shape, mut rest) = (Vec::new(), form);
    while rest.starts_with(|c: char| c.is_ascii_digit()) {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        shape.push(rest[..end].parse().map_err(|_| format!("extent {}", &rest[..end]))?);
        rest = &rest[end..];
        match rest.strip_prefix('x') {
            Some(more) if !more.is_empty() => rest = more,
            _ if rest.is_empty() => break,
            _ => return Err(format!("`{form}`: expected EXTENTSxTYPE, as in 200x136xf16")),
        }
    }
    let elem = if rest.is_empty() { None } else { Some(rest.to_owned()) };
    if let Some(name) = &elem
        && Elem::by_name(name).is_none()
    {
        let packed = ["i4", "e2m1"].contains(&name.as_str());
        let hint = if packed { "; two to a byte, they are passed as i8, half as many in a row" } else { "" };
        return Err(format!("`{form}`: no element type {name}{hint}"));
    }
    if elem.is_none() && shape.is_empty() {
        return Err("expected EXTENTSxTYPE, as in 200x136xf16".into());
    }
    let (init, seed) = match init {
        None => (Init::Fill(Fill::Ints), None),
        Some(init) => match init.strip_prefix('@') {
            Some(file) => (Init::File(file.to_owned()), None),
            None => {
                let (word, seed) = match init.split_once(':') {
                    Some((word, seed)) => {
                        (word, Some(seed.parse().map_err(|_| format!("`{seed}` is no seed"))?))
                    }
                    None => (init, None),
                };
                let fill = Fill::parse(word).ok_or_else(|| format!("`{word}` is no way to fill a tensor"))?;
                (Init::Fill(fill), seed)
            }
        },
    };
    Ok(Tensor { shape: Some(shape), elem, strides, init, seed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors() {
        let t = tensor("200x136xf16/144,1:normal:7").expect("parses");
        assert_eq!((t.shape, t.elem.as_deref()), (Some(vec![200, 136]), Some("f16")));
        assert_eq!((t.strides, t.init, t.seed), (Some(vec![144, 1]), Init::Fill(Fill::Normal), Some(7)));
        assert_eq!(tensor("64xindex").expect("parses").elem.as_deref(), Some("index"));
        assert_eq!(tensor("8").expect("parses").elem, None);
        assert_eq!(tensor("f32:1.5").expect("parses").shape, Some(vec![]));
        assert_eq!(tensor("4xu8:@a:b").expect("parses").init, Init::File("a:b".into()));
        assert_eq!(tensor("@x.npy").expect("parses").shape, None);
        assert_eq!(tensor("4xi32:-3..5:9").expect("parses").init, Init::Fill(Fill::Range(-3, 5)));
        assert_eq!(tensor("4xi32:2..2").map(|t| t.init), Err("`2..2` is no way to fill a tensor".into()));
        for bad in
            ["", "4x", "x4", "4xq7", "4,4", "4xf16:often", "4xf16:ints:x", "4xf16/a", "99999999999999999999"]
        {
            assert!(tensor(bad).is_err(), "{bad}");
        }
        assert!(looks_like_tensor("4xf32") && !looks_like_tensor("4") && !looks_like_tensor("1.5"));
    }

    #[test]
    fn pairs_and_extents() {
        assert_eq!(pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(pair("a").is_err() && pair("=1").is_err() && pair("a=").is_err());
        assert_eq!(extents("2,3"), Ok([2, 3, 1]));
        assert!(
            extents("").is_err()
                && extents("0").is_err()
                && extents("1,2,3,4").is_err()
                && extents("-1").is_err()
        );
    }
}
