//! What a recorder keeps of a pass, and the hidden attention of it.

use burn::tensor::Device;
use strum::VariantArray;
use vim_kernels::Discretization;
use vim_model::{Bimamba, ClassToken, RecordedScan, Recorder, StateMatrix, Vim, VimConfig};

use crate::support::{batch, error, logits, numbers, small};
use crate::variants::{shaken, variants};

/// The scans of a pass over two images.
fn scans(model: &Vim) -> Vec<RecordedScan> {
    let recorder = Recorder::default();
    let recorded = model.clone().with_recorder(&recorder).unwrap();
    let images = || batch(2, model.config().image_size);
    let off = error(&logits(&recorded, images()), &logits(model, images()));
    assert!(off < 1e-5, "the same model answers otherwise: {off:e}");
    recorder.take().scans
}

/// The largest difference of `(α·u + D·u)·silu(z)` and `y`, over the largest |y|: of y by loops in
/// f64, and of what the model computed.
fn off(scan: &RecordedScan) -> [f64; 2] {
    let oracle = scan.oracle(1);
    let (len, channels) = (oracle.len, oracle.d_inner);
    let (exact, _) = oracle.forward();
    let computed = numbers(scan.y.clone().narrow(0, 1, 1));
    let all: Vec<usize> = (0..len).collect();
    let (mut worst, mut most) = ([0.0_f64; 2], 0.0_f64);
    let (d, z) = (oracle.d.as_ref().unwrap(), oracle.z.as_ref().unwrap());
    for channel in 0..channels {
        let alpha = oracle.alpha(0, channel, &all);
        for (token, row) in alpha.chunks_exact(len).enumerate() {
            let u = |token: usize| oracle.u[token * channels + channel];
            let read: f64 = row.iter().enumerate().map(|(at, alpha)| alpha * u(at)).sum();
            let at = token * channels + channel;
            let y = (read + d[channel] * u(token)) * z[at] / (1.0 + (-z[at]).exp());
            worst[0] = worst[0].max((y - exact[at]).abs());
            worst[1] = worst[1].max((y - f64::from(computed[at])).abs());
            most = most.max(y.abs());
        }
    }
    worst.map(|worst| worst / most)
}

#[test]
fn rows_of_alpha_reproduce_every_scan_of_every_method() {
    for &method in Discretization::VARIANTS {
        let config = VimConfig { discretization: method, ..small() };
        let found = scans(&shaken(&config, &Device::flex()));
        let places: Vec<_> = found.iter().map(|scan| (scan.block, scan.options.reverse)).collect();
        assert_eq!(places, [(0, false), (0, true), (1, false), (1, true)]);
        for scan in &found {
            let [exact, computed] = off(scan);
            assert!(exact < 1e-6 && computed < 1e-5, "{method}: {exact:e}, {computed:e}");
        }
    }
}

#[test]
fn every_variant_is_recorded() {
    for (name, config) in variants() {
        let model = shaken(&config, &Device::flex());
        if config.ssm.a == StateMatrix::Full {
            let refused = model.with_recorder(&Recorder::default()).unwrap_err().to_string();
            assert!(refused.contains("does not run with a full A"), "{refused}");
            continue;
        }
        let found = scans(&model);
        let directions = if config.bimamba == Bimamba::None { 1 } else { 2 };
        assert_eq!(found.len(), directions * config.depth, "{name}");
        for scan in &found {
            let [exact, computed] = off(scan);
            assert!(exact < 1e-6 && computed < 1e-5, "{name}: {exact:e}, {computed:e}");
            let second = config.layer_pairs && scan.block % 2 == 1;
            assert_eq!(scan.flipped, (config.flip_ratio == 1.0) != second, "{name}");
        }
    }
}

#[test]
fn other_weights_have_another_attention() {
    let one = |seed| {
        let model = small().init(&Device::flex(), seed).unwrap();
        scans(&model)[0].oracle(0).attention(0, &[8])
    };
    assert_ne!(one(0), one(1));
    let row = one(0);
    assert!(row[..=8].iter().all(|&alpha| alpha > 0.0) && row[9..].iter().all(|&a| a == 0.0));
}

// The class token is read alone: the others act on it through the last block.
#[test]
fn the_stream_is_cut_where_the_last_block_begins() {
    let device = Device::flex().autodiff();
    for class_token in [ClassToken::Middle, ClassToken::None] {
        let config = VimConfig { class_token, ..small() };
        let model = shaken(&config, &device);
        let images = batch(1, config.image_size).into_data();
        let images = || burn::tensor::Tensor::<4>::from_data(images.clone(), &device);
        let plain = numbers(model.forward(images()).unwrap());
        let recorder = Recorder::cut_before(1);
        let model = model.with_recorder(&recorder).unwrap();
        let logits = model.forward(images()).unwrap();
        assert!(error(&numbers(logits.clone()), &plain) < 1e-5);
        let stream = recorder.take().stream.unwrap();
        let grads = logits.narrow(1, 0, 1).sum().backward();
        let grad = stream.grad(&grads).unwrap();
        assert_eq!(grad.dims(), [1, config.num_tokens(), config.d_model]);
        let each = numbers(grad.abs().sum_dim(2));
        assert!(each.iter().all(|&sum| sum > 0.0), "{each:?}");
        assert!(model.layers[0].mixer.in_proj.weight.val().grad(&grads).is_none());
    }
}
