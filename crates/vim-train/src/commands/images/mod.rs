//! What `predict` and `features` share: a model by its weights, and image files in batches.

mod files;

use std::path::PathBuf;

use burn::tensor::Device;
use clap::Args;
use vim_run::printable;

use crate::args::{DeviceArg, Overrides, count};
use crate::commands::import::TakeArgs;
use crate::config::{Config, TaskKind};
use crate::device::{self, SelectedDevice, threads};
use crate::error::Error;
use crate::output::bar::Bar;
use crate::task::Model;
use crate::task::kinds::task_of;
use crate::task::named::NamedTask;
use crate::weights::heads::{Described, Heads as _};
use crate::weights::place::Place;
use crate::weights::provenance::{Remarks, Use};
use crate::weights::source::WeightsSource;

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
    /// Images at a time. Left out: 32; with segmentation, whose images differ in size, one.
    #[arg(long, value_name = "N", value_parser = count)]
    pub(super) batch: Option<usize>,
    #[command(flatten)]
    take: TakeArgs,
}

impl ModelArgs {
    /// Finds the weights and what they are of.
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
        let task = around.map_or_else(|| task_of(&source), |config| config.task);
        Ok(Subject { source, given, task })
    }

    /// The model of the weights, whose task is `T`, and what the answers must say of it.
    pub(super) fn describe<T: NamedTask>(
        &self,
        subject: &Subject,
    ) -> Result<(Described<T::Heads>, Remarks), Error> {
        let source = &subject.source;
        if T::NEEDS_CONFIG && subject.around().is_none() {
            let what = T::Heads::WHAT;
            return Err(source.unrecognised(format!(
                "is a {what}: give --config, which says how images are shown to it"
            )));
        }
        let given = subject.given.as_ref();
        let described = source.described::<T::Heads>(given, None)?;
        let mut remarks = source.check_described(given, Use::Predict, &self.take.allowed())?;
        if let Some(assumed) = &described.assumed {
            eprintln!(
                "note: the model is inferred from the shapes, assuming {assumed}; --config says \
                 otherwise"
            );
            remarks.assumed.push(assumed.clone());
        }
        if subject.around().is_none() {
            remarks.assumed.push("normalization by ImageNet's statistics".to_owned());
        }
        Ok((described, remarks))
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

    /// Builds the model on `device`, with the weights of `subject`.
    pub(super) fn load<T: NamedTask>(
        &self,
        subject: &Subject,
        described: &Described<T::Heads>,
        device: &Device,
    ) -> Result<Model<T>, Error> {
        let options = self.take.options();
        let (model, report) = subject.source.model(described, device, options)?;
        subject.source.say_notes(&report, options);
        Ok(model)
    }
}

/// Weights, and what they are of.
pub(super) struct Subject {
    pub(super) source: WeightsSource,
    pub(super) given: Option<Config>,
    /// Of the configuration that was given, else of the recorded one, else of the weights.
    pub(super) task: TaskKind,
}

impl Subject {
    /// The configuration that was given, else the recorded one.
    pub(super) fn around(&self) -> Option<&Config> {
        self.given.as_ref().or(self.source.run.as_ref())
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
