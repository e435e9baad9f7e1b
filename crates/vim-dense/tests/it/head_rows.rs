//! Heads taken class by class: a segmenter's two, and a detector's scores and masks.

use burn::tensor::{Device, Tensor};
use vim_dense::Segmenter;
use vim_dense::detection::{Detector, DetectorConfig};
use vim_model::{HeadRows, LoadOptions, NamedArrays, Names};
use vim_torch::StateDict;

use crate::detection;
use crate::support::{CLASSES, dict, images, numbers, shaken, small, values};

const BOTH: [Names; 2] = [Names::Ours, Names::Pytorch];

fn options(rows: &[Option<usize>]) -> LoadOptions<'_> {
    LoadOptions { rows: Some(rows), ..LoadOptions::default() }
}

/// A segmenter of `classes`, of other numbers than the file's.
fn segmenter(classes: usize) -> Segmenter {
    let (heads, backbone) = small();
    heads.init(&backbone, classes, &Device::flex(), 99).unwrap()
}

#[test]
fn a_segmenter_s_permuted_rows_give_permuted_logits() {
    let (heads, backbone) = small();
    let device = Device::flex();
    let given = shaken(&heads, &backbone, &device);
    // `[1, H, W, K]`.
    let by_class = |model: &Segmenter| -> Vec<Vec<f32>> {
        let logits = model.forward(images(0, 1, 64, &device)).unwrap();
        let [.., classes] = logits.dims();
        let logits = numbers(logits);
        let of = |class| logits.iter().skip(class).step_by(classes).copied().collect();
        (0..classes).map(of).collect()
    };
    let expected = by_class(&given);
    assert_eq!(expected.len(), CLASSES);
    let order = [2, 4, 0, 3, 1];
    for names in BOTH {
        let state = dict(&given.state(names).unwrap());
        let (model, report) = segmenter(CLASSES).load(&state, options(&order.map(Some))).unwrap();
        assert_eq!(report.head_rows, Some(HeadRows { file: 5, model: 5, taken: 5 }));
        let permuted: Vec<Vec<f32>> = order.iter().map(|&row| expected[row].clone()).collect();
        assert_eq!(by_class(&model), permuted, "{names:?}");
    }
}

#[test]
fn a_segmenter_of_other_classes_has_the_common_ones_in_both_heads() {
    let (heads, backbone) = small();
    let given = shaken(&heads, &backbone, &Device::flex());
    let rows = [None, Some(4), None, Some(0), Some(1), None, Some(2)];
    let (file, fresh) = (values(&given), values(&segmenter(rows.len())));
    for names in BOTH {
        let state = dict(&given.state(names).unwrap());
        let (model, report) = segmenter(rows.len()).load(&state, options(&rows)).unwrap();
        assert_eq!(report.head_rows, Some(HeadRows { file: 5, model: 7, taken: 4 }));
        assert_eq!(report.head, None);
        let got = values(&model);
        for (path, (shape, numbers)) in &got {
            if !path.contains("conv_seg") {
                assert_eq!(numbers, &file[path].1, "{path}");
                continue;
            }
            let each = numbers.len() / shape[0];
            for (class, got) in numbers.chunks(each).enumerate() {
                let (from, row) = match rows[class] {
                    Some(row) => (&file, row),
                    None => (&fresh, class),
                };
                let expected = &from[path].1[row * each..][..each];
                assert_eq!(got, expected, "{names:?}, {path}, class {class}");
            }
        }
        assert!(got.contains_key("auxiliary_head.conv_seg.bias"));
    }
    // A row that the file has not.
    let state = dict(&given.state(Names::Pytorch).unwrap());
    let lines = segmenter(1).load(&state, options(&[Some(5)])).unwrap_err().lines();
    let words = "(class 0 of the model is to be class 5, and the file has 5 classes)";
    assert_eq!(lines.len(), 4, "{lines:?}");
    for line in lines {
        assert!(line.starts_with("of other classes: ") && line.ends_with(words), "{line}");
    }
}

const FILE_CLASSES: usize = 3;

