//! `vim-train eval compare`: two files of predictions for the same images, image by image.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use vim_data::{InputKind, read_input};
use vim_run::storage::{Disk, replace};
use vim_sweep::predictions::{Counts, Predictions, check_alike};

use crate::error::Error;
use crate::output::{check_free, check_no_input, columns, csv, print, print_json};

const EXAMPLES: &str = "\
Examples:
  vim-train eval zoh.toml --predictions zoh.csv
  vim-train eval foh.toml --predictions foh.csv
  vim-train eval compare zoh.csv foh.csv                     how many images one alone gets right
  vim-train eval compare zoh.csv foh.csv --images diff.csv   which ones

An image without a prediction counts as wrong. p is that of McNemar's exact test, two-sided: how often images alone would
decide as unevenly between two methods that are equally good. It says nothing of other seeds (sweep summarize does).";

/// Compare two files of predictions: which images one gets right and the other wrong.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompareArgs {
    /// Predictions (`eval --predictions`).
    first: PathBuf,
    /// Predictions of another model for the same images.
    second: PathBuf,
    /// Write the images that one alone gets right to this file, as CSV.
    #[arg(long, value_name = "FILE")]
    images: Option<PathBuf>,
    /// Write over the file of images if it is there.
    #[arg(long, requires = "images")]
    force: bool,
    /// Print the comparison on stdout as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct ClassCounts {
    class: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(flatten)]
    counts: Counts,
}

#[derive(Debug, Serialize)]
struct Report {
    first: PathBuf,
    second: PathBuf,
    #[serde(flatten)]
    counts: Counts,
    p: f64,
    classes: Vec<ClassCounts>,
}

pub(super) fn run(args: &CompareArgs) -> Result<(), Error> {
    let CompareArgs { first, second, images, force, json } = args;
    if let Some(path) = images {
        check_no_input(path, [first.as_path(), second])?;
        check_free(path, *force)?;
    }
    let (ours, theirs) = (read(first)?, read(second)?);
    let report = compare(args, &ours, &theirs)?;
    if let Some(path) = images {
        replace(&Disk, path, &differing(&ours, &theirs)?).map_err(Error::io("write", path))?;
    }
    if *json { print_json(&report) } else { print(&report.text()) }
}

fn read(path: &Path) -> Result<Predictions, Error> {
    let bytes = read_input(path, InputKind::Record).map_err(Error::input(path))?;
    Predictions::parse(&bytes)
        .map_err(|what| Error::data(format!("{} holds no predictions: {what}", path.display())))
}

fn compare(args: &CompareArgs, ours: &Predictions, theirs: &Predictions) -> Result<Report, Error> {
    let CompareArgs { first, second, .. } = args;
    check_alike(&ours.images, &theirs.images).map_err(|unlike| {
        Error::data(format!(
            "{} and {} are not of the same images: {unlike}; compare predictions for the same split",
            first.display(),
            second.display()
        ))
    })?;
    let (mut counts, mut classes) = (Counts::default(), BTreeMap::new());
    for (image, (a, b)) in ours.images.iter().zip(ours.right().zip(theirs.right())) {
        counts.add(a, b);
        let class = classes.entry(image.label).or_insert_with(|| ClassCounts {
            class: image.label,
            name: Some(image.label_name.clone()).filter(|name| !name.is_empty()),
            counts: Counts::default(),
        });
        class.counts.add(a, b);
    }
    Ok(Report {
        first: first.clone(),
        second: second.clone(),
        p: counts.p(),
        counts,
        classes: classes.into_values().collect(),
    })
}

/// The images that one alone gets right, as CSV.
fn differing(ours: &Predictions, theirs: &Predictions) -> Result<Vec<u8>, Error> {
    let head = ["index", "image", "label", "first", "second", "right"].map(str::to_owned);
    let shown = |class: Option<u64>| class.map_or_else(String::new, |class| class.to_string());
    let right = ours.right().zip(theirs.right());
    let differ = right.enumerate().filter(|(_, (a, b))| a != b);
    let rows = differ.map(|(place, (first, _))| {
        let image = &ours.images[place];
        [
            image.index.to_string(),
            image.name.clone(),
            image.label.to_string(),
            shown(ours.predicted[place]),
            shown(theirs.predicted[place]),
            if first { "first" } else { "second" }.to_owned(),
        ]
    });
    csv([head].into_iter().chain(rows))
}

