//! The optimizer against the formula, and its state through the bytes of a file.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Device;
use vim_model::{DecayGroups, Vim, VimConfig};

use super::*;
use crate::config::TrainConfig;
use crate::task::Objective;
use crate::task::classification::Classifier;
use crate::train::state::{model_from_bytes, optimizer_arrays, optimizer_from_bytes};

/// The update of `torch.optim.AdamW`'s documentation, for one number, in f64.
struct Scalar {
    value: f64,
    first: f64,
    second: f64,
}

impl Scalar {
    fn step(&mut self, gradient: f64, step: i32, lr: f64, decay: f64) {
        self.value -= lr * decay * self.value;
        self.first = 0.9 * self.first + 0.1 * gradient;
        self.second = 0.95 * self.second + 0.05 * gradient * gradient;
        let first = self.first / (1.0 - 0.9f64.powi(step));
        let second = self.second / (1.0 - 0.95f64.powi(step));
        self.value -= lr * first / (second.sqrt() + 1e-8);
    }
}

/// An optimizer of `model`, a layer learning at `layer_decay` times the rate of the next.
fn optimizer(optim: &OptimConfig, model: &Vim, layer_decay: Option<f64>) -> AdamW {
    let train = TrainConfig { layer_decay, ..TrainConfig::default() };
    let config = Config { optim: optim.clone(), train, ..Config::default() };
    let classifier = Classifier::new(&config, model.config().clone()).unwrap();
    let groups = ParamGroup::all(model, &config, |path, rank| classifier.placement(path, rank));
    AdamW::new(optim, groups)
}

fn small() -> Vim {
    small_on(&Device::flex(), 0)
}

/// A model of one block of 16 channels.
pub(crate) fn small_on(device: &Device, seed: u64) -> Vim {
    let config = VimConfig {
        image_size: 8.into(),
        patch_size: 4,
        depth: 1,
        d_model: 16,
        d_state: 2,
        num_classes: 3,
        ..VimConfig::default()
    };
    config.init(&device.clone().autodiff(), seed).unwrap()
}

fn model_to_bytes(model: &Vim) -> Vec<u8> {
    vim_model::NamedArrays::of(model).to_safetensors().unwrap()
}

fn optimizer_to_bytes(optimizer: &AdamW) -> Vec<u8> {
    optimizer_arrays(optimizer).to_safetensors().unwrap()
}

/// Every parameter with its path, flat.
pub(crate) fn values(model: &Vim) -> BTreeMap<String, Vec<f64>> {
    let bytes = model_to_bytes(model);
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let floats = |data: &[u8]| -> Vec<f64> {
        let f32s = data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
        f32s.map(f64::from).collect()
    };
    tensors.iter().map(|(name, t)| (name.to_owned(), floats(t.data()))).collect()
}

/// Gradients that are the parameters themselves times `factor`, plus 0.1.
fn gradients(model: &Vim, factor: f64) -> Vec<Tensor<1>> {
    struct Fill(GradientsParams, f64);
    impl ModuleVisitor for Fill {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.register(param.id, param.val().inner() * self.1 + 0.1);
        }
    }
    let mut fill = Fill(GradientsParams::new(), factor);
    model.visit(&mut fill);
    flat_gradients(model, fill.0)
}

#[test]
fn updates_are_those_of_the_formula_and_decay_where_they_should() {
    let groups = [DecayGroups::Reference, DecayGroups::Intended];
    groups.into_iter().for_each(updates_are_those_of_the_formula);
}

