//! The classes of images by the folders that they are in.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The class of every image.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Labels {
    /// Names of the classes, sorted.
    pub(super) classes: Vec<String>,
    /// The class of each image, a place in `classes`.
    pub(super) labels: Vec<i64>,
}

impl Labels {
    /// The labels of `images`; `None` unless each is in a folder of one of `roots`.
    pub(super) fn of(images: &[&PathBuf], roots: &[PathBuf]) -> Option<Self> {
        let names: Option<Vec<String>> = images.iter().map(|path| class(path, roots)).collect();
        let names = names?;
        let classes: BTreeSet<&String> = names.iter().collect();
        let classes: Vec<String> = classes.into_iter().cloned().collect();
        let label = |name: &String| Some(classes.binary_search(name).ok()? as i64);
        let labels: Option<Vec<i64>> = names.iter().map(label).collect();
        Some(Self { labels: labels?, classes })
    }
}

/// The folder of a root in which `path` is, at any depth.
fn class(path: &Path, roots: &[PathBuf]) -> Option<String> {
    let below = roots.iter().find_map(|root| path.strip_prefix(root).ok())?;
    let mut parts = below.components();
    let first = parts.next()?;
    parts.next()?;
    Some(first.as_os_str().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(images: &[&str], roots: &[&str]) -> Option<(Vec<String>, Vec<i64>)> {
        let images: Vec<PathBuf> = images.iter().map(PathBuf::from).collect();
        let roots: Vec<PathBuf> = roots.iter().map(PathBuf::from).collect();
        let labels = Labels::of(&images.iter().collect::<Vec<_>>(), &roots)?;
        Some((labels.classes, labels.labels))
    }

    #[test]
    fn a_folder_of_a_folder_is_a_class() {
        let (classes, found) =
            labels(&["a/dog/x.png", "b/cat/deep/y.png", "a/dog/z.png"], &["a", "b/"]).unwrap();
        assert_eq!((classes, found), (vec!["cat".into(), "dog".into()], vec![1, 0, 1]));
        assert_eq!(labels(&["a/dog/x.png", "a/y.png"], &["a"]), None, "one is in no class");
        assert_eq!(labels(&["a/dog/x.png"], &["a/dog/x.png"]), None, "a file by itself");
    }
}
