//! `vim-train bench compare`: tables under the original's column names, a page in Markdown, plots.

mod markdown;
mod plot;
mod sheets;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use strum::VariantArray;
use vim_run::storage::{Disk, replace};

use super::args::CompareArgs;
use super::record::{Document, Latency, Mode, Row, Throughput};
use crate::error::{Error, Failure, code};
use crate::output::{check_free, print};

/// A document and where it was read.
struct Source {
    path: PathBuf,
    document: Document,
}

/// A measured row with its name in the comparison.
struct Point<'a> {
    series: String,
    row: &'a Row,
    latency: Latency,
    throughput: Throughput,
}

impl Point<'_> {
    /// Milliseconds per image: a step's time over its images.
    fn per_image(&self, ms: f64) -> f64 {
        ms / self.row.batch as f64
    }
}

/// One mode's rows.
struct Table<'a> {
    mode: Mode,
    /// Names, in the order of the files and of their rows.
    series: Vec<String>,
    /// Batch sizes, from the smallest.
    batches: Vec<usize>,
    points: Vec<Point<'a>>,
}

impl<'a> Table<'a> {
    fn new(mode: Mode, sources: &'a [Source], names: &Names) -> Self {
        let (mut series, mut batches, mut points) = (Vec::new(), BTreeSet::new(), Vec::new());
        for (number, source) in sources.iter().enumerate() {
            for row in source.document.results.iter().filter(|row| row.mode == mode) {
                let name = names.of(number, row);
                if !series.contains(&name) {
                    series.push(name.clone());
                }
                batches.insert(row.batch);
                if let (Some(latency), Some(throughput)) = (row.latency, row.throughput) {
                    points.push(Point { series: name, row, latency, throughput });
                }
            }
        }
        Self { mode, series, batches: batches.into_iter().collect(), points }
    }

    fn point(&self, series: &str, batch: usize) -> Option<&Point<'a>> {
        self.points.iter().find(|point| point.series == series && point.row.batch == batch)
    }

    /// File name for this mode; the original has inference only.
    fn file(&self, stem: &str, extension: &str) -> String {
        match self.mode {
            Mode::Infer => format!("{stem}.{extension}"),
            Mode::Train => format!("{stem}_train.{extension}"),
        }
    }
}

/// Row names: the method, plus the file where methods repeat.
struct Names {
    files: Option<Vec<String>>,
}

impl Names {
    fn new(sources: &[Source]) -> Self {
        let mut seen = BTreeSet::new();
        let mut rows = sources.iter().flat_map(|source| &source.document.results);
        let unique = rows.all(|row| seen.insert((row.mode, &row.method, row.batch)));
        if unique {
            return Self { files: None };
        }
        let stem = |source: &Source| {
            source.path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into())
        };
        let stems: Vec<String> = sources.iter().map(stem).collect();
        let different = stems.iter().collect::<BTreeSet<_>>().len() == stems.len();
        if different {
            return Self { files: Some(stems) };
        }
        // Files of the same name in several folders.
        let paths = sources.iter().map(|source| source.path.display().to_string());
        Self { files: Some(paths.collect()) }
    }

    fn of(&self, source: usize, row: &Row) -> String {
        match &self.files {
            Some(files) => format!("{} ({})", row.method, files[source]),
            None => row.method.clone(),
        }
    }
}

pub(super) fn run(args: &CompareArgs) -> Result<(), Error> {
    let sources = args.files.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let names = Names::new(&sources);
    let tables: Vec<Table> = Mode::VARIANTS
        .iter()
        .map(|&mode| Table::new(mode, &sources, &names))
        .filter(|table| !table.points.is_empty())
        .collect();
    if tables.is_empty() {
        return Err(Error::failed(
            "none of the rows has times (their `error` says why): there is nothing to compare",
        ));
    }

    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for table in &tables {
        files.extend(sheets::all(table, args.batch_size)?);
        files.extend(plot::all(table));
    }
    let page = markdown::page(&sources, &names, &tables);
    files.push(("benchmark.md".into(), page.clone().into_bytes()));

    // Write only after every file was checked.
    for (name, _) in &files {
        check_free(&args.output.join(name), args.force)?;
    }
    fs::create_dir_all(&args.output).map_err(Error::io("create", &args.output))?;
    for (name, bytes) in &files {
        let path = args.output.join(name);
        replace(&Disk, &path, bytes).map_err(Error::io("write", &path))?;
        eprintln!("wrote {}", path.display());
    }
    print(&page)
}

/// A file is not a `bench` document.
#[derive(Debug, thiserror::Error)]
#[error("{} is no result of `vim-train bench -o`: {problem}; measure again, or name another file", path.display())]
struct NoBenchmark {
    path: PathBuf,
    problem: String,
}

impl Failure for NoBenchmark {
    fn exit_code(&self) -> u8 {
        code::DATA
    }
}

fn read(path: &Path) -> Result<Source, Error> {
    let text = fs::read(path).map_err(Error::io("read", path))?;
    let wrong = |problem: String| NoBenchmark { path: path.to_owned(), problem };
    let document: Document =
        serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    if document.command != "bench" {
        return Err(wrong(format!("it is of `{}`", document.command)).into());
    }
    let mut seen = BTreeSet::new();
    for row in &document.results {
        if row.batch == 0 {
            return Err(wrong("a row has a batch of 0".into()).into());
        }
        if !seen.insert((row.mode, &row.method, row.batch)) {
            return Err(wrong(format!(
                "{} {} batch {} is in it twice",
                row.method, row.mode, row.batch
            ))
            .into());
        }
    }
    Ok(Source { path: path.to_owned(), document })
}
