//! The files that `predict` writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use vim_run::storage::{Disk, replace};

use super::gallery;
use crate::error::Error;
use crate::output::{OutputError, check_free, csv};
use crate::task::classification::predict::Guesses;

/// Makes `folders`, and checks that no two of the `files` of the images at `paths` would be one,
/// and that none is there unless it may be written over.
pub(super) fn prepare<'a>(
    folders: impl Iterator<Item = &'a Path>,
    paths: &[PathBuf],
    force: bool,
    files: impl Fn(&Path) -> Vec<PathBuf>,
) -> Result<(), Error> {
    for folder in folders {
        fs::create_dir_all(folder).map_err(Error::io("make", folder))?;
    }
    let mut taken: BTreeMap<PathBuf, &Path> = BTreeMap::new();
    for path in paths {
        for file in files(path) {
            check_free(&file, force)?;
            if let Some(other) = taken.insert(file.clone(), path) {
                return Err(Error::failed(format!(
                    "{} and {} would both be {}: take them one after the other",
                    other.display(),
                    path.display(),
                    file.display()
                )));
            }
        }
    }
    Ok(())
}

/// What the model says of an image.
#[derive(Serialize)]
pub(super) struct Answer {
    /// Its file.
    pub(super) image: String,
    pub(super) predictions: Guesses,
    /// As a data URI, for a gallery.
    #[serde(skip)]
    pub(super) thumbnail: Option<String>,
}

/// The form of a file of predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Csv,
    JsonLines,
    Html,
}

impl Format {
    /// The form that the name of `path` asks for.
    pub(super) fn of(path: &Path) -> Result<Self, Error> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Ok(Self::Csv),
            Some("jsonl") => Ok(Self::JsonLines),
            Some("html") => Ok(Self::Html),
            Some(_) | None => {
                let expected = ".csv, .jsonl or .html";
                Err(OutputError::Extension { path: path.to_owned(), expected }.into())
            }
        }
    }
}

/// The columns of a table, as those of `eval --predictions`.
const HEADER: [&str; 5] = ["image", "predicted", "probability", "top5", "predicted_name"];
/// Classes in its column `top5`.
pub(super) const TOP: usize = 5;

/// Writes the `top` likeliest classes of each image to `path`, whole or not at all.
pub(super) fn write(
    path: &Path,
    format: Format,
    answers: &[Answer],
    top: usize,
    weights: &str,
) -> Result<(), Error> {
    let bytes = match format {
        Format::Csv => {
            let rows: Vec<[String; 5]> = answers.iter().map(row).collect();
            csv([HEADER.map(str::to_owned)].iter().chain(&rows))?
        }
        Format::JsonLines => json_lines(answers, top)?,
        Format::Html => gallery::page(answers, top, weights).into_bytes(),
    };
    replace(&Disk, path, &bytes).map_err(Error::io("write", path))
}

/// An image as a row; empty where a probability is not finite.
fn row(answer: &Answer) -> [String; 5] {
    let mut row = [const { String::new() }; 5];
    row[0].clone_from(&answer.image);
    let guesses = answer.predictions.likeliest(TOP);
    if let Some(best) = guesses.first().filter(|best| best.probability.is_finite()) {
        let classes: Vec<String> = guesses.iter().map(|guess| guess.class.to_string()).collect();
        row[1].clone_from(&classes[0]);
        row[2] = format!("{:.6}", best.probability);
        row[3] = classes.join(" ");
        row[4].clone_from(&best.name);
    }
    row
}

fn json_lines(answers: &[Answer], top: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    for Answer { image, predictions, .. } in answers {
        let line = serde_json::json!({ "image": image, "predictions": predictions.likeliest(top) });
        serde_json::to_writer(&mut bytes, &line)
            .map_err(|error| Error::internal(format!("a prediction has no JSON form: {error}")))?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}
