//! `vim-train data show`: the training images as a picture and as a labelled page.

mod page;

use std::path::PathBuf;

use clap::Args;
use vim_comm::Comm;
use vim_data::{Loader, Pixels, contact_sheet, encode_png};
use vim_run::printable;
use vim_run::storage::{Disk, replace};

use crate::args::Overrides;
use crate::config::{Config, config_inputs};
use crate::error::Error;
use crate::output::{OutputError, check_apart, check_free, check_no_input, print, print_json};
use crate::task::batches;
use crate::task::drawing::{Row, Shown, shown};
use crate::task::kinds::with_task;
use crate::task::named::NamedTask;
use page::page;

const EXAMPLES: &str = "\
Examples:
  vim-train data show configs/quickstart.toml
  vim-train data show configs/vim_tiny_imagenet.toml --count 32 --epoch 5 --out epoch5.png
  vim-train data show configs/vim_tiny_imagenet.toml --batch 1250 --json > plans.json

The picture has a row for each image: what evaluation sees of it, and then, a column for each draw of the image in that
batch (augment.repeats), what training makes of it: cropped, altered, erased and mixed, as the model receives it. Small
images are enlarged. A page of the same name ending in .html has them with names, classes and what was done to each, which
is also printed. --json prints what was drawn for each, and from which key.";

/// Write a picture and a labelled page of a batch, before and after augmentation.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// Configuration file.
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Where to write the PNG; the page is beside it, ending in .html.
    #[arg(short, long, alias = "output", value_name = "FILE", default_value = "samples.png")]
    out: PathBuf,
    /// Images to show, the first ones of the batch.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=4096))]
    count: u64,
    /// Which pass over the images, from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    epoch: u64,
    /// Which batch of it, from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    batch: u64,
    /// Show boxes and masks of objects, as detection learns them. A dataset that has nothing else
    /// is shown so anyway.
    #[arg(long)]
    objects: bool,
    /// Write over the picture and the page if they are there.
    #[arg(long)]
    force: bool,
    /// Print the plans as JSON instead of a line for each draw.
    #[arg(long)]
    json: bool,
}

/// Pixels of the shorter side of an image in the picture, at least.
const CELL: usize = 128;

pub(super) fn run(args: &ShowArgs) -> Result<(), Error> {
    let table = args.out.with_extension("html");
    if table == args.out {
        return Err(OutputError::Extension { path: table, expected: ".png" }.into());
    }
    let files = [&args.out, &table];
    files.into_iter().try_for_each(|file| check_free(file, args.force))?;
    let config = Config::load(&args.config, &args.overrides.set)?;
    // Of folders the parts in them count, below.
    let data = config.data_inputs().into_iter().filter(|path| path.is_file());
    let read: Vec<PathBuf> = data.chain(config_inputs([&args.config])).collect();
    files
        .into_iter()
        .try_for_each(|file| check_no_input(file, read.iter().map(PathBuf::as_path)))?;
    let task = config.shown_task(args.objects);
    let (splits, loading) = with_task!(task, T => {
        (<T as NamedTask>::splits(&config)?, <T as NamedTask>::training(&config, &Comm::single()))
    });
    let parts = [Some(&splits.train), Some(&splits.test), splits.val.as_ref()];
    let roots: Vec<PathBuf> =
        parts.into_iter().flatten().flat_map(|part| part.dataset().roots()).collect();
    files.into_iter().try_for_each(|file| check_apart(file, &roots))?;
    let size = config.model.image_size;
    let statistics = splits.train.statistics(config.data.normalize);
    let plain = batches::evaluation(&config, size, &Comm::single());
    let loader = Loader::new(splits.train.clone(), loading)?;
    let per_epoch = loader.batches_per_epoch() as u64;
    if args.batch >= per_epoch {
        return Err(Error::failed(format!(
            "there is no batch {}: an epoch has {per_epoch}, numbered from 0",
            args.batch
        )));
    }
    let number = args.epoch * per_epoch + args.batch;
    let Shown { rows, described, is_drawn } =
        shown(&loader, number, args.count as usize, plain, statistics)?;

    let shorter = rows.first().map_or(CELL, |row| row.before.height.min(row.before.width));
    let factor = CELL.div_ceil(shorter);
    let picture = encode_png(&sheet(&rows, factor));
    let title = format!("Epoch {}, batch {}", args.epoch, args.batch);
    let cropping = if is_drawn {
        format!("crops of {size} px, beside them what they show")
    } else {
        config.augment.cropping(batches::sides(size), splits.train.image_size())
    };
    let page = page(&title, &cropping, &rows, factor)?;
    let written = picture.and_then(|picture| replace(&Disk, &args.out, &picture));
    written.map_err(Error::io("write", &args.out))?;
    replace(&Disk, &table, page.as_bytes()).map_err(Error::io("write", &table))?;
    if args.json {
        return print_json(&described);
    }
    print(&cropping)?;
    for row in &rows {
        print(&printable(&row.label))?;
        for (draw, cell) in row.draws.iter().enumerate() {
            if let Some((_, done)) = cell {
                print(&format!("  draw {}: {done}", draw + 1))?;
            }
        }
    }
    print(&format!(
        "{} images of epoch {}, batch {} in {}, with labels in {}",
        rows.len(),
        args.epoch,
        args.batch,
        args.out.display(),
        table.display()
    ))
}

/// The picture: a row for each image, as evaluation sees it and then its draws.
fn sheet(rows: &[Row], factor: usize) -> Pixels {
    let columns = 1 + rows.iter().map(|row| row.draws.len()).max().unwrap_or(0);
    let cells = rows.iter().flat_map(|row| {
        let draws = row.draws.iter().map(|cell| cell.as_ref().map(|(pixels, _)| pixels));
        std::iter::once(Some(&row.before)).chain(draws)
    });
    let cells: Vec<Option<Pixels>> =
        cells.map(|cell| cell.map(|pixels| pixels.enlarged(factor))).collect();
    contact_sheet(&cells, columns)
}
