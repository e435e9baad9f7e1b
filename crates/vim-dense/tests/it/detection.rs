//! A detector as a whole: its parameters by number and name, passes of every kind of image, files.

use std::collections::BTreeSet;
use std::io::Cursor;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor};
use vim_dense::DenseError;
use vim_dense::detection::mask_target::InstanceMask;
use vim_dense::detection::{DetectionLosses, Detector, DetectorConfig, TrainingPass, Truths};
use vim_model::{Draw, LoadOptions, NamedArrays, Names, Preset, VimConfig};
use vim_torch::{Section, read_checkpoint};

use crate::support::dict;

/// Classes of the small models.
const CLASSES: usize = 3;
/// Sides of the images that they see.
pub(super) const SIDE: usize = 64;

fn small_backbone() -> VimConfig {
    VimConfig {
        image_size: SIDE.into(),
        depth: 2,
        d_model: 8,
        d_state: 2,
        drop_path: 0.0,
        ..DetectorConfig::backbone(Preset::Tiny)
    }
}

pub(super) fn small(config: DetectorConfig, device: &Device) -> Detector {
    let config = DetectorConfig {
        channels: 4,
        box_features: 6,
        anchor_size: 2.0,
        anchor_samples: 32,
        box_samples: 16,
        ..config
    };
    config.init(&small_backbone(), CLASSES, device, 7).unwrap()
}

fn polygon([left, top, right, bottom]: [f32; 4]) -> InstanceMask {
    let [left, top, right, bottom] = [left, top, right, bottom].map(f64::from);
    InstanceMask::Polygons(vec![vec![left, top, right, top, right, bottom, left, bottom]])
}

pub(super) fn truths(boxes: &[[f32; 4]]) -> Truths {
    Truths {
        boxes: boxes.to_vec(),
        classes: (0..boxes.len()).map(|at| at % CLASSES).collect(),
        masks: boxes.iter().map(|&edges| polygon(edges)).collect(),
    }
}

/// Images of waves.
pub(super) fn images(count: usize, device: &Device) -> Tensor<4> {
    let numbers: Vec<f32> =
        (0..count * 3 * SIDE * SIDE).map(|at| (at as f32 * 0.37).sin()).collect();
    let data = burn::tensor::TensorData::new(numbers, [count, 3, SIDE, SIDE]);
    Tensor::from_data(data, device)
}

pub(super) fn pass(
    model: &Detector,
    of: &[Truths],
    draw: Option<Draw>,
    device: &Device,
) -> Result<TrainingPass, DenseError> {
    let feature = model.feature(images(of.len(), device), None)?;
    model.training_pass(&feature, &vec![[SIDE, SIDE - 10]; of.len()], of, draw)
}

pub(super) fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter().collect()
}

/// Paths of parameters without a gradient, and of those whose gradient is no finite number.
fn without_gradient<M: Module>(model: &M, grads: &Gradients) -> [Vec<String>; 2] {
    struct Look<'a> {
        grads: &'a Gradients,
        path: Vec<String>,
        found: [Vec<String>; 2],
    }
    impl ModuleVisitor for Look<'_> {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.path.push(name.to_owned());
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.path.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            match param.val().grad(self.grads) {
                Some(grad) if numbers(grad.clone()).iter().all(|x| x.is_finite()) => {}
                Some(_) => self.found[1].push(self.path.join(".")),
                None => self.found[0].push(self.path.join(".")),
            }
        }
    }
    let mut look = Look { grads, path: Vec::new(), found: [Vec::new(), Vec::new()] };
    model.visit(&mut look);
    look.found
}

// Patches of 8 px in images of half the size have the maps of patches of 16.
#[test]
fn maps_are_in_proportion_to_the_patches() {
    let device = Device::flex();
    let config = DetectorConfig { channels: 4, box_features: 6, ..DetectorConfig::default() };
    let backbone = VimConfig { patch_size: 8, image_size: 32.into(), ..small_backbone() };
    assert_eq!(DetectorConfig::strides(&backbone), [2, 4, 8, 16, 32]);
    assert_eq!(config.anchors(&backbone).sizes, [16.0, 32.0, 64.0, 128.0, 256.0]);
    let model = config.init(&backbone, CLASSES, &device, 0).unwrap();
    let images = images(1, &device).slice([0..1, 0..3, 0..32, 0..32]);
    let feature = model.feature(images, None).unwrap();
    let sides: Vec<usize> = model.maps(&feature).unwrap().iter().map(|map| map.dims()[1]).collect();
    assert_eq!(sides, [16, 8, 4, 2, 1]);
    for patch_size in [6, 32] {
        let wrong = VimConfig { patch_size, image_size: 36.into(), ..small_backbone() };
        assert!(config.check(&wrong, CLASSES).is_err(), "{patch_size}");
    }
}

