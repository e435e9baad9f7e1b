//! Features for heads of other tasks, and models without a head.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use vim_model::{
    ClassToken, Draw, FeatureError, LastTap, Names, NormKind, Rope, Tapped, Taps, Vim, VimConfig,
};

use crate::naive::Naive;
use crate::support::{batch, build, error, numbers, small, values};
use crate::variants::shaken;

fn configs() -> Vec<(&'static str, VimConfig)> {
    let config = |rope, class_token| VimConfig { rope, class_token, depth: 4, ..small() };
    vec![
        ("no class token", config(Rope::None, ClassToken::None)),
        ("class token", config(Rope::None, ClassToken::Middle)),
        ("rope", config(Rope::Hidden, ClassToken::None)),
        ("rope on both", config(Rope::Both, ClassToken::None)),
        ("layer norm", VimConfig { norm: NormKind::Layer, ..config(Rope::Both, ClassToken::None) }),
    ]
}

fn taps(blocks: &[usize], what: Tapped, last: LastTap) -> Taps {
    Taps { blocks: blocks.to_vec(), what, last }
}

fn tapped(model: &Vim, taps: &Taps, draw: Option<Draw>, images: Tensor<4>) -> Vec<Vec<f32>> {
    model.tapped(images, taps, draw).unwrap().into_iter().map(numbers).collect()
}

#[test]
fn hidden_features_are_the_blocks_outputs() {
    for (name, config) in configs() {
        let model = shaken(&config, &Device::flex());
        let images = || batch(2, config.image_size);
        let blocks = [0, 1, 3];
        let got = tapped(&model, &taps(&blocks, Tapped::Hidden, LastTap::None), None, images());
        let expected = model.features(images(), &blocks).unwrap();
        assert_eq!(got, expected.into_iter().map(numbers).collect::<Vec<_>>(), "{name}");
    }
}

/// Against the loops: the stream that the next block begins with, and of the last block each of
/// three.
#[test]
fn residual_features_are_the_stream_that_the_next_block_begins_with() {
    for (name, config) in configs() {
        let model = shaken(&config, &Device::flex());
        let parameters = values(&model);
        let image = batch(1, config.image_size);
        let streams = |depth: usize| {
            let config = VimConfig { depth, ..config.clone() };
            Naive { config: &config, parameters: &parameters }.streams(&numbers(image.clone()))
        };
        let close = |got: &[f32], expected: &[f32], what: &str| {
            let error = error(got, expected);
            assert!(error < 2e-5, "{name}, {what}: {error:.1e}");
        };
        let [_, sum, normed] = streams(4);
        let hidden = numbers(model.features(image.clone(), &[3]).unwrap().swap_remove(0));
        for (last, expected) in
            [(LastTap::None, hidden), (LastTap::Add, sum), (LastTap::AddNorm, normed)]
        {
            let taps = taps(&[0, 2, 3], Tapped::Residual, last);
            let got = tapped(&model, &taps, None, image.clone());
            assert_eq!(got.len(), 3, "{name}");
            for (got, block) in got.iter().zip([0, 2]) {
                close(got, &streams(block + 2)[0], &format!("block {block}"));
            }
            close(&got[2], &expected, &format!("last block, {last}"));
        }
        // `last` is of the model's last block alone.
        let inner = taps(&[1], Tapped::Residual, LastTap::AddNorm);
        let got = tapped(&model, &inner, None, image.clone());
        close(&got[0], &streams(3)[0], "block 1 alone");
    }
}

/// Of three blocks at rate r, the output of the second is dropped at r/2 as the third adds it, and
/// that of the third is not dropped at the end.
#[test]
fn training_drops_what_a_block_adds_and_nothing_at_the_end() {
    let config = VimConfig { depth: 3, drop_path: 0.5, class_token: ClassToken::None, ..small() };
    let model = shaken(&config, &Device::flex());
    let images = || batch(1, 16).repeat_dim(0, 64);
    let draw = |first| Some(Draw { seed: 4, first });
    let of = |what, last, draw| tapped(&model, &taps(&[1, 2], what, last), draw, images());
    let size = 16 * 16;
    let kinds = |features: &[f32]| {
        let mut kinds: Vec<Vec<f32>> = Vec::new();
        for image in features.chunks(size) {
            if kinds.iter().all(|kind| error(image, kind) > 1e-4) {
                kinds.push(image.to_vec());
            }
        }
        kinds.len()
    };
    let trained = of(Tapped::Residual, LastTap::Add, draw(0));
    // The third block mixes what was dropped, or not, before it; a drop at the end would make four.
    assert_eq!((kinds(&trained[0]), kinds(&trained[1])), (2, 2));
    let hidden = of(Tapped::Hidden, LastTap::None, draw(0));
    assert_eq!((kinds(&hidden[0]), kinds(&hidden[1])), (1, 2));
    let evaluated = of(Tapped::Residual, LastTap::Add, None);
    assert_eq!(kinds(&evaluated[0]), 1);

    let residual = taps(&[1, 2], Tapped::Residual, LastTap::Add);
    let part = tapped(&model, &residual, draw(16), images().narrow(0, 16, 24));
    for (part, whole) in part.iter().zip(&trained) {
        let whole = &whole[16 * size..40 * size];
        assert!(error(part, whole) < 1e-5, "a part draws as the whole does");
    }
}

