//! A communicator of NCCL on the buffers and the stream of Burn's CUDA backend.
//!
//! All calls are made on the thread of the device, in the order in which this thread queues them
//! among its kernels. NCCL's kernels are launches among others: nothing waits, neither on the host
//! nor on the device. A call that fails there panics with what NCCL says: the ranks have parted,
//! and there is nobody to return an error to.

#![expect(unsafe_code, reason = "giving addresses of tensors to NCCL")]

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::backend::{StreamId, TensorMetadata};
use burn::tensor::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::cuda::CudaRuntime;
use cubecl::device_handle::{CallError, DeviceHandle};
use cubecl_server::runtime::Runtime;
use cubecl_server::server::ServerStorage;
use cubecl_server::stream::WriteScoped;

use super::library::{Kind, Library, RawComm, Stream, UniqueId};
use crate::error::CommError;
use crate::rows::sum_rows;

/// CubeCL's server on a CUDA device.
type Server = <CudaRuntime as Runtime>::Server;

/// A communicator.
pub(super) struct Link {
    library: Library,
    device: DeviceHandle<Server>,
    /// `None` after its end; see [`Raw`].
    raw: Arc<Raw<RawComm>>,
    rank: usize,
    world: usize,
}

/// A communicator that calls are made with while others ask how it is.
///
/// NCCL's calls are made on one thread, the device's, and may block there, in a first connection or
/// at the end of a group, until a peer answers: so they take a copy of the pointer, and hold no
/// lock. The pointer is valid during each of them, because [`Self::take`], after which the
/// communicator is destroyed, is called on the same thread, behind them. Other threads use the
/// pointer within [`Self::ask`] alone, under the lock for which [`Self::take`] waits; what they ask
/// must not block.
struct Raw<T>(Mutex<Option<T>>);

impl<T: Copy> Raw<T> {
    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For calls on the device's thread.
    fn copied(&self) -> Option<T> {
        *self.lock()
    }

    /// What `question` says, unless it has ended.
    fn ask<R>(&self, question: impl FnOnce(T) -> R) -> Option<R> {
        let raw = self.lock();
        (*raw).map(question)
    }

    /// Its end, on the device's thread.
    fn take(&self) -> Option<T> {
        self.lock().take()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "rank {} of {} by {:?}", self.rank, self.world, self.library)
    }
}

/// The thread of the device of `like`.
fn thread_of(like: &CubeTensor) -> DeviceHandle<Server> {
    DeviceHandle::new(like.client.service_id().device)
}

/// An id for a new communicator of devices such as that of `like`.
pub(super) fn unique_id(library: &Library, like: &CubeTensor) -> Result<UniqueId, CommError> {
    let (library, like) = (library.clone(), like.clone());
    let id = thread_of(&like).submit_blocking(move |server| {
        address(server, &like)?;
        library.unique_id()
    });
    answered(id)
}

/// The result of a call on the device's thread.
fn answered<T>(answer: Result<Result<T, String>, CallError>) -> Result<T, CommError> {
    let answer = answer.unwrap_or_else(|error| Err(format!("{error:?}")));
    answer.map_err(|problem| CommError::Nccl { problem })
}

/// Where the numbers of a tensor are, and the stream of the thread that queued this call; makes
/// the device current, and the stream wait for others that compute the tensor.
fn address(server: &mut Server, tensor: &CubeTensor) -> Result<(u64, Stream), String> {
    let id = StreamId::current();
    let resource = server.get_resource(tensor.handle.clone().binding(), id);
    let resource = resource.map_err(|error| format!("a tensor to exchange: {error:?}"))?;
    let stream = server.write_streams().try_stream_mut(&id).ok_or("this thread has no stream")?;
    Ok((resource.resource().ptr, Stream(stream.sys.cast())))
}

