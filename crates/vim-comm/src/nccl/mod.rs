//! Ranks with a GPU each, by NCCL.
//!
//! NCCL moves numbers; the order of the sum is ours, because NCCL's own depends on the number of
//! ranks, the size and its version. Of two ranks there is one order only, and NCCL's all-reduce
//! has it. Of more, every rank gets its part of all ranks' numbers, sums it in the order of the
//! tree, and gives it to all. On several nodes the parts are summed within the node first and then
//! across nodes, so that each number crosses the network once for each node.

mod library;
mod link;

use std::fmt;

use burn::backend::{StreamId, TensorMetadata};
use burn::tensor::{DType, Device, Shape, Tensor};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeDevice};

use crate::error::CommError;
use crate::place::Place;
use crate::rendezvous::Rendezvous;
use crate::rows::ALIGNMENT;
use library::{Kind, UniqueId};
pub use library::{Library, VARIABLE};
use link::{Link, Split, empty, kind_of, part, unique_id};

/// This rank's communicators.
pub(crate) struct Nccl {
    /// One over all ranks; or the node's, and one over the ranks with this number on each node.
    links: Vec<Link>,
    library: Library,
    /// A tensor on the device.
    like: CubeTensor,
}

impl fmt::Debug for Nccl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Nccl").field("links", &self.links).finish_non_exhaustive()
    }
}

/// The ranks of a communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Level {
    /// What tells it from others of the run.
    name: String,
    rank: usize,
    world: usize,
}

/// The communicators of a rank, the innermost first.
fn levels(place: &Place) -> Vec<Level> {
    let (local, ranks) = (place.local_world(), place.ranks_of_nodes());
    // A node's sum must be a subtree of the whole sum.
    let splits = place.nodes() > 1
        && local > 1
        && local.is_power_of_two()
        && ranks.iter().all(|&ranks| ranks == local);
    if splits {
        let (node, number) = (place.node(), place.local_rank());
        vec![
            Level { name: format!("nccl-node-{node}"), rank: number, world: local },
            Level { name: format!("nccl-rank-{number}"), rank: node, world: place.nodes() },
        ]
    } else {
        vec![Level { name: "nccl".into(), rank: place.rank(), world: place.world() }]
    }
}

/// The tensor of the CUDA backend behind a tensor of the dispatch.
fn cube(tensor: Tensor<1>) -> Result<CubeTensor, CommError> {
    let what = "NCCL sums tensors of the CUDA backend, without autodiff";
    let unsupported = || CommError::Unsupported { what: what.to_owned() };
    let tensor = tensor.try_into_primitive::<CubeBackend>().map_err(|_| unsupported())?;
    if !matches!(tensor.device, CubeDevice::Cuda(_)) {
        return Err(unsupported());
    }
    Ok(into_contiguous(tensor))
}

impl Nccl {
    /// Joins the others; waits for them.
    pub(crate) fn join(
        rendezvous: &Rendezvous,
        device: &Device,
        library: &Library,
    ) -> Result<Self, CommError> {
        let like = cube(Tensor::zeros([1], device))?;
        let mut links = Vec::new();
        for level in levels(&rendezvous.place) {
            let id = if level.rank == 0 {
                let id = unique_id(library, &like)?;
                rendezvous.publish(&level.name, &id.0)?;
                id
            } else {
                let bytes = rendezvous.receive(&level.name)?;
                let bytes = bytes.try_into().map_err(|_| CommError::Nccl {
                    problem: format!("{} is not an id of NCCL's", level.name),
                })?;
                UniqueId(bytes)
            };
            links.push(Link::join(library, &like, (level.rank, level.world), id)?);
        }
        let nccl = Self { links, library: library.clone(), like };
        // NCCL connects when it is first used; nobody should measure that.
        let world = rendezvous.place.world();
        let sum = nccl.sum(Tensor::ones([1], device))?.try_into_data();
        let sum = sum.map_err(|error| CommError::Tensor { problem: format!("{error:?}") })?;
        if sum.iter::<f32>().ne([world as f32]) {
            let what = format!("NCCL counts {sum} ranks of {world}");
            return Err(CommError::Wrong { rank: rendezvous.place.rank(), what });
        }
        Ok(nccl)
    }

    /// The library that carries it.
    pub(crate) fn library(&self) -> &Library {
        &self.library
    }

    /// See [`Comm::fault`](crate::Comm::fault).
    pub(crate) fn fault(&self) -> Option<String> {
        self.links.iter().find_map(Link::fault)
    }

    /// See [`Comm::close`](crate::Comm::close).
    pub(crate) fn close(&self) -> Result<(), CommError> {
        self.links.iter().try_for_each(Link::close)
    }

