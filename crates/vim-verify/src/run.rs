//! A scan on tensors: its inputs as leaves, its outputs and gradients as numbers, and their errors.

use burn::tensor::{Device, Tensor};
use vim_kernels::oracle::{Number, OracleFullScan, OracleScan, OracleScanGrads};
use vim_kernels::{
    Complex, FullScanOptions, Implementation, KernelError, ScanA, ScanBC, ScanOptions, ScanOutput,
    full_scan, selective_scan,
};

use crate::check::{Row, choice};
use crate::compare::{Dtype, figures, gradient, tensor, values};

/// max |difference| / max |reference| in f32, of arrays with a value per token. A coefficient is
/// good to about 4 units in the last place (2.4e-7), and a state sums of the order of 1/(1 − a_bar)
/// of them, which is up to 100 here.
pub const PER_TOKEN: f64 = 2e-5;

/// The same for gradients that are sums over all tokens, whose terms have both signs: the sum may
/// be a few times smaller than what was rounded on the way to it.
pub const SUMS: f64 = 1e-4;

/// What rounding a right result to bf16 may add: it has 8 bits of significand, so its numbers are
/// up to 2⁻⁷ apart, relatively, and rounding is off by up to half of that.
pub(crate) const STORED_BF16: f64 = 1.0 / 256.0;

/// A kind of state, as tensors take it: real, or complex in two of them.
pub trait StateNumber: Number + 'static {
    /// What a scan of it is called.
    const OPERATION: &'static str;

    /// What multiplies the tolerances of a scan of real numbers.
    const LOOSER: f64;

    /// The real part, and the imaginary one where there is one.
    fn parts(self) -> Vec<f64>;

    /// A number of both, or of the real part alone.
    fn of_parts(re: f64, im: f64) -> Self;

    /// Part number `i` of all that `numbers` have, as [`flat`] counts them.
    fn part(numbers: &mut [Self], i: usize) -> Option<&mut f64>;
}

impl StateNumber for f64 {
    const OPERATION: &'static str = "selective_scan";
    const LOOSER: f64 = 1.0;

    fn parts(self) -> Vec<f64> {
        vec![self]
    }
    fn of_parts(re: f64, _: f64) -> Self {
        re
    }
    fn part(numbers: &mut [Self], i: usize) -> Option<&mut f64> {
        numbers.get_mut(i)
    }
}

impl StateNumber for Complex<f64> {
    const OPERATION: &'static str = "selective_scan_complex";
    /// A product of complex numbers rounds three times a part, where a real one rounds once, and
    /// the terms that are rounded are larger than their sum: most in delta's gradient by autodiff
    /// where |delta·A| reaches 1000, 5.1e-5 on an H200.
    const LOOSER: f64 = 3.0;

    fn parts(self) -> Vec<f64> {
        vec![self.re, self.im]
    }
    fn of_parts(re: f64, im: f64) -> Self {
        Self { re, im }
    }
    fn part(numbers: &mut [Self], i: usize) -> Option<&mut f64> {
        let number = numbers.get_mut(i / 2)?;
        Some(if i.is_multiple_of(2) { &mut number.re } else { &mut number.im })
    }
}

/// All parts, those of a number side by side: they are judged on the scale of the whole.
#[must_use]
pub fn flat<T: StateNumber>(numbers: &[T]) -> Vec<f64> {
    numbers.iter().flat_map(|number| number.parts()).collect()
}

/// The leaves of a scan, each input complete in its parts. A leaf of A, B or C has one dimension,
/// whichever form it takes.
pub(crate) struct Leaves {
    pub(crate) u: Tensor<3>,
    pub(crate) delta: Tensor<3>,
    pub(crate) a: Vec<Tensor<1>>,
    pub(crate) b: Vec<Tensor<1>>,
    pub(crate) c: Vec<Tensor<1>>,
    pub(crate) d: Option<Tensor<1>>,
    pub(crate) z: Option<Tensor<3>>,
    pub(crate) delta_bias: Option<Tensor<1>>,
}

impl Leaves {
    /// Those of `scan` on `device`, which is with autodiff.
    fn new<T: StateNumber>(scan: &OracleScan<T>, dtype: Dtype, device: &Device) -> Self {
        let OracleScan { batch, len, d_inner, .. } = *scan;
        let per_token =
            |values: &Vec<f64>| tensor(values, [batch, len, d_inner], dtype, device).require_grad();
        let weight =
            |values: &Vec<f64>| tensor(values, [d_inner], Dtype::F32, device).require_grad();
        let leaves = |numbers: &[T], constant: bool| {
            let dtype = if constant { Dtype::F32 } else { dtype };
            let count = T::default().parts().len();
            let part = |part: usize| -> Vec<f64> {
                flat(numbers).into_iter().skip(part).step_by(count).collect()
            };
            let leaf = |values: Vec<f64>| tensor(&values, [values.len()], dtype, device);
            (0..count).map(|i| leaf(part(i)).require_grad()).collect()
        };
        Self {
            u: per_token(&scan.u),
            delta: per_token(&scan.delta),
            a: leaves(&scan.a, true),
            b: leaves(&scan.b, scan.b_constant),
            c: leaves(&scan.c, scan.c_constant),
            d: scan.d.as_ref().map(weight),
            z: scan.z.as_ref().map(per_token),
            delta_bias: scan.delta_bias.as_ref().map(weight),
        }
    }
}

