//! Runs a launch that is described on standard input, one item a line:
//!
//! ```text
//! ptx FILE | kernel NAME | grid X Y Z | block X Y Z | smem BYTES | mode fast|random N|latest N
//! detectors all|none | resident N | steps N
//! buffer FILE                  read before the run, written after it
//! arg HEX                      little-endian bytes of an argument
//! map TYPE ADDRESS dims D,… strides S,… box B,… [step E,…] [swizzle NAME] [oob nan]
//! ```
//!
//! Prints the report, or the fault with its events, and then has exit status 1.

use std::error::Error;
use tileas_emu::*;

fn list<T: std::str::FromStr>(t: &str) -> Result<Vec<T>, String> {
    t.split(',').filter(|x| !x.is_empty()).map(|x| x.parse().map_err(|_| format!("number `{x}`"))).collect()
}

fn three(words: &[&str]) -> Result<[u32; 3], Box<dyn Error>> {
    match words {
        [x, y, z] => Ok([x.parse()?, y.parse()?, z.parse()?]),
        _ => Err("three numbers expected".into()),
    }
}

fn tensor_map(words: &[&str]) -> Result<MapDesc, Box<dyn Error>> {
    let [ty, address, rest @ ..] = words else { return Err("map TYPE ADDRESS".into()) };
    let mut m = MapDesc {
        elem: TmaType::by_name(ty).ok_or("unknown type")?,
        address: address.parse()?,
        dims: vec![],
        strides: vec![],
        box_dims: vec![],
        element_strides: vec![],
        swizzle: Swizzle::None,
        oob: OobFill::default(),
    };
    for pair in rest.chunks(2) {
        match pair {
            ["dims", v] => m.dims = list(v)?,
            ["strides", v] => m.strides = list(v)?,
            ["box", v] => m.box_dims = list(v)?,
            ["step", v] => m.element_strides = list(v)?,
            ["swizzle", v] => m.swizzle = Swizzle::by_name(v).ok_or("unknown swizzle")?,
            ["oob", "nan"] => m.oob = OobFill::Nan,
            _ => return Err(format!("unknown part of a map: {pair:?}").into()),
        }
    }
    Ok(m)
}

fn main() -> Result<(), Box<dyn Error>> {
    let text = std::io::read_to_string(std::io::stdin())?;
    let (mut ptx, mut launch, mut o) = (String::new(), Launch::default(), RunOptions::default());
    let (mut memory, mut buffers) = (Memory::new(), Vec::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match &words[..] {
            ["ptx", p] => ptx = std::fs::read_to_string(p)?,
            ["kernel", n] => launch.kernel = Some(n.to_string()),
            ["grid", d @ ..] => launch.grid = three(d)?,
            ["block", d @ ..] => launch.block = three(d)?,
            ["smem", n] => launch.dynamic_smem = n.parse()?,
            ["resident", n] => o.resident = n.parse()?,
            ["steps", n] => o.max_steps = n.parse()?,
            ["mode", "fast"] => o.mode = Mode::Fast,
            ["mode", "random", n] => o.mode = Mode::Random(n.parse()?),
            ["mode", "latest", n] => o.mode = Mode::Latest(n.parse()?),
            ["detectors", "all"] => o.detectors = Detectors::ALL,
            ["detectors", "none"] => o.detectors = Detectors::NONE,
            ["buffer", p] => buffers.push((p.to_string(), memory.alloc(std::fs::read(p)?))),
            ["arg", hex] => {
                let byte = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16);
                launch.args.push(Arg::Bytes((0..hex.len() / 2).map(byte).collect::<Result<_, _>>()?));
            }
            ["map", rest @ ..] => launch.args.push(Arg::map(tensor_map(rest)?)),
            [] => {}
            _ => return Err(format!("unknown line `{line}`").into()),
        }
    }
    let program = match Program::parse(&ptx) {
        Ok(p) => p,
        Err(e) => {
            for x in &e {
                println!("{x}");
            }
            std::process::exit(1);
        }
    };
    let result = Machine::run(&program, &launch, &mut memory, &o, &mut NoTrace);
    for (path, id) in &buffers {
        std::fs::write(path, memory.bytes(*id))?;
    }
    match result {
        Ok(r) => println!("{r:?}"),
        Err(f) => {
            println!("{f}");
            for e in &f.events {
                println!("  {e}");
            }
            std::process::exit(1);
        }
    }
    Ok(())
}
