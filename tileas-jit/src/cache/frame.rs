//! What an entry looks like outside of this process.
//!
//! Magic and version (8 bytes), the key (32), the length of the contents (8, little-endian), a hash (32), the contents. The hash is
//! SHA-256 of all else; for a signed store HMAC-SHA-256. Reading is total.

use super::Key;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// Magic, and the version of this layout.
const MAGIC: &[u8; 8] = b"tileas\x00\x01";
/// Bytes before the contents.
pub const HEAD: usize = 8 + 32 + 8 + 32;

/// The hash of an entry's other parts.
fn digest(key: &Key, contents: &[u8], secret: Option<&[u8]>) -> [u8; 32] {
    let len = (contents.len() as u64).to_le_bytes();
    let parts: [&[u8]; 4] = [MAGIC, &key.0, &len, contents];
    match secret.map(Hmac::<Sha256>::new_from_slice) {
        // Keys of any length are taken.
        Some(Ok(mut mac)) => {
            parts.iter().for_each(|p| mac.update(p));
            mac.finalize().into_bytes().into()
        }
        _ => {
            let mut hash = Sha256::new();
            parts.iter().for_each(|p| hash.update(p));
            hash.finalize().into()
        }
    }
}

/// The entry of a key.
pub fn write(key: &Key, contents: &[u8], secret: Option<&[u8]>) -> Vec<u8> {
    let mut entry = Vec::with_capacity(HEAD + contents.len());
    entry.extend(MAGIC);
    entry.extend(key.0);
    entry.extend((contents.len() as u64).to_le_bytes());
    entry.extend(digest(key, contents, secret));
    entry.extend(contents);
    entry
}

/// The contents of a key's entry.
///
/// # Errors
/// What is wrong with it.
pub fn read(key: &Key, mut entry: Vec<u8>, secret: Option<&[u8]>) -> Result<Vec<u8>, &'static str> {
    let Some((head, contents)) = entry.split_first_chunk::<HEAD>() else { return Err("it is cut off") };
    if head[..8] != *MAGIC {
        return Err(if head[..6] == MAGIC[..6] {
            "it is of another version"
        } else {
            "it is something else"
        });
    }
    if head[8..40] != key.0 {
        return Err("it is another key's");
    }
    if head[40..48] != (contents.len() as u64).to_le_bytes() {
        return Err("it is not as long as it says");
    }
    let want = digest(key, contents, secret);
    // Every byte is looked at, wherever the first difference is: time says nothing of the right hash.
    if head[48..].iter().zip(want).fold(0, |all, (a, b)| all | (a ^ b)) != 0 {
        return Err(if secret.is_some() { "it is not signed with the key" } else { "it is damaged" });
    }
    entry.drain(..HEAD);
    Ok(entry)
}
