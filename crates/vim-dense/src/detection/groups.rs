//! How an optimizer treats the parameters of a detector.

use vim_model::layer_of;

/// Whether weight decay acts on the parameter at `path`: on all but the positions, biases and
/// normalizations too.
///
/// # Source
///
/// The original's `det/`: its optimizer exempts the normalizations of `torch.nn` alone, and the
/// detector has none.
#[must_use]
pub fn decays(path: &str) -> bool {
    path != "backbone.pos_embed"
}

/// How often the decay of learning rates by layer acts on the parameter at `path` of a detector on
/// `depth` blocks: `depth + 1` times on what makes the tokens, `depth − i` times on block `i`, and
/// on nothing else.
///
/// # Source
///
/// `get_vim_lr_decay_rate` of the original's `det/`.
#[must_use]
pub fn layers_above(path: &str, depth: usize) -> usize {
    path.strip_prefix("backbone.").map_or(0, |own| depth + 1 - layer_of(own, depth))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deeper_the_block_the_larger_its_rate() {
        for (path, layers, is_decayed) in [
            ("backbone.pos_embed", 25, false),
            ("backbone.patch_embed.proj.bias", 25, true),
            ("backbone.layers.0.norm.weight", 24, true),
            ("backbone.layers.23.mixer.forward.a_log", 1, true),
            ("backbone.norm_f.weight", 0, true),
            ("pyramid.levels.0.norm.bias", 0, true),
            ("rpn.objectness.bias", 0, true),
        ] {
            assert_eq!((layers_above(path, 24), decays(path)), (layers, is_decayed), "{path}");
        }
    }
}