    /// See [`Comm::sum`](crate::Comm::sum).
    pub(crate) fn sum(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CommError> {
        let tensor = cube(tensor)?;
        let dtype = tensor.dtype;
        let kind = kind_of(dtype);
        let unsupported = || CommError::Unsupported { what: format!("ranks cannot sum {dtype:?}") };
        let kind = kind.ok_or_else(unsupported)?;
        if tensor.shape().num_elements() == 0 {
            return Ok(Tensor::from_primitive::<CubeBackend>(tensor));
        }
        Ok(Tensor::from_primitive::<CubeBackend>(sum(&self.links, tensor, kind)))
    }

    /// See [`Comm::broadcast`](crate::Comm::broadcast).
    pub(crate) fn broadcast(&self, bytes: Vec<u8>) -> Result<Vec<u8>, CommError> {
        let length = self.broadcast_bytes(&(bytes.len() as u64).to_le_bytes(), 8)?;
        let length = length.try_into().map_or(0, u64::from_le_bytes) as usize;
        if length == 0 { Ok(Vec::new()) } else { self.broadcast_bytes(&bytes, length) }
    }

    /// `length` bytes of rank 0.
    fn broadcast_bytes(&self, bytes: &[u8], length: usize) -> Result<Vec<u8>, CommError> {
        let mut bytes = bytes.to_vec();
        bytes.resize(length, 0);
        let buffer = self.upload(&bytes);
        // From rank 0 to the first of each node, and from there to all.
        self.links.iter().rev().for_each(|link| link.broadcast(&buffer));
        self.read(buffer)
    }

    /// See [`Comm::gather`](crate::Comm::gather).
    pub(crate) fn gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        let lengths = self.gather_bytes(&(bytes.len() as u64).to_le_bytes())?;
        let lengths = lengths.as_chunks().0.iter().map(|length| u64::from_le_bytes(*length));
        let lengths: Vec<usize> = lengths.map(|length| length as usize).collect();
        let most = lengths.iter().copied().max().unwrap_or_default();
        if most == 0 {
            return Ok(lengths.iter().map(|_| Vec::new()).collect());
        }
        let mut padded = bytes.to_vec();
        padded.resize(most, 0);
        let all = self.gather_bytes(&padded)?;
        Ok(all.chunks(most).zip(lengths).map(|(own, length)| own[..length].to_vec()).collect())
    }

    /// Every rank's bytes behind each other; all give equally many.
    fn gather_bytes(&self, bytes: &[u8]) -> Result<Vec<u8>, CommError> {
        let mut own = self.upload(bytes);
        for link in &self.links {
            let all = empty(&own, link.world() * own.shape().num_elements(), DType::U8);
            link.gather(&own, &all, Kind::U8);
            own = all;
        }
        self.read(own)
    }

    fn upload(&self, bytes: &[u8]) -> CubeTensor {
        let CubeTensor { client, device, .. } = &self.like;
        let handle = client.create_from_slice(bytes);
        let shape = Shape::from([bytes.len()]);
        CubeTensor::new_contiguous(client.clone(), device.clone(), shape, handle, DType::U8)
    }

    /// Waits for what is queued.
    fn read(&self, bytes: CubeTensor) -> Result<Vec<u8>, CommError> {
        let read = self.like.client.read_one(bytes.handle);
        let read = read.map_err(|error| CommError::Nccl { problem: format!("{error:?}") })?;
        Ok(read.to_vec())
    }
}

/// The sum over the ranks of `links`, queued.
fn sum(links: &[Link], tensor: CubeTensor, kind: Kind) -> CubeTensor {
    let Some((link, outer)) = links.split_first() else { return tensor };
    let count = tensor.shape().num_elements();
    if outer.is_empty() && link.world() == 2 {
        // In place only where nobody else has the memory, and where whoever reads it waits for
        // this thread's stream.
        let in_place = tensor.can_mut() && tensor.handle.stream == StreamId::current();
        let to = if in_place { tensor.clone() } else { empty(&tensor, count, tensor.dtype) };
        link.all_reduce(&tensor, &to, kind);
        return to;
    }
    let parts = split(link, outer, count);
    let all = empty(&tensor, link.world() * parts.length, tensor.dtype);
    sum_parts(link, outer, &tensor, &all, parts, kind);
    part(&all, 0, count)
}

/// Parts for the ranks of `link` that can be cut again without padding for those of `outer`.
fn split(link: &Link, outer: &[Link], count: usize) -> Split {
    let again: usize = outer.iter().map(Link::world).product();
    Split::new(count, link.world(), again * ALIGNMENT)
}

/// Writes the sum of `from` into `all`, which has room for the padding and may be `from` where
/// there is none.
fn sum_parts(
    link: &Link,
    outer: &[Link],
    from: &CubeTensor,
    all: &CubeTensor,
    cut: Split,
    kind: Kind,
) {
    let own = part(all, link.rank() * cut.length, cut.length);
    link.scatter_sum(from, &own, cut, kind);
    match outer.split_first() {
        None => {}
        Some((next, [])) if next.world() == 2 => next.all_reduce(&own, &own, kind),
        Some((next, rest)) => {
            sum_parts(next, rest, &own, &own, split(next, rest, cut.length), kind);
        }
    }
    link.gather(&own, all, kind);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(rank: usize, nodes: &[usize]) -> Vec<(String, usize, usize)> {
        let levels = levels(&Place::new(rank, nodes.to_vec()).unwrap());
        levels.into_iter().map(|level| (level.name, level.rank, level.world)).collect()
    }

    #[test]
    fn nodes_sum_first_where_that_keeps_the_order() {
        assert_eq!(names(2, &[4]), [("nccl".into(), 2, 4)]);
        // No tree over three has a subtree of three.
        for nodes in [&[3, 3][..], &[2, 4], &[1, 1, 1]] {
            assert_eq!(names(0, nodes), [("nccl".into(), 0, nodes.iter().sum())]);
        }
        let two = |node, number| {
            [(format!("nccl-node-{node}"), number, 4), (format!("nccl-rank-{number}"), node, 3)]
        };
        for rank in 0..12 {
            assert_eq!(names(rank, &[4, 4, 4]), two(rank / 4, rank % 4));
        }
    }
}
