//! How far a segmenter's arrays may be off, by what they are and what is computed in.

use std::fmt::Display;

use strum::VariantArray;
use vim_kernels::Precision;

use super::EvalGoldenArgs;
use super::arrays::Comparison;

/// A module whose gradients nearly cancel where it normalizes two numbers.
const CANCELS: &str = "g.decode_head.psp_modules.0.1.";
/// Distance of the two largest logits from which on a class is certain, in f32.
const MARGIN: f64 = 1e-3;

/// What an array is.
#[derive(Clone, Copy, Debug, strum::Display, PartialEq, Eq, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub(super) enum Kind {
    /// Between the backbone and the heads' last layers.
    Features,
    /// Of all sizes.
    Logits,
    /// The largest of a softmax, which the reference stores in f16.
    Probabilities,
    /// Where they are certain.
    Classes,
    /// Of both heads.
    Losses,
    /// Of the pixels that are right.
    Accuracies,
    /// Running means and variances.
    Statistics,
    /// Of the images.
    Dx,
    /// Of the parameters.
    Gradients,
    /// Of [`CANCELS`].
    Cancelling,
}

impl Kind {
    pub(super) fn of(array: &str) -> Self {
        let has = |parts: &[&str]| parts.iter().any(|part| array.contains(part));
        match array {
            "dx" => Self::Dx,
            _ if array.starts_with(CANCELS) => Self::Cancelling,
            _ if array.starts_with("g.") => Self::Gradients,
            _ if array.starts_with("train.after.") => Self::Statistics,
            _ if has(&["argmax"]) => Self::Classes,
            _ if has(&["prob_max"]) => Self::Probabilities,
            _ if has(&["logits"]) => Self::Logits,
            _ if has(&["acc_seg"]) => Self::Accuracies,
            _ if has(&["loss"]) => Self::Losses,
            _ => Self::Features,
        }
    }
}

/// The largest relative errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bands {
    outputs: Option<f64>,
    parameters: Option<f64>,
    images: Option<f64>,
    precision: Precision,
}

impl Bands {
    pub(super) fn of(args: &EvalGoldenArgs) -> Self {
        Self {
            outputs: args.tol,
            parameters: args.tol_grad,
            images: args.tol_dx,
            precision: args.dtype.unwrap_or_default(),
        }
    }

    /// The band of the array `name`: as given, else of its kind.
    pub(super) fn band(&self, name: &str) -> f64 {
        let kind = Kind::of(name);
        let own = match self.precision {
            Precision::F32 | Precision::Tf32 => Self::f32(kind),
            Precision::Bf16 => Self::bf16(kind),
        };
        let given = match kind {
            Kind::Classes | Kind::Probabilities => None,
            Kind::Dx => self.images,
            Kind::Gradients | Kind::Cancelling => self.parameters,
            Kind::Features | Kind::Logits | Kind::Losses | Kind::Accuracies | Kind::Statistics => {
                self.outputs
            }
        };
        given.unwrap_or(own)
    }

    /// Rounding of sums in f32 on both sides: the reference itself, once more in f64, is off by
    /// 1.5e-6, gradients by 3e-5 and those of the images by 1e-5.
    fn f32(kind: Kind) -> f64 {
        match kind {
            Kind::Classes => 0.0,
            Kind::Features | Kind::Logits | Kind::Losses | Kind::Accuracies | Kind::Statistics => {
                1e-5
            }
            Kind::Dx => 1e-4,
            Kind::Gradients => 5e-4,
            Kind::Probabilities => 1e-3,
            Kind::Cancelling => 5e-3,
        }
    }

