//! What a configuration and the number of its images decide: the part of a plan that needs no device, and no image.

use std::path::Path;

use vim_data::{Loader, LoaderConfig, Replica, Splits};
use vim_model::VimConfig;

use crate::comm::{Comm, SingleDevice};
use crate::config::{ANY_CLASSES, Config, ConfigError};
use crate::device::fault::Load;
use crate::train::batches::check_image_size;
use crate::train::loaders;
use crate::train::loss::Loss;
use crate::train::schedule::Schedule;

/// The course of a run.
pub(super) struct Course {
    pub(super) model: VimConfig,
    pub(super) comm: SingleDevice,
    pub(super) loader: Loader,
    pub(super) evaluation: LoaderConfig,
    pub(super) schedule: Schedule,
    pub(super) loss: Loss,
    pub(super) steps_per_epoch: u64,
    pub(super) total_steps: u64,
    pub(super) load: Load,
}

impl Course {
    /// The course of a run of `config` on `splits`.
    ///
    /// # Errors
    ///
    /// The first key that does not go with the others, or with the images.
    pub(super) fn new(config: &Config, splits: &Splits) -> Result<Self, ConfigError> {
        let classes = splits.train.num_classes();
        let model = VimConfig::new(&config.model, config.ssm, classes)?;
        let recipe = loaders::recipe(config)?;
        check_image_size(&model, &recipe, &splits.train)?;
        let comm = SingleDevice;
        let load = Load::of(&config.train, recipe.mix.is_on());
        let evaluation = loaders::evaluation(config, &recipe, model.image_size);
        let replica = Replica { rank: comm.rank(), world: comm.size() };
        let training = loaders::training(config, recipe, model.image_size, replica);
        let loader = Loader::new(splits.train.clone(), training).map_err(ConfigError::of_data)?;
        let steps_per_epoch = loader.batches_per_epoch() as u64;
        let total_steps = steps_per_epoch * config.train.epochs;
        let schedule = Schedule::new(&config.optim, steps_per_epoch, total_steps)?;
        let loss = Loss::new(&config.train, classes)?;
        Ok(Self {
            model,
            comm,
            loader,
            evaluation,
            schedule,
            loss,
            steps_per_epoch,
            total_steps,
            load,
        })
    }
}

/// Whether `train` would refuse `config` at its start, as far as that can be known without reading an image and
/// without the device; returns what may be missing where the run is to be, a text each.
///
/// # Errors
///
/// The first key that `train` would refuse.
pub(crate) fn foresee(config: &Config) -> Result<Vec<String>, ConfigError> {
    let splits = vim_data::dry_run(&config.data, config.run.seed).map_err(ConfigError::of_data)?;
    if let Some(splits) = splits {
        Course::new(config, &splits)?;
    } else {
        let model = VimConfig::new(&config.model, config.ssm, ANY_CLASSES)?;
        let recipe = loaders::recipe(config)?;
        let training = loaders::training(config, recipe, model.image_size, Replica::SINGLE);
        training.check().map_err(ConfigError::of_data)?;
    }
    Ok(absent(config))
}

/// A text for each file or folder to be read that is not on this machine.
fn absent(config: &Config) -> Vec<String> {
    let data = &config.data;
    let of_data = [
        ("data.path", &data.path),
        ("data.val_path", &data.val_path),
        ("data.val_labels", &data.val_labels),
    ];
    // Drawn images are read from nowhere, whatever the keys say.
    let of_data = of_data.into_iter().filter(|_| data.dataset.has_files());
    let all = of_data.chain([("train.init", &config.train.init)]);
    let missing = all.filter_map(|(key, path)| Some((key, path.as_deref()?)));
    let missing = missing.filter(|(_, path)| !path.exists());
    let text = |(key, path): (&str, &Path)| {
        format!(
            "{key}: {} is not on this machine: it must be there where the run starts",
            path.display()
        )
    };
    missing.map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(sets: &[&str]) -> Config {
        let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
        Config::from_defaults(&sets).unwrap()
    }

    #[test]
    fn what_train_would_refuse_is_foreseen() {
        let cifar = ["data.dataset=cifar100", "data.path=/no/such", "data.val_fraction=0.1"];
        let small = ["model.image_size=32", "model.patch_size=4"];
        for (sets, expected) in [
            (
                &["data.shapes.train=100", small[0], small[1]][..],
                "train.batch_size: failed to cut 100 training images into batches of 128 without a partial one: an epoch would hold none; lower the batch size",
            ),
            (
                &["data.shapes.train=140", "data.val_fraction=0.1", small[0], small[1]],
                "train.batch_size: failed to cut 126 training images into batches of 128 without a partial one: an epoch would hold none; lower the batch size",
            ),
            (
                &[cifar[0], cifar[1], cifar[2], small[0], small[1], "train.batch_size=45056"],
                "train.batch_size: failed to cut 45000 training images into batches of 45056 without a partial one: an epoch would hold none; lower the batch size",
            ),
            (
                &[cifar[0]],
                "data.dataset: failed to open dataset `cifar100`: `data.path` is not set; point it at the archive as downloaded, or at the folder holding it",
            ),
            (
                &["model.image_size=16", "model.patch_size=4"],
                "model.image_size: 16 is out of range: expected 32, the size of the dataset's images, which augment.crop = \"pad\" does not change",
            ),
            (
                &["data.dataset=imagenet", "data.path=/no/such", "data.prefetch=0"],
                "data.prefetch: 0 is out of range: expected 1 or more",
            ),
        ] {
            assert_eq!(foresee(&config(sets)).unwrap_err().to_string(), expected, "{sets:?}");
        }
    }

    #[test]
    fn files_that_may_be_elsewhere_are_told() {
        let told = |key: &str| {
            format!("{key}: /no/such is not on this machine: it must be there where the run starts")
        };
        let path = "data.path=/no/such";
        let drawn = config(&[path, "model.image_size=32", "model.patch_size=4"]);
        assert_eq!(foresee(&drawn).unwrap(), [""; 0], "drawn images need none");
        let found = foresee(&config(&["data.dataset=imagenet", path, "train.init=/no/such"]));
        assert_eq!(found.unwrap(), [told("data.path"), told("train.init")]);
        let here = foresee(&config(&["data.dataset=imagenet", "data.path=/"])).unwrap();
        assert_eq!(here, [""; 0]);
    }
}