fn updates_are_those_of_the_formula(decay_groups: DecayGroups) {
    let config = OptimConfig {
        betas: [0.9, 0.95],
        eps: 1e-8,
        weight_decay: 0.3,
        decay_groups,
        ..OptimConfig::default()
    };
    let mut model = small();
    let mut optimizer = optimizer(&config, &model, None);
    let mut want: BTreeMap<String, Vec<Scalar>> = values(&model)
        .into_iter()
        .map(|(path, values)| {
            let scalar = |value| Scalar { value, first: 0.0, second: 0.0 };
            (path, values.into_iter().map(scalar).collect())
        })
        .collect();
    for step in 1..=4 {
        let (factor, scale, lr) = (f64::from(step) - 2.5, 0.5, 0.01 * f64::from(step));
        let gradients = gradients(&model, factor);
        model = optimizer.step(model, gradients, Clip::By(scale), lr);
        for (path, scalars) in &mut want {
            // As the original exempts them: one dimension, positions, the class token.
            let name = path.rsplit('.').next().unwrap();
            let intended = decay_groups == DecayGroups::Intended && name == "a_log";
            let exempt = ["bias", "d", "cls_token", "pos_embed"].contains(&name)
                || path.contains("norm")
                || intended;
            let decay = if exempt { 0.0 } else { 0.3 };
            for scalar in scalars {
                let gradient = scale * (factor * scalar.value + 0.1);
                scalar.step(gradient, step, lr, decay);
            }
        }
    }
    for (path, got) in values(&model) {
        for (got, want) in got.iter().zip(&want[&path]) {
            // Four updates of the order of 0.02 in f32.
            assert!((got - want.value).abs() < 2e-5, "{path}: {got} {}", want.value);
        }
    }
    assert_eq!(want.len(), optimizer.moments().len());
}

#[test]
fn layers_near_the_input_learn_more_slowly() {
    // Without weight decay, the first step changes a parameter in proportion to its learning rate.
    let config = OptimConfig { weight_decay: 0.0, ..OptimConfig::default() };
    let step = |factor| {
        let model = small();
        let gradients = gradients(&model, 1.0);
        let mut optimizer = optimizer(&config, &model, factor);
        (values(&model), values(&optimizer.step(model, gradients, Clip::By(1.0), 0.01)))
    };
    let ((before, plain), (_, decayed)) = (step(None), step(Some(0.5)));
    for (path, scale) in [
        ("patch_embed.proj.weight", 0.25),
        ("cls_token", 0.25),
        ("pos_embed", 0.25),
        ("layers.0.mixer.forward.a_log", 0.5),
        ("layers.0.norm.weight", 0.5),
        ("norm_f.weight", 1.0),
        ("head.bias", 1.0),
    ] {
        let changes = |after: &BTreeMap<String, Vec<f64>>| {
            after[path].iter().zip(&before[path]).map(|(a, b)| (a - b).abs()).sum::<f64>()
        };
        let ratio = changes(&decayed) / changes(&plain);
        assert!((ratio - scale).abs() < 1e-3, "{path}: {ratio}");
    }
    let same = step(Some(1.0));
    assert_eq!(same.1, plain);
}

#[test]
fn the_norm_is_over_all_parameters_and_clipping_reaches_its_limit() {
    let model = small();
    let gradients = gradients(&model, 1.0);
    let squares = values(&model).into_values().flatten().map(|v| (v + 0.1) * (v + 0.1));
    let want = squares.sum::<f64>().sqrt();
    let norm = f64::from(
        optimizer(&OptimConfig::default(), &model, None)
            .square_norm(&gradients)
            .unwrap()
            .into_scalar::<f32>(),
    )
    .sqrt();
    assert!((norm - want).abs() < 1e-5 * want, "{norm} {want}");
    assert_eq!(clip_factor(norm, None), 1.0);
    assert_eq!(clip_factor(norm, Some(2.0 * norm)), 1.0);
    let clipped = norm * clip_factor(norm, Some(norm / 4.0));
    assert!((clipped - norm / 4.0).abs() < 1e-5 * norm);
}

