//! The scores of each class, as a table.

use vim_data::CocoScores;

use crate::error::Error;
use crate::output::csv;

/// The columns of the table, described in docs/detection.md.
const HEADER: [&str; 9] =
    ["kind", "class", "name", "objects", "detections", "ap", "ap50", "ap75", "ar100"];

/// A row for each kind and class, in CSV; empty where a class has no objects.
pub(crate) fn classes_csv(all: &[CocoScores]) -> Result<Vec<u8>, Error> {
    let share = |share: Option<f64>| share.map_or_else(String::new, |share| format!("{share:.6}"));
    let rows = all.iter().flat_map(|scores| {
        scores.classes.iter().map(move |class| {
            [
                scores.kind.to_string(),
                class.category.to_string(),
                class.name.clone(),
                class.objects.to_string(),
                class.detections.to_string(),
                share(class.ap),
                share(class.ap50),
                share(class.ap75),
                share(class.ar100),
            ]
        })
    });
    let rows: Vec<[String; 9]> = rows.collect();
    csv([HEADER.map(str::to_owned)].iter().chain(&rows))
}
