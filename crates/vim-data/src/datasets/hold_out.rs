//! The validation and test splits that are held out of the training part.

use std::cmp::Reverse;

use super::config::{DataConfig, HoldOut};
use super::{DatasetKind, Splits};
use crate::dataset::Dataset;
use crate::error::{DataError, SourceError};
use crate::rng;
use crate::storage::layout::DataParts;

impl DataConfig {
    /// Checks the keys that choose the parts and the held-out images.
    ///
    /// # Errors
    /// [`DataError::InvalidConfig`] names the key.
    pub fn check_hold_out(&self) -> Result<(), DataError> {
        if !(0.0..1.0).contains(&self.val_fraction) {
            return Err(self.invalid_fraction("a share, 0 ≤ share < 1"));
        }
        let invalid = |key, value, expected| Err(DataError::InvalidConfig { key, value, expected });
        let parts = self.parts.unwrap_or_default();
        if self.dataset != DatasetKind::Folder
            && !matches!(parts, DataParts::Auto | DataParts::TrainVal)
        {
            let expected = "left out: `data.dataset = \"folder\"` alone has such parts";
            return invalid("data.parts", toml_of(parts), expected);
        }
        if let (Some(path), DataParts::Train | DataParts::TrainTest) = (&self.val_path, parts) {
            let expected = "left out where `data.parts` has no validation images";
            return invalid("data.val_path", path.display().to_string(), expected);
        }
        if let (true, DataParts::TrainValTest) = (self.val_fraction > 0.0, parts) {
            return Err(self.invalid_fraction(OWN_VAL_PARTS));
        }
        if let Some(share) = self.test_fraction.filter(|&share| share != 0.0) {
            let value = share.to_string();
            if !(share > 0.0 && self.val_fraction + share < 1.0) {
                return invalid("data.test_fraction", value, BESIDE);
            }
            if !self.may_be_alone() || !matches!(parts, DataParts::Auto | DataParts::Train) {
                return invalid("data.test_fraction", value, OWN_TEST);
            }
        }
        // TOML has no larger integers.
        if let Some(seed) = self.val_seed.filter(|&seed| i64::try_from(seed).is_err()) {
            let (key, value, expected) = ("data.val_seed", seed.to_string(), "less than 2^63");
            return Err(DataError::InvalidConfig { key, value, expected });
        }
        let expected = "left out: it has no effect without data.val_fraction or data.test_fraction";
        let holds_out = self.val_fraction > 0.0;
        // A record has its default, which `--set data.val_fraction=0` leaves there.
        let seed = self.val_seed.filter(|&seed| seed != 0);
        match (seed, self.val_rule) {
            (Some(seed), _) if !holds_out && self.test_fraction.unwrap_or(0.0) == 0.0 => {
                invalid("data.val_seed", seed.to_string(), expected)
            }
            (_, HoldOut::Rounded) if !holds_out => {
                invalid("data.val_rule", "\"rounded\"".to_owned(), expected)
            }
            (_, HoldOut::Rounded | HoldOut::EachClass) => Ok(()),
        }
    }

    /// Whether the dataset may have training images alone, or test images beside validation images.
    fn may_be_alone(&self) -> bool {
        self.dataset == DatasetKind::Folder || self.dataset.has_objects()
    }

    fn invalid_fraction(&self, expected: &'static str) -> DataError {
        let value = self.val_fraction.to_string();
        DataError::InvalidConfig { key: "data.val_fraction", value, expected }
    }
}

const BESIDE: &str = "a share, 0 ≤ share < 1, that leaves images beside `data.val_fraction`";
const OWN_VAL: &str = "0, as the data have validation images of their own";
const OWN_VAL_PARTS: &str = "0, as the data have validation images of their own (`data.parts`)";
const OWN_TEST: &str = "0, as the data have test images of their own";

/// A value as it is written in a configuration.
fn toml_of(parts: DataParts) -> String {
    toml::Value::try_from(parts).map_or_else(|_| String::new(), |value| value.to_string())
}

/// Takes the validation and the test split out of the training part, those that are to be held
/// out, and notes the keys that have no effect.
pub(super) fn hold_out(mut splits: Splits, config: &DataConfig) -> Result<Splits, DataError> {
    splits.notes.extend(config.without_effect());
    let is_alone = splits.test.is_empty();
    if !is_alone && config.test_fraction.is_some_and(|share| share > 0.0) {
        let (key, value) = ("data.test_fraction", config.test_share().to_string());
        return Err(DataError::InvalidConfig { key, value, expected: OWN_TEST });
    }
    let test_fraction = if is_alone { config.test_share() } else { 0.0 };
    if is_alone && test_fraction == 0.0 {
        let train = config.path.clone().unwrap_or_default();
        let advice = "set `data.test_fraction` and `data.val_fraction` to the shares of each \
                      class to hold out, such as 0.15, or `data.val_path` to a folder of classes \
                      to test on";
        return Err(SourceError::NoPart { train, what: "test", advice }.into());
    }
    let has_val = config.val_fraction > 0.0;
    if has_val && splits.val.is_some() && config.may_be_alone() {
        let is_of_folders = config.dataset == DatasetKind::Folder;
        let expected = if is_of_folders { OWN_VAL_PARTS } else { OWN_VAL };
        return Err(config.invalid_fraction(expected));
    }
    if !has_val && !is_alone {
        return Ok(splits);
    }
    if config.val_fraction + test_fraction >= 1.0 {
        let (key, value) = ("data.test_fraction", test_fraction.to_string());
        return Err(DataError::InvalidConfig { key, value, expected: BESIDE });
    }
    let (train, seed) = (&splits.train, config.val_seed.unwrap_or(0));
    let shares = Shares { val: config.val_fraction, test: test_fraction, rule: config.val_rule };
    let [kept, val, test] = stratified(train.dataset(), shares, seed);
    if kept.is_empty() || (has_val && val.is_empty()) || (is_alone && test.is_empty()) {
        let (key, value, expected) = match is_alone && (test.is_empty() || !has_val) {
            true => ("data.test_fraction", test_fraction, EACH),
            false if config.val_rule == HoldOut::EachClass => {
                ("data.val_fraction", config.val_fraction, EACH)
            }
            false => ("data.val_fraction", config.val_fraction, BOTH),
        };
        return Err(DataError::InvalidConfig { key, value: value.to_string(), expected });
    }
    let test = if is_alone { train.only(test) } else { splits.test };
    let val = if has_val { Some(train.only(val)) } else { splits.val };
    Ok(Splits { train: train.only(kept), val, test, test_fraction, ..splits })
}

