//! `vim-train explain`: pictures of what trained models look at.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser as _;
use strum::VariantArray as _;
use vim_engine::Error;
use vim_engine::task::explained::Aim;
use vim_engine::work::explain::{self, Explain, Map};

use super::images::SettingsArgs;

const EXAMPLES: &str = "\
Examples:
  vim-train explain cat.jpg --checkpoint zoh-s0 -o looked
  vim-train explain cat.jpg --checkpoint zoh-s0 --checkpoint foh-s0 -o looked      two methods side by side
  vim-train explain cat.jpg --checkpoint zoh-s0 --class dog --draw cam -o looked
  vim-train explain cat.jpg --checkpoint zoh-s0 --pixel 120,80 --layers 0,-1 -o looked
  vim-train explain cat.jpg --checkpoint zoh-s0 --erf photos/ -o looked            and the receptive field
  vim-train explain street.png --checkpoint upernet-s0 --pixel 300,200 -o looked   segmentation: a pixel's class
  vim-train explain street.png --checkpoint detector-s0 --box 40,60,200,180 -o looked

Files of the folder, for each IMAGE and each MODEL, after its run's folder or its file:
  explain.html                              all models side by side, for each image and kind of map
  IMAGE-MODEL-layer03-forward.png           the hidden attention of a layer and direction; -backward.png
  IMAGE-MODEL-rollout.png, -cam.png         that of all layers; Grad-CAM of the class
  IMAGE-MODEL.npz                           the numbers: attention [layers, directions, L], rollout [L], cam [H, W],
                                            and layers, read [L], class_tokens, grid, class, logit
  erf-MODEL.png, erf-MODEL.npz              with --erf: erf [H, W], pixels of the model's image
docs/explain.md has the formulas, what such maps show and what not.";

/// Draw what trained models look at: hidden attention, roll-out, Grad-CAM, receptive field.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// Images (JPEG, PNG, BMP, GIF or WebP), and folders of images.
    #[arg(required = true)]
    images: Vec<PathBuf>,
    /// The weights: a file (.pth, .pt, .safetensors), a run's folder or its name in `run.root`, a
    /// checkpoint's folder; with --config also `best` and `last` of its run. May be repeated.
    #[arg(long, value_name = "RUN|PATH", required = true)]
    checkpoint: Vec<PathBuf>,
    #[command(flatten)]
    settings: SettingsArgs,
    /// Write to this folder, which is made.
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// What to draw. Left out: all of them.
    #[arg(long, value_name = "MAP,MAP", value_delimiter = ',', value_parser = maps())]
    draw: Vec<Map>,
    /// Blocks whose attention is drawn, counted from 0, or from -1 backwards. Left out: all, of
    /// which the page has the last one.
    #[arg(long, value_name = "N,N", value_delimiter = ',', allow_hyphen_values = true)]
    layers: Vec<i64>,
    /// The class that Grad-CAM explains, by name or number. Left out: the likeliest.
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// The pixel of the file whose class (segmentation) or whose patch's rows (classification) are
    /// explained. Left out: the middle one, or what the head reads.
    #[arg(long, value_name = "X,Y", value_parser = numbers::<usize, 2>, conflicts_with = "edges")]
    pixel: Option<[usize; 2]>,
    /// Detection only: the box whose class is explained, in pixels of the file. Left out: the
    /// surest object's.
    #[arg(long = "box", value_name = "X0,Y0,X1,Y1", value_parser = edges)]
    edges: Option<[f64; 4]>,
    /// An image, or a folder of images, of those that the effective receptive field is the mean
    /// of; may be repeated.
    #[arg(long, value_name = "IMAGE|FOLDER")]
    erf: Vec<PathBuf>,
    /// Write over files that are there.
    #[arg(long)]
    force: bool,
}

fn maps() -> impl clap::builder::TypedValueParser<Value = Map> {
    let names = Map::VARIANTS.iter().map(<&'static str>::from);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Map>())
}

/// As many numbers as there are, between commas.
fn numbers<T: FromStr, const N: usize>(text: &str) -> Result<[T; N], String> {
    let numbers: Option<Vec<T>> = text.split(',').map(|part| part.trim().parse().ok()).collect();
    let numbers = numbers.and_then(|numbers| numbers.try_into().ok());
    numbers.ok_or_else(|| format!("expected {N} numbers with commas between them"))
}

/// A box with an inside.
fn edges(text: &str) -> Result<[f64; 4], String> {
    let edges @ [x0, y0, x1, y1] = numbers::<f64, 4>(text)?;
    let is_good = edges.iter().all(|at| at.is_finite() && *at >= 0.0) && x0 < x1 && y0 < y1;
    if is_good { Ok(edges) } else { Err("expected X0 < X1 and Y0 < Y1, from 0".to_owned()) }
}

pub(crate) fn run(args: &ExplainArgs) -> Result<(), Error> {
    let model = |path: &PathBuf| args.settings.options(path.clone(), None);
    explain::run(&Explain {
        images: args.images.clone(),
        models: args.checkpoint.iter().map(model).collect(),
        output: args.output.clone(),
        aim: match (args.pixel, args.edges) {
            (Some(pixel), _) => Aim::Pixel(pixel),
            (None, Some(edges)) => Aim::Box(edges),
            (None, None) => Aim::Image,
        },
        class: args.class.clone(),
        draw: args.draw.clone(),
        layers: args.layers.clone(),
        erf: args.erf.clone(),
        force: args.force,
    })
}
