//! What is launched and how it is run.

use super::report::Fault;
use crate::decode::{CLUSTER_LIMIT, Kernel, Program};
use crate::detect::Detectors;
use crate::exec::cx::Env;
use crate::layout::tma_map::{MapDesc, TensorMap};

/// A kernel argument.
#[derive(Clone, PartialEq, Debug)]
pub enum Arg {
    /// A scalar or pointer as little-endian bytes.
    Bytes(Vec<u8>),
    /// A tensor map.
    Map(Box<MapDesc>),
}

impl Arg {
    /// A 32-bit integer.
    pub fn u32(v: u32) -> Self {
        Arg::Bytes(v.to_le_bytes().to_vec())
    }

    /// A 64-bit integer or pointer.
    pub fn u64(v: u64) -> Self {
        Arg::Bytes(v.to_le_bytes().to_vec())
    }

    /// A float.
    pub fn f32(v: f32) -> Self {
        Arg::Bytes(v.to_le_bytes().to_vec())
    }

    /// A tensor map.
    pub fn map(m: MapDesc) -> Self {
        Arg::Map(Box::new(m))
    }
}

/// A launch.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Launch {
    /// Entry; may be absent when the module has one.
    pub kernel: Option<String>,
    /// CTAs.
    pub grid: [u32; 3],
    /// CTAs of a cluster. Without them `.reqnctapercluster` of the kernel counts, else clusters have one CTA.
    pub cluster: Option<[u32; 3]>,
    /// Threads per CTA.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_smem: u32,
    /// Arguments in order.
    pub args: Vec<Arg>,
}

/// When asynchronous work completes and which warp goes next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Work completes at once; warps run until they wait.
    Fast,
    /// Everything is drawn from a seed.
    Random(u64),
    /// Work completes when nothing else can happen, newest first; warps by seed.
    Latest(u64),
}

/// Options of a run.
#[derive(Copy, Clone, Debug)]
pub struct RunOptions {
    /// Timing.
    pub mode: Mode,
    /// Detectors.
    pub detectors: Detectors,
    /// Whether aligned instructions wait for the diverged lanes of their warp, as code does in which
    /// the assembler found the place where they meet again. Otherwise they are faults.
    pub gather_aligned: bool,
    /// Most warp instructions in all.
    pub max_steps: u64,
    /// Asked every few million warp instructions, a fraction of a second: whether the run is to stop, as a fault. `None`: it is not.
    pub interrupted: Option<fn() -> bool>,
    /// CTAs that run at the same time; whole clusters, one at least. Where all that run wait for a change of global memory, more start, as many as
    /// `max_memory` has room for.
    pub resident: u32,
    /// Most bytes of buffers, module variables and the state of the resident CTAs (registers, local and
    /// shared memory).
    pub max_memory: u64,
    /// Most asynchronous operations of one CTA that are under way at a time.
    pub max_in_flight: u32,
    /// Whether to count what is executed: [`Report::stats`](super::report::Report::stats). Not in an exhaustive search.
    pub stats: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Fast,
            detectors: Detectors::ALL,
            gather_aligned: false,
            max_steps: 1 << 32,
            interrupted: None,
            resident: 1,
            max_memory: 1 << 32,
            max_in_flight: 1 << 14,
            stats: false,
        }
    }
}

/// A fault of the launch itself.
pub fn refuse(message: impl Into<String>) -> Fault {
    Fault {
        code: "launch",
        message: message.into(),
        line: 0,
        source: None,
        text: Box::from(""),
        cta: 0,
        lane: None,
        mask: 0,
        other: None,
        events: Box::default(),
    }
}

