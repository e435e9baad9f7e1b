//! Weights from a file of any kind, a checkpoint or a run.

use std::fmt;
use std::fs::File;
use std::io::{BufReader, Cursor};
use std::path::Path;

use vim_model::{ClassToken, LoadOptions, LoadReport, Resize, infer};
use vim_run::checkpoint::{Checkpoint, PROVENANCE, Selection, Weights, best_step, select};
use vim_run::{checkpoints_in, finished};
use vim_torch::{Checkpoint as Arrays, Format, Item, ReadError, Section, read_checkpoint};

use crate::config::Config;
use crate::error::Error;
use crate::run_folder::{recorded_classes, recorded_config};
use crate::weights::WeightsError;
use crate::weights::place::Place;
use crate::weights::record::{METADATA_KEY, Recorded, RecordedData};

/// Origin of a model's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The caller.
    Given,
    /// Metadata recorded with the weights.
    Recorded,
    /// The shapes of the weights.
    Inferred,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Given => "as configured",
            Self::Recorded => "as recorded with the weights",
            Self::Inferred => "inferred from the shapes",
        })
    }
}

/// Weights and their metadata.
#[derive(Debug)]
pub struct WeightsSource {
    /// Its name in errors.
    pub name: String,
    /// The arrays and their file.
    pub arrays: Arrays,
    /// The recorded model, if any.
    pub recorded: Option<Recorded>,
    /// The configuration of the run, for a checkpoint in a run's folder; for a file with a record
    /// of the run's images, what that says of it.
    pub run: Option<Config>,
    /// The class names recorded in that run or file, by label; empty if there are none.
    pub classes: Vec<String>,
    /// Whether these are the weights or their moving average.
    pub weights: Weights,
    /// The training step, for this program's checkpoints.
    pub step: Option<u64>,
    /// BLAKE3 of the file, in hexadecimal.
    pub blake3: String,
    /// What the user should know of the choice of these weights.
    pub note: Option<String>,
}

impl WeightsSource {
    /// Reads the weights at `place`.
    ///
    /// `section` selects the weights or their moving average. `None` means the better of the two
    /// for a run's best checkpoint, and the weights otherwise. A run without a best checkpoint
    /// gives its last one, and a note unless that is the run's result.
    pub fn open(place: &Place, section: Option<Section>) -> Result<Self, Error> {
        match place {
            Place::File(path) => Self::open_file(path, section.unwrap_or_default()),
            Place::Checkpoint(path) => {
                let checkpoint = Checkpoint::read(path)?;
                Self::of_checkpoint(checkpoint, section.unwrap_or_default(), place.run().as_deref())
            }
            Place::Run(run, selection) => Self::of_run(run, section, *selection),
        }
    }

    fn of_run(run: &Path, section: Option<Section>, selection: Selection) -> Result<Self, Error> {
        let folder = checkpoints_in(run);
        let lacks_best = selection == Selection::Best && best_step(&folder).is_none();
        let selection = if lacks_best { Selection::Last } else { selection };
        let checkpoint = select(&folder, selection)?;
        let best = checkpoint.state.best.filter(|_| selection == Selection::Best);
        let section = section.unwrap_or(match best.map(|best| best.weights) {
            Some(Weights::Ema) => Section::Ema,
            Some(Weights::Model) | None => Section::Model,
        });
        // Of a finished run whose images chose none, the last is the result.
        let is_result = || checkpoint.state.best.is_none() && matches!(finished(run), Ok(Some(_)));
        let note = (lacks_best && !is_result()).then(|| {
            format!(
                "{} has no best checkpoint, as no held-out images have chosen one (data.val_fraction): \
                 this is the last, of step {}",
                run.display(),
                checkpoint.state.step
            )
        });
        let source = Self::of_checkpoint(checkpoint, section, Some(run))?;
        Ok(Self { note: note.or(source.note), ..source })
    }

