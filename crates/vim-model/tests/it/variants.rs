//! Every variant of the original against the network in plain loops, and the properties that define
//! it.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor, TensorData};
use strum::VariantArray;
use vim_kernels::{Discretization, KernelChoice};
use vim_model::{
    Bimamba, ClassToken, DtRank, GateGradient, LayerScale, NormKind, Pool, Rope, SsmConfig, Vim,
    VimConfig,
};

use crate::naive::Naive;
use crate::support::{
    batch, cross_entropy, error, gradients, images, logits, numbers, small, values,
};

/// A model of which no parameter is where it started: no zero or one hides a mistake.
pub(crate) fn shaken(config: &VimConfig, device: &Device) -> Vim {
    struct Shake(usize);
    impl ModuleMapper for Shake {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|value| {
                self.0 += 1;
                let shape = value.dims();
                let noise: Vec<f32> = (0..shape.iter().product())
                    .map(|i: usize| 0.1 * ((i * 7 + self.0 * 13) as f32 * 1.7).sin())
                    .collect();
                let noise = Tensor::from_data(TensorData::new(noise, shape), &value.device());
                let shaken = (value + noise).detach();
                if shaken.device().is_autodiff() { shaken.require_grad() } else { shaken }
            })
        }
    }
    config.init(device, 5).unwrap().map(&mut Shake(0))
}

/// A few variants of each option, and mixtures: `(name, configuration)`.
pub(crate) fn variants() -> Vec<(&'static str, VimConfig)> {
    let shared = || VimConfig { bimamba: Bimamba::V1, ..small() };
    let pooled = |pool| VimConfig { class_token: ClassToken::None, pool: Some(pool), ..small() };
    let class = |class_token| VimConfig { class_token, ..small() };
    let rope = |rope, class_token| VimConfig { rope, class_token, ..small() };
    let paired = |config| VimConfig { layer_pairs: true, depth: 4, ..config };
    let flipped = |config| VimConfig { flip_ratio: 1.0, ..config };
    let each_way = |method_fwd, method_bwd, config| VimConfig {
        ssm: SsmConfig { method_fwd, method_bwd, ..SsmConfig::default() },
        ..config
    };
    let rope_on_both = rope(Rope::Both, ClassToken::Middle);
    vec![
        ("as it is", small()),
        ("forward only", VimConfig { bimamba: Bimamba::None, ..small() }),
        ("shared projections", shared()),
        ("not halved", VimConfig { divide_out: Some(false), ..small() }),
        ("head", class(ClassToken::Head)),
        ("random", class(ClassToken::Random)),
        ("double", class(ClassToken::Double)),
        ("mean", pooled(Pool::Mean)),
        ("max", pooled(Pool::Max)),
        ("last", pooled(Pool::Last)),
        ("no positions", VimConfig { abs_pos_embed: false, ..small() }),
        ("layer norm", VimConfig { norm: NormKind::Layer, d_state: 8, ..small() }),
        ("epsilon", VimConfig { norm: NormKind::Layer, norm_eps: 0.3, ..small() }),
        ("epsilon of rms", VimConfig { norm_eps: 0.3, ..small() }),
        ("layer scale", VimConfig { layer_scale: LayerScale::Starts(0.7), ..small() }),
        ("rope", rope(Rope::Hidden, ClassToken::Middle)),
        ("rope on both", VimConfig { depth: 3, ..rope(Rope::Both, ClassToken::Head) }),
        (
            "rope, no class token",
            VimConfig { rope_grid: Some(5), ..rope(Rope::Both, ClassToken::None) },
        ),
        ("flipped", flipped(small())),
        ("flipped head", flipped(class(ClassToken::Head))),
        ("flipped last", flipped(pooled(Pool::Last))),
        ("flipped rope", flipped(rope_on_both.clone())),
        ("pairs", paired(small())),
        ("pairs, flipped, rope", paired(flipped(rope_on_both))),
        ("odd grid", VimConfig { image_size: 12.into(), ..small() }),
        ("stride", VimConfig { stride: Some(2), image_size: 14.into(), ..small() }),
        ("rectangle", VimConfig { image_size: [8, 21].into(), ..small() }),
        ("upright, double", VimConfig { image_size: [16, 8].into(), ..class(ClassToken::Double) }),
        ("one patch", VimConfig { image_size: 4.into(), ..class(ClassToken::Double) }),
        ("dt_rank", VimConfig { dt_rank: DtRank::Rank(5), ..small() }),
        ("sizes", VimConfig { expand: 3, d_conv: 3, d_state: 5, d_model: 12, ..small() }),
        ("d_conv", VimConfig { d_conv: 2, ..shared() }),
        (
            "a method each way",
            each_way(Some(Discretization::Bilinear), Some(Discretization::Foh), small()),
        ),
        (
            "a method each way of shared projections",
            each_way(None, Some(Discretization::Poly), shared()),
        ),
        (
            "methods that read the token before",
            each_way(Some(Discretization::Tustin), Some(Discretization::FohLinear), small()),
        ),
        (
            "all at once",
            paired(flipped(VimConfig {
                norm: NormKind::Layer,
                layer_scale: LayerScale::Starts(0.3),
                divide_out: Some(false),
                discretization: Discretization::HighOrder,
                ..rope(Rope::Both, ClassToken::Head)
            })),
        ),
    ]
}

