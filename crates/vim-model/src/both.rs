//! Both directions of a mixer at once, for devices whose kernels take them so.

use burn::module::Param;
use burn::tensor::Tensor;
use vim_kernels::{ConvOptions, ScanOptions, causal_conv1d_both, selective_scan_both};

use crate::direction::Direction;

/// The sum of `ahead.forward(x, z, scan)` and of `back.forward(x, z, scan)` in the other direction.
///
/// The same numbers as one after the other, by half the launches: the weights of both directions, which are
/// small, are stacked, and every product and the scan take them together.
///
/// # Shapes
///
/// - `x`, the gate `z`, and the result: `[B, L, D]`
///
/// # Panics
///
/// If a direction has a full A, or `scan` forces a kernel that the device does not have.
pub(crate) fn both(
    ahead: &Direction,
    back: &Direction,
    x: Tensor<3>,
    z: Tensor<3>,
    scan: ScanOptions,
) -> Tensor<3> {
    assert!(ahead.a_off.is_none() && back.a_off.is_none(), "invariant: A is diagonal");
    let [batch, len, d_inner] = x.dims();
    let [_, d_state] = ahead.a_log.dims();
    let rates = [&ahead.a_log, &back.a_log];
    let two = [ahead.parts(), back.parts()];
    let [dt_rank, _] = two[0].dt_proj.weight.dims();
    let conv = ConvOptions { silu: true, reverse: scan.reverse, choice: scan.choice };
    let u = causal_conv1d_both(
        x,
        two.map(|way| way.conv1d.weight.val()),
        two.map(|way| way.conv1d.bias.val()),
        conv,
    )
    .expect("invariant: init checked the shapes and the choice of kernel"); // [2, B, L, D]

    let rows = u.clone().reshape([2, batch * len, d_inner]);
    let [dt, b, c] = rows
        .matmul(stack(two.map(|way| &way.x_proj.weight))) // [2, B·L, R + 2N]
        .split_with_sizes(vec![dt_rank, d_state, d_state], 2)
        .try_into()
        .expect("invariant: as many parts as sizes");
    let delta = dt.matmul(stack(two.map(|way| &way.dt_proj.weight))); // [2, B·L, D]

    let a = stack::<2, 3>(rates).exp().neg();
    let d = stack::<1, 2>(two.map(|way| way.d));
    let bias = two.map(|way| way.dt_proj.bias.as_ref());
    let bias = if let [Some(ahead), Some(back)] = bias { Some(stack([ahead, back])) } else { None };
    let tokens = |t: Tensor<3>, width: usize| t.reshape([2, batch, len, width]);
    selective_scan_both(
        u,
        tokens(delta, d_inner),
        a,
        tokens(b, d_state),
        tokens(c, d_state),
        Some(d),
        Some(z),
        bias,
        scan,
    )
    .expect("invariant: init checked the shapes and the choice of kernel")
}

fn stack<const R: usize, const S: usize>(two: [&Param<Tensor<R>>; 2]) -> Tensor<S> {
    Tensor::stack(two.map(Param::val).to_vec(), 0)
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};
    use vim_kernels::{Discretization, ScanChoice};

    use super::*;
    use crate::{Preset, VimConfig};

    fn wave(shape: [usize; 3], step: f32, device: &Device) -> Tensor<3> {
        let count = shape.iter().product::<usize>();
        let numbers: Vec<f32> = (0..count).map(|i| (i as f32 * step).sin()).collect();
        Tensor::from_data(TensorData::new(numbers, shape), device)
    }

    fn numbers<const R: usize>(tensor: Tensor<R>) -> Vec<f32> {
        tensor.into_data().try_to_vec().expect("f32")
    }

    // Two directions with weights of their own, an odd number of images, tokens and channels. The same
    // operations on other cuts of the same numbers: what differs is the order of the products' sums.
    #[test]
    fn both_at_once_are_one_after_the_other() {
        let config = VimConfig {
            image_size: 12.into(),
            patch_size: 4,
            stride: 4,
            depth: 1,
            d_model: 17,
            expand: 3,
            d_state: 5,
            num_classes: 2,
            ..VimConfig::preset(Preset::Tiny)
        };
        for choice in [ScanChoice::Auto, ScanChoice::Reference] {
            for method in [Discretization::Zoh, Discretization::Poly] {
                let device = Device::default().autodiff();
                let model = config.init(&device, 7).expect("a valid model");
                let mixer = &model.layers[0].mixer;
                let scan = ScanOptions { method, delta_softplus: true, choice, ..mixer.ways[0] };
                let grad = wave([3, 10, 51], 0.13, &device);
                let run = |at_once: bool| {
                    let x = wave([3, 10, 51], 0.37, &device).require_grad();
                    let z = wave([3, 10, 51], 0.71, &device).require_grad();
                    let ahead = &mixer.forward;
                    let back = mixer.backward.as_ref().expect("two directions");
                    let y = if at_once {
                        both(ahead, back, x.clone(), z.clone(), scan)
                    } else {
                        let turned = ScanOptions { reverse: true, ..scan };
                        ahead.forward(x.clone(), z.clone(), scan)
                            + back.forward(x.clone(), z.clone(), turned)
                    };
                    let grads = (y.clone() * grad.clone()).sum().backward();
                    let mut all = vec![numbers(y)];
                    all.extend([x, z].map(|t| numbers(t.grad(&grads).expect("a gradient"))));
                    for way in [ahead, back] {
                        let of = |t: Tensor<2>| numbers(t.grad(&grads).expect("a gradient"));
                        let rate = &way.a_log;
                        let way = way.parts();
                        all.extend(
                            [rate, &way.x_proj.weight, &way.dt_proj.weight].map(|p| of(p.val())),
                        );
                        let bias = way.dt_proj.bias.as_ref().expect("a bias");
                        for weight in [way.d, bias, &way.conv1d.bias] {
                            all.push(numbers(weight.val().grad(&grads).expect("a gradient")));
                        }
                        let conv = way.conv1d.weight.val().grad(&grads).expect("a gradient");
                        all.push(numbers(conv));
                    }
                    all
                };
                for (i, (got, want)) in run(true).iter().zip(run(false)).enumerate() {
                    let scale = want.iter().fold(1e-30_f32, |m, w| m.max(w.abs()));
                    let off = got.iter().zip(&want).fold(0.0_f32, |m, (g, w)| m.max((g - w).abs()));
                    assert!(off <= 1e-5 * scale, "{method} {choice}: array {i}: {off} of {scale}");
                }
            }
        }
    }
}
