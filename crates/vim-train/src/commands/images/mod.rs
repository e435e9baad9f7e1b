//! What `predict` and `features` share: a model by its weights, and image files in batches.

mod files;

use std::path::{Path, PathBuf};

use burn::tensor::{Device, Tensor};
use clap::Args;
use rayon::prelude::*;
use vim_data::{Batch, ClassList, Statistics, read_picture};
use vim_model::{Vim, VimConfig};
use vim_run::printable;

use crate::args::{DeviceArg, Overrides, count};
use crate::commands::import::TakeArgs;
use crate::config::{Config, TaskKind};
use crate::device::{self, SelectedDevice, threads};
use crate::error::Error;
use crate::output::bar::Bar;
use crate::task::classification::classes::class_names;
use crate::task::classification::to_tensors;
use crate::weights::WeightsError;
use crate::weights::place::Place;
use crate::weights::source::{WeightsSource, notes};

pub(super) use files::images;

/// The model that looks at images.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// The weights: a file (.pth, .pt, .safetensors), a run's folder or its name in `run.root`, a
    /// checkpoint's folder; with --config also `best` and `last` of its run.
    #[arg(long, value_name = "RUN|PATH")]
    checkpoint: PathBuf,
    /// Configuration of the model, the normalisation and the device.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    device: DeviceArg,
    /// Images at a time.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = count)]
    pub(super) batch: usize,
    #[command(flatten)]
    take: TakeArgs,
}

impl ModelArgs {
    /// Finds the weights and what they are of, and says what had to be assumed.
    pub(super) fn find(&self) -> Result<Subject, Error> {
        let given = self.config.as_ref().map(|path| Config::load(path, &self.overrides.set));
        let given = given.transpose()?;
        let (root, run) = match &given {
            Some(given) => (given.run.root.clone(), Some(given.run_folder()?)),
            None => (self.overrides.run_root()?, None),
        };
        let place = Place::find(&self.checkpoint, &root, run.as_deref())?;
        let source = WeightsSource::open(&place, self.take.section())?;
        let around = given.as_ref().or(source.run.as_ref());
        let config = match around {
            // What is around the backbone is in the configuration alone.
            Some(config) if config.task != TaskKind::Classification => config.model.clone(),
            None if source.is_segmenter() || source.is_detector() => {
                let what = if source.is_segmenter() { "segmenter" } else { "detector" };
                let why =
                    format!("is a {what}: give --config, which says how images are shown to it");
                let checkpoint = source.name.clone();
                return Err(WeightsError::Unrecognised { checkpoint, why }.into());
            }
            Some(_) | None => {
                let model = given.as_ref().map(|given| &given.model);
                let (config, origin) = source.model(model, None)?;
                if let Some(assumed) = source.assumed(origin) {
                    eprintln!(
                        "note: the model is inferred from the shapes, assuming {assumed}; --config \
                         says otherwise"
                    );
                }
                config
            }
        };
        Ok(Subject { source, given, config })
    }

    /// The device of the command line, else of the configuration that was `given`.
    pub(super) fn device(&self, given: Option<&Config>) -> Result<SelectedDevice, Error> {
        let devices = given.map(|given| given.devices.clone()).unwrap_or_default();
        threads::start(devices.threads)?;
        match &self.device.device {
            Some(name) => device::choose_named(name),
            None => device::choose(&devices),
        }
    }

    /// Builds the model of `subject` on the chosen device, with its weights.
    pub(super) fn load(&self, subject: &Subject) -> Result<Seer, Error> {
        let Subject { source, given, config } = subject;
        let statistics =
            subject.around().map_or(Statistics::IMAGENET, |config| config.data.statistics());
        let chosen = self.device(given.as_ref())?;
        let options = self.take.options();
        let (model, report) = source.load(config.init(&chosen.device, 0)?, options)?;
        for note in source.note.iter().cloned().chain(notes(&report, options)) {
            eprintln!("note: {note}");
        }
        let size = [config.image_size.height, config.image_size.width];
        Ok(Seer { model, size, statistics, device: chosen.device })
    }
}