/// All methods by their series: `(name, configuration)`.
pub(crate) fn methods() -> Vec<(String, VimConfig)> {
    let mut methods = Vec::new();
    for &discretization in Discretization::VARIANTS {
        for &series in discretization.series() {
            let ssm = SsmConfig { series, ..SsmConfig::default() };
            let config = VimConfig { discretization, ssm, ..small() };
            methods.push((format!("{discretization}, {series}"), config));
        }
    }
    methods
}

/// f32 sums over up to 65 tokens and 36 channels against f64, through up to four blocks.
const TOLERANCE: f64 = 2e-5;

fn agrees_with_plain_loops(name: &str, config: &VimConfig) {
    let model = shaken(config, &Device::flex());
    let naive = Naive { config, parameters: &values(&model) };
    let images = || batch(2, config.image_size);
    let (pixels, logits) = (numbers(images()), logits(&model, images()));
    for (image, logits) in pixels.chunks(pixels.len() / 2).zip(logits.chunks(config.num_classes)) {
        let (expected, _) = naive.logits(image, config.flip_ratio == 1.0);
        let expected: Vec<f32> = expected.iter().map(|&x| x as f32).collect();
        let error = error(logits, &expected);
        assert!(error < TOLERANCE, "{name}, {}: {error:.1e}", config.ssm.scan);
    }
}

#[test]
fn every_variant_agrees_with_plain_loops() {
    for (name, config) in variants() {
        for scan in [KernelChoice::Kernel, KernelChoice::Reference] {
            let ssm = SsmConfig { scan, ..config.ssm };
            agrees_with_plain_loops(name, &VimConfig { ssm, ..config.clone() });
        }
    }
}

/// Both series of all methods, in both ways.
#[test]
fn every_method_agrees_with_plain_loops() {
    for (name, config) in methods() {
        agrees_with_plain_loops(&name, &config);
    }
}

/// The variants are not each other: an option that did nothing would pass the tests above.
#[test]
fn variants_differ() {
    let logits =
        |config: &VimConfig| logits(&shaken(config, &Device::flex()), batch(1, config.image_size));
    // In evaluation a random place is the head; and reversing all tokens of a model whose class
    // token is in the middle exchanges the roles of the two ways only.
    let same = [("head", "random")];
    let all: Vec<_> =
        variants().into_iter().map(|(name, config)| (name, logits(&config))).collect();
    for (i, (a, x)) in all.iter().enumerate() {
        for (b, y) in &all[i + 1..] {
            let differ = error(x, y) > 1e-4;
            assert_eq!(differ, !same.contains(&(a, b)), "{a} and {b}");
        }
    }
}