/// Checks a launch against its kernel and builds what its CTAs share.
pub fn prepare<'p>(program: &'p Program, launch: &Launch) -> Result<(&'p Kernel, Env), Fault> {
    let Some(k) = program.kernel(launch.kernel.as_deref()) else {
        return Err(refuse(match &launch.kernel {
            Some(name) => format!("there is no kernel {name}"),
            None => "there is no kernel, or several to choose from".into(),
        }));
    };
    let volume = |d: &[u32; 3]| d.iter().try_fold(1u64, |a, &x| a.checked_mul(u64::from(x)));
    let threads = volume(&launch.block).unwrap_or(u64::MAX);
    if threads == 0 || threads > 1024 || !threads.is_multiple_of(32) {
        return Err(refuse(format!(
            "a block of {:?} threads; whole warps up to 1024 threads are emulated",
            launch.block
        )));
    }
    if volume(&launch.grid).is_none_or(|n| n == 0 || n > 1 << 24) {
        return Err(refuse(format!("a grid of {:?} CTAs", launch.grid)));
    }
    if let Some(r) = k.bounds.reqntid
        && r != launch.block
    {
        return Err(refuse(format!("block {:?} where .reqntid is {r:?}", launch.block)));
    }
    if let Some(m) = k.bounds.maxntid
        && volume(&m).is_some_and(|most| threads > most)
    {
        return Err(refuse(format!("block {:?} above .maxntid {m:?}", launch.block)));
    }
    let cluster = cluster(k, launch)?;
    let end = u64::from(k.dynamic_start) + u64::from(launch.dynamic_smem);
    if end > u64::from(crate::decode::SMEM_START + crate::decode::SMEM_LIMIT) {
        return Err(refuse(format!("{} bytes of shared memory", end - u64::from(crate::decode::SMEM_START))));
    }
    if launch.args.len() != k.params.len() {
        return Err(refuse(format!("{} arguments for {} parameters", launch.args.len(), k.params.len())));
    }
    let mut params = vec![0u8; k.param_bytes as usize];
    let mut maps = Vec::new();
    for (a, p) in launch.args.iter().zip(&k.params) {
        let at = p.offset as usize..(p.offset + p.size) as usize;
        match a {
            Arg::Bytes(b) if b.len() == p.size as usize => params[at].copy_from_slice(b),
            Arg::Bytes(b) => {
                return Err(refuse(format!("{} bytes for parameter {} of {}", b.len(), p.name, p.size)));
            }
            Arg::Map(m) => {
                if p.size != 128 || p.align < 64 {
                    return Err(refuse(format!("parameter {} must have 128 bytes aligned to 64", p.name)));
                }
                let map = TensorMap::new(m).map_err(|e| refuse(format!("parameter {}: {e}", p.name)))?;
                params[at].fill(0xA5);
                maps.push((p.offset, map));
            }
        }
    }
    Ok((
        k,
        Env {
            block: launch.block,
            grid: launch.grid,
            cluster,
            explicit_cluster: launch.cluster.is_some() || k.bounds.cluster.is_some(),
            params,
            maps,
            spurious: false,
            max_in_flight: u32::MAX,
            gather_aligned: false,
        },
    ))
}

/// The shape of clusters.
fn cluster(k: &Kernel, launch: &Launch) -> Result<[u32; 3], Fault> {
    let b = &k.bounds;
    let cluster = match (launch.cluster, b.cluster) {
        (Some(c), Some(r)) if c != r => {
            return Err(refuse(format!("clusters of {c:?} CTAs where .reqnctapercluster is {r:?}")));
        }
        (Some(c), _) | (None, Some(c)) => c,
        (None, None) if b.explicit_cluster => {
            return Err(refuse("a kernel with .explicitcluster needs the shape of its clusters"));
        }
        (None, None) => [1; 3],
    };
    let most = b.most_ctas.unwrap_or(CLUSTER_LIMIT).min(CLUSTER_LIMIT);
    let ctas = cluster.iter().try_fold(1u32, |n, &d| n.checked_mul(d));
    if ctas.is_none_or(|n| n == 0 || n > most) {
        return Err(refuse(format!("clusters of {cluster:?} CTAs, at most {most} are possible")));
    }
    if launch.grid.iter().zip(cluster).any(|(&g, c)| !g.is_multiple_of(c)) {
        let grid = launch.grid;
        return Err(refuse(format!("a grid of {grid:?} CTAs is not made of clusters of {cluster:?}")));
    }
    Ok(cluster)
}

/// Registers per thread at entry, where setmaxnreg has an effect; 0 where it is ignored.
pub fn entry_registers(k: &Kernel, threads: u32) -> u32 {
    let b = &k.bounds;
    match (b.maxnreg, b.minnctapersm) {
        (Some(n), _) => n.min(255),
        (None, Some(n)) if b.reqntid.is_some() || b.maxntid.is_some() => {
            (65536 / threads.max(1).saturating_mul(n.max(1)) / 8 * 8).min(255)
        }
        _ => 0,
    }
}
