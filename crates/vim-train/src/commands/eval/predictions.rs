//! `vim-train eval --predictions`: the predictions for each image.

use std::path::Path;

use vim_data::Split;
use vim_run::storage::{Disk, replace};

use crate::error::Error;
use crate::task::classification::predict::{largest, softmax};

/// The columns, described in docs/runs.md.
const HEADER: [&str; 6] = ["index", "image", "label", "predicted", "probability", "top5"];

/// Collects predictions, one row per image in the order of the split.
#[derive(Debug)]
pub struct Predictions {
    split: Split,
    rows: Vec<[String; 6]>,
}

impl Predictions {
    /// For the images of `split`.
    pub fn of(split: &Split) -> Self {
        Self { split: split.clone(), rows: Vec::with_capacity(split.len()) }
    }

    /// Adds the next image's logits; unreadable images and non-finite logits give no prediction.
    pub fn add(&mut self, logits: &[f32], is_read: bool) {
        let position = self.rows.len();
        let index = self.split.index(position);
        let mut row = [const { String::new() }; 6];
        row[0] = index.to_string();
        row[1] = self.split.dataset().name(index);
        row[2] = self.split.label(position).to_string();
        if is_read && logits.iter().all(|logit| logit.is_finite()) {
            let probabilities = softmax(logits);
            let best = largest(&probabilities, 5);
            let names: Vec<String> = best.iter().map(usize::to_string).collect();
            row[3].clone_from(&names[0]);
            row[4] = format!("{:.6}", probabilities[best[0]]);
            row[5] = names.join(" ");
        }
        self.rows.push(row);
    }

    /// Writes the table, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let written = writer
            .write_record(HEADER)
            .and_then(|()| self.rows.iter().try_for_each(|row| writer.write_record(row)));
        let bytes = written
            .map_err(|error| Error::internal(format!("predictions have no CSV form: {error}")))
            .and_then(|()| {
                writer.into_inner().map_err(|error| Error::internal(error.to_string()))
            })?;
        replace(&Disk, path, &bytes).map_err(Error::io("write", path))
    }
}
