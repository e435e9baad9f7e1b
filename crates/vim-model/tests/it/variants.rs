//! Every variant of the original against the network in plain loops, and the properties that define
//! it.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor, TensorData};
use strum::VariantArray;
use vim_kernels::{Discretization, KernelChoice, Series};
use vim_model::{
    Bimamba, ClassToken, DtRank, GateGradient, LayerScale, NormKind, Pool, Rope, SsmConfig, Vim,
    VimConfig,
};

use crate::naive::Naive;
use crate::support::{cross_entropy, error, gradients, images, numbers, small, values};

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
                let noise = TensorData::new(noise, shape);
                if value.device().is_autodiff() {
                    let value = value.inner();
                    let noise = Tensor::from_data(noise, &value.device());
                    Tensor::from_inner(value + noise).require_grad()
                } else {
                    let noise = Tensor::from_data(noise, &value.device());
                    value + noise
                }
            })
        }
    }
    config.init(device, 5).unwrap().map(&mut Shake(0))
}

/// A few variants of each option, and mixtures: `(name, configuration)`.
pub(crate) fn variants() -> Vec<(&'static str, VimConfig)> {
    let ssm = SsmConfig::default();
    let forward_only = VimConfig { bimamba: Bimamba::None, ..small() };
    let shared = VimConfig { bimamba: Bimamba::V1, ..small() };
    let pooled = |pool| VimConfig { class_token: ClassToken::None, pool: Some(pool), ..small() };
    let class = |class_token| VimConfig { class_token, ..small() };
    let rope = |rope, class_token| VimConfig { rope, class_token, ..small() };
    vec![
        ("as it is", small()),
        ("forward only", forward_only.clone()),
        ("shared projections", shared.clone()),
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
        ("flipped", VimConfig { flip_ratio: 1.0, ..small() }),
        ("flipped head", VimConfig { flip_ratio: 1.0, ..class(ClassToken::Head) }),
        ("flipped last", VimConfig { flip_ratio: 1.0, ..pooled(Pool::Last) }),
        ("flipped rope", VimConfig { flip_ratio: 1.0, ..rope(Rope::Both, ClassToken::Middle) }),
        ("pairs", VimConfig { layer_pairs: true, depth: 4, ..small() }),
        (
            "pairs, flipped, rope",
            VimConfig {
                layer_pairs: true,
                depth: 4,
                flip_ratio: 1.0,
                ..rope(Rope::Both, ClassToken::Middle)
            },
        ),
        ("odd grid", VimConfig { image_size: 12.into(), ..small() }),
        ("stride", VimConfig { stride: Some(2), image_size: 14.into(), ..small() }),
        ("rectangle", VimConfig { image_size: [8, 21].into(), ..small() }),
        ("upright, double", VimConfig { image_size: [16, 8].into(), ..class(ClassToken::Double) }),
        ("one patch", VimConfig { image_size: 4.into(), ..class(ClassToken::Double) }),
        ("dt_rank", VimConfig { dt_rank: DtRank::Rank(5), ..small() }),
        ("sizes", VimConfig { expand: 3, d_conv: 3, d_state: 5, d_model: 12, ..small() }),
        ("d_conv", VimConfig { d_conv: 2, bimamba: Bimamba::V1, ..small() }),
        (
            "a method each way",
            VimConfig {
                ssm: SsmConfig {
                    method_fwd: Some(Discretization::Bilinear),
                    method_bwd: Some(Discretization::Foh),
                    ..ssm
                },
                ..small()
            },
        ),
        (
            "a method each way of shared projections",
            VimConfig {
                ssm: SsmConfig { method_bwd: Some(Discretization::Poly), ..ssm },
                ..shared
            },
        ),
        (
            "all at once",
            VimConfig {
                norm: NormKind::Layer,
                layer_scale: LayerScale::Starts(0.3),
                divide_out: Some(false),
                rope: Rope::Both,
                class_token: ClassToken::Head,
                discretization: Discretization::HighOrder,
                flip_ratio: 1.0,
                depth: 4,
                layer_pairs: true,
                ..small()
            },
        ),
    ]
}

