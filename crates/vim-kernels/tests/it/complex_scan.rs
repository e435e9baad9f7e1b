//! Complex A, B and C: reference and kernel against the oracle.

use burn::tensor::{Device, Tensor};
use strum::VariantArray;
use vim_kernels::oracle::OracleScan;
use vim_kernels::{
    Complex, Discretization, Implementation, KernelChoice, KernelError, ScanBC, ScanOptions,
    Series, selective_scan,
};
use vim_verify::scan::with_parts;

use crate::support::{Dtype, Form, Sizes, check as check_on, error, grad_of, scan, values};

type Number = Complex<f64>;
type Scan = OracleScan<Number>;

/// Tolerances over those of a real scan: the products of complex numbers round more often.
const LOOSER: f64 = 1.5;

/// A complex scan; delta·a reaches about `reach` in its real part, and turns by up to about `turn`
/// radians a token.
fn complex(sizes: Sizes, form: Form, reach: f64, turn: f64) -> Scan {
    with_parts(scan(sizes, form, reach), turn, Dtype::F32)
}

/// Checks an implementation against the oracle.
fn check(scan: &Scan, device: &Device, implementation: Implementation) {
    check_on(scan, implementation, Dtype::F32, LOOSER, device);
}

/// The methods that run with complex A.
fn published() -> impl Iterator<Item = Discretization> {
    Discretization::VARIANTS.iter().copied().filter(|method| method.form().published)
}

/// Every method × series × form at `sizes`; the Taylor series in reverse.
fn check_all(sizes: Sizes, forms: &[Form], device: &Device, implementation: Implementation) {
    for method in published() {
        for &series in method.series() {
            for &form in forms {
                let reverse = series == Series::Taylor;
                let base = complex(sizes, form, 4.0, 4.0);
                check(&OracleScan { method, series, reverse, ..base }, device, implementation);
            }
        }
    }
}

#[test]
fn reference_matches_the_oracle_in_every_form() {
    check_all([2, 19, 6, 5], &Form::ALL, &Device::flex(), Implementation::Reference);
}

#[test]
fn reference_matches_the_oracle_at_awkward_sizes() {
    for sizes in [[1, 1, 1, 1], [1, 2, 5, 17], [2, 5, 5, 8], [1, 37, 1, 16], [1, 197, 2, 3]] {
        check_all(sizes, &Form::ALL[..1], &Device::flex(), Implementation::Reference);
    }
}

/// A scan whose delta·a is huge in both parts: every decay underflows, whatever its phase.
fn check_huge(device: &Device, implementation: Implementation) {
    for method in published() {
        for &series in method.series() {
            let base = complex([2, 37, 6, 3], Form::Variable, 1000.0, 1000.0);
            check(&OracleScan { method, series, ..base }, device, implementation);
        }
    }
}

#[test]
fn reference_matches_the_oracle_where_delta_a_is_huge() {
    check_huge(&Device::flex(), Implementation::Reference);
}

