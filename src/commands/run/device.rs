//! `--device`: the same tensors and the same judge, with the kernel on a GPU.

use super::judge::Judge;
use super::launch::Setup;
use super::{Args, Kernel, usage};
use crate::Failure;
use crate::diagnostics::complain;
use crate::input::say;
use std::collections::BTreeMap;
use tileas_emu::Memory;
use tileas_jit::{Device, Elem, Error, Jit, KernelArg, Tensor};
use tileas_launch::Arg;

/// Where a kernel runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// On the CPU.
    Emulator,
    /// On a GPU, by its number.
    Cuda(u32),
}

/// Reads the option.
pub fn parse(text: &str) -> Result<Choice, String> {
    match text.split_once(':').unwrap_or((text, "0")) {
        ("emulator", "0") => Ok(Choice::Emulator),
        ("cuda", n) => n.parse().map(Choice::Cuda).map_err(|e| format!("the number of a GPU: {e}")),
        _ => Err("expected `emulator`, `cuda` or `cuda:N`".to_owned()),
    }
}

/// The GPU that was asked for; none for the emulator.
pub fn open(args: &Args) -> Result<Option<Device>, Failure> {
    if args.device == Choice::Emulator {
        return Ok(None);
    }
    let alone =
        args.mode == [super::Timing::Fast] && args.seeds == 1 && args.trace.is_none() && !args.counts();
    if !alone || args.resident != 1 {
        return usage("--mode, --seeds, --resident, --trace, --stats and --stats-json are for the emulator");
    }
    gpu(args.device)
}

/// The GPU of a choice.
pub fn gpu(choice: Choice) -> Result<Option<Device>, Failure> {
    let Choice::Cuda(n) = choice else { return Ok(None) };
    #[cfg(feature = "cuda")]
    return Device::cuda(n).map(Some).map_err(report);
    #[cfg(not(feature = "cuda"))]
    usage(format!("no GPU {n}: this `tileas` was built without the feature `cuda`"))
}

/// Prints an error of the device.
fn report(e: Error) -> Failure {
    complain(&format!("error[{}]: {}\n", e.code, e.message));
    Failure::Diagnostics
}

/// Runs the launch and compares what it leaves.
pub fn run(
    device: &Device,
    grid: Option<[u32; 3]>,
    kernel: &Kernel,
    setup: &Setup,
    judge: &Judge,
) -> Result<Memory, Failure> {
    let Some(metadata) = &kernel.metadata else { return usage("--device cuda needs launch metadata") };
    let launched = || -> Result<Memory, Error> {
        let jit = Jit::new(device)?;
        let code = jit.kernel_of_ptx(kernel.ptx.text(), metadata)?;
        // All bytes of each tensor, with what lies between its elements, and a window onto the elements.
        let mut tensors: BTreeMap<&str, (Tensor, Tensor)> = BTreeMap::new();
        for (name, v) in &setup.views {
            let (placed, bytes) = (&v.placed, setup.memory.bytes(v.placed.buffer));
            let elem = Elem::by_name(&v.elem).unwrap_or(Elem::U8);
            let size = elem.bytes() as usize;
            let mut all = device.zeros(elem, &[(bytes.len() / size) as i64])?;
            all.write_bytes(bytes)?;
            let list = |all: &[usize]| all.iter().map(|&n| n as i64).collect::<Vec<i64>>();
            let window = all.window(placed.offset / size, &list(&placed.shape), &list(&placed.strides))?;
            tensors.insert(name, (all, window));
        }
        let missing = |name: &str| {
            Error::from(tileas_launch::Error {
                code: tileas_launch::Code::E1102,
                message: format!("{} needs {name}", metadata.kernel),
            })
        };
        let mut args = Vec::with_capacity(metadata.args.len());
        for arg in &metadata.args {
            args.push(match (tensors.get(arg.name.as_str()), setup.args.get(&arg.name)) {
                (Some((_, window)), _) => KernelArg::Tensor(window, true),
                (None, Some(number @ (Arg::Int(_) | Arg::Float(_)))) => KernelArg::Number(number.clone()),
                _ => return Err(missing(&arg.name)),
            });
        }
        let stream = device.stream()?;
        match grid {
            Some(grid) => code.launch_grid(&stream, grid, &args)?,
            None => code.launch(&stream, &args)?,
        }
        stream.synchronize()?;
        let mut memory = setup.memory.clone();
        for (name, (all, _)) in &tensors {
            if let Some(bytes) = setup.views.get(*name).and_then(|v| memory.bytes_mut(v.placed.buffer)) {
                all.read_bytes(bytes)?;
            }
        }
        Ok(memory)
    };
    let memory = launched().map_err(report)?;
    say(&format!("on {}", device.name()))?;
    judge.compare(setup, &memory).map_err(|message| {
        complain(&format!("error[result]: {message}\n"));
        Failure::Diagnostics
    })?;
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// What is done with a GPU, done with the emulator behind the same interface.
    #[test]
    fn tensors_go_to_a_device_and_come_back() {
        let kernel = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/gemm_f16.tileas");
        let run = |expect: &str, c: &str| {
            let list = ["a=40x72", "b=24x72", "bias=24", c, "kt=2"].into_iter().flat_map(|a| ["--arg", a]);
            let line = ["run", kernel, "--check", "--expect", expect].into_iter().chain(list);
            let args = Line::try_parse_from(line).expect("a legal command").args;
            let kernel = super::super::compile(&args, None)?;
            let setup = Setup::new(&args, &kernel, 4)?;
            let judge = Judge::new(&args, &kernel, &setup)?;
            super::run(&Device::emulator(), None, &kernel, &setup, &judge)
        };
        let right = "c=relu(a @ b.T + bias)";
        assert!(run(right, "c=40x24:nan").is_ok());
        // Rows with a gap between them, whose bytes must stay.
        assert!(run(right, "c=40x24/32,1:nan").is_ok());
        assert!(run("c=a @ b.T + bias", "c=40x24:nan").is_err());
    }
}
