//! Images to the stream behind a block: what `vim-model` computes in evaluation, in its order.

use std::collections::HashMap;

use half::f16;
use vim_kernels::LEAST_RATE;
use vim_model::burn::tensor::TensorData;
use vim_model::{Bimamba, MixerConfig, NamedArrays, NormKind, Rope, VimConfig};

use crate::graph::{Graph, Value, int, ints};
use crate::proto::{Info, element};
use crate::scan::{Inputs, scan};
use crate::{Options, Pixels};

/// A graph with the weights that it is made of.
pub(crate) struct Network<'a> {
    pub(crate) graph: Graph,
    pub(crate) config: &'a VimConfig,
    pub(crate) options: &'a Options,
    arrays: HashMap<&'a str, &'a TensorData>,
    /// Begins the names of the backbone's parameters.
    prefix: &'static str,
    /// `[B, D, N]` of zeros, where a state starts.
    start: Value,
}

/// The tensors between two blocks, `[B, L, M]`.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) hidden: Value,
    /// Absent before the first block.
    pub(crate) residual: Option<Value>,
}

/// Cosines and sines of rotary positions, `[1, L, M]`, and the partner of each channel.
struct Rotation {
    cos: Value,
    sin: Value,
    partners: Vec<i64>,
}

/// The name of the input of pixels, and of that of normalized images.
pub(crate) const PIXELS: &str = "pixels";
pub(crate) const IMAGES: &str = "images";

impl<'a> Network<'a> {
    pub(crate) fn new(
        config: &'a VimConfig,
        arrays: &'a NamedArrays,
        prefix: &'static str,
        options: &'a Options,
    ) -> Self {
        let mut graph = Graph::new("v", options.opset);
        let sizes = [config.d_inner() as i64, config.d_state as i64];
        let batch = match options.dynamic {
            false => graph.integers(&[1]),
            true => {
                let shape = graph.op("Shape", &[options.input_name()], []);
                graph.slice(&shape, [0, 1], 0)
            }
        };
        let sizes = graph.integers(&sizes);
        let shape = graph.concat(&[&batch, &sizes], 0);
        let start = graph.op("ConstantOfShape", &[&shape], []);
        Self { graph, config, options, arrays: arrays.iter().collect(), prefix, start }
    }

    /// What the graph is given.
    pub(crate) fn input(&self) -> Info {
        let size = self.config.image_size;
        let [height, width] = [size.height, size.width].map(Some);
        let batch = self.options.batch();
        match self.options.pixels {
            Some(_) => Info::new(PIXELS, element::UINT8, &[batch, height, width, Some(3)]),
            None => Info::new(IMAGES, element::FLOAT, &[batch, Some(3), height, width]),
        }
    }

    /// The numbers of a parameter, and its shape.
    pub(crate) fn array(&self, name: &str) -> (Vec<f32>, Vec<usize>) {
        let data =
            self.arrays.get(name).expect("invariant: a model has the parameters of its kind");
        (data.iter().collect(), data.shape().to_vec())
    }