/// The kind of a tensor's numbers, if NCCL sums them and we do.
pub(super) fn kind_of(dtype: DType) -> Option<Kind> {
    if dtype == DType::F32 {
        Some(Kind::F32)
    } else if dtype == DType::F64 {
        Some(Kind::F64)
    } else {
        (dtype == DType::BF16).then_some(Kind::Bf16)
    }
}

/// A new contiguous tensor on the device of `like`, uninitialized.
pub(super) fn empty(like: &CubeTensor, count: usize, dtype: DType) -> CubeTensor {
    let handle = like.client.empty(count * dtype.size());
    let (client, device) = (like.client.clone(), like.device.clone());
    CubeTensor::new_contiguous(client, device, Shape::from([count]), handle, dtype)
}

/// A part of a contiguous tensor; nothing is copied.
pub(super) fn part(of: &CubeTensor, begin: usize, count: usize) -> CubeTensor {
    let size = of.dtype.size();
    let rest = of.shape().num_elements() - begin - count;
    let handle = of.handle.clone().offset_start((begin * size) as u64);
    let handle = handle.offset_end((rest * size) as u64);
    let (client, device) = (of.client.clone(), of.device.clone());
    CubeTensor::new_contiguous(client, device, Shape::from([count]), handle, of.dtype)
}

impl Link {
    /// Joins the others of `id`, and waits for them.
    pub(super) fn join(
        library: &Library,
        like: &CubeTensor,
        (rank, world): (usize, usize),
        id: UniqueId,
    ) -> Result<Self, CommError> {
        let device = thread_of(like);
        let (calls, like) = (library.clone(), like.clone());
        let raw = device.submit_blocking(move |server| {
            address(server, &like)?;
            calls.init(world, rank, id)
        });
        let raw = Arc::new(Raw(Mutex::new(Some(answered(raw)?))));
        Ok(Self { library: library.clone(), device, raw, rank, world })
    }

    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    pub(super) fn world(&self) -> usize {
        self.world
    }

    /// What went wrong beside the calls; also while one is just being made.
    pub(super) fn fault(&self) -> Option<String> {
        self.raw.ask(|raw| self.library.fault(raw)).flatten()
    }

    /// Ends the communicator; all ranks must call it.
    pub(super) fn close(&self) -> Result<(), CommError> {
        let (library, raw) = (self.library.clone(), Arc::clone(&self.raw));
        answered(
            self.device
                .submit_blocking(move |_| raw.take().map_or(Ok(()), |raw| library.destroy(raw))),
        )
    }

    /// Queues a call of NCCL with the addresses of `tensors`, which live until it is queued there;
    /// afterwards the order on the stream keeps their memory.
    fn submit<const N: usize>(
        &self,
        tensors: [&CubeTensor; N],
        call: impl FnOnce(&Library, [u64; N], (RawComm, Stream)) -> Result<(), String> + Send + 'static,
    ) {
        let (library, raw) = (self.library.clone(), Arc::clone(&self.raw));
        let tensors = tensors.map(Clone::clone);
        self.device.submit(move |server| {
            let queue = || {
                let raw = raw.copied().ok_or("NCCL: the communicator has been closed")?;
                let (mut at, mut on) = ([0; N], None);
                for (at, tensor) in at.iter_mut().zip(&tensors) {
                    let (address, stream) = address(server, tensor)?;
                    *at = address;
                    on = Some(stream);
                }
                call(&library, at, (raw, on.ok_or("nothing to exchange")?))
            };
            if let Err(problem) = queue() {
                CommError::panic(&problem);
            }
        });
    }

    /// Writes the sum over ranks of `from` into `to`, which may be the same tensor; for two ranks,
    /// whose sum has one order.
    pub(super) fn all_reduce(&self, from: &CubeTensor, to: &CubeTensor, kind: Kind) {
        let count = from.shape().num_elements();
        self.submit([from, to], move |library, at, on| {
            // SAFETY: both tensors have `count` numbers, and the stream orders what follows.
            unsafe { library.all_reduce(at.into(), (count, kind), on) }
        });
    }

