//! Sums over ranks, checked and timed: processes on CPUs, or, with the feature `cuda`, on GPUs.
//!
//! ```console
//! $ cargo run --release -p vim-comm --features cuda --example sums -- 4      # four ranks
//! $ cargo run --release -p vim-comm --features cuda --example sums -- 2,2    # as on two nodes
//! ```
//!
//! With `VIM_TRAIN_SHARE_GPU=1` all ranks take the first GPU. A path behind the ranks is one more
//! candidate for NCCL's library.

use std::env;
use std::error::Error;
use std::fs;
use std::process::{self, Command, ExitCode};
use std::time::Duration;

use burn::tensor::Device;
use vim_comm::{Comm, CommError, Member, Place, Rendezvous, check, environment};

/// Tells a process which rank it is.
const PLACE: &str = "VIM_COMM_PLACE";
/// One number, a length that no number of ranks divides, and the gradients of a small model.
const COUNTS: [usize; 3] = [1, 511, 7_200_256];

#[cfg(feature = "cuda")]
fn connect(rendezvous: &Rendezvous, local: usize) -> Result<(Comm, Device), CommError> {
    let library = vim_comm::nccl::Library::open(env::args().nth(2).map(Into::into))?;
    let device = Device::cuda(if vim_comm::shares_gpu() { 0 } else { local });
    meet(rendezvous, Some(format!("{library:?}")))?;
    Ok((Comm::nccl(rendezvous, &device, &library)?, device))
}

#[cfg(not(feature = "cuda"))]
fn connect(rendezvous: &Rendezvous, _: usize) -> Result<(Comm, Device), CommError> {
    meet(rendezvous, None)?;
    Ok((Comm::host(rendezvous)?, Device::flex()))
}

fn meet(rendezvous: &Rendezvous, library: Option<String>) -> Result<(), CommError> {
    let member = Member {
        place: rendezvous.place.clone(),
        host: "localhost".into(),
        pid: process::id(),
        device: "any".into(),
        device_id: None,
        build: env!("CARGO_PKG_VERSION").into(),
        library,
        configuration: env::args().nth(1).unwrap_or_default(),
    };
    let roster = rendezvous.meet(&member)?;
    if rendezvous.place.rank() == 0 {
        println!("{} ranks, {:?}", roster.members.len(), roster.members[0].library);
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let nodes = env::args().nth(1).unwrap_or_else(|| "2".into());
    let nodes: Vec<usize> = nodes.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let folder = env::temp_dir().join("vim-comm-sums");
    if let Ok(place) = env::var(PLACE) {
        let place: Place = serde_json::from_str(&place)?;
        let folder = folder.join(env::var("VIM_COMM_ATTEMPT")?);
        let (rank, timeout) = (place.rank(), Duration::from_secs(60));
        let (comm, device) = connect(&Rendezvous { folder, place, timeout }, rank)?;
        check::sums(&comm, &device, &COUNTS)?;
        println!("rank {rank}: sums of {COUNTS:?} numbers over {} ranks are right", comm.size());
        for count in COUNTS {
            let speed = check::speed(&comm, &device, count)?;
            println!("rank {rank}: {count} numbers: {speed}");
        }
        if let Some(fault) = comm.fault() {
            return Err(fault.into());
        }
        return Ok(comm.close()?);
    }
    let attempt = process::id().to_string();
    let mut children = Vec::new();
    for rank in 0..nodes.iter().sum() {
        let place = Place::new(rank, nodes.clone()).ok_or("a node has no ranks")?;
        let mut command = Command::new(env::current_exe()?);
        command.args(env::args().skip(1)).envs(environment(1));
        command.env(PLACE, serde_json::to_string(&place)?);
        children.push(command.env("VIM_COMM_ATTEMPT", &attempt).spawn()?);
    }
    let mut failed = 0;
    for mut child in children {
        failed += usize::from(!child.wait()?.success());
    }
    let removed = fs::remove_dir_all(folder.join(attempt));
    if failed > 0 { Err(format!("{failed} ranks failed").into()) } else { Ok(removed?) }
}
