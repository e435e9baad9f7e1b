//! Measurements side by side: tables under the original's column names, a page in Markdown, plots.

mod files;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use strum::VariantArray;
use vim_data::{InputKind, read_input};
use vim_run::storage::{Disk, replace};

use super::{Document, Latency, Mode, Row, Throughput};
use crate::error::Error;
use crate::output::summary::rate;
use crate::output::{check_free, check_no_input, print};

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
            Mode::Slide => format!("{stem}_slide.{extension}"),
        }
    }
}

/// The method, and whether a graph is replayed.
fn name_of(row: &Row) -> String {
    if row.graph { format!("{}, graph", row.method) } else { row.method.clone() }
}

/// Row names: as [`name_of`], plus the file where these repeat.
struct Names {
    files: Option<Vec<String>>,
}

impl Names {
    fn new(sources: &[Source]) -> Self {
        let mut seen = BTreeSet::new();
        let mut rows = sources.iter().flat_map(|source| &source.document.results);
        let unique = rows.all(|row| seen.insert((row.mode, name_of(row), row.batch)));
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
            Some(files) => format!("{} ({})", name_of(row), files[source]),
            None => name_of(row),
        }
    }
}

/// Which results are compared, and where that is written.
#[derive(Debug)]
pub struct CompareOptions {
    /// Results of `vim-train bench -o`.
    pub files: Vec<PathBuf>,
    /// Folder for the tables and plots; made if it is not there.
    pub output: PathBuf,
    /// Batch size of the table of methods; `None`: the smallest there is.
    pub batch_size: Option<usize>,
    /// Write over files that are there.
    pub force: bool,
}

/// Writes the tables and plots, and prints the page.
pub fn run(options: &CompareOptions) -> Result<(), Error> {
    let sources = options.files.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
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
        files.extend(files::sheets(table, options.batch_size)?);
        files.extend(files::plots(table));
    }
    let page = page(&sources, &names, &tables);
    files.push(("benchmark.md".into(), page.clone().into_bytes()));

    fs::create_dir_all(&options.output).map_err(Error::io("create", &options.output))?;
    // Write only after every file was checked.
    for (name, _) in &files {
        let path = options.output.join(name);
        check_no_input(&path, options.files.iter().map(PathBuf::as_path))?;
        check_free(&path, options.force)?;
    }
    for (name, bytes) in &files {
        let path = options.output.join(name);
        replace(&Disk, &path, bytes).map_err(Error::io("write", &path))?;
        eprintln!("wrote {}", path.display());
    }
    print(&page)
}

fn read(path: &Path) -> Result<Source, Error> {
    let text = read_input(path, InputKind::Record).map_err(Error::input(path))?;
    let wrong = |problem: String| {
        Error::data(format!(
            "{} is no result of `vim-train bench -o`: {problem}; measure again, or name another file",
            path.display()
        ))
    };
    let document: Document =
        serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    if document.command != "bench" {
        return Err(wrong(format!("it is of `{}`", document.command)));
    }
    let mut seen = BTreeSet::new();
    for row in &document.results {
        if row.batch == 0 {
            return Err(wrong("a row has a batch of 0".into()));
        }
        if !seen.insert((row.mode, name_of(row), row.batch)) {
            let Row { mode, batch, .. } = row;
            return Err(wrong(format!("{} {mode} batch {batch} is in it twice", name_of(row))));
        }
    }
    Ok(Source { path: path.to_owned(), document })
}

fn page(sources: &[Source], names: &Names, tables: &[Table]) -> String {
    let mut page = String::from("# Benchmark\n\n");
    page.push_str(
        "| file | configuration | --set | device | hardware | version | commit | measured |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for Source { path, document } in sources {
        let made = |key: &str| document.environment[key].as_str().unwrap_or("–").to_owned();
        let cells = [
            path.display().to_string(),
            document.config.clone(),
            document.overrides.join(", "),
            made("backend"),
            document.hardware.clone().unwrap_or_else(|| "–".into()),
            made("version"),
            made("commit"),
            made("started"),
        ];
        push(&mut page, &cells);
    }
    for table in tables {
        page.push_str(&format!("\n## {}\n\n", table.mode));
        page.push_str(
            "| method | px | type | batch | ms | p10 | p90 | ms/img | img/s | GFLOP/img | GFLOP/s | peak MiB | params, M |\n",
        );
        page.push_str("|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
        let dash = || "–".to_owned();
        for series in &table.series {
            for &batch in &table.batches {
                let Some(point) = table.point(series, batch) else { continue };
                let (row, latency) = (point.row, point.latency);
                let cells = [
                    series.clone(),
                    row.image_size.to_string(),
                    row.dtype.clone(),
                    batch.to_string(),
                    format!("{:.3}", latency.median_ms),
                    format!("{:.3}", latency.p10_ms),
                    format!("{:.3}", latency.p90_ms),
                    format!("{:.3}", point.per_image(latency.median_ms)),
                    rate(point.throughput.img_s),
                    row.flops_per_image
                        .map_or_else(dash, |flops| format!("{:.3}", flops as f64 / 1e9)),
                    row.flop_s.map_or_else(dash, |rate| format!("{:.1}", rate / 1e9)),
                    row.peak_memory_bytes
                        .map_or_else(dash, |bytes| format!("{:.1}", bytes as f64 / 2f64.powi(20))),
                    format!("{:.3}", row.parameters as f64 / 1e6),
                ];
                push(&mut page, &cells);
            }
        }
    }
    let failed: Vec<String> = sources
        .iter()
        .enumerate()
        .flat_map(|(number, source)| source.document.results.iter().map(move |row| (number, row)))
        .filter_map(|(number, row)| {
            let (name, reason) = (names.of(number, row), row.error.as_ref()?);
            Some(format!("- {name} {} batch {}: {reason}\n", row.mode, row.batch))
        })
        .collect();
    if !failed.is_empty() {
        page.push_str(&format!("\n## Did not run\n\n{}", failed.concat()));
    }
    page.push_str(
        "\nms: a step, the device waited for after it (median, 10th and 90th percentile). img/s: steps queued one behind\n\
         the other, over the images that they took. GFLOP/s: a training step counted as three forward passes.\n",
    );
    page
}

fn push(page: &mut String, cells: &[String]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    page.push_str(&format!("| {} |\n", cells.join(" | ")));
}
