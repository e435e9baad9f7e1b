//! Weights under detectron2's names, and from a classifier.

use vim_model::{NamedArrays, pytorch_key};

use super::detector::Detector;
use crate::naming::{DenseNaming, weights_by_name};

/// The backbone's names begin with it in detectron2.
const NET: &str = "backbone.net.";
/// The last norm of the backbone, which the original deletes where nothing depends on it.
const NORM: &str = "backbone.norm_f.";
/// The names of the mask head begin with it, here and in detectron2.
const MASKS: [&str; 2] = ["mask_head.", "roi_heads.mask_head."];
/// detectron2's names, where the last norm is unused.
const NAMING: DenseNaming = DenseNaming {
    ours: "box_heads.",
    backbone: NET,
    key: detectron_key,
    is_count: |key| key.ends_with(".num_batches_tracked"),
    is_absent: |key| key.starts_with(&detectron_key(NORM)),
    is_head: |path| path.contains(".cls_score.") || path.starts_with("mask_head.predictor."),
    classes: ("box_heads.0.cls_score.bias", 1),
    is_unused: |_| false,
};
/// The number of each part of a level among detectron2's layers, from stride 4 to stride 32.
const PARTS: [&[(&str, usize)]; 4] = [
    &[("first", 0), ("norm", 1), ("second", 3), ("lateral", 4), ("output", 5)],
    &[("first", 0), ("lateral", 1), ("output", 2)],
    &[("lateral", 0), ("output", 1)],
    &[("lateral", 1), ("output", 2)],
];

/// The original's name of the parameter at `path` of a [`Detector`].
#[must_use]
pub fn detectron_key(path: &str) -> String {
    let known = path.split_once('.').and_then(|(part, rest)| match part {
        "backbone" => Some(format!("{NET}{}", pytorch_key(rest))),
        "pyramid" => of_pyramid(rest),
        "rpn" => of_proposals(rest),
        "box_heads" => of_box_head(rest),
        "mask_head" => Some(match of_conv(rest, 1) {
            Some((number, rest)) => format!("roi_heads.mask_head.mask_fcn{number}.{rest}"),
            None => format!("roi_heads.mask_head.{rest}"),
        }),
        _ => None,
    });
    known.unwrap_or_else(|| path.to_owned())
}

/// The number of a convolution, counted from `first`, and what follows it.
fn of_conv(path: &str, first: usize) -> Option<(usize, &str)> {
    let (number, rest) = path.strip_prefix("convs.")?.split_once('.')?;
    Some((number.parse::<usize>().ok()? + first, rest))
}

fn of_pyramid(path: &str) -> Option<String> {
    let (level, rest) = path.strip_prefix("levels.")?.split_once('.')?;
    let (part, rest) = rest.split_once('.')?;
    let level: usize = level.parse().ok()?;
    let (_, number) = PARTS.get(level)?.iter().find(|(name, _)| *name == part)?;
    Some(format!("backbone.simfp_{}.{number}.{rest}", level + 2))
}

fn of_proposals(path: &str) -> Option<String> {
    const HEAD: &str = "proposal_generator.rpn_head";
    if let Some((number, rest)) = of_conv(path, 0) {
        return Some(format!("{HEAD}.conv.conv{number}.{rest}"));
    }
    let (part, rest) = path.split_once('.')?;
    let part = match part {
        "objectness" => "objectness_logits",
        "deltas" => "anchor_deltas",
        _ => return None,
    };
    Some(format!("{HEAD}.{part}.{rest}"))
}

fn of_box_head(path: &str) -> Option<String> {
    let (stage, rest) = path.split_once('.')?;
    if let Some((number, rest)) = of_conv(rest, 1) {
        return Some(format!("roi_heads.box_head.{stage}.conv{number}.{rest}"));
    }
    let module = if rest.starts_with("fc1") { "box_head" } else { "box_predictor" };
    Some(format!("roi_heads.{module}.{stage}.{rest}"))
}

fn naming(model: &Detector) -> DenseNaming {
    let mut naming = NAMING;
    if model.config().reads_norm() {
        naming.is_absent = |_| false;
    }
    if model.mask_head.is_none() {
        naming.is_unused = |key| MASKS.iter().any(|masks| key.starts_with(masks));
    }
    naming
}

weights_by_name!(Detector, naming);

impl Detector {
    /// Whether something depends on the parameter at `path` here.
    #[must_use]
    pub fn uses(&self, path: &str) -> bool {
        self.config().reads_norm() || !path.starts_with(NORM)
    }

    /// Numbers in all parameters that something depends on.
    #[must_use]
    pub fn num_parameters(&self) -> usize {
        NamedArrays::of(self).filtered(|path| self.uses(path)).num_elements()
    }
}
