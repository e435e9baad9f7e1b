//! The maps of an image by a model.

use burn::tensor::{Device, Tensor};
use vim_data::{PictureError, Pixels};
use vim_kernels::oracle::OracleScan;
use vim_kernels::sum_in_order;
use vim_model::{
    FeatureError, LastTap, Pool, RecordedScan, Recorder, Recording, Tapped, Taps, Vim, VimConfig,
};

use super::{Explain, Map};
use crate::error::Error;
use crate::task::batches::sides;
use crate::task::explained::{Aim, Answer, Explained, View};
use crate::task::frame::framed;

/// Rows of an attention that are computed at once.
const ROWS: usize = 64;

/// What a model makes of an image. Tokens are in the order of the image, class tokens among them.
pub(super) struct Looked {
    pub(super) view: View,
    /// What is explained, x0, y0, x1 and y1 in pixels of the view; `None`: all of it.
    pub(super) place: Option<[f64; 4]>,
    /// Number and name.
    pub(super) class: (usize, String),
    /// Its logit.
    pub(super) score: f64,
    /// The share of each token in the output that is explained.
    pub(super) read: Vec<f64>,
    /// Of each layer asked for its number and of each direction the attention to each token.
    pub(super) attention: Vec<(usize, Vec<Vec<f64>>)>,
    pub(super) rollout: Option<Vec<f64>>,
    /// Of patches alone.
    pub(super) cam: Option<Vec<f64>>,
    pub(super) grid: Grid,
}

/// Where patches and class tokens are.
#[derive(Clone)]
pub(super) struct Grid {
    /// Rows and columns.
    pub(super) size: [usize; 2],
    /// Pixels of a patch's side, and between corners.
    pub(super) patch: usize,
    pub(super) stride: usize,
    /// Positions of the class tokens.
    pub(super) class: Vec<usize>,
}

impl Grid {
    pub(super) fn of(config: &VimConfig) -> Self {
        Self {
            size: config.grid(),
            patch: config.patch_size,
            stride: config.stride(),
            class: config.class_token_positions(),
        }
    }

    /// Tokens, class tokens among them.
    fn tokens(&self) -> usize {
        self.size[0] * self.size[1] + self.class.len()
    }

    /// Those of `tokens` that are patches.
    pub(super) fn patches<T: Copy>(&self, tokens: &[T]) -> Vec<T> {
        let is_patch = |(at, _): &(usize, &T)| !self.class.contains(at);
        tokens.iter().enumerate().filter(is_patch).map(|(_, &value)| value).collect()
    }

    /// Pixels from the first one that patches cover, down or across.
    pub(super) fn covered(&self, axis: usize) -> usize {
        (self.size[axis] - 1) * self.stride + self.patch
    }

    /// The row or column whose patch has its middle next to `at`, in pixels.
    pub(super) fn nearest(&self, at: f64, axis: usize) -> usize {
        let place = (at - self.patch as f64 / 2.0) / self.stride as f64;
        (place.round().max(0.0) as usize).min(self.size[axis] - 1)
    }

    /// Equal shares for the patches that `place` touches, else for the tokens that a head reads.
    fn read(&self, place: Option<[f64; 4]>, config: &VimConfig) -> Vec<f64> {
        let tokens = self.tokens();
        let mut read = vec![0.0; tokens];
        match (place, &self.class[..], config.pool()) {
            (Some([x0, y0, x1, y1]), ..) => {
                let patches = self.patches(&(0..tokens).collect::<Vec<_>>());
                for row in self.nearest(y0, 0)..=self.nearest(y1, 0) {
                    for column in self.nearest(x0, 1)..=self.nearest(x1, 1) {
                        read[patches[row * self.size[1] + column]] = 1.0;
                    }
                }
            }
            (None, class @ [_, ..], _) => class.iter().for_each(|&at| read[at] = 1.0),
            (None, [], Pool::Last) if config.flip_ratio >= 1.0 => read[0] = 1.0,
            (None, [], Pool::Last) => read[tokens - 1] = 1.0,
            (None, [], Pool::Mean | Pool::Max) => read.fill(1.0),
        }
        let sum: f64 = read.iter().sum();
        read.into_iter().map(|share| share / sum).collect()
    }
}

