//! The predictions of a sweep's runs, or their scores of classes, and pictures of the images that
//! the runs differ on.

use std::io;
use std::path::Path;

use strum::VariantArray;
use vim_data::{
    Class, Encoding, InputKind, Pixels, Sample, Split, Stage, read_input, read_picture,
};
use vim_run::{PER_CLASS, PREDICTIONS};
use vim_sweep::classes::{ClassDifferences, ClassScores, class_differences};
use vim_sweep::differences::{Differences, differences};
use vim_sweep::predictions::{Image, Predictions};
use vim_sweep::report::SHOWN;
use vim_sweep::{RunOutcome, Summary};

use super::folder::Sweep;
use crate::config::{Config, TaskKind};
use crate::output::picture::thumbnail;
use crate::run_folder::recorded_config;
use crate::task::kinds::scores_classes;

/// What writes the predictions of a run that has none.
pub const PREDICT: &str = "vim-train eval RUN --predictions RUN/predictions.csv";

/// The longest side of a picture.
const SIDE: usize = 64;

/// What writes the scores of classes of a run that has none.
pub const SCORE: &str = "vim-train eval RUN --per-class RUN/per_class.csv";

/// What the predictions of the finished runs say.
pub fn find(sweep: &Sweep, summary: &Summary) -> Differences {
    differences(summary, &mut |name| {
        let path = sweep.folder.join(name).join(PREDICTIONS);
        read(&path, "predictions", Predictions::parse)
    })
}

/// Whether the task of `run` is `kind`, which its configuration names unless it is the usual one.
pub fn is_of(run: &RunOutcome, kind: TaskKind) -> bool {
    match run.values.get("task") {
        Some(task) => task.as_str() == Some(kind.to_string().as_str()),
        None => kind == TaskKind::default(),
    }
}

/// What the scores of classes of the finished runs say, if the sweep is of a task that has some.
pub fn find_classes(
    sweep: &Sweep,
    outcomes: &[RunOutcome],
    summary: &Summary,
) -> Option<ClassDifferences> {
    let first = outcomes.first()?;
    let has_classes =
        TaskKind::VARIANTS.iter().any(|kind| is_of(first, *kind) && scores_classes(*kind));
    has_classes.then(|| {
        class_differences(summary, &mut |name| {
            let path = sweep.folder.join(name).join(PER_CLASS);
            read(&path, "scores of classes", ClassScores::parse)
        })
    })
}

/// A table of a run as `parse` understands it; `None` if it is not there.
fn read<T>(
    path: &Path,
    what: &str,
    parse: impl FnOnce(&[u8]) -> Result<T, String>,
) -> Result<Option<T>, String> {
    match read_input(path, InputKind::Record) {
        Ok(bytes) => parse(&bytes)
            .map(Some)
            .map_err(|why| format!("{} holds no {what}: {why}", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    }
}

/// Pictures of the images that the page shows, as data URIs; `None` where one cannot be had
/// cheaply: images in archives of files, and data that are not on this machine.
pub fn thumbnails(sweep: &Sweep, differences: &Differences) -> Vec<Option<String>> {
    let shown: Vec<&Image> = differences.images.iter().map(|one| &one.image).take(SHOWN).collect();
    let run = differences.pairs.first().map(|pair| sweep.folder.join(&pair.run));
    let config = run.and_then(|run| recorded_config(&run).ok());
    let mut split = None;
    let picture = |image: &&Image| -> Option<String> {
        let path = Path::new(&image.name);
        let pixels = if path.is_file() {
            let exif = config.as_ref().map(|config| config.data.exif()).unwrap_or_default();
            let data = read_picture(path, [SIDE, SIDE], exif).ok()?;
            Pixels { height: SIDE, width: SIDE, data }
        } else {
            let split = split.get_or_insert_with(|| open(config.as_ref()?)).as_ref()?;
            of_dataset(split, image)?
        };
        thumbnail(&pixels, SIDE).ok()
    };
    shown.iter().map(picture).collect()
}

/// The test images of `config`, if all of their pixels are at hand once they are open.
fn open(config: &Config) -> Option<Split> {
    let data = vim_data::DataConfig { stage: Stage::Off, ..config.data.clone() };
    // There are none for files that have to be listed first.
    let _outline = vim_data::dry_run::<Class>(&data).ok()??;
    Some(vim_data::open::<Class>(&data).ok()?.test)
}

/// The pixels of `image`, if the dataset has it under this number and name.
fn of_dataset(split: &Split, image: &Image) -> Option<Pixels> {
    let Encoding::Pixels { size: [height, width] } = split.encoding() else { return None };
    let (dataset, index) = (split.dataset(), usize::try_from(image.index).ok()?);
    if index >= dataset.len() || dataset.name(index) != image.name {
        return None;
    }
    let mut sample = Sample::default();
    dataset.read(index, &mut sample).ok()?;
    Some(Pixels { height, width, data: sample.image })
}
