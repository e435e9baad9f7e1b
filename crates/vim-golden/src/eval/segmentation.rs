//! A segmentation model: features, logits, losses, gradients, running statistics, sliding windows.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};
use vim_dense::{
    Features, SegmentationLoss, Segmenter, SegmenterConfig, ShardSum, mmseg_key, predicted, resize,
    training_logits,
};
use vim_engine::Error;
use vim_model::LoadOptions;

use super::arrays::{Arrays, Comparison, Floats, damaged, unfit, weights};
use super::bands::Bands;
use super::gradients::by_path;
use super::settings::settings;
use super::variant::Description;
use super::{EvalGoldenArgs, expect_shape, numbers};

/// Biases that a normalization over the batch takes away again: their gradients are 0 but for
/// rounding, and are judged on the scale of their weights'.
const TAKEN_AWAY: [&str; 3] =
    ["backbone.fpn1.0.bias", "backbone.fpn1.3.bias", "backbone.fpn2.0.bias"];

/// Compares every array with that of the model that `about` describes; those that are not of it are
/// errors.
pub(super) fn compare(
    args: &EvalGoldenArgs,
    variant: &Path,
    about: &Description,
    device: &Device,
) -> Result<Vec<Comparison>, Error> {
    let wrong = |what: String| Error::data(format!("variant {}: {what}", variant.display()));
    let (heads, backbone) = settings::<SegmenterConfig>(&about.variant).map_err(wrong)?;
    let beside = about.beside().map_err(wrong)?;
    let levels = heads.out_indices.len();
    let side = backbone.image_size;
    if let Some(slide) = &beside.slide
        && (slide.stride == 0
            || slide.crop.is_some_and(|crop| [crop; 2] != [side.height, side.width]))
    {
        return Err(wrong(
            "`slide`: a stride of 1 or more, and windows of the model's size".into(),
        ));
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
        found: Vec::new(),
    };
    let x = golden.arrays.floats("x")?;
    let &[batch, 3, height, width] = &x.shape[..] else {
        return Err(golden.wrong(&format!("x is {:?}, expected [B, 3, H, W]", x.shape)));
    };
    let size = backbone.image_size;
    expect_shape(golden.path, "x", &x.shape, &[batch, 3, size.height, size.width])?;
    let pixels = TensorData::new(x.values, [batch, 3, height, width]);
    let images = Tensor::<4>::from_data(pixels, &device);
    let (labels, shape) = golden.arrays.bytes("gt")?;
    expect_shape(golden.path, "gt", &shape, &[batch, height, width])?;
    let labels = Tensor::<3, Int>::from_data(
        TensorData::new(labels, [batch, height, width]),
        &device.clone().inner(),
    );

    golden.evaluated(&model, images.clone(), levels)?;
    if let Some(slide) = &beside.slide {
        golden.slid(&model, slide.stride, about.slide_original_shape)?;
    }
    let images = if args.grads { images.require_grad() } else { images };
    let loss = golden.trained(&model, images.clone(), &labels)?;
    if args.grads {
        let grads = loss.backward();
        golden.gradients(&model, &images, &grads, &about.without_gradient)?;
    } else {
        golden.arrays.pass_over("dx");
        for name in golden.arrays.unread() {
            if name.starts_with("g.") {
                golden.arrays.pass_over(&name);
            }
        }
    }
    let extra = golden.arrays.unread();
    if !extra.is_empty() {
        return Err(golden.wrong(&format!("not expected of this model: {}", extra.join(", "))));
    }
    Ok(golden.found)
}

/// Arrays by the original's names.
type Named = BTreeMap<String, Floats>;

/// The reference arrays, and the comparisons so far.
struct Golden<'a> {
    arrays: Arrays,
    path: &'a Path,
    bands: Bands,
    found: Vec<Comparison>,
}

