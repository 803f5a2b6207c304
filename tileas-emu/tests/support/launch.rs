//! Launches a case of `tests/micro` in the emulator.

use serde_json::Value;
use tileas_emu::{
    Arg, BufferId, Launch, Machine, MapDesc, Memory, NoTrace, OobFill, Program, RunOptions, Swizzle, TmaType,
};

use crate::support::Case;

/// Final bytes of the buffers with expectations, by name, or the fault.
pub type Outcome = Result<Vec<(String, Vec<u8>)>, String>;

fn numbers(v: &Value) -> Vec<u64> {
    v.as_array().map(|a| a.iter().filter_map(Value::as_u64).collect()).unwrap_or_default()
}

fn map(m: &Value, address: u64) -> Option<MapDesc> {
    let small = |key: &str| numbers(&m[key]).into_iter().map(|v| v as u32).collect();
    Some(MapDesc {
        elem: TmaType::by_name(m["type"].as_str()?)?,
        address,
        dims: numbers(&m["dims"]),
        strides: numbers(&m["strides"]),
        box_dims: small("box"),
        element_strides: small("element_strides"),
        swizzle: Swizzle::by_name(m["swizzle"].as_str()?)?,
        oob: if m["oob"] == "nan" { OobFill::Nan } else { OobFill::Zero },
    })
}

/// Runs one case.
pub fn run(case: &Case, options: RunOptions) -> Outcome {
    let program = Program::parse(&case.kernel()).map_err(|e| format!("{e:?}"))?;
    let mut memory = Memory::new();
    let mut ids: Vec<(String, BufferId, bool)> = vec![];
    for b in case.json["buffers"].as_array().into_iter().flatten() {
        let name = b["name"].as_str().unwrap_or_default();
        let id = memory.alloc(case.input(name));
        ids.push((name.into(), id, b.get("expect").is_some()));
    }
    let address = |memory: &Memory, name: &Value| {
        ids.iter()
            .find(|(n, ..)| name == n.as_str())
            .map(|(_, id, _)| memory.address(*id))
            .ok_or(format!("no buffer {name}"))
    };
    let mut args = vec![];
    for p in case.json["params"].as_array().into_iter().flatten() {
        args.push(if let Some(v) = p["u32"].as_u64() {
            Arg::u32(v as u32)
        } else if let Some(v) = p["u64"].as_u64() {
            Arg::u64(v)
        } else if let Some(m) = p.get("map") {
            Arg::map(map(m, address(&memory, &m["buffer"])?).ok_or(format!("bad map {m}"))?)
        } else {
            Arg::u64(address(&memory, &p["buffer"])?)
        });
    }
    let triple = |key: &str| {
        let v = numbers(&case.json[key]);
        [v[0] as u32, v[1] as u32, v[2] as u32]
    };
    let launch = Launch {
        kernel: case.json["entry"].as_str().map(String::from),
        grid: triple("grid"),
        cluster: Some(triple("cluster")).filter(|c| *c != [1; 3]),
        block: triple("block"),
        dynamic_smem: case.json["smem"].as_u64().unwrap_or(0) as u32,
        args,
    };
    Machine::run(&program, &launch, &mut memory, &options, &mut NoTrace).map_err(|e| format!("{e:?}"))?;
    Ok(ids.into_iter().filter(|(.., e)| *e).map(|(n, id, _)| (n, memory.bytes(id).to_vec())).collect())
}