    fn open_file(path: &Path, section: Section) -> Result<Self, Error> {
        let name = path.display().to_string();
        let unread = |source| WeightsError::Unreadable { path: name.clone(), source };
        let file = File::open(path).map_err(|error| unread(ReadError::Io(error)))?;
        let mut arrays = read_checkpoint(BufReader::new(&file), section).map_err(unread)?;
        arrays.ignored.retain(|entry| entry != METADATA_KEY);
        let mut hasher = blake3::Hasher::new();
        let hashed = File::open(path).and_then(|file| hasher.update_reader(file).map(|_| ()));
        hashed.map_err(|error| unread(ReadError::Io(error)))?;
        let (recorded, note) = read_record(arrays.about.get(METADATA_KEY).map(String::as_str));
        let blake3 = hasher.finalize().to_hex().to_string();
        let weights = kind(section);
        Ok(Self {
            name,
            arrays,
            run: recorded.as_ref().and_then(Recorded::config),
            classes: recorded.as_ref().map_or_else(Vec::new, |recorded| recorded.classes.clone()),
            recorded,
            weights,
            step: None,
            blake3,
            note,
        })
    }

    fn of_checkpoint(
        mut checkpoint: Checkpoint,
        section: Section,
        run: Option<&Path>,
    ) -> Result<Self, Error> {
        let name = checkpoint.path.display().to_string();
        let weights = kind(section);
        let bytes = checkpoint.take(weights.file()).map_err(|error| match weights {
            // The checkpoint is complete: the run has no average.
            Weights::Ema => {
                let source = ReadError::NoSection {
                    wanted: format!("{} (train.ema was not set)", weights.file()),
                    found: vec![Weights::Model.file().to_owned()],
                };
                WeightsError::Unreadable { path: name.clone(), source }.into()
            }
            Weights::Model => Error::from(error),
        })?;
        let blake3 = blake3::hash(&bytes).to_hex().to_string();
        // Both files hold one set of arrays.
        let arrays = read_checkpoint(Cursor::new(bytes), Section::Model)
            .map_err(|source| WeightsError::Unreadable { path: name.clone(), source })?;
        let record = checkpoint.take(PROVENANCE).ok();
        let (recorded, note) =
            read_record(record.as_deref().map(String::from_utf8_lossy).as_deref());
        let config = run.and_then(|run| recorded_config(run).ok());
        // Checkpoints of earlier versions have none; what their runs record says the same.
        let derived = |config: &Config| -> Result<Recorded, Error> {
            let classes = run.map_or(Ok(Vec::new()), recorded_classes)?;
            Ok(Recorded::of_run(config, &classes, RecordedData::of_config(&config.data)))
        };
        let recorded = match (recorded, &config) {
            (None, Some(config)) => Some(derived(config)?),
            (recorded, _) => recorded,
        };
        let classes = recorded.as_ref().map_or_else(Vec::new, |recorded| recorded.classes.clone());
        let run = config.or_else(|| recorded.as_ref()?.config());
        let step = Some(checkpoint.state.step);
        Ok(Self { name, arrays, recorded, run, classes, weights, step, blake3, note })
    }

    /// Rows and columns of the patches that the positions of the weights are of, if recorded.
    pub fn grid(&self) -> Option<[usize; 2]> {
        let model = self.recorded.as_ref()?.vim();
        // A record in a file may say anything.
        model.check_backbone().is_ok().then(|| model.grid())
    }

    /// Where a classifier's class tokens stand, as recorded with the weights, else as their shapes
    /// say; `None` if these do not either.
    pub fn class_token(&self) -> Option<ClassToken> {
        match &self.recorded {
            Some(recorded) => Some(recorded.model.class_token),
            None => Some(infer(&self.arrays.state).ok()?.config.class_token),
        }
    }

    /// Says on stderr what the user should know of these weights, and of the differences that
    /// `options` allowed.
    pub(crate) fn say_notes(&self, report: &LoadReport, options: LoadOptions) {
        for note in self.note.iter().cloned().chain(notes(report, options)) {
            eprintln!("note: {note}");
        }
    }