// Counted on the original's modules at 1024 px and 80 classes.
#[test]
fn models_have_the_original_s_parameters() {
    for (preset, count, width) in
        [(Preset::Tiny, 60_080_078, 192), (Preset::Small, 79_918_142, 384)]
    {
        let backbone = DetectorConfig::backbone(preset);
        let model = DetectorConfig::default().init(&backbone, 80, &Device::flex(), 0).unwrap();
        assert_eq!(model.num_parameters(), count, "{preset}");
        let cost = model.config().cost(&backbone, 80).unwrap();
        assert_eq!(cost.parameters(), count as u64, "{preset}");
        let state = model.state(Names::Pytorch).unwrap();
        let own: BTreeSet<(String, Vec<usize>)> = state
            .iter()
            .map(|(name, data)| (name.to_owned(), data.shape().to_vec()))
            .filter(|(name, _)| !name.contains(".net.layers."))
            .collect();
        let expected = original(width);
        let differ: Vec<_> = own.symmetric_difference(&expected).collect();
        assert!(differ.is_empty(), "{preset}: {differ:?}");
    }
}

/// The names of the original's state dict, written out by its structure, without the blocks.
fn original(d: usize) -> BTreeSet<(String, Vec<usize>)> {
    let mut keys = BTreeSet::new();
    let mut key = |name: String, shape: &[usize]| {
        assert!(keys.insert((name, shape.to_vec())));
    };
    key("backbone.net.pos_embed".into(), &[1, 4096, d]);
    key("backbone.net.patch_embed.proj.weight".into(), &[d, 3, 16, 16]);
    key("backbone.net.patch_embed.proj.bias".into(), &[d]);
    key("backbone.net.rope.freqs_cos".into(), &[4096, d]);
    key("backbone.net.rope.freqs_sin".into(), &[4096, d]);
    let up = [("2.0", d, d / 2), ("2.3", d / 2, d / 4), ("3.0", d, d / 2)];
    for (name, from, to) in up {
        key(format!("backbone.simfp_{name}.weight"), &[from, to, 2, 2]);
        key(format!("backbone.simfp_{name}.bias"), &[to]);
    }
    key("backbone.simfp_2.1.weight".into(), &[d / 2]);
    key("backbone.simfp_2.1.bias".into(), &[d / 2]);
    let mut normed = |name: String, shape: &[usize]| {
        key(format!("{name}.weight"), shape);
        key(format!("{name}.norm.weight"), &shape[..1]);
        key(format!("{name}.norm.bias"), &shape[..1]);
    };
    for (one, three, from) in
        [("2.4", "2.5", d / 4), ("3.1", "3.2", d / 2), ("4.0", "4.1", d), ("5.1", "5.2", d)]
    {
        normed(format!("backbone.simfp_{one}"), &[256, from, 1, 1]);
        normed(format!("backbone.simfp_{three}"), &[256, 256, 3, 3]);
    }
    for conv in 1..=4 {
        for stage in 0..3 {
            normed(format!("roi_heads.box_head.{stage}.conv{conv}"), &[256, 256, 3, 3]);
        }
        normed(format!("roi_heads.mask_head.mask_fcn{conv}"), &[256, 256, 3, 3]);
    }
    let mut biased = |name: String, shape: &[usize], outputs: usize| {
        key(format!("{name}.weight"), shape);
        key(format!("{name}.bias"), &[outputs]);
    };
    let rpn = "proposal_generator.rpn_head";
    biased(format!("{rpn}.conv.conv0"), &[256, 256, 3, 3], 256);
    biased(format!("{rpn}.conv.conv1"), &[256, 256, 3, 3], 256);
    biased(format!("{rpn}.objectness_logits"), &[3, 256, 1, 1], 3);
    biased(format!("{rpn}.anchor_deltas"), &[12, 256, 1, 1], 12);
    for stage in 0..3 {
        biased(format!("roi_heads.box_head.{stage}.fc1"), &[1024, 12_544], 1024);
        biased(format!("roi_heads.box_predictor.{stage}.cls_score"), &[81, 1024], 81);
        biased(format!("roi_heads.box_predictor.{stage}.bbox_pred"), &[4, 1024], 4);
    }
    biased("roi_heads.mask_head.deconv".into(), &[256, 256, 2, 2], 256);
    biased("roi_heads.mask_head.predictor".into(), &[80, 256, 1, 1], 80);
    keys
}

