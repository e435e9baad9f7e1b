//! The network against the loops, and its gradients against differences of theirs.

use std::slice::from_ref;

use burn::tensor::{Device, Tensor};
use vim_dense::{Features, Segmenter, Shard, ShardSum, losses, pixel_loss, resize};

use crate::naive::{Map, Naive};
use crate::support::{
    Named, error, gradients, images, label_tensor, labels, numbers, shaken, values, variants,
};

/// The images' maps, from `[B, H, W, C]`.
fn maps(tensor: Tensor<4>) -> Vec<Map> {
    let [_, height, width, channels] = tensor.dims();
    let values = numbers(tensor);
    let image = |values: &[f32]| {
        Map::new([channels, height, width], |c, y, x| {
            f64::from(values[(y * width + x) * channels + c])
        })
    };
    values.chunks(height * width * channels).map(image).collect()
}

/// The numbers of maps in the order of `[B, H, W, C]`.
fn channels_last(maps: &[Map]) -> Vec<f64> {
    let pixels = |map: &Map| -> Vec<f64> {
        let each = (0..map.height).flat_map(|y| (0..map.width).map(move |x| (y, x)));
        each.flat_map(|(y, x)| (0..map.channels).map(move |c| map.at(c, y, x))).collect()
    };
    maps.iter().flat_map(pixels).collect()
}

fn close(got: Tensor<4>, expected: &[Map], what: &str) {
    let error = error(&numbers(got), &channels_last(expected));
    assert!(error < 1e-5, "{what}: {error:.1e}");
}

#[test]
fn evaluation_is_that_of_the_loops() {
    for (name, heads, backbone) in variants() {
        let model = shaken(&heads, &backbone, &Device::flex());
        let side = backbone.image_size.height;
        let found = model.features(images(0, 2, side, &Device::flex())).unwrap();
        let Features { maps: into, levels, pooled, logits, aux_logits } = found;
        let naive = Naive { parameters: &values(&model), trains: false };
        let expected = naive.compute(&into.map(maps));
        for (i, (level, expected)) in levels.into_iter().zip(&expected.levels).enumerate() {
            close(level, expected, &format!("{name}, level {i}"));
        }
        close(pooled, &expected.pooled, &format!("{name}, pooling"));
        close(logits.clone(), &expected.logits, &format!("{name}, logits"));
        close(aux_logits, &expected.aux_logits, &format!("{name}, auxiliary"));
        let again = model.forward(images(0, 2, side, &Device::flex())).unwrap();
        assert_eq!(numbers(again), numbers(logits), "{name}");
    }
}

/// One pass of one shard: the loss, its gradients by path, and the model after it.
fn trained(model: &Segmenter, side: usize, device: &Device) -> (f32, Named) {
    let shard = Shard {
        images: images(0, 2, side, device),
        labels: label_tensor(0, 2, side, device),
        first: 0,
    };
    let loss = losses(from_ref(model), vec![shard], 0, &ShardSum::single()).unwrap().remove(0);
    let value = numbers(loss.loss.clone())[0];
    (value, gradients(model, &loss.loss.backward()))
}

/// The loss, and of every parameter of pyramid and heads the two largest derivatives, by central
/// differences of the loops in f64.
#[test]
fn training_is_that_of_the_loops_and_gradients_are_differences() {
    for (name, heads, backbone) in variants() {
        let device = Device::flex().autodiff();
        let model = shaken(&heads, &backbone, &device);
        let parameters = values(&model);
        let side = backbone.image_size.height;
        // Without drops, training has the maps of evaluation.
        let found = model.features(images(0, 2, side, &device)).unwrap();
        let into = found.maps.map(maps);
        let labels = labels(0, 2, side);
        let naive =
            |parameters: &Named| Naive { parameters, trains: true }.loss(&into, &labels, side);
        let expected = naive(&parameters);
        let (loss, grads) = trained(&model, side, &device);
        assert!((f64::from(loss) / expected - 1.0).abs() < 1e-5, "{name}: {loss} {expected}");
        let mut checked = 0;
        for (path, (_, grad)) in &grads {
            if path.starts_with("backbone.") {
                continue;
            }
            let mut order: Vec<usize> = (0..grad.len()).collect();
            order.sort_by(|&a, &b| grad[b].abs().total_cmp(&grad[a].abs()));
            for &at in order.iter().take(2) {
                let step = 1e-5_f32;
                let moved = |by: f32| {
                    let mut parameters = parameters.clone();
                    let value = &mut parameters.get_mut(path).unwrap().1[at];
                    *value += by;
                    let moved = *value;
                    (f64::from(moved), naive(&parameters))
                };
                let ((above, up), (below, down)) = (moved(step), moved(-step));
                let difference = (up - down) / (above - below);
                let error = (f64::from(grad[at]) - difference).abs();
                let scale = difference.abs().max(1e-3);
                // A ReLU that the step crosses bends the loops' loss.
                assert!(error < 2e-2 * scale, "{name}, {path} {at}: {} {difference}", grad[at]);
                checked += 1;
            }
        }
        assert!(checked > 60, "{name}: {checked}");
    }
}

