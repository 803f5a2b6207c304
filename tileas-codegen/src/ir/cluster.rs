//! Clusters of CTAs, as a materialised kernel states them.
//!
//! In: the attribute `cluster`. Out: its axis and size, and how CTAs divide a tile that they load together. Source: PTX ISA, `.reqnctapercluster`.

use super::{AttrData, Function, keys};

/// Rows after which the pattern of a swizzle repeats: parts begin there.
const SWIZZLE_ROWS: u32 = 8;

/// The dimension of a tile whose extent is divided among `ctas`, so that the parts lie one behind the other: the first of more than one row.
pub(crate) fn parted(dims: &[u32], ctas: u32) -> Option<usize> {
    let (_, rows) = dims.split_last()?;
    let first = rows.iter().position(|&n| n > 1)?;
    let all = rows.iter().try_fold(1_u32, |all, &n| all.checked_mul(n))?;
    let whole = |n: u32| n.is_multiple_of(ctas.max(1));
    (whole(rows[first]) && whole(all) && (all / ctas.max(1)).is_multiple_of(SWIZZLE_ROWS)).then_some(first)
}

/// The cluster of a kernel: its axis and its CTAs, if it has more than one.
pub(crate) fn cluster_of(func: &Function) -> Option<(usize, u32)> {
    let AttrData::Array(list) = func.attr_data(func.attrs.get(keys::CLUSTER)?) else { return None };
    list.iter().enumerate().find_map(|(axis, &a)| match func.attr_data(a) {
        AttrData::Int(n, _) if (2..=16).contains(n) => Some((axis, u32::try_from(*n).ok()?)),
        _ => None,
    })
}