/// The maps of `image` that are `asked` for, of `layers`.
pub(super) fn look<E: Explained>(
    asked: &Explain,
    model: &E,
    recorder: &Recorder,
    image: &Pixels,
    class: Option<usize>,
    layers: &[usize],
) -> Result<Looked, Error> {
    let config = model.backbone().config();
    let view = model.view(image, asked.aim)?;
    let input = input(model, &view)?;
    let Answer { scores, place } = model.answer(input, &view, asked.aim)?;
    let Recording { scans, stream } = recorder.take();
    let numbers = numbers(scores.clone());
    let likeliest = || (0..numbers.len()).max_by(|&a, &b| numbers[a].total_cmp(&numbers[b]));
    let class = class.or_else(likeliest).ok_or_else(|| Error::internal("no classes"))?;
    let grid = Grid::of(config);
    let read = grid.read(place, config);
    let cam = match (asked.draws(Map::Cam), stream) {
        (true, Some(stream)) => {
            let flipped = scans.first().is_some_and(|scan| scan.flipped);
            Some(cam(scores.narrow(0, class, 1).sum(), stream, &grid, flipped)?)
        }
        _ => None,
    };
    let rollout = asked.draws(Map::Rollout).then(|| {
        let step = if config.layer_pairs { 2 } else { 1 };
        rollout(&scans, step, &read)
    });
    let attention = |&layer: &usize| {
        let own = scans.iter().filter(|scan| scan.block == layer);
        (layer, own.map(|scan| attention(&[scan], &read, false)).collect())
    };
    let attention = match asked.draws(Map::Attention) {
        true => layers.iter().map(attention).collect(),
        false => Vec::new(),
    };
    let name = model.classes().get(class).cloned().unwrap_or_else(|| format!("class {class}"));
    let (score, class) = (numbers[class], (class, name));
    Ok(Looked { view, place, class, score, read, attention, rollout, cam, grid })
}

/// `view` as the model takes it, `[1, 3, H, W]`.
fn input<E: Explained>(model: &E, view: &View) -> Result<Tensor<4>, Error> {
    let backbone = model.backbone();
    let device: Device = backbone.norm_f.weight.val().device();
    let size = sides(backbone.config().image_size);
    framed(std::slice::from_ref(&view.pixels), size, model.statistics(), &device)
}