impl Golden<'_> {
    fn wrong(&self, what: &str) -> Error {
        damaged(self.path, what)
    }

    /// Compares with `expected`, the array `name`.
    fn push(&mut self, name: &str, got: &[f32], expected: &[f32]) {
        self.found.push(Comparison::new(name, got, expected, self.bands.band(name)));
    }

    /// Compares with the array `name`, which may have fewer images than `got`.
    fn against<const D: usize>(&mut self, name: &str, got: Tensor<D>) -> Result<(), Error> {
        let expected = self.arrays.halves(name)?;
        let got = match expected.shape.first() {
            Some(&count) if D > 1 && count > 0 && count < got.dims()[0] => got.narrow(0, 0, count),
            Some(_) | None => got,
        };
        expect_shape(self.path, name, &expected.shape, &got.dims())?;
        self.push(name, &numbers(got), &expected.values);
        Ok(())
    }

    /// Compares one number with the array `name`, which may have any number of dimensions.
    fn number(&mut self, name: &str, got: f32) -> Result<(), Error> {
        let expected = self.arrays.floats(name)?;
        expect_shape(self.path, name, &[expected.values.len()], &[1])?;
        self.push(name, &[got], &expected.values);
        Ok(())
    }

    /// Compares classes where the margin is larger than `least`, which makes them certain: other
    /// ones are of no tolerance.
    fn classes(
        &mut self,
        name: &str,
        got: Tensor<3, Int>,
        (margin, least): (&[f32], f32),
    ) -> Result<(), Error> {
        let (expected, shape) = self.arrays.bytes(name)?;
        expect_shape(self.path, name, &shape, &got.dims())?;
        expect_shape(self.path, "its margin", &[margin.len()], &[expected.len()])?;
        let got: Vec<i64> = got.into_data().iter().collect();
        let certain = |values: Vec<i64>| -> Vec<f32> {
            let kept = values.into_iter().zip(margin).filter(|(_, margin)| **margin > least);
            kept.map(|(class, _)| class as f32).collect()
        };
        let (got, expected) = (certain(got), certain(expected));
        self.push(name, &got, &expected);
        Ok(())
    }

    /// From which margin on classes by `logits` are certain.
    fn least_margin(&self, logits: &Tensor<4>) -> f32 {
        let largest = numbers(logits.clone().abs().max());
        self.bands.margin(largest.first().copied().unwrap_or_default())
    }

    /// Everything in evaluation; `count` maps go into the pyramid, one for all its levels or one
    /// for each.
    fn evaluated(
        &mut self,
        model: &Segmenter,
        images: Tensor<4>,
        count: usize,
    ) -> Result<(), Error> {
        let [_, _, height, width] = images.dims();
        let Features { maps, levels, pooled, logits, aux_logits } = model.features(images)?;
        let least = self.least_margin(&logits);
        for (what, all, count) in [("map", maps, count), ("feature", levels, 4)] {
            for (i, map) in all.into_iter().take(count).enumerate() {
                self.against(&format!("eval.{what}{i}"), channels_first(map))?;
            }
        }
        self.against("eval.psp", channels_first(pooled))?;
        self.against("eval.decode_logits", channels_first(logits.clone()))?;
        self.against("eval.aux_logits", channels_first(aux_logits))?;
        let large = channels_first(resize(logits.clone(), [height, width])?);
        let first = self.arrays.floats("eval.logits_first")?;
        let &[count, classes, ..] = &first.shape[..] else {
            return Err(self.wrong(&format!("eval.logits_first is {:?}", first.shape)));
        };
        if count > large.dims()[0] || classes > large.dims()[1] {
            return Err(self.wrong(&format!("eval.logits_first is {:?}", first.shape)));
        }
        let got = large.clone().narrow(0, 0, count).narrow(1, 0, classes);
        expect_shape(self.path, "eval.logits_first", &first.shape, &got.dims())?;
        self.push("eval.logits_first", &numbers(got), &first.values);
        self.against("eval.logits_max", large.max_dim(1).squeeze_dim::<3>(1))?;
        let Floats { values: margin, .. } = self.arrays.halves("eval.margin")?;
        let labels = predicted(logits, [height, width])?.labels;
        self.classes("eval.argmax", labels, (&margin, least))
    }

    /// Sliding windows over another image.
    fn slid(
        &mut self,
        model: &Segmenter,
        stride: usize,
        original: Option<[usize; 2]>,
    ) -> Result<(), Error> {
        let x = self.arrays.floats("slide.x")?;
        let &[batch, 3, height, width] = &x.shape[..] else {
            return Err(self.wrong(&format!("slide.x is {:?}, expected [B, 3, H, W]", x.shape)));
        };
        let device = model.decode_head.conv_seg.bias.val().device();
        let pixels = TensorData::new(x.values, [batch, 3, height, width]);
        let logits = model.slide(Tensor::from_data(pixels, &device), [stride, stride])?;
        let (margin, least) = (margin(logits.clone()), self.least_margin(&logits));
        let labels = predicted(logits.clone(), [height, width])?.labels;
        self.classes("slide.argmax", labels, (&margin, least))?;
        let first = self.arrays.floats("slide.logits")?;
        let large = channels_first(logits.clone());
        let classes = first.shape.get(1).copied().unwrap_or_default().min(large.dims()[1]);
        let got = large.narrow(1, 0, classes);
        expect_shape(self.path, "slide.logits", &first.shape, &got.dims())?;
        self.push("slide.logits", &numbers(got), &first.values);
        let Some(size) = original else { return Ok(()) };
        let whole = predicted(logits, size)?;
        let Floats { values: margin, .. } = self.arrays.halves("slide.rescaled_margin")?;
        self.classes("slide.rescaled_argmax", whole.labels, (&margin, least))?;
        self.against("slide.rescaled_prob_max", whole.probabilities)
    }

    /// Losses, accuracies, and running statistics after the step. Returns the loss.
    fn trained(
        &mut self,
        model: &Segmenter,
        images: Tensor<4>,
        labels: &Tensor<3, Int>,
    ) -> Result<Tensor<1>, Error> {
        let models = [model.clone()];
        let before = named(model, None);
        let logits = training_logits(&models, vec![(images, 0)], 0, &ShardSum::single())?;
        let logits = logits.into_iter().next();
        let logits = logits.ok_or_else(|| Error::internal("a pass over no shard"))?;
        if self.arrays.has("train.decode_logits") {
            let got = channels_first(logits.decode.clone());
            self.against("train.decode_logits", got)?;
        }
        let SegmentationLoss { loss, decode, aux } =
            logits.losses(labels, model.config().aux_weight)?;
        let number =
            |tensor: &Tensor<1>| numbers(tensor.clone()).first().copied().unwrap_or(f32::NAN);
        let (pixels, labelled) =
            (labels.dims().iter().product::<usize>(), number(&decode.labelled));
        self.number("train.loss", number(&loss))?;
        for (name, head) in [("decode", &decode), ("aux", &aux)] {
            self.number(&format!("train.{name}.loss_ce"), number(&head.loss))?;
            // Percent, with an ε that is all there is where nothing is right.
            let share = (number(&head.correct) + f32::EPSILON) / (labelled + f32::EPSILON);
            self.number(&format!("train.{name}.acc_seg"), share * 100.0)?;
        }
        // What ignored pixels in the divisor make of the loss.
        let over_labelled = number(&decode.loss) * (pixels as f32 / labelled);
        self.number("check.loss_over_valid_only", over_labelled)?;
        self.moved(before, named(model, None))?;
        Ok(loss)
    }

    /// Running statistics after the step; before it, where those of the reference are the
    /// checkpoint's to the bit and so have seen none.
    fn moved(&mut self, before: Named, after: Named) -> Result<(), Error> {
        let is_statistic =
            |path: &str| path.ends_with("running_mean") || path.ends_with("running_var");
        let mut expected = Vec::new();
        for (path, before) in before.iter().filter(|(path, _)| is_statistic(path)) {
            let name = format!("train.after.{path}");
            let array = self.arrays.floats(&name)?;
            expect_shape(self.path, &name, &array.shape, &before.shape)?;
            expected.push((path, name, array.values));
        }
        let is_still = expected.iter().all(|(path, _, values)| before[*path].values == *values);
        if is_still {
            eprintln!(
                "note: train.after.* are the checkpoint's own statistics: the reference recorded no \
                 step, and ours are compared before theirs"
            );
        }
        let ours = if is_still { &before } else { &after };
        for (path, name, values) in &expected {
            self.push(name, &ours[*path].values, values);
        }
        Ok(())
    }

    fn gradients(
        &mut self,
        model: &Segmenter,
        images: &Tensor<4>,
        grads: &Gradients,
        without: &[String],
    ) -> Result<(), Error> {
        let dx = self.arrays.floats("dx")?;
        expect_shape(self.path, "dx", &dx.shape, &images.dims())?;
        let got = images.grad(grads).map(numbers).unwrap_or_default();
        self.push("dx", &got, &dx.values);
        let all = named(model, Some(grads));
        for (path, got) in &all {
            if path.contains(".running_") {
                continue;
            }
            let name = format!("g.{path}");
            let expected = if without.contains(path) && !self.arrays.has(&name) {
                vec![0.0; got.values.len()]
            } else {
                let expected = self.arrays.floats(&name)?;
                expect_shape(self.path, &name, &expected.shape, &got.shape)?;
                expected.values
            };
            let band = self.bands.band(&name);
            let mut comparison = Comparison::new(&name, &got.values, &expected, band);
            if TAKEN_AWAY.contains(&path.as_str())
                && let Some(weight) = all.get(&path.replace(".bias", ".weight"))
            {
                let largest = weight.values.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
                comparison = comparison.on_scale(f64::from(largest));
            }
            self.found.push(comparison);
        }
        Ok(())
    }
}

/// `[B, C, H, W]` of `[B, H, W, C]`.
fn channels_first(map: Tensor<4>) -> Tensor<4> {
    map.permute([0, 3, 1, 2])
}

/// How far the largest logit of each pixel is from the second, of `[B, H, W, K]`.
fn margin(logits: Tensor<4>) -> Vec<f32> {
    let [.., classes] = logits.dims();
    let values = numbers(logits);
    let distance = |pixel: &[f32]| {
        let mut pixel = pixel.to_vec();
        pixel.sort_by(|a, b| b.total_cmp(a));
        pixel.get(1).map_or(f32::INFINITY, |second| pixel[0] - second)
    };
    values.chunks_exact(classes).map(distance).collect()
}

/// The parameters and statistics of `model`, or the gradients, by the original's names and in
/// PyTorch's shapes; zeros where the loss does not depend on a parameter.
fn named(model: &Segmenter, grads: Option<&Gradients>) -> Named {
    let found = by_path(model, &|_| grads).into_iter();
    found.map(|(path, array)| (mmseg_key(&path), array)).collect()
}
