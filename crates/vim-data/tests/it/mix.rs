//! Mixup and cutmix. `check_golden` compares boxes, targets and losses with the originals'.

use vim_data::{AugmentPreset, MixKey, MixMode, MixPlan, Recipe};

use crate::chi2::assert_distributed;

fn recipe(mode: MixMode) -> Recipe {
    Recipe { mix_mode: mode, ..Recipe::preset(AugmentPreset::Deit) }
}

#[test]
fn modes_share_what_they_say() {
    let draw = |mode| recipe(mode).draw_mix(MixKey::default(), 8, [32; 2]);
    let batch = draw(MixMode::Batch);
    assert!(batch.len() == 8 && batch.iter().all(|plan| *plan == batch[0]));
    let pairs = draw(MixMode::Pair);
    assert!((0..8).all(|i| pairs[i] == pairs[7 - i]));
    assert!((1..4).all(|i| pairs[i] != pairs[0]));
    let each = draw(MixMode::Elem);
    assert!((0..8).all(|i| (0..i).all(|j| each[i] != each[j])));
}

#[test]
fn every_part_of_the_key_matters() {
    let draw = |key| recipe(MixMode::Batch).draw_mix(key, 2, [224; 2]);
    let key = MixKey { seed: 1, epoch: 2, step: 3, shard: 4 };
    assert_eq!(draw(key), draw(key));
    for other in [
        MixKey { seed: 2, ..key },
        MixKey { epoch: 3, ..key },
        MixKey { step: 4, ..key },
        MixKey { shard: 5, ..key },
    ] {
        assert_ne!(draw(key), draw(other));
    }
}

#[test]
fn without_mixing_any_batch_will_do() {
    let recipe = Recipe::default();
    assert!(!recipe.mixes());
    assert_eq!(recipe.draw_mix(MixKey::default(), 3, [32; 2]), [MixPlan::None; 3]);
    recipe.check_batch(3).unwrap();
}

#[test]
fn an_odd_batch_cannot_be_mixed() {
    let recipe = recipe(MixMode::Batch);
    recipe.check_batch(4).unwrap();
    let message = recipe.check_batch(5).unwrap_err().to_string();
    assert!(message.contains("train.batch_size") && message.contains("even"), "{message}");
}

/// The distribution function of Beta(a, a): by Simpson's rule on 0..½, for a < 1 after t = s^(1/a),
/// which takes the pole away; the other half by symmetry.
fn beta_cdf(x: f64, a: f64) -> f64 {
    let p = a.min(1.0);
    let density = |s: f64| s.powf(a / p - 1.0) * (1.0 - s.powf(1.0 / p)).powf(a - 1.0);
    let integral = |end: f64| {
        let end = end.powf(p);
        let step = end / 64.0;
        let inner: f64 =
            (1..64).map(|i| density(step * f64::from(i)) * f64::from(2 + i % 2 * 2)).sum();
        (density(0.0) + inner + density(end)) * step / 3.0
    };
    let below = integral(x.min(1.0 - x)) / (2.0 * integral(0.5));
    if x < 0.5 { below } else { 1.0 - below }
}

#[test]
fn weights_are_beta_distributed() {
    assert!((beta_cdf(0.3, 1.0) - 0.3).abs() < 1e-9);
    assert!((beta_cdf(0.3, 2.0) - 0.216).abs() < 1e-6); // 3x² − 2x³
    for alpha in [0.1, 0.8, 1.0, 2.5] {
        let recipe = Recipe { mixup: alpha, ..Recipe::default() };
        recipe.check().unwrap();
        let draw = |step| recipe.draw_mix(MixKey { step, ..MixKey::default() }, 2, [32; 2])[0];
        let mut lambdas: Vec<f64> = (0..20_000).map(|step| draw(step).lambda()).collect();
        assert!(lambdas.iter().all(|lambda| (0.0..=1.0).contains(lambda)));
        assert_distributed("lambda", &mut lambdas, |x| beta_cdf(x, alpha));
    }
}

#[test]
fn any_positive_parameter_gives_weights() {
    for alpha in [1e-300, 1e-9, 1e9, 1e300] {
        let recipe = Recipe { mixup: alpha, ..Recipe::default() };
        recipe.check().unwrap();
        for step in 0..100 {
            let key = MixKey { step, ..MixKey::default() };
            let lambda = recipe.draw_mix(key, 2, [32; 2])[0].lambda();
            assert!((0.0..=1.0).contains(&lambda), "{alpha}: {lambda}");
        }
    }
}
