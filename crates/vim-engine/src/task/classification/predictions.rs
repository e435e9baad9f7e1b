//! What a model says of each image of a split, as a table.

use vim_comm::Comm;
use vim_data::Split;

use super::predict::{largest, softmax};
use crate::error::Error;
use crate::output::csv;
use crate::task::classes::readable;
use crate::task::share;

/// The columns, described in docs/runs.md.
const HEADER: [&str; 8] =
    ["index", "image", "label", "predicted", "probability", "top5", "label_name", "predicted_name"];

/// Collects predictions, one row per image.
#[derive(Debug)]
pub(crate) struct Predictions {
    split: Split,
    /// Of the classes, by label.
    names: Vec<String>,
    /// With the place in the split.
    rows: Vec<(usize, [String; 8])>,
}

impl Predictions {
    pub(crate) fn of(split: &Split) -> Self {
        let names = readable(split.class_names());
        Self { split: split.clone(), names, rows: Vec::with_capacity(split.len()) }
    }

    /// Adds the logits of the image at `position` of the split; unreadable images and non-finite
    /// logits give no prediction.
    pub(crate) fn add(&mut self, position: usize, logits: &[f32], is_read: bool) {
        let index = self.split.index(position);
        let mut row = [const { String::new() }; 8];
        row[0] = index.to_string();
        row[1] = self.split.dataset().name(index);
        let label = self.split.label(position) as usize;
        let name = |class: usize| self.names.get(class).cloned().unwrap_or_default();
        row[2] = label.to_string();
        row[6] = name(label);
        if is_read && logits.iter().all(|logit| logit.is_finite()) {
            let probabilities = softmax(logits);
            let best = largest(&probabilities, 5);
            let names: Vec<String> = best.iter().map(usize::to_string).collect();
            row[3].clone_from(&names[0]);
            row[4] = format!("{:.6}", probabilities[best[0]]);
            row[5] = names.join(" ");
            row[7] = name(best[0]);
        }
        self.rows.push((position, row));
    }

    /// Those of all ranks, in the split's order.
    pub(crate) fn shared(mut self, comm: &Comm) -> Result<Self, Error> {
        self.rows = share(comm, &self.rows)?.into_iter().flatten().collect();
        self.rows.sort_unstable_by_key(|(position, _)| *position);
        Ok(self)
    }

    /// Gives each image's class, and the predicted one if there is one.
    pub(crate) fn each(&self, mut take: impl FnMut(usize, Option<usize>)) {
        for (position, row) in &self.rows {
            take(self.split.label(*position) as usize, row[3].parse().ok());
        }
    }

    /// The table.
    pub(crate) fn csv(&self) -> Result<Vec<u8>, Error> {
        let rows = self.rows.iter().map(|(_, row)| row);
        csv([HEADER.map(str::to_owned)].iter().chain(rows))
    }
}