const BOTH: &str = "a share that leaves both parts an image";
const EACH: &str = "a share that leaves both parts an image, and each class one";

/// The shares of a dataset that are held out.
#[derive(Clone, Copy)]
struct Shares {
    val: f64,
    test: f64,
    /// Of the validation images; each class keeps an image from the test.
    rule: HoldOut,
}

/// The images of a class in a random order: the first `held[0]` and the last `held[1]` are held
/// out, for validation and for the test. So neither number changes which images the other takes.
struct Members {
    images: Vec<usize>,
    held: [usize; 2],
}

impl Members {
    fn kept(&self) -> usize {
        self.images.len() - self.held[0] - self.held[1]
    }
}

/// Splits a dataset's indices into those to train on, those of validation and those of the test,
/// each ascending.
///
/// About `round(share · len)` images are held out, from every class its share to within one image,
/// unless the rule asks for more of the large classes. `seed` alone decides which ones.
fn stratified(dataset: &dyn Dataset, shares: Shares, seed: u64) -> [Vec<usize>; 3] {
    let mut classes: Vec<Members> =
        (0..dataset.num_classes()).map(|_| Members { images: Vec::new(), held: [0; 2] }).collect();
    for index in 0..dataset.len() {
        classes[dataset.label(index) as usize].images.push(index);
    }
    for (class, Members { images, .. }) in classes.iter_mut().enumerate() {
        rng::shuffle(&mut rng::keyed("vim-data holdout v1", &[seed, class as u64]), images);
    }
    // The test first: its images do not depend on the number of the others.
    for (of, share, rule) in [(1, shares.test, HoldOut::EachClass), (0, shares.val, shares.rule)] {
        let (mut seen, mut held) = (0, 0);
        for members in &mut classes {
            // Rounding the running total, not each class, keeps the sum right when classes are
            // small.
            seen += members.images.len();
            let wanted = (share * seen as f64).round() as usize - held;
            members.held[of] = members.kept().min(wanted);
            held += members.held[of];
        }
        if rule == HoldOut::EachClass && held < seen {
            give_back(&mut classes, of);
        }
    }
    let mut parts = [const { Vec::new() }; 3];
    for members in classes {
        let (val, rest) = members.images.split_at(members.held[0]);
        let (train, test) = rest.split_at(rest.len() - members.held[1]);
        for (part, images) in parts.iter_mut().zip([train, val, test]) {
            part.extend_from_slice(images);
        }
    }
    parts.iter_mut().for_each(|part| part.sort_unstable());
    parts
}

/// Gives each class that has lost all its images one of those back that are held out for `of`, and
/// takes as many from others instead: one from each of the largest, and again, while a class can
/// spare one.
fn give_back(classes: &mut [Members], of: usize) {
    let mut owed = 0;
    for members in classes.iter_mut().filter(|one| one.held[of] > 0 && one.kept() == 0) {
        members.held[of] -= 1;
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
            classes[class].held[of] += 1;
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
        let [train, val, test] = stratified(&data, Shares { val: fraction, test: 0.0, rule }, seed);
        assert_eq!((train.len() + val.len(), test.len()), (data.len(), 0));
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

    #[test]
    fn test_images_are_apart_and_depend_on_no_other_share() {
        let tail: Vec<usize> = (0..60).map(|class| 1 + 90 / (class + 1)).collect();
        for (counts, val, test) in
            [(&tail[..], 0.2, 0.2), (&[1, 2, 3, 14], 0.4, 0.3), (&[9], 0.5, 0.4)]
        {
            let data = of_counts(counts);
            let rule = HoldOut::EachClass;
            for seed in 0..20 {
                let [kept, of_val, of_test] = stratified(&data, Shares { val, test, rule }, seed);
                let mut all = [&kept[..], &of_val, &of_test].concat();
                all.sort_unstable();
                assert_eq!(all, (0..data.len()).collect::<Vec<_>>(), "{counts:?}");
                for (class, &count) in counts.iter().enumerate() {
                    let has =
                        |part: &[usize]| part.iter().any(|&at| data.labels[at] as usize == class);
                    assert!(has(&kept) || count == 0, "{counts:?} {seed} {class}");
                }
                let [_, _, alone] = stratified(&data, Shares { val: 0.0, test, rule }, seed);
                assert_eq!(alone, of_test);
                assert_eq!(of_test.len(), (test * data.len() as f64).round() as usize);
            }
        }
        let data = of_counts(&[40, 20]);
        let [_, val, test] =
            stratified(&data, Shares { val: 0.2, test: 0.1, rule: HoldOut::EachClass }, 0);
        assert_eq!((val.len(), test.len()), (12, 6));
        assert_eq!(
            held_of(&[40, 20], 0.2, 0, HoldOut::EachClass).0,
            val,
            "test images change none"
        );
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
