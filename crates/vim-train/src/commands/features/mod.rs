//! `vim-train features`: what a trained model makes of images, as arrays for NumPy.

mod labels;
mod npz;

use std::path::{Path, PathBuf};

use burn::tensor::Tensor;
use clap::Args;
use serde_json::{Value, json};
use vim_model::{FeatureError, Vim};

use super::images::{ModelArgs, Walk, images};
use crate::error::{Error, Failure, code};
use crate::output::{OutputError, check_free, check_no_input, print, print_json};
use crate::task::kinds::with_task;
use crate::task::named::NamedTask;
use crate::task::trained::Subject;
use crate::weights::heads::Heads as _;
use labels::Labels;
use npz::Npz;

const EXAMPLES: &str = "\
Examples:
  vim-train features pets/train --checkpoint zoh-s0 -o train.npz
  vim-train features pets/val --checkpoint zoh-s0 -o val.npz
  vim-train features photos/ --checkpoint zoh-s0 --layers 5,11,-1 -o layers.npz       of three blocks
  vim-train features photos/*.jpg --checkpoint vim_t.pth --maps -o maps.npz           [N, C, H, W]

A linear classifier on the features of the first two (pip install numpy scikit-learn):
  import numpy as np; from sklearn.linear_model import LogisticRegression
  train, val = np.load(\"train.npz\"), np.load(\"val.npz\")
  print(LogisticRegression(max_iter=1000).fit(train[\"features\"], train[\"labels\"]).score(val[\"features\"], val[\"labels\"]))

Arrays of the file, N images in the order of `predict`:
  features   [N, M] f32, M = model.d_model; with --maps [N, M, H, W], H x W patches. Of several layers: layer_5, layer_11, …
  names      [N], the files                  layers     the numbers of the blocks, from 0
  labels     [N] i64, and classes [K]: where every image is in a folder of the folders named, that folder is its class,
             numbered in the order of the names, as data.dataset = \"folder\" does
A vector (--pooled, the default) is what the head reads: the class token, or the mean of the tokens where it reads
several, after the sum of all blocks so far and the model's last norm. A map is what one block adds, patch by patch.
An image that cannot be read is named and left out, and the exit code is 65 after all others. Memory holds one batch
and the names; the values wait on the disk, which needs twice the size of the file until it is whole.";

/// Write the features of images, by a trained model, to a file for NumPy.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FeaturesArgs {
    /// Images (JPEG, PNG, BMP, GIF or WebP), and folders of images.
    #[arg(required = true)]
    images: Vec<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// Write the features to this file.
    #[arg(short, long, value_name = "FILE.npz")]
    output: PathBuf,
    /// Blocks whose features are meant, counted from 0, or from -1 backwards.
    #[arg(
        long,
        value_name = "N,N",
        value_delimiter = ',',
        allow_hyphen_values = true,
        default_value = "-1"
    )]
    layers: Vec<i64>,
    /// One vector for each image: what the head reads. The default.
    #[arg(long, conflicts_with = "maps")]
    pooled: bool,
    /// The output of the block for each patch, as a map.
    #[arg(long)]
    maps: bool,
    /// Write over the output if it is there.
    #[arg(long)]
    force: bool,
    /// Print what was written as JSON.
    #[arg(long)]
    json: bool,
}

/// Layers that have no features.
#[derive(Debug, thiserror::Error)]
enum LayersError {
    #[error("--layers {layer}: the model has {depth} blocks, 0 to {} or -{depth} to -1", depth - 1)]
    Range { layer: i64, depth: usize },
    #[error("--layers: block {0} is named twice")]
    Twice(usize),
    #[error("--layers: {0}")]
    Features(FeatureError),
}

impl Failure for LayersError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Features(FeatureError::Kernel(error)) => error.exit_code(),
            Self::Range { .. } | Self::Twice(_) | Self::Features(_) => code::USAGE,
        }
    }
}

pub(crate) fn run(args: &FeaturesArgs) -> Result<(), Error> {
    check_extension(&args.output)?;
    check_free(&args.output, args.force)?;
    let subject = args.model.find()?;
    with_task!(subject.task, T => write::<T>(args, &subject))
}

fn write<T: NamedTask>(args: &FeaturesArgs, subject: &Subject) -> Result<(), Error> {
    let output = &args.output;
    let paths = images(&args.images)?;
    let read = args.model.inputs(subject);
    check_no_input(output, read.iter().chain(&paths).map(PathBuf::as_path))?;
    let (described, remarks) = args.model.describe::<T>(subject)?;
    let device = args.model.device(subject.given.as_ref())?.device;
    // Features have no classes.
    let trained = args.model.load::<T>(subject, &described, Vec::new(), &device)?;
    let Some((model, seer)) = T::into_features(trained) else {
        return Err(Error::usage(format!(
            "features are a classifier's, and {} is a {}",
            subject.source.name,
            T::Heads::WHAT
        )));
    };
    let layers = blocks(&model, &args.layers)?;
    let name = |layer: &usize| match layers.len() {
        1 => "features".to_owned(),
        _ => format!("layer_{layer}"),
    };
    let mut npz = Npz::new(output, layers.iter().map(name))?;
    let mut walk = Walk::new(paths.len(), true);
    let mut kept = Vec::new();
    for paths in paths.chunks(args.model.batch.unwrap_or(T::PREDICTED_AT_A_TIME)) {
        let pictures = seer.read(paths);
        if let Some(images) = seer.upload(&pictures)? {
            let features = features(&model, images, &layers, args.maps)?;
            for (place, (shape, values)) in features.into_iter().enumerate() {
                npz.append(place, &shape[1..], &values)?;
            }
        }
        for (path, picture) in paths.iter().zip(pictures) {
            match picture {
                Ok(_) => kept.push(path),
                Err(why) => walk.leave_out(&why.to_string()),
            }
        }
        walk.advance(paths.len());
    }
    walk.hide();
    if kept.is_empty() {
        return walk.end();
    }
    let labels = Labels::of(&kept, &args.images);
    let arrays = npz.write(&kept, &layers, labels.as_ref())?;
    if args.json {
        let arrays = arrays.iter().map(|(name, shape)| (name.clone(), json!(shape)));
        let arrays: serde_json::Map<String, serde_json::Value> = arrays.collect();
        let mut report = json!({
            "output": output.display().to_string(),
            "checkpoint": subject.source.name,
            "images": kept.len(),
            "layers": layers,
            "arrays": arrays,
        });
        if let (Some(report), Ok(Value::Object(remarks))) =
            (report.as_object_mut(), serde_json::to_value(&remarks))
        {
            report.extend(remarks);
        }
        print_json(&report)?;
    } else {
        let arrays: Vec<String> =
            arrays.iter().map(|(name, shape)| format!("{name} {shape:?}")).collect();
        let (output, remarks) = (output.display(), remarks.suffix());
        print(&format!("wrote {output}: {}{remarks}", arrays.join(", ")))?;
    }
    walk.end()
}

fn check_extension(path: &Path) -> Result<(), Error> {
    if path.extension().is_some_and(|extension| extension == "npz") {
        return Ok(());
    }
    Err(OutputError::Extension { path: path.to_owned(), expected: ".npz" }.into())
}

/// The numbers of the blocks that `asked` names, from the front or from the back.
fn blocks(model: &Vim, asked: &[i64]) -> Result<Vec<usize>, LayersError> {
    let depth = model.layers.len();
    let mut blocks = Vec::new();
    for &layer in asked {
        let from_front = if layer < 0 { layer.checked_add(depth as i64) } else { Some(layer) };
        let block = from_front.and_then(|block| usize::try_from(block).ok());
        let block = block.filter(|&block| block < depth);
        let block = block.ok_or(LayersError::Range { layer, depth })?;
        if blocks.contains(&block) {
            return Err(LayersError::Twice(block));
        }
        blocks.push(block);
    }
    model.check_blocks(&blocks).map_err(LayersError::Features)?;
    Ok(blocks)
}

/// The shape of an array, and its values.
type Array = (Vec<usize>, Vec<f32>);

/// The features of each of `layers`, images first.
fn features(
    model: &Vim,
    images: Tensor<4>,
    layers: &[usize],
    maps: bool,
) -> Result<Vec<Array>, LayersError> {
    fn numbers<const D: usize>(features: Vec<Tensor<D>>) -> Vec<Array> {
        let each = |feature: Tensor<D>| {
            let shape = feature.dims().to_vec();
            (shape, feature.into_data().iter().collect())
        };
        features.into_iter().map(each).collect()
    }
    let found = if maps {
        model.feature_maps(images, layers).map(numbers)
    } else {
        model.pooled_features(images, layers).map(numbers)
    };
    found.map_err(LayersError::Features)
}