impl Report {
    fn text(&self) -> String {
        let Self { first, second, counts, p, classes } = self;
        let share = |right: u64| match counts.images {
            0 => String::new(),
            all => format!("{:.2} %", 100.0 * right as f64 / all as f64),
        };
        let row = |name: &str, right: u64, alone: u64, path: &Path| {
            let right = [right.to_string(), share(right), alone.to_string()];
            [name.to_owned()].into_iter().chain(right).chain([path.display().to_string()]).collect()
        };
        let head = ["", "right", "top-1", "right alone", "predictions"];
        let Counts { images, both, only_first, only_second, neither } = *counts;
        let rows = vec![
            row("first", both + only_first, only_first, first),
            row("second", both + only_second, only_second, second),
        ];
        let mut text = columns(&head, rows, 1);
        let p = if *p < 1e-3 { format!("{p:.1e}") } else { format!("{p:.3}") };
        text += &format!(
            "images {images}: both right {both}, both wrong {neither}, only first {only_first}, \
             only second {only_second}\nMcNemar's exact test p = {p}\n\n"
        );
        let row = |class: &ClassCounts| {
            let Counts { images, only_first, only_second, .. } = class.counts;
            let name = class.name.clone().unwrap_or_else(|| class.class.to_string());
            let gain = i128::from(only_second) - i128::from(only_first);
            vec![
                name,
                images.to_string(),
                only_first.to_string(),
                only_second.to_string(),
                format!("{gain:+}"),
            ]
        };
        let mut differ: Vec<&ClassCounts> = classes
            .iter()
            .filter(|one| one.counts.only_first + one.counts.only_second > 0)
            .collect();
        differ.sort_by_key(|one| {
            std::cmp::Reverse(one.counts.only_first.abs_diff(one.counts.only_second))
        });
        let head = ["class", "images", "only first", "only second", "second − first"];
        text + &columns(&head, differ.into_iter().map(row).collect(), 1)
    }
}

#[cfg(test)]
mod tests {
    use vim_sweep::predictions::Image;

    use super::*;

    fn said(rows: &[(u64, Option<u64>)]) -> Predictions {
        let image = |(index, &(label, _)): (usize, &(u64, Option<u64>))| Image {
            index: index as u64,
            name: format!("{index}.png"),
            label,
            label_name: String::new(),
        };
        Predictions {
            images: rows.iter().enumerate().map(image).collect(),
            predicted: rows.iter().map(|row| row.1).collect(),
            ..Predictions::default()
        }
    }

    fn args() -> CompareArgs {
        let (first, second) = ("a.csv".into(), "b.csv".into());
        CompareArgs { first, second, images: None, force: false, json: false }
    }

    #[test]
    fn images_are_counted_by_who_gets_them_right() {
        let ours = said(&[(0, Some(0)), (0, Some(1)), (1, None), (1, Some(1)), (1, Some(1))]);
        let theirs = said(&[(0, Some(0)), (0, Some(0)), (1, Some(0)), (1, None), (1, Some(0))]);
        let report = compare(&args(), &ours, &theirs).unwrap();
        let expected = Counts { images: 5, both: 1, only_first: 2, only_second: 1, neither: 1 };
        assert_eq!(report.counts, expected);
        assert_eq!(report.classes[1].counts.only_first, 2);
        assert!((report.p - 1.0).abs() < 1e-12, "{}", report.p);
        let csv = String::from_utf8(differing(&ours, &theirs).unwrap()).unwrap();
        let rows = "1,1.png,0,1,0,second\n3,3.png,1,1,,first\n4,4.png,1,1,0,first\n";
        assert_eq!(csv, format!("index,image,label,first,second,right\n{rows}"));
    }

    #[test]
    fn other_images_are_refused() {
        let ours = said(&[(0, Some(0)), (1, Some(1))]);
        for (theirs, words) in
            [(said(&[(0, None)]), "2 and 1 images"), (said(&[(0, None), (2, None)]), "row 2")]
        {
            let error = compare(&args(), &ours, &theirs).unwrap_err();
            assert_eq!(error.exit_code(), 65);
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
