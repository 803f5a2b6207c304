//! Reads the launch descriptions of `tests/micro` and their data.

// Examples use a part of this.
#![allow(dead_code)]

pub mod launch;

use std::path::{Path, PathBuf};

use serde_json::Value;

/// Folder of the micro-kernels.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/micro")
}

/// One launch.
pub struct Case {
    /// The whole description.
    pub json: Value,
}

impl Case {
    pub fn name(&self) -> &str {
        self.json["name"].as_str().unwrap()
    }

    pub fn kernel(&self) -> String {
        std::fs::read_to_string(folder().join(self.json["kernel"].as_str().unwrap())).unwrap()
    }

    fn description(&self, buffer: &str) -> &Value {
        let all = self.json["buffers"].as_array().unwrap();
        all.iter()
            .find(|b| b["name"] == buffer)
            .unwrap_or_else(|| panic!("{}: no buffer {buffer}", self.name()))
    }

    /// Bytes of a buffer before the launch.
    pub fn input(&self, buffer: &str) -> Vec<u8> {
        let b = self.description(buffer);
        let bytes = b["bytes"].as_u64().unwrap() as usize;
        let data = if let Some(file) = b["file"].as_str() {
            std::fs::read(folder().join(file)).unwrap()
        } else if let Some(seed) = b["pattern"].as_u64() {
            (0..bytes as u64 / 4)
                .flat_map(|i| ((i + seed).wrapping_mul(2654435761) as u32).to_le_bytes())
                .collect()
        } else {
            vec![b["fill"].as_u64().unwrap() as u8; bytes]
        };
        assert_eq!(data.len(), bytes, "{}: {buffer}", self.name());
        data
    }

    /// Expected bytes of a buffer after the launch.
    pub fn expect(&self, buffer: &str) -> Vec<u8> {
        let b = self.description(buffer);
        let data = std::fs::read(folder().join(b["expect"].as_str().unwrap())).unwrap();
        assert_eq!(data.len() as u64, b["bytes"].as_u64().unwrap());
        data
    }

    /// Sections of a buffer as (label, first byte, bytes, description).
    pub fn sections(&self, buffer: &str) -> Vec<(String, usize, usize, Value)> {
        let number = |v: &Value| v.as_u64().unwrap() as usize;
        let Some(list) = self.description(buffer)["sections"].as_array() else { return vec![] };
        list.iter()
            .map(|s| {
                (s["label"].as_str().unwrap().into(), number(&s["offset"]), number(&s["bytes"]), s.clone())
            })
            .collect()
    }

    /// Scalar parameters in order.
    pub fn scalars(&self) -> Vec<u64> {
        let all = self.json["params"].as_array().unwrap();
        all.iter().filter_map(|p| p["u32"].as_u64().or(p["u64"].as_u64())).collect()
    }

    /// The only tensor map.
    pub fn map(&self) -> &Value {
        self.json["params"].as_array().unwrap().iter().find_map(|p| p.get("map")).unwrap()
    }
}

/// Cases of all kernels whose name starts with `prefix`, in order.
pub fn cases(prefix: &str) -> Vec<Case> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder().join("cases")).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let mut out = vec![];
    for f in files.iter().filter(|f| f.file_name().unwrap().to_str().unwrap().starts_with(prefix)) {
        let list: Value = serde_json::from_str(&std::fs::read_to_string(f).unwrap()).unwrap();
        out.extend(list.as_array().unwrap().iter().map(|json| Case { json: json.clone() }));
    }
    assert!(!out.is_empty(), "no cases {prefix}*");
    out
}

/// Little-endian words.
pub fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
}
