//! `vim-train predict`: classifies images or their pixels, or finds objects.

use std::path::PathBuf;

use clap::Args;
use vim_engine::Error;
use vim_engine::task::named::PredictOptions;
use vim_engine::work::predict::{self, Predict};

use super::images::ModelArgs;
use crate::args::count;

const EXAMPLES: &str = "\
Examples:
  vim-train predict cat.jpg --checkpoint vim_t_midclstok_76p1acc.pth
  vim-train predict *.png --checkpoint zoh-s0 --top 3 --json
  vim-train predict photos/ --checkpoint data/runs/zoh-s0 -o photos.csv      or .jsonl
  vim-train predict photos/ --checkpoint zoh-s0 -o photos.html               a page with thumbnails
  vim-train predict photos/ --checkpoint upernet-s0 --maps maps             label maps and overlays
  vim-train predict photos/ --checkpoint detector-s0 --drawn found             boxes, masks and names
  vim-train predict x.png --checkpoint vim.safetensors --config configs/my.toml --classes names.txt

Images are JPEG, PNG, BMP, GIF or WebP, resized and cropped as evaluation does; of a folder, all below it whose
names end so, sorted. One that cannot be read is named and left out, and the exit code is 65 after all others.
Without --config the model is the one recorded with the weights, else what their shapes say (stderr tells what
had to be assumed).";

/// Classify images or their pixels, or find objects: classes by name, label maps, boxes and masks.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PredictArgs {
    /// Images (JPEG, PNG, BMP, GIF or WebP), and folders of images.
    #[arg(required = true)]
    images: Vec<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// Names of the classes, one a line; left out: those recorded in the run, else the configured
    /// dataset's, else those of a published dataset with as many classes.
    #[arg(long, value_name = "FILE")]
    classes: Option<PathBuf>,
    #[command(flatten)]
    options: OutputArgs,
}

/// What `predict` prints and writes.
#[derive(Debug, Args)]
struct OutputArgs {
    /// How many classes to print, the likeliest first; of objects, how many. Left out: 5 classes,
    /// and all objects.
    #[arg(long, value_name = "N", value_parser = count)]
    top: Option<usize>,
    /// Write the predictions to this file instead: a table (.csv), a line of JSON for each image
    /// (.jsonl), or a page with thumbnails (.html).
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Segmentation only: write a label map in the classes' colours (NAME.png) and the image seen
    /// through it (NAME_overlay.png) of each image to this folder, and classes.svg, their legend.
    #[arg(long, value_name = "FOLDER")]
    maps: Option<PathBuf>,
    /// Segmentation only: write grey label maps to this folder, whose classes are numbered from 1
    /// as ADE20K's server takes them.
    #[arg(long, value_name = "FOLDER")]
    submission: Option<PathBuf>,
    /// Segmentation only: see each image at six sizes and mirrored, and average the probabilities.
    #[arg(long)]
    multi_scale: bool,
    /// Detection only: write each image with boxes, masks and names drawn over it
    /// (NAME_objects.png) to this folder.
    #[arg(long, value_name = "FOLDER")]
    drawn: Option<PathBuf>,
    /// Detection only: the score from which an object is printed and drawn, 0 to 1. Left out: 0.5,
    /// and 0 with --json.
    #[arg(long, value_name = "SCORE", value_parser = score)]
    least: Option<f32>,
    /// Write over the output if it is there.
    #[arg(long)]
    force: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl OutputArgs {
    fn options(&self) -> PredictOptions {
        let Self { top, output, maps, submission, multi_scale, drawn, least, force, json } = self;
        PredictOptions {
            top: *top,
            output: output.clone(),
            maps: maps.clone(),
            submission: submission.clone(),
            multi_scale: *multi_scale,
            drawn: drawn.clone(),
            least: *least,
            force: *force,
            json: *json,
        }
    }
}

/// A number from 0 to 1.
fn score(text: &str) -> Result<f32, String> {
    let score = text.parse().ok().filter(|score| (0.0..=1.0).contains(score));
    score.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

pub(crate) fn run(args: &PredictArgs) -> Result<(), Error> {
    predict::run(&Predict {
        images: args.images.clone(),
        model: args.model.options(),
        classes: args.classes.clone(),
        options: args.options.options(),
    })
}