/// Two implementations of every operation, one with gradients written by hand, one by autodiff.
#[test]
fn every_parameter_of_every_variant_is_trained() {
    let device = Device::flex().autodiff();
    for (name, config) in variants() {
        let run = |scan| {
            let ssm = SsmConfig { scan, ..config.ssm };
            let model = shaken(&VimConfig { ssm, ..config.clone() }, &device);
            assert_eq!(model.num_params(), config.num_parameters(), "{name}");
            let x = Tensor::from_data(images(3, config.image_size), &device);
            let loss = cross_entropy(model.forward_train(x, 8).unwrap(), &[0, 3, 4]);
            gradients(&model, &loss.backward())
        };
        let (kernel, reference) = (run(KernelChoice::Kernel), run(KernelChoice::Reference));
        let last = format!("layers.{}.mixer.", config.depth - 1);
        for (path, (_, expected)) in &reference {
            let got = &kernel[path].1;
            if expected.iter().all(|&g| g == 0.0) {
                // The first token that a direction meets has no past for A to weigh. Where it is
                // the one that the head reads, the last block's A of that direction does nothing.
                assert!(path.starts_with(&last) && path.ends_with("a_log"), "{name}: {path}");
                assert!(got.iter().all(|&g| g == 0.0), "{name}: {path}");
                continue;
            }
            let error = error(got, expected);
            assert!(error < TOLERANCE, "{name}: {path}: {error:.1e}");
        }
    }
}

/// What the original loses is the backward way's part of the gate's gradient, and nothing else.
#[test]
fn the_upstream_gate_gradient_misses_a_part() {
    let device = Device::flex().autodiff();
    let run = |v1_gate_gradient| {
        let ssm = SsmConfig { v1_gate_gradient, ..SsmConfig::default() };
        let base = VimConfig { depth: 1, ssm, ..small() };
        let config = VimConfig { bimamba: Bimamba::V1, ..base };
        let model = shaken(&config, &device);
        let x = Tensor::from_data(images(3, config.image_size), &device);
        let logits = model.forward(x).unwrap();
        let grads = cross_entropy(logits.clone(), &[0, 3, 4]).backward();
        (numbers(logits), gradients(&model, &grads))
    };
    let (logits, exact) = run(None);
    let (same_logits, upstream) = run(Some(GateGradient::Upstream));
    assert_eq!(logits, same_logits);
    assert_eq!(exact, run(Some(GateGradient::Exact)).1);
    // One block, and a head that reads one token: the gate of that token is all that there is to
    // lose.
    let before =
        ["cls_token", "pos_embed", "layers.0.norm.weight", "layers.0.mixer.in_proj.weight"];
    for (path, (_, exact)) in &exact {
        assert_eq!(before.contains(&path.as_str()), exact != &upstream[path].1, "{path}");
    }
}

/// The original's pooling by `all`: what the head says of every token, before any is chosen.
#[test]
fn logits_of_all_tokens_have_those_of_the_model_among_them() {
    let run = |class_token, pool| {
        let config = VimConfig { class_token, pool, image_size: [8, 12].into(), ..small() };
        let model = shaken(&config, &Device::flex());
        let x = || batch(2, config.image_size);
        (model.token_logits(x()).unwrap(), logits(&model, x()))
    };
    let one = |all: &Tensor<3>, token| numbers(all.clone().narrow(1, token, 1));
    let (all, expected) = run(ClassToken::Middle, None);
    assert_eq!(all.dims(), [2, 7, 5]);
    assert!(error(&one(&all, 3), &expected) < 1e-6);
    let (all, expected) = run(ClassToken::None, Some(Pool::Last));
    assert!(error(&one(&all, 5), &expected) < 1e-6);
    let (all, expected) = run(ClassToken::None, Some(Pool::Max));
    assert!(error(&numbers(all.max_dim(1)), &expected) < 1e-6);
    // The head is linear: it may come before the mean or after.
    let (all, expected) = run(ClassToken::None, Some(Pool::Mean));
    assert!(error(&numbers(all.mean_dim(1)), &expected) < 1e-5);
}
