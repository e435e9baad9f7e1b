//! What recipes draw, beside distributions that have a formula.

use std::iter::zip;

use vim_data::ops::Op;
use vim_data::{AugmentPreset, AutoAugment, CropMode, CropPlan, EraseFill, EraseMode, Recipe};

use crate::chi2::{assert_distributed, assert_fits, normal_cdf};
use crate::draws::{DRAWS, draws, none};

#[test]
fn three_augment() {
    let config = Recipe::preset(AugmentPreset::Three);
    let (mut kinds, mut radii) = (vec![0; 3], Vec::new());
    for plan in draws(&config, [375, 500], [224; 2]) {
        assert_eq!((plan.ops.len(), plan.erase.len()), (4, 0), "one of three, and the jitter");
        let kind = if plan.ops[0] == Op::Grayscale {
            0
        } else if plan.ops[0] == (Op::Solarize { threshold: 128 }) {
            1
        } else {
            let Op::Blur { radius } = plan.ops[0] else { panic!("{plan:?}") };
            radii.push(radius);
            2
        };
        kinds[kind] += 1;
    }
    assert_fits("choice", &kinds, &[1.0 / 3.0; 3]);
    assert_distributed("radius", &mut radii, |radius| (radius - 0.1) / 1.9);
}

#[test]
fn padded_and_simple_crops_are_anywhere() {
    let mut padded = vec![0; 81];
    for plan in draws(&Recipe::default(), [32; 2], [32; 2]) {
        let CropPlan::Padded { padding: [4, 4], top, left } = plan.crop else { panic!("{plan:?}") };
        padded[top * 9 + left] += 1;
    }
    assert_fits("offsets", &padded, &[1.0 / 81.0; 81]);

    // 300 × 500 becomes 16 × 26 (26.67 rounded down); padded by 4, the crop has 9 and 19 places.
    let config = Recipe { crop: CropMode::Simple, ..none() };
    let (mut tops, mut lefts) = (vec![0; 9], vec![0; 19]);
    for plan in draws(&config, [300, 500], [16; 2]) {
        let CropPlan::Simple { resized: [16, 26], padding: 4, top, left } = plan.crop else {
            panic!("{plan:?}")
        };
        tops[top] += 1;
        lefts[left] += 1;
    }
    assert_fits("rows", &tops, &[1.0 / 9.0; 9]);
    assert_fits("columns", &lefts, &[1.0 / 19.0; 19]);
}

#[test]
fn flips_are_as_likely_as_said() {
    for probability in [0.0, 0.2, 0.5, 1.0] {
        let config = Recipe { hflip: probability, ..none() };
        let flips = draws(&config, [8; 2], [8; 2]).filter(|plan| plan.flip).count() as u64;
        assert_fits("flips", &[flips, DRAWS - flips], &[probability, 1.0 - probability]);
    }
}

#[test]
fn colours_of_boxes_are_normal() {
    let config = Recipe { erase_prob: 1.0, erase_mode: EraseMode::Rand, ..none() };
    let mut channels = [const { Vec::new() }; 3];
    for plan in draws(&config, [224; 2], [224; 2]) {
        let EraseFill::Colour(colour) = plan.erase[0].fill else { panic!("{plan:?}") };
        zip(&mut channels, colour).for_each(|(kept, value)| kept.push(f64::from(value)));
    }
    for mut values in channels {
        assert_distributed("colour", &mut values, normal_cdf);
    }
}

/// The magnitude itself: normal around 9, cut to 0..=10, as the angle of a rotation shows it.
#[test]
fn magnitudes_are_normal_up_to_ten() {
    let auto_augment: AutoAugment = "rand-m9-mstd0.5-inc1".parse().unwrap();
    let config = Recipe { auto_augment, ..none() };
    let plans = draws(&config, [224; 2], [224; 2]);
    let magnitudes = plans.flat_map(|plan| plan.ops).filter_map(|op| {
        if let Op::Rotate { degrees } = op { Some(degrees.abs() / 3.0) } else { None }
    });
    let (mut below, at_ten): (Vec<f64>, Vec<f64>) = magnitudes.partition(|&m| m < 10.0);
    let share = normal_cdf(-2.0);
    let counts = [at_ten.len() as u64, below.len() as u64];
    assert_fits("cut", &counts, &[share, 1.0 - share]);
    assert_distributed("magnitude", &mut below, |m| normal_cdf((m - 9.0) / 0.5) / (1.0 - share));
}
