//! The CIFAR recipe.

use std::collections::BTreeMap;

use vim_data::{Augment, AugmentPlan};

/// Pads, crops and flips pixel by pixel, as the definition reads.
fn reference(plan: AugmentPlan, source: &[u8], size: usize) -> Vec<u8> {
    let mut target = Vec::new();
    for y in 0..size {
        for x in 0..size {
            let x = if plan.flip { size - 1 - x } else { x };
            for channel in 0..3 {
                let row = (y + plan.row).checked_sub(4).filter(|&row| row < size);
                let column = (x + plan.column).checked_sub(4).filter(|&column| column < size);
                target.push(match (row, column) {
                    (Some(row), Some(column)) => source[(row * size + column) * 3 + channel],
                    _ => 0,
                });
            }
        }
    }
    target
}

#[test]
fn every_plan_equals_the_definition() {
    for size in [1, 3, 5, 32, 37] {
        let source: Vec<u8> = (0..3 * size * size).map(|at| (at % 255) as u8 + 1).collect();
        for code in 0..162 {
            let plan = AugmentPlan { row: code % 9, column: code / 9 % 9, flip: code >= 81 };
            let mut target = vec![77; source.len()];
            plan.apply(&source, size, &mut target);
            assert_eq!(target, reference(plan, &source, size), "{plan:?} at {size}");
        }
    }
}

#[test]
fn identity_changes_nothing() {
    let source: Vec<u8> = (0..3 * 32 * 32).map(|at| (at % 256) as u8).collect();
    let mut target = vec![0; source.len()];
    AugmentPlan::draw(Augment::None, 1, 2, 3).apply(&source, 32, &mut target);
    assert_eq!(target, source);
}

#[test]
fn offsets_and_flips_are_uniform() {
    let mut offsets = BTreeMap::new();
    let mut flips = 0_u32;
    for index in 0..81_000 {
        let plan = AugmentPlan::draw(Augment::Cifar, 5, 0, index);
        *offsets.entry((plan.row, plan.column)).or_insert(0_u32) += 1;
        flips += u32::from(plan.flip);
    }
    assert_eq!(offsets.len(), 81);
    assert!(offsets.keys().all(|&(row, column)| row <= 8 && column <= 8));
    // Six standard deviations: 188 of 1 000, 854 of 40 500.
    assert!(offsets.values().all(|count| count.abs_diff(1_000) < 188), "{offsets:?}");
    assert!(flips.abs_diff(40_500) < 854, "{flips}");
}

#[test]
fn each_part_of_the_key_matters() {
    let plans = |seed, epoch, first: usize| -> Vec<_> {
        (first..first + 50).map(|i| AugmentPlan::draw(Augment::Cifar, seed, epoch, i)).collect()
    };
    assert_eq!(plans(1, 2, 0), plans(1, 2, 0));
    for other in [plans(2, 2, 0), plans(1, 3, 0), plans(2, 1, 0), plans(1, 2, 50)] {
        assert_ne!(plans(1, 2, 0), other);
    }
}
