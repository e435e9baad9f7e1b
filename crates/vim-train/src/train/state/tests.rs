//! The moving average against its formula.

use burn::tensor::{Device, Tensor};
use vim_model::Vim;

use super::*;
use crate::config::TrainConfig;
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
