//! The convolution, kernel and reference, against the oracle.

use burn::tensor::{DType, Device, FloatDType, Tensor};
use vim_kernels::oracle::{OracleConv, OracleConvGrads};
use vim_kernels::{ConvOptions, KernelChoice, KernelError, causal_conv1d};

use crate::devices::{bf16_devices, devices};
use crate::support::{Dtype, Numbers, error, tensor, to_bf16, values};

/// max |difference| / max |reference| in f32: four products and a silu forward; the weights'
/// gradients sum over B·L.
const F32: f64 = 5e-6;
/// The same in bf16, where y and the gradient of x are rounded to 8 bits, by up to 2⁻⁸ of each. The
/// gradients of the weight and the bias are summed and returned in f32.
const BF16: f64 = 1.0 / 256.0 + F32;

/// Output and gradients.
struct Outcome {
    y: Vec<f64>,
    grads: OracleConvGrads,
}

fn run(
    conv: &OracleConv,
    grad_y: &[f64],
    dtype: FloatDType,
    choice: KernelChoice,
    on: &Device,
) -> Outcome {
    let OracleConv { batch, len, d_inner, width, silu, reverse, .. } = *conv;
    let device = on.clone().autodiff();
    let tokens = [batch, len, d_inner];
    let x = tensor(&conv.x, tokens, &device).cast(dtype).require_grad();
    let weight = tensor(&conv.weight, [d_inner, 1, width], &device).require_grad();
    let bias = conv.bias.as_ref().map(|b| tensor(b, [d_inner], &device).require_grad());
    let options = ConvOptions { silu, reverse, choice };
    let y = causal_conv1d(x.clone(), weight.clone(), bias.clone(), options).unwrap();
    let dtype = DType::from(dtype);
    assert_eq!(y.dtype(), dtype, "y");
    let grads = (y.clone().cast(FloatDType::F32) * tensor(grad_y, tokens, &device)).sum();
    let grads = grads.backward();
    let grad_x = x.grad(&grads).unwrap();
    assert_eq!(grad_x.dtype(), dtype, "the gradient of x");
    Outcome {
        y: values(y),
        grads: OracleConvGrads {
            x: values(grad_x),
            weight: values(weight.grad(&grads).unwrap()),
            bias: bias.map_or(vec![], |bias| values(bias.grad(&grads).unwrap())),
        },
    }
}

fn check(conv: &OracleConv, dtype: FloatDType, choice: KernelChoice, device: &Device) {
    // In bf16 the gradient of y arrives in bf16, so the numbers are rounded from the start.
    let grad_y = Numbers::new(23).vec(conv.x.len(), -1.0, 1.0, Dtype::F32);
    let (conv, grad_y) = if dtype == FloatDType::BF16 {
        (&OracleConv { x: to_bf16(&conv.x), ..conv.clone() }, to_bf16(&grad_y))
    } else {
        (conv, grad_y)
    };
    let got = run(conv, &grad_y, dtype, choice, device);
    let want = conv.backward(&grad_y);
    let tokens = if dtype == FloatDType::BF16 { BF16 } else { F32 };
    for (name, got, want, tolerance) in [
        ("y", &got.y, &conv.forward(), tokens),
        ("x", &got.grads.x, &want.x, tokens),
        ("weight", &got.grads.weight, &want.weight, F32),
        ("bias", &got.grads.bias, &want.bias, F32),
    ] {
        let error = error(got, want);
        let OracleConv { batch, len, d_inner, width, silu, reverse, .. } = conv;
        assert!(
            error <= tolerance,
            "{device:?} {choice} {dtype:?} [{batch}, {len}, {d_inner}] width {width} silu {silu} \
             reverse {reverse}: {name} is off by {error:.1e}"
        );
    }
}

fn conv([batch, len, d_inner]: [usize; 3], width: usize, form: (bool, bool, bool)) -> OracleConv {
    let (silu, reverse, with_bias) = form;
    let mut x = Numbers::new(29);
    OracleConv {
        batch,
        len,
        d_inner,
        width,
        silu,
        reverse,
        x: x.vec(batch * len * d_inner, -2.0, 2.0, Dtype::F32),
        weight: x.vec(d_inner * width, -0.7, 0.7, Dtype::F32),
        bias: with_bias.then(|| x.vec(d_inner, -0.5, 0.5, Dtype::F32)),
    }
}

/// One channel and many, vectors of 1, 2 and 4 channels, more channels than a cube is wide, strips
/// of one token and of many, more strips than a cube holds.
const SIZES: [[usize; 3]; 8] = [
    [1, 1, 1],
    [2, 2, 5],
    [1, 5, 64],
    [3, 37, 9],
    [2, 197, 17],
    [2, 50, 134],
    [1, 197, 140],
    [1, 1025, 8],
];
/// (silu, reverse, bias).
const FORMS: [(bool, bool, bool); 5] = [
    (true, false, true),
    (true, true, true),
    (false, false, true),
    (false, true, false),
    (true, false, false),
];

#[test]
fn kernel_and_reference_match_the_oracle() {
    for device in devices() {
        for sizes in SIZES {
            for width in 2..=4 {
                for form in FORMS {
                    let conv = conv(sizes, width, form);
                    check(&conv, FloatDType::F32, KernelChoice::Kernel, &device);
                    check(&conv, FloatDType::F32, KernelChoice::Reference, &device);
                }
            }
        }
    }
}

#[test]
fn bf16_matches_the_oracle() {
    for device in bf16_devices() {
        for sizes in SIZES {
            for form in FORMS {
                let conv = conv(sizes, 4, form);
                check(&conv, FloatDType::BF16, KernelChoice::Kernel, &device);
                check(&conv, FloatDType::BF16, KernelChoice::Reference, &device);
            }
        }
    }
}

#[test]
fn the_same_bits_twice() {
    for device in devices() {
        let conv = conv([3, 197, 24], 4, (true, false, true));
        let grad_y = Numbers::new(23).vec(conv.x.len(), -1.0, 1.0, Dtype::F32);
        let again = || run(&conv, &grad_y, FloatDType::F32, KernelChoice::Kernel, &device);
        let (one, two) = (again(), again());
        assert_eq!(one.y, two.y, "{device:?}");
        assert_eq!(one.grads, two.grads, "{device:?}");
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

#[test]
fn a_type_that_is_not_taken_names_the_argument() {
    let device = Device::flex();
    let call = |x: FloatDType, weight: FloatDType| {
        let x = Tensor::<3>::zeros([2, 3, 4], &device).cast(x);
        let weight = Tensor::<3>::zeros([4, 1, 4], &device).cast(weight);
        causal_conv1d(x, weight, None, ConvOptions::default())
    };
    let x = call(FloatDType::F64, FloatDType::F32).unwrap_err();
    assert!(matches!(x, KernelError::Dtype { tensor: "x", .. }), "{x}");
    let weight = call(FloatDType::F32, FloatDType::BF16).unwrap_err();
    assert!(matches!(weight, KernelError::Dtype { tensor: "weight", .. }), "{weight}");
}
