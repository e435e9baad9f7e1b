//! The short convolution against the f64 loops.

use burn::tensor::Device;
use vim_kernels::oracle::OracleConv;
use vim_kernels::{ConvOptions, Implementation, KernelError, causal_conv1d};

use crate::check::{Check, Context, Row, Subject, Worst, choice};
use crate::compare::{Numbers, figures, tensor, values};
use crate::dtype::Dtype;
use crate::run::STORED_BF16;

/// max |difference| / max |reference| in f32: four products and a silu forward, the weights'
/// gradients sums over B·L, and the exponential of a GPU good to a few units in the last place.
const F32: f64 = 1e-5;

/// Both implementations: y and the gradients of x, weight and bias.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let mut checks = Vec::new();
    for implementation in context.implementations() {
        for &dtype in context.dtypes {
            let run = move |context: &Context, factor: f64| {
                let mut worst = Worst::default();
                let few = context.few_kernels(implementation);
                for (conv, case) in cases(context.quick, few, dtype) {
                    rows(&conv, implementation, dtype, &context.device, &case, factor)?
                        .into_iter()
                        .for_each(|row| worst.add(row));
                }
                Ok(worst.into_rows())
            };
            checks.push(Check {
                subject: Subject::Oracle,
                operation: "causal_conv1d",
                method: None,
                series: None,
                implementation: implementation.to_string(),
                dtype: dtype.to_string(),
                run: Box::new(run),
            });
        }
    }
    checks
}

fn cases(quick: bool, few: bool, dtype: Dtype) -> Vec<(OracleConv, String)> {
    let long = if quick { 37 } else { 1025 };
    let mut cases = Vec::new();
    for [batch, len, d_inner] in [[1, 1, 1], [2, 2, 5], [3, 37, 9], [2, 197, 17], [1, long, 8]] {
        for width in if few { 4..=4 } else { 2..=4 } {
            let flags = [
                (true, false, true),
                (true, true, true),
                (false, false, true),
                (false, true, false),
                (true, false, false),
            ];
            for &(silu, reverse, with_bias) in if few { &flags[..2] } else { &flags[..] } {
                let mut x = Numbers::new(29);
                let conv = OracleConv {
                    batch,
                    len,
                    d_inner,
                    width,
                    silu,
                    reverse,
                    x: x.vec(batch * len * d_inner, -2.0, 2.0, dtype),
                    weight: x.vec(d_inner * width, -0.7, 0.7, Dtype::F32),
                    bias: with_bias.then(|| x.vec(d_inner, -0.5, 0.5, Dtype::F32)),
                };
                let way = if reverse { " reverse" } else { "" };
                let gate = if silu { " silu" } else { "" };
                let case = format!("B={batch} L={len} D={d_inner} W={width}{gate}{way}");
                cases.push((conv, case));
            }
        }
    }
    cases
}

fn rows(
    conv: &OracleConv,
    implementation: Implementation,
    dtype: Dtype,
    device: &Device,
    case: &str,
    factor: f64,
) -> Result<Vec<Row>, KernelError> {
    let OracleConv { batch, len, d_inner, width, silu, reverse, .. } = *conv;
    let device = &device.clone().autodiff();
    let shape = [batch, len, d_inner];
    let x = tensor(&conv.x, shape, dtype, device).require_grad();
    let weight = tensor(&conv.weight, [d_inner, 1, width], Dtype::F32, device).require_grad();
    let bias =
        conv.bias.as_ref().map(|bias| tensor(bias, [d_inner], Dtype::F32, device).require_grad());
    let options = ConvOptions { silu, reverse, choice: choice(implementation) };
    let y = causal_conv1d(x.clone(), weight.clone(), bias.clone(), options)?;
    let grad_y = Numbers::new(23).vec(conv.x.len(), -1.0, 1.0, dtype);
    let grads = (y.clone() * tensor(&grad_y, shape, dtype, device)).sum().backward();
    let want = conv.backward(&grad_y);
    let stored = if dtype == Dtype::Bf16 { STORED_BF16 + F32 } else { F32 };
    // An input without a gradient is an array of the wrong length, which fails.
    let mut arrays = vec![
        ("y", values(y), conv.forward(), stored),
        ("x", x.grad(&grads).map_or(vec![], values), want.x, stored),
        ("weight", weight.grad(&grads).map_or(vec![], values), want.weight, F32),
    ];
    if let Some(bias) = bias {
        arrays.push(("bias", bias.grad(&grads).map_or(vec![], values), want.bias, F32));
    }
    Ok(arrays
        .into_iter()
        .map(|(array, got, want, tolerance)| {
            Row::judged(array, figures(&got, &want, 1e-30), tolerance * factor, case)
        })
        .collect())
}
