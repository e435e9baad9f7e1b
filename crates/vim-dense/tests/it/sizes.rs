//! The models of the original at their real size: numbers of parameters, and every name.

use std::collections::BTreeSet;

use burn::tensor::Device;
use vim_dense::{Segmenter, SegmenterConfig};
use vim_model::{Names, Preset};

fn model(preset: Preset) -> Segmenter {
    let backbone = SegmenterConfig::backbone(preset);
    SegmenterConfig::preset(preset).init(&backbone, 150, &Device::flex(), 0).unwrap()
}

/// Counted on the original's modules at 512 px and 150 classes.
#[test]
fn models_have_the_original_s_numbers_of_parameters() {
    for (preset, all, backbone, decode, aux) in [
        (Preset::Tiny, 12_311_276, 7_556_928, 4_272_918, 481_430),
        (Preset::Small, 45_448_364, 27_500_160, 17_024_406, 923_798),
    ] {
        let model = model(preset);
        assert_eq!(model.num_parameters(), all, "{preset}");
        let cost = model.config().cost(model.backbone_config(), 150).unwrap();
        assert_eq!(cost.parameters(), all as u64, "{preset}");
        // The original's backbone holds the pyramid.
        let (mut of_backbone, mut of_decode, mut of_aux) = (0, 0, 0);
        for (name, data) in model.state(Names::Pytorch).unwrap().iter() {
            if name.contains("running_") || name.contains(".rope.") {
                continue;
            }
            match name.split_once('.').unwrap().0 {
                "backbone" => of_backbone += data.num_elements(),
                "decode_head" => of_decode += data.num_elements(),
                "auxiliary_head" => of_aux += data.num_elements(),
                other => panic!("{other}"),
            }
        }
        assert_eq!((of_backbone, of_decode, of_aux), (backbone, decode, aux), "{preset}");
        assert_eq!(of_backbone + of_decode + of_aux, all);
    }
}

/// The names of the original's state dict, written out by its structure, with their shapes.
fn original(d: usize, rope: bool) -> BTreeSet<(String, Vec<usize>)> {
    let mut keys = BTreeSet::new();
    let mut key = |name: String, shape: &[usize]| {
        assert!(keys.insert((name, shape.to_vec())));
    };
    key("backbone.pos_embed".into(), &[1, 1024, d]);
    key("backbone.patch_embed.proj.weight".into(), &[d, 3, 16, 16]);
    key("backbone.patch_embed.proj.bias".into(), &[d]);
    key("backbone.norm_f.weight".into(), &[d]);
    let (inner, rank) = (2 * d, d / 16);
    for layer in 0..24 {
        let mixer = format!("backbone.layers.{layer}.mixer");
        key(format!("backbone.layers.{layer}.norm.weight"), &[d]);
        key(format!("{mixer}.in_proj.weight"), &[2 * inner, d]);
        key(format!("{mixer}.out_proj.weight"), &[d, inner]);
        for (way, log) in [("", "A_log"), ("_b", "A_b_log")] {
            key(format!("{mixer}.{log}"), &[inner, 16]);
            key(format!("{mixer}.D{way}"), &[inner]);
            key(format!("{mixer}.conv1d{way}.weight"), &[inner, 1, 4]);
            key(format!("{mixer}.conv1d{way}.bias"), &[inner]);
            key(format!("{mixer}.x_proj{way}.weight"), &[rank + 32, inner]);
            key(format!("{mixer}.dt_proj{way}.weight"), &[inner, rank]);
            key(format!("{mixer}.dt_proj{way}.bias"), &[inner]);
        }
    }
    if rope {
        key("backbone.rope.freqs_cos".into(), &[1024, d]);
        key("backbone.rope.freqs_sin".into(), &[1024, d]);
    }
    for up in ["fpn1.0", "fpn1.3", "fpn2.0"] {
        key(format!("backbone.{up}.weight"), &[d, d, 2, 2]);
        key(format!("backbone.{up}.bias"), &[d]);
    }
    let mut norms = vec![("backbone.fpn1.1".to_owned(), d)];
    let mut modules = vec![
        ("decode_head.bottleneck".to_owned(), [d, 5 * d], 3),
        ("decode_head.fpn_bottleneck".to_owned(), [d, 4 * d], 3),
        ("auxiliary_head.convs.0".to_owned(), [256, d], 3),
    ];
    modules.extend((0..4).map(|i| (format!("decode_head.psp_modules.{i}.1"), [d, d], 1)));
    modules.extend((0..3).map(|i| (format!("decode_head.lateral_convs.{i}"), [d, d], 1)));
    modules.extend((0..3).map(|i| (format!("decode_head.fpn_convs.{i}"), [d, d], 3)));
    for (name, [outputs, inputs], side) in modules {
        key(format!("{name}.conv.weight"), &[outputs, inputs, side, side]);
        norms.push((format!("{name}.bn"), outputs));
    }
    for (name, channels) in norms {
        for what in ["weight", "bias", "running_mean", "running_var"] {
            key(format!("{name}.{what}"), &[channels]);
        }
    }
    for (head, channels) in [("decode_head", d), ("auxiliary_head", 256)] {
        key(format!("{head}.conv_seg.weight"), &[150, channels, 1, 1]);
        key(format!("{head}.conv_seg.bias"), &[150]);
    }
    keys
}

#[test]
fn names_and_shapes_are_the_original_s() {
    for (preset, d, rope) in [(Preset::Tiny, 192, false), (Preset::Small, 384, true)] {
        let state = model(preset).state(Names::Pytorch).unwrap();
        let found: BTreeSet<(String, Vec<usize>)> =
            state.iter().map(|(name, data)| (name.to_owned(), data.shape().to_vec())).collect();
        let expected = original(d, rope);
        let differ: Vec<_> = found.symmetric_difference(&expected).collect();
        assert!(differ.is_empty(), "{preset}: {differ:?}");
    }
}

/// Most of the work is in two layers; both figures are products of the sizes.
#[test]
fn work_is_in_the_finest_level() {
    let backbone = SegmenterConfig::backbone(Preset::Tiny);
    let cost = SegmenterConfig::preset(Preset::Tiny).cost(&backbone, 150).unwrap();
    let of = |name| cost.components.iter().find(|component| component.name == name).unwrap().macs;
    let weights = 128 * 128 * 4 * 192 * 192 * 9;
    assert_eq!(of("fpn_bottleneck") - weights, 128 * 128 * 4 * 192 * 3);
    assert_eq!(of("fpn_convs"), (128 * 128 + 64 * 64 + 32 * 32) * 192 * 192 * 9);
    assert_eq!(format!("{:.0}", cost.flops() as f64 / 1e9), "79");
}
