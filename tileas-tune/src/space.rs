//! What may be changed, and to what.

use crate::error::{Code, Error};
use tileas_codegen::Settings;

/// Points of a space, at most.
const MAX_POINTS: usize = 1_000_000;

/// What the values of an axis are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Extents of the tiles along a dimension of a parameter.
    Tile {
        /// Name of the parameter.
        view: String,
        /// Dimension, 0 being the outermost.
        dim: usize,
    },
    /// Values of the compiler's option of the axis' name.
    Option,
}

/// Something that may be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Name: for expressions of arguments, and in results.
    pub name: String,
    /// What it is.
    pub what: What,
    /// What it may be, as written.
    pub values: Vec<String>,
}

/// A choice of one value for each axis, by their positions.
pub type Point = Vec<usize>;

/// All that may be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The axes.
    pub axes: Vec<Axis>,
}

impl Axis {
    /// Reads `bm=c.d0:64,128,256` (extents of the tiles along dimension 0 of `c`; `bm` is their name) or `pipeline-depth=2,3,4` (an option).
    /// `2..6` are all numbers from 2 to 6.
    ///
    /// # Errors
    /// `E1501`: not of this form, a value twice, an option or a value of one that there is not.
    pub fn parse(text: &str) -> Result<Axis, Error> {
        let wrong = |why: &str| Error::new(Code::E1501, format!("axis `{text}`: {why}"));
        let form = "expected NAME=VIEW.dN:VALUE,… or OPTION=VALUE,…";
        let (name, rest) = text.split_once('=').ok_or_else(|| wrong(form))?;
        let (what, list) = match rest.split_once(':') {
            None => (What::Option, rest),
            Some((place, list)) => {
                let (view, dim) = place.rsplit_once(".d").ok_or_else(|| wrong(form))?;
                let dim = dim.parse().map_err(|_| wrong(form))?;
                (What::Tile { view: view.trim().to_owned(), dim }, list)
            }
        };
        let mut values = Vec::new();
        for value in list.split(',').map(str::trim) {
            match value.split_once("..").map(|(a, b)| (a.parse::<u32>(), b.parse::<u32>())) {
                Some((Ok(a), Ok(b))) if a <= b && b - a < 1000 => {
                    values.extend((a..=b).map(|n| n.to_string()));
                }
                Some(_) => return Err(wrong("a range is FROM..TO, of up to 1000 numbers")),
                None => values.push(value.to_owned()),
            }
        }
        let axis = Axis { name: name.trim().to_owned(), what, values };
        axis.check().map_err(|why| wrong(&why))?;
        Ok(axis)
    }

    fn check(&self) -> Result<(), String> {
        if self.name.is_empty() || self.values.is_empty() {
            return Err("a name and at least one value are wanted".into());
        }
        for (n, value) in self.values.iter().enumerate() {
            if self.values[..n].contains(value) {
                return Err(format!("{value} is there twice"));
            }
            match &self.what {
                What::Option => {
                    Settings::default().with(&self.name, value).map_err(|e| e.message)?;
                }
                What::Tile { .. } => {
                    if !value.parse::<u32>().is_ok_and(|n| n.is_power_of_two() && n <= 1 << 16) {
                        return Err(format!("extents are powers of two up to 65536, not `{value}`"));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Space {
    /// A space of these axes.
    ///
    /// # Errors
    /// `E1501`: an axis that is malformed, two of one name, none at all, more than a million points.
    pub fn new(axes: Vec<Axis>) -> Result<Space, Error> {
        for (n, axis) in axes.iter().enumerate() {
            axis.check().map_err(|why| Error::new(Code::E1501, format!("axis {}: {why}", axis.name)))?;
            if axes[..n].iter().any(|a| a.name == axis.name) {
                return Err(Error::new(Code::E1501, format!("two axes are called {}", axis.name)));
            }
        }
        let points = axes.iter().try_fold(1_usize, |n, a| n.checked_mul(a.values.len()));
        if axes.is_empty() || points.is_none_or(|n| n > MAX_POINTS) {
            let text = format!("a space has from 1 to {MAX_POINTS} points, and an axis at least");
            return Err(Error::new(Code::E1501, text));
        }
        Ok(Space { axes })
    }

    /// How many points it has.
    pub fn points(&self) -> usize {
        self.axes.iter().map(|a| a.values.len()).product()
    }

    /// All points, the last axis changing fastest.
    pub fn all(&self) -> impl Iterator<Item = Point> + '_ {
        (0..self.points()).map(|mut n| {
            let mut point: Point = self
                .axes
                .iter()
                .rev()
                .map(|axis| {
                    let i = n % axis.values.len();
                    n /= axis.values.len();
                    i
                })
                .collect();
            point.reverse();
            point
        })
    }

    /// What a point says, by axis.
    pub fn values<'a>(&'a self, point: &'a [usize]) -> impl Iterator<Item = (&'a Axis, &'a str)> {
        self.axes.iter().zip(point).filter_map(|(axis, &i)| Some((axis, axis.values.get(i)?.as_str())))
    }
}
