//! A detector: features, proposals, the cascade, masks, losses, gradients, detections.

mod bands;
mod evaluation;
mod training;

use std::path::Path;

use burn::tensor::{Device, Tensor};
use vim_data::{Batch, Statistics};
use vim_dense::detection::mask_target::InstanceMask;
use vim_dense::detection::{Detector, DetectorConfig, Truths, detectron_key, groups};
use vim_engine::Error;
use vim_engine::task::batches;
use vim_model::{LoadOptions, NamedArrays};

use super::arrays::{Arrays, Comparison, Floats, damaged, unfit, weights};
use super::settings::settings;
use super::variant::{Beside, Description, Optimizer};
use super::{EvalGoldenArgs, expect_shape, numbers};
use bands::Bands;
pub(super) use bands::{not_compared, summary};

/// Of a box, in pixels.
const PIXELS: f64 = 1e-3;

/// Compares every array with that of the detector that `about` describes; in f32. In another
/// precision other anchors would be proposed, and everything behind them be of other boxes: there
/// the cascade is of the reference's boxes, and what follows from a choice of ours is passed over.
pub(super) fn compare(
    args: &EvalGoldenArgs,
    variant: &Path,
    about: &Description,
    device: &Device,
) -> Result<Vec<Comparison>, Error> {
    let wrong = |what: String| Error::data(format!("variant {}: {what}", variant.display()));
    let (heads, backbone) = settings::<DetectorConfig>(&about.variant).map_err(wrong)?;
    let beside = about.beside().map_err(wrong)?;
    if beside.sizes.is_empty() || beside.sizes.len() != about.polygons.len() {
        return Err(wrong("`sizes` and `polygons` have to be of one image or more".to_owned()));
    }
    let device = if args.grads { device.clone().autodiff() } else { device.clone() };
    let model = heads.init(&backbone, beside.classes, &device, 0)?;
    let (model, _) = model
        .load(&weights(args)?, LoadOptions::default())
        .map_err(|mismatch| unfit(args, &mismatch))?;
    let model = model.with_precision(args.dtype.unwrap_or_default())?;
    let mut golden = Golden {
        arrays: Arrays::open(args.arrays())?,
        path: args.arrays(),
        bands: Bands::of(args),
        about,
        beside,
        found: Vec::new(),
    };
    let truths = golden.truths()?;
    let size = backbone.image_size;
    let images = golden.batch([size.height, size.width], &device)?;
    if golden.bands.is_exact() {
        golden.evaluated(&model, images.clone())?;
    } else {
        golden.pass_over(&bands::FOLLOWING);
    }
    let images = if args.grads { images.require_grad() } else { images };
    golden.trained(args, &model, &images, &truths)?;
    golden.optimized(&model)?;
    let extra = golden.arrays.unread();
    if !extra.is_empty() {
        return Err(golden.wrong(&format!("not expected of this model: {}", extra.join(", "))));
    }
    Ok(golden.found)
}

/// The reference arrays, and the comparisons so far.
struct Golden<'a> {
    arrays: Arrays,
    path: &'a Path,
    bands: Bands,
    about: &'a Description,
    beside: Beside,
    found: Vec<Comparison>,
}

/// What stays of the reference's numbers, and ours.
fn flat<const N: usize>(rows: &[[f32; N]]) -> Vec<f32> {
    rows.as_flattened().to_vec()
}