/// B or C in the form that it has in `scan`.
fn projection<T>(scan: &OracleScan<T>, leaf: &[Tensor<1>], constant: bool) -> ScanBC {
    let OracleScan { batch, len, d_inner, d_state, groups, .. } = *scan;
    if constant {
        parts(leaf, [d_inner, d_state], ScanBC::from, ScanBC::from)
    } else if groups > 1 {
        parts(leaf, [batch, len, groups, d_state], ScanBC::from, ScanBC::from)
    } else {
        parts(leaf, [batch, len, d_state], ScanBC::from, ScanBC::from)
    }
}

/// The parts of a leaf in `shape`, as one tensor or a pair.
fn parts<const R: usize, P>(
    leaf: &[Tensor<1>],
    shape: [usize; R],
    real: impl FnOnce(Tensor<R>) -> P,
    complex: impl FnOnce((Tensor<R>, Tensor<R>)) -> P,
) -> P {
    let part = |i: usize| leaf[i].clone().reshape(shape);
    if leaf.len() == 2 { complex((part(0), part(1))) } else { real(part(0)) }
}

/// Output, last state and gradients of a scan; of complex arrays all parts, as [`flat`] has them.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// Output, `[B, L, D]`.
    pub y: Vec<f64>,
    /// State after the last token, `[B, D, N]`.
    pub last_state: Vec<f64>,
    /// Gradients of all inputs.
    pub grads: OracleScanGrads,
}

impl Results {
    /// Those of the f64 loops.
    #[must_use]
    pub fn of_oracle<T: StateNumber>(scan: &OracleScan<T>, grad_y: &[f64]) -> Self {
        let (y, last_state) = scan.forward();
        Self { y, last_state: flat(&last_state), grads: real(scan.backward(grad_y)) }
    }

    /// Those of the f64 loops, with a full A.
    #[must_use]
    pub fn of_full_oracle(full: &OracleFullScan, grad_y: &[f64]) -> Self {
        let (y, last_state) = full.forward();
        Self { y, last_state, grads: full.backward(grad_y) }
    }

    /// Those of `implementation` on `device`, which is without autodiff.
    ///
    /// # Errors
    ///
    /// [`KernelError`] if `implementation` cannot run the scan on `device`.
    pub fn on_device<T: StateNumber>(
        scan: &OracleScan<T>,
        grad_y: &[f64],
        implementation: Implementation,
        dtype: Dtype,
        device: &Device,
    ) -> Result<Self, KernelError> {
        let options = ScanOptions {
            method: scan.method,
            series: scan.series,
            delta_softplus: scan.delta_softplus,
            reverse: scan.reverse,
            choice: choice(implementation),
        };
        Self::of_call(scan, grad_y, dtype, device, |x| {
            selective_scan(
                x.u.clone(),
                x.delta.clone(),
                parts(&x.a, [scan.d_inner, scan.d_state], ScanA::from, ScanA::from),
                projection(scan, &x.b, scan.b_constant),
                projection(scan, &x.c, scan.c_constant),
                x.d.clone(),
                x.z.clone(),
                x.delta_bias.clone(),
                options,
            )
        })
    }

    /// Those of `implementation` on `device`, which is without autodiff, with a full A.
    ///
    /// # Errors
    ///
    /// [`KernelError`] if `implementation` cannot run the scan on `device`.
    pub fn of_full_on_device(
        OracleFullScan(scan): &OracleFullScan,
        grad_y: &[f64],
        implementation: Implementation,
        dtype: Dtype,
        device: &Device,
    ) -> Result<Self, KernelError> {
        let options = FullScanOptions {
            delta_softplus: scan.delta_softplus,
            reverse: scan.reverse,
            choice: choice(implementation),
        };
        Self::of_call(scan, grad_y, dtype, device, |x| {
            full_scan(
                x.u.clone(),
                x.delta.clone(),
                x.a[0].clone().reshape([scan.d_inner, scan.d_state, scan.d_state]),
                projection(scan, &x.b, scan.b_constant),
                projection(scan, &x.c, scan.c_constant),
                x.d.clone(),
                x.z.clone(),
                x.delta_bias.clone(),
                options,
            )
        })
    }

