//! `vim-train doctor --ranks`: whether ranks exchange what they should, and how fast.

use std::time::Instant;

use serde_json::json;
use vim_comm::{Comm, check};
use vim_run::host_name;

use super::{DoctorOptions, Finding, Told, network};
use crate::config::{Config, DevicesConfig};
use crate::device::machine::Machine;
use crate::device::{self, SelectedDevice, cuda_libraries, threads};
use crate::error::Error;
use crate::train::ranks::{Team, start};

const MEGA: usize = 1_000_000;
/// Lengths of sums that are checked: one number, one that nothing divides, a large one.
const CHECKED: [usize; 2] = [1, 511];
/// The gradients of Vim-Ti in f32.
const TINY: usize = 7_200_256;

/// Starts the ranks, or is one of them.
pub(super) fn run(options: &DoctorOptions, mut config: Config) -> Result<(), Error> {
    if let Some(name) = &options.device {
        let (backend, gpus) = (name.backend, name.gpus());
        config.devices = DevicesConfig { backend, gpus, ..config.devices };
    }
    if let Some(team) = options.rank.as_deref().map(Team::of).transpose()? {
        return check_ranks(&team, &config, options.json);
    }
    let devices = devices(options, &config.devices)?;
    match devices[..] {
        [_] => check_ranks(&Team::of_one(), &config, options.json),
        _ => start(&config, devices)?.result,
    }
}

/// The GPU of each rank.
fn devices(options: &DoctorOptions, devices: &DevicesConfig) -> Result<Vec<Option<usize>>, Error> {
    let flag = "--ranks";
    if let Some(count) = options.ranks.flatten() {
        return device::of_ranks(devices, count, flag);
    }
    if options.config.is_some() && options.device.is_none() {
        let gpus = device::gpus(devices)?;
        let several = gpus.into_iter().map(Some).collect::<Vec<_>>();
        return Ok(if several.is_empty() { vec![None] } else { several });
    }
    let is_numbered = options.device.as_ref().is_some_and(|device| device.number.is_some());
    let count = match device::cuda_gpus(devices) {
        _ if is_numbered => 1,
        0 => 2,
        visible => visible,
    };
    device::of_ranks(devices, count, flag)
}

/// What this rank finds; rank 0 prints it.
fn check_ranks(team: &Team, config: &Config, json: bool) -> Result<(), Error> {
    threads::start(config.devices.threads)?;
    let chosen = team.device(&config.devices)?;
    let mut told = team.is_lead().then(|| Told::new(json));
    let mut tell = |finding: Finding| told.as_mut().map_or(Ok(()), |told| told.add(finding));
    if team.is_lead() {
        let machine = Machine::this();
        tell(network::variables(&machine))?;
        if chosen.is_cuda() {
            tell(peers(device::cuda_gpus(&config.devices)))?;
        }
        tell(network::interfaces(&machine))?;
        tell(network::infiniband(&machine))?;
    }
    let began = Instant::now();
    let comm = team.join(config, &chosen)?;
    let joined = began.elapsed().as_secs_f64();
    let own = format!("{} on {}", chosen.with_hardware(), host_name());
    let ranks = comm.gather(own.as_bytes())?;
    let ranks: Vec<String> = ranks
        .iter()
        .enumerate()
        .map(|(rank, name)| format!("{rank} {}", String::from_utf8_lossy(name)))
        .collect();
    let detail = format!("{}, joined in {joined:.2} s: {}", team.size(), ranks.join("; "));
    tell(Finding::pass("ranks", detail).with([("joined_s", json!(joined))]))?;
    tell(library(&comm, &chosen))?;
    if comm.size() > 1 {
        exchange(&comm, &chosen, tell)?;
    } else {
        let advice = "several GPUs are needed; VIM_TRAIN_SHARE_GPU=1 lets --ranks 2 share one";
        tell(Finding::warn("sums", "one rank exchanges nothing", advice))?;
    }
    comm.close()?;
    told.map_or(Ok(()), |told| told.conclude(None))
}

/// Sums, and their speed.
fn exchange(
    comm: &Comm,
    chosen: &SelectedDevice,
    mut tell: impl FnMut(Finding) -> Result<(), Error>,
) -> Result<(), Error> {
    // A CPU's ranks send everything through one of them.
    let (large, timed) = if chosen.is_cpu() {
        (20_011, vec![1, MEGA / 4, 2 * MEGA])
    } else {
        (TINY, vec![1, MEGA / 4, TINY, 26 * MEGA, 98 * MEGA])
    };
    let checked = [&CHECKED[..], &[large]].concat();
    check::sums(comm, &chosen.device, &checked)?;
    let detail =
        format!("of {checked:?} numbers: exact, in the tree's order to the bit; bytes arrive");
    tell(Finding::pass("sums", detail))?;
    for count in timed {
        let speed = check::speed(comm, &chosen.device, count)?;
        let what = match speed.bytes {
            bytes if bytes < MEGA => format!("sum of {bytes} B"),
            bytes => format!("sum of {:.1} MB", bytes as f64 / MEGA as f64),
        };
        let figures = [
            ("bytes", json!(speed.bytes)),
            ("ms", json!(speed.ms)),
            ("slowest_ms", json!(speed.slowest_ms)),
            ("gb_s", json!(speed.gb_s)),
            ("bus_gb_s", json!(speed.bus_gb_s)),
            ("host_us", json!(speed.host_us)),
        ];
        tell(Finding::pass(what, speed.to_string()).with(figures))?;
    }
    Ok(())
}

/// What carries the exchange.
fn library(comm: &Comm, chosen: &SelectedDevice) -> Finding {
    let what = "nccl";
    match comm.library() {
        Some(library) => {
            let detail = format!("NCCL {}, {}", library.version, library.path.display());
            Finding::pass(what, detail)
        }
        None if comm.size() == 1 => Finding::pass(what, "not used by one rank"),
        None => {
            let detail = format!("not used: ranks on {} exchange by Unix sockets", chosen.name);
            Finding::pass(what, detail)
        }
    }
}

/// Which GPUs reach each other's memory.
fn peers(gpus: usize) -> Finding {
    let what = "peer access";
    if gpus < 2 {
        return Finding::pass(what, "one GPU");
    }
    let number = |gpu: usize| i32::try_from(gpu).unwrap_or(i32::MAX);
    let reaches = |from: usize, to: usize| cuda_libraries::peer_access(number(from), number(to));
    let pairs = (0..gpus).flat_map(|from| (from + 1..gpus).map(move |to| (from, to)));
    let mut lacking = false;
    let shown: Vec<String> = pairs
        .map(|(from, to)| {
            let text = match (reaches(from, to), reaches(to, from)) {
                (Some(true), Some(true)) => "yes",
                (Some(_), Some(_)) => {
                    lacking = true;
                    "no"
                }
                _ => "unknown",
            };
            format!("{from}-{to} {text}")
        })
        .collect();
    let advice = "such pairs exchange through the host's memory, slower: see docs/distributed.md";
    Finding::pass(what, shown.join(", ")).warn_if(lacking, advice)
}