/// Weights, and the model that they are of.
pub(super) struct Subject {
    pub(super) source: WeightsSource,
    pub(super) given: Option<Config>,
    config: VimConfig,
}

impl Subject {
    /// The configuration that was given, else the recorded one.
    pub(super) fn around(&self) -> Option<&Config> {
        self.given.as_ref().or(self.source.run.as_ref())
    }

    /// Names of the classes of a segmentation or a detection, from `file` where it is given;
    /// ADE20K's or COCO's by their number, and numbers, if they are unknown.
    pub(super) fn dense_names(&self, file: Option<&Path>) -> Result<Vec<String>, Error> {
        let count = self.source.num_classes().unwrap_or_default();
        let names = class_names(file, &self.source.classes, self.around(), count)?;
        if !names.is_empty() {
            return Ok(names);
        }
        let mut lists = [ClassList::ade20k(), ClassList::coco()].into_iter();
        let known = lists.find(|list| list.names.len() == count).map(|list| list.names);
        Ok(known.unwrap_or_else(|| (0..count).map(|class| format!("class {class}")).collect()))
    }

    /// Names of the model's classes, from `file` where it is given; empty if they are unknown.
    pub(super) fn class_names(&self, file: Option<&Path>) -> Result<Vec<String>, Error> {
        class_names(file, &self.source.classes, self.around(), self.config.num_classes)
    }
}

/// A model, and what it needs to look at images.
pub(super) struct Seer {
    pub(super) model: Vim,
    /// Of its images, `[height, width]`.
    pub(super) size: [usize; 2],
    statistics: Statistics,
    device: Device,
}

/// The pixels of an image, or why it cannot be read.
pub(super) type Picture = Result<Vec<u8>, String>;

impl Seer {
    /// Reads images as the model sees them.
    pub(super) fn read(&self, paths: &[PathBuf]) -> Vec<Picture> {
        let read = |path: &PathBuf| read_picture(path, self.size);
        paths.par_iter().map(|path| read(path).map_err(|error| error.to_string())).collect()
    }

    /// Those that could be read, normalized, `[B, 3, H, W]`; `None` if there are none.
    pub(super) fn upload(&self, pictures: &[Picture]) -> Result<Option<Tensor<4>>, Error> {
        let good: Vec<&[u8]> = pictures.iter().flatten().map(Vec::as_slice).collect();
        if good.is_empty() {
            return Ok(None);
        }
        let batch = Batch::plain(good.concat(), vec![0; good.len()], self.size);
        Ok(Some(to_tensors(&batch, self.statistics, &self.device)?.0))
    }
}

/// The progress through image files, and which of them cannot be used.
pub(super) struct Walk {
    bar: Option<Bar>,
    all: usize,
    bad: usize,
}

impl Walk {
    /// Through `all` images; a bar shows how far, if `with_bar`.
    pub(super) fn new(all: usize, with_bar: bool) -> Self {
        Self { bar: with_bar.then(|| Bar::of_images(all, "")), all, bad: 0 }
    }

    /// Says why an image is left out.
    pub(super) fn leave_out(&mut self, why: &str) {
        self.bad += 1;
        let say = || eprintln!("warning: {}; left out", printable(why));
        match self.bar.as_ref().and_then(|bar| bar.0.as_ref()) {
            Some(bar) => bar.suspend(say),
            None => say(),
        }
    }

    /// `count` more images are done, or left out.
    pub(super) fn advance(&self, count: usize) {
        if let Some(bar) = &self.bar {
            bar.advance(count);
        }
    }

    /// Removes the bar.
    pub(super) fn hide(&mut self) {
        self.bar.take();
    }

    /// An error if images were left out.
    pub(super) fn end(self) -> Result<(), Error> {
        let Self { all, bad, .. } = self;
        if bad == 0 {
            return Ok(());
        }
        Err(Error::data(format!("{bad} of {all} images cannot be used (named above)")))
    }
}