    /// Whether there is such a parameter.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.arrays.contains_key(name)
    }

    /// The parameter at a path of the backbone.
    pub(crate) fn weight(&mut self, path: &str) -> Value {
        let name = format!("{}{path}", self.prefix);
        let (values, shape) = self.array(&name);
        self.stored(&name, &shape, &values)
    }

    /// An array in the file: what is multiplied as f16 if that is asked for, and all else as f32.
    pub(crate) fn stored(&mut self, name: &str, shape: &[usize], values: &[f32]) -> Value {
        let fits = || values.iter().all(|value| f16::from_f32(*value).is_finite());
        if self.options.half && shape.len() > 1 && !name.ends_with(".a_log") && fits() {
            let bytes = values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes());
            let half = self.graph.initializer(name, element::FLOAT16, shape, bytes.collect());
            return self.graph.cast_to_f32(&half);
        }
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.graph.initializer(name, element::FLOAT, shape, bytes)
    }

    /// The tokens of the input, in the order in which the blocks see them.
    pub(crate) fn tokens(&mut self) -> Value {
        let images = self.images();
        let weight = self.weight("patch_embed.proj.weight");
        let bias = self.weight("patch_embed.proj.bias");
        let stride = [self.config.stride() as i64; 2];
        let patches = self.graph.op("Conv", &[&images, &weight, &bias], [ints("strides", &stride)]);
        let patches = self.graph.reshape(&patches, &[0, self.config.d_model as i64, -1]);
        let patches = self.graph.transpose(&patches, &[0, 2, 1]);
        let mut tokens = self.with_class_tokens(patches);
        if self.config.abs_pos_embed {
            let positions = self.weight("pos_embed");
            tokens = self.graph.add(&tokens, &positions);
        }
        if self.is_flipped() { self.graph.flip(&tokens, 1) } else { tokens }
    }

    /// Whether evaluation reverses the tokens: if training (almost) always does.
    pub(crate) fn is_flipped(&self) -> bool {
        self.config.flip_ratio >= 1.0
    }

    fn images(&mut self) -> Value {
        let Some(Pixels { mean, std }) = self.options.pixels else { return IMAGES.to_owned() };
        let graph = &mut self.graph;
        let numbers = graph.cast_to_f32(PIXELS);
        let numbers = graph.scale(&numbers, 1.0 / 255.0);
        let (mean, std) = (graph.numbers(&[3], &mean), graph.numbers(&[3], &std));
        let centered = graph.sub(&numbers, &mean);
        let normalized = graph.div(&centered, &std);
        graph.transpose(&normalized, &[0, 3, 1, 2])
    }

    fn with_class_tokens(&mut self, patches: Value) -> Value {
        let (count, width) = (self.config.num_patches() as i64, self.config.d_model as i64);
        let names: &[&str] = match self.config.class_token_positions()[..] {
            [] => return patches,
            [_] => &["cls_token"],
            _ => &["cls_token_head", "cls_token_tail"],
        };
        let mut parts = Vec::new();
        let mut taken = 0;
        for (number, (name, position)) in
            names.iter().zip(self.config.class_token_positions()).enumerate()
        {
            let before = position as i64 - number as i64;
            if before > taken {
                parts.push(self.graph.slice(&patches, [taken, before], 1));
            }
            taken = before;
            let token = self.weight(name);
            parts.push(self.of_every_image(&token, &[1, width]));
        }
        if taken < count {
            parts.push(self.graph.slice(&patches, [taken, count], 1));
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        self.graph.concat(&parts, 1)
    }

    /// `x`, `[1, …]`, for each image of the batch.
    fn of_every_image(&mut self, x: &str, rest: &[i64]) -> Value {
        if !self.options.dynamic {
            return x.to_owned();
        }
        let (shape, rest) = (self.graph.op("Shape", &[&self.start], []), self.graph.integers(rest));
        let batch = self.graph.slice(&shape, [0, 1], 0);
        let shape = self.graph.concat(&[&batch, &rest], 0);
        self.graph.op("Expand", &[x, &shape], [])
    }

    /// Takes tokens through the first `count` blocks; `after` gets the number of each, of a pair
    /// that of the second, and the stream after it.
    pub(crate) fn through_blocks(
        &mut self,
        tokens: Value,
        count: usize,
        mut after: impl FnMut(usize, &Stream),
    ) -> Stream {
        let rotation = self.rotation();
        let mut stream = Stream { hidden: tokens, residual: None };
        let step = if self.config.layer_pairs { 2 } else { 1 };
        for first in (0..count).step_by(step) {
            if let Some(rotation) = &rotation {
                stream.hidden = self.rotated(&stream.hidden, rotation);
                if self.config.rope == Rope::Both {
                    stream.residual = stream.residual.map(|x| self.rotated(&x, rotation));
                }
            }
            // The second block of a pair sees the tokens reversed and its result is reversed again:
            // its ways are the other way round.
            let one = self.block(first, &stream, false);
            stream = if self.config.layer_pairs {
                let other = self.block(first + 1, &stream, true);
                let hidden = self.graph.add(&one.hidden, &other.hidden);
                let sums = one.residual.zip(other.residual);
                let residual = sums.map(|(one, other)| self.graph.add(&one, &other));
                Stream { hidden, residual }
            } else {
                one
            };
            after(first + step - 1, &stream);
        }
        stream
    }

    fn block(&mut self, number: usize, stream: &Stream, reversed: bool) -> Stream {
        let (normed, sum) = self.normed(stream, &format!("layers.{number}.norm"));
        let hidden = self.mixer(&normed, &format!("layers.{number}.mixer"), reversed);
        Stream { hidden, residual: Some(sum) }
    }

    /// The normalized sum of a stream's two parts, and the sum.
    pub(crate) fn normed(&mut self, stream: &Stream, path: &str) -> (Value, Value) {
        let Stream { hidden, residual } = stream;
        let sum = match residual {
            Some(residual) => self.graph.add(hidden, residual),
            None => hidden.clone(),
        };
        let weight = self.weight(&format!("{path}.weight"));
        let is_layer = self.config.norm == NormKind::Layer;
        let graph = &mut self.graph;
        let centered = if is_layer {
            let mean = graph.reduce("ReduceMean", &sum, 2);
            graph.sub(&sum, &mean)
        } else {
            sum.clone()
        };
        let square = graph.mul(&centered, &centered);
        let mean = graph.reduce("ReduceMean", &square, 2);
        let mean = graph.offset(&mean, self.config.norm_eps);
        let root = graph.op("Sqrt", &[&mean], []);
        let scaled = graph.div(&centered, &root);
        let mut normed = graph.mul(&scaled, &weight);
        if is_layer {
            let bias = self.weight(&format!("{path}.bias"));
            normed = self.graph.add(&normed, &bias);
        }
        (normed, sum)
    }

    fn mixer(&mut self, x: &str, path: &str, reversed: bool) -> Value {
        let mixer = self.config.mixer();
        let d_inner = mixer.d_inner();
        let weight = self.weight(&format!("{path}.in_proj.weight"));
        let both = self.graph.matmul(x, &weight);
        let [x, z] = self.graph.split(&both, [d_inner; 2]);
        let (forward, backward) = (format!("{path}.forward"), format!("{path}.backward"));
        let own = |network: &mut Self, direction: &str, reverse: bool| {
            let drive = network.drive(&mixer, &x, direction, reverse != reversed);
            network.direction(&mixer, &drive, direction, reverse, reversed)
        };
        let mut sum = match mixer.bimamba {
            Bimamba::None => own(self, &forward, false),
            Bimamba::V2 => {
                let (first, last) = (own(self, &forward, false), own(self, &backward, true));
                self.graph.add(&first, &last)
            }
            Bimamba::V1 => {
                let drive = self.drive(&mixer, &x, &forward, reversed);
                let first = self.direction(&mixer, &drive, &forward, false, reversed);
                let last = self.direction(&mixer, &drive, &backward, true, reversed);
                self.graph.add(&first, &last)
            }
        };
        let gate = self.graph.silu(&z);
        sum = self.graph.mul(&sum, &gate);
        if mixer.divide_out() {
            sum = self.graph.scale(&sum, 0.5);
        }
        let weight = self.weight(&format!("{path}.out_proj.weight"));
        let out = self.graph.matmul(&sum, &weight);
        if !self.has(&format!("{}{path}.gamma", self.prefix)) {
            return out;
        }
        let gamma = self.weight(&format!("{path}.gamma"));
        self.graph.mul(&out, &gamma)
    }

    /// The convolution and the projections of `x`, `[B, L, D]`, by the weights of a direction.
    fn drive(&mut self, mixer: &MixerConfig, x: &str, path: &str, reverse: bool) -> Drive {
        let (rank, d_state) = (mixer.dt_rank(), mixer.d_state);
        let name = format!("{}{path}.conv1d.weight", self.prefix);
        let (mut taps, shape) = self.array(&name);
        let before = mixer.d_conv as i64 - 1;
        let pads = if reverse {
            // From the last token on: the taps in their other order, over the tokens that follow.
            taps.chunks_mut(mixer.d_conv).for_each(<[f32]>::reverse);
            [0, before]
        } else {
            [before, 0]
        };
        let weight = self.stored(&name, &shape, &taps);
        let bias = self.weight(&format!("{path}.conv1d.bias"));
        let x = self.graph.transpose(x, &[0, 2, 1]);
        let attributes = [int("group", mixer.d_inner() as i64), ints("pads", &pads)];
        let x = self.graph.op("Conv", &[&x, &weight, &bias], attributes);
        let x = self.graph.silu(&x);
        let u = self.graph.transpose(&x, &[0, 2, 1]);
        let weight = self.weight(&format!("{path}.x_proj.weight"));
        let parts = self.graph.matmul(&u, &weight);
        let [step, b, c] = self.graph.split(&parts, [rank, d_state, d_state]);
        let weight = self.weight(&format!("{path}.dt_proj.weight"));
        let bias = self.weight(&format!("{path}.dt_proj.bias"));
        let step = self.graph.matmul(&step, &weight);
        let step = self.graph.add(&step, &bias);
        let delta = self.graph.op("Softplus", &[&step], []);
        let d = self.weight(&format!("{path}.d"));
        let skip = self.graph.mul(&u, &d);
        Drive { u, delta, b, c, skip }
    }

    /// The scan under A of the direction at `path`, with the skip connection around it. The method
    /// is that of the direction that is named so, `reverse` or not, in which ever order it scans.
    fn direction(
        &mut self,
        mixer: &MixerConfig,
        drive: &Drive,
        path: &str,
        reverse: bool,
        reversed: bool,
    ) -> Value {
        let [forward, backward] = mixer.methods();
        let method = if reverse { backward } else { forward };
        let form = method.form().under(mixer.ssm.series);
        let logarithm = self.weight(&format!("{path}.a_log"));
        let rate = self.graph.exp(&logarithm);
        let rate = self.graph.op("Neg", &[&rate], []);
        let a = self.graph.at_least(&rate, f64::from(LEAST_RATE));
        let Drive { u, delta, b, c, skip } = drive.clone();
        let sizes = [mixer.d_inner(), mixer.d_state];
        let inputs = Inputs { u, delta, a, b, c, start: self.start.clone(), sizes };
        let y = scan(&mut self.graph, form, &inputs, reverse != reversed, self.options);
        self.graph.add(&y, &skip)
    }

    fn rotation(&mut self) -> Option<Rotation> {
        let table = self.config.rope_table()?;
        let [_, width] = table.shape;
        // Of an odd number of tokens the first is left alone, wherever the class token is.
        let still = self.config.num_tokens() % 2 * width;
        let signed = table.sin.iter().enumerate();
        let signed = signed.map(|(i, sin)| if i.is_multiple_of(2) { -sin } else { *sin });
        let mut cos = vec![1.0; still];
        let mut sin = vec![0.0; still];
        cos.extend(table.cos);
        sin.extend(signed);
        let shape = [1, cos.len() / width, width];
        // Around single blocks reversed tokens keep their rotations, around pairs they do not.
        if self.is_flipped() && !self.config.layer_pairs {
            for values in [&mut cos, &mut sin] {
                *values = values.chunks(width).rev().flatten().copied().collect();
            }
        }
        let partners = (0..width as i64).map(|channel| channel ^ 1).collect();
        let cos = self.graph.numbers(&shape, &cos);
        let sin = self.graph.numbers(&shape, &sin);
        Some(Rotation { cos, sin, partners })
    }

    fn rotated(&mut self, x: &str, Rotation { cos, sin, partners }: &Rotation) -> Value {
        let partner = self.graph.gather(x, partners, 2);
        let (own, other) = (self.graph.mul(x, cos), self.graph.mul(&partner, sin));
        self.graph.add(&own, &other)
    }
}

/// What a scan reads beside A, and the skip connection around it.
#[derive(Clone, Debug)]
struct Drive {
    u: Value,
    delta: Value,
    b: Value,
    c: Value,
    skip: Value,
}