impl Golden<'_> {
    fn wrong(&self, what: &str) -> Error {
        damaged(self.path, what)
    }

    /// Leaves out the arrays that are not yet read and begin with one of `names`.
    fn pass_over(&mut self, names: &[&str]) {
        for name in self.arrays.unread() {
            if names.iter().any(|start| name.starts_with(start)) {
                self.arrays.pass_over(&name);
            }
        }
    }

    /// Compares numbers with those of the array `name`.
    fn values(&mut self, name: &str, got: &[f32], tolerance: f64) -> Result<(), Error> {
        let expected = self.arrays.halves(name)?.values;
        expect_shape(self.path, name, &[expected.len()], &[got.len()])?;
        self.found.push(Comparison::new(name, got, &expected, tolerance));
        Ok(())
    }

    /// Compares with the array `name`, by the band of its kind.
    fn tensor<const D: usize>(&mut self, name: &str, got: Tensor<D>) -> Result<(), Error> {
        let expected = self.arrays.floats(name)?;
        expect_shape(self.path, name, &expected.shape, &got.dims())?;
        let band = self.bands.band(name);
        self.found.push(Comparison::new(name, &numbers(got), &expected.values, band));
        Ok(())
    }

    /// Compares boxes: the tolerance is in pixels.
    fn boxes(&mut self, name: &str, got: &[[f32; 4]]) -> Result<(), Error> {
        let expected = self.arrays.floats(name)?;
        expect_shape(self.path, name, &expected.shape, &[got.len(), 4])?;
        let largest = expected.values.iter().fold(1.0_f32, |max, x| max.max(x.abs()));
        let tolerance = PIXELS / f64::from(largest);
        self.found.push(Comparison::new(name, &flat(got), &expected.values, tolerance));
        Ok(())
    }

    fn whole(&mut self, name: &str, got: impl Iterator<Item = usize>) -> Result<(), Error> {
        let expected: Vec<f32> = self.arrays.integers(name)?.iter().map(|&x| x as f32).collect();
        let got: Vec<f32> = got.map(|x| x as f32).collect();
        expect_shape(self.path, name, &[expected.len()], &[got.len()])?;
        self.found.push(Comparison::new(name, &got, &expected, 0.0));
        Ok(())
    }

    fn truths(&mut self) -> Result<Vec<Truths>, Error> {
        let mut truths = Vec::new();
        for (image, polygons) in self.about.polygons.iter().enumerate() {
            let Floats { values, .. } = self.arrays.floats(&format!("gt_boxes{image}"))?;
            let classes = self.arrays.integers(&format!("gt_classes{image}"))?;
            truths.push(Truths {
                boxes: values.as_chunks().0.to_vec(),
                classes: classes.into_iter().map(|class| class as usize).collect(),
                masks: polygons.iter().cloned().map(InstanceMask::Polygons).collect(),
            });
        }
        Ok(truths)
    }

    /// The images, normalized and padded, and compared.
    fn batch(&mut self, frame: [usize; 2], device: &Device) -> Result<Tensor<4>, Error> {
        let sizes = self.beside.sizes.clone();
        let bytes = frame[0] * frame[1] * 3;
        let mut pixels = vec![0; sizes.len() * bytes];
        let mut erased = Vec::new();
        for (image, (&size, to)) in sizes.iter().zip(pixels.chunks_mut(bytes)).enumerate() {
            if size[0] > frame[0] || size[1] > frame[1] {
                return Err(self.wrong(&format!("image{image} is {size:?}, above {frame:?}")));
            }
            let (values, shape) = self.arrays.u8s(&format!("image{image}"))?;
            let [height, width] = size;
            expect_shape(self.path, &format!("image{image}"), &shape, &[3, height, width])?;
            for (at, &value) in values.iter().enumerate() {
                let (channel, row, column) =
                    (at / (height * width), at / width % height, at % width);
                to[(row * frame[1] + column) * 3 + channel] = value;
            }
            let padding = vim_data::dense_ops::padding(size, frame);
            erased.extend(padding.into_iter().map(|one| (image, one)));
        }
        let mut batch = Batch::plain(pixels, vec![0; sizes.len()], frame);
        batch.erased = erased;
        let images = batches::images(&batch, Statistics::IMAGENET, device)?;
        self.tensor("batch", images.clone())?;
        Ok(images)
    }

    /// Learning rates and weight decay of the parameters.
    fn optimized(&mut self, model: &Detector) -> Result<(), Error> {
        let Some(optimizer) = &self.about.optimizer else { return Ok(()) };
        let Optimizer { base_lr, weight_decay, lr_decay_rate, num_layers, parameters } = optimizer;
        let depth = model.backbone_config().depth;
        if num_layers.is_some_and(|layers| layers != depth) {
            return Err(self.wrong("the optimizer's `num_layers` is not the model's depth"));
        }
        let (mut ours, mut theirs) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        let own = NamedArrays::of(model);
        for path in own.iter().map(|(path, _)| path).filter(|path| model.uses(path)) {
            let Some(&[rate, decay]) = parameters.get(&detectron_key(path)) else {
                return Err(self.wrong(&format!("the optimizer has no {}", detectron_key(path))));
            };
            let above = groups::layers_above(path, depth) as i32;
            ours[0].push((base_lr * lr_decay_rate.powi(above)) as f32);
            ours[1].push(if groups::decays(path) { *weight_decay as f32 } else { 0.0 });
            theirs[0].push(rate as f32);
            theirs[1].push(decay as f32);
        }
        let names = ["learning rates", "weight decay"];
        for (name, (ours, theirs)) in names.into_iter().zip(ours.iter().zip(&theirs)) {
            self.found.push(Comparison::new(name, ours, theirs, self.bands.band(name)));
        }
        Ok(())
    }
}
