//! Which PTX a release of CUDA knows.
//!
//! In: a release, or the text of a module. Out: versions of PTX.

/// Major and minor number of a release.
type Release = (u32, u32);
/// Of a version of PTX.
type Version = (u8, u8);

/// Releases and the PTX that came with them. Source: PTX ISA, release notes. Rows up to 13.5 except 12.0, 12.2, 12.3, 12.5, 12.7 and 13.4
/// were tried: the release takes that version and refuses the next.
const RELEASES: &[(Release, Version)] = &[
    ((11, 8), (7, 8)),
    ((12, 0), (8, 0)),
    ((12, 1), (8, 1)),
    ((12, 2), (8, 2)),
    ((12, 3), (8, 3)),
    ((12, 4), (8, 4)),
    ((12, 5), (8, 5)),
    ((12, 7), (8, 6)),
    ((12, 8), (8, 7)),
    ((12, 9), (8, 8)),
    ((13, 0), (9, 0)),
    ((13, 1), (9, 1)),
    ((13, 2), (9, 2)),
    ((13, 3), (9, 3)),
    ((13, 4), (9, 4)),
    ((13, 5), (9, 5)),
];

/// The latest PTX that a release of CUDA knows: of the last row that is no later; (0, 0) before 11.8.
pub fn ptx_of_release(release: (u32, u32)) -> (u8, u8) {
    RELEASES.iter().rev().find(|row| row.0 <= release).map_or((0, 0), |row| row.1)
}

/// What the `.version` line of a module says; `None`: there is none, or not at the start of a line.
pub fn ptx_version(ptx: &str) -> Option<(u8, u8)> {
    let text = ptx.lines().find_map(|l| l.trim_start().strip_prefix(".version"))?;
    let (major, minor) = text.split_whitespace().next()?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The release in `Cuda compilation tools, release 13.5, V13.5.37`.
pub(super) fn release(text: &str) -> Option<(u32, u32)> {
    let number = text.split_once("release ")?.1;
    let number = number.split(|c: char| c != '.' && !c.is_ascii_digit()).next()?;
    let (major, minor) = number.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_know_their_ptx() {
        assert!(RELEASES.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
        for (given, want) in [
            ((9, 2), (0, 0)),
            ((12, 0), (8, 0)),
            ((12, 6), (8, 5)),
            ((12, 10), (8, 8)),
            ((13, 5), (9, 5)),
            ((14, 0), (9, 5)),
        ] {
            assert_eq!(ptx_of_release(given), want, "{given:?}");
        }
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(ptx_version("// .version 1.0\n\n .version 8.6 // x\n.target sm_90a"), Some((8, 6)));
        for text in ["", ".target sm_90", ".version", ".version 8", ".version a.b", ".version 999.0"] {
            assert_eq!(ptx_version(text), None, "{text:?}");
        }
        assert_eq!(release("Cuda compilation tools, release 13.5, V13.5.37"), Some((13, 5)));
        for text in ["", "release ", "release x.y", "release 13", "V13.5.37"] {
            assert_eq!(release(text), None, "{text:?}");
        }
    }
}
