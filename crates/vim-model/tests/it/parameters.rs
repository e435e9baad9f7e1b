//! How many parameters, which, and which of them decay.

use burn::module::Module;
use vim_model::{Bimamba, DecayGroups, Preset, VimConfig, decays};

use crate::support::{build, small};

#[test]
fn presets_have_the_published_sizes() {
    for (preset, expected) in [
        (Preset::Tiny, 7_148_008),
        (Preset::Small, 25_796_584),
        (Preset::Base, 97_598_440),
        (Preset::TinyStride8, 7_250_344),
        (Preset::SmallStride8, 26_001_256),
        (Preset::BaseDepth12, 49_564_648),
    ] {
        assert_eq!(VimConfig::preset(preset).num_parameters(), expected, "{preset:?}");
    }
    let cifar100 =
        VimConfig { image_size: 32.into(), num_classes: 100, ..VimConfig::preset(Preset::Tiny) };
    assert_eq!(cifar100.num_parameters(), 6_937_444);
    let v1 = VimConfig { bimamba: Bimamba::V1, ..VimConfig::preset(Preset::Tiny) };
    assert_eq!(v1.num_parameters(), 6_567_400);
}

#[test]
fn the_closed_form_counts_what_is_built() {
    let odd = VimConfig { stride: Some(3), d_conv: 3, expand: 3, d_model: 20, ..small() };
    for config in [VimConfig::preset(Preset::Tiny), VimConfig::preset(Preset::Small), small(), odd]
    {
        let model = build(&config, 0);
        assert_eq!(model.num_params(), config.num_parameters());
        let listed: usize =
            model.parameters().iter().map(|p| p.shape.iter().product::<usize>()).sum();
        assert_eq!(listed, config.num_parameters());
    }
}

#[test]
fn all_paths_shapes_and_decays() {
    let mut expected = vec![
        ("patch_embed.proj.weight".to_string(), vec![16, 3, 4, 4], true),
        ("patch_embed.proj.bias".to_string(), vec![16], false),
        ("cls_token".to_string(), vec![1, 1, 16], false),
        ("pos_embed".to_string(), vec![1, 17, 16], false),
    ];
    for layer in 0..2 {
        let mut add = |path: &str, shape: &[usize], decays| {
            expected.push((format!("layers.{layer}.{path}"), shape.to_vec(), decays));
        };
        add("norm.weight", &[16], false);
        add("mixer.in_proj.weight", &[16, 64], true);
        for way in ["forward", "backward"] {
            add(&format!("mixer.{way}.a_log"), &[32, 4], true);
            add(&format!("mixer.{way}.d"), &[32], false);
            add(&format!("mixer.{way}.conv1d.weight"), &[32, 1, 4], true);
            add(&format!("mixer.{way}.conv1d.bias"), &[32], false);
            add(&format!("mixer.{way}.x_proj.weight"), &[32, 9], true);
            add(&format!("mixer.{way}.dt_proj.weight"), &[1, 32], true);
            add(&format!("mixer.{way}.dt_proj.bias"), &[32], false);
        }
        add("mixer.out_proj.weight", &[32, 16], true);
    }
    expected.push(("norm_f.weight".to_string(), vec![16], false));
    expected.push(("head.weight".to_string(), vec![16, 5], true));
    expected.push(("head.bias".to_string(), vec![5], false));

    let model = build(&small(), 0);
    let listed = |groups| -> Vec<_> {
        let with = model.parameters().into_iter();
        with.map(|p| (p.path.clone(), p.shape.clone(), p.decays(groups))).collect()
    };
    assert_eq!(listed(DecayGroups::Reference), expected);
    // What the original marks and does not read: of its marked parameters only these have two
    // dimensions.
    for (path, _, decays) in &mut expected {
        *decays &= !path.ends_with(".a_log");
    }
    assert_eq!(listed(DecayGroups::Intended), expected);
}

#[test]
fn a_name_is_exempt_by_its_last_part_only() {
    let decays = |path, rank| decays(path, rank, DecayGroups::Reference);
    assert!(decays("bias.weight", 2));
    assert!(!decays("head.bias", 2));
    assert!(!decays("pos_embed", 3));
    assert!(decays("layers.0.mixer.forward.a_log", 2));
    assert!(!decays("layers.0.mixer.forward.d", 1));
}
