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
    /// Trainable numbers of the model that [`VimConfig::init`] builds.
    #[must_use]
    pub fn num_parameters(&self) -> usize {
        self.components().iter().map(|component| component.parameters as usize).sum()
    }

    /// Parameters, multiply–adds and operations of every component, for one image in evaluation.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if the model cannot be built, or if its A is full: that scan is not counted.
    pub fn cost(&self) -> Result<Cost, ModelError> {
        self.check()?;
        self.counted()
    }

    /// [`VimConfig::cost`] of the model without a head, up to its last block.
    ///
    /// # Errors
    ///
    /// As [`VimConfig::cost`].
    pub fn backbone_cost(&self) -> Result<Cost, ModelError> {
        self.check_backbone()?;
        Self { num_classes: 0, ..self.clone() }.counted()
    }

    fn counted(&self) -> Result<Cost, ModelError> {
        if self.ssm.a == StateMatrix::Full {
            return Err(ModelError::Conflict {
                key: "ssm.a",
                value: "\"full\"".into(),
                other: "counting operations".into(),
                reason: "only a diagonal A is counted".into(),
            });
        }
        let mut components = self.components();
        components.retain(|component| component.parameters + component.flops > 0);
        Ok(Cost { components })
    }

    /// Every component, also those that this model lacks. The operations are a diagonal A's.
    fn components(&self) -> Vec<ComponentCost> {
        // `others` are operations beside the multiply–adds.
        let component = |name, what, parameters: u64, macs: u64, others: u64| ComponentCost {
            name,
            what,
            parameters,
            macs,
            flops: 2 * macs + others,
        };
        let [d_model, d_inner, states, rank, taps, classes] = [
            self.d_model,
            self.d_inner(),
            self.d_state,
            self.dt_rank(),
            self.d_conv,
            self.num_classes,
        ]
        .map(|n| n as u64);
        let [depth, len, patches, read] =
            [self.depth, self.num_tokens(), self.num_patches(), self.num_read()].map(|n| n as u64);
        let pixels = 3 * (self.patch_size * self.patch_size) as u64;
        let (directions, scans) = match self.bimamba {
            Bimamba::None => (1, 1),
            Bimamba::V1 => (1, 2),
            Bimamba::V2 => (2, 2),
        };
        let a = match self.ssm.a {
            StateMatrix::Diagonal => states,
            StateMatrix::Full => states * (1 + states),
        };
        let positions = if self.abs_pos_embed { len * d_model } else { 0 };
        let class_tokens = self.num_class_tokens() as u64 * d_model;
        let gain = if self.layer_scale == LayerScale::None { 0 } else { d_model };
        let halved = if self.divide_out() { d_model } else { 0 };
        let norm_parameters = match self.norm {
            NormKind::Rms => d_model,
            NormKind::Layer => 2 * d_model,
        };
        let (scan_macs, scan_others) = self.scan_operations();
        // The head of every token alone, or of the mean of what is read: additions, and a product
        // with 1 over their number.
        let per_token = self.class_token == ClassToken::None && self.pool() == Pool::Max;
        let heads = if per_token { read } else { 1 };
        let mean = if per_token || read <= 1 { 0 } else { read * d_model };

        let (blocks, ways) = (depth * len, depth * directions);
        vec![
            component(
                "patch_embed",
                "pixels of a patch to channels",
                (pixels + 1) * d_model,
                patches * pixels * d_model,
                0,
            ),
            component(
                "positions",
                "class tokens, and positions added",
                positions + class_tokens,
                0,
                positions,
            ),
            component("rope", "rotary positions", 0, 0, self.rope_operations()),
            component(
                "norm",
                "sums of the residual stream, and norms",
                (depth + 1) * norm_parameters,
                0,
                self.norm_operations(),
            ),
            component(
                "in_proj",
                "channels to the scanned half and the gate",
                depth * 2 * d_model * d_inner,
                blocks * 2 * d_model * d_inner,
                0,
            ),
            component(
                "conv1d",
                "convolution along the tokens, and silu",
                ways * d_inner * (taps + 1),
                ways * len * d_inner * taps,
                ways * len * d_inner * SILU,
            ),
            component(
                "x_proj",
                "to low-rank delta, B and C",
                ways * d_inner * (rank + 2 * states),
                ways * len * d_inner * (rank + 2 * states),
                0,
            ),
            component(
                "dt_proj",
                "to delta",
                ways * (rank + 1) * d_inner,
                ways * len * rank * d_inner,
                0,
            ),
            component(
                "scan",
                "discretization and recurrence, both ways",
                depth * scans * d_inner * a + ways * d_inner,
                blocks * d_inner * scan_macs,
                blocks * d_inner * scan_others,
            ),
            component(
                "gate",
                "silu of the gate times every way, and their sum",
                0,
                0,
                blocks * d_inner * (scans * (SILU + 1) + scans - 1),
            ),
            component(
                "out_proj",
                "back to channels, halved and scaled where so configured",
                depth * (d_inner * d_model + gain),
                blocks * d_inner * d_model,
                blocks * (halved + gain),
            ),
            component(
                "head",
                "pooling where there is no one class token, and logits",
                (d_model + 1) * classes,
                heads * d_model * classes,
                mean,
            ),
        ]
    }

    fn rope_operations(&self) -> u64 {
        let steps = if self.layer_pairs { self.depth / 2 } else { self.depth };
        // The residual stream begins with the first block.
        let sequences = match self.rope {
            Rope::None => 0,
            Rope::Hidden => steps,
            Rope::Both => (2 * steps).saturating_sub(1),
        };
        // The class token is not rotated; two products and a sum for every other number.
        (sequences * self.num_patches() * self.d_model * 3) as u64
    }

    fn norm_operations(&self) -> u64 {
        let [d_model, len, depth, read] =
            [self.d_model, self.num_tokens(), self.depth, self.num_read()].map(|n| n as u64);
        // Squares and their sum; mean, ε, root, reciprocal; two products with that and the weight.
        // With a bias also the mean, its subtraction and the bias.
        let norm = match self.norm {
            NormKind::Rms => 2 * d_model + 4 + 2 * d_model,
            NormKind::Layer => d_model + 1 + d_model + 2 * d_model + 4 + 3 * d_model,
        };
        let (pairs, first) = if self.layer_pairs { (depth / 2, 2) } else { (0, 1) };
        // Before the first block, or the first pair, there is nothing to add to.
        let sums = depth.saturating_sub(first) * len * d_model + pairs * 2 * len * d_model;
        depth * len * norm + sums + read * (norm + d_model)
    }

    /// Multiply–adds, and operations beside them, of a token and channel in one block.
    fn scan_operations(&self) -> (u64, u64) {
        let (methods, states) = (self.methods(), self.d_state as u64);
        let scanned = if self.bimamba == Bimamba::None { &methods[..1] } else { &methods[..] };
        let (mut macs, mut others) = (0, 0);
        for method in scanned {
            // The coefficients of every state need delta, which a channel has one of.
            let (recurrences, mean) = if method.form().two_way { (2, 2) } else { (1, 0) };
            macs += recurrences * 2 * states + 1; // and the skip connection
            // Coefficients, and the input term: times B, times u. That of the token before, where
            // the method reads it, is added.
            let before = u64::from(method.form().previous.is_some());
            macs += before * states;
            others += states * (method.operations(self.ssm.series) + 2 + before) + DELTA + mean;
        }
        (macs, others)
    }

    /// Tokens that the head reads, if there is one.
    fn num_read(&self) -> usize {
        if self.num_classes == 0 {
            return 0;
        }
        match (self.class_token, self.pool()) {
            (ClassToken::Middle | ClassToken::Head | ClassToken::Random, _)
            | (ClassToken::None, Pool::Last) => 1,
            (ClassToken::Double, _) => 2,
            (ClassToken::None, Pool::Mean | Pool::Max) => self.num_tokens(),
        }
    }
}
