//! Names of classes.

use std::path::Path;

use vim_data::{ClassMatch, DataError, DatasetKind, InputKind, Splits, match_classes, read_text};

use super::named::NamedTask;
use crate::config::Config;
use crate::error::Error;
use crate::weights::WeightsError;
use crate::weights::source::WeightsSource;

/// ImageNet's class names; data/README.md has their source.
pub(super) const IMAGENET: &str = include_str!("../../../../data/imagenet1k_classes.txt");
/// The first and the last class of ImageNet, as its folders are named.
const IMAGENET_ENDS: [&str; 2] = ["n01440764", "n15075141"];

/// The names that a dataset gives its classes, in words: it knows ImageNet's by WordNet's IDs.
pub(crate) fn readable(names: &[String]) -> Vec<String> {
    let ends = [names.first(), names.last()].map(|name| name.map_or("", String::as_str));
    if names.len() == 1000 && ends == IMAGENET_ENDS {
        return IMAGENET.lines().map(str::to_owned).collect();
    }
    names.to_vec()
}

/// `splits` under the classes that the run of `config` began with, by name; its data must have
/// these and no others. Where `classes` is empty, the data alone say them.
pub(super) fn as_begun(
    splits: Splits,
    classes: &[String],
    config: &Config,
) -> Result<Splits, Error> {
    if classes.is_empty() {
        return Ok(splits);
    }
    let run = config.run_folder()?.display().to_string();
    let matched = match_classes(classes, splits.train.class_names()).map_err(DataError::from)?;
    if matched.unknown.is_empty() && !matched.missing.is_empty() {
        return Err(
            WeightsError::MissingClasses { checkpoint: run, missing: matched.missing }.into()
        );
    }
    let note = how_matched(classes, splits.train.class_names(), &matched);
    let mut splits = under(splits, classes, &matched, &run)?;
    splits.notes.extend(note);
    Ok(splits)
}

/// What is to be said of a match that is not of the same names in the same order.
fn how_matched(recorded: &[String], data: &[String], matched: &ClassMatch) -> Option<String> {
    if matched.by_number {
        let (recorded, data) = (first(recorded), first(data));
        return Some(format!("classes by number: the weights name {recorded}, the data {data}"));
    }
    let is_reordered = matched.missing.is_empty() && !matched.is_identity();
    is_reordered.then(|| "classes by name: the data list them in another order".to_owned())
}

/// `splits` under the classes that the weights of `source` name, and what is to be said of the
/// match: those whose classes are numbers match by their number. With `head` allowed to be of other
/// classes, data that do not know all of them keep their own.
pub(crate) fn as_trained(
    splits: Splits,
    source: &WeightsSource,
    head: bool,
) -> Result<(Splits, Option<String>), Error> {
    if source.classes.is_empty() {
        // Without any record that is said with all the rest.
        let note = source.recorded.as_ref().map(|_| "classes in the order of their numbers".into());
        return Ok((splits, note));
    }
    let matched =
        match_classes(&source.classes, splits.train.class_names()).map_err(DataError::from)?;
    let data = splits.train.class_names();
    if head && !matched.unknown.is_empty() {
        let (recorded, data) = (first(&source.classes), first(data));
        let note = format!("other classes: the weights name {recorded}, the data {data}");
        return Ok((splits, Some(note)));
    }
    let note = how_matched(&source.classes, data, &matched);
    Ok((under(splits, &source.classes, &matched, &source.name)?, note))
}

/// What training cannot learn from the classes of `splits`, a line each.
pub(super) fn unlearnable(splits: &Splits) -> Vec<String> {
    let (train, mut lines) = (&splits.train, Vec::new());
    if train.num_classes() == 1 {
        let advice = match train.class_counts() {
            Some(_) => "; if the classes are folders in it, set data.path to it",
            None => "",
        };
        let name = train.class_names()[0].escape_debug();
        lines.push(format!(
            "one class in all, {name}: every answer is right, and nothing is learned{advice}"
        ));
    }
    let without = train.empty_classes();
    if let [one, ..] = &without[..] {
        lines.push(format!(
            "{} of {} classes have no training image, {} the first: they cannot be learned",
            without.len(),
            train.num_classes(),
            one.escape_debug()
        ));
    }
    lines
}

/// The first of some names of classes.
fn first(names: &[String]) -> String {
    let shown: Vec<String> =
        names.iter().take(2).map(|name| name.escape_debug().to_string()).collect();
    if names.len() > shown.len() { shown.join(", ") + ", …" } else { shown.join(", ") }
}