fn numbers<const R: usize>(tensor: Tensor<R>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// Rows of the attention of `scans`, added up, each times its share in `read`; where `normalized`,
/// a row that is not 0 is divided by its sum first. Both are in the order of the image.
fn attention(scans: &[&RecordedScan], read: &[f64], normalized: bool) -> Vec<f64> {
    let len = read.len();
    let oracles: Vec<(OracleScan, bool)> =
        scans.iter().map(|scan| (scan.oracle(0), scan.flipped)).collect();
    let asked: Vec<usize> = (0..len).filter(|&token| read[token] != 0.0).collect();
    let mut seen = vec![0.0; len];
    for tokens in asked.chunks(ROWS) {
        let mut rows = vec![0.0; tokens.len() * len];
        for (oracle, flipped) in &oracles {
            let turned = |token: usize| if *flipped { len - 1 - token } else { token };
            let own: Vec<usize> = tokens.iter().map(|&token| turned(token)).collect();
            let found = oracle.attention(0, &own);
            for (to, from) in rows.chunks_exact_mut(len).zip(found.chunks_exact(len)) {
                to.iter_mut().enumerate().for_each(|(at, to)| *to += from[turned(at)]);
            }
        }
        for (row, &token) in rows.chunks_exact(len).zip(tokens) {
            let sum: f64 = row.iter().sum();
            let share = if normalized && sum > 0.0 { read[token] / sum } else { read[token] };
            seen.iter_mut().zip(row).for_each(|(seen, alpha)| *seen += share * alpha);
        }
    }
    seen
}

/// The attention of all blocks, `step` of which stand side by side, from the last to the first:
/// half of what a token has stays with it, as the residual stream has it.
///
/// # Source
///
/// Abnar and Zuidema 2020, arXiv 2005.00928, eq. 1 and section 3.
fn rollout(scans: &[RecordedScan], step: usize, read: &[f64]) -> Vec<f64> {
    let mut read = read.to_vec();
    for beside in scans.chunk_by(|a, b| a.block / step == b.block / step).rev() {
        let beside: Vec<&RecordedScan> = beside.iter().collect();
        let seen = attention(&beside, &read, true);
        read.iter_mut().zip(seen).for_each(|(read, seen)| *read = 0.5 * (*read + seen));
    }
    read
}

/// Grad-CAM of `score` on `stream`, the tokens before the last block: of patches.
///
/// # Source
///
/// Selvaraju et al. 2017, arXiv 1610.02391, eq. 1 and 2.
fn cam(score: Tensor<1>, stream: Tensor<3>, grid: &Grid, flipped: bool) -> Result<Vec<f64>, Error> {
    let [_, len, width] = stream.dims();
    let gradients = score.backward();
    let gradient = stream.grad(&gradients);
    let gradient = gradient.ok_or_else(|| Error::internal("a class that depends on no token"))?;
    let patches = |tensor: Tensor<3>| -> Vec<Vec<f64>> {
        let numbers = numbers(tensor);
        let mut tokens: Vec<&[f64]> = numbers.chunks_exact(width).take(len).collect();
        if flipped {
            tokens.reverse();
        }
        grid.patches(&tokens).into_iter().map(<[f64]>::to_vec).collect()
    };
    let (gradients, tokens) = (patches(gradient), patches(stream));
    let weight = |channel: usize| {
        gradients.iter().map(|token| token[channel]).sum::<f64>() / gradients.len() as f64
    };
    let weights: Vec<f64> = (0..width).map(weight).collect();
    let sum = |token: &Vec<f64>| token.iter().zip(&weights).map(|(x, by)| x * by).sum::<f64>();
    Ok(tokens.iter().map(|token| sum(token).max(0.0)).collect())
}

/// The effective receptive field: the mean over images of the size of the gradient, summed over
/// the colours, of the norm of the middle patch's token after the last block, pixel by pixel.
///
/// # Source
///
/// Luo et al. 2016, arXiv 1701.04128; over images as Ding et al. 2022, arXiv 2203.06717, take it.
pub(super) fn receptive_field<E: Explained>(
    model: &E,
    backbone: &Vim,
    images: impl Iterator<Item = Result<Pixels, PictureError>>,
) -> Result<Vec<f64>, Error> {
    let config = backbone.config();
    let [rows, columns] = config.grid();
    let middle = rows / 2 * columns + columns / 2;
    let what = if config.layer_pairs { Tapped::Hidden } else { Tapped::Residual };
    let taps = Taps { blocks: vec![model.last_block()], what, last: LastTap::Add };
    let (mut mean, mut count) = (Vec::new(), 0.0);
    for image in images {
        let view = model.view(&image?, Aim::Image)?;
        let pixels = input(model, &view)?.detach().require_grad();
        let features = backbone.tapped(pixels.clone(), &taps, None).map_err(unmade)?;
        let token = features.into_iter().next().map(|feature| feature.narrow(1, middle, 1));
        let token = token.ok_or_else(|| Error::internal("a model without a last block"))?;
        let gradients = sum_in_order(token.powi_scalar(2)).sqrt().backward();
        let gradient = pixels.grad(&gradients);
        let gradient = gradient.ok_or_else(|| Error::internal("a token of no pixel"))?;
        let own = numbers(gradient.abs().sum_dim(1));
        count += 1.0;
        mean.resize(own.len(), 0.0);
        mean.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
    }
    Ok(mean.into_iter().map(|sum| sum / count).collect())
}

fn unmade(error: FeatureError) -> Error {
    match error {
        FeatureError::Kernel(error) => error.into(),
        FeatureError::Block { .. } => Error::internal(error.to_string()),
    }
}
