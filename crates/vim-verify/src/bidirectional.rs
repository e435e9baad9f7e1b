//! Two scans in opposite directions at once, against the f64 loops run for each.

use burn::tensor::Device;
use vim_kernels::oracle::{OracleScan, OracleScanGrads};
use vim_kernels::{KernelError, ScanOptions, Series, selective_scan_bidirectional};

use crate::check::{Check, Context, Row, Subject, choice, worst};
use crate::compare::{Dtype, gradient, tensor, values};
use crate::run::{Results, judged};
use crate::scan::{Form, grad_of, inputs};

/// Every method, implementation and type: the sum of both outputs, and all gradients.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let check = |(implementation, dtype), method| {
        let run = move |context: &Context, factor| {
            let options = ScanOptions {
                method,
                series: Series::Exact,
                delta_softplus: true,
                reverse: false,
                choice: choice(implementation),
            };
            let sizes = [[2, 1, 5, 16], [3, 21, 6, 16], [2, 67, 40, 16]];
            worst(sizes.map(|sizes| rows(sizes, options, dtype, &context.device, factor)))
        };
        let operation = "selective_scan_bidirectional";
        Check::new(Subject::Oracle, operation, implementation, dtype, run).of(method, Series::Exact)
    };
    let methods = &context.methods;
    context.runs().flat_map(|one| methods.iter().map(move |&method| check(one, method))).collect()
}

/// The rows of both scans at once, each of sizes `[B, L, D, N]`, with softplus and every optional
/// input; `device` is without autodiff.
///
/// # Errors
///
/// [`KernelError`] if what `options` choose cannot run on `device`.
pub fn rows(
    sizes: [usize; 4],
    options: ScanOptions,
    dtype: Dtype,
    device: &Device,
    factor: f64,
) -> Result<Vec<Row>, KernelError> {
    let [batch, len, d_inner, d_state] = sizes;
    let whole = inputs([2 * batch, len, d_inner, d_state], Form::Variable, 4.0, dtype);
    let other = inputs([batch, len, 2 * d_inner, d_state], Form::Variable, 3.0, dtype);
    let part = |values: &[f64], way: usize| {
        let half = values.len() / 2;
        values[way * half..(way + 1) * half].to_vec()
    };
    let z = whole.z.as_deref().map(|z| part(z, 0));
    let one = |way: usize| OracleScan {
        batch,
        method: options.method,
        series: options.series,
        reverse: options.reverse ^ (way == 1),
        u: part(&whole.u, way),
        delta: part(&whole.delta, way),
        b: part(&whole.b, way),
        c: part(&whole.c, way),
        a: part(&other.a, way),
        d: other.d.as_deref().map(|d| part(d, way)),
        delta_bias: other.delta_bias.as_deref().map(|bias| part(bias, way)),
        z: z.clone(),
        ..whole.clone()
    };
    let two = [one(0), one(1)];
    let grad_y = grad_of(&two[0], dtype);
    let [ahead, back] = two.each_ref().map(|scan| Results::of_oracle(scan, &grad_y));
    let sum = |x: &[f64], y: &[f64]| -> Vec<f64> { x.iter().zip(y).map(|(x, y)| x + y).collect() };
    let both = |x: Vec<f64>, y: Vec<f64>| [x, y].concat();
    let want = Results {
        y: sum(&ahead.y, &back.y),
        last_state: vec![],
        grads: OracleScanGrads {
            z: sum(&ahead.grads.z, &back.grads.z),
            u: both(ahead.grads.u, back.grads.u),
            delta: both(ahead.grads.delta, back.grads.delta),
            a: both(ahead.grads.a, back.grads.a),
            b: both(ahead.grads.b, back.grads.b),
            c: both(ahead.grads.c, back.grads.c),
            d: both(ahead.grads.d, back.grads.d),
            delta_bias: both(ahead.grads.delta_bias, back.grads.delta_bias),
        },
    };

    let device = &device.clone().autodiff();
    let four = |values: &[f64], width: usize| {
        tensor(values, [2, batch, len, width], dtype, device).require_grad()
    };
    let channels = |values: &Option<Vec<f64>>| {
        let values = values.as_deref().unwrap_or_default();
        tensor(values, [2, d_inner], Dtype::F32, device).require_grad()
    };
    let [u, delta] = [&whole.u, &whole.delta].map(|x| four(x, d_inner));
    let [b, c] = [&whole.b, &whole.c].map(|x| four(x, d_state));
    let a = tensor(&other.a, [2, d_inner, d_state], Dtype::F32, device).require_grad();
    let [d, bias] = [&other.d, &other.delta_bias].map(channels);
    let tokens = [batch, len, d_inner];
    let z = tensor(z.as_deref().unwrap_or_default(), tokens, dtype, device).require_grad();
    let y = selective_scan_bidirectional(
        u.clone(),
        delta.clone(),
        a.clone(),
        b.clone(),
        c.clone(),
        Some(d.clone()),
        Some(z.clone()),
        Some(bias.clone()),
        options,
    )?;
    let grads = (y.clone() * tensor(&grad_y, tokens, dtype, device)).sum().backward();
    let [u, delta, b, c] = [u, delta, b, c].map(|t| gradient(&t, &grads));
    let [d, delta_bias] = [d, bias].map(|t| gradient(&t, &grads));
    let (a, z) = (gradient(&a, &grads), gradient(&z, &grads));
    let grads = OracleScanGrads { u, delta, a, b, c, d, z, delta_bias };
    let got = Results { y: values(y), last_state: vec![], grads };
    let case = format!("B={batch} L={len} D={d_inner} N={d_state} both ways");
    // In bf16, y and z's gradient are sums of two numbers that were each rounded before.
    let factor = if dtype == Dtype::Bf16 { 2.0 * factor } else { factor };
    Ok(judged(&two[0], &got, &want, dtype, 1.0, factor, &case))
}
