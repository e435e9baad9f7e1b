//! Whether sums and bytes arrive as they should, and how fast.

use std::fmt::Write as _;
use std::time::Instant;

use burn::tensor::{Device, Tensor};

use crate::comm::Comm;
use crate::error::CommError;
use crate::tree::TreeSum;

/// One number, a size that no number of ranks divides, and the gradients of a small model.
const COUNTS: [usize; 3] = [1, 511, 7_200_256];
/// Sums that are timed.
const ROUNDS: usize = 50;

/// Checks sums and bytes over the ranks of `comm`, which all call this, on `device`; returns what
/// was found and measured, in lines.
///
/// # Errors
///
/// [`CommError::Wrong`] with what is wrong, and those of the calls.
pub fn sums(comm: &Comm, device: &Device) -> Result<String, CommError> {
    sums_of(comm, device, &COUNTS, ROUNDS)
}

/// [`sums`] of tensors of these lengths, the last of them timed over `rounds`.
///
/// # Errors
///
/// Those of [`sums`].
pub fn sums_of(
    comm: &Comm,
    device: &Device,
    counts: &[usize],
    rounds: usize,
) -> Result<String, CommError> {
    for &count in counts {
        whole_numbers(comm, device, count)?;
        rounding(comm, device, count)?;
    }
    bytes(comm)?;
    let mut text = format!("sums of {counts:?} numbers over {} ranks are right\n", comm.size());
    if let Some(&count) = counts.last() {
        // A string takes everything.
        let _ = writeln!(text, "{}", timed(comm, device, count, rounds)?);
    }
    Ok(text)
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

fn timed(comm: &Comm, device: &Device, count: usize, rounds: usize) -> Result<String, CommError> {
    let mut tensor = Tensor::<1>::zeros([count], device);
    for _ in 0..3 {
        tensor = comm.sum(tensor)?;
    }
    read(tensor.clone().narrow(0, 0, 1))?;
    let begin = Instant::now();
    for _ in 0..rounds {
        tensor = comm.sum(tensor)?;
    }
    let queued = begin.elapsed().as_secs_f64() / rounds as f64;
    read(tensor.narrow(0, 0, 1))?;
    let seconds = begin.elapsed().as_secs_f64() / rounds as f64;
    let bytes = (count * size_of::<f32>()) as f64;
    Ok(format!(
        "{:.1} MB: {:.3} ms, {:.1} GB/s; the host {:.1} µs",
        bytes * 1e-6,
        seconds * 1e3,
        bytes / seconds * 1e-9,
        queued * 1e6
    ))
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
