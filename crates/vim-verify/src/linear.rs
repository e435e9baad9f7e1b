//! The linear map against products in f64.

use vim_kernels::{Implementation, KernelError, Precision, halved_linear, linear};

use crate::check::{Array, Check, Context, Row, Subject, rows_of, worst};
use crate::compare::{Dtype, Numbers, gradient, tensor, values};
use crate::product::{product, turned};

/// max |difference| / max |reference| in f32: sums of up to 1000 products, and of the weights'
/// gradients of 11 300.
pub(crate) const F32: f64 = 1e-5;

/// The same with 11 bits of every factor: 2⁻¹¹ of each of two, and the errors of a sum's terms
/// mostly cancel.
pub(crate) const TF32: f64 = 1e-3;

/// The same in bf16: a weight is rounded to 8 bits, so is a result that is stored in bf16.
pub(crate) const BF16: f64 = 8e-3;

/// The result and the gradients of x, weight and bias, in each precision.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let check = |precision| {
        let run = move |context: &Context, factor| {
            let cases = cases(context, precision).into_iter();
            worst(cases.map(|(sizes, forms)| rows(sizes, forms, precision, context, factor)))
        };
        Check::new(Subject::Oracle, "linear", Implementation::Kernel, precision, run)
    };
    precisions(context).map(check).collect()
}

/// The precisions that are asked for.
pub(crate) fn precisions(context: &Context) -> impl Iterator<Item = Precision> + use<'_> {
    let own = |precision: &Precision| match precision {
        Precision::Bf16 => context.dtypes.contains(&Dtype::Bf16),
        Precision::F32 | Precision::Tf32 => context.dtypes.contains(&Dtype::F32),
    };
    [Precision::F32, Precision::Tf32, Precision::Bf16].into_iter().filter(own)
}

/// What a case runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Bias,
    Plain,
    /// Without a bias, of activations in f32, as a norm gives them: so is their gradient.
    Normed,
    /// [`halved_linear`].
    Halved,
}

