//! Every row of the table of initial values.

use burn::tensor::Device;
use vim_model::{DtBInit, PatchInit, Preset, SsmConfig, VimConfig};

use crate::support::{Named, build, small, values};

const DEPTH: usize = 4;

/// Vim-Ti's widths, with 25 tokens and four blocks.
fn config() -> VimConfig {
    VimConfig { image_size: 80.into(), depth: DEPTH, ..VimConfig::preset(Preset::Tiny) }
}

fn built(config: &VimConfig, seed: u64) -> Named {
    values(&build(config, seed))
}

fn moments(numbers: &[f32]) -> (f64, f64) {
    let count = numbers.len() as f64;
    let mean = numbers.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
    let variance = numbers.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

fn largest(model: &Named, path: &str) -> f64 {
    model[path].1.iter().fold(0.0, |max, x| f64::from(x.abs()).max(max))
}

/// Mean 0 and standard deviation `std` within five standard errors, that of a deviation being at
/// most std/√(2n) for what is drawn here; and nothing beyond `limit`.
fn spread(model: &Named, path: &str, std: f64, limit: f64) {
    let numbers = &model[path].1;
    let (mean, got) = moments(numbers);
    let error = std / (numbers.len() as f64).sqrt();
    assert!(mean.abs() < 5.0 * error, "{path}: mean {mean}");
    assert!((got - std).abs() < 5.0 * error / 2.0_f64.sqrt(), "{path}: std {got}, not {std}");
    let largest = largest(model, path);
    assert!(largest <= limit * (1.0 + 1e-6), "{path}: {largest} is beyond {limit}");
}

fn uniform(model: &Named, path: &str, bound: f64) {
    spread(model, path, bound / 3.0_f64.sqrt(), bound);
    let largest = largest(model, path);
    assert!(largest > 0.98 * bound, "{path}: {largest} is not near {bound}");
}

fn constant(model: &Named, path: &str, value: f32) {
    assert!(model[path].1.iter().all(|&x| x == value), "{path} is not {value}");
}

#[test]
fn embedding_and_head() {
    let model = built(&config(), 1);
    // 1 / √(3 · 16²) / 0.87962566; timm 0.4.12 draws 0.04108, and up to 4.35 deviations.
    let std = 0.041_022_4;
    spread(&model, "patch_embed.proj.weight", std, 6.0 * std);
    assert!(largest(&model, "patch_embed.proj.weight") > 3.5 * std, "it is not cut");
    constant(&model, "patch_embed.proj.bias", 0.0);
    for path in ["cls_token", "pos_embed", "head.weight"] {
        spread(&model, path, 0.02, 0.12);
    }
    let beyond = model["head.weight"].1.iter().filter(|x| x.abs() > 0.04).count() as f64;
    let share = beyond / model["head.weight"].1.len() as f64;
    assert!((share - 0.0455).abs() < 0.003, "normal beyond two deviations, not cut there: {share}");
    constant(&model, "head.bias", 0.0);
    constant(&model, "norm_f.weight", 1.0);
}

/// What configurations of version 1 mean, and no other parameter starts otherwise.
#[test]
fn a_truncated_embedding_is_cut_at_two_deviations() {
    let truncated = VimConfig { patch_init: PatchInit::Truncated, ..config() };
    let (model, ours) = (built(&truncated, 1), built(&config(), 1));
    // A normal number that is cut at two deviations has 0.8796 of its deviation left.
    let lecun = (768.0_f64).sqrt().recip();
    let cut = 2.0 * lecun / 0.879_625_661;
    spread(&model, "patch_embed.proj.weight", lecun, cut);
    let most = largest(&model, "patch_embed.proj.weight");
    assert!(most > 0.999 * cut, "of 147,456 some come close to the cut");
    for (path, value) in &ours {
        let is_same = &model[path] == value;
        assert_eq!(is_same, path != "patch_embed.proj.weight", "{path}");
    }
}

#[test]
fn every_block() {
    let model = built(&config(), 2);
    for layer in 0..DEPTH {
        let at = |name: &str| format!("layers.{layer}.{name}");
        constant(&model, &at("norm.weight"), 1.0);
        uniform(&model, &at("mixer.in_proj.weight"), (192.0_f64).sqrt().recip());
        let out_proj = (384.0_f64).sqrt().recip() / (DEPTH as f64).sqrt();
        uniform(&model, &at("mixer.out_proj.weight"), out_proj);
        for direction in ["forward", "backward"] {
            let at = |name: &str| format!("layers.{layer}.mixer.{direction}.{name}");
            uniform(&model, &at("conv1d.weight"), 0.5);
            uniform(&model, &at("conv1d.bias"), 0.5);
            uniform(&model, &at("x_proj.weight"), (384.0_f64).sqrt().recip());
            uniform(&model, &at("dt_proj.weight"), (12.0_f64).sqrt().recip());
            constant(&model, &at("d"), 1.0);
            let (shape, a_log) = &model[&at("a_log")];
            assert_eq!(shape, &[384, 16]);
            for (index, &value) in a_log.iter().enumerate() {
                assert_eq!(value, ((index % 16 + 1) as f64).ln() as f32, "{index}");
            }
        }
    }
}

fn starting_deltas(model: &Named, direction: &str) -> Vec<f64> {
    (0..DEPTH)
        .flat_map(|layer| &model[&format!("layers.{layer}.mixer.{direction}.dt_proj.bias")].1)
        .map(|&bias| f64::from(bias).exp().ln_1p())
        .collect()
}

/// Log-uniform in 0.001 … 0.1: the logarithm has mean ln 0.01 and deviation ln 100 / √12.
fn starts_log_uniform(deltas: &[f64]) {
    let range = 1e-3 * (1.0 - 1e-5)..=1e-1 * (1.0 + 1e-5);
    assert!(deltas.iter().all(|delta| range.contains(delta)));
    let logs: Vec<f32> = deltas.iter().map(|delta| delta.ln() as f32).collect();
    let ((mean, std), error) = (moments(&logs), 1.33 / (logs.len() as f64).sqrt());
    assert!((mean - 0.01_f64.ln()).abs() < 5.0 * error, "mean {mean}");
    assert!((std - 100.0_f64.ln() / 12.0_f64.sqrt()).abs() < 5.0 * error, "std {std}");
}

#[test]
fn delta_starts_log_uniform_both_ways() {
    let model = built(&config(), 3);
    starts_log_uniform(&starting_deltas(&model, "forward"));
    starts_log_uniform(&starting_deltas(&model, "backward"));
}

#[test]
fn upstream_zero_zeroes_the_reverse_bias_and_nothing_else() {
    let ssm = SsmConfig { dt_b_init: DtBInit::UpstreamZero, ..SsmConfig::default() };
    let (upstream, ours) = (built(&VimConfig { ssm, ..config() }, 3), built(&config(), 3));
    starts_log_uniform(&starting_deltas(&upstream, "forward"));
    for (path, value) in &ours {
        if path.ends_with("mixer.backward.dt_proj.bias") {
            constant(&upstream, path, 0.0);
        } else {
            assert_eq!(&upstream[path], value, "{path}");
        }
    }
}

#[test]
fn the_seed_and_the_path_are_all_that_counts() {
    let device = Device::flex();
    device.seed(11);
    let first = built(&small(), 5);
    device.seed(12);
    assert_eq!(first, built(&small(), 5));
    let other = built(&small(), 6);
    assert_ne!(first["layers.0.mixer.in_proj.weight"], other["layers.0.mixer.in_proj.weight"]);
    // Same shape, same rule, another path.
    assert_ne!(first["layers.0.mixer.in_proj.weight"].1, first["layers.1.mixer.in_proj.weight"].1);
    assert_ne!(
        first["layers.0.mixer.forward.x_proj.weight"].1,
        first["layers.0.mixer.backward.x_proj.weight"].1
    );
    // A deeper model with more classes starts with the same first block.
    let deeper = built(&VimConfig { depth: 3, num_classes: 9, ..small() }, 5);
    for path in
        ["layers.0.mixer.in_proj.weight", "layers.1.mixer.forward.x_proj.weight", "pos_embed"]
    {
        assert_eq!(first[path], deeper[path], "{path}");
    }
}

/// A record of what seed 0 means: if this fails, every published run has lost its initial values.
#[test]
fn seed_zero_means_what_it_always_meant() {
    let model = built(&small(), 0);
    let first = |path: &str| model[path].1[0];
    assert_eq!(first("layers.0.mixer.in_proj.weight"), 0.099_411_53);
    // By way of a logarithm and a cosine, whose last digit is the platform's.
    assert!((first("head.weight") + 0.016_324_572).abs() < 1e-8);
    assert!((first("pos_embed") + 0.022_759_313).abs() < 1e-8);
}
