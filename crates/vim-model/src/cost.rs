//! What a forward pass of one image costs, by component, in closed form.
//!
//! Conventions:
//!
//! - A multiply–add (MAC) is one product of a weight, a tap or a coefficient and its addition to a
//!   sum: in the linear maps, the convolution, the scan's recurrence (`a_bar·h + drive`, `Σ c·h`)
//!   and its skip connection (`d·u`). Padding and the addition of a bias count as any other.
//! - A FLOP is one arithmetic operation, a MAC two of them. An exponential, a logarithm, a root and
//!   a reciprocal are one each; changes of sign, comparisons, choices and moves are free.
//! - Evaluation, one image, f32. Functions of parameters alone (`A = −exp(a_log)`) are not counted.
//!   Only tokens that the head reads are normalized at the end.
//! - The scan is the recurrence of the reference: the coefficients of every token, channel and
//!   state once ([`Discretization::operations`](vim_kernels::Discretization::operations)), the
//!   input term, and one recurrence for each direction of a method. A kernel may compute less, by
//!   sharing terms of a token or a state, or more, by recomputing in the backward pass.

use serde::Serialize;

use crate::config::{
    Bimamba, ClassToken, LayerScale, ModelError, NormKind, Pool, Rope, StateMatrix, VimConfig,
};

/// The cost of one component, over all blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ComponentCost {
    /// What it is called.
    pub name: &'static str,
    /// What it is, in a few words.
    pub what: &'static str,
    /// Trainable numbers.
    pub parameters: u64,
    /// Multiply–adds for one image.
    pub macs: u64,
    /// Arithmetic operations for one image, two for each multiply–add.
    pub flops: u64,
}

/// The cost of a model; see [`VimConfig::cost`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// In the order in which an image meets them.
    pub components: Vec<ComponentCost>,
}

impl Cost {
    /// Trainable numbers of the model.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        self.components.iter().map(|component| component.parameters).sum()
    }

    /// Multiply–adds for one image.
    #[must_use]
    pub fn macs(&self) -> u64 {
        self.components.iter().map(|component| component.macs).sum()
    }

    /// Arithmetic operations for one image.
    #[must_use]
    pub fn flops(&self) -> u64 {
        self.components.iter().map(|component| component.flops).sum()
    }
}

/// Operations of `x·sigmoid(x)`: exponential, addition, reciprocal, product.
const SILU: u64 = 4;
/// Operations of delta's bias and softplus: addition; exponential, addition, logarithm.
const DELTA: u64 = 1 + 3;

impl VimConfig {
    /// Parameters, multiply–adds and operations of every component, for one image in evaluation.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if the model cannot be built, or if its A is full: that scan is not counted.
    pub fn cost(&self) -> Result<Cost, ModelError> {
        self.check()?;
        if self.ssm.a == StateMatrix::Full {
            return Err(ModelError::Conflict {
                key: "ssm.a",
                value: "\"full\"".into(),
                other: "counting operations".into(),
                reason: "only a diagonal A is counted".into(),
            });
        }
        let depth = self.depth as u64;
        let [d_model, d_inner, states, rank, taps] =
            [self.d_model, self.d_inner(), self.d_state, self.dt_rank(), self.d_conv]
                .map(|n| n as u64);
        let (len, patches) = (self.num_tokens() as u64, self.num_patches() as u64);
        let pixels = 3 * (self.patch_size * self.patch_size) as u64;
        let (directions, scans) = match self.bimamba {
            Bimamba::None => (1, 1),
            Bimamba::V1 => (1, 2),
            Bimamba::V2 => (2, 2),
        };

        let map = |name, what, count: u64, parameters: u64, macs: u64| {
            let (parameters, macs) = (count * parameters, count * macs);
            ComponentCost { name, what, parameters, macs, flops: 2 * macs }
        };
        let plus = |flops: u64, component: ComponentCost| ComponentCost {
            flops: component.flops + flops,
            ..component
        };
        let plain = |name, what, parameters, flops| plus(flops, map(name, what, 1, parameters, 0));

        let positions = if self.abs_pos_embed { len * d_model } else { 0 };
        let tokens = positions + self.num_class_tokens() as u64 * d_model;
        let projections = depth * directions;
        let per_token = depth * len;
        let scaled = if self.layer_scale == LayerScale::None { 0 } else { d_model };
        let halved = if self.divide_out() { d_model } else { 0 };
        let mut components = vec![
            map(
                "patch_embed",
                "pixels of a patch to channels",
                1,
                pixels * d_model + d_model,
                patches * pixels * d_model,
            ),
            plain("positions", "class tokens, and positions added", tokens, positions),
            self.rope_cost(),
            self.norm_cost(),
            map(
                "in_proj",
                "channels to the scanned half and the gate",
                depth,
                2 * d_model * d_inner,
                2 * len * d_model * d_inner,
            ),
            plus(
                projections * len * d_inner * SILU,
                map(
                    "conv1d",
                    "convolution along the tokens, and silu",
                    projections,
                    d_inner * taps + d_inner,
                    len * d_inner * taps,
                ),
            ),
            map(
                "x_proj",
                "to low-rank delta, B and C",
                projections,
                d_inner * (rank + 2 * states),
                len * d_inner * (rank + 2 * states),
            ),
            map("dt_proj", "to delta", projections, rank * d_inner + d_inner, len * rank * d_inner),
            self.scan_cost(depth * scans * d_inner * states + projections * d_inner),
            plain(
                "gate",
                "silu of the gate times every way, and their sum",
                0,
                per_token * d_inner * (scans * (SILU + 1) + scans - 1),
            ),
            plus(
                per_token * (halved + scaled),
                map(
                    "out_proj",
                    "back to channels, halved and scaled where so configured",
                    depth,
                    d_inner * d_model + scaled,
                    len * d_inner * d_model,
                ),
            ),
            self.head_cost(),
        ];
        components.retain(|component| component.parameters + component.flops > 0);
        Ok(Cost { components })
    }