/// Batch, tokens, inputs and outputs, and what to run of them.
type Case = ([usize; 4], &'static [Form]);

const ALL: &[Form] = &[Form::Bias, Form::Plain, Form::Halved];
const BIAS: &[Form] = &[Form::Bias];
const PLAIN: &[Form] = &[Form::Plain];
const BOTH: &[Form] = &[Form::Bias, Form::Plain];
const THREE: &[Form] = &[Form::Bias, Form::Plain, Form::Normed];

/// Of a layer's products, and odd ones; where the sizes decide which kernel runs, those that reach
/// the kernels of training.
fn cases(context: &Context, precision: Precision) -> Vec<Case> {
    let mut cases: Vec<Case> = vec![
        ([2, 5, 3, 7], ALL),
        ([1, 1, 16, 16], ALL),
        ([8, 197, 96, 44], BIAS),
        ([3, 33, 12, 130], BIAS),
        ([1, 300, 40, 10], BIAS),
        ([5, 211, 12, 130], BIAS),
        ([9, 130, 45, 33], BIAS),
        ([2, 3, 700, 400], BIAS),
        ([4, 1025, 192, 96], BIAS),
    ];
    if context.sizes_decide() {
        cases.extend(match precision {
            Precision::F32 | Precision::Tf32 => &F32_TILES[..],
            Precision::Bf16 => &BF16_TILES[..],
        });
    }
    if !context.quick {
        let more = [[8, 197, 192, 768], [8, 197, 384, 192], [8, 197, 768, 768]];
        let odd = [[5, 1025, 17, 33], [9, 130, 261, 97], [3, 401, 768, 36]];
        cases.extend(more.into_iter().chain(odd).map(|sizes| (sizes, BIAS)));
    }
    cases
}

/// Of the projections of Vim-Ti and Vim-S, with few and with many terms, and of their classifier's
/// heads; then of a segmenter's and of a detector's.
const F32_TILES: [Case; 19] = [
    ([1, 1100, 192, 768], BOTH),
    ([1, 1100, 384, 192], PLAIN),
    ([1, 1100, 768, 384], BOTH),
    ([1, 1100, 768, 192], BIAS),
    ([128, 1, 192, 1000], BIAS),
    ([128, 1, 384, 1000], BIAS),
    ([8, 1, 192, 192], PLAIN),
    ([8, 4, 192, 192], PLAIN),
    ([1, 1100, 192, 192], PLAIN),
    ([1, 1100, 192, 150], BIAS),
    ([1, 1100, 256, 150], BIAS),
    ([1, 1536, 256, 50], PLAIN),
    ([1, 1100, 96, 192], BIAS),
    ([1, 1100, 48, 256], PLAIN),
    ([1, 1100, 96, 256], PLAIN),
    ([1, 1100, 256, 3], BIAS),
    ([1, 1100, 256, 12], BIAS),
    ([1, 1100, 256, 80], BIAS),
    ([1, 1100, 1024, 81], BIAS),
];

/// On 132 multiprocessors, rings with 64, 128 and 192 rows, of results and of gradients of x; both
/// wide tiles of a weight's gradient, and some that are not; a weight in registers with few and
/// with many terms, by rows and by columns; then a segmenter's and a detector's.
const BF16_TILES: [Case; 20] = [
    ([1, 1100, 768, 768], THREE),
    ([1, 3200, 768, 768], THREE),
    ([1, 4225, 768, 768], THREE),
    ([4, 2825, 384, 192], PLAIN),
    ([1, 4100, 192, 192], BOTH),
    ([1, 4100, 96, 384], PLAIN),
    ([1, 300, 128, 96], PLAIN),
    ([1, 300, 64, 128], PLAIN),
    ([8, 1, 192, 192], PLAIN),
    ([8, 4, 192, 192], PLAIN),
    ([1, 4100, 96, 192], BIAS),
    ([1, 4100, 48, 256], PLAIN),
    ([1, 4100, 96, 256], PLAIN),
    ([1, 4100, 192, 256], PLAIN),
    ([1, 4100, 256, 3], BIAS),
    ([1, 4100, 256, 12], BIAS),
    ([1, 1100, 256, 12], BIAS),
    ([1, 4100, 256, 80], BIAS),
    ([1, 1100, 256, 1024], BIAS),
    ([1, 1100, 512, 1024], BIAS),
];

fn rows(
    [batch, len, inputs, outputs]: [usize; 4],
    forms: &[Form],
    precision: Precision,
    context: &Context,
    factor: f64,
) -> Result<Vec<Row>, KernelError> {
    let device = &context.device.clone().autodiff();
    let dtype = if precision == Precision::Bf16 { Dtype::Bf16 } else { Dtype::F32 };
    let tokens = batch * len;
    let mut numbers = Numbers::new(41);
    let x = numbers.vec(tokens * inputs, -1.0, 1.0, dtype);
    let weight = numbers.vec(inputs * outputs, -1.0, 1.0, Dtype::F32);
    let bias = numbers.vec(outputs, -1.0, 1.0, Dtype::F32);
    let grad_y = numbers.vec(tokens * outputs, -1.0, 1.0, dtype);
    let plain = [
        product(&x, &weight, [tokens, inputs, outputs]),
        product(&grad_y, &turned(&weight, [inputs, outputs]), [tokens, outputs, inputs]),
        product(&turned(&x, [tokens, inputs]), &grad_y, [inputs, tokens, outputs]),
    ];
    let tolerance = match precision {
        Precision::F32 => F32,
        Precision::Tf32 => TF32,
        Precision::Bf16 => BF16,
    };
    // What bf16 does not round, neither factor nor result, is as good as f32.
    let exact = if precision == Precision::Tf32 { TF32 } else { F32 };
    worst(forms.iter().map(|&form| {
        let dtype_of_x = if form == Form::Normed { Dtype::F32 } else { dtype };
        let given = tensor(&x, [batch, len, inputs], dtype_of_x, device).require_grad();
        let w = tensor(&weight, [inputs, outputs], Dtype::F32, device).require_grad();
        let b = tensor(&bias, [outputs], Dtype::F32, device).require_grad();
        let got = match form {
            Form::Bias => linear(given.clone(), w.clone(), Some(b.clone()), precision)?,
            Form::Plain | Form::Normed => linear(given.clone(), w.clone(), None, precision)?,
            Form::Halved => halved_linear(given.clone(), w.clone(), precision)?,
        };
        let upstream = tensor(&grad_y, [batch, len, outputs], dtype, device);
        let grads = (got.clone() * upstream).sum().backward();
        let [mut y, of_x, of_weight] = match form {
            Form::Bias | Form::Plain | Form::Normed => plain.clone(),
            Form::Halved => plain.each_ref().map(|of| of.iter().map(|x| 0.5 * x).collect()),
        };
        let (mut of_bias, mut note) = (None, " without bias");
        if form == Form::Bias {
            y.chunks_exact_mut(outputs).for_each(|row| add(row, &bias));
            let mut sums = vec![0.0; outputs];
            grad_y.chunks_exact(outputs).for_each(|row| add(&mut sums, row));
            (of_bias, note) = (Some(sums), "");
        } else if form == Form::Normed {
            note = " without bias, of f32";
        } else if form == Form::Halved {
            note = " halved";
        }
        let mut arrays: Vec<Array> = vec![
            ("y", values(got), y, tolerance),
            ("x", gradient(&given, &grads), of_x, tolerance),
            ("weight", gradient(&w, &grads), of_weight, exact),
        ];
        arrays.extend(of_bias.map(|of| ("bias", gradient(&b, &grads), of, F32)));
        let case = format!("B={batch} L={len} {inputs} to {outputs}{note}");
        Ok(rows_of(arrays, 1e-30, factor, &case))
    }))
}

fn add(to: &mut [f64], row: &[f64]) {
    to.iter_mut().zip(row).for_each(|(sum, number)| *sum += number);
}