/// `splits` under the classes called `names`, as they were `matched`; those of `whose` weights.
pub(crate) fn under(
    splits: Splits,
    names: &[String],
    matched: &ClassMatch,
    whose: &str,
) -> Result<Splits, Error> {
    if !matched.unknown.is_empty() {
        let (checkpoint, unknown, known) =
            (whose.to_owned(), matched.unknown.clone(), names.to_vec());
        return Err(WeightsError::UnknownClasses { checkpoint, unknown, known }.into());
    }
    Ok(splits.relabelled(names, matched).map_err(DataError::from)?)
}

/// Names of `count` classes: from the file, else as `recorded` in the run, else of the dataset of
/// `config`, else of a published dataset of that size, which is an assumption and said; else
/// numbers.
pub(crate) fn class_names<T: NamedTask>(
    file: Option<&Path>,
    recorded: &[String],
    config: Option<&Config>,
    count: usize,
) -> Result<(Vec<String>, Option<String>), Error> {
    if let Some(path) = file {
        let text = read_text(path, InputKind::Classes).map_err(Error::input(path))?;
        let names: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        if names.len() != count {
            return Err(Error::data(format!(
                "{} has {} lines, the model has {count} classes: one name a line, in the order of the labels",
                path.display(),
                names.len()
            )));
        }
        // Names that two classes share say nothing of an order.
        let is_permuted = match_classes(recorded, &names).is_ok_and(|matched| {
            recorded.len() == count
                && matched.unknown.is_empty()
                && !matched.by_number
                && !matched.is_identity()
        });
        if is_permuted {
            eprintln!(
                "note: {} lists the classes of the weights in another order: theirs counts",
                path.display()
            );
            return Ok((recorded.to_vec(), None));
        }
        return Ok((names, None));
    }
    if recorded.len() == count {
        return Ok((readable(recorded), None));
    }
    let published = match config.map(|config| config.data.dataset) {
        // Its files alone tell the names.
        Some(DatasetKind::Folder) => None,
        Some(dataset) if dataset.class_names().len() == count => {
            let names = dataset.class_names().iter().map(|&name| name.to_owned());
            return Ok((names.collect(), None));
        }
        Some(_) | None => T::published_names(count),
    };
    if let Some(names) = published {
        let assumed = format!("class names of the published dataset with {count} classes");
        return Ok((names, Some(assumed)));
    }
    Ok(((0..count).map(|class| format!("class {class}")).collect(), None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::classification::Classification;
    use crate::task::detection::Detection;

    #[test]
    fn shipped_names_are_as_many_as_classes() {
        assert_eq!(IMAGENET.lines().count(), 1000);
        assert!(IMAGENET.lines().all(|name| !name.trim().is_empty()));
        let cifar: Vec<&str> =
            include_str!("../../../../data/cifar100_classes.txt").lines().collect();
        assert_eq!(cifar, DatasetKind::Cifar100.class_names());
    }

    #[test]
    fn recorded_names_come_before_those_of_a_dataset_of_the_same_size() {
        let named = |recorded: &[String], config: Option<&Config>, count| {
            class_names::<Classification>(None, recorded, config, count).unwrap().0
        };
        let hundred: Vec<String> = (0..100).map(|class| format!("pie {class}")).collect();
        assert_eq!(named(&hundred, None, 100), hundred);
        let numbers = ["class 0", "class 1", "class 2"];
        assert_eq!(named(&hundred, None, 3), numbers, "of another head");
        assert_eq!(named(&[], None, 100)[0], "apple");
        let folder = Config::from_toml("[data]\ndataset = \"folder\"\n").unwrap();
        assert_eq!(named(&[], Some(&folder), 100)[99], "class 99", "nobody knows");
        let of_objects = class_names::<Detection>(None, &[], None, 100).unwrap();
        assert_eq!(of_objects.0[0], "class 0", "CIFAR-100's are of images");
        assert_eq!(of_objects.1, None, "a number is no assumption");
        let (names, assumed) = class_names::<Classification>(None, &[], None, 1000).unwrap();
        assert_eq!(names[0], "tench, Tinca tinca");
        assert_eq!(assumed.unwrap(), "class names of the published dataset with 1000 classes");

        let mut ids: Vec<String> = (0..1000).map(|class| format!("n{class:08}")).collect();
        assert_eq!(readable(&ids), ids);
        (ids[0], ids[999]) = (IMAGENET_ENDS[0].to_owned(), IMAGENET_ENDS[1].to_owned());
        assert_eq!(readable(&ids)[0], "tench, Tinca tinca");
    }
}