    /// Writes the sum over ranks of this rank's part of `from` into `to`, a part's length.
    pub(super) fn scatter_sum(&self, from: &CubeTensor, to: &CubeTensor, parts: Split, kind: Kind) {
        let rows = empty(from, self.world * parts.length, from.dtype);
        let (own, world) = (parts.used(self.rank), self.world);
        let size = from.dtype.size();
        self.submit([from, &rows], move |library, [from, rows], on| {
            library.group(|| {
                for peer in 0..world {
                    let send_at = from + (parts.begin(peer) * size) as u64;
                    let receive_at = rows + (peer * parts.length * size) as u64;
                    // SAFETY: the parts are within `from`, the rows within `rows`; the stream
                    // orders what follows.
                    unsafe {
                        if parts.used(peer) > 0 {
                            library.send(send_at, (parts.used(peer), kind), peer, on)?;
                        }
                        if own > 0 {
                            library.receive(receive_at, (own, kind), peer, on)?;
                        }
                    }
                }
                Ok(())
            })
        });
        sum_rows(&rows, world, to);
    }

    /// Writes every rank's `own` behind each other into `all`, where `own` may lie in its place.
    pub(super) fn gather(&self, own: &CubeTensor, all: &CubeTensor, kind: Kind) {
        let count = own.shape().num_elements();
        self.submit([own, all], move |library, at, on| {
            // SAFETY: `all` has `count` numbers of each rank, and the stream orders what follows.
            unsafe { library.all_gather(at.into(), (count, kind), on) }
        });
    }

    /// Makes bytes those of rank 0.
    pub(super) fn broadcast(&self, bytes: &CubeTensor) {
        let count = bytes.shape().num_elements();
        self.submit([bytes], move |library, [at], on| {
            // SAFETY: there are `count` bytes, and the stream orders what follows.
            unsafe { library.broadcast(at, count, on) }
        });
    }
}

/// Equal parts of numbers, the last ones shorter or empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    count: usize,
    /// Numbers of a part with its padding.
    pub(super) length: usize,
}

impl Split {
    /// Parts whose length is a multiple of `alignment`.
    pub(super) fn new(count: usize, ranks: usize, alignment: usize) -> Self {
        Self { count, length: count.div_ceil(ranks).next_multiple_of(alignment) }
    }

    /// Where a part begins.
    pub(super) fn begin(self, rank: usize) -> usize {
        (rank * self.length).min(self.count)
    }

    /// Numbers of a part without its padding.
    pub(super) fn used(self, rank: usize) -> usize {
        self.begin(rank + 1) - self.begin(rank)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn a_call_that_blocks_keeps_nobody_from_asking() {
        let raw = Raw(Mutex::new(Some(7)));
        let (begun, block) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                let call = raw.copied();
                begun.wait();
                // Until a peer answers.
                block.wait();
                assert_eq!(call, Some(7));
                assert_eq!(raw.take(), Some(7));
            });
            begun.wait();
            assert_eq!(raw.ask(|raw| raw), Some(7));
            block.wait();
        });
        assert_eq!((raw.ask(|raw| raw), raw.copied()), (None, None), "after its end");
    }

    #[test]
    fn parts_cover_all_numbers_once() {
        for count in [1, 63, 64, 65, 511, 512, 7_200_256] {
            for ranks in 1..=9 {
                for alignment in [1, 64, 192] {
                    let parts = Split::new(count, ranks, alignment);
                    assert!(parts.length.is_multiple_of(alignment));
                    assert_eq!(parts.begin(0), 0);
                    assert_eq!((0..ranks).map(|rank| parts.used(rank)).sum::<usize>(), count);
                    assert!((0..ranks).all(|rank| parts.used(rank) <= parts.length));
                    let padding = ranks * parts.length - count;
                    assert!(padding < ranks * alignment, "no more than needed");
                }
            }
        }
    }
}