#[test]
fn auto_runs_the_reference_on_flex_and_the_kernel_is_an_error() {
    let device = Device::flex();
    let pair = |n| (Tensor::<2>::ones([3, n], &device) * -0.5, Tensor::<2>::ones([3, n], &device));
    let tokens = || Tensor::<3>::ones([1, 5, 3], &device);
    let call = |choice| {
        let options = ScanOptions { choice, ..ScanOptions::default() };
        selective_scan(tokens(), tokens(), pair(2), pair(2), pair(2), None, None, None, options)
    };
    let y = |choice| values(call(choice).unwrap().y);
    assert_eq!(y(KernelChoice::Auto), y(KernelChoice::Reference));
    assert!(matches!(call(KernelChoice::Kernel), Err(KernelError::NoKernel { .. })));
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
fn a_method_that_is_real_or_exact_alone_is_refused() {
    let device = Device::flex();
    let pair = |shape: [usize; 2]| [(); 2].map(|()| Tensor::<2>::ones(shape, &device)).into();
    let call = |method, series, complex: bool| {
        let u = || Tensor::<3>::ones([1, 3, 4], &device);
        let options = ScanOptions { method, series, ..ScanOptions::default() };
        let result = if complex {
            let (a, b): ((_, _), (_, _)) = (pair([4, 5]), pair([4, 5]));
            selective_scan(u(), u(), a, b.clone(), b, None, None, None, options)
        } else {
            let a = Tensor::<2>::ones([4, 5], &device);
            selective_scan(u(), u(), a.clone(), a.clone(), a, None, None, None, options)
        };
        match result {
            Err(KernelError::Method { method, what, .. }) => Some((method, what)),
            Ok(_) | Err(_) => None,
        }
    };
    for &method in Discretization::VARIANTS {
        let name = method.into();
        let refused = |what| (!method.form().published).then_some((name, what));
        assert_eq!(call(method, Series::Exact, false), None);
        assert_eq!(call(method, Series::Taylor, false), refused("the series `taylor`"));
        assert_eq!(call(method, Series::Exact, true), refused("complex A"));
    }
}

#[test]
fn without_imaginary_parts_it_is_the_real_scan_with_c_doubled() {
    for method in published() {
        for &series in method.series() {
            let real = scan([2, 19, 4, 3], Form::Variable, 4.0);
            let real = OracleScan { method, series, ..real };
            let mut doubled = real.clone();
            doubled.c.iter_mut().for_each(|c| *c *= 2.0);
            let mut complex: Scan = with_parts(real, 0.0, Dtype::F32);
            for array in [&mut complex.a, &mut complex.b, &mut complex.c] {
                array.iter_mut().for_each(|number| number.im = 0.0);
            }
            let grad_y = grad_of(&complex);
            // The oracles differ by rounding in f64 only.
            let close = |name: &str, got: &[f64], want: &[f64]| {
                let off = error(got, want);
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
            check(&complex, &Device::flex(), Implementation::Reference);
        }
    }
}

#[cfg(feature = "wgpu")]
mod kernel {
    use burn::tensor::DeviceKind;

    use super::*;
    use crate::support::{run, tensor, without_inputs};

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
        check_all([2, 37, 10, 5], &Form::ALL, &device(), Implementation::Kernel);
    }

    #[test]
    fn complex_kernel_matches_the_oracle_at_awkward_sizes() {
        for sizes in AWKWARD {
            check_all(sizes, &Form::ALL[..1], &device(), Implementation::Kernel);
        }
        for form in [Form::Grouped(2), Form::Constant] {
            let scan = complex([2, 33, 132, 3], form, 4.0, 4.0);
            let scan = OracleScan { method: Discretization::Poly, ..scan };
            check(&scan, &device(), Implementation::Kernel);
        }
    }

    #[test]
    fn complex_kernel_matches_the_oracle_with_256_states() {
        let scan = complex([1, 18, 3, 256], Form::Variable, 4.0, 4.0);
        check(&scan, &device(), Implementation::Kernel);
    }

    #[test]
    fn complex_kernel_matches_the_oracle_where_delta_a_is_huge() {
        check_huge(&device(), Implementation::Kernel);
    }

    #[test]
    fn complex_kernel_takes_absent_inputs() {
        for scan in without_inputs(&complex([2, 5, 6, 4], Form::Variable, 3.0, 3.0)) {
            for method in [Discretization::Zoh, Discretization::Poly] {
                let scan = OracleScan { method, ..scan.clone() };
                check(&scan, &device(), Implementation::Kernel);
            }
        }
    }

    #[test]
    fn complex_kernel_without_gradients_keeps_no_states_and_gives_the_same() {
        for method in [Discretization::HighOrder, Discretization::Poly] {
            let scan = complex([2, 37, 5, 3], Form::Variable, 4.0, 4.0);
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
            let tracked = run(&scan, Implementation::Kernel, &device);
            assert!(values(out.y) == tracked.y, "{method}");
            let (re, im) = (values(out.last_state), values(out.last_state_im.unwrap()));
            let last: Vec<f64> = re.into_iter().zip(im).flat_map(|(re, im)| [re, im]).collect();
            assert!(last == tracked.last_state, "{method}");
        }
    }

    #[test]
    fn complex_kernel_gives_the_same_bits_twice() {
        let scan = complex([3, 50, 70, 5], Form::Variable, 4.0, 4.0);
        let [one, two] = [(); 2].map(|()| run(&scan, Implementation::Kernel, &device()));
        assert!(one == two);
    }
}