    /// Numbers of 8 bits of significand are off by up to 2⁻⁹ = 2e-3 each, and a few follow one
    /// another. As is said here of both models' arrays, first PyTorch 2.1's autocast on the CPU is
    /// off, then this program on an H100; the bands are wider by half or more.
    fn bf16(kind: Kind) -> f64 {
        match kind {
            Kind::Classes => 0.0,
            // 1.0e-2, 0.8e-2.
            Kind::Features => 2e-2,
            // 0.9e-2, 3.4e-2: in training, where a batch norm of few numbers spreads an error.
            Kind::Logits => 5e-2,
            // 2.5e-4, 5.5e-4: the mean over thousands of pixels.
            Kind::Losses => 1e-3,
            // One pixel in fifty has another class, and a fifth of them are right.
            Kind::Accuracies => 0.2,
            // Where the two largest are close, their distance decides.
            Kind::Probabilities => 0.1,
            // 7.1e-2 (by PyTorch 1.12), 2.9e-2: after a step, of a batch norm of a few numbers.
            Kind::Statistics => 0.12,
            // 0.26, 0.26: a ReLU whose input is nearer to 0 than its error passes all or nothing.
            Kind::Dx => 0.5,
            // 0.48, 0.57, for the same reason, and batch norms of a few numbers spread it.
            Kind::Gradients => 1.0,
            // 0.57, 0.31: what is left of a difference of two numbers.
            Kind::Cancelling => 1.2,
        }
    }

    /// How far the largest logit must be from the second for a class to be certain: in bf16 twice
    /// what `largest`, the largest magnitude of a logit, may be off by.
    pub(super) fn margin(&self, largest: f32) -> f32 {
        match self.precision {
            Precision::F32 | Precision::Tf32 => MARGIN as f32,
            Precision::Bf16 => 2.0 * Self::bf16(Kind::Logits) as f32 * largest,
        }
    }
}

/// The largest error of each kind, which `of` tells by the name, in lines.
pub(super) fn summary<K>(comparisons: &[Comparison], of: impl Fn(&str) -> K) -> String
where
    K: Copy + PartialEq + Display + VariantArray,
{
    let mut lines =
        vec![format!("{:<13}  {:>6}  {:>10}  {:>9}  which", "kind", "arrays", "max rel", "band")];
    for &kind in K::VARIANTS {
        let of_kind = || comparisons.iter().filter(|one| of(&one.array) == kind);
        let by_size = |a: &&Comparison, b: &&Comparison| {
            a.max_relative_error.total_cmp(&b.max_relative_error)
        };
        if let Some(worst) = of_kind().max_by(by_size) {
            lines.push(format!(
                "{:<13}  {:>6}  {:>10.3e}  {:>9.0e}  {}",
                kind.to_string(),
                of_kind().count(),
                worst.max_relative_error,
                worst.tolerance,
                worst.array
            ));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_told_apart_by_their_names() {
        for (array, kind) in [
            ("eval.map0", Kind::Features),
            ("eval.psp", Kind::Features),
            ("eval.logits_max", Kind::Logits),
            ("slide.logits", Kind::Logits),
            ("slide.rescaled_argmax", Kind::Classes),
            ("slide.rescaled_prob_max", Kind::Probabilities),
            ("train.decode.loss_ce", Kind::Losses),
            ("check.loss_over_valid_only", Kind::Losses),
            ("train.aux.acc_seg", Kind::Accuracies),
            ("train.after.backbone.fpn1.1.running_var", Kind::Statistics),
            ("dx", Kind::Dx),
            ("g.decode_head.psp_modules.0.1.bn.bias", Kind::Cancelling),
            ("g.decode_head.psp_modules.1.1.bn.bias", Kind::Gradients),
        ] {
            assert_eq!(Kind::of(array), kind, "{array}");
        }
    }

    #[test]
    fn the_summary_names_the_worst_of_each_kind() {
        let compared = |name: &str, got: f32| Comparison::new(name, &[got], &[1.0], 0.5);
        let all = [compared("eval.map0", 1.25), compared("eval.map1", 1.5), compared("dx", 1.0)];
        let text = summary(&all, Kind::of);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[1], "features            2    5.000e-1       5e-1  eval.map1");
    }
}
