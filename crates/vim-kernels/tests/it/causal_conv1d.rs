//! The convolution, kernel and reference, against the oracle.

use burn::tensor::{Device, Tensor};
use vim_kernels::oracle::OracleConv;
use vim_kernels::{ConvOptions, KernelError, ScanChoice, causal_conv1d};

use crate::support::{Numbers, error, tensor, values};

/// max |difference| / max |reference| in f32: four products and a silu forward; the weights'
/// gradient sums over B·L.
const F32: f64 = 5e-6;

fn check(conv: &OracleConv, choice: ScanChoice) {
    let OracleConv { batch, len, d_inner, width, silu, reverse, .. } = *conv;
    let device = Device::flex().autodiff();
    let x = tensor(&conv.x, [batch, len, d_inner], &device).require_grad();
    let weight = tensor(&conv.weight, [d_inner, 1, width], &device).require_grad();
    let bias = conv.bias.as_ref().map(|b| tensor(b, [d_inner], &device).require_grad());
    let options = ConvOptions { silu, reverse, choice };
    let y = causal_conv1d(x.clone(), weight.clone(), bias.clone(), options).unwrap();
    let grad_y = Numbers::new(23).vec(conv.x.len(), -1.0, 1.0);
    let grads = (y.clone() * tensor(&grad_y, [batch, len, d_inner], &device)).sum().backward();
    let want = conv.backward(&grad_y);
    let mut pairs = vec![
        ("y", values(y), conv.forward()),
        ("x", values(x.grad(&grads).unwrap()), want.x),
        ("weight", values(weight.grad(&grads).unwrap()), want.weight),
    ];
    if let Some(bias) = bias {
        pairs.push(("bias", values(bias.grad(&grads).unwrap()), want.bias));
    }
    for (name, got, want) in pairs {
        let error = error(&got, &want);
        assert!(
            error <= F32,
            "{choice} [{batch}, {len}, {d_inner}] width {width} silu {silu} reverse {reverse}: {name} is off by {error:.1e}"
        );
    }
}

#[test]
fn kernel_and_reference_match_the_oracle() {
    for (batch, len, d_inner) in
        [(1, 1, 1), (2, 2, 5), (1, 5, 64), (3, 37, 9), (2, 197, 17), (1, 1025, 8)]
    {
        for width in 2..=4 {
            for (silu, reverse, with_bias) in [
                (true, false, true),
                (true, true, true),
                (false, false, true),
                (false, true, false),
                (true, false, false),
            ] {
                let mut x = Numbers::new(29);
                let conv = OracleConv {
                    batch,
                    len,
                    d_inner,
                    width,
                    silu,
                    reverse,
                    x: x.vec(batch * len * d_inner, -2.0, 2.0),
                    weight: x.vec(d_inner * width, -0.7, 0.7),
                    bias: with_bias.then(|| x.vec(d_inner, -0.5, 0.5)),
                };
                check(&conv, ScanChoice::Kernel);
                check(&conv, ScanChoice::Reference);
            }
        }
    }
}

#[test]
fn wrong_shapes_name_the_argument() {
    let device = Device::flex();
    let call = |weight: [usize; 3], bias: usize| {
        let bias = Tensor::zeros([bias], &device);
        let (x, weight) = (Tensor::zeros([2, 3, 4], &device), Tensor::zeros(weight, &device));
        causal_conv1d(x, weight, Some(bias), ConvOptions::default())
    };
    assert!(call([4, 1, 4], 4).is_ok());
    let weight = call([4, 1, 5], 4).unwrap_err();
    assert!(matches!(weight, KernelError::Shape { tensor: "weight", .. }), "{weight}");
    let bias = call([4, 1, 4], 5).unwrap_err();
    assert!(matches!(bias, KernelError::Shape { tensor: "bias", .. }), "{bias}");
}
