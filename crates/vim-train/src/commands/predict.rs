//! `vim-train predict`: classifies images.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use vim_data::{Batch, Statistics, read_picture};
use vim_model::ImageSize;

use crate::args::Overrides;
use crate::commands::import::TakeArgs;
use crate::config::Config;
use crate::device::{self, threads};
use crate::error::Error;
use crate::output::{print, print_json};
use crate::task::Objective;
use crate::task::classification::classes::class_names;
use crate::task::classification::{Classifier, to_tensors};
use crate::weights::place::Place;
use crate::weights::source::{WeightsSource, notes};

const EXAMPLES: &str = "\
Examples:
  vim-train predict cat.jpg --checkpoint vim_t_midclstok_76p1acc.pth
  vim-train predict *.png --checkpoint data/runs/zoh-s0 --top 3 --json
  vim-train predict x.png --checkpoint vim.safetensors --config configs/my.toml --classes names.txt

Images are JPEG, PNG, BMP, GIF or WebP, resized and cropped as evaluation does. Without --config the model is the one
recorded with the weights, else what their shapes say (stderr tells what had to be assumed).";

/// Classify images: the likeliest classes by name.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PredictArgs {
    /// Images: JPEG, PNG, BMP, GIF or WebP.
    #[arg(required = true)]
    images: Vec<PathBuf>,
    /// The weights: a file (.pth, .pt, .safetensors), a run's folder or its name in `run.root`, a
    /// checkpoint's folder; with --config also `best` and `last` of its run.
    #[arg(long, value_name = "RUN|PATH")]
    checkpoint: PathBuf,
    /// Configuration of the model, the normalisation and the device.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// Names of the classes, one a line; left out: those recorded in the run, else the configured
    /// dataset's, else ImageNet's or CIFAR-100's by their number.
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
    let (root, run) = match &given {
        Some(given) => (given.run.root.clone(), Some(given.run_folder()?)),
        None => (args.overrides.run_root()?, None),
    };
    let place = Place::find(&args.checkpoint, &root, run.as_deref())?;
    let source = WeightsSource::open(&place, args.take.section())?;
    let (config, origin) = source.model(given.as_ref().map(|given| &given.model), None)?;
    if let Some(assumed) = source.assumed(origin) {
        eprintln!(
            "note: the model is inferred from the shapes, assuming {assumed}; --config says otherwise"
        );
    }
    let around = given.as_ref().or(source.run.as_ref());
    let (file, count) = (args.classes.as_deref(), config.num_classes);
    let names = class_names(file, &source.classes, around, count)?;
    let statistics = around.map_or(Statistics::IMAGENET, |config| config.data.statistics());
    let devices = given.as_ref().map(|given| given.devices.clone()).unwrap_or_default();
    threads::start(devices.threads)?;
    let chosen = device::choose(&devices)?;
    let options = args.take.options();
    let (model, report) = source.load(config.init(&chosen.device, 0)?, options)?;
    for note in source.note.iter().cloned().chain(notes(&report, options)) {
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
                print(&format!("{}\n{}", answer.image, answer.predictions))?;
            }
        }
    }
    if args.json { print_json(&results) } else { Ok(()) }
}
