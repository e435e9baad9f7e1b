//! `vim-train predict`: classifies images.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use vim_data::{Batch, DatasetKind, Statistics, read_picture};
use vim_model::ImageSize;
use vim_run::checkpoint::Selection;
use vim_run::printable;

use crate::args::Overrides;
use crate::commands::import::TakeArgs;
use crate::config::Config;
use crate::device::{self, threads};
use crate::error::Error;
use crate::output::{print, print_json};
use crate::task::Objective;
use crate::task::classification::{Classifier, to_tensors};
use crate::weights::source::{WeightsSource, notes};

const EXAMPLES: &str = "\
Examples:
  vim-train predict cat.jpg --checkpoint vim_t_midclstok_76p1acc.pth
  vim-train predict *.png --checkpoint data/runs/zoh-s0 --top 3 --json
  vim-train predict x.png --checkpoint vim.safetensors --config configs/my.toml --classes names.txt

Images are JPEG, PNG, BMP, GIF or WebP, resized and cropped as evaluation does. Without --config the model is the one
recorded with the weights, else what their shapes say (stderr tells what had to be assumed).";

/// ImageNet's class names; data/README.md has their source.
const IMAGENET: &str = include_str!("../../../../data/imagenet1k_classes.txt");

/// Classify images: the likeliest classes by name.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PredictArgs {
    /// Images: JPEG, PNG, BMP, GIF or WebP.
    #[arg(required = true)]
    images: Vec<PathBuf>,
    /// The weights: a file (.pth, .pt, .safetensors), or the folder of a checkpoint or a run.
    #[arg(long, value_name = "PATH")]
    checkpoint: PathBuf,
    /// Configuration of the model, the normalisation and the device.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// Names of the classes, one a line; left out: the configured dataset's, else ImageNet's or
    /// CIFAR-100's by their number.
    #[arg(long, value_name = "FILE")]
    classes: Option<PathBuf>,
    /// How many classes to print, the likeliest first.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
    #[command(flatten)]
    take: TakeArgs,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer<P> {
    image: String,
    predictions: P,
}

pub(crate) fn run(args: &PredictArgs) -> Result<(), Error> {
    let given = args.config.as_ref().map(|path| Config::load(path, &args.overrides.set));
    let given = given.transpose()?;
    let source = WeightsSource::open(&args.checkpoint, args.take.section(), &Selection::Best)?;
    let (config, origin) = source.model(given.as_ref().map(|given| &given.model), None)?;
    if let Some(assumed) = source.assumed(origin) {
        eprintln!(
            "note: the model is inferred from the shapes, assuming {assumed}; --config says otherwise"
        );
    }
    let around = given.as_ref().or(source.run.as_ref());
    let names = class_names(args.classes.as_deref(), around, config.num_classes)?;
    let statistics = around.map_or(Statistics::IMAGENET, |config| config.data.statistics());
    let devices = given.as_ref().map(|given| given.devices.clone()).unwrap_or_default();
    threads::start(devices.threads)?;
    let chosen = device::choose(&devices)?;
    let options = args.take.options();
    let (model, report) = source.load(config.init(&chosen.device, 0)?, options)?;
    for note in notes(&report, options) {
        eprintln!("note: {note}");
    }
    let mut results = Vec::new();
    for path in &args.images {
        let pixels = read_picture(path, [config.image_size.height, config.image_size.width])?;
        let ImageSize { height, width } = config.image_size;
        let batch = Batch::plain(pixels, vec![0], [height, width]);
        let (images, _) = to_tensors(&batch, statistics, &chosen.device)?;
        for predictions in Classifier::predict(&model, images, &names, args.top as usize)? {
            let answer = Answer { image: path.display().to_string(), predictions };
            if args.json {
                results.push(answer);
            } else {
                print(&format!("{}\n{}", printable(&answer.image), answer.predictions))?;
            }
        }
    }
    if args.json { print_json(&results) } else { Ok(()) }
}

/// Names of `count` classes: from the file, else of the dataset, else of a dataset of that size.
fn class_names(
    file: Option<&Path>,
    config: Option<&Config>,
    count: usize,
) -> Result<Vec<String>, Error> {
    if let Some(path) = file {
        let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
        let names: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        if names.len() != count {
            return Err(Error::data(format!(
                "{} has {} lines, the model has {count} classes: one name a line, in the order of the labels",
                path.display(),
                names.len()
            )));
        }
        return Ok(names);
    }
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let dataset = config.map(|config| config.data.dataset.class_names());
    Ok(match (dataset, count) {
        (Some(names), _) if names.len() == count => owned(names),
        (_, 1000) => IMAGENET.lines().map(str::to_owned).collect(),
        (_, 100) => owned(DatasetKind::Cifar100.class_names()),
        (_, _) => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_names_are_as_many_as_classes() {
        assert_eq!(IMAGENET.lines().count(), 1000);
        assert!(IMAGENET.lines().all(|name| !name.trim().is_empty()));
        let cifar: Vec<&str> =
            include_str!("../../../../data/cifar100_classes.txt").lines().collect();
        assert_eq!(cifar, DatasetKind::Cifar100.class_names());
    }
}
