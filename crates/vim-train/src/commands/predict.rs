//! `vim-train predict`: classifies images or their pixels, or finds objects.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use vim_run::printable;
use vim_run::storage::{Disk, replace};

use super::images::{ModelArgs, Walk, images};
use crate::error::Error;
use crate::output::{check_free, check_no_input, print, print_json};
use crate::task::backends::{self, Work};
use crate::task::kinds::with_task;
use crate::task::named::{NamedTask, PredictOptions, check_flags};
use crate::task::trained::Subject;
use crate::weights::provenance::Remarks;

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
    options: PredictOptions,
}

pub(crate) fn run(args: &PredictArgs) -> Result<(), Error> {
    args.options.format()?;
    if let Some(path) = &args.options.output {
        check_free(path, args.options.force)?;
    }
    let paths = images(&args.images)?;
    let subject = args.model.find()?;
    if let Some(path) = &args.options.output {
        let read = args.model.inputs(&subject);
        let read = read.iter().chain(&paths).chain(&args.classes);
        check_no_input(path, read.map(PathBuf::as_path))?;
    }
    with_task!(subject.task, T => predict::<T>(args, &paths, &subject))
}

fn predict<T: NamedTask>(
    args: &PredictArgs,
    paths: &[PathBuf],
    subject: &Subject,
) -> Result<(), Error> {
    let options = &args.options;
    check_flags::<T>(&options.given())?;
    let (described, mut remarks) = args.model.describe::<T>(subject)?;
    let classes = subject.class_names::<T>(args.classes.as_deref(), &described, &mut remarks)?;
    let chosen = args.model.device(subject.given.as_ref())?;
    backends::check(subject.task, Work::Predict, &chosen)?;
    let trained = args.model.load::<T>(subject, &described, classes, &chosen.device)?;
    // Last, as it makes folders.
    T::check_files(options, paths)?;
    let predict = T::predictor(trained, options)?;
    let is_text = options.output.is_none() && !options.json;
    let suffix = remarks.suffix();
    if is_text && !suffix.is_empty() {
        print(&format!("weights {}{suffix}", subject.source.name))?;
    }
    // Lines of text show the progress themselves.
    let mut walk = Walk::new(paths.len(), !is_text);
    let mut answers = Vec::new();
    for paths in paths.chunks(args.model.batch.unwrap_or(T::PREDICTED_AT_A_TIME)) {
        for (path, answer) in paths.iter().zip(predict(paths)?) {
            match answer {
                Ok(answer) if is_text => {
                    print(&format!("{}\n{answer}", printable(&path.display().to_string())))?;
                }
                Ok(answer) => answers.push(answer),
                Err(why) => walk.leave_out(&why),
            }
        }
        walk.advance(paths.len());
    }
    walk.hide();
    if let (Some(path), Some(format)) = (&options.output, options.format()?) {
        let weights = subject.source.summary() + &suffix;
        let bytes = T::table(format, &answers, &weights)?;
        replace(&Disk, path, &bytes).map_err(Error::io("write", path))?;
        if !options.json {
            print(&format!("wrote {}, images {}", path.display(), answers.len()))?;
        }
    }
    if options.json {
        #[derive(Serialize)]
        struct Remarked<'a, A> {
            #[serde(flatten)]
            answer: &'a A,
            #[serde(flatten)]
            remarks: &'a Remarks,
        }
        let remarked =
            answers.iter().map(|answer| Remarked { answer, remarks: &remarks }).collect::<Vec<_>>();
        print_json(&remarked)?;
    }
    walk.end()
}
