//! `vim-train doctor`: checks the machine before a run is queued.

use std::path::PathBuf;

use clap::Args;
use vim_engine::Error;
use vim_engine::device::DeviceName;
use vim_engine::work::doctor::{self, DoctorOptions, PerformanceOptions};

use crate::args::{Overrides, RankArg, count};

const EXAMPLES: &str = "\
Examples:
  vim-train doctor                                    the defaults of a configuration, the first device
  vim-train doctor configs/vim_tiny_imagenet.toml --set data.path=$SCRATCH/imagenet
  srun --gpus=1 --time=5 vim-train doctor --device cuda   on a compute node, which a login node says little about
  vim-train doctor --json > doctor.json
  vim-train doctor --performance --device cuda        also whether times can be trusted, and how the methods compare
  vim-train doctor --performance --skip 4,6 --batch 64 --dim 384 --seqlen 197
  vim-train doctor --ranks                            all GPUs of this machine: do they add what they should, how fast
  vim-train doctor configs/my.toml --ranks 2          two of them; with --device cpu two processes on the CPU

A line each: pass, warn or fail, what, what was found, and what to do about it. warn: a run works, and may be
slow or at risk. fail: it would not work. Nothing is changed; a file of 32 MiB is written to the folder of
run.root, or the one above it that there is, and removed. On a GPU, kernels that have not run there before are
compiled: a minute or less. For a controller of SLURM's that does not answer it waits 10 seconds, and
says so.

--performance adds the seven checks that docs/install.md explains; each may be left out by its number. It is not
part of a plain doctor because it keeps the device and all cores busy, which others on a login node would notice.

--ranks checks nothing but ranks: NCCL, GPUs and networks as found, then sums over all ranks against known numbers
and bits, and their speed. A rank that fails is one line with its exit code.

Exit codes: 0 nothing failed, 1 something did, 2 bad command line, 69 GPU, library or rank not to be had, 78 bad
configuration.";

/// Check this machine: CPU, GPU, libraries, kernels, disks, SLURM; each line says what to do.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Configuration file of the run that is meant; of a sweep's file, its configuration without
    /// the grid. Without a file, the defaults.
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// What is to compute, over the `devices` section of the configuration: auto, cpu, cuda,
    /// cuda:N, wgpu, wgpu:N, tch or tch:N.
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceName>,
    #[command(flatten)]
    performance: PerformanceArgs,
    /// Check ranks instead: this many, or one on each GPU of the configuration, without a file of
    /// the machine; on a CPU two.
    #[arg(long, value_name = "N", value_parser = count, conflicts_with = "performance")]
    ranks: Option<Option<usize>>,
    #[command(flatten)]
    rank: RankArg,
    /// Print one JSON document instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PerformanceArgs {
    /// Also run the seven checks of whether times taken here can be trusted, and compare the
    /// methods; half a minute.
    #[arg(long)]
    performance: bool,
    /// Leave out these of the seven: 1 inputs, 2 synchronisation, 3 threads, 4 code paths, 5
    /// warm-up, 6 operations, 7 methods.
    #[arg(
        long,
        value_name = "N,N",
        value_delimiter = ',',
        requires = "performance",
        value_parser = clap::value_parser!(u8).range(1..=7)
    )]
    skip: Vec<u8>,
    /// Sequences of the scans that are timed: 8 on a GPU, 2 on a CPU where left out.
    #[arg(long, value_name = "B", requires = "performance", value_parser = count)]
    batch: Option<usize>,
    /// Their channels: 512 on a GPU, 128 on a CPU.
    #[arg(long, value_name = "D", requires = "performance", value_parser = count)]
    dim: Option<usize>,
    /// Their tokens: 1024 on a GPU, 256 on a CPU.
    #[arg(long, value_name = "L", requires = "performance", value_parser = count)]
    seqlen: Option<usize>,
    /// States of a channel: 16.
    #[arg(long, value_name = "N", requires = "performance", value_parser = count)]
    dstate: Option<usize>,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<(), Error> {
    let PerformanceArgs { performance, ref skip, batch, dim, seqlen, dstate } = args.performance;
    let skip = skip.clone();
    doctor::run(&DoctorOptions {
        config: args.config.clone(),
        sets: args.overrides.set.clone(),
        device: args.device.clone(),
        performance: PerformanceOptions { performance, skip, batch, dim, seqlen, dstate },
        ranks: args.ranks,
        rank: args.rank.rank.clone(),
        json: args.json,
    })
}
