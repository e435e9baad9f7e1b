//! Lists of the classes of images that lie in no folder of a class.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::index::base_name;
use crate::error::{DataError, SourceError};
use crate::input::{InputKind, read_text};

/// A list as read.
#[derive(Debug)]
pub(crate) struct List {
    path: PathBuf,
    lines: Lines,
}

#[derive(Debug)]
enum Lines {
    /// A class for each image, in the order of the file names.
    InOrder(Vec<String>),
    /// A class by the file's name without its extension.
    ByName(HashMap<String, String>),
}

impl List {
    /// Reads a list of one class a line, or Kaggle's `ImageId,PredictionString` table.
    pub(crate) fn read(path: &Path) -> Result<Self, DataError> {
        let text = read_text(path, InputKind::Classes).map_err(DataError::io(path))?;
        let wrong = |line: usize, what: &str| SourceError::ListLine {
            list: path.to_owned(),
            line: line + 1,
            what: what.to_owned(),
        };
        let rows = text.lines().map(str::trim).enumerate().filter(|(_, row)| !row.is_empty());
        let lines = if text.starts_with("ImageId,") {
            let mut classes = HashMap::new();
            for (at, row) in rows.skip(1) {
                // The class and four coordinates, repeated for every object.
                let found = row.split_once(',');
                let found = found.and_then(|(name, boxes)| Some((name, boxes.split(' ').next()?)));
                let (name, class) = found
                    .filter(|(_, class)| !class.is_empty())
                    .ok_or_else(|| wrong(at, "expected `name,class and boxes`"))?;
                classes.insert(name.to_owned(), class.to_owned());
            }
            Lines::ByName(classes)
        } else {
            let class = |(at, row): (usize, &str)| match row
                .contains(|letter: char| letter.is_whitespace() || letter == ',')
            {
                true => Err(wrong(at, "expected a class and nothing else")),
                false => Ok(row.to_owned()),
            };
            Lines::InOrder(rows.map(class).collect::<Result<_, _>>()?)
        };
        Ok(Self { path: path.to_owned(), lines })
    }

    /// The classes of the images in `container`, and the label of each name, in the order given.
    pub(crate) fn apply(&self, container: &Path, names: Vec<&str>) -> Result<Labelled, DataError> {
        let classes: Vec<&str> = match &self.lines {
            Lines::InOrder(lines) => {
                if lines.len() != names.len() {
                    return Err(SourceError::ListLength {
                        list: self.path.clone(),
                        lines: lines.len(),
                        path: container.to_owned(),
                        images: names.len(),
                    }
                    .into());
                }
                let mut order: Vec<usize> = (0..names.len()).collect();
                order.sort_by_key(|&at| base_name(names[at]));
                let mut classes = vec![""; names.len()];
                for (line, at) in lines.iter().zip(order) {
                    classes[at] = line;
                }
                classes
            }
            Lines::ByName(lines) => names
                .iter()
                .map(|name| {
                    let base = base_name(name);
                    let stem = base.rsplit_once('.').map_or(base, |(stem, _)| stem);
                    lines.get(stem).map(String::as_str).ok_or_else(|| SourceError::ListLine {
                        list: self.path.clone(),
                        line: lines.len() + 1,
                        what: format!("there is none for image `{base}`"),
                    })
                })
                .collect::<Result<_, _>>()?,
        };
        Ok(labelled(&classes))
    }
}

/// The classes of images, sorted, and the label of each image.
pub(crate) struct Labelled {
    pub(crate) classes: Vec<String>,
    pub(crate) labels: Vec<u32>,
}

/// Numbers the class of each image.
pub(crate) fn labelled(of_images: &[&str]) -> Labelled {
    let mut classes = of_images.to_vec();
    classes.sort_unstable();
    classes.dedup();
    let label = |class: &&str| classes.partition_point(|other| other < class) as u32;
    let labels = of_images.iter().map(label).collect();
    Labelled { classes: classes.into_iter().map(str::to_owned).collect(), labels }
}
