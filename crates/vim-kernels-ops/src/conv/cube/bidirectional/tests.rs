//! Both kernels on a GPU against the oracle, of a view whose rows are longer than a token.

use burn_cubecl::CubeDevice;
use burn_cubecl::tensor::CubeTensor;
use cubecl::zspace::metadata::Metadata;

use super::*;
use crate::conv::oracle::{OracleConv, OracleConvGrads};
use crate::matmul::cube::tests::{device, numbers, on_device, values};
use vim_kernels_core::cube::sum::sum_rows;

/// Most of an error, of the largest number.
const TOLERANCE: f64 = 5e-6;

/// The first half of rows of `2·D`.
fn half(of: &CubeTensor, sizes: [usize; 3]) -> CubeTensor {
    let [_, len, d_inner] = sizes;
    let strides = vec![len * 2 * d_inner, 2 * d_inner, 1];
    let meta = Box::new(Metadata::new(Shape::from(sizes.to_vec()), strides));
    CubeTensor { meta, ..of.clone() }
}

fn near(got: &[f32], want: &[f64], case: &str) {
    assert_eq!(got.len(), want.len(), "{case}");
    let largest = want.iter().fold(1e-3f64, |most, x| most.max(x.abs()));
    for (i, (&got, want)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(got) - want).abs() / largest;
        assert!(error < TOLERANCE, "{case}: {i}: {got} instead of {want}");
    }
}

fn check([batch, len, d_inner]: [usize; 3], width: usize, reverse: bool, device: &CubeDevice) {
    let sizes = [batch, len, d_inner];
    let case = format!("{sizes:?} width {width} reverse {reverse}");
    let wide = |x: &[f32]| x.iter().copied().map(f64::from).collect::<Vec<_>>();
    let tokens = batch * len * d_inner;
    let xz = numbers(2 * tokens, 1);
    let grad_y = numbers(2 * tokens, 2);
    let weights = [3, 4].map(|seed| numbers(d_inner * width, seed));
    let biases = [5, 6].map(|seed| numbers(d_inner, seed));
    let x: Vec<f64> =
        xz.chunks(2 * d_inner).flat_map(|row| &row[..d_inner]).copied().map(f64::from).collect();
    let oracles = [0, 1].map(|i| OracleConv {
        batch,
        len,
        d_inner,
        width,
        silu: true,
        reverse: reverse != (i == 1),
        x: x.clone(),
        weight: wide(&weights[i]),
        bias: Some(wide(&biases[i])),
    });
    let shaped = |of: &[f32], shape: &[usize]| {
        let of = on_device(of, device);
        let strides =
            (0..shape.len()).map(|i| shape[i + 1..].iter().product::<usize>()).collect::<Vec<_>>();
        let meta = Box::new(Metadata::new(Shape::from(shape.to_vec()), strides));
        CubeTensor { meta, ..of }
    };
    let taps =
        [0, 1].map(|i| [shaped(&weights[i], &[d_inner, 1, width]), shaped(&biases[i], &[d_inner])]);
    let xz = on_device(&xz, device);
    let y = shaped(&vec![7.0; 2 * tokens], &[2 * batch, len, d_inner]);
    conv_bidirectional(&half(&xz, sizes), taps.clone(), reverse, &y);
    let want: Vec<f64> = oracles.iter().flat_map(OracleConv::forward).collect();
    near(&values(y), &want, &format!("{case}: y"));

    let of_y = shaped(&grad_y, &[2 * batch, len, d_inner]);
    let grad_xz = on_device(&vec![7.0; 2 * tokens], device);
    let TapParts { parts, rows, columns } = conv_bidirectional_backward(
        &of_y,
        &half(&xz, sizes),
        taps,
        reverse,
        &half(&grad_xz, sizes),
    );
    let grads = [0, 1].map(|i| {
        let grad: Vec<f64> = wide(&grad_y[i * tokens..(i + 1) * tokens]);
        oracles[i].backward(&grad)
    });
    let grad_xz = values(grad_xz);
    let (grad_x, rest): (Vec<&[f32]>, Vec<&[f32]>) =
        grad_xz.chunks(2 * d_inner).map(|row| row.split_at(d_inner)).unzip();
    assert!(rest.concat().iter().all(|&x| x == 7.0), "{case}: the gate's half");
    let want: Vec<f64> = grads[0].x.iter().zip(&grads[1].x).map(|(a, b)| a + b).collect();
    near(&grad_x.concat(), &want, &format!("{case}: grad_x"));
    let sums = on_device(&vec![0.0; columns], device);
    let none = on_device(&[0.0], device);
    sum_rows(parts, rows, columns, columns, &sums, &none);
    let want: Vec<f64> = in_order(grads, reverse)
        .into_iter()
        .flat_map(|OracleConvGrads { weight, bias, .. }| [weight, bias].concat())
        .collect();
    near(&values(sums), &want, &format!("{case}: taps"));
}

#[test]
fn both_directions_match_the_oracle() {
    let device = device();
    for sizes in
        [[1, 1, 1], [2, 2, 5], [1, 5, 64], [2, 9, 140], [3, 14, 6], [2, 197, 17], [1, 1025, 8]]
    {
        for width in 2..=4 {
            for reverse in [false, true] {
                check(sizes, width, reverse, &device);
            }
        }
    }
}

#[test]
fn many_sequences_match_the_oracle() {
    check([900, 10, 256], 4, false, &device());
}
