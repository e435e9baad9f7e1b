//! How an optimizer treats the parameters: weight decay, and learning rates by depth.

use vim_model::layer_of;

/// Whether weight decay acts on the parameter at `path`, a tensor with `rank` dimensions: on all
/// but biases and those with one dimension. Positions and `a_log` decay.
///
/// # Source
///
/// `seg/mmcv_custom/layer_decay_optimizer_constructor.py` of the original, which means to exempt
/// positions and class tokens too, but looks for their names without `backbone.`.
#[must_use]
pub fn decays(path: &str, rank: usize) -> bool {
    rank > 1 && !path.ends_with(".bias")
}

/// How often the decay of learning rates by layer acts on the parameter at `path` of a model with
/// `depth` blocks.
///
/// `depth + 1` times on what makes the tokens. As the original (`by_block` false), on nothing else:
/// it looks for blocks by another backbone's name. By block, `depth − i` times on block `i`, and
/// not on norm, pyramid and heads, as in BEiT (Bao et al. 2021).
#[must_use]
pub fn layers_above(path: &str, depth: usize, by_block: bool) -> usize {
    let Some(own) = path.strip_prefix("backbone.") else { return 0 };
    match layer_of(own, depth) {
        0 => depth + 1,
        layer if by_block => depth + 1 - layer,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_original_scales_what_makes_the_tokens_alone() {
        let count = |path, by_block| layers_above(path, 24, by_block);
        for path in ["backbone.pos_embed", "backbone.patch_embed.proj.weight"] {
            assert_eq!((count(path, false), count(path, true)), (25, 25), "{path}");
        }
        let block = "backbone.layers.3.mixer.in_proj.weight";
        assert_eq!((count(block, false), count(block, true)), (0, 21));
        for path in ["backbone.norm_f.weight", "pyramid.fpn2.weight", "decode_head.conv_seg.bias"] {
            assert_eq!((count(path, false), count(path, true)), (0, 0), "{path}");
        }
    }

    #[test]
    fn biases_and_vectors_do_not_decay() {
        assert!(
            decays("backbone.pos_embed", 3) && decays("backbone.layers.0.mixer.forward.a_log", 2)
        );
        assert!(!decays("decode_head.bottleneck.bn.weight", 1));
        assert!(!decays("backbone.patch_embed.proj.bias", 1));
    }
}
