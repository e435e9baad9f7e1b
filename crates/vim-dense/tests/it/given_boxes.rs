//! A detector's training pass of boxes that are given.

use burn::tensor::{Device, Tensor};
use vim_dense::DenseError;
use vim_dense::detection::boxes::Edges;
use vim_dense::detection::{Detector, DetectorConfig, StagePass, TrainingPass, Truths};
use vim_model::Draw;

use crate::detection::{SIDE, images, numbers, pass, small, truths};

const SIZE: [usize; 2] = [SIDE, SIDE - 10];
const DRAW: Option<Draw> = Some(Draw { seed: 5, first: 8 });

/// Two images with two truths and one.
fn scenes() -> Vec<Truths> {
    vec![
        truths(&[[4.0, 6.0, 30.0, 40.0], [20.0, 10.0, 50.0, 60.0]]),
        truths(&[[8.0, 8.0, 40.0, 44.0]]),
    ]
}

fn given(
    model: &Detector,
    feature: &Tensor<4>,
    boxes: &[Vec<Vec<Edges>>],
) -> Result<TrainingPass, DenseError> {
    model.training_pass_of_boxes(feature, &[SIZE; 2], &scenes(), DRAW, boxes)
}

/// The boxes of each stage and image.
fn boxes(of: &TrainingPass) -> Vec<Vec<Vec<Edges>>> {
    let of_stage =
        |stage: &StagePass| stage.targets.iter().map(|targets| targets.boxes.clone()).collect();
    of.stages.iter().map(of_stage).collect()
}

/// The bits of each loss, by its name.
fn losses(of: &TrainingPass) -> Vec<(&'static str, u32)> {
    let bits = |(name, loss)| (name, numbers::<1>(loss)[0].to_bits());
    of.losses.named().into_iter().map(bits).collect()
}

#[test]
fn boxes_of_a_pass_that_are_given_back_lose_the_same() {
    let device = Device::flex();
    let model = small(DetectorConfig::default(), &device);
    let own = pass(&model, &scenes(), DRAW, &device).unwrap();
    assert!(own.stages.iter().all(|stage| stage.scores.is_some()) && own.masks.logits.is_some());
    let feature = model.feature(images(2, &device), None).unwrap();
    let again = given(&model, &feature, &boxes(&own)).unwrap();
    assert_eq!(losses(&again), losses(&own));
    for (again, own) in again.stages.iter().zip(&own.stages) {
        assert_eq!(again.targets, own.targets);
    }
    assert_eq!(again.masks.targets, own.masks.targets);
}

#[test]
fn boxes_of_another_pass_lose_something_else() {
    let device = Device::flex();
    let model = small(DetectorConfig::default(), &device);
    let own = pass(&model, &scenes(), DRAW, &device).unwrap();
    let feature = model.feature(images(2, &device), None).unwrap();
    for moved in 0..3 {
        let mut boxes = boxes(&own);
        let classes = &own.stages[moved].targets[0].classes;
        let foreground = classes.iter().position(|&class| class < model.num_classes()).unwrap();
        boxes[moved][0][foreground][0] += 1.0;
        let other = given(&model, &feature, &boxes).unwrap();
        for ((name, other), (_, own)) in losses(&other).into_iter().zip(losses(&own)) {
            let is_same = other == own;
            match name {
                _ if name == format!("loss_box_reg_stage{moved}") => assert!(!is_same, "{name}"),
                _ if name == format!("loss_cls_stage{moved}") => assert!(!is_same, "{name}"),
                "loss_mask" => assert_eq!(is_same, moved > 0),
                _ => assert!(is_same, "{name} of a box of stage {moved}"),
            }
        }
    }
    // They are not those of the pass, whose features are others.
    let doubled = feature.mul_scalar(2.0);
    let of = |model: &Detector| model.training_pass(&doubled, &[SIZE; 2], &scenes(), DRAW).unwrap();
    let free = of(&model);
    assert_ne!(boxes(&free), boxes(&own));
    let held = given(&model, &doubled, &boxes(&own)).unwrap();
    assert_eq!(boxes(&held), boxes(&own));
    assert_ne!(losses(&held), losses(&free));
}

#[test]
fn given_boxes_that_are_none_are_named() {
    let device = Device::flex();
    let model = small(DetectorConfig::default(), &device);
    let feature = model.feature(images(2, &device), None).unwrap();
    let named = |boxes: &[Vec<Vec<Edges>>]| match given(&model, &feature, boxes) {
        Err(DenseError::Argument { what, .. }) => what,
        Ok(_) | Err(_) => "nothing",
    };
    let of = |edges: Edges| vec![vec![vec![edges], vec![]]; 3];
    let good = of([4.0, 6.0, 9.0, 9.0]);
    assert_eq!(named(&good), "nothing");
    assert_eq!(named(&vec![vec![vec![]; 2]; 3]), "nothing");
    assert_eq!(named(&good[..2]), "boxes of the stages");
    assert_eq!(named(&vec![vec![vec![]]; 3]), "boxes of the stages");
    for edges in [[4.0, 6.0, 4.0, 9.0], [4.0, f32::NAN, 9.0, 9.0], [0.0, 0.0, f32::INFINITY, 1.0]] {
        assert_eq!(named(&of(edges)), "a stage's box", "{edges:?}");
    }
}
