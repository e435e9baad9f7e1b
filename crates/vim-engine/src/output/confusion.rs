//! What an evaluation says class by class: per-class accuracy, and the confusion matrix.

use std::path::Path;

use vim_chart::Matrix;
use vim_run::storage::{Disk, replace};

use crate::error::Error;
use crate::output::{OutputError, csv};

/// The columns of the table by class, described in docs/runs.md.
const HEADER: [&str; 6] = ["class", "name", "images", "correct", "accuracy", "predicted"];
/// The column of images without a prediction.
const UNKNOWN: &str = "no prediction";

/// Checks that a confusion matrix may be written to `path`.
pub fn check_extension(path: &Path) -> Result<(), Error> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("csv" | "svg") => Ok(()),
        Some(_) | None => {
            Err(OutputError::Extension { path: path.to_owned(), expected: ".csv or .svg" }.into())
        }
    }
}

/// How many images of each class were taken for which.
#[derive(Debug)]
pub(crate) struct Confusion {
    names: Vec<String>,
    /// `[K, K + 1]`: true class, predicted class; the last column is for no prediction.
    counts: Vec<u64>,
}

impl Confusion {
    pub(crate) fn of(names: &[String]) -> Self {
        Self { names: names.to_vec(), counts: vec![0; names.len() * (names.len() + 1)] }
    }

    /// These counts, `[K, K + 1]`.
    pub(crate) fn of_counts(names: &[String], counts: Vec<u64>) -> Self {
        Self { names: names.to_vec(), counts }
    }

    fn columns(&self) -> usize {
        self.names.len() + 1
    }

    /// Adds an image of class `label` that was taken for class `predicted`.
    pub(crate) fn add(&mut self, label: usize, predicted: Option<usize>) {
        let column = predicted.unwrap_or(self.names.len());
        let at = label * self.columns() + column;
        self.counts[at] += 1;
    }

    /// One row for each class.
    fn rows(&self) -> Vec<[String; 6]> {
        let row = |(class, (name, counts)): (usize, (&String, &[u64]))| {
            let (images, correct) = (counts.iter().sum::<u64>(), counts[class]);
            let accuracy = match images {
                0 => String::new(),
                _ => format!("{:.6}", correct as f64 / images as f64),
            };
            let column = self.counts.iter().skip(class).step_by(self.columns());
            let predicted: u64 = column.sum();
            [
                class.to_string(),
                name.clone(),
                images.to_string(),
                correct.to_string(),
                accuracy,
                predicted.to_string(),
            ]
        };
        let counts = self.counts.chunks_exact(self.columns());
        self.names.iter().zip(counts).enumerate().map(row).collect()
    }

    /// Writes the table by class, whole or not at all.
    pub(crate) fn write_classes(&self, path: &Path) -> Result<(), Error> {
        write(path, &csv([HEADER.map(str::to_owned)].iter().chain(&self.rows()))?)
    }

    /// Names of the columns, and whether the last of them, that of no prediction, has images.
    fn column_names(&self) -> Vec<String> {
        let unknown = self.counts.iter().skip(self.names.len()).step_by(self.columns());
        let is_needed = unknown.sum::<u64>() > 0;
        self.names.iter().cloned().chain(is_needed.then(|| UNKNOWN.to_owned())).collect()
    }

    /// Writes the matrix, as a table or, if the name ends in `.svg`, as a figure.
    pub(crate) fn write_matrix(&self, path: &Path, title: &str) -> Result<(), Error> {
        if path.extension().is_some_and(|extension| extension == "svg") {
            return write(path, self.figure(title).as_bytes());
        }
        let columns = self.column_names();
        let head: Vec<String> =
            ["true \\ predicted".to_owned()].into_iter().chain(columns.iter().cloned()).collect();
        let row = |(name, counts): (&String, &[u64])| -> Vec<String> {
            let counts = counts[..columns.len()].iter().map(u64::to_string);
            [name.clone()].into_iter().chain(counts).collect()
        };
        let rows = self.names.iter().zip(self.counts.chunks_exact(self.columns())).map(row);
        write(path, &csv([head].into_iter().chain(rows))?)
    }

    fn figure(&self, title: &str) -> String {
        let columns = self.column_names();
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let cell = |(at, &count)| (at / self.columns(), at % self.columns(), count);
        let cells: Vec<(usize, usize, u64)> = counts.map(cell).collect();
        Matrix {
            title,
            row_title: "true class",
            column_title: "predicted class",
            rows: &self.names,
            columns: &columns,
            cells: &cells,
        }
        .draw()
    }
}

/// Writes a file, whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    replace(&Disk, path, bytes).map_err(Error::io("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn confusion(pairs: &[(usize, Option<usize>)]) -> Confusion {
        let mut confusion = Confusion::of(&["cat", "dog", "newt"].map(str::to_owned));
        for &(label, predicted) in pairs {
            confusion.add(label, predicted);
        }
        confusion
    }

    #[test]
    fn classes_are_counted_by_what_they_are_and_by_what_is_said() {
        let pairs = [(0, Some(0)), (0, Some(1)), (0, None), (1, Some(1))];
        let rows = confusion(&pairs).rows();
        assert_eq!(rows[0], ["0", "cat", "3", "1", "0.333333", "1"]);
        assert_eq!(rows[1], ["1", "dog", "1", "1", "1.000000", "2"]);
        assert_eq!(rows[2], ["2", "newt", "0", "0", "", "0"]);
    }

    #[test]
    fn no_prediction_has_a_column_where_it_occurs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        let text = |pairs: &[(usize, Option<usize>)]| {
            confusion(pairs).write_matrix(&path, "").unwrap();
            std::fs::read_to_string(&path).unwrap()
        };
        let all = "true \\ predicted,cat,dog,newt\ncat,0,0,0\ndog,1,0,0\nnewt,0,0,0\n";
        assert_eq!(text(&[(1, Some(0))]), all);
        let some = "true \\ predicted,cat,dog,newt,no prediction\ncat,0,0,0,0\n\
                    dog,1,0,0,1\nnewt,0,0,0,0\n";
        assert_eq!(text(&[(1, Some(0)), (1, None)]), some);
    }
}
