//! Complex A, B and C: reference and kernel against the oracle, and the oracle against finite
//! differences.

use burn::tensor::{Device, Tensor};
use strum::VariantArray;
use vim_kernels::oracle::{OracleScan, OracleScanGrads};
use vim_kernels::{
    Complex, Discretization, KernelChoice, KernelError, ScanBC, ScanOptions, Series, selective_scan,
};

use crate::support::{Form, Numbers, Sizes, error_over, grad_of, scan, tensor, values};

type Number = Complex<f64>;
type Scan = OracleScan<Number>;

/// max |difference| / max |reference| in f32, of arrays with a value per token. The same as for
/// real A, and half as much again for the products of complex numbers, which round more often.
const PER_TOKEN: f64 = 3e-5;

/// The same for gradients that are sums over all tokens, whose terms have both signs.
const SUMS: f64 = 1.5e-4;

/// The real scan with imaginary parts added; delta·a turns by up to about `turn` radians a token.
pub(crate) fn complex(sizes: Sizes, form: Form, reach: f64, turn: f64, seed: u64) -> Scan {
    let mut x = Numbers::new(seed + 1000);
    complex_with(scan(sizes, form, reach, seed), |i, limit| x.vec(i, -limit, limit), turn)
}

/// `real` with imaginary parts `im(length, limit)`.
fn complex_with(real: OracleScan, mut im: impl FnMut(usize, f64) -> Vec<f64>, turn: f64) -> Scan {
    let mut pair = |re: Vec<f64>, limit| -> Vec<Number> {
        let im = im(re.len(), limit);
        re.into_iter().zip(im).map(|(re, im)| Complex { re, im }).collect()
    };
    let (a, b, c) = (pair(real.a, turn), pair(real.b, 1.0), pair(real.c, 1.0));
    OracleScan {
        batch: real.batch,
        len: real.len,
        d_inner: real.d_inner,
        d_state: real.d_state,
        groups: real.groups,
        method: real.method,
        series: real.series,
        delta_softplus: real.delta_softplus,
        reverse: real.reverse,
        b_constant: real.b_constant,
        c_constant: real.c_constant,
        u: real.u,
        delta: real.delta,
        a,
        b,
        c,
        d: real.d,
        z: real.z,
        delta_bias: real.delta_bias,
    }
}

/// Real and imaginary parts one after the other: both are compared on the scale of the whole.
fn flat(numbers: &[Number]) -> Vec<f64> {
    numbers.iter().flat_map(|x| [x.re, x.im]).collect()
}

fn joined(re: Vec<f64>, im: Vec<f64>) -> Vec<Number> {
    re.into_iter().zip(im).map(|(re, im)| Complex { re, im }).collect()
}

/// Output, last state and gradients.
#[derive(PartialEq)]
struct Outcome {
    y: Vec<f64>,
    last_state: Vec<Number>,
    grads: OracleScanGrads<Number>,
}

/// Runs `scan` forward and backward.
fn run(scan: &Scan, device: &Device, choice: KernelChoice, grad_y: &[f64]) -> Outcome {
    let device = device.clone().autodiff();
    let OracleScan { batch, len, d_inner, d_state, groups, .. } = *scan;
    let tokens = [batch, len, d_inner];
    let u = tensor(&scan.u, tokens, &device).require_grad();
    let delta = tensor(&scan.delta, tokens, &device).require_grad();
    let leaves = |numbers: &[Number]| {
        let leaf = |part: fn(&Number) -> f64| {
            let part: Vec<f64> = numbers.iter().map(part).collect();
            tensor(&part, [part.len()], &device).require_grad()
        };
        (leaf(|x| x.re), leaf(|x| x.im))
    };
    let form = |(re, im): &(Tensor<1>, Tensor<1>), constant: bool| -> ScanBC {
        let (re, im) = (re.clone(), im.clone());
        if constant {
            (re.reshape([d_inner, d_state]), im.reshape([d_inner, d_state])).into()
        } else if groups > 1 {
            let shape = [batch, len, groups, d_state];
            (re.reshape(shape), im.reshape(shape)).into()
        } else {
            let shape = [batch, len, d_state];
            (re.reshape(shape), im.reshape(shape)).into()
        }
    };
    let (a, b, c) = (leaves(&scan.a), leaves(&scan.b), leaves(&scan.c));
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
    let rate = [d_inner, d_state];
    let out = selective_scan(
        u.clone(),
        delta.clone(),
        (a.0.clone().reshape(rate), a.1.clone().reshape(rate)),
        form(&b, scan.b_constant),
        form(&c, scan.c_constant),
        d.clone(),
        z.clone(),
        bias.clone(),
        options,
    )
    .unwrap();
    let y = values(out.y.clone());
    let last_state = joined(values(out.last_state), values(out.last_state_im.unwrap()));
    let grads = (out.y * tensor(grad_y, tokens, &device)).sum().backward();
    let grad = |t: &Tensor<1>| values(t.grad(&grads).unwrap());
    let both = |(re, im): &(Tensor<1>, Tensor<1>)| joined(grad(re), grad(im));
    Outcome {
        y,
        last_state,
        grads: OracleScanGrads {
            u: values(u.grad(&grads).unwrap()),
            delta: values(delta.grad(&grads).unwrap()),
            a: both(&a),
            b: both(&b),
            c: both(&c),
            d: d.as_ref().map_or(vec![], grad),
            z: z.map_or(vec![], |z| values(z.grad(&grads).unwrap())),
            delta_bias: bias.as_ref().map_or(vec![], grad),
        },
    }
}

