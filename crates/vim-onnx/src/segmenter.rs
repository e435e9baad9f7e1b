//! The heads of a segmenter: pyramid and UperNet in evaluation, channels first.

use vim_dense::{SCALES, SegmenterConfig, pooling_means};
use vim_model::{LastTap, NamedArrays, Tapped, VimConfig};

use crate::backbone::{Network, Stream};
use crate::graph::{Value, int, ints, text};
use crate::proto::{Graph, Info, element};
use crate::{OnnxError, Options, check};

/// Added to a running variance.
const EPSILON: f64 = 1e-5;

/// A map, `[B, C, h, w]`.
#[derive(Clone, Debug)]
struct Map {
    value: Value,
    size: [usize; 2],
}

/// The graph of a segmenter of `classes` with `arrays`: `logits` at stride 4, `[B, K, H/4, W/4]`,
/// and with [`Options::pixels`] before it `labels`, `[B, H, W]` bytes, and their `probability`. It
/// sees one window of the model's size; larger images slide, which is the caller's part.
///
/// # Errors
///
/// [`OnnxError`].
pub fn segmenter(
    config: &SegmenterConfig,
    backbone: &VimConfig,
    classes: usize,
    arrays: &NamedArrays,
    options: &Options,
) -> Result<Graph, OnnxError> {
    check(backbone, options)?;
    let mut network = Network::new(backbone, arrays, "backbone.", options);
    let maps = network.maps(config);
    let levels = network.levels(maps);
    let logits = network.decoded(levels);
    let (value, weight) = (logits.value, network.own("decode_head.conv_seg.weight"));
    let bias = network.own("decode_head.conv_seg.bias");
    let value = network.graph.op("Conv", &[&value, &weight, &bias], []);
    network.graph.rename(&value, "logits");
    let ([height, width], batch) = (logits.size, options.batch());
    let shape = [batch, Some(classes), Some(height), Some(width)];
    let mut outputs = vec![Info::new("logits", element::FLOAT, &shape)];
    if options.pixels.is_some() {
        let to = [backbone.image_size.height, backbone.image_size.width];
        let whole = network.resized(&Map { value, size: logits.size }, to).value;
        let graph = &mut network.graph;
        let arguments = [int("axis", 1), int("keepdims", 0)];
        let labels = graph.op("ArgMax", &[&whole], arguments);
        let labels = graph.op("Cast", &[&labels], [int("to", i64::from(element::UINT8))]);
        graph.rename(&labels, "labels");
        let probabilities = graph.op("Softmax", &[&whole], [int("axis", 1)]);
        let probability = graph.reduce("ReduceMax", &probabilities, 1);
        let probability = graph.squeeze(&probability, 1);
        graph.rename(&probability, "probability");
        let shape = [batch, Some(to[0]), Some(to[1])];
        let both = [("labels", element::UINT8), ("probability", element::FLOAT)];
        outputs.splice(0..0, both.map(|(name, of)| Info::new(name, of, &shape)));
    }
    let input = network.input();
    Ok(network.graph.finish("vision_mamba_upernet", vec![input], outputs))
}