#[test]
fn every_parameter_but_the_unused_norm_has_a_gradient() {
    let device = Device::flex().autodiff();
    let model = small(DetectorConfig::default(), &device);
    let of = [truths(&[[4.0, 6.0, 30.0, 40.0], [20.0, 10.0, 50.0, 60.0]]), truths(&[])];
    let draw = Some(Draw { seed: 5, first: 8 });
    let found = pass(&model, &of, draw, &device).unwrap();
    let total = found.losses.total();
    assert!(numbers(total.clone())[0].is_finite());
    assert_eq!(found.losses.named().len(), 9);
    assert!(!found.masks.classes.is_empty());
    // The image without truths has no foreground.
    assert!(found.stages[0].targets[1].classes.iter().all(|&class| class == CLASSES));
    let grads = total.backward();
    let [absent, broken] = without_gradient(&model, &grads);
    assert_eq!((absent, broken), (vec!["backbone.norm_f.weight".to_owned()], vec![]));
}

#[test]
fn a_draw_is_a_function_of_its_key() {
    let device = Device::flex();
    let model = small(DetectorConfig::default(), &device);
    let of = [truths(&[[4.0, 6.0, 30.0, 40.0]]), truths(&[[8.0, 8.0, 20.0, 20.0]])];
    let losses = |of: &[Truths], seed, first| -> Vec<Vec<f32>> {
        let found = pass(&model, of, Some(Draw { seed, first }), &device).unwrap();
        found.losses.named().into_iter().map(|(_, loss)| numbers(loss)).collect()
    };
    assert_eq!(losses(&of, 1, 0), losses(&of, 1, 0));
    assert_ne!(losses(&of, 1, 0), losses(&of, 2, 0));
    // The second image has the same draw when it comes alone.
    let both = pass(&model, &of, Some(Draw { seed: 1, first: 4 }), &device).unwrap();
    let feature = model.feature(images(2, &device), None).unwrap().narrow(0, 1, 1);
    let draw = Some(Draw { seed: 1, first: 5 });
    let alone = model.training_pass(&feature, &[[SIDE, SIDE - 10]], &of[1..], draw).unwrap();
    assert_eq!(alone.anchor_targets[0].sampled, both.anchor_targets[1].sampled);
    assert_eq!(alone.stages[0].targets[0], both.stages[0].targets[1]);
}

#[test]
fn images_without_truths_and_truths_of_one_pixel_have_finite_losses() {
    let device = Device::flex().autodiff();
    let model = small(DetectorConfig::default(), &device);
    let pixel = truths(&[[11.0, 12.0, 12.0, 13.0]]);
    let edge = truths(&[[53.0, 63.0, 54.0, 64.0], [0.0, 0.0, 54.0, 64.0]]);
    for of in [vec![truths(&[]); 2], vec![pixel.clone(), edge], vec![pixel]] {
        let found = pass(&model, &of, None, &device).unwrap();
        for (name, loss) in found.losses.named() {
            assert!(numbers(loss)[0].is_finite(), "{name}");
        }
        let [absent, broken] = without_gradient(&model, &found.losses.total().backward());
        assert_eq!((absent, broken), (vec!["backbone.norm_f.weight".to_owned()], vec![]));
        if of.iter().all(|of| of.boxes.is_empty()) {
            assert_eq!(numbers(found.losses.mask.unwrap()), [0.0]);
            assert!(found.losses.box_reg.into_iter().all(|loss| numbers(loss) == [0.0]));
        }
    }
}

