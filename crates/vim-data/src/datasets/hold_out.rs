//! The validation split that is held out of the training part.

use std::cmp::Reverse;

use super::Splits;
use super::config::{DataConfig, HoldOut};
use crate::dataset::Dataset;
use crate::{error::DataError, rng};

impl DataConfig {
    /// Checks the keys that choose the held-out images.
    pub(super) fn check_hold_out(&self) -> Result<(), DataError> {
        if !(0.0..1.0).contains(&self.val_fraction) {
            return Err(self.invalid_fraction("a share, 0 ≤ share < 1"));
        }
        // TOML has no larger integers.
        if let Some(seed) = self.val_seed.filter(|&seed| i64::try_from(seed).is_err()) {
            let (key, value, expected) = ("data.val_seed", seed.to_string(), "less than 2^63");
            return Err(DataError::InvalidConfig { key, value, expected });
        }
        if self.val_fraction > 0.0 {
            return Ok(());
        }
        let unused = |key, value| {
            let expected = "no such key where `data.val_fraction` is 0, as it has no effect there";
            Err(DataError::InvalidConfig { key, value, expected })
        };
        match (self.val_seed, self.val_rule) {
            (Some(seed), _) => unused("data.val_seed", seed.to_string()),
            (None, HoldOut::Rounded) => unused("data.val_rule", "\"rounded\"".to_owned()),
            (None, HoldOut::EachClass) => Ok(()),
        }
    }

    fn invalid_fraction(&self, expected: &'static str) -> DataError {
        let value = self.val_fraction.to_string();
        DataError::InvalidConfig { key: "data.val_fraction", value, expected }
    }
}

/// Takes the validation split out of the training part, if one is to be held out.
pub(super) fn hold_out(splits: Splits, config: &DataConfig) -> Result<Splits, DataError> {
    if config.val_fraction == 0.0 {
        return Ok(splits);
    }
    let train = &splits.train;
    let seed = config.val_seed.unwrap_or(0);
    let (kept, held) = stratified(train.dataset(), config.val_fraction, seed, config.val_rule);
    if kept.is_empty() || held.is_empty() {
        return Err(config.invalid_fraction(match config.val_rule {
            HoldOut::EachClass => "a share that leaves both parts an image, and each class one",
            HoldOut::Rounded => "a share that leaves both parts an image",
        }));
    }
    Ok(Splits { val: Some(train.only(held)), train: train.only(kept), ..splits })
}

/// The images of a class in a random order, of which the first `held` are held out.
struct Members {
    images: Vec<usize>,
    held: usize,
}

impl Members {
    fn kept(&self) -> usize {
        self.images.len() - self.held
    }
}

/// Splits a dataset's indices into those to train on and those held out, both ascending.
///
/// About `round(fraction · len)` images are held out, from every class its share to within one
/// image, unless the rule asks for more of the large classes. `seed` alone decides which ones.
fn stratified(
    dataset: &dyn Dataset,
    fraction: f64,
    seed: u64,
    rule: HoldOut,
) -> (Vec<usize>, Vec<usize>) {
    let mut classes: Vec<Members> =
        (0..dataset.num_classes()).map(|_| Members { images: Vec::new(), held: 0 }).collect();
    for index in 0..dataset.len() {
        classes[dataset.label(index) as usize].images.push(index);
    }
    let (mut seen, mut held) = (0, 0);
    for (class, Members { images, held: of_class }) in classes.iter_mut().enumerate() {
        rng::shuffle(&mut rng::keyed("vim-data holdout v1", &[seed, class as u64]), images);
        // Rounding the running total, not each class, keeps the sum right when classes are small.
        seen += images.len();
        let wanted = (fraction * seen as f64).round() as usize - held;
        *of_class = images.len().min(wanted);
        held += *of_class;
    }
    if rule == HoldOut::EachClass && held < seen {
        give_back(&mut classes);
    }
    let (mut train, mut val) = (Vec::new(), Vec::new());
    for Members { images, held } in classes {
        val.extend_from_slice(&images[..held]);
        train.extend_from_slice(&images[held..]);
    }
    train.sort_unstable();
    val.sort_unstable();
    (train, val)
}