fn named(grads: &OracleScanGrads<Number>) -> [(&'static str, Vec<f64>); 8] {
    [
        ("u", grads.u.clone()),
        ("delta", grads.delta.clone()),
        ("a", flat(&grads.a)),
        ("b", flat(&grads.b)),
        ("c", flat(&grads.c)),
        ("d", grads.d.clone()),
        ("z", grads.z.clone()),
        ("delta_bias", grads.delta_bias.clone()),
    ]
}

/// Checks an implementation against the oracle.
fn check(scan: &Scan, device: &Device, choice: KernelChoice) {
    let grad_y = grad_of_complex(scan);
    let got = run(scan, device, choice, &grad_y);
    let (y, last_state) = scan.forward();
    let grads = scan.backward(&grad_y);
    let what = format!(
        "{choice} {} {} reverse {} [{}, {}, {}, {}]",
        scan.method, scan.series, scan.reverse, scan.batch, scan.len, scan.d_inner, scan.d_state
    );
    let mut pairs = vec![("y", got.y, y), ("last_state", flat(&got.last_state), flat(&last_state))];
    pairs.extend(
        named(&got.grads).into_iter().zip(named(&grads)).map(|((name, g), (_, w))| (name, g, w)),
    );
    for (name, got, want) in pairs {
        // As for real A: what sums of such terms come to, however far this one cancels.
        let floor = if name == "delta_bias" {
            grads.delta.iter().map(|g| g * g).sum::<f64>().sqrt() / (scan.d_inner as f64).sqrt()
        } else {
            1e-30
        };
        let error = error_over(&got, &want, floor);
        let constant = (name == "b" && scan.b_constant) || (name == "c" && scan.c_constant);
        let sum = constant || ["a", "d", "delta_bias"].contains(&name);
        let tolerance = if sum { SUMS } else { PER_TOKEN };
        assert!(error <= tolerance, "{what}: {name} is off by {error:.1e}");
    }
}

fn grad_of_complex(scan: &Scan) -> Vec<f64> {
    grad_of(&OracleScan { u: scan.u.clone(), ..OracleScan::default() })
}

/// Every method × series × form at `sizes`; the Taylor series in reverse.
fn check_all(sizes: Sizes, forms: &[Form], device: &Device, choice: KernelChoice) {
    for &method in Discretization::VARIANTS {
        for &series in Series::VARIANTS {
            for &form in forms {
                let reverse = series == Series::Taylor;
                let base = complex(sizes, form, 4.0, 4.0, 3);
                check(&OracleScan { method, series, reverse, ..base }, device, choice);
            }
        }
    }
}

const FORMS: [Form; 4] = [Form::Variable, Form::Grouped(2), Form::Constant, Form::Mixed];

#[test]
fn reference_matches_the_oracle_in_every_form() {
    check_all([2, 19, 6, 5], &FORMS, &Device::flex(), KernelChoice::Reference);
}

#[test]
fn reference_matches_the_oracle_at_awkward_sizes() {
    for sizes in [[1, 1, 1, 1], [1, 2, 5, 17], [2, 5, 5, 8], [1, 37, 1, 16], [1, 197, 2, 3]] {
        check_all(sizes, &FORMS[..1], &Device::flex(), KernelChoice::Reference);
    }
}

/// A scan whose delta·a is huge in both parts: every decay underflows, whatever its phase.
fn check_huge(device: &Device, choice: KernelChoice) {
    for &method in Discretization::VARIANTS {
        for &series in Series::VARIANTS {
            let base = complex([2, 37, 6, 3], Form::Variable, 1000.0, 1000.0, 3);
            check(&OracleScan { method, series, ..base }, device, choice);
        }
    }
}

#[test]
fn reference_matches_the_oracle_where_delta_a_is_huge() {
    check_huge(&Device::flex(), KernelChoice::Reference);
}

#[test]
fn auto_runs_the_reference_on_flex_and_the_kernel_is_an_error() {
    let scan = complex([1, 5, 3, 2], Form::Variable, 3.0, 3.0, 17);
    let device = Device::flex();
    check(&scan, &device, KernelChoice::Auto);
    let pair = |n| (Tensor::<2>::zeros([3, n], &device), Tensor::<2>::zeros([3, n], &device));
    let tokens = || Tensor::<3>::zeros([1, 5, 3], &device);
    let options = ScanOptions { choice: KernelChoice::Kernel, ..ScanOptions::default() };
    let result =
        selective_scan(tokens(), tokens(), pair(2), pair(2), pair(2), None, None, None, options);
    assert!(matches!(result, Err(KernelError::NoKernel { .. })));
}

#[test]
fn real_and_complex_do_not_mix() {
    let device = Device::flex();
    let real = || Tensor::<2>::zeros([3, 2], &device);
    let call = |a: bool, b: bool, c: bool| {
        let projection = |complex: bool| -> ScanBC {
            if complex { (real(), real()).into() } else { real().into() }
        };
        let rate: vim_kernels::ScanA = if a { (real(), real()).into() } else { real().into() };
        let tokens = Tensor::<3>::zeros([1, 5, 3], &device);
        let (delta, options) = (tokens.clone(), ScanOptions::default());
        selective_scan(tokens, delta, rate, projection(b), projection(c), None, None, None, options)
    };
    assert!(call(true, true, true).unwrap().last_state_im.is_some());
    assert!(call(false, false, false).unwrap().last_state_im.is_none());
    for (a, b, c, at_fault) in [
        (true, false, true, "b"),
        (true, true, false, "c"),
        (false, true, false, "b"),
        (false, false, true, "c"),
        (true, false, false, "b"),
    ] {
        let error = call(a, b, c).unwrap_err();
        assert!(
            matches!(error, KernelError::Complex { tensor, .. } if tensor == at_fault),
            "{error}"
        );
    }
    let (tokens, pair) = (Tensor::<3>::zeros([1, 5, 3], &device), (real(), real()));
    let short = (real(), Tensor::<2>::zeros([3, 1], &device));
    let options = ScanOptions::default();
    let result = selective_scan(
        tokens.clone(),
        tokens,
        pair.clone(),
        short,
        pair,
        None,
        None,
        None,
        options,
    );
    assert!(matches!(result, Err(KernelError::Shape { tensor: "b.im", .. })));
}

#[test]
fn without_imaginary_parts_it_is_the_real_scan_with_c_doubled() {
    for &method in Discretization::VARIANTS {
        for &series in Series::VARIANTS {
            let real = scan([2, 19, 4, 3], Form::Variable, 4.0, 5);
            let real = OracleScan { method, series, ..real };
            let mut doubled = real.clone();
            doubled.c.iter_mut().for_each(|c| *c *= 2.0);
            let complex = complex_with(real, |n, _| vec![0.0; n], 0.0);
            let grad_y = grad_of_complex(&complex);
            // The oracles differ by rounding in f64 only.
            let close = |name: &str, got: &[f64], want: &[f64]| {
                let off = error_over(got, want, 1e-30);
                assert!(off <= 1e-12, "{method} {series} {name}: {off:.1e}");
            };
            let (y, last) = complex.forward();
            let (want_y, want_last) = doubled.forward();
            close("y", &y, &want_y);
            let re = |x: &[Number]| -> Vec<f64> { x.iter().map(|x| x.re).collect() };
            close("last_state", &re(&last), &want_last);
            assert!(last.iter().all(|h| h.im == 0.0), "{method}: the state stays real");
            let (got, want) = (complex.backward(&grad_y), doubled.backward(&grad_y));
            close("u", &got.u, &want.u);
            close("delta", &got.delta, &want.delta);
            close("a", &re(&got.a), &want.a);
            close("b", &re(&got.b), &want.b);
            let c: Vec<f64> = want.c.iter().map(|c| 2.0 * c).collect();
            close("c", &re(&got.c), &c);
            close("z", &got.z, &want.z);
            // The reference in f32 sees the same scan.
            check(&complex, &Device::flex(), KernelChoice::Reference);
        }
    }
}

#[cfg(feature = "wgpu")]
mod kernel {
    use burn::tensor::DeviceKind;

    use super::*;

    /// Sizes `[B, L, D, N]` at which chunks, strips and states begin and end in the middle of
    /// something.
    const AWKWARD: [Sizes; 7] = [
        [1, 1, 1, 1],
        [1, 2, 5, 17],
        [2, 5, 5, 8],
        [1, 37, 1, 16],
        [1, 17, 66, 1],
        [1, 197, 5, 17],
        [2, 33, 130, 2],
    ];

    fn device() -> Device {
        Device::wgpu(DeviceKind::DefaultDevice)
    }

    #[test]
    fn complex_kernel_matches_the_oracle_in_every_form() {
        check_all([2, 37, 10, 5], &FORMS, &device(), KernelChoice::Kernel);
    }

    #[test]
    fn complex_kernel_matches_the_oracle_at_awkward_sizes() {
        for sizes in AWKWARD {
            check_all(sizes, &FORMS[..1], &device(), KernelChoice::Kernel);
        }
        for form in [Form::Grouped(2), Form::Constant] {
            let scan = complex([2, 33, 132, 3], form, 4.0, 4.0, 3);
            let scan = OracleScan { method: Discretization::Poly, ..scan };
            check(&scan, &device(), KernelChoice::Kernel);
        }
    }

    #[test]
    fn complex_kernel_matches_the_oracle_with_256_states() {
        let scan = complex([1, 18, 3, 256], Form::Variable, 4.0, 4.0, 3);
        check(&scan, &device(), KernelChoice::Kernel);
    }

    #[test]
    fn complex_kernel_matches_the_oracle_where_delta_a_is_huge() {
        check_huge(&device(), KernelChoice::Kernel);
    }

    #[test]
    fn complex_kernel_takes_absent_inputs() {
        for absent in 0..4 {
            let mut scan = complex([2, 5, 6, 4], Form::Variable, 3.0, 3.0, 11);
            match absent {
                0 => scan.d = None,
                1 => scan.z = None,
                2 => scan.delta_bias = None,
                _ => {
                    // Without softplus, delta is used as it is: make it a step.
                    scan.delta_softplus = false;
                    scan.delta_bias = None;
                    scan.delta.iter_mut().for_each(|d| *d = 0.02 + d.abs() / 4.0);
                }
            }
            for method in [Discretization::Zoh, Discretization::Poly] {
                let scan = OracleScan { method, ..scan.clone() };
                check(&scan, &device(), KernelChoice::Kernel);
            }
        }
    }

    #[test]
    fn complex_kernel_without_gradients_keeps_no_states_and_gives_the_same() {
        for method in [Discretization::HighOrder, Discretization::Poly] {
            let scan = complex([2, 37, 5, 3], Form::Variable, 4.0, 4.0, 19);
            let scan = OracleScan { method, ..scan };
            let device = device();
            let tokens = [2, 37, 5];
            let pair = |numbers: &[Number]| {
                let part =
                    |part: fn(&Number) -> f64| -> Vec<f64> { numbers.iter().map(part).collect() };
                (part(|x| x.re), part(|x| x.im))
            };
            let ((a, a_im), (b, b_im), (c, c_im)) = (pair(&scan.a), pair(&scan.b), pair(&scan.c));
            let rate = |x: &[f64]| tensor(x, [5, 3], &device);
            let row = |x: &[f64]| tensor(x, [2, 37, 3], &device);
            let out = selective_scan(
                tensor(&scan.u, tokens, &device),
                tensor(&scan.delta, tokens, &device),
                (rate(&a), rate(&a_im)),
                (row(&b), row(&b_im)),
                (row(&c), row(&c_im)),
                scan.d.as_ref().map(|d| tensor(d, [5], &device)),
                scan.z.as_ref().map(|z| tensor(z, tokens, &device)),
                scan.delta_bias.as_ref().map(|b| tensor(b, [5], &device)),
                ScanOptions {
                    method,
                    delta_softplus: true,
                    choice: KernelChoice::Kernel,
                    ..ScanOptions::default()
                },
            )
            .unwrap();
            let tracked = run(&scan, &device, KernelChoice::Kernel, &grad_of_complex(&scan));
            assert!(values(out.y) == tracked.y, "{method}");
            let last = joined(values(out.last_state), values(out.last_state_im.unwrap()));
            assert!(last == tracked.last_state, "{method}");
        }
    }

    #[test]
    fn complex_kernel_gives_the_same_bits_twice() {
        let scan = complex([3, 50, 70, 5], Form::Variable, 4.0, 4.0, 13);
        let grad_y = grad_of_complex(&scan);
        let [one, two] = [(); 2].map(|()| run(&scan, &device(), KernelChoice::Kernel, &grad_y));
        assert!(one == two);
    }
}
