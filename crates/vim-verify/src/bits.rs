//! Where a result must be the same bits: from launch to launch, and however the inputs lie in
//! memory.

use burn::tensor::Tensor;
use vim_kernels::oracle::OracleScan;
use vim_kernels::{
    Discretization, Implementation, KernelError, ScanOptions, Series, selective_scan,
};

use crate::check::{Check, Context, Row, Subject, Verdict, choice};
use crate::compare::{tensor, values};
use crate::dtype::Dtype;
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
    let of = |dtype: Dtype| Check {
        subject: Subject::Bits,
        operation: "selective_scan",
        method: None,
        series: None,
        implementation: implementation.to_string(),
        dtype: dtype.to_string(),
        run: Box::new(move |context, _| {
            let mut rows = repeated(context, implementation, dtype)?;
            rows.extend(placed(context, implementation, dtype)?);
            Ok(rows)
        }),
    };
    context.dtypes.iter().map(|&dtype| of(dtype)).collect()
}

/// A row that passes if the bits are the same; others are the verdict `otherwise`.
fn row(array: String, same: bool, otherwise: Verdict, note: String) -> Row {
    let max = if same { 0.0 } else { f64::INFINITY };
    let verdict = if same { Verdict::Pass } else { otherwise };
    Row { array, max, mean: max, tolerance: 0.0, verdict, note }
}

/// y, last state and gradients of the same scan, again and again.
fn repeated(
    context: &Context,
    implementation: Implementation,
    dtype: Dtype,
) -> Result<Vec<Row>, KernelError> {
    let scan = inputs([3, 197, 150, 16], Form::Variable, 4.0, dtype);
    let grad_y = grad_of(&scan, dtype);
    let run = || Results::on_device(&scan, &grad_y, implementation, dtype, &context.device);
    let first = run()?;
    let mut same = true;
    for _ in 1..LAUNCHES {
        same &= run()? == first;
    }
    let (array, note) = (format!("{LAUNCHES} launches"), "B=3 L=197 D=150 N=16".to_owned());
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
            rows.push(row(name, same, otherwise, "against dense rows".to_owned()));
        }
    }
    Ok(rows)
}

/// y and the gradients of u, delta, z, B and C.
fn run(
    context: &Context,
    scan: &OracleScan,
    implementation: Implementation,
    dtype: Dtype,
    lie: Lie,
) -> Result<Vec<Vec<f64>>, KernelError> {
    let device = &context.device.clone().autodiff();
    let OracleScan { batch, len, d_inner, d_state, .. } = *scan;
    let leaf = |values: &[f64], width: usize| {
        tensor(values, [batch, len, width], dtype, device).require_grad()
    };
    let weight = |values: &[f64], shape| tensor(values, shape, Dtype::F32, device);
    let channels = |values: &Option<Vec<f64>>| {
        values.as_ref().map(|v| tensor(v, [d_inner], Dtype::F32, device))
    };
    let leaves = [
        leaf(&scan.u, d_inner),
        leaf(&scan.delta, d_inner),
        leaf(scan.z.as_deref().unwrap_or_default(), d_inner),
        leaf(&scan.b, d_state),
        leaf(&scan.c, d_state),
    ];
    let [u, delta, z, b, c] = leaves.clone().map(|leaf| lie.of(leaf));
    let options = ScanOptions {
        method: Discretization::default(),
        series: Series::Exact,
        delta_softplus: true,
        reverse: false,
        choice: choice(implementation),
    };
    let (d, bias) = (channels(&scan.d), channels(&scan.delta_bias));
    let a = weight(&scan.a, [d_inner, d_state]);
    let out = selective_scan(u, delta, a, b, c, d, Some(z), bias, options)?;
    let grad_y = tensor(&grad_of(scan, dtype), [batch, len, d_inner], dtype, device);
    let grads = (lie.of(out.y.clone()) * lie.of(grad_y)).sum().backward();
    let mut all = vec![values(out.y)];
    // A gradient that is missing is an array of another length.
    all.extend(leaves.map(|leaf| leaf.grad(&grads).map_or(vec![], values)));
    Ok(all)
}