/// The file's detector under `names`, with its own numbers.
fn detector(names: Names) -> (Detector, StateDict) {
    let model = detection::small(DetectorConfig::default(), &Device::flex());
    let state = dict(&model.state(names).unwrap());
    (model, state)
}

/// The same detector with `classes`, of other numbers.
fn other(model: &Detector, classes: usize) -> Detector {
    let backbone = model.backbone_config().clone();
    model.config().init(&backbone, classes, &Device::flex(), 8).unwrap()
}

fn array(model: &Detector, path: &str) -> Vec<f32> {
    let arrays = NamedArrays::of(model);
    let (_, data) = arrays.iter().find(|(name, _)| *name == path).unwrap();
    data.iter().collect()
}

/// Logits of a stage, `[2][K + 1]`.
fn scores(model: &Detector, stage: usize) -> Vec<Vec<f32>> {
    let features = [[0.3, -0.7, 1.1, 0.2, 0.9, -0.4], [-1.0, 0.6, 0.1, 0.8, -0.2, 0.5]];
    let features = Tensor::<2>::from_floats(features, &Device::flex());
    let logits = model.box_heads[stage].cls_score.forward(features);
    let [_, length] = logits.dims();
    numbers(logits).chunks(length).map(<[f32]>::to_vec).collect()
}

#[test]
fn a_detector_s_permuted_rows_give_permuted_logits_and_the_background_stays_last() {
    let order = [2, 0, 1];
    for names in BOTH {
        let (file, state) = detector(names);
        let before = other(&file, FILE_CLASSES);
        let (model, report) = before.load(&state, options(&order.map(Some))).unwrap();
        assert_eq!(report.head_rows, Some(HeadRows { file: 3, model: 3, taken: 3 }));
        for stage in 0..3 {
            let given = scores(&file, stage);
            let [first, second] =
                [0, 1].map(|at| order.iter().chain([&3]).map(|&row| given[at][row]).collect());
            let expected: [Vec<f32>; 2] = [first, second];
            assert_eq!(scores(&model, stage), expected, "{names:?}, stage {stage}");
            // Boxes are the same for all classes.
            let path = format!("box_heads.{stage}.bbox_pred.weight");
            assert_eq!(array(&model, &path), array(&file, &path));
        }
        let (got, given) = (
            array(&model, "mask_head.predictor.weight"),
            array(&file, "mask_head.predictor.weight"),
        );
        let each = got.len() / 3;
        for (class, got) in got.chunks(each).enumerate() {
            assert_eq!(got, &given[order[class] * each..][..each], "{names:?}, mask {class}");
        }
    }
}

#[test]
fn a_detector_of_other_classes_has_the_common_ones_and_the_background() {
    let rows = [None, Some(2), None, Some(0), None];
    for names in BOTH {
        let (file, state) = detector(names);
        let fresh = other(&file, rows.len());
        let (model, report) = fresh.clone().load(&state, options(&rows)).unwrap();
        assert_eq!(report.head_rows, Some(HeadRows { file: 3, model: 5, taken: 2 }));
        for stage in 0..3 {
            let [got, given, own] = [&model, &file, &fresh].map(|of| scores(of, stage));
            for at in 0..2 {
                let expected =
                    [own[at][0], given[at][2], own[at][2], given[at][0], own[at][4], given[at][3]];
                assert_eq!(got[at], expected, "{names:?}, stage {stage}");
            }
        }
        let path = "mask_head.predictor.weight";
        let [got, given, own] = [&model, &file, &fresh].map(|of| array(of, path));
        let each = given.len() / FILE_CLASSES;
        for (class, row) in rows.iter().enumerate() {
            let (from, row) = row.map_or((&own, class), |row| (&given, row));
            let expected = &from[row * each..][..each];
            assert_eq!(&got[class * each..][..each], expected, "{names:?}, mask {class}");
        }
    }
    // No class in common: the background is the file's all the same.
    let (file, state) = detector(Names::Pytorch);
    let (model, report) = other(&file, 2).load(&state, options(&[None; 2])).unwrap();
    assert_eq!(report.head_rows, Some(HeadRows { file: 3, model: 2, taken: 0 }));
    assert_eq!(scores(&model, 1)[0][2], scores(&file, 1)[0][3]);
}
