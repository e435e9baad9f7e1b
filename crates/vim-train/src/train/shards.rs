//! Sums over the shards of a batch, which a rank computes one after the other, and over the ranks.

use burn::tensor::Tensor;
use vim_comm::{Comm, TreeSum};
use vim_kernels::{FlatParams, supports_multi_tensor};

use crate::error::Error;

/// How the tensors of a shard lie behind each other, so that a sum of all is one operation and one
/// exchange.
#[derive(Clone, Debug)]
pub(super) enum Packing {
    /// By kernels that take many tensors.
    Blocks(Box<FlatParams>),
    /// Their lengths.
    Dense(Vec<usize>),
}

impl Packing {
    fn of(tensors: &[Tensor<1>]) -> Self {
        if tensors.first().is_some_and(|tensor| supports_multi_tensor(&tensor.device())) {
            return Self::Blocks(Box::new(FlatParams::of(tensors)));
        }
        Self::Dense(tensors.iter().map(|tensor| tensor.dims()[0]).collect())
    }

    fn pack(&self, tensors: Vec<Tensor<1>>) -> Tensor<1> {
        match self {
            Self::Blocks(layout) => layout.pack(tensors),
            Self::Dense(_) => Tensor::cat(tensors, 0),
        }
    }

    fn parts(&self, packed: &Tensor<1>) -> Vec<Tensor<1>> {
        match self {
            Self::Blocks(layout) => layout.parts(packed),
            Self::Dense(lengths) => {
                let begins = lengths.iter().scan(0, |end, length| {
                    *end += length;
                    Some(*end - length)
                });
                let part = |(begin, &length)| packed.clone().narrow(0, begin, length);
                begins.zip(lengths).map(part).collect()
            }
        }
    }
}

/// What the shards of one rank come to.
#[expect(clippy::large_enum_variant, reason = "one exists at a time, for the length of a sum")]
pub(super) enum RankSum {
    /// The tensors of the only shard of all.
    Whole(Vec<Tensor<1>>),
    /// The sum of the rank's shards, packed.
    Packed(Tensor<1>),
}

/// Sums the tensors of each shard of this rank in the order of a tree. `packing` is made when it is
/// first needed.
pub(super) fn sum_of_rank(
    mut shards: impl ExactSizeIterator<Item = Result<Vec<Tensor<1>>, Error>>,
    comm: &Comm,
    packing: &mut Option<Packing>,
) -> Result<RankSum, Error> {
    let first = shards.next().ok_or_else(|| Error::internal("a rank without shards"))??;
    if shards.len() == 0 && comm.size() == 1 {
        return Ok(RankSum::Whole(first));
    }
    let packing = packing.get_or_insert_with(|| Packing::of(&first));
    let mut sums = TreeSum::new();
    sums.push(packing.pack(first), |left, right| left + right);
    for shard in shards {
        sums.push(packing.pack(shard?), |left, right| left + right);
    }
    let own = sums.finish(|left, right| left + right).expect("invariant: one was pushed");
    Ok(RankSum::Packed(own))
}

/// The sums over all shards, in the order of one tree over them.
pub(super) fn sum_of_ranks(
    own: RankSum,
    comm: &Comm,
    packing: Option<&Packing>,
) -> Result<Vec<Tensor<1>>, Error> {
    match own {
        RankSum::Whole(tensors) => Ok(tensors),
        RankSum::Packed(own) => {
            let packing = packing.expect("invariant: it was packed");
            Ok(packing.parts(&comm.sum(own)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    /// Numbers whose sum depends on the order.
    fn number(shard: usize, place: usize) -> f32 {
        ((shard * 7 + place) as f32 * 0.37).sin() * 10f32.powi(shard as i32 % 5 * 3)
    }

    #[test]
    fn shards_are_added_in_a_tree_whatever_their_packing() {
        let device = Device::flex();
        let lengths = [3, 1, 700];
        for count in [1, 2, 3, 6, 8] {
            let shard = |shard: usize| {
                let tensor = |length: usize| {
                    let numbers: Vec<f32> = (0..length).map(|i| number(shard, i)).collect();
                    Tensor::<1>::from_floats(&numbers[..], &device)
                };
                Ok(lengths.map(tensor).to_vec())
            };
            let (comm, mut packing) = (Comm::single(), None);
            let own = sum_of_rank((0..count).map(shard), &comm, &mut packing).unwrap();
            let sums = sum_of_ranks(own, &comm, packing.as_ref()).unwrap();
            for (sum, length) in sums.into_iter().zip(lengths) {
                let want: Vec<f32> = (0..length)
                    .map(|place| {
                        let mut tree = TreeSum::new();
                        (0..count).for_each(|of| tree.push(number(of, place), |a, b| a + b));
                        tree.finish(|a, b| a + b).unwrap()
                    })
                    .collect();
                let got: Vec<f32> = sum.into_data().iter().collect();
                let bits = |all: &[f32]| all.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&got), bits(&want), "{count} shards of {length}");
            }
        }
    }
}
