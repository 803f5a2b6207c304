//! What is made of a kernel once and kept: PTX, machine code, metadata.
//!
//! As bytes: the length of the head (four bytes, little-endian), the head (JSON), the machine code. Reading is total; whatever is not
//! such bytes is `None`. That they are the ones that were written is the caches' business.

use crate::cubin::Cubin;
use serde::{Deserialize, Serialize};
use tileas_launch::LaunchMetadata;

/// A compiled kernel.
#[derive(Clone, Debug)]
pub(crate) struct Artifact {
    pub metadata: LaunchMetadata,
    pub ptx: String,
    /// None where PTX is what runs, or what the device is given.
    pub machine_code: Option<Cubin>,
    /// What made the machine code.
    pub assembler: String,
    pub warnings: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Head {
    metadata: String,
    ptx: String,
    assembler: String,
    warnings: Vec<String>,
}

impl Artifact {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Artifact { metadata, ptx, machine_code, assembler, warnings } = self;
        let machine_code = machine_code.as_ref().map_or(&[][..], Cubin::bytes);
        let head = Head {
            metadata: metadata.to_json(),
            ptx: ptx.clone(),
            assembler: assembler.clone(),
            warnings: warnings.clone(),
        };
        let head = serde_json::to_vec(&head).unwrap_or_default();
        let mut bytes = Vec::with_capacity(4 + head.len() + machine_code.len());
        bytes.extend((head.len() as u32).to_le_bytes());
        bytes.extend(head);
        bytes.extend(machine_code);
        bytes
    }

    /// From bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Artifact> {
        let (len, rest) = bytes.split_first_chunk()?;
        let (head, machine_code) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        let Head { metadata, ptx, assembler, warnings } = serde_json::from_slice(head).ok()?;
        let metadata = tileas_launch::json::read(&metadata).ok()?.pop()?;
        let machine_code = match machine_code {
            [] => None,
            bytes => Some(Cubin::new(bytes).ok()?),
        };
        Some(Artifact { metadata, ptx, machine_code, assembler, warnings })
    }
}
