//! Ranks on the CPUs of one machine: Unix sockets, and rank 0 computes for all.
//!
//! Every other rank sends rank 0 what it calls and its part, and waits for the answer. Rank 0 has
//! a thread for each of them that reads, so that it sees at once when one is gone. Messages carry
//! what they belong to: ranks that part get an error, not each other's numbers.

mod add;
mod frame;
mod join;
mod root;

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::{fmt, iter, mem};

use burn::tensor::{DType, Element, Tensor, TensorData};
use half::bf16;

use crate::error::CommError;
use crate::rendezvous::Rendezvous;
use add::{Number, sum_rows};
use frame::{Kind, receive, send};
use root::{Fault, Root};

/// A rank's end of the sockets.
pub(crate) struct Host {
    rank: usize,
    /// Number of the next call.
    call: u64,
    links: Links,
    /// A buffer for the next answer.
    spare: Vec<u8>,
    /// What ended it.
    fault: Option<CommError>,
}

/// The sockets.
enum Links {
    /// Those of rank 0.
    Root(Root),
    /// That of another rank.
    Leaf(UnixStream),
}

impl fmt::Debug for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, call, fault, .. } = self;
        write!(formatter, "Host {{ rank: {rank}, call: {call}, fault: {fault:?} }}")
    }
}

impl Host {
    /// Connects this rank with the others.
    pub(crate) fn join(rendezvous: &Rendezvous) -> Result<Self, CommError> {
        let rank = rendezvous.place.rank();
        let links = if rank == 0 {
            Links::Root(Root::new(join::listen(rendezvous)?, &rendezvous.folder)?)
        } else {
            Links::Leaf(join::connect(rendezvous)?)
        };
        Ok(Self { rank, call: 0, links, spare: Vec::new(), fault: None })
    }

    /// See [`Comm::sum`](crate::Comm::sum).
    pub(crate) fn sum(&mut self, tensor: Tensor<1>) -> Result<Tensor<1>, CommError> {
        let device = tensor.device();
        let data = tensor.try_into_data();
        let data = data.map_err(|error| CommError::Tensor { problem: format!("{error:?}") })?;
        let dtype = data.dtype();
        let sums = if dtype == DType::F32 {
            self.sum_numbers::<f32>(Kind::SumF32, &data)
        } else if dtype == DType::F64 {
            self.sum_numbers::<f64>(Kind::SumF64, &data)
        } else if dtype == DType::BF16 {
            self.sum_numbers::<bf16>(Kind::SumBf16, &data)
        } else {
            Err(CommError::Unsupported { what: format!("ranks cannot sum {dtype:?}") })
        }?;
        Ok(Tensor::from_data(sums, (&device, dtype)))
    }

    fn sum_numbers<T: Number + Element>(
        &mut self,
        kind: Kind,
        data: &TensorData,
    ) -> Result<TensorData, CommError> {
        let bytes = self.call(kind, data.as_bytes(), sum_rows::<T>)?;
        let sums = bytemuck::pod_collect_to_vec::<u8, T>(&bytes);
        self.spare = bytes;
        Ok(TensorData::new(sums, data.shape().clone()))
    }

    /// See [`Comm::broadcast`](crate::Comm::broadcast).
    pub(crate) fn broadcast(&mut self, bytes: &[u8]) -> Result<Vec<u8>, CommError> {
        let own = if self.rank == 0 { bytes } else { &[] };
        self.call(Kind::Broadcast, own, |rows, answer| {
            answer.extend_from_slice(rows.first().copied().unwrap_or_default());
        })
    }

    /// See [`Comm::gather`](crate::Comm::gather).
    pub(crate) fn gather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        let answer = self.call(Kind::Gather, bytes, |rows, answer| {
            for row in rows {
                answer.extend_from_slice(&row.len().to_ne_bytes());
                answer.extend_from_slice(row);
            }
        })?;
        let (mut all, mut rest) = (Vec::new(), answer.as_slice());
        while let Some((length, after)) = rest.split_first_chunk() {
            let (bytes, after) = after.split_at(usize::from_ne_bytes(*length).min(after.len()));
            all.push(bytes.to_vec());
            rest = after;
        }
        self.spare = answer;
        Ok(all)
    }

    /// What rank 0 makes of all ranks' bytes, on every rank.
    fn call(
        &mut self,
        kind: Kind,
        own: &[u8],
        make: impl FnOnce(&[&[u8]], &mut Vec<u8>),
    ) -> Result<Vec<u8>, CommError> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let mut spare = mem::take(&mut self.spare);
        let call = self.call;
        self.call += 1;
        let answer = match &mut self.links {
            Links::Root(root) => root.collect(kind, call, own).and_then(|frames| {
                let others = frames.iter().map(|frame| frame.bytes.as_slice());
                let rows: Vec<&[u8]> = iter::once(own).chain(others).collect();
                spare.clear();
                make(&rows, &mut spare);
                root.answer(kind, call, &spare, frames)?;
                Ok(spare)
            }),
            Links::Leaf(stream) => ask(stream, kind, call, own, spare),
        };
        answer.inspect_err(|error| {
            self.fault = Some(error.clone());
            self.links.close();
        })
    }
}

impl Links {
    /// Lets the others see that this rank is gone.
    fn close(&self) {
        match self {
            Self::Root(root) => root.peers.iter().for_each(|peer| close(&peer.stream)),
            Self::Leaf(stream) => close(stream),
        }
    }
}

fn close(stream: &UnixStream) {
    // Closed already, if that fails.
    let _ = stream.shutdown(Shutdown::Both);
}

impl Drop for Host {
    fn drop(&mut self) {
        // Threads that read hold sockets too.
        self.links.close();
    }
}

/// As another rank: the answer of rank 0.
fn ask(
    stream: &mut UnixStream,
    kind: Kind,
    call: u64,
    own: &[u8],
    spare: Vec<u8>,
) -> Result<Vec<u8>, CommError> {
    // If that fails, rank 0 may have said why before it closed the socket.
    let _ = send(stream, kind, call, own);
    let lost = |_| CommError::Lost { rank: 0 };
    let frame = receive(stream, spare).map_err(lost)?;
    if frame.kind == Kind::Fault {
        let fault: Fault = serde_json::from_slice(&frame.bytes).unwrap_or(Fault::Lost(0));
        return Err(fault.into());
    }
    Ok(frame.bytes)
}
