//! `vim-train data show`: the training images as a picture.

use std::path::PathBuf;

use burn::tensor::{Device, Tensor};
use clap::Args;
use vim_data::{
    Batch, Described, Loader, LoaderConfig, OnBad, Pixels, Replica, Split, Statistics,
    contact_sheet, write_png,
};

use crate::args::Overrides;
use crate::config::Config;
use crate::error::Error;
use crate::output::{print, print_json};
use crate::task::classification::to_tensors;
use crate::task::loaders;

const EXAMPLES: &str = "\
Examples:
  vim-train data show configs/quickstart.toml
  vim-train data show configs/vim_tiny_imagenet.toml --count 32 --epoch 5 --out epoch5.png
  vim-train data show configs/vim_tiny_imagenet.toml --batch 1250 --json > plans.json

The picture has pairs: what evaluation sees of an image, and what training makes of it in that batch: cropped, altered,
erased and mixed, as the model receives it. The first line of text is the first row. --json prints what was drawn for each
image, and from which key.";

/// Write a picture of a batch, before and after augmentation, and print what was drawn.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// Configuration file.
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Where to write the PNG.
    #[arg(long, value_name = "FILE", default_value = "samples.png")]
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
    /// Print the plans as JSON instead of a line for each image.
    #[arg(long)]
    json: bool,
}

const PAIRS: usize = 4;

pub(super) fn run(args: &ShowArgs) -> Result<(), Error> {
    let config = Config::load(&args.config, &args.overrides.set)?;
    let splits = vim_data::open(&config.data, config.run.seed)?;
    let size = config.model.image_size;
    let statistics = splits.train.statistics(config.data.normalize);
    let plain = loaders::evaluation(&config, size);
    let loading = loaders::training(&config, size, Replica::SINGLE);
    let loader = Loader::new(splits.train.clone(), loading)?;
    let per_epoch = loader.batches_per_epoch() as u64;
    if args.batch >= per_epoch {
        return Err(Error::failed(format!(
            "there is no batch {}: an epoch has {per_epoch}, numbered from 0",
            args.batch
        )));
    }
    let number = args.epoch * per_epoch + args.batch;
    let described = loader.describe(number)?;
    let batch = loader
        .batches(number..number + 1)
        .next()
        .ok_or_else(|| Error::internal("a batch that there is was not made"))??;
    let shown = described.len().min(args.count as usize);
    let before = originals(&splits.train, &described[..shown], plain)?;
    let after = received(&batch, statistics)?;
    let pairs: Vec<Pixels> = before.into_iter().zip(after).flat_map(|(a, b)| [a, b]).collect();
    write_png(&args.out, &contact_sheet(&pairs, 2 * PAIRS))
        .map_err(Error::io("write", &args.out))?;
    if args.json {
        return print_json(&&described[..shown]);
    }
    let names = splits.train.class_names();
    for (place, one) in described[..shown].iter().enumerate() {
        print(&format!("{place:3}  {}", line(one, names)))?;
    }
    print(&format!(
        "{} pairs of epoch {}, batch {} in {}",
        shown,
        args.epoch,
        args.batch,
        args.out.display()
    ))
}

/// The images after the evaluation transform.
fn originals(
    split: &Split,
    described: &[Described],
    loading: LoaderConfig,
) -> Result<Vec<Pixels>, Error> {
    let indices = described.iter().map(|one| one.index).collect();
    let config = LoaderConfig { batch_size: described.len(), on_bad: OnBad::Fail, ..loading };
    let loader = Loader::new(split.only(indices), config)?;
    let mut images = Vec::new();
    for batch in loader.epoch(0, 0) {
        let batch = batch?;
        let bytes = 3 * batch.height * batch.width;
        let image =
            |data: &[u8]| Pixels { height: batch.height, width: batch.width, data: data.to_vec() };
        images.extend(batch.images.chunks_exact(bytes).map(image));
    }
    Ok(images)
}

/// The model's input images, converted back to bytes.
fn received(batch: &Batch, by: Statistics) -> Result<Vec<Pixels>, Error> {
    let device = Device::flex();
    let (images, _) = to_tensors(batch, by, &device)?;
    let channel =
        |values: [f32; 3]| Tensor::<1>::from_floats(values, &device).reshape([1, 3, 1, 1]);
    let images = (images * channel(by.std) + channel(by.mean)) * 255.0;
    let values: Vec<f32> = images.permute([0, 2, 3, 1]).into_data().iter().collect();
    let (height, width) = (batch.height, batch.width);
    let image = |values: &[f32]| Pixels {
        height,
        width,
        data: values.iter().map(|value| value.round().clamp(0.0, 255.0) as u8).collect(),
    };
    Ok(values.chunks_exact(3 * height * width).map(image).collect())
}

fn line(one: &Described, names: &[String]) -> String {
    let class = names.get(one.label as usize).map_or("", String::as_str);
    let done = one.plan.as_ref().map_or_else(String::new, |plan| {
        let flip = if plan.flip { ", mirrored" } else { "" };
        let ops: Vec<String> = plan.ops.iter().map(|op| format!("{op:?}")).collect();
        let ops = if ops.is_empty() { String::new() } else { format!(", {}", ops.join(", ")) };
        let erased = if plan.erase.is_empty() { "" } else { ", erased" };
        format!("{:?}{flip}{ops}{erased}", plan.crop)
    });
    let mixed =
        one.mixed.map_or_else(String::new, |mixed| format!(", keeps {:.2}", mixed.lambda()));
    format!("{} ({class}), draw {}: {done}{mixed}", one.name, one.key.repeat)
}