#[test]
fn boxes_alone_are_learned_and_found_without_a_head_for_masks() {
    let device = Device::flex();
    let whole = small(DetectorConfig::default(), &device);
    let alone = DetectorConfig { masks: false, ..DetectorConfig::default() };
    let boxes = small(alone, &device);
    assert_eq!([whole.num_classes(), boxes.num_classes()], [CLASSES; 2]);
    let cost = boxes.config().cost(&small_backbone(), CLASSES).unwrap();
    assert_eq!(cost.parameters(), boxes.num_parameters() as u64);
    assert!(whole.num_parameters() > boxes.num_parameters());
    // What both have starts alike, and learns alike from boxes without masks.
    let of = truths(&[[4.0, 6.0, 30.0, 40.0], [20.0, 20.0, 50.0, 60.0]]);
    let without = Truths { masks: vec![], ..of.clone() };
    let losses = |model: &Detector, of: Truths| -> Vec<(&str, Vec<f32>)> {
        let named = pass(model, &[of], None, &device).unwrap().losses.named();
        named.into_iter().map(|(name, loss)| (name, numbers(loss))).collect()
    };
    let (all, own) = (losses(&whole, of), losses(&boxes, without.clone()));
    assert_eq!(own, all[..8]);
    let names: Vec<&str> = own.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, DetectionLosses::names(false));
    let feature = boxes.feature(images(1, &device), None).unwrap();
    let found = boxes.evaluation_pass(&feature, &[[SIDE, SIDE]]).unwrap().detections;
    assert!(found[0].masks.is_empty() && found[0].resized([SIDE; 2], [SIDE; 2]).masks.is_empty());
    // Weights that have one are those of boxes too, and the other way round it is missing.
    for names in [Names::Ours, Names::Pytorch] {
        let state = dict(&whole.state(names).unwrap());
        let other = boxes.config().init(&small_backbone(), CLASSES, &device, 99).unwrap();
        let (loaded, report) = other.load(&state, LoadOptions::default()).unwrap();
        assert_eq!(losses(&loaded, without.clone()), own, "{names:?}");
        assert!(report.extra.iter().all(|key| key.contains("mask_head.")));
        assert_eq!(report.extra.len(), 4 * 3 + 4);
        let state = dict(&boxes.state(names).unwrap());
        let missing = whole.clone().load(&state, LoadOptions::default()).err().unwrap().missing;
        assert!(missing.len() == 16 && missing.iter().all(|(key, _)| key.contains("mask_head.")));
    }
}

#[test]
fn wrong_truths_and_sizes_are_named() {
    let device = Device::flex();
    let model = small(DetectorConfig::default(), &device);
    let named = |of: &[Truths]| match pass(&model, of, None, &device) {
        Err(DenseError::Argument { what, .. }) => what,
        Ok(_) | Err(_) => "nothing",
    };
    assert_eq!(named(&[truths(&[[4.0, 6.0, 30.0, 40.0]])]), "nothing");
    for edges in [[4.0, 6.0, 4.0, 9.0], [4.0, f32::NAN, 9.0, 9.0], [0.0, 0.0, f32::INFINITY, 1.0]] {
        assert_eq!(named(&[truths(&[edges])]), "a truth's box", "{edges:?}");
    }
    let good = truths(&[[4.0, 6.0, 30.0, 40.0]]);
    assert_eq!(named(&[Truths { classes: vec![CLASSES], ..good.clone() }]), "a truth's class");
    assert_eq!(named(&[Truths { masks: vec![], ..good }]), "truths");
    let feature = model.feature(images(1, &device), None).unwrap();
    for sizes in [vec![], vec![[0, 4]], vec![[SIDE, SIDE + 1]]] {
        assert!(model.evaluation_pass(&feature, &sizes).is_err(), "{sizes:?}");
    }
}

// The original ends with an error there. Here nothing is proposed, and losses are not finite, which
// a training run notices.
#[test]
fn features_that_are_no_numbers_propose_nothing() {
    let device = Device::flex();
    let model = small(DetectorConfig::default(), &device);
    let feature = model.feature(images(1, &device), None).unwrap();
    for value in [f32::NAN, f32::INFINITY] {
        let broken = feature.clone().mul_scalar(0.0) + value;
        let found = model.evaluation_pass(&broken, &[[SIDE, SIDE]]).unwrap();
        assert!(found.proposals[0].boxes.is_empty() && found.detections[0].boxes.is_empty());
        let of = [truths(&[[4.0, 6.0, 30.0, 40.0]])];
        let found = model.training_pass(&broken, &[[SIDE, SIDE]], &of, None).unwrap();
        assert!(!numbers(found.losses.total())[0].is_finite());
    }
}

