//! Runs on a device of the JIT what is set up for the emulator.
//!
//! In: PTX with its launch metadata, and buffers, arguments and grid as the emulator takes them. The buffers go to the device, addresses are
//! exchanged for those there, and what the kernel leaves comes back, so that one comparison judges both. Needs a device whose memory
//! holds the buffers; the emulator is one, which is how this module is tested where there is no GPU.

use anyhow::{Context as _, Result, ensure};
use tileas_emu::{BufferId, Memory};
use tileas_jit::{Device, Elem, Jit, Kernel, KernelArg, Stream, Tensor};
use tileas_launch::{Arg, LaunchMetadata};

/// How often a kernel runs on the same input: what depends on timing shows in one of them, with luck.
pub const RUNS: usize = 3;

/// A device, and what launches on it.
pub struct Runner {
    device: Device,
    jit: Jit,
    stream: Stream,
}

/// One launch as the emulator takes it.
pub struct Launch<'a> {
    /// Arguments, with the emulator's addresses.
    pub args: &'a [Arg],
    /// CTAs along x, y, z.
    pub grid: [u32; 3],
    /// All memory that the arguments lead to.
    pub buffers: &'a [BufferId],
    /// Words of buffers that are addresses, by byte.
    pub pointers: &'a [(BufferId, usize)],
}

impl Runner {
    /// For a device.
    ///
    /// # Errors
    /// The device has no assembler or makes no stream.
    pub fn new(device: Device) -> Result<Runner> {
        Ok(Runner { jit: Jit::new(&device)?, stream: device.stream()?, device })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Assembles and loads a kernel.
    ///
    /// # Errors
    /// What the assembler or the driver says.
    pub fn load(&self, ptx: &str, metadata: &LaunchMetadata) -> Result<Kernel> {
        Ok(self.jit.kernel_of_ptx(ptx, metadata)?)
    }

    /// Runs a kernel: memory afterwards is what it leaves.
    ///
    /// # Errors
    /// A launch that is refused or fails, or arguments outside all buffers.
    pub fn run(&self, kernel: &Kernel, launch: &Launch<'_>, memory: &mut Memory) -> Result<()> {
        let mut there: Vec<(u64, Tensor)> = Vec::new();
        for &id in launch.buffers {
            let block = self.device.zeros(Elem::U8, &[memory.bytes(id).len() as i64])?;
            there.push((memory.address(id), block));
        }
        // Empty views may lie at a buffer's end.
        let find = |address: u64| -> Result<(&Tensor, usize)> {
            let inside =
                |(first, block): &&(u64, Tensor)| address >= *first && address - first <= block.len() as u64;
            let (first, block) =
                there.iter().find(inside).with_context(|| format!("no buffer at {address:#x}"))?;
            Ok((block, (address - first) as usize))
        };
        for (&id, (_, block)) in launch.buffers.iter().zip(&there) {
            let mut bytes = memory.bytes(id).to_vec();
            for &(_, at) in launch.pointers.iter().filter(|p| p.0 == id) {
                let word = bytes.get_mut(at..at + 8).context("an address beyond its buffer")?;
                let (block, offset) = find(u64::from_le_bytes(word.try_into()?))?;
                word.copy_from_slice(&(block.address() + offset as u64).to_le_bytes());
            }
            block.clone().write_bytes(&bytes)?;
        }
        let metadata = kernel.metadata();
        ensure!(launch.args.len() == metadata.args.len(), "other arguments than the kernel's");
        let mut args: Vec<KernelArg<'_>> = Vec::new();
        let views: Vec<Option<Tensor>> = launch
            .args
            .iter()
            .zip(&metadata.args)
            .map(|(arg, meta)| {
                let Arg::View(view) = arg else { return Ok(None) };
                let elem = meta.kind.elem().or(view.elem).unwrap_or(Elem::U8);
                let (block, byte) = find(view.address)?;
                Ok(Some(block.part(byte, elem, &view.extents, &view.strides)?))
            })
            .collect::<Result<_>>()?;
        for (arg, view) in launch.args.iter().zip(&views) {
            args.push(match view {
                Some(tensor) => KernelArg::Tensor(tensor, true),
                None => KernelArg::Number(arg.clone()),
            });
        }
        let also: Vec<&Tensor> = there.iter().map(|(_, block)| block).collect();
        kernel.launch_with(&self.stream, Some(launch.grid), &args, &also)?;
        self.stream.synchronize()?;
        for (&id, (_, block)) in launch.buffers.iter().zip(&there) {
            let before = memory.bytes(id).to_vec();
            let bytes = memory.bytes_mut(id).context("no such buffer")?;
            block.read_bytes(bytes)?;
            for &(_, at) in launch.pointers.iter().filter(|p| p.0 == id) {
                bytes[at..at + 8].copy_from_slice(&before[at..at + 8]);
            }
        }
        Ok(())
    }
}
