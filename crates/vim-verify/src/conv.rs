//! The short convolution against the f64 loops.

use burn::tensor::Device;
use vim_kernels::oracle::OracleConv;
use vim_kernels::{ConvOptions, Implementation, KernelError, causal_conv1d};

use crate::check::{Array, Check, Context, Subject, choice, rows_of, worst};
use crate::compare::{Dtype, Numbers, gradient, tensor, values_of};
use crate::run::STORED_BF16;

/// max |difference| / max |reference| in f32: four products and a silu forward, the weights'
/// gradients sums over B·L, and the exponential of a GPU good to a few units in the last place.
const F32: f64 = 1e-5;

/// Both implementations: y and the gradients of x, weight and bias.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let check = |(implementation, dtype)| {
        let run = move |context: &Context, factor| {
            let few = context.few_kernels(implementation);
            worst(cases(context.quick, few, dtype).into_iter().map(|(conv, case)| {
                let arrays = run(&conv, implementation, dtype, &context.device)?;
                Ok(rows_of(arrays, 1e-30, factor, &case))
            }))
        };
        Check::new(Subject::Oracle, "causal_conv1d", implementation, dtype, run)
    };
    context.runs().map(check).collect()
}

fn cases(quick: bool, few: bool, dtype: Dtype) -> Vec<(OracleConv, String)> {
    let long = if quick { 37 } else { 1025 };
    let mut cases = Vec::new();
    for sizes in [[1, 1, 1], [2, 2, 5], [3, 37, 9], [2, 197, 17], [1, long, 8]] {
        let [batch, len, d_inner] = sizes;
        for width in if few { 4..=4 } else { 2..=4 } {
            for &form in if few { &FORMS[..2] } else { &FORMS[..] } {
                let (silu, reverse, _) = form;
                let way = if reverse { " reverse" } else { "" };
                let gate = if silu { " silu" } else { "" };
                let case = format!("B={batch} L={len} D={d_inner} W={width}{gate}{way}");
                cases.push((inputs(sizes, width, form, dtype), case));
            }
        }
    }
    cases
}

/// Whether silu follows, whether it is reversed, and whether there is a bias.
pub type Form = (bool, bool, bool);

/// The forms that differ.
pub const FORMS: [Form; 5] = [
    (true, false, true),
    (true, true, true),
    (false, false, true),
    (false, true, false),
    (true, false, false),
];

/// A convolution of `[B, L, D]` with `width` taps.
#[must_use]
pub fn inputs(
    [batch, len, d_inner]: [usize; 3],
    width: usize,
    (silu, reverse, with_bias): Form,
    dtype: Dtype,
) -> OracleConv {
    let mut x = Numbers::new(29);
    OracleConv {
        batch,
        len,
        d_inner,
        width,
        silu,
        reverse,
        x: x.vec(batch * len * d_inner, -2.0, 2.0, dtype),
        weight: x.vec(d_inner * width, -0.7, 0.7, Dtype::F32),
        bias: with_bias.then(|| x.vec(d_inner, -0.5, 0.5, Dtype::F32)),
    }
}

/// The result and the gradients of `implementation` on `device`, which is without autodiff. Those
/// of the weight and the bias are f32 whatever the type of x.
///
/// # Errors
///
/// [`KernelError`] if `implementation` cannot run it on `device`.
pub fn run(
    conv: &OracleConv,
    implementation: Implementation,
    dtype: Dtype,
    device: &Device,
) -> Result<Vec<Array>, KernelError> {
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
    let grad_x = x.grad(&grads).map_or(vec![], |grad| values_of(grad, dtype));
    let mut arrays = vec![
        ("y", values_of(y, dtype), conv.forward(), stored),
        ("x", grad_x, want.x, stored),
        ("weight", gradient(&weight, &grads), want.weight, F32),
    ];
    arrays.extend(bias.map(|bias| ("bias", gradient(&bias, &grads), want.bias, F32)));
    Ok(arrays)
}
