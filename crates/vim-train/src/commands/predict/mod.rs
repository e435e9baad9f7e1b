//! `vim-train predict`: classifies images.

mod files;
mod gallery;
mod output;

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use clap::Args;
use rayon::prelude::*;
use vim_data::{Batch, Statistics, read_picture};
use vim_model::{ImageSize, Vim};
use vim_run::printable;

use crate::args::{DeviceArg, Overrides, count};
use crate::commands::import::TakeArgs;
use crate::config::Config;
use crate::device::{self, threads};
use crate::error::Error;
use crate::output::progress::Bar;
use crate::output::{check_free, print, print_json};
use crate::task::Objective;
use crate::task::classification::classes::class_names;
use crate::task::classification::predict::Guesses;
use crate::task::classification::{Classifier, to_tensors};
use crate::weights::place::Place;
use crate::weights::source::{WeightsSource, notes};
use gallery::thumbnail;
use output::{Answer, Format, TOP};

const EXAMPLES: &str = "\
Examples:
  vim-train predict cat.jpg --checkpoint vim_t_midclstok_76p1acc.pth
  vim-train predict *.png --checkpoint zoh-s0 --top 3 --json
  vim-train predict photos/ --checkpoint data/runs/zoh-s0 -o photos.csv      or .jsonl
  vim-train predict photos/ --checkpoint zoh-s0 -o photos.html               a page with thumbnails
  vim-train predict x.png --checkpoint vim.safetensors --config configs/my.toml --classes names.txt

Images are JPEG, PNG, BMP, GIF or WebP, resized and cropped as evaluation does; of a folder, all below it whose
names end so, sorted. One that cannot be read is named and left out, and the exit code is 65 after all others.
Without --config the model is the one recorded with the weights, else what their shapes say (stderr tells what
had to be assumed).";

/// Classify images: the likeliest classes by name.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PredictArgs {
    /// Images (JPEG, PNG, BMP, GIF or WebP), and folders of images.
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
    #[command(flatten)]
    device: DeviceArg,
    /// Names of the classes, one a line; left out: those recorded in the run, else the configured
    /// dataset's, else ImageNet's or CIFAR-100's by their number.
    #[arg(long, value_name = "FILE")]
    classes: Option<PathBuf>,
    /// How many classes to print, the likeliest first.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
    /// Write the predictions to this file instead: a table (.csv), a line of JSON for each image
    /// (.jsonl), or a page with thumbnails (.html).
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write over the output if it is there.
    #[arg(long, requires = "output")]
    force: bool,
    /// Images at a time.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = count)]
    batch: usize,
    #[command(flatten)]
    take: TakeArgs,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &PredictArgs) -> Result<(), Error> {
    let format = args.output.as_deref().map(Format::of).transpose()?;
    if let Some(path) = &args.output {
        check_free(path, args.force)?;
    }
    let paths = files::images(&args.images)?;
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
    let (file, classes) = (args.classes.as_deref(), config.num_classes);
    let names = class_names(file, &source.classes, around, classes)?;
    let statistics = around.map_or(Statistics::IMAGENET, |config| config.data.statistics());
    let devices = given.as_ref().map(|given| given.devices.clone()).unwrap_or_default();
    threads::start(devices.threads)?;
    let chosen = match &args.device.device {
        Some(name) => device::choose_named(name)?,
        None => device::choose(&devices)?,
    };
    let options = args.take.options();
    let (model, report) = source.load(config.init(&chosen.device, 0)?, options)?;
    for note in source.note.iter().cloned().chain(notes(&report, options)) {
        eprintln!("note: {note}");
    }
    let top = args.top as usize;
    let seer = Seer { model, size: config.image_size, statistics, device: chosen.device, names };
    let is_text = format.is_none() && !args.json;
    // Lines of text show the progress themselves.
    let total = paths.len() as u64;
    let template = "{bar:24} {pos}/{len} images, {per_sec}, eta {eta}";
    let mut bar = (!is_text).then(|| Bar::new(total, template, |bar| bar));
    let (mut answers, mut bad) = (Vec::new(), 0);
    for paths in paths.chunks(args.batch) {
        let looked = seer.look(paths, top.max(TOP), format == Some(Format::Html))?;
        for (path, answer) in paths.iter().zip(looked) {
            match answer {
                Ok(mut answer) if is_text => {
                    answer.predictions.truncate(top);
                    let image = path.display().to_string();
                    print(&format!("{}\n{}", printable(&image), answer.predictions))?;
                }
                Ok(answer) => answers.push(answer),
                Err(why) => {
                    bad += 1;
                    let say = || eprintln!("warning: {}; left out", printable(&why));
                    match bar.as_ref().and_then(|bar| bar.0.as_ref()) {
                        Some(bar) => bar.suspend(say),
                        None => say(),
                    }
                }
            }
        }
        if let Some(bar) = bar.as_ref().and_then(|bar| bar.0.as_ref()) {
            bar.inc(paths.len() as u64);
        }
    }
    bar.take();
    if let (Some(path), Some(format)) = (&args.output, format) {
        output::write(path, format, &answers, top, &source.summary())?;
        if !args.json {
            print(&format!("wrote {}, images {}", path.display(), answers.len()))?;
        }
    }
    if args.json {
        answers.iter_mut().for_each(|answer| answer.predictions.truncate(top));
        print_json(&answers)?;
    }
    if bad == 0 {
        return Ok(());
    }
    let all = paths.len();
    Err(Error::data(format!("{bad} of {all} images cannot be used (named above)")))
}

/// A model, and what it needs to look at images.
struct Seer {
    model: Vim,
    size: ImageSize,
    statistics: Statistics,
    device: Device,
    names: Vec<String>,
}

impl Seer {
    /// What the model says of each image, with the `top` likeliest classes, or why it cannot be
    /// read.
    fn look(
        &self,
        paths: &[PathBuf],
        top: usize,
        with_thumbnails: bool,
    ) -> Result<Vec<Result<Answer, String>>, Error> {
        let size = [self.size.height, self.size.width];
        let read = |path: &PathBuf| read_picture(path, size).map_err(|error| error.to_string());
        let pictures: Vec<Result<Vec<u8>, String>> = paths.par_iter().map(read).collect();
        let good: Vec<&[u8]> = pictures.iter().flatten().map(Vec::as_slice).collect();
        let mut guesses = Vec::new();
        if !good.is_empty() {
            let batch = Batch::plain(good.concat(), vec![0; good.len()], size);
            let (images, _) = to_tensors(&batch, self.statistics, &self.device)?;
            guesses = Classifier::predict(&self.model, images, &self.names, top)?;
        }
        let mut guesses = guesses.into_iter();
        let answer = |(path, picture): (&PathBuf, Result<Vec<u8>, String>)| {
            let pixels = match picture {
                Ok(pixels) => pixels,
                Err(why) => return Ok(Err(why)),
            };
            let predictions = guesses.next();
            let predictions = predictions.ok_or_else(|| Error::internal("an image was lost"))?;
            let thumbnail = with_thumbnails.then(|| thumbnail(pixels, size)).transpose()?;
            Ok(Ok(answer_of(path, predictions, thumbnail)))
        };
        paths.iter().zip(pictures).map(answer).collect()
    }
}

fn answer_of(path: &Path, predictions: Guesses, thumbnail: Option<String>) -> Answer {
    Answer { image: path.display().to_string(), predictions, thumbnail }
}
