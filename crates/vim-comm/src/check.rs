//! Whether sums and bytes arrive as they should, and how fast.

use std::fmt;
use std::time::Instant;

use burn::tensor::{Device, Tensor};
use serde::Serialize;

use crate::comm::Comm;
use crate::error::CommError;
use crate::tree::TreeSum;

/// Rounds that are timed, after one that is not.
const ROUNDS: usize = 7;
/// The most sums of a round, queued one behind the other.
const MOST_QUEUED: usize = 10;
/// The most numbers that the sums of a round have together, if they are more than one.
const ROUND: usize = 1 << 25;

/// How long a sum takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SumSpeed {
    /// Bytes of a rank's tensor.
    pub bytes: usize,
    /// A sum among queued ones, in milliseconds: the median of several rounds.
    pub ms: f64,
    /// The slowest round.
    pub slowest_ms: f64,
    /// Bytes of a rank's tensor over the time, in 10⁹ a second.
    pub gb_s: f64,
    /// Bytes that a ring of these ranks moves over each link, over the time: comparable among
    /// numbers of ranks, and with what nccl-tests calls the bus bandwidth.
    pub bus_gb_s: f64,
    /// What the host does for a sum, in microseconds.
    pub host_us: f64,
}

impl fmt::Display for SumSpeed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ms, slowest_ms, gb_s, bus_gb_s, host_us, .. } = self;
        write!(
            formatter,
            "{ms:.3} ms (slowest {slowest_ms:.3}), {gb_s:.2} GB/s (bus {bus_gb_s:.2}), the host {host_us:.1} µs"
        )
    }
}

/// Checks sums of tensors of these lengths and bytes over the ranks of `comm`, which all call
/// this, on `device`: exact sums, the order of sums that round, and that no rank's own numbers
/// change.
///
/// # Errors
///
/// [`CommError::Wrong`] with what is wrong, and those of the calls.
pub fn sums(comm: &Comm, device: &Device, counts: &[usize]) -> Result<(), CommError> {
    for &count in counts {
        whole_numbers(comm, device, count)?;
        rounding(comm, device, count)?;
    }
    bytes(comm)
}

/// Times sums of `count` numbers in f32 over the ranks of `comm`, which all call this.
///
/// # Errors
///
/// Those of the calls.
pub fn speed(comm: &Comm, device: &Device, count: usize) -> Result<SumSpeed, CommError> {
    let queued = (ROUND / count.max(1)).clamp(1, MOST_QUEUED);
    let mut tensor = Tensor::<1>::zeros([count], device);
    let (mut rounds, mut host) = (Vec::new(), Vec::new());
    for _ in 0..=ROUNDS {
        // Ranks begin together.
        comm.gather(&[])?;
        let begin = Instant::now();
        for _ in 0..queued {
            tensor = comm.sum(tensor)?;
        }
        host.push(begin.elapsed().as_secs_f64() / queued as f64);
        read(tensor.clone().narrow(0, 0, 1))?;
        rounds.push(begin.elapsed().as_secs_f64() / queued as f64);
    }
    let sorted = |times: &[f64]| {
        let mut times = times[1..].to_vec();
        times.sort_by(f64::total_cmp);
        times
    };
    let (rounds, host) = (sorted(&rounds), sorted(&host));
    let (seconds, bytes) = (rounds[ROUNDS / 2], count * size_of::<f32>());
    let (gb_s, ranks) = (bytes as f64 / seconds * 1e-9, comm.size() as f64);
    Ok(SumSpeed {
        bytes,
        ms: seconds * 1e3,
        slowest_ms: rounds[ROUNDS - 1] * 1e3,
        gb_s,
        bus_gb_s: gb_s * 2.0 * (ranks - 1.0) / ranks,
        host_us: host[ROUNDS / 2] * 1e6,
    })
}

