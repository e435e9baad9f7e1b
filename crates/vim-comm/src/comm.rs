//! What the ranks of a run exchange.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::error::CommError;
use crate::host::Host;
#[cfg(feature = "cuda")]
use crate::nccl::{Library, Nccl};
use crate::rendezvous::Rendezvous;

/// What the ranks of a run exchange. A clone is a further handle.
///
/// All ranks must make the same calls in the same order. After an error every further call fails.
#[derive(Clone, Debug)]
pub struct Comm {
    rank: usize,
    size: usize,
    links: Links,
    pulse: Arc<Pulse>,
}

/// A library that moves the ranks' numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryInfo {
    /// Its version, such as `2.28.9`.
    pub version: String,
    /// Its file.
    pub path: PathBuf,
}

/// When a rank last made progress, in milliseconds since the start.
#[derive(Debug)]
struct Pulse {
    start: Instant,
    last: AtomicU64,
}

impl Default for Pulse {
    fn default() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0) }
    }
}

impl Pulse {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// How ranks are connected.
#[derive(Clone, Debug)]
enum Links {
    Single,
    Host(Arc<Mutex<Host>>),
    #[cfg(feature = "cuda")]
    Nccl(Arc<Nccl>),
}

impl Comm {
    /// Of a run with one rank.
    pub fn single() -> Self {
        Self { rank: 0, size: 1, links: Links::Single, pulse: Arc::default() }
    }

    /// Of ranks on one machine whose tensors are read to the host, by Unix sockets. Sums are exact
    /// to the bit for any device; meant for CPUs, and for tests.
    ///
    /// # Errors
    ///
    /// If not all ranks come in time, are on other machines, or were [ended](crate::abort); if
    /// sockets cannot be used.
    pub fn host(rendezvous: &Rendezvous) -> Result<Self, CommError> {
        let place = &rendezvous.place;
        let links = if place.world() == 1 {
            Links::Single
        } else {
            Links::Host(Arc::new(Mutex::new(Host::join(rendezvous)?)))
        };
        Ok(Self { rank: place.rank(), size: place.world(), links, pulse: Arc::default() })
    }

    /// Of ranks with a CUDA device each, by NCCL. Sums are queued among the calling thread's
    /// kernels, and nothing waits for them; they may then fail on the device's thread, by a panic.
    ///
    /// # Errors
    ///
    /// As [`Self::host`]; [`CommError::Nccl`] with what NCCL says.
    #[cfg(feature = "cuda")]
    pub fn nccl(
        rendezvous: &Rendezvous,
        device: &burn::tensor::Device,
        library: &Library,
    ) -> Result<Self, CommError> {
        let place = &rendezvous.place;
        let links = if place.world() == 1 {
            Links::Single
        } else {
            Links::Nccl(Arc::new(Nccl::join(rendezvous, device, library)?))
        };
        Ok(Self { rank: place.rank(), size: place.world(), links, pulse: Arc::default() })
    }

    /// This rank, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.size
    }

    /// NCCL's library, where the ranks use it.
    pub fn library(&self) -> Option<LibraryInfo> {
        match &self.links {
            Links::Single | Links::Host(_) => None,
            #[cfg(feature = "cuda")]
            Links::Nccl(nccl) => {
                let library = nccl.library();
                Some(LibraryInfo { version: library.version(), path: library.path().to_owned() })
            }
        }
    }

    /// The sum of all ranks' tensors in the order of [`TreeSum`](crate::TreeSum), with the same
    /// bits on every rank; of one rank the tensor itself. Tensors are f32, f64 or bf16, equally
    /// long, and without autodiff.
    ///
    /// # Errors
    ///
    /// [`CommError::Lost`] if a rank is gone, [`CommError::Parted`] if one did something else, or
    /// if the tensor cannot be read.
    pub fn sum(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CommError> {
        self.beat();
        match &self.links {
            Links::Single => Ok(tensor),
            Links::Host(host) => locked(host, |host| host.sum(tensor)),
            #[cfg(feature = "cuda")]
            Links::Nccl(nccl) => nccl.sum(tensor),
        }
    }

    /// The bytes of rank 0, on every rank; what other ranks pass is ignored.
    ///
    /// # Errors
    ///
    /// As [`Self::sum`].
    pub fn broadcast(&self, bytes: Vec<u8>) -> Result<Vec<u8>, CommError> {
        self.beat();
        match &self.links {
            Links::Single => Ok(bytes),
            Links::Host(host) => locked(host, |host| host.broadcast(&bytes)),
            #[cfg(feature = "cuda")]
            Links::Nccl(nccl) => nccl.broadcast(bytes),
        }
    }

    /// Every rank's bytes in the order of ranks, on every rank.
    ///
    /// # Errors
    ///
    /// As [`Self::sum`].
    pub fn gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        self.beat();
        match &self.links {
            Links::Single => Ok(vec![bytes.to_vec()]),
            Links::Host(host) => locked(host, |host| host.gather(bytes)),
            #[cfg(feature = "cuda")]
            Links::Nccl(nccl) => nccl.gather(bytes),
        }
    }

    /// Says that this rank makes progress, as every exchange does.
    pub fn beat(&self) {
        self.pulse.last.store(self.pulse.now(), Ordering::Relaxed);
    }

    /// Time since this rank last made progress.
    pub fn idle(&self) -> Duration {
        let last = self.pulse.last.load(Ordering::Relaxed);
        Duration::from_millis(self.pulse.now().saturating_sub(last))
    }

    /// What went wrong beside the calls, for a thread that watches: NCCL's asynchronous error.
    /// Always `None` where a call returns its own errors.
    pub fn fault(&self) -> Option<String> {
        match &self.links {
            Links::Single | Links::Host(_) => None,
            #[cfg(feature = "cuda")]
            Links::Nccl(nccl) => nccl.fault(),
        }
    }

    /// Ends the exchange in good order: all ranks call it when they are done, and nothing else
    /// afterwards. A process that fails ends without it.
    ///
    /// # Errors
    ///
    /// [`CommError::Nccl`] with what NCCL says.
    pub fn close(self) -> Result<(), CommError> {
        match &self.links {
            Links::Single | Links::Host(_) => Ok(()),
            #[cfg(feature = "cuda")]
            Links::Nccl(nccl) => nccl.close(),
        }
    }
}

/// With the host's sockets, one call at a time.
fn locked<T>(host: &Mutex<Host>, call: impl FnOnce(&mut Host) -> T) -> T {
    // After a panic in a call the ranks part, which the next call finds.
    call(&mut host.lock().unwrap_or_else(PoisonError::into_inner))
}
