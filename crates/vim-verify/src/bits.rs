//! Where a result must be the same bits: from launch to launch, and however the inputs lie in
//! memory.

use burn::tensor::Tensor;
use vim_kernels::oracle::OracleScan;
use vim_kernels::{Implementation, KernelError, ScanOptions, ScanOutput, selective_scan};

use crate::check::{Check, Context, Row, Subject, Verdict, choice};
use crate::compare::Dtype;
use crate::run::Results;
use crate::scan::{Form, grad_of, inputs, preferred};

/// Launches of one scan: a race through the cache shows in some of them only.
const LAUNCHES: usize = 50;

/// Channels whose rows no allocator aligns by itself.
const WIDTHS: [usize; 4] = [5, 12, 44, 197];

/// How a caller's tensors may lie.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// One row after the other.
    Dense,
    /// As an operation of Burn leaves them: on CUDA with padded rows.
    Computed,
    /// A slice of longer rows.
    Slice,
    /// Channels farther apart than one element.
    Transposed,
}

impl Lie {
    fn of(self, dense: Tensor<3>) -> Tensor<3> {
        let [_, _, d_inner] = dense.dims();
        match self {
            Self::Dense => dense,
            Self::Computed => dense * 1.0,
            Self::Slice => {
                let wider = Tensor::cat(vec![dense.clone(), dense.clone(), dense], 2);
                wider.narrow(2, d_inner, d_inner)
            }
            Self::Transposed => dense.swap_dims(1, 2).mul_scalar(1.0).swap_dims(1, 2),
        }
    }
}

/// One check for each type, of what the device prefers to run.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let implementation = preferred(&context.device);
    let check = |&dtype| {
        let run = move |context: &Context, _| {
            let mut rows = repeated(context, implementation, dtype)?;
            rows.extend(placed(context, implementation, dtype)?);
            Ok(rows)
        };
        Check::new(Subject::Bits, "selective_scan", implementation, dtype, run)
    };
    context.dtypes.iter().map(check).collect()
}

/// A row that passes if the bits are the same; others are the verdict `otherwise`.
pub(crate) fn row(array: String, same: bool, otherwise: Verdict, note: &str) -> Row {
    let max = if same { 0.0 } else { f64::INFINITY };
    let verdict = if same { Verdict::Pass } else { otherwise };
    Row { array, max, mean: max, tolerance: 0.0, verdict, note: note.to_owned() }
}

/// y, last state and gradients of the same scan, again and again.
fn repeated(
    context: &Context,
    implementation: Implementation,
    dtype: Dtype,
) -> Result<Vec<Row>, KernelError> {
    let scan = inputs([3, 197, 152, 16], Form::Variable, 4.0, dtype);
    let grad_y = grad_of(&scan, dtype);
    let run = || Results::on_device(&scan, &grad_y, implementation, dtype, &context.device);
    let first = run()?;
    let mut same = true;
    for _ in 1..LAUNCHES {
        same &= run()? == first;
    }
    let (array, note) = (format!("{LAUNCHES} launches"), "B=3 L=197 D=152 N=16");
    Ok(vec![row(array, same, Verdict::Fail, note)])
}

/// The same scan of tensors that lie otherwise. Our kernels must not care; the reference is as the
/// operations of its library are, and LibTorch's vectors take an exponential of rows that lie apart
/// in other steps.
fn placed(
    context: &Context,
    implementation: Implementation,
    dtype: Dtype,
) -> Result<Vec<Row>, KernelError> {
    let otherwise = match implementation {
        Implementation::Kernel => Verdict::Fail,
        Implementation::Reference => Verdict::Reported,
    };
    let mut rows = Vec::new();
    for d_inner in WIDTHS {
        let scan = inputs([2, 21, d_inner, 16], Form::Variable, 4.0, dtype);
        let dense = run(context, &scan, implementation, dtype, Lie::Dense)?;
        for lie in [Lie::Computed, Lie::Slice, Lie::Transposed] {
            let same = run(context, &scan, implementation, dtype, lie)? == dense;
            let name = format!("{lie:?} rows of {d_inner}").to_lowercase();
            rows.push(row(name, same, otherwise, "against dense rows"));
        }
    }
    Ok(rows)
}

/// The scan, with every input per token and its output lying so, and thereby their gradients.
fn run(
    context: &Context,
    scan: &OracleScan,
    implementation: Implementation,
    dtype: Dtype,
    lie: Lie,
) -> Result<Results, KernelError> {
    let options = ScanOptions {
        delta_softplus: true,
        choice: choice(implementation),
        ..ScanOptions::default()
    };
    let OracleScan { batch, len, d_inner, d_state, .. } = *scan;
    Results::of_call(scan, &grad_of(scan, dtype), dtype, &context.device, |x| {
        let projection =
            |leaf: &[Tensor<1>]| lie.of(leaf[0].clone().reshape([batch, len, d_state]));
        let out = selective_scan(
            lie.of(x.u.clone()),
            lie.of(x.delta.clone()),
            x.a[0].clone().reshape([d_inner, d_state]),
            projection(&x.b),
            projection(&x.c),
            x.d.clone(),
            x.z.clone().map(|z| lie.of(z)),
            x.delta_bias.clone(),
            options,
        )?;
        Ok(ScanOutput { y: lie.of(out.y), ..out })
    })
}
