//! Weights under both namings, and from a classifier.

use std::io::Cursor;

use burn::tensor::{Device, TensorData};
use vim_dense::{Segmenter, SegmenterConfig};
use vim_model::{
    ClassToken, LastTap, LoadOptions, NamedArrays, Names, Resize, Rope, Tapped, VimConfig,
};
use vim_torch::{Array, Element, Item, Section, StateDict, read_checkpoint};

use crate::support::{CLASSES, dict, images, numbers, shaken, small, values};

fn fresh(heads: &SegmenterConfig, backbone: &VimConfig) -> Segmenter {
    heads.init(backbone, CLASSES, &Device::flex(), 99).unwrap()
}

/// Heads and backbone with rotary positions and a normed stream.
fn turned() -> (SegmenterConfig, VimConfig) {
    let (heads, backbone) = small();
    let heads = SegmenterConfig { features: Tapped::Residual, last: LastTap::AddNorm, ..heads };
    (heads, VimConfig { rope: Rope::Both, ..backbone })
}

#[test]
fn a_model_goes_through_either_naming_unchanged() {
    for (heads, backbone) in [small(), turned()] {
        let model = shaken(&heads, &backbone, &Device::flex());
        let expected = values(&model);
        for names in [Names::Ours, Names::Pytorch] {
            let state = dict(&model.state(names).unwrap());
            let (back, report) =
                fresh(&heads, &backbone).load(&state, LoadOptions::default()).unwrap();
            assert_eq!(values(&back), expected, "{names:?}");
            assert_eq!(report.tensors, expected.len(), "{names:?}");
        }
    }
}

#[test]
fn a_file_of_mmcv_holds_counts_and_is_read_back() {
    let (heads, backbone) = turned();
    let model = shaken(&heads, &backbone, &Device::flex());
    let bytes = model.to_mmcv(&[("made by", "a test")], &[("a", "b")], 12).unwrap();
    let file = read_checkpoint(Cursor::new(bytes), Section::Model).unwrap();
    assert_eq!(file.about["a"], "b");
    let state = file.state;
    let counts: Vec<&Item> = state
        .iter()
        .filter(|(key, _)| key.ends_with(".num_batches_tracked"))
        .map(|(_, item)| item)
        .collect();
    assert_eq!(counts.len(), 14);
    assert!(counts.iter().all(|item| matches!(item, Item::Unreadable(_))));
    for key in ["backbone.rope.freqs_cos", "backbone.fpn1.1.running_var", "backbone.norm_f.weight"]
    {
        assert!(state.get(key).is_some(), "{key}");
    }
    let (back, report) = fresh(&heads, &backbone).load(&state, LoadOptions::default()).unwrap();
    assert_eq!(values(&back), values(&model));
    assert_eq!(report.computed.len(), 14 + 2);
}

#[test]
fn every_difference_is_named() {
    let (heads, backbone) = small();
    let model = shaken(&heads, &backbone, &Device::flex());
    let complete = dict(&model.state(Names::Pytorch).unwrap());
    let mut state = StateDict::default();
    for (key, item) in complete.iter().filter(|(key, _)| *key != "backbone.fpn1.1.running_mean") {
        state.insert(key.to_owned(), item.clone());
    }
    let odd = Array { shape: vec![2], values: vec![0.0; 2], stored: Element::F32 };
    state.insert("decode_head.psp_modules.2.1.bn.bias".into(), Item::Array(odd.clone()));
    state.insert("decode_head.more".into(), Item::Array(odd));
    let mismatch = fresh(&heads, &backbone).load(&state, LoadOptions::default()).err().unwrap();
    assert_eq!(mismatch.missing, [("backbone.fpn1.1.running_mean".to_owned(), vec![8])]);
    assert_eq!(mismatch.unexpected, ["decode_head.more"]);
    assert_eq!(mismatch.wrong_shape[0].key, "decode_head.psp_modules.2.1.bn.bias");
}

/// The backbone of a classifier at another size, with a class token in its middle.
#[test]
fn a_classifier_s_weights_start_the_backbone() {
    let (heads, backbone) = small();
    let device = Device::flex();
    let classifier = VimConfig {
        image_size: 48.into(),
        class_token: ClassToken::Middle,
        num_classes: 10,
        ..backbone.clone()
    };
    let classifier = classifier.init(&device, 3).unwrap();
    for names in [Names::Ours, Names::Pytorch] {
        let state = dict(&classifier.state(names).unwrap());
        for resize in [Resize::MiddleAware, Resize::Parity] {
            let options = LoadOptions {
                head: true,
                resize: Some(resize),
                class_token: Some(ClassToken::Middle),
                ..LoadOptions::default()
            };
            let before = fresh(&heads, &backbone);
            let (model, report) = before.clone().load_backbone(&state, options).unwrap();
            assert_eq!(report.resized, Some(([3, 3], [4, 4])));
            assert_eq!((report.head, report.dropped_class_tokens), (Some((10, 0)), 1));
            let (after, before) = (values(&model), values(&before));
            for (path, value) in &after {
                match path.strip_prefix("backbone.") {
                    Some("pos_embed") => assert_eq!(value.0, [1, 16, 8]),
                    Some(own) => {
                        let arrays = NamedArrays::of(&classifier);
                        let (_, data): (&str, &TensorData) =
                            arrays.iter().find(|(name, _)| *name == own).unwrap();
                        assert_eq!(value.1, data.iter().collect::<Vec<f32>>(), "{path}");
                    }
                    None => assert_eq!(*value, before[path], "{path}"),
                }
            }
            let logits = model.forward(images(0, 1, 64, &device)).unwrap();
            assert!(numbers(logits).iter().all(|logit| logit.is_finite()));
        }
    }
}
