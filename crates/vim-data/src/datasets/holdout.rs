//! Which training images are held out for validation.

use crate::{dataset::Dataset, rng};

/// Splits a dataset's indices into those to train on and those held out, both ascending.
///
/// About `round(fraction · len)` images are held out, from every class its share to within one
/// image. `seed` alone decides which ones.
pub(crate) fn stratified(
    dataset: &dyn Dataset,
    fraction: f64,
    seed: u64,
) -> (Vec<usize>, Vec<usize>) {
    let mut by_class = vec![Vec::new(); dataset.num_classes()];
    for index in 0..dataset.len() {
        by_class[dataset.label(index) as usize].push(index);
    }

    let (mut train, mut held) = (Vec::new(), Vec::new());
    let mut seen = 0;
    for (class, mut members) in by_class.into_iter().enumerate() {
        rng::shuffle(&mut rng::keyed("vim-data holdout v1", &[seed, class as u64]), &mut members);
        // Rounding the running total, not each class, keeps the sum right when classes are small.
        seen += members.len();
        let wanted = (fraction * seen as f64).round() as usize - held.len();
        let taken = members.len().min(wanted);
        held.extend_from_slice(&members[..taken]);
        train.extend_from_slice(&members[taken..]);
    }
    train.sort_unstable();
    held.sort_unstable();
    (train, held)
}
