//! Clusters of CTAs, as a materialised kernel states them.
//!
//! In: the attribute `cluster`. Out: its axis and size, and how CTAs divide a tile that they load together. Source: PTX ISA, `.reqnctapercluster`.

use super::{Attr, AttrData, Function, keys};
use smallvec::SmallVec;

/// Rows after which the pattern of a swizzle repeats: parts begin there.
const SWIZZLE_ROWS: u32 = 8;
/// CTAs of a cluster at most, where a kernel asks for more than every device has. Source: CUDA C++ programming guide, thread block clusters.
const MAX_CTAS: u32 = 16;

/// The dimension of a tile whose extent is divided among `ctas`, so that the parts lie one behind the other: the first of more than one row.
pub(crate) fn parted(dims: &[u32], ctas: u32) -> Option<usize> {
    let (_, rows) = dims.split_last()?;
    let first = rows.iter().position(|&n| n > 1)?;
    let all = rows.iter().try_fold(1_u32, |all, &n| all.checked_mul(n))?;
    let whole = |n: u32| n.is_multiple_of(ctas.max(1));
    (whole(rows[first]) && whole(all) && (all / ctas.max(1)).is_multiple_of(SWIZZLE_ROWS)).then_some(first)
}

/// The cluster of a kernel: its axis and its CTAs, if it has more than one. They lie along one axis: no other cluster is one.
pub fn cluster_of(func: &Function) -> Option<(usize, u32)> {
    let AttrData::Array(list) = func.attr_data(func.attrs.get(keys::CLUSTER)?) else { return None };
    let size = |&a: &Attr| match func.attr_data(a) {
        AttrData::Int(n, _) => u32::try_from(*n).ok().filter(|n| (1..=MAX_CTAS).contains(n)),
        _ => None,
    };
    let sizes: Option<SmallVec<[u32; 3]>> = list.iter().map(size).collect();
    let mut longer = sizes?.into_iter().enumerate().filter(|(_, n)| *n > 1);
    longer.next().filter(|_| longer.next().is_none())
}
