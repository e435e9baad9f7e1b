//! The addition to the residual stream with its norm against the f64 loops.

use burn::tensor::Device;
use vim_kernels::oracle::OracleNorm;
use vim_kernels::{ImageFactors, Implementation, KernelError, add_scaled_rms_norm};

use crate::check::{Array, Check, Context, Row, Subject, choice, rows_of, worst};
use crate::compare::{Dtype, Numbers, gradient, tensor, values_of};
use crate::run::STORED_BF16;

/// max |difference| / max |reference| in f32: a few roundings of 6e-8 an element, and means over up
/// to 2000 of them; the gradient of the weight sums over rows.
const F32: f64 = 3e-6;

/// Both implementations: the normalized rows, the sums, and the gradients of x, residual and
/// weight.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let check = |(implementation, dtype)| {
        let run = move |context: &Context, factor| {
            let few = context.few_kernels(implementation);
            worst(cases(few).into_iter().map(|([rows, d_model], residual, reads, factors)| {
                let (images, rows) = if factors { (kept(rows), 2 * rows) } else { (vec![], rows) };
                let norm = inputs(rows, d_model, residual, dtype);
                judge(&norm, reads, &images, implementation, dtype, &context.device, factor)
            }))
        };
        Check::new(Subject::Oracle, "add_rms_norm", implementation, dtype, run)
    };
    context.runs().map(check).collect()
}

/// Which of the results the loss reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// The normalized rows and the sums.
    Both,
    /// The normalized rows.
    Normed,
    /// The sums.
    Sum,
}

/// Rows and channels: one row and odd counts; vectors of 1, 2 and 4; a row of many vectors, and one
/// that takes a whole block.
pub const SIZES: [[usize; 2]; 9] =
    [[1, 1], [7, 1], [1, 5], [7, 5], [1, 384], [7, 1000], [37, 192], [3, 2000], [997, 48]];

/// Rows and channels, whether there is a stream to add to, what is read, and whether each two of
/// twice as many rows are an image with a factor. A few are of the widths of Vim-Ti, Vim-S and a
/// detector's pyramid, which kernels are compiled for.
fn cases(few: bool) -> Vec<([usize; 2], bool, Reads, bool)> {
    let sizes: &[[usize; 2]] = if few {
        &[[1, 192], [7, 192], [997, 96], [997, 192], [997, 256], [997, 384]]
    } else {
        &SIZES
    };
    // No place of a model has factors and no stream.
    let forms = [
        (true, Reads::Both, false),
        (true, Reads::Normed, false),
        (false, Reads::Both, false),
        (false, Reads::Normed, false),
        (true, Reads::Both, true),
        (true, Reads::Normed, true),
    ];
    let of = |&size| forms.map(|(residual, reads, factors)| (size, residual, reads, factors));
    sizes.iter().flat_map(of).collect()
}

/// Factors of images, as drop path has them: some are 0.
#[must_use]
pub fn kept(images: usize) -> Vec<f64> {
    (0..images).map(|i| if i % 4 == 1 { 0.0 } else { Dtype::F32.round(1.0 / 0.9) }).collect()
}

/// `values` of as many images as there are factors, each times its factor as `dtype` has it; the
/// products are exact. Without factors the values are as they are.
#[must_use]
pub fn times(values: &[f64], factors: &[f64], dtype: Dtype) -> Vec<f64> {
    let of = |i| factors.get(i * factors.len() / values.len()).map_or(1.0, |f| dtype.round(*f));
    values.iter().enumerate().map(|(i, value)| value * of(i)).collect()
}

/// Rows to normalize.
#[must_use]
pub fn inputs(rows: usize, d_model: usize, residual: bool, dtype: Dtype) -> OracleNorm {
    let mut x = Numbers::new(41);
    let count = rows * d_model;
    OracleNorm {
        d_model,
        epsilon: 1e-5,
        x: x.vec(count, -2.0, 2.0, dtype),
        residual: residual.then(|| x.vec(count, -3.0, 3.0, Dtype::F32)),
        weight: x.vec(d_model, -1.5, 1.5, Dtype::F32),
    }
}

