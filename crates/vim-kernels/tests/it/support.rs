//! Inputs for scans, scans as tensors, and comparisons.

use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use vim_kernels::oracle::{OracleScan, OracleScanGrads};
use vim_kernels::{KernelChoice, ScanBC, ScanOptions, selective_scan};

/// Reproducible uniform numbers in [0, 1) (SplitMix64).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// `n` numbers in [low, high), rounded to f32 so that every implementation starts from the
    /// same.
    pub(crate) fn vec(&mut self, n: usize, low: f64, high: f64) -> Vec<f64> {
        (0..n).map(|_| f64::from((low + (high - low) * self.next()) as f32)).collect()
    }
}

/// The form of B and C.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Form {
    Variable,
    Grouped(usize),
    Constant,
    /// B constant, C variable.
    Mixed,
}

/// Sizes `[B, L, D, N]`.
pub(crate) type Sizes = [usize; 4];

/// A scan with every optional input; delta·a reaches about `reach` in magnitude.
pub(crate) fn scan(sizes: Sizes, form: Form, reach: f64, seed: u64) -> OracleScan {
    let [batch, len, d_inner, d_state] = sizes;
    let mut x = Numbers::new(seed);
    let groups = if let Form::Grouped(groups) = form { groups } else { 1 };
    let tokens = batch * len * d_inner;
    let variable = batch * len * groups * d_state;
    let b_constant = matches!(form, Form::Constant | Form::Mixed);
    let c_constant = matches!(form, Form::Constant);
    let projection = |constant| if constant { d_inner * d_state } else { variable };
    // softplus(−3.5 … 1) is 0.03 … 1.3, the range that trained models reach; a does the rest.
    OracleScan {
        batch,
        len,
        d_inner,
        d_state,
        groups,
        delta_softplus: true,
        b_constant,
        c_constant,
        u: x.vec(tokens, -1.5, 1.5),
        delta: x.vec(tokens, -3.0, 0.5),
        a: x.vec(d_inner * d_state, -reach, -0.01 * reach),
        b: x.vec(projection(b_constant), -1.0, 1.0),
        c: x.vec(projection(c_constant), -1.0, 1.0),
        d: Some(x.vec(d_inner, -1.0, 1.0)),
        z: Some(x.vec(tokens, -2.0, 2.0)),
        delta_bias: Some(x.vec(d_inner, -0.5, 0.5)),
        ..OracleScan::default()
    }
}

/// A weighting of the outputs, so that gradients of different outputs do not cancel or hide.
pub(crate) fn grad_of(scan: &OracleScan) -> Vec<f64> {
    Numbers::new(99).vec(scan.u.len(), -1.0, 1.0)
}

pub(crate) fn tensor<const R: usize>(
    values: &[f64],
    shape: [usize; R],
    device: &Device,
) -> Tensor<R> {
    let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

pub(crate) fn values<const R: usize>(tensor: Tensor<R>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// To the nearest bf16, ties to even.
pub(crate) fn to_bf16(values: &[f64]) -> Vec<f64> {
    let round = |value: &f64| {
        let bits = (*value as f32).to_bits();
        let up = 0x7FFF + ((bits >> 16) & 1);
        f64::from(f32::from_bits((bits + up) & 0xFFFF_0000))
    };
    values.iter().map(round).collect()
}

/// Output, last state and gradients of a scan, by an implementation on tensors.
pub(crate) struct Outcome {
    pub(crate) y: Vec<f64>,
    pub(crate) last_state: Vec<f64>,
    pub(crate) grads: OracleScanGrads,
}

/// Runs `scan` forward and backward on Flex.
pub(crate) fn run(scan: &OracleScan, choice: KernelChoice, grad_y: &[f64]) -> Outcome {
    run_on(&Device::flex(), FloatDType::F32, scan, choice, grad_y)
}

/// Runs `scan` forward and backward on `device`, its activations of type `dtype`.
pub(crate) fn run_on(
    device: &Device,
    dtype: FloatDType,
    scan: &OracleScan,
    choice: KernelChoice,
    grad_y: &[f64],
) -> Outcome {
    let device = device.clone().autodiff();
    let OracleScan { batch, len, d_inner, d_state, groups, .. } = *scan;
    let tokens = [batch, len, d_inner];
    let u = tensor(&scan.u, tokens, &device).require_grad();
    let delta = tensor(&scan.delta, tokens, &device).require_grad();
    let a = tensor(&scan.a, [d_inner, d_state], &device).require_grad();
    // A leaf in the shape that the gradient is wanted in, whichever form the projection takes.
    let leaf = |values: &[f64]| tensor(values, [values.len()], &device).require_grad();
    let form = |leaf: &Tensor<1>, constant: bool| -> ScanBC {
        if constant {
            leaf.clone().reshape([d_inner, d_state]).into()
        } else if groups > 1 {
            leaf.clone().reshape([batch, len, groups, d_state]).cast(dtype).into()
        } else {
            leaf.clone().reshape([batch, len, d_state]).cast(dtype).into()
        }
    };
    let (b, c) = (leaf(&scan.b), leaf(&scan.c));
    let d = scan.d.as_ref().map(|d| tensor(d, [d_inner], &device).require_grad());
    let z = scan.z.as_ref().map(|z| tensor(z, tokens, &device).require_grad());
    let bias = scan.delta_bias.as_ref().map(|b| tensor(b, [d_inner], &device).require_grad());
    let options = ScanOptions {
        method: scan.method,
        series: scan.series,
        delta_softplus: scan.delta_softplus,
        reverse: scan.reverse,
        choice,
    };
    let out = selective_scan(
        u.clone().cast(dtype),
        delta.clone().cast(dtype),
        a.clone(),
        form(&b, scan.b_constant),
        form(&c, scan.c_constant),
        d.clone(),
        z.clone().map(|z| z.cast(dtype)),
        bias.clone(),
        options,
    )
    .unwrap();
    let y = values(out.y.clone());
    let last_state = values(out.last_state);
    let grads = (out.y.cast(FloatDType::F32) * tensor(grad_y, tokens, &device)).sum().backward();
    let grad = |t: &Tensor<1>| values(t.grad(&grads).unwrap());
    Outcome {
        y,
        last_state,
        grads: OracleScanGrads {
            u: values(u.grad(&grads).unwrap()),
            delta: values(delta.grad(&grads).unwrap()),
            a: values(a.grad(&grads).unwrap()),
            b: grad(&b),
            c: grad(&c),
            d: d.as_ref().map_or(vec![], grad),
            z: z.map_or(vec![], |z| values(z.grad(&grads).unwrap())),
            delta_bias: bias.as_ref().map_or(vec![], grad),
        },
    }
}

/// max |difference| / max |reference|; NaN counts as infinite. A reference that f32 rounds to 0
/// counts as 1e-30.
pub(crate) fn error(got: &[f64], want: &[f64]) -> f64 {
    error_over(got, want, 1e-30)
}

/// The same, over `floor` where that is larger than max |reference|.
pub(crate) fn error_over(got: &[f64], want: &[f64], floor: f64) -> f64 {
    assert_eq!(got.len(), want.len(), "lengths differ");
    let scale = want.iter().fold(floor, |m: f64, w| m.max(w.abs()));
    let worst = got.iter().zip(want).map(|(g, w)| {
        let d = (g - w).abs();
        if d.is_nan() { f64::INFINITY } else { d }
    });
    worst.fold(0.0, f64::max) / scale
}

/// Every gradient with its name.
pub(crate) fn named(grads: &OracleScanGrads) -> [(&'static str, &[f64]); 8] {
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
