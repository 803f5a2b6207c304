//! Files damaged at random, and random bytes behind a header: no panic, and what is accepted survives being written.

use crate::common;

use arbtest::arbitrary::{Result, Unstructured};
use common::{FILES, check};

/// A file with a few bytes changed, left out, put in or taken from another.
fn damaged(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut bytes = u.choose(FILES)?.1.to_vec();
    for _ in 0..u.int_in_range(1..=4)? {
        let at = u.int_in_range(8..=bytes.len() - 1)?;
        match u.int_in_range(0..=5)? {
            0 => bytes[at] = u.arbitrary()?,
            1 => bytes[at] ^= 1 << u.int_in_range(0..=7)?,
            2 => bytes[at] = *u.choose(&[0, 1, 2, 0x7f, 0x80, 0xff, 0xcb])?,
            3 => _ = bytes.remove(at),
            4 => bytes.insert(at, u.arbitrary()?),
            _ => {
                let other = u.choose(FILES)?.1;
                let (from, n) = (u.int_in_range(8..=other.len() - 1)?, u.int_in_range(1..=16)?);
                let part = &other[from..other.len().min(from + n)];
                bytes.splice(at..at, part.iter().copied());
            }
        }
    }
    Ok(bytes)
}

#[test]
fn damaged_files_do_no_harm() {
    let (mut all, mut accepted) = (0, 0);
    arbtest::arbtest(|u| {
        let ok = check(&damaged(u)?);
        (all, accepted) = (all + 1, accepted + u32::from(ok));
        Ok(())
    });
    // As many as there is time for.
    assert!(all > 20 && accepted > 0, "{accepted} of {all} are still modules");
}

#[test]
fn any_bytes_do_no_harm() {
    arbtest::arbtest(|u| {
        let mut bytes = b"\x7fTileIR\0\x0d".to_vec();
        bytes.push(u.int_in_range(1..=5)?);
        bytes.extend([0, 0]);
        bytes.extend(u.bytes(u.len())?);
        check(&bytes);
        Ok(())
    });
}