/// The results and the gradients of `implementation` on `device`, which is without autodiff. The
/// rows are of as many images as there are `factors`. The sum and the gradients of residual and
/// weight are f32 whatever the type of x.
///
/// # Errors
///
/// [`KernelError`] if `implementation` cannot run it on `device`.
pub fn run(
    norm: &OracleNorm,
    reads: Reads,
    factors: &[f64],
    implementation: Implementation,
    dtype: Dtype,
    device: &Device,
) -> Result<Vec<Array>, KernelError> {
    let mut numbers = Numbers::new(43);
    let mut by = |read: bool, dtype| {
        let numbers = numbers.vec(norm.x.len(), -1.0, 1.0, dtype);
        if read { numbers } else { vec![0.0; norm.x.len()] }
    };
    let by_normed = by(reads != Reads::Sum, dtype);
    let by_sum = by(reads != Reads::Normed, Dtype::F32);
    // What is normalized is the rounded product, by definition. The gradient's product is exact: a
    // rounded one could be a unit away from another right rounding.
    let x = dtype.rounded(times(&norm.x, factors, dtype));
    let scaled = OracleNorm { x, ..norm.clone() };
    let (want_normed, want_sum) = scaled.forward();
    let want = scaled.backward(&by_normed, &by_sum);
    let want_x = times(&want.x, factors, dtype);

    let device = &device.clone().autodiff();
    let rows = norm.x.len() / norm.d_model;
    let images = if factors.is_empty() { rows } else { factors.len() };
    let shape = [images, rows / images, norm.d_model];
    let x = tensor(&norm.x, shape, dtype, device).require_grad();
    let stream = norm.residual.as_ref();
    let stream = stream.map(|r| tensor(r, shape, Dtype::F32, device).require_grad());
    let weight = tensor(&norm.weight, [norm.d_model], Dtype::F32, device).require_grad();
    let choice = choice(implementation);
    // Those of another place come first.
    let factors = (!factors.is_empty()).then(|| {
        let both = [vec![7.0; images], factors.to_vec()].concat();
        ImageFactors { factors: tensor(&both, [2, images], Dtype::F32, device), row: 1 }
    });
    // The gradient of x is rounded once more where it is multiplied.
    let roundings = if factors.is_some() { 2.0 } else { 1.0 };
    let (normed, sum) = add_scaled_rms_norm(
        x.clone(),
        factors,
        stream.clone(),
        weight.clone(),
        norm.epsilon,
        choice,
    )?;
    // The loss's parts are differentiated in one go, each in its type.
    let of_normed =
        (normed.clone() * tensor(&by_normed, shape, dtype, device)).cast(Dtype::F32.float()).sum();
    let of_sum = (sum.clone() * tensor(&by_sum, shape, Dtype::F32, device)).sum();
    let loss = match reads {
        Reads::Both => of_normed + of_sum,
        Reads::Normed => of_normed,
        Reads::Sum => of_sum,
    };
    let grads = loss.backward();
    let stored = if dtype == Dtype::Bf16 { STORED_BF16 + F32 } else { F32 };
    let grad_x = x.grad(&grads).map_or(vec![], |grad| values_of(grad, dtype));
    // The reference has no gradient of a weight that the loss does not depend on.
    let grad_weight = match (reads, implementation) {
        (Reads::Sum, Implementation::Reference) => vec![0.0; norm.d_model],
        _ => gradient(&weight, &grads),
    };
    let mut arrays = vec![
        ("normed", values_of(normed, dtype), want_normed, stored),
        ("sum", values_of(sum, Dtype::F32), want_sum, F32),
        ("x", grad_x, want_x, roundings * stored),
        ("weight", grad_weight, want.weight, F32),
    ];
    arrays.extend(stream.map(|s| ("residual", gradient(&s, &grads), want.residual, F32)));
    Ok(arrays)
}

/// The rows of [`run`], its tolerances multiplied by `factor`.
///
/// # Errors
///
/// As [`run`].
pub fn judge(
    norm: &OracleNorm,
    reads: Reads,
    factors: &[f64],
    implementation: Implementation,
    dtype: Dtype,
    device: &Device,
    factor: f64,
) -> Result<Vec<Row>, KernelError> {
    let arrays = run(norm, reads, factors, implementation, dtype, device)?;
    let d_model = norm.d_model;
    let added = if norm.residual.is_some() { " residual" } else { "" };
    let read = if reads == Reads::Normed { "" } else { " sum read" };
    let scaled = if factors.is_empty() { "" } else { " factors" };
    let case = format!("rows={} D={d_model}{added}{read}{scaled}", norm.x.len() / d_model);
    // One element normalizes to its sign: its gradient is what rounding leaves of a difference of
    // terms of size 1, and epsilon's share.
    let floor = if d_model == 1 { 1.0 } else { 1e-30 };
    Ok(rows_of(arrays, floor, factor, &case))
}
