//! `vim-train features`: what a trained model makes of images, as arrays for NumPy.

use std::path::PathBuf;

use clap::Args;
use vim_engine::Error;
use vim_engine::work::features::{self, Features};

use super::images::ModelArgs;

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

pub(crate) fn run(args: &FeaturesArgs) -> Result<(), Error> {
    features::run(&Features {
        images: args.images.clone(),
        model: args.model.options(),
        output: args.output.clone(),
        layers: args.layers.clone(),
        maps: args.maps,
        force: args.force,
        json: args.json,
    })
}
