//! Ranks as threads, and as processes: this test binary again, running one ignored test.

use std::env;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use burn::tensor::{Device, Tensor};
use vim_comm::{Comm, Member, Place, Rendezvous, TreeSum};

/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What rank `rank` of `nodes` needs to find the others.
pub(crate) fn rendezvous(folder: &Path, rank: usize, nodes: &[usize]) -> Rendezvous {
    let place = Place::new(rank, nodes.to_vec()).unwrap();
    Rendezvous { folder: folder.to_owned(), place, timeout: PATIENCE }
}

/// The record of a rank that fits to all others.
pub(crate) fn member(rendezvous: &Rendezvous) -> Member {
    Member {
        place: rendezvous.place.clone(),
        host: format!("node{}", rendezvous.place.node()),
        pid: std::process::id(),
        device: "CPU".into(),
        device_id: None,
        build: "0.1.0".into(),
        library: None,
        configuration: "1234".into(),
    }
}

/// Calls `work` as each rank, and returns what they return.
pub(crate) fn ranks<T: Send>(world: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..world).map(|rank| scope.spawn(move || work(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// [`ranks`] with connected communicators.
pub(crate) fn connected<T: Send>(world: usize, work: impl Fn(Comm) -> T + Sync) -> Vec<T> {
    let folder = tempfile::tempdir().unwrap();
    ranks(world, |rank| work(Comm::host(&rendezvous(folder.path(), rank, &[world])).unwrap()))
}

/// Numbers whose sum depends on the order.
pub(crate) fn numbers(rank: usize, count: usize) -> Vec<f32> {
    let scale = 10_f32.powi((rank * 3 % 5) as i32);
    (0..count).map(|i| ((i * 7 + rank * 13) as f32 * 0.37).sin() * scale).collect()
}

/// Their sum over ranks.
pub(crate) fn tree(world: usize, count: usize) -> Vec<f32> {
    let add = |a: Vec<f32>, b: Vec<f32>| a.iter().zip(b).map(|(a, b)| a + b).collect();
    let mut sum = TreeSum::new();
    for rank in 0..world {
        sum.push(numbers(rank, count), add);
    }
    sum.finish(add).unwrap()
}

pub(crate) fn tensor(numbers: &[f32]) -> Tensor<1> {
    Tensor::from_floats(numbers, &Device::flex())
}

pub(crate) fn bits(tensor: Tensor<1>) -> Vec<u32> {
    tensor.into_data().iter::<f32>().map(f32::to_bits).collect()
}

const RANK: &str = "VIM_COMM_TEST_RANK";
const FOLDER: &str = "VIM_COMM_TEST_FOLDER";

/// Runs the ignored `test` as a process of rank `rank`.
pub(crate) fn process(test: &str, folder: &Path, rank: usize) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]);
    command.env(RANK, rank.to_string()).env(FOLDER, folder);
    command
}

/// What this process was started as by [`process`], of `world` ranks.
pub(crate) fn as_process(world: usize) -> Option<Rendezvous> {
    let rank = env::var(RANK).ok()?.parse().unwrap();
    Some(rendezvous(Path::new(&env::var_os(FOLDER)?), rank, &[world]))
}