#[test]
fn detections_are_within_their_image_and_none_is_none() {
    let device = Device::flex();
    let everything = DetectorConfig { score_threshold: 0.0, detections: 9, ..Default::default() };
    let model = small(everything, &device);
    let size = [SIDE - 20, SIDE];
    let found = model.detect(images(2, &device), &[size; 2]).unwrap();
    for found in &found {
        assert_eq!((found.boxes.len(), found.masks.len()), (9, 9));
        assert!(found.scores.is_sorted_by(|a, b| a >= b));
        assert!(found.boxes.iter().all(|&[left, top, right, bottom]| {
            left >= 0.0 && top >= 0.0 && right <= size[1] as f32 && bottom <= size[0] as f32
        }));
        let large = found.resized(size, [2 * size[0], 3 * size[1]]);
        assert!(large.boxes.len() <= 9 && large.masks.len() == large.boxes.len());
        assert!(large.masks.iter().all(|mask| mask.len() == 6 * size[0] * size[1]));
    }
    let nothing = DetectorConfig { score_threshold: 1.0, ..Default::default() };
    let model = small(nothing, &device);
    let found = model.detect(images(1, &device), &[size]).unwrap();
    assert!(found[0].boxes.is_empty() && found[0].masks.is_empty());
    assert!(found[0].resized(size, size).boxes.is_empty());
}

// The original ends with an error there.
#[test]
fn a_stage_that_gives_no_numbers_finds_nothing() {
    let device = Device::flex();
    let everything = DetectorConfig { score_threshold: 0.0, ..Default::default() };
    for (stage, value) in [(0, f32::NAN), (1, f32::INFINITY), (2, f32::NAN)] {
        let mut model = small(everything.clone(), &device);
        let bias = Tensor::from_floats([value, 0.0, 0.0, 0.0], &device);
        model.box_heads[stage].bbox_pred.bias = Some(Param::from_tensor(bias));
        let found = model.detect(images(1, &device), &[[SIDE, SIDE]]).unwrap();
        assert!(found[0].boxes.is_empty(), "stage {stage}: {:?}", found[0].boxes);
    }
}

#[test]
fn files_of_either_naming_restore_every_number() {
    let device = Device::flex();
    let model = small(DetectorConfig::default(), &device);
    let other = || {
        let config = model.config().clone();
        config.init(&small_backbone(), CLASSES, &device, 8).unwrap()
    };
    for names in [Names::Ours, Names::Pytorch] {
        let bytes = model.state(names).unwrap().to_pytorch().unwrap();
        let checkpoint = read_checkpoint(Cursor::new(bytes), Section::Model).unwrap();
        let (loaded, report) = other().load(&checkpoint.state, LoadOptions::default()).unwrap();
        let of = |model: &Detector| -> Vec<(String, Vec<f32>)> {
            let arrays = NamedArrays::of(model)
                .filtered(|name| !name.starts_with("backbone.norm_f.") || names == Names::Ours);
            arrays.iter().map(|(name, data)| (name.to_owned(), data.iter().collect())).collect()
        };
        assert_eq!(of(&loaded), of(&model));
        assert!(report.missing.is_empty());
    }
    // A parameter less, and one of another model.
    let state = model.state(Names::Pytorch).unwrap();
    let bytes = state.filtered(|name| !name.contains("mask_fcn2.norm")).to_pytorch().unwrap();
    let checkpoint = read_checkpoint(Cursor::new(bytes), Section::Model).unwrap();
    let mismatch = other().load(&checkpoint.state, LoadOptions::default()).unwrap_err();
    assert_eq!(mismatch.missing.len(), 2);
}

#[test]
fn a_classifier_s_weights_become_the_backbone_s() {
    let device = Device::flex();
    let classifier = VimConfig { num_classes: 10, ..small_backbone() }.init(&device, 3).unwrap();
    let bytes = classifier.state(Names::Pytorch).unwrap().to_pytorch().unwrap();
    let checkpoint = read_checkpoint(Cursor::new(bytes), Section::Model).unwrap();
    let options = LoadOptions { head: true, ..LoadOptions::default() };
    let model = small(DetectorConfig::default(), &device);
    let (model, _) = model.load_backbone(&checkpoint.state, options).unwrap();
    let of = |arrays: NamedArrays| -> Vec<Vec<f32>> {
        arrays.iter().map(|(_, data)| data.iter().collect()).collect()
    };
    let own = of(NamedArrays::of(&model.backbone));
    let theirs = of(NamedArrays::of(&classifier).filtered(|name| !name.starts_with("head.")));
    assert_eq!(own, theirs);
}