/// Running statistics after a step: 0.9 of the old, and 0.1 of the batch's mean and unbiased
/// variance, once.
#[test]
fn running_statistics_move_by_a_tenth_to_the_unbiased_variance() {
    let (_, heads, backbone) = variants().swap_remove(1);
    let device = Device::flex().autodiff();
    let model = shaken(&heads, &backbone, &device);
    let (before, side) = (values(&model), backbone.image_size.height);
    let _ = trained(&model, side, &device);
    let after = values(&model);
    let found = model.features(images(0, 2, side, &device)).unwrap();
    // The lateral of the second level, which is a map as it comes from the backbone.
    let name = "decode_head.lateral_convs.1";
    let weight = &before[&format!("{name}.conv.weight")];
    let outs: Vec<Map> = maps(found.levels[1].clone())
        .iter()
        .map(|x| {
            Map::new([weight.0[0], x.height, x.width], |o, y, column| {
                let product = |i| f64::from(weight.1[o * x.channels + i]) * x.at(i, y, column);
                (0..x.channels).map(product).sum()
            })
        })
        .collect();
    let (mean, variance) = crate::naive::moments(&outs);
    let count = (outs.len() * outs[0].height * outs[0].width) as f64;
    for (what, batch, scale) in
        [("running_mean", mean, 1.0), ("running_var", variance, count / (count - 1.0))]
    {
        let path = format!("{name}.bn.{what}");
        let expected: Vec<f64> = before[&path]
            .1
            .iter()
            .zip(batch)
            .map(|(&old, batch)| 0.9 * f64::from(old) + 0.1 * batch * scale)
            .collect();
        let error = error(&after[&path].1, &expected);
        assert!(error < 1e-6, "{path}: {error:.1e}");
    }
    let moved = after.iter().filter(|(path, _)| path.contains("running_"));
    assert!(moved.clone().all(|(path, value)| *value != before[path]));
    let others = after.iter().filter(|(path, _)| !path.contains("running_"));
    assert!(others.clone().all(|(path, value)| *value == before[path]));
    assert_eq!(moved.count(), 2 * 13);
}

#[test]
fn resizing_is_that_of_the_loops_and_its_gradient_the_adjoint() {
    let device = Device::flex().autodiff();
    for (from, to) in
        [([1, 1], [4, 3]), ([2, 3], [7, 5]), ([6, 5], [4, 9]), ([3, 3], [6, 6]), ([5, 4], [5, 4])]
    {
        let values: Vec<f32> =
            (0..2 * from[0] * from[1] * 3).map(|i| (i as f32 * 1.3).sin()).collect();
        let x = Tensor::<1>::from_floats(&values[..], &device).reshape([2, from[0], from[1], 3]);
        let x = x.detach().require_grad();
        let y = resize(x.clone(), to).unwrap();
        let expected: Vec<Map> =
            maps(x.clone()).iter().map(|map| map.resized(to[0], to[1])).collect();
        let off = error(&numbers(y.clone()), &channels_last(&expected));
        assert!(off < 1e-6, "{from:?} {to:?}: {off:.1e}");
        // ⟨A x, w⟩ = ⟨x, Aᵀ w⟩ for every x, of which A w' picks each.
        let weights: Vec<f32> =
            (0..y.dims().iter().product()).map(|i| (i as f32 * 0.7).cos()).collect();
        let weight = Tensor::<1>::from_floats(&weights[..], &device).reshape(y.dims());
        let grad = x.grad(&(y * weight).sum().backward()).unwrap();
        let grad: Vec<f32> = numbers(grad);
        for at in 0..values.len() {
            let mut one = vec![0.0_f32; values.len()];
            one[at] = 1.0;
            let one = Tensor::<1>::from_floats(&one[..], &Device::flex());
            let column = numbers(resize(one.reshape([2, from[0], from[1], 3]), to).unwrap());
            let product: f32 = column.iter().zip(&weights).map(|(a, b)| a * b).sum();
            assert!((product - grad[at]).abs() < 1e-5, "{from:?} {to:?} {at}");
        }
    }
}

/// Without autodiff the loss is the same, and pixels are counted.
#[test]
fn a_loss_counts_pixels_and_ignores_what_is_no_label() {
    let logits: Vec<f32> = (0..2 * 3 * 3 * 4).map(|i| (i as f32 * 0.9).sin() * 2.0).collect();
    let of = |device: &Device| {
        let x = Tensor::<1>::from_floats(&logits[..], device).reshape([2, 3, 3, 4]);
        let label = |i: usize| if i % 5 == 1 { 255 } else { (i % 6) as i64 }; // 4 and 5 are none
        let labels: Vec<i64> = (0..2 * 6 * 6).map(label).collect();
        let data = burn::tensor::TensorData::new(labels.clone(), [2, 6, 6]);
        (pixel_loss(x.clone(), &Tensor::from_data(data, device)).unwrap(), x, labels)
    };
    let (plain, x, labels) = of(&Device::flex());
    let (tracked, ..) = of(&Device::flex().autodiff());
    assert_eq!(numbers(plain.loss.clone()), numbers(tracked.loss));
    let large: Vec<Map> = maps(x).iter().map(|map| map.resized(6, 6)).collect();
    let (mut right, mut labelled) = (0.0, 0.0);
    for (i, label) in labels.iter().enumerate().filter(|(_, label)| **label < 4) {
        let (map, pixel) = (&large[i / 36], i % 36);
        let of = |class: usize| map.at(class, pixel / 6, pixel % 6);
        let best = (0..4).max_by(|&a, &b| of(a).total_cmp(&of(b))).unwrap();
        labelled += 1.0;
        right += f32::from(u8::from(best as i64 == *label));
    }
    assert_eq!(numbers(plain.correct), [right]);
    assert_eq!(numbers(plain.labelled), [labelled]);
    assert!(right > 0.0 && right < labelled);
}
