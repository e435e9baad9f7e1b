//! What `predict` and `features` share: a model by its weights, and image files in batches.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use vim_data::ImageKind;
use vim_run::printable;

use crate::config::{Config, config_inputs};
use crate::device::{self, DeviceName, SelectedDevice, threads};
use crate::error::Error;
use crate::output::bar::Bar;
use crate::task::named::NamedTask;
use crate::task::trained::Subject;
use crate::weights::heads::Described;
use crate::weights::provenance::Remarks;
use crate::weights::source::Take;

/// The model that looks at images.
#[derive(Debug)]
pub struct ModelOptions {
    /// The weights: a file, a run's folder or name, a checkpoint's folder.
    pub checkpoint: PathBuf,
    /// A file with the configuration of the model, the normalisation and the device.
    pub config: Option<PathBuf>,
    /// The assignments over it.
    pub sets: Vec<String>,
    /// What to run on, over the configuration.
    pub device: Option<DeviceName>,
    /// Images at a time; `None` leaves it to the task.
    pub batch: Option<usize>,
    /// What is taken of the weights.
    pub take: Take,
}

impl ModelOptions {
    /// Finds the weights and what they are of.
    pub(super) fn find(&self) -> Result<Subject, Error> {
        let given = self.config.as_ref().map(|path| Config::load(path, &self.sets));
        let given = given.transpose()?;
        let root = match &given {
            Some(given) => given.run.root.clone(),
            None => Config::run_root(&self.sets)?,
        };
        Subject::find(&self.checkpoint, &root, self.take.section, given)
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
        let (described, remarks) = subject.described::<T>(&self.take.allowed)?;
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
        match &self.device {
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
        let options = self.take.fit;
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

/// The files among `paths` as they are, and the images below each folder, sorted.
pub fn images(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut images = Vec::new();
    for path in paths {
        if !path.is_dir() {
            images.push(path.clone());
            continue;
        }
        let mut below = Vec::new();
        collect(path, &mut BTreeSet::new(), &mut below)?;
        if below.is_empty() {
            let known: Vec<&str> = ImageKind::all_extensions().collect();
            let (path, known) = (path.display(), known.join(", ."));
            return Err(Error::data(format!("{path} holds no images: no file ends in .{known}")));
        }
        below.sort();
        images.append(&mut below);
    }
    Ok(images)
}

/// Adds the images below `folder`; hidden ones are not meant. Links are followed, and a folder
/// counts once.
fn collect(
    folder: &Path,
    seen: &mut BTreeSet<PathBuf>,
    images: &mut Vec<PathBuf>,
) -> Result<(), Error> {
    if !seen.insert(folder.canonicalize().map_err(Error::io("open", folder))?) {
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let path = entry.map_err(Error::io("list", folder))?.path();
        let name = path.file_name().unwrap_or_default();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if path.is_dir() {
            collect(&path, seen, images)?;
        } else if path.extension().is_some_and(is_known) {
            images.push(path);
        }
    }
    Ok(())
}

fn is_known(extension: &OsStr) -> bool {
    ImageKind::all_extensions().any(|known| extension.eq_ignore_ascii_case(known))
}
