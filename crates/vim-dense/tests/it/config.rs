//! What can be built, and how it starts.

use std::slice::from_ref;

use burn::tensor::Device;
use vim_dense::{SegmenterConfig, decays};
use vim_model::{LastTap, ModelError, Preset, Rope, Tapped, VimConfig};

use crate::support::{CLASSES, gradients, images, label_tensor, numbers, small, values};

#[test]
fn presets_are_the_original_s() {
    let tiny = SegmenterConfig::preset(Preset::Tiny);
    assert_eq!(tiny, SegmenterConfig::default());
    assert_eq!((tiny.features, tiny.last), (Tapped::Hidden, LastTap::None));
    let small = SegmenterConfig::preset(Preset::Small);
    assert_eq!((small.features, small.last), (Tapped::Residual, LastTap::Add));
    assert_eq!(small.out_indices, [5, 11, 17, 23]);
    assert_eq!(SegmenterConfig::preset(Preset::BaseDepth12).out_indices, [2, 5, 8, 11]);
    let backbone = SegmenterConfig::backbone(Preset::Small);
    assert_eq!((backbone.rope, backbone.rope_grid(), backbone.grid()), (Rope::Both, 14, [32, 32]));
    for preset in [Preset::Tiny, Preset::Small, Preset::Base, Preset::BaseDepth12] {
        let backbone = SegmenterConfig::backbone(preset);
        SegmenterConfig::preset(preset).check(&backbone, 150).unwrap();
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let (heads, backbone) = small();
    let key = |heads: &SegmenterConfig, backbone: &VimConfig, classes| match heads
        .check(backbone, classes)
    {
        Err(ModelError::Conflict { key, .. } | ModelError::Range { key, .. }) => key,
        other => panic!("{other:?}"),
    };
    let out = |out_indices: &[usize]| {
        let heads = SegmenterConfig { out_indices: out_indices.to_vec(), ..heads.clone() };
        key(&heads, &backbone, CLASSES)
    };
    for indices in [&[0, 1, 2, 4][..], &[0, 1, 3, 2], &[0, 1, 1, 2], &[], &[0, 1]] {
        assert_eq!(out(indices), "segmentation.out_indices", "{indices:?}");
    }
    let of = |backbone: VimConfig| key(&heads, &backbone, CLASSES);
    assert_eq!(of(VimConfig { patch_size: 32, ..backbone.clone() }), "segmentation");
    assert_eq!(of(VimConfig { stride: Some(8), ..backbone.clone() }), "segmentation");
    assert_eq!(of(VimConfig { image_size: 16.into(), ..backbone.clone() }), "segmentation");
    assert_eq!(of(VimConfig { d_state: 0, ..backbone.clone() }), "d_state");
    let with = |heads: SegmenterConfig, classes| key(&heads, &backbone, classes);
    assert_eq!(with(heads.clone(), 255), "the number of classes");
    assert_eq!(with(heads.clone(), 0), "the number of classes");
    for (heads, expected) in [
        (SegmenterConfig { channels: Some(0), ..heads.clone() }, "segmentation.channels"),
        (SegmenterConfig { aux_channels: 0, ..heads.clone() }, "segmentation.aux_channels"),
        (SegmenterConfig { dropout: 1.0, ..heads.clone() }, "segmentation.dropout"),
        (SegmenterConfig { aux_weight: f64::NAN, ..heads.clone() }, "segmentation.aux_weight"),
        (SegmenterConfig { last: LastTap::Add, ..heads.clone() }, "segmentation.last"),
    ] {
        assert_eq!(with(heads, CLASSES), expected);
    }
}

/// Values depend on seed and name alone; deviations are those of the original's initializers.
#[test]
fn initial_values_are_the_original_s() {
    let (heads, backbone) = small();
    let heads = SegmenterConfig { channels: Some(32), ..heads };
    let build = |seed| values(&heads.init(&backbone, CLASSES, &Device::flex(), seed).unwrap());
    let (model, same, other) = (build(0), build(0), build(1));
    assert!(model == same && model != other);
    let of = |name: &str| &model[name].1;
    let deviation = |values: &[f32]| {
        (values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
    };
    // Kaiming's normal by the outputs: sqrt(2 / (32 · 9)), of 36864 and more numbers.
    let bottleneck = of("decode_head.fpn_bottleneck.conv.weight");
    assert!((deviation(bottleneck) / (2.0_f64 / 288.0).sqrt() - 1.0).abs() < 0.02);
    // PyTorch's uniform ones: within 1/sqrt(32), and within 1/sqrt(8 · 4).
    for name in ["decode_head.conv_seg.weight", "pyramid.fpn2.weight", "pyramid.fpn1.first.bias"] {
        let bound = 1.0 / 32_f32.sqrt();
        let largest = of(name).iter().fold(0.0_f32, |max, x| max.max(x.abs()));
        assert!(largest <= bound && largest > 0.7 * bound, "{name}: {largest}");
    }
    for (name, start) in
        [("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)]
    {
        let values = of(&format!("auxiliary_head.convs.0.bn.{name}"));
        assert!(values.iter().all(|&x| x == start), "{name}");
    }
}

/// Half of all channels dropped: another seed gives another loss, the same one the same.
#[test]
fn dropout_draws_by_the_seed() {
    let (heads, backbone) = small();
    let heads = SegmenterConfig { dropout: 0.5, ..heads };
    let device = Device::flex().autodiff();
    let model = heads.init(&backbone, CLASSES, &device, 0).unwrap();
    let loss = |seed| {
        let images = images(0, 2, 64, &device);
        let labels = label_tensor(0, 2, 64, &device);
        let shard = vim_dense::Shard { images, labels, first: 0 };
        let sums = vim_dense::ShardSum::single();
        vim_dense::losses(from_ref(&model), vec![shard], seed, &sums).unwrap().remove(0).loss
    };
    assert_eq!(numbers(loss(1)), numbers(loss(1)));
    assert_ne!(numbers(loss(1)), numbers(loss(2)));
    let grads = loss(1).backward();
    let found = gradients(&model, &grads);
    assert!(found.len() > 60 && found.keys().any(|path| decays(path, 4)));
}
