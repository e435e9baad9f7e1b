//! What `predict` and `features` share: a model by its weights, and image files in batches.

mod files;

use std::path::PathBuf;

use burn::tensor::Device;
use clap::Args;
use vim_run::printable;

use crate::args::{DeviceArg, Overrides, count};
use crate::commands::import::TakeArgs;
use crate::config::{Config, config_inputs};
use crate::device::{self, SelectedDevice, threads};
use crate::error::Error;
use crate::output::bar::Bar;
use crate::task::named::NamedTask;
use crate::task::trained::Subject;
use crate::weights::heads::Described;
use crate::weights::provenance::Remarks;

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
        let root = match &given {
            Some(given) => given.run.root.clone(),
            None => self.overrides.run_root()?,
        };
        Subject::find(&self.checkpoint, &root, self.take.section(), given)
    }

    /// All that is read beside the images, by which the weights of `subject` were found.
    pub(super) fn inputs(&self, subject: &Subject) -> Vec<PathBuf> {
        subject.place.inputs().into_iter().chain(config_inputs(&self.config)).collect()
    }

    /// The model of the weights, whose task is `T`, and what the answers must say of it.
    pub(super) fn describe<T: NamedTask>(
        &self,
        subject: &Subject,
    ) -> Result<(Described<T::Heads>, Remarks), Error> {
        let (described, remarks) = subject.described::<T>(&self.take.allowed())?;
        if !described.assumed.is_empty() {
            let assumed: Vec<String> = described.assumed.iter().map(ToString::to_string).collect();
            eprintln!(
                "note: the model is inferred from the shapes, assuming {}; --config says otherwise",
                assumed.join(", ")
            );
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
        classes: Vec<String>,
        device: &Device,
    ) -> Result<T::Trained, Error> {
        let options = self.take.options();
        let (trained, report) = subject.trained::<T>(described, classes, device, options)?;
        subject.source.say_notes(&report, options);
        Ok(trained)
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