    /// Those of `call` of the scan's leaves.
    pub(crate) fn of_call<T: StateNumber>(
        scan: &OracleScan<T>,
        grad_y: &[f64],
        dtype: Dtype,
        device: &Device,
        call: impl FnOnce(&Leaves) -> Result<ScanOutput, KernelError>,
    ) -> Result<Self, KernelError> {
        let device = &device.clone().autodiff();
        let leaves = Leaves::new(scan, dtype, device);
        let out = call(&leaves)?;
        let y = values(out.y.clone());
        let last_state: Vec<_> =
            [Some(out.last_state), out.last_state_im].into_iter().flatten().map(values).collect();
        let shape = [scan.batch, scan.len, scan.d_inner];
        let grads = (out.y * tensor(grad_y, shape, dtype, device)).sum().backward();
        let three = |t: &Tensor<3>| gradient(t, &grads);
        let one = |t: &Tensor<1>| gradient(t, &grads);
        let all = |leaf: &[Tensor<1>]| together(&leaf.iter().map(one).collect::<Vec<_>>());
        let grads = OracleScanGrads {
            u: three(&leaves.u),
            delta: three(&leaves.delta),
            a: all(&leaves.a),
            b: all(&leaves.b),
            c: all(&leaves.c),
            d: leaves.d.as_ref().map_or(vec![], one),
            z: leaves.z.as_ref().map_or(vec![], three),
            delta_bias: leaves.delta_bias.as_ref().map_or(vec![], one),
        };
        Ok(Self { y, last_state: together(&last_state), grads })
    }

    /// Every array with its name, `y` and `last_state` first.
    #[must_use]
    pub fn named(&self) -> [(&'static str, &[f64]); 10] {
        let [u, delta, a, b, c, d, z, delta_bias] = named(&self.grads);
        [("y", &self.y), ("last_state", &self.last_state), u, delta, a, b, c, d, z, delta_bias]
    }
}

/// The parts of arrays side by side, as [`flat`] has them; nothing where a part is missing.
fn together(parts: &[Vec<f64>]) -> Vec<f64> {
    let len = parts.iter().map(Vec::len).min().unwrap_or(0);
    (0..len).flat_map(|i| parts.iter().map(move |part| part[i])).collect()
}

/// Gradients with all parts of complex ones.
#[must_use]
pub fn real<T: StateNumber>(grads: OracleScanGrads<T>) -> OracleScanGrads {
    let OracleScanGrads { u, delta, a, b, c, d, z, delta_bias } = grads;
    let (a, b, c) = (flat(&a), flat(&b), flat(&c));
    OracleScanGrads { u, delta, a, b, c, d, z, delta_bias }
}

/// Every gradient with its name.
#[must_use]
pub fn named(grads: &OracleScanGrads) -> [(&'static str, &[f64]); 8] {
    [
        ("u", &grads.u),
        ("delta", &grads.delta),
        ("a", &grads.a),
        ("b", &grads.b),
        ("c", &grads.c),
        ("d", &grads.d),
        ("z", &grads.z),
        ("delta_bias", &grads.delta_bias),
    ]
}

/// What the error of an array may be; `looser` multiplies what f32 rounds.
fn tolerance<T>(array: &str, scan: &OracleScan<T>, dtype: Dtype, looser: f64) -> f64 {
    let constant = (array == "b" && scan.b_constant) || (array == "c" && scan.c_constant);
    let sum = constant || ["a", "d", "delta_bias"].contains(&array);
    let computed = looser * if sum { SUMS } else { PER_TOKEN };
    match dtype {
        Dtype::Bf16 if !sum && array != "last_state" => STORED_BF16 + computed,
        Dtype::F32 | Dtype::Bf16 => computed,
    }
}

/// The rows of one case: every array that it has.
#[must_use]
pub fn judged<T>(
    scan: &OracleScan<T>,
    got: &Results,
    want: &Results,
    dtype: Dtype,
    looser: f64,
    factor: f64,
    case: &str,
) -> Vec<Row> {
    // The bias's gradient is one sum a channel of delta's, of both signs: its scale is what sums of
    // such terms come to, the root of the sum of their squares, however far this one cancels.
    let squares: f64 = want.grads.delta.iter().map(|g| g * g).sum();
    let of_sums = (squares / scan.d_inner as f64).sqrt();
    let pairs = got.named().into_iter().zip(want.named());
    pairs
        .filter(|(_, (_, want))| !want.is_empty())
        .map(|((array, got), (_, want))| {
            let floor = if array == "delta_bias" { of_sums } else { 1e-30 };
            let tolerance = tolerance(array, scan, dtype, looser) * factor;
            Row::judged(array, figures(got, want, floor), tolerance, case)
        })
        .collect()
}