    /// A description of the weights in one line.
    pub fn summary(&self) -> String {
        let Arrays { format, entry, prefix, inner, state, .. } = &self.arrays;
        let format = match (format, self.step) {
            (_, Some(step)) => match self.weights {
                Weights::Model => format!("checkpoint of step {step}"),
                Weights::Ema => format!("checkpoint of step {step}, moving average"),
            },
            (Format::Pytorch, None) => "PyTorch archive".to_owned(),
            (Format::Safetensors, None) => "safetensors".to_owned(),
        };
        let entry = entry.as_ref().map_or_else(String::new, |entry| format!(", entry `{entry}`"));
        let prefix = prefix.as_ref().map(|prefix| format!(", prefix `{prefix}` taken off"));
        let inner = inner.iter().map(|wrapper| format!(", `{wrapper}` taken out of names"));
        let wrappers: String = prefix.into_iter().chain(inner).collect();
        let mut types: Vec<String> = state
            .iter()
            .filter_map(|(_, item)| match item {
                Item::Array(array) => Some(array.stored.to_string()),
                Item::Unreadable(_) => None,
            })
            .collect();
        types.sort();
        types.dedup();
        let (tensors, numbers, types) = (state.len(), state.num_elements(), types.join(" and "));
        format!(
            "{} ({format}{entry}{wrappers}; {tensors} tensors, {numbers} numbers in {types})",
            self.name
        )
    }
}

/// The record in `text`, or a note if this version cannot read it: it must not hide the arrays.
fn read_record(text: Option<&str>) -> (Option<Recorded>, Option<String>) {
    match text.map(Recorded::parse) {
        None => (None, None),
        Some(Ok(recorded)) => (Some(recorded), None),
        Some(Err(error)) => {
            let why = error.message().trim().replace('\n', ", ");
            let note = format!(
                "the record of these weights cannot be read, and is as if there were none: {why}"
            );
            (None, Some(note))
        }
    }
}

fn kind(section: Section) -> Weights {
    match section {
        Section::Model => Weights::Model,
        Section::Ema => Weights::Ema,
    }
}

fn resize_name(options: LoadOptions) -> &'static str {
    match options.resize.unwrap_or_default() {
        Resize::MiddleAware => "middle_aware",
        Resize::Parity => "parity",
    }
}

/// One line for each allowed difference.
pub fn notes(report: &LoadReport, options: LoadOptions) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some([rows, columns]) = report.assumed_grid {
        lines.push(format!(
            "positions taken as of {rows} x {columns} patches as the model's: the file does not \
             record their rows and columns"
        ));
    }
    if let Some(([rows, columns], [new_rows, new_columns])) = report.resized {
        let mode = resize_name(options);
        lines.push(format!(
            "positions resized from {rows} x {columns} to {new_rows} x {new_columns} patches ({mode})"
        ));
    }
    match report.head {
        Some((0, new)) => lines.push(format!("no head in the file: a new one of {new} classes")),
        Some((old, 0)) => lines.push(format!("head of {old} classes left out")),
        Some((old, new)) => {
            lines.push(format!("head of {old} classes replaced by a new one of {new} classes"));
        }
        None => {}
    }
    if report.dropped_class_tokens > 0 {
        let mode = resize_name(options);
        let cut = format!("class tokens left out, and their rows of positions ({mode})");
        lines.push(format!("{} {cut}", report.dropped_class_tokens));
    }
    if !report.missing.is_empty() {
        lines.push(format!("missing, left as initialised: {}", report.missing.join(", ")));
    }
    if !report.not_finite.is_empty() {
        lines.push(format!("NaN or infinite numbers in {}", report.not_finite.join(", ")));
    }
    if !report.extra.is_empty() {
        lines.push(format!("not in the model, so not read: {}", report.extra.join(", ")));
    }
    if !report.computed.is_empty() {
        lines.push(format!("computed, so not read: {}", report.computed.join(", ")));
    }
    lines
}