/// Gives each class that has lost all its images one of them back, and takes as many from others
/// instead: one from each of the largest, and again, while a class can spare one.
fn give_back(classes: &mut [Members]) {
    let mut owed = 0;
    for members in classes.iter_mut().filter(|members| members.held > 0 && members.kept() == 0) {
        members.held -= 1;
        owed += 1;
    }
    let mut order: Vec<usize> = (0..classes.len()).collect();
    order.sort_by_key(|&class| Reverse(classes[class].images.len()));
    while owed > 0 {
        order.retain(|&class| classes[class].kept() > 1);
        if order.is_empty() {
            return;
        }
        for &class in order.iter().take(owed) {
            classes[class].held += 1;
        }
        owed -= order.len().min(owed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Class, Encoding, Fingerprint, Sample};
    use crate::statistics::Statistics;

    /// Images of these labels, without pixels.
    struct Labels {
        labels: Vec<Class>,
        names: Vec<String>,
    }

    impl Dataset for Labels {
        fn len(&self) -> usize {
            self.labels.len()
        }

        fn encoding(&self) -> Encoding {
            Encoding::Files
        }

        fn class_names(&self) -> &[String] {
            &self.names
        }

        fn label(&self, index: usize) -> Class {
            self.labels[index]
        }

        fn name(&self, index: usize) -> String {
            index.to_string()
        }

        fn read(&self, _: usize, _: &mut Sample) -> Result<(), DataError> {
            Ok(())
        }

        fn statistics(&self) -> Statistics {
            Statistics::IMAGENET
        }

        fn fingerprint_by(&self, _: &[String], _: &dyn Fn(Class) -> Class) -> Fingerprint {
            Fingerprint::of(|_| {})
        }
    }

    /// A dataset whose classes have these numbers of images, one after the other.
    fn of_counts(counts: &[usize]) -> Labels {
        let labels = (0..).zip(counts).flat_map(|(class, &count)| vec![class; count]).collect();
        Labels { labels, names: vec![String::new(); counts.len()] }
    }

    /// Held-out images, and how many images of each class are kept.
    fn held_of(
        counts: &[usize],
        fraction: f64,
        seed: u64,
        rule: HoldOut,
    ) -> (Vec<usize>, Vec<usize>) {
        let data = of_counts(counts);
        let (train, val) = stratified(&data, fraction, seed, rule);
        assert_eq!(train.len() + val.len(), data.len());
        let mut kept = vec![0; counts.len()];
        train.iter().for_each(|&index| kept[data.label(index) as usize] += 1);
        (val, kept)
    }

    #[test]
    fn each_class_keeps_an_image() {
        let tail: Vec<usize> = (0..200).map(|class| 1 + 150 / (class + 1)).collect();
        for (counts, fraction, total) in [
            (&tail[..], 0.1, 98),
            (&tail[..], 0.3, 294),
            (&[1, 1, 1, 1, 1, 1, 1, 1, 1, 11], 0.25, 5),
            (&[1, 2, 1, 2], 0.5, 2),
            // No more can be had.
            (&[1, 1, 1, 1, 3], 0.5, 2),
            (&[0, 1, 0, 4], 0.4, 2),
        ] {
            for seed in 0..20 {
                let (held, kept) = held_of(counts, fraction, seed, HoldOut::EachClass);
                assert_eq!(held.len(), total, "{counts:?} {fraction}");
                for (kept, &count) in kept.iter().zip(counts) {
                    assert!(*kept > 0 || count == 0, "{counts:?} {fraction} {seed}");
                }
            }
        }
        let (_, kept) = held_of(&tail, 0.1, 0, HoldOut::Rounded);
        assert!(kept.contains(&0), "{kept:?}");
    }

    #[test]
    fn where_each_class_keeps_an_image_the_rules_agree() {
        let mut compared = 0;
        for counts in [&[20, 7, 3, 11][..], &[5, 5, 5], &[1, 40, 1, 9], &[100]] {
            for fraction in [0.02, 0.1, 0.25, 0.5, 0.9] {
                for seed in [0, 1, 7] {
                    let (rounded, kept) = held_of(counts, fraction, seed, HoldOut::Rounded);
                    if kept.iter().all(|&kept| kept > 0) {
                        let (each, _) = held_of(counts, fraction, seed, HoldOut::EachClass);
                        assert_eq!(each, rounded, "{counts:?} {fraction} {seed}");
                        compared += 1;
                    }
                }
            }
        }
        assert!(compared > 30, "{compared}");
    }

    /// What configurations of version 1 held out: their runs are resumed by it.
    fn of_version_1(dataset: &dyn Dataset, fraction: f64, seed: u64) -> Vec<usize> {
        let mut held = Vec::new();
        let mut seen = 0;
        for class in 0..dataset.num_classes() {
            let of_class = |&index: &usize| dataset.label(index) as usize == class;
            let mut members: Vec<usize> = (0..dataset.len()).filter(of_class).collect();
            let key = [seed, class as u64];
            rng::shuffle(&mut rng::keyed("vim-data holdout v1", &key), &mut members);
            seen += members.len();
            let wanted = (fraction * seen as f64).round() as usize - held.len();
            held.extend_from_slice(&members[..members.len().min(wanted)]);
        }
        held.sort_unstable();
        held
    }

    #[test]
    fn rounded_shares_are_those_of_version_1() {
        for counts in [&[4, 3, 1][..], &[1; 30], &[20, 7, 3, 11, 0, 1]] {
            for (fraction, seed) in [(0.5, 3), (0.1, 0), (0.9, 12)] {
                let (held, _) = held_of(counts, fraction, seed, HoldOut::Rounded);
                assert_eq!(held, of_version_1(&of_counts(counts), fraction, seed));
            }
        }
    }

    #[test]
    fn a_share_that_takes_all_or_nothing_is_seen() {
        for rule in [HoldOut::EachClass, HoldOut::Rounded] {
            assert_eq!(held_of(&[20], 0.999, 0, rule).0.len(), 20);
            assert!(held_of(&[20], 0.001, 0, rule).0.is_empty());
        }
        assert!(held_of(&[1; 10], 0.5, 0, HoldOut::EachClass).0.is_empty());
    }
}