    fn rope_cost(&self) -> ComponentCost {
        let steps = if self.layer_pairs { self.depth / 2 } else { self.depth };
        // The residual stream begins with the first block.
        let sequences = match self.rope {
            Rope::None => 0,
            Rope::Hidden => steps,
            Rope::Both => 2 * steps - 1,
        };
        // The class token is not rotated; two products and a sum for every other number.
        let turned = (self.num_patches() * self.d_model * 3) as u64;
        let (name, what) = ("rope", "rotary positions");
        ComponentCost { name, what, flops: sequences as u64 * turned, ..ComponentCost::default() }
    }

    fn norm_cost(&self) -> ComponentCost {
        let (d_model, len, depth) =
            (self.d_model as u64, self.num_tokens() as u64, self.depth as u64);
        // Squares and their sum; mean, ε, root, reciprocal; two products with that and the weight.
        // With a bias also the mean, its subtraction and the bias.
        let (norm, parameters) = match self.norm {
            NormKind::Rms => (2 * d_model + 4 + 2 * d_model, d_model),
            NormKind::Layer => (d_model + 1 + d_model + 2 * d_model + 4 + 3 * d_model, 2 * d_model),
        };
        let (pairs, first) = if self.layer_pairs { (depth / 2, 2) } else { (0, 1) };
        // Before the first block, or the first pair, there is nothing to add to.
        let sums = (depth - first) * len * d_model + pairs * 2 * len * d_model;
        let read = self.num_read() as u64;
        ComponentCost {
            name: "norm",
            what: "sums of the residual stream, and norms",
            parameters: (depth + 1) * parameters,
            macs: 0,
            flops: depth * len * norm + sums + read * (norm + d_model),
        }
    }

    fn scan_cost(&self, parameters: u64) -> ComponentCost {
        let [forward, backward] = self.methods();
        let methods = match self.bimamba {
            Bimamba::None => vec![forward],
            Bimamba::V1 | Bimamba::V2 => vec![forward, backward],
        };
        let (mut macs, mut flops) = (0, 0);
        for method in methods {
            let two_way = method.form().two_way;
            let recurrences = if two_way { 2 } else { 1 };
            let states = self.d_state as u64;
            let channel_macs = recurrences * 2 * states + 1; // and the skip connection
            // Coefficients, and the input term: times B, times u.
            let coefficients = states * (method.operations(self.ssm.series) + 2);
            // The coefficients of every state need delta, which a channel has one of.
            let mean = if two_way { 2 } else { 0 };
            macs += channel_macs;
            flops += 2 * channel_macs + coefficients + DELTA + mean;
        }
        let channels = (self.depth * self.num_tokens() * self.d_inner()) as u64;
        ComponentCost {
            name: "scan",
            what: "discretization and recurrence, both ways",
            parameters,
            macs: channels * macs,
            flops: channels * flops,
        }
    }

    fn head_cost(&self) -> ComponentCost {
        let (d_model, classes) = (self.d_model as u64, self.num_classes as u64);
        let read = self.num_read() as u64;
        let per_token = self.class_token == ClassToken::None && self.pool() == Pool::Max;
        let macs = d_model * classes * if per_token { read } else { 1 };
        // Additions, and a product with 1 over their number.
        let mean = if per_token || read == 1 { 0 } else { read * d_model };
        ComponentCost {
            name: "head",
            what: "pooling where there is no one class token, and logits",
            parameters: d_model * classes + classes,
            macs,
            flops: 2 * macs + mean,
        }
    }

    /// Tokens that the head reads.
    fn num_read(&self) -> usize {
        match (self.class_token, self.pool()) {
            (ClassToken::Middle | ClassToken::Head | ClassToken::Random, _)
            | (ClassToken::None, Pool::Last) => 1,
            (ClassToken::Double, _) => 2,
            (ClassToken::None, Pool::Mean | Pool::Max) => self.num_tokens(),
        }
    }
}
