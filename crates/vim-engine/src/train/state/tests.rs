//! The moving average against its formula.

use burn::module::{Param, RunningState};
use burn::tensor::{Device, Tensor};
use vim_dense::BatchNorm;
use vim_model::Vim;

use super::*;
use crate::config::{EmaStatistics, TrainConfig};
#[cfg(feature = "wgpu")]
use crate::train::optim::flat_values;
use crate::train::optim::tests::{self as optim_tests, small_on};

fn small(seed: u64) -> Vim {
    small_on(&Device::flex(), seed)
}

fn numbers(model: &Vim) -> Vec<f32> {
    optim_tests::values(model).into_values().flatten().map(|value| value as f32).collect()
}

#[test]
fn it_is_the_weighted_sum_of_all_weights_since_the_start() {
    let models = [small(0), small(1), small(2), small(3)];
    let values = models.each_ref().map(numbers);
    for (warmup, decays) in [(false, [0.9; 3]), (true, [2.0 / 11.0, 3.0 / 12.0, 4.0 / 13.0])] {
        let train = TrainConfig { ema: Some(0.9), ema_warmup: warmup, ..TrainConfig::default() };
        let mut ema = Ema::new(&train, &models[0]).unwrap();
        for updates in 1..=3 {
            ema.update(&models[updates], updates as u64);
        }
        let [a, b, c] = decays;
        let weights = [a * b * c, (1.0 - a) * b * c, (1.0 - b) * c, 1.0 - c];
        let got = numbers(&ema.model(&models[3]));
        assert_eq!(got.len(), values[0].len());
        for (i, got) in got.into_iter().enumerate() {
            let want: f64 = (0..4).map(|n| weights[n] * f64::from(values[n][i])).sum();
            // Each of the three updates rounds to f32.
            let allowed = 1e-6 * (1.0 + want.abs());
            assert!((f64::from(got) - want).abs() < allowed, "{got} {want}");
        }
    }
    assert!(Ema::new(&TrainConfig::default(), &models[0]).is_none());
}

#[test]
fn the_warm_up_ends_at_the_decay() {
    let train = TrainConfig { ema: Some(0.5), ema_warmup: true, ..TrainConfig::default() };
    let ema = Ema::new(&train, &small(0)).unwrap();
    assert_eq!([7, 8, 9, 10_000].map(|t| ema.decay_at(t)), [8.0 / 17.0, 0.5, 0.5, 0.5]);
}

#[test]
fn the_average_is_evaluated_and_the_model_trains_on() {
    let (model, other) = (small(0), small(1));
    let train = TrainConfig { ema: Some(0.0), ..TrainConfig::default() };
    let mut ema = Ema::new(&train, &model).unwrap();
    ema.update(&other, 1);
    // A decay of 0 is the last weights.
    assert_eq!(numbers(&ema.model(&model)), numbers(&other));
    let images = Tensor::<4>::ones([1, 3, 8, 8], &Device::flex());
    let logits = |model: &Vim| -> Vec<f32> {
        model.forward(images.clone()).unwrap().into_data().iter().collect()
    };
    assert_eq!(logits(&ema.model(&model)), logits(&other.valid()));
}

/// Means and variances of a model's three states.
const STATISTICS: [(f32, f32); 3] = [(0.0, 1.0), (4.0, 2.0), (8.0, 5.0)];

/// A batch normalization whose running statistics are these.
fn normalization(device: &Device, (mean, variance): (f32, f32)) -> BatchNorm {
    let number = |value: f32| Tensor::<1>::from_floats([value], &device.clone().autodiff());
    BatchNorm {
        weight: Param::from_tensor(number(1.0)),
        bias: Param::from_tensor(number(0.0)),
        running_mean: RunningState::new(number(mean)),
        running_var: RunningState::new(number(variance)),
    }
}

fn statistics(model: &BatchNorm) -> [f32; 2] {
    [&model.running_mean, &model.running_var].map(|state| state.value_sync().into_scalar::<f32>())
}

#[test]
fn running_statistics_are_averaged_as_the_weights_are() {
    let models = STATISTICS.map(|numbers| normalization(&Device::flex(), numbers));
    for (kept, expected) in [
        // 0.75 · (0.75 · 0 + 0.25 · 4) + 0.25 · 8, and likewise of 1, 2 and 5.
        (None, [2.75, 2.1875]),
        (Some(EmaStatistics::Averaged), [2.75, 2.1875]),
        (Some(EmaStatistics::Model), [8.0, 5.0]),
    ] {
        let train = TrainConfig { ema: Some(0.75), ema_statistics: kept, ..TrainConfig::default() };
        let mut ema = Ema::new(&train, &models[0]).unwrap();
        ema.update(&models[1], 1);
        ema.update(&models[2], 2);
        assert_eq!(statistics(&ema.model(&models[2])), expected, "{kept:?}");
        // Copies of a model share its statistics: these are still its own.
        assert_eq!(statistics(&models[2]), [8.0, 5.0], "{kept:?}");
    }
}

// On a GPU, or one in software, where the weights and the statistics of a model are packed.
#[cfg(feature = "wgpu")]
#[test]
fn packed_statistics_are_averaged_unless_a_step_is_not_finite() {
    use burn::tensor::DeviceKind;

    let device = Device::wgpu(DeviceKind::DefaultDevice);
    let models = STATISTICS.map(|numbers| normalization(&device, numbers));
    let train = TrainConfig { ema: Some(0.75), ..TrainConfig::default() };
    let mut ema = Ema::new(&train, &models[0]).unwrap();
    for (model, norm, expected) in [
        (&models[1], 1.0, [1.0, 1.25]),
        (&models[2], f32::NAN, [1.0, 1.25]),
        (&models[2], 1.0, [2.75, 2.1875]),
    ] {
        let values = flat_values(model);
        let packing = FlatParams::of(&values);
        let weights = packing.pack(values);
        let square_norm = Tensor::from_floats([norm], &device);
        ema.update_packed(model, (&packing, &weights), 1, square_norm);
        assert_eq!(statistics(&ema.model(model)), expected, "{norm}");
    }
}