#[test]
fn what_no_feature_depends_on_requires_no_gradient_and_everything_else_has_one() {
    for (what, last, blocks, frozen) in [
        (Tapped::Hidden, LastTap::None, &[0, 1, 2, 3][..], &["norm_f."][..]),
        (Tapped::Hidden, LastTap::None, &[1], &["norm_f.", "layers.2.", "layers.3."]),
        (Tapped::Residual, LastTap::Add, &[1, 3], &["norm_f."]),
        (Tapped::Residual, LastTap::AddNorm, &[1, 3], &[]),
        (Tapped::Residual, LastTap::AddNorm, &[0, 2], &["norm_f.", "layers.3."]),
    ] {
        let device = Device::flex().autodiff();
        let config = VimConfig { class_token: ClassToken::None, depth: 4, ..small() };
        let taps = taps(blocks, what, last);
        let model = config.init_backbone(&device, 3).unwrap().frozen_behind(&taps).unwrap();
        let images = Tensor::from_inner(batch(2, 16));
        let features = model.tapped(images, &taps, Some(Draw { seed: 0, first: 0 })).unwrap();
        let sum = features.into_iter().map(|x| (x.clone() * x).sum());
        let grads = sum.reduce(|a, b| a + b).unwrap().backward();
        struct Visit<'a>(&'a burn::tensor::Gradients, &'a [&'a str], Vec<String>);
        impl ModuleVisitor for Visit<'_> {
            fn enter_module(&mut self, name: &str, _: &str) {
                self.2.push(name.to_owned());
            }
            fn exit_module(&mut self, _: &str, _: &str) {
                self.2.pop();
            }
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let path = self.2.join(".");
                let is_frozen = self.1.iter().any(|prefix| path.starts_with(prefix));
                let value = param.val();
                assert_eq!(value.is_require_grad(), !is_frozen, "{path}");
                assert_eq!(value.grad(self.0).is_some(), !is_frozen, "{path}");
            }
        }
        model.visit(&mut Visit(&grads, frozen, Vec::new()));
    }
}

#[test]
fn a_model_without_a_head_returns_what_it_would_read() {
    let config = small();
    let (whole, headless) = (build(&config, 2), config.init_backbone(&Device::flex(), 2).unwrap());
    let images = || batch(2, 16);
    let read = headless.forward(images()).unwrap();
    assert_eq!((read.dims(), headless.config().num_classes), ([2, 16], 0));
    let expected = whole.pooled_features(images(), &[1]).unwrap().swap_remove(0);
    assert_eq!(numbers(read), numbers(expected));
    let names = |model: &Vim| -> Vec<String> {
        model.state(Names::Ours).unwrap().iter().map(|(name, _)| name.to_owned()).collect()
    };
    let expected: Vec<String> =
        names(&whole).into_iter().filter(|name| !name.starts_with("head.")).collect();
    assert_eq!(names(&headless), expected);
}

#[test]
fn impossible_taps_are_refused() {
    let model = build(&small(), 0);
    let paired = build(&VimConfig { layer_pairs: true, ..small() }, 0);
    for (model, blocks, what, at_fault) in [
        (&model, &[0, 2][..], Tapped::Hidden, 2),
        (&model, &[1, 0], Tapped::Hidden, 0),
        (&model, &[1, 1], Tapped::Residual, 1),
        (&paired, &[0], Tapped::Hidden, 0),
        (&paired, &[1], Tapped::Residual, 1),
    ] {
        match model.tapped(batch(1, 16), &taps(blocks, what, LastTap::None), None) {
            Err(FeatureError::Block { block, .. }) => assert_eq!(block, at_fault, "{blocks:?}"),
            other => panic!("{blocks:?}: {other:?}"),
        }
    }
    assert!(model.tapped(batch(1, 16), &Taps::default(), None).unwrap().is_empty());
}
