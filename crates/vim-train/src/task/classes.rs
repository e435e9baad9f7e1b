//! Names of classes.

use std::fs;
use std::path::Path;

use vim_data::DatasetKind;

use super::named::NamedTask;
use crate::config::Config;
use crate::error::Error;

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

/// Names of `count` classes: from the file, else as `recorded` in the run, else of the dataset of
/// `config`, else of a published dataset of that size; else numbers.
pub(crate) fn class_names<T: NamedTask>(
    file: Option<&Path>,
    recorded: &[String],
    config: Option<&Config>,
    count: usize,
) -> Result<Vec<String>, Error> {
    if let Some(path) = file {
        let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
        let names: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        if names.len() != count {
            return Err(Error::data(format!(
                "{} has {} lines, the model has {count} classes: one name a line, in the order of the labels",
                path.display(),
                names.len()
            )));
        }
        return Ok(names);
    }
    if recorded.len() == count {
        return Ok(readable(recorded));
    }
    let names = match config.map(|config| config.data.dataset) {
        // Its files alone tell the names.
        Some(DatasetKind::Folder) => None,
        Some(dataset) if dataset.class_names().len() == count => {
            Some(dataset.class_names().iter().map(|&name| name.to_owned()).collect())
        }
        Some(_) | None => T::published_names(count),
    };
    Ok(names.unwrap_or_else(|| (0..count).map(|class| format!("class {class}")).collect()))
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
            class_names::<Classification>(None, recorded, config, count).unwrap()
        };
        let hundred: Vec<String> = (0..100).map(|class| format!("pie {class}")).collect();
        assert_eq!(named(&hundred, None, 100), hundred);
        let numbers = ["class 0", "class 1", "class 2"];
        assert_eq!(named(&hundred, None, 3), numbers, "of another head");
        assert_eq!(named(&[], None, 100)[0], "apple");
        let folder = Config::from_toml("[data]\ndataset = \"folder\"\n").unwrap();
        assert_eq!(named(&[], Some(&folder), 100)[99], "class 99", "nobody knows");
        let of_objects = class_names::<Detection>(None, &[], None, 100).unwrap();
        assert_eq!(of_objects[0], "class 0", "CIFAR-100's are of images");

        let mut ids: Vec<String> = (0..1000).map(|class| format!("n{class:08}")).collect();
        assert_eq!(readable(&ids), ids);
        (ids[0], ids[999]) = (IMAGENET_ENDS[0].to_owned(), IMAGENET_ENDS[1].to_owned());
        assert_eq!(readable(&ids)[0], "tench, Tinca tinca");
    }
}