impl Network<'_> {
    /// The features that the heads read, as maps.
    fn maps(&mut self, config: &SegmenterConfig) -> [Map; 4] {
        let (taps, depth) = (config.taps(), self.config.depth);
        let last = taps.blocks.last().copied().unwrap_or_default();
        let count = match taps.what {
            Tapped::Hidden => last + 1,
            Tapped::Residual => depth.min(last + 2),
        };
        let mut found = Vec::new();
        let tokens = self.tokens();
        let stream = self.through_blocks(tokens, count, |number, Stream { hidden, residual }| {
            // A block's sum is taken at the start of the one behind it.
            found.extend(match taps.what {
                Tapped::Hidden => taps.blocks.contains(&number).then(|| hidden.clone()),
                Tapped::Residual => {
                    residual.clone().filter(|_| number > 0 && taps.blocks.contains(&(number - 1)))
                }
            });
        });
        if taps.what == Tapped::Residual && last + 1 == depth {
            found.push(match (taps.last, &stream.residual) {
                (LastTap::None, _) | (LastTap::Add, None) => stream.hidden,
                (LastTap::Add, Some(residual)) => self.graph.add(residual, &stream.hidden),
                (LastTap::AddNorm, _) => self.normed(&stream, "norm_f").0,
            });
        }
        let maps: Vec<Map> = found.iter().map(|feature| self.map(feature)).collect();
        match <[Map; 4]>::try_from(maps) {
            Ok(maps) => maps,
            Err(maps) => [0; 4].map(|first| maps[first].clone()),
        }
    }

    /// The patches of a feature in the order of the image.
    fn map(&mut self, feature: &str) -> Map {
        let size = self.config.grid();
        let class = self.config.class_token_positions();
        let count = self.config.num_tokens();
        let patches = (0..count).filter(|place| !class.contains(place));
        let mut feature = feature.to_owned();
        if self.is_flipped() {
            feature = self.graph.flip(&feature, 1);
        }
        if !class.is_empty() {
            let patches: Vec<i64> = patches.map(|place| place as i64).collect();
            feature = self.graph.gather(&feature, &patches, 1);
        }
        let channels = self.graph.transpose(&feature, &[0, 2, 1]);
        let value = self.graph.reshape(&channels, &[0, 0, size[0] as i64, size[1] as i64]);
        Map { value, size }
    }

    /// Maps of strides 4, 8, 16 and 32.
    fn levels(&mut self, [first, second, third, fourth]: [Map; 4]) -> [Map; 4] {
        let mut first = self.enlarged(&first, "pyramid.fpn1.first");
        if !self.has("pyramid.fpn2.weight") {
            let half = self.halved(&third);
            let quarter = self.halved(&fourth);
            return [first, second, half, self.halved(&quarter)];
        }
        let (scale, shift) = self.normalization("pyramid.fpn1.second.norm");
        let width = [1, scale.len(), 1, 1];
        let (scale, shift) =
            (self.graph.numbers(&width, &scale), self.graph.numbers(&width, &shift));
        let scaled = self.graph.mul(&first.value, &scale);
        let normed = self.graph.add(&scaled, &shift);
        first.value = self.gelu(&normed);
        let first = self.enlarged(&first, "pyramid.fpn1.second.up");
        let second = self.enlarged(&second, "pyramid.fpn2");
        [first, second, third, self.halved(&fourth)]
    }

    /// UperNet without its last layer, at stride 4.
    fn decoded(&mut self, [first, second, third, fourth]: [Map; 4]) -> Map {
        let pooled = self.pooled(&fourth);
        let mut laterals: Vec<Map> = [first, second, third]
            .iter()
            .enumerate()
            .map(|(i, level)| self.module(level, &format!("decode_head.lateral_convs.{i}")))
            .collect();
        laterals.push(pooled);
        for i in (1..laterals.len()).rev() {
            let coarse = self.resized(&laterals[i], laterals[i - 1].size);
            laterals[i - 1].value = self.graph.add(&laterals[i - 1].value, &coarse.value);
        }
        let size = laterals[0].size;
        let mut joined = Vec::new();
        for (i, lateral) in laterals.iter().enumerate() {
            let map = match i {
                0..3 => self.module(lateral, &format!("decode_head.fpn_convs.{i}")),
                _ => lateral.clone(),
            };
            joined.push(self.resized(&map, size).value);
        }
        let value = self.joined(&joined);
        self.module(&Map { value, size }, "decode_head.fpn_bottleneck")
    }

    /// The pyramid pooling of the coarsest level.
    fn pooled(&mut self, level: &Map) -> Map {
        let size = level.size;
        let pixels = self.graph.reshape(&level.value, &[0, 0, -1]);
        let mut joined = vec![level.value.clone()];
        for (i, side) in SCALES.into_iter().enumerate() {
            let means = pooling_means(size, &[side]);
            let means = self.graph.numbers(&[size[0] * size[1], side * side], &means);
            let grid = self.graph.matmul(&pixels, &means);
            let value = self.graph.reshape(&grid, &[0, 0, side as i64, side as i64]);
            let grid = Map { value, size: [side; 2] };
            let map = self.module(&grid, &format!("decode_head.psp_modules.{i}"));
            joined.push(self.resized(&map, size).value);
        }
        let value = self.joined(&joined);
        self.module(&Map { value, size }, "decode_head.bottleneck")
    }

    fn joined(&mut self, maps: &[Value]) -> Value {
        let maps: Vec<&str> = maps.iter().map(String::as_str).collect();
        self.graph.concat(&maps, 1)
    }

    /// Convolution, normalization, ReLU: the normalization is multiplied into the convolution.
    fn module(&mut self, x: &Map, path: &str) -> Map {
        let name = format!("{path}.conv.weight");
        let (mut weight, shape) = self.array(&name);
        let (scale, shift) = self.normalization(&format!("{path}.bn"));
        for (of_output, scale) in weight.chunks_mut(shape[1..].iter().product()).zip(&scale) {
            of_output.iter_mut().for_each(|weight| *weight *= scale);
        }
        let weight = self.stored(&name, &shape, &weight);
        let shift = self.graph.numbers(&[shift.len()], &shift);
        let pads = [(shape[2] as i64 - 1) / 2; 4];
        let value = self.graph.op("Conv", &[&x.value, &weight, &shift], [ints("pads", &pads)]);
        Map { value: self.graph.op("Relu", &[&value], []), size: x.size }
    }

    /// What a batch normalization multiplies each channel by, and adds.
    fn normalization(&self, path: &str) -> (Vec<f32>, Vec<f32>) {
        let of = |name: &str| self.array(&format!("{path}.{name}")).0;
        let (weight, bias, mean, variance) =
            (of("weight"), of("bias"), of("running_mean"), of("running_var"));
        let scale = weight
            .iter()
            .zip(variance)
            .map(|(weight, variance)| f64::from(*weight) / (f64::from(variance) + EPSILON).sqrt());
        let scale: Vec<f64> = scale.collect();
        let shift = bias.iter().zip(mean).zip(&scale);
        let shift =
            shift.map(|((bias, mean), scale)| (f64::from(*bias) - f64::from(mean) * scale) as f32);
        (scale.iter().map(|&scale| scale as f32).collect(), shift.collect())
    }

    fn own(&mut self, name: &str) -> Value {
        let (values, shape) = self.array(name);
        self.stored(name, &shape, &values)
    }

    /// Twice as large, by a transposed convolution.
    fn enlarged(&mut self, x: &Map, path: &str) -> Map {
        let weight = self.own(&format!("{path}.weight"));
        let bias = self.own(&format!("{path}.bias"));
        let attributes = [ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])];
        let value = self.graph.op("ConvTranspose", &[&x.value, &weight, &bias], attributes);
        Map { value, size: x.size.map(|side| 2 * side) }
    }

    fn halved(&mut self, x: &Map) -> Map {
        let attributes = [ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])];
        let value = self.graph.op("MaxPool", &[&x.value], attributes);
        Map { value, size: x.size.map(|side| side / 2) }
    }

    fn resized(&mut self, x: &Map, size: [usize; 2]) -> Map {
        if x.size == size {
            return x.clone();
        }
        let graph = &mut self.graph;
        let shape = graph.op("Shape", &[&x.value], []);
        let kept = graph.slice(&shape, [0, 2], 0);
        let sides = graph.integers(&size.map(|side| side as i64));
        let sizes = graph.concat(&[&kept, &sides], 0);
        let attributes =
            [text("mode", "linear"), text("coordinate_transformation_mode", "half_pixel")];
        let value = graph.op("Resize", &[&x.value, "", "", &sizes], attributes);
        Map { value, size }
    }

    /// `x·Φ(x)`.
    fn gelu(&mut self, x: &str) -> Value {
        let graph = &mut self.graph;
        let scaled = graph.scale(x, std::f64::consts::FRAC_1_SQRT_2);
        let erf = graph.op("Erf", &[&scaled], []);
        let phi = graph.offset(&erf, 1.0);
        let doubled = graph.mul(x, &phi);
        graph.scale(&doubled, 0.5)
    }
}