/// f32 sums over up to 65 tokens and 36 channels against f64, through up to four blocks.
const TOLERANCE: f64 = 2e-5;

#[test]
fn every_variant_agrees_with_plain_loops() {
    for (name, config) in variants() {
        let flipped = config.flip_ratio == 1.0;
        for scan in [KernelChoice::Kernel, KernelChoice::Reference] {
            let ssm = SsmConfig { scan, ..config.ssm };
            let config = VimConfig { ssm, ..config.clone() };
            let device = Device::flex();
            let model = shaken(&config, &device);
            let parameters = values(&model);
            let data = images(2, config.image_size);
            let pixels = data.try_to_vec::<f32>().unwrap();
            let logits = numbers(model.forward(Tensor::from_data(data, &device)).unwrap());
            let naive = Naive { config: &config, parameters: &parameters };
            let images = pixels.chunks(pixels.len() / 2);
            for (image, logits) in images.zip(logits.chunks(config.num_classes)) {
                let (expected, _) = naive.logits(image, flipped);
                let expected: Vec<f32> = expected.iter().map(|&x| x as f32).collect();
                let error = error(logits, &expected);
                assert!(error < TOLERANCE, "{name}, {scan}: {error:.1e}");
            }
        }
    }
}

/// Both series of all methods, in both ways of both kinds of mixer.
#[test]
fn every_method_agrees_with_plain_loops() {
    for &discretization in Discretization::VARIANTS {
        for &series in Series::VARIANTS {
            let ssm = SsmConfig { series, ..SsmConfig::default() };
            let config = VimConfig { discretization, ssm, ..small() };
            let device = Device::flex();
            let model = shaken(&config, &device);
            let parameters = values(&model);
            let data = images(1, 16);
            let image = data.try_to_vec::<f32>().unwrap();
            let logits = numbers(model.forward(Tensor::from_data(data, &device)).unwrap());
            let naive = Naive { config: &config, parameters: &parameters };
            let expected: Vec<f32> =
                naive.logits(&image, false).0.iter().map(|&x| x as f32).collect();
            let error = error(&logits, &expected);
            assert!(error < TOLERANCE, "{discretization}, {series}: {error:.1e}");
        }
    }
}

/// The variants are not each other: an option that did nothing would pass the tests above.
#[test]
fn variants_differ() {
    let device = Device::flex();
    let logits = |config: &VimConfig| {
        let data = images(1, config.image_size);
        numbers(shaken(config, &device).forward(Tensor::from_data(data, &device)).unwrap())
    };
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
    let device = Device::flex();
    let base = VimConfig { image_size: [8, 12].into(), ..small() };
    let run = |class_token, pool| {
        let config = VimConfig { class_token, pool, ..base.clone() };
        let model = shaken(&config, &device);
        let x = || Tensor::from_data(images(2, config.image_size), &device);
        (model.token_logits(x()).unwrap(), model.forward(x()).unwrap())
    };
    let one = |all: &Tensor<3>, token| numbers(all.clone().narrow(1, token, 1));
    let (all, logits) = run(ClassToken::Middle, None);
    assert_eq!(all.dims(), [2, 7, 5]);
    assert!(error(&one(&all, 3), &numbers(logits)) < 1e-6);
    let (all, logits) = run(ClassToken::None, Some(Pool::Last));
    assert!(error(&one(&all, 5), &numbers(logits)) < 1e-6);
    let (all, logits) = run(ClassToken::None, Some(Pool::Max));
    assert!(error(&numbers(all.max_dim(1)), &numbers(logits)) < 1e-6);
    // The head is linear: it may come before the mean or after.
    let (all, logits) = run(ClassToken::None, Some(Pool::Mean));
    assert!(error(&numbers(all.mean_dim(1)), &numbers(logits)) < 1e-5);
}