/// Exact sums, with computations before and after them on the device.
fn whole_numbers(comm: &Comm, device: &Device, count: usize) -> Result<(), CommError> {
    let number = |rank: usize, i: usize| ((i * 7 + rank * 13) % 251) as f32 - 125.0;
    let own: Vec<f32> = (0..count).map(|i| number(comm.rank(), i)).collect();
    let kept = Tensor::<1>::from_floats(&own[..], device);
    for round in 0..3 {
        // Nobody else has this tensor; others do have `kept`, which must stay.
        let sum = comm.sum(kept.clone() * 2.0)? + 1.0;
        let again = comm.sum(kept.clone())?;
        for (what, tensor, [scale, shift]) in [("2·x", sum, [2.0, 1.0]), ("x", again, [1.0, 0.0])]
        {
            let want = (0..count).map(|i| {
                let sum: f32 = (0..comm.size()).map(|rank| number(rank, i)).sum();
                scale * sum + shift
            });
            compare(comm, &format!("sum {round} of {what}"), tensor, want)?;
        }
    }
    compare(comm, "this rank's own numbers", kept, own.into_iter())
}

/// Sums that depend on their order, against the tree on the host.
fn rounding(comm: &Comm, device: &Device, count: usize) -> Result<(), CommError> {
    let number = |rank: usize, i: usize| {
        let noise = (i as f32 * 0.37 + rank as f32).sin() * 1e-3;
        noise + 10_f32.powi((rank * 3 % 5) as i32) / (i % 97 + 1) as f32
    };
    let row = |rank: usize| (0..count).map(|i| number(rank, i)).collect::<Vec<_>>();
    let add = |mut left: Vec<f32>, right: Vec<f32>| {
        left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
        left
    };
    let mut tree = TreeSum::new();
    (0..comm.size()).for_each(|rank| tree.push(row(rank), add));
    let want = tree.finish(add).unwrap_or_default();
    let sum = comm.sum(Tensor::from_floats(&row(comm.rank())[..], device))?;
    compare(comm, "the sum that rounds", sum, want.into_iter())
}

/// Bytes of different lengths, and none.
fn bytes(comm: &Comm) -> Result<(), CommError> {
    let of_rank = |rank: usize| vec![rank as u8; rank * 1000 % 7000];
    let wrong = |what: &str| CommError::Wrong { rank: comm.rank(), what: what.to_owned() };
    let want: Vec<_> = (0..comm.size()).map(of_rank).collect();
    if comm.gather(&of_rank(comm.rank()))? != want {
        return Err(wrong("gathered bytes are not those of the ranks"));
    }
    let from_0 = vec![7; 12_345];
    let own = if comm.rank() == 0 { from_0.clone() } else { of_rank(comm.rank()) };
    if comm.broadcast(own)? != from_0 || !comm.broadcast(Vec::new())?.is_empty() {
        return Err(wrong("broadcast bytes are not those of rank 0"));
    }
    Ok(())
}

fn compare(
    comm: &Comm,
    what: &str,
    tensor: Tensor<1>,
    want: impl ExactSizeIterator<Item = f32>,
) -> Result<(), CommError> {
    let (got, count) = (read(tensor)?, want.len());
    let wrong = |text: String| {
        let what = format!("{what}, of {count} numbers: {text}");
        Err(CommError::Wrong { rank: comm.rank(), what })
    };
    if got.len() != count {
        return wrong(format!("has {}", got.len()));
    }
    let mut differ =
        got.iter().zip(want).enumerate().filter(|(_, (a, b))| a.to_bits() != b.to_bits());
    match differ.next() {
        None => Ok(()),
        Some((at, (got, want))) => {
            wrong(format!("number {at} is {got}, not {want}, and {} more differ", differ.count()))
        }
    }
}

fn read(tensor: Tensor<1>) -> Result<Vec<f32>, CommError> {
    let data = tensor.try_into_data();
    let data = data.map_err(|error| CommError::Tensor { problem: format!("{error:?}") })?;
    Ok(data.iter().collect())
}