#[test]
fn state_survives_the_bytes_exactly() {
    let (mut model, config) = (small(), OptimConfig::default());
    let new = || optimizer(&config, &small(), None);
    let mut optimizer = new();
    let first = gradients(&model, 1.0);
    model = optimizer.step(model, first, Clip::By(1.0), 0.01);
    let bytes = optimizer_to_bytes(&optimizer);
    let device = Device::flex().autodiff();
    let mut back = optimizer_from_bytes(new(), &bytes, &device, "x").unwrap();
    let weights = model_to_bytes(&model);
    let twin = model_from_bytes(small(), &weights, "x").unwrap();
    let (ours, theirs) = (gradients(&model, -1.0), gradients(&twin, -1.0));
    model = optimizer.step(model, ours, Clip::By(1.0), 0.02);
    let twin = back.step(twin, theirs, Clip::By(1.0), 0.02);
    assert_eq!(values(&model), values(&twin));
    assert!(optimizer_from_bytes(new(), &bytes[..99], &device, "x").is_err());
}

// Packed state on a GPU, or one in software, against a tensor for each parameter on the CPU.
#[cfg(feature = "wgpu")]
#[test]
fn what_is_packed_is_updated_saved_and_averaged_as_each_is() {
    use burn::tensor::DeviceKind;

    use crate::train::state::Ema;

    let device = Device::wgpu(DeviceKind::DefaultDevice);
    let config = OptimConfig { weight_decay: 0.3, ..OptimConfig::default() };
    let train = TrainConfig { ema: Some(0.75), ..TrainConfig::default() };
    let new = || optimizer(&config, &small(), Some(0.5));
    let mut each = small();
    let mut packed = model_from_bytes(small_on(&device, 0), &model_to_bytes(&each), "x").unwrap();
    let (mut of_each, mut of_packed) = (new(), new());
    let mut averages = [&each, &packed].map(|model| Ema::new(&train, model).unwrap());
    for step in 1..=4 {
        let (factor, lr) = (f64::from(step) - 2.5, 0.01 * f64::from(step));
        let here = gradients(&each, factor);
        let norm = f64::from(of_each.square_norm(&here).unwrap().into_scalar::<f32>()).sqrt();
        let limit = Some(0.5 * norm);
        each = of_each.step(each, here, Clip::By(clip_factor(norm, limit)), lr);
        averages[0].update(&each, of_each.steps);

        let there = gradients(&packed, factor);
        let square_norm = of_packed.square_norm(&there).unwrap();
        let clip = Clip::To { square_norm: square_norm.clone(), limit };
        packed = of_packed.step(packed, there, clip, lr);
        let weights = of_packed.packed().expect("packed by the step");
        averages[1].update_packed(&packed, weights, of_packed.steps, square_norm);
        if step == 2 {
            // The optimizer is restored from a file.
            let bytes = optimizer_to_bytes(&of_packed);
            let back = optimizer_from_bytes(new(), &bytes, &device, "x").unwrap();
            assert_eq!(optimizer_to_bytes(&back), bytes);
            of_packed = back;
        }
    }
    let close = |got: BTreeMap<String, Vec<f64>>, want: BTreeMap<String, Vec<f64>>, what: &str| {
        assert_eq!(got.len(), want.len());
        for (path, want) in &want {
            for (got, want) in got[path].iter().zip(want) {
                // Four updates of the order of 0.02 in f32, of gradients that are the weights'.
                assert!((got - want).abs() < 2e-5, "{what} {path}: {got} {want}");
            }
        }
    };
    let [average, of_average] = [averages[0].model(&each), averages[1].model(&packed)];
    close(values(&of_average), values(&average), "average");
    close(values(&packed), values(&each), "weights");
    // A step whose norm is not finite changes neither.
    let before = [values(&packed), values(&averages[1].model(&packed))];
    let there = gradients(&packed, f64::NAN);
    let square_norm = of_packed.square_norm(&there).unwrap();
    let clip = Clip::To { square_norm: square_norm.clone(), limit: None };
    packed = of_packed.step(packed, there, clip, 0.1);
    let weights = of_packed.packed().expect("packed by the step");
    averages[1].update_packed(&packed, weights, of_packed.steps, square_norm);
    assert_eq!([values(&packed), values(&averages[1].model(&packed))], before);
}
