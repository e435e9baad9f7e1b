//! Sums over ranks, checked and timed: processes on CPUs, or, with the feature `cuda`, on GPUs.
//!
//! ```console
//! $ cargo run --release -p vim-comm --features cuda --example sums -- 4      # four ranks
//! $ cargo run --release -p vim-comm --features cuda --example sums -- 2,2    # as on two nodes
//! ```
//!
//! With `VIM_TRAIN_SHARE_GPU=1` all ranks take the first GPU. A path behind the ranks is one more
//! candidate for NCCL's library.

#![expect(clippy::unwrap_used, reason = "an example ends at what it cannot do")]

use std::env;
use std::fs;
use std::process::{self, Command};
use std::time::Duration;

use burn::tensor::Device;
use vim_comm::{Comm, Member, Place, Rendezvous, check, environment};

/// Tells a process which rank it is.
const PLACE: &str = "VIM_COMM_PLACE";
/// One number, a length that no number of ranks divides, and the gradients of a small model.
const COUNTS: [usize; 3] = [1, 511, 7_200_256];

#[cfg(feature = "cuda")]
fn connect(rendezvous: &Rendezvous, local: usize) -> (Comm, Device) {
    let library = vim_comm::nccl::Library::open(env::args().nth(2).map(Into::into)).unwrap();
    let device = Device::cuda(if vim_comm::shares_gpu() { 0 } else { local });
    meet(rendezvous, Some(format!("{library:?}")));
    (Comm::nccl(rendezvous, &device, &library).unwrap(), device)
}

#[cfg(not(feature = "cuda"))]
fn connect(rendezvous: &Rendezvous, _: usize) -> (Comm, Device) {
    meet(rendezvous, None);
    (Comm::host(rendezvous).unwrap(), Device::flex())
}

fn meet(rendezvous: &Rendezvous, library: Option<String>) {
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
    let roster = rendezvous.meet(&member).unwrap();
    if rendezvous.place.rank() == 0 {
        println!("{} ranks, {:?}", roster.members.len(), roster.members[0].library);
    }
}

fn main() {
    let nodes = env::args().nth(1).unwrap_or_else(|| "2".into());
    let nodes: Vec<usize> = nodes.split(',').map(|ranks| ranks.parse().unwrap()).collect();
    let folder = env::temp_dir().join("vim-comm-sums");
    if let Ok(place) = env::var(PLACE) {
        let place: Place = serde_json::from_str(&place).unwrap();
        let folder = folder.join(env::var("VIM_COMM_ATTEMPT").unwrap());
        let (rank, timeout) = (place.rank(), Duration::from_secs(60));
        let (comm, device) = connect(&Rendezvous { folder, place, timeout }, rank);
        check::sums(&comm, &device, &COUNTS).unwrap();
        println!("rank {rank}: sums of {COUNTS:?} numbers over {} ranks are right", comm.size());
        for count in COUNTS {
            let speed = check::speed(&comm, &device, count).unwrap();
            println!("rank {rank}: {count} numbers: {speed}");
        }
        assert_eq!(comm.fault(), None);
        return comm.close().unwrap();
    }
    let attempt = process::id().to_string();
    let places = (0..nodes.iter().sum()).map(|rank| Place::new(rank, nodes.clone()).unwrap());
    let start = |place: Place| {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(env::args().skip(1)).envs(environment(1));
        command.env(PLACE, serde_json::to_string(&place).unwrap());
        command.env("VIM_COMM_ATTEMPT", &attempt).spawn().unwrap()
    };
    let children: Vec<_> = places.map(start).collect();
    let ended = children.into_iter().map(|mut child| child.wait().unwrap().success());
    let failed = ended.filter(|success| !success).count();
    fs::remove_dir_all(folder.join(attempt)).unwrap();
    assert_eq!(failed, 0, "ranks failed");
}
