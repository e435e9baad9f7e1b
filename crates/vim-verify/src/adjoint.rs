//! The gradients of the f64 loops against finite differences of their own output: what all else is
//! held against must itself be right.

use vim_kernels::oracle::{
    OracleConv, OracleConv3x3, OracleFullScan, OracleLayerNorm, OracleNorm, OracleResize,
    OracleResizeNll, OracleRoiAlign, OracleRotation, OracleScaleShift, OracleScan, OracleScanGrads,
};
use vim_kernels::{Complex, Discretization, KernelError, Precision};

use crate::check::{Check, Context, Row, Subject, rows_of, worst};
use crate::compare::{Dtype, Numbers};
use crate::full_scan::full;
use crate::run::{StateNumber, named, real};
use crate::scan::{Form, grad_of, inputs, methods_of, with_parts};
use crate::{batch_norm, conv3x3, layer_norm, norm, resize, roi_align, rotate_pairs};

/// max |difference| / max |reference| in f64: the fourth-order stencil below truncates at about
/// 1e-12 and rounds at about 1e-11.
const F64: f64 = 1e-8;

/// Central differences of `loss` in every number that `field` reaches, from number 0 to the last.
fn differences<S: Clone>(
    subject: &S,
    field: impl Fn(&mut S, usize) -> Option<&mut f64>,
    loss: impl Fn(&S) -> f64,
) -> Vec<f64> {
    let mut subject = subject.clone();
    let mut at = |i: usize, step: f64| {
        let number = field(&mut subject, i)?;
        let moved = *number;
        *number += step;
        let loss = loss(&subject);
        *field(&mut subject, i)? = moved;
        Some(loss)
    };
    let h = 2e-4;
    let difference = |i| {
        let [one, two] = [h, 2.0 * h].map(|h| Some(at(i, h)? - at(i, -h)?));
        Some((8.0 * one? - two?) / (12.0 * h))
    };
    (0..).map_while(difference).collect()
}

fn dot(one: &[f64], two: &[f64]) -> f64 {
    one.iter().zip(two).map(|(a, b)| a * b).sum()
}

/// The rows of a scan, given where its inputs are, its output and its gradients.
fn scan_rows<S: Clone, T: StateNumber>(
    subject: &S,
    scan: fn(&mut S) -> &mut OracleScan<T>,
    loss: impl Fn(&S) -> f64,
    grads: OracleScanGrads<T>,
    case: &str,
    factor: f64,
) -> Vec<Row> {
    let want = [
        differences(subject, |s, i| scan(s).u.get_mut(i), &loss),
        differences(subject, |s, i| scan(s).delta.get_mut(i), &loss),
        differences(subject, |s, i| T::part(&mut scan(s).a, i), &loss),
        differences(subject, |s, i| T::part(&mut scan(s).b, i), &loss),
        differences(subject, |s, i| T::part(&mut scan(s).c, i), &loss),
        differences(subject, |s, i| scan(s).d.as_mut()?.get_mut(i), &loss),
        differences(subject, |s, i| scan(s).z.as_mut()?.get_mut(i), &loss),
        differences(subject, |s, i| scan(s).delta_bias.as_mut()?.get_mut(i), &loss),
    ];
    let grads = real(grads);
    let pairs = named(&grads).into_iter().zip(want);
    let arrays = pairs.map(|((array, got), want)| (array, got.to_vec(), want, F64)).collect();
    rows_of(arrays, 1e-30, factor, case)
}

fn conv_rows(conv: &OracleConv, case: &str, factor: f64) -> Vec<Row> {
    let grad_y = Numbers::new(7).vec(conv.x.len(), -1.0, 1.0, Dtype::F32);
    let loss = |c: &OracleConv| dot(&c.forward(), &grad_y);
    let grads = conv.backward(&grad_y);
    let bias = differences(conv, |c, i| c.bias.as_mut()?.get_mut(i), loss);
    let arrays = vec![
        ("x", grads.x, differences(conv, |c, i| c.x.get_mut(i), loss), F64),
        ("weight", grads.weight, differences(conv, |c, i| c.weight.get_mut(i), loss), F64),
        ("bias", grads.bias, bias, F64),
    ];
    rows_of(arrays, 1e-30, factor, case)
}

fn norm_rows(norm: &OracleNorm, case: &str, factor: f64) -> Vec<Row> {
    let mut x = Numbers::new(7);
    let mut by = || x.vec(norm.x.len(), -1.0, 1.0, Dtype::F32);
    let (by_normed, by_sum) = (by(), by());
    let loss = |norm: &OracleNorm| {
        let (normed, sum) = norm.forward();
        dot(&normed, &by_normed) + dot(&sum, &by_sum)
    };
    let grads = norm.backward(&by_normed, &by_sum);
    let residual = differences(norm, |n, i| n.residual.as_mut()?.get_mut(i), loss);
    let mut arrays = vec![
        ("x", grads.x, differences(norm, |n, i| n.x.get_mut(i), loss), F64),
        ("weight", grads.weight, differences(norm, |n, i| n.weight.get_mut(i), loss), F64),
    ];
    if norm.residual.is_some() {
        arrays.push(("residual", grads.residual, residual, F64));
    }
    rows_of(arrays, 1e-30, factor, case)
}

fn conv3x3_rows(conv: &OracleConv3x3, case: &str, factor: f64) -> Vec<Row> {
    let pixels = conv.x.len() / conv.inputs;
    let grad_y = Numbers::new(7).vec(pixels * conv.outputs, -1.0, 1.0, Dtype::F32);
    let loss = |c: &OracleConv3x3| dot(&c.forward(), &grad_y);
    let grads = conv.backward(&grad_y);
    let bias = differences(conv, |c, i| c.bias.as_mut()?.get_mut(i), loss);
    let arrays = vec![
        ("x", grads.x, differences(conv, |c, i| c.x.get_mut(i), loss), F64),
        ("weight", grads.weight, differences(conv, |c, i| c.weight.get_mut(i), loss), F64),
        ("bias", grads.bias, bias, F64),
    ];
    rows_of(arrays, 1e-30, factor, case)
}

fn resize_rows(images: &OracleResize, case: &str, factor: f64) -> Vec<Row> {
    let count = images.forward().len();
    let grad_y = Numbers::new(7).vec(count, -1.0, 1.0, Dtype::F32);
    let loss = |images: &OracleResize| dot(&images.forward(), &grad_y);
    let want = differences(images, |images, i| images.x.get_mut(i), loss);
    rows_of(vec![("x", images.backward(&grad_y), want, F64)], 1e-30, factor, case)
}

fn roi_rows(boxes: &OracleRoiAlign, case: &str, factor: f64) -> Vec<Row> {
    let grad_y = Numbers::new(7).vec(boxes.forward().len(), -1.0, 1.0, Dtype::F32);
    let loss = |boxes: &OracleRoiAlign| dot(&boxes.forward(), &grad_y);
    let want = differences(boxes, |boxes, i| boxes.x.get_mut(i), loss);
    rows_of(vec![("x", boxes.backward(&grad_y), want, F64)], 1e-30, factor, case)
}

fn rotation_rows(tokens: &OracleRotation, case: &str, factor: f64) -> Vec<Row> {
    let grad_y = Numbers::new(7).vec(tokens.x.len(), -1.0, 1.0, Dtype::F32);
    let loss = |tokens: &OracleRotation| dot(&tokens.forward(), &grad_y);
    let want = differences(tokens, |tokens, i| tokens.x.get_mut(i), loss);
    rows_of(vec![("x", tokens.backward(&grad_y), want, F64)], 1e-30, factor, case)
}

fn nll_rows(nll: &OracleResizeNll, case: &str, factor: f64) -> Vec<Row> {
    let loss = |nll: &OracleResizeNll| nll.forward().loss;
    let want = differences(nll, |nll, i| nll.logits.x.get_mut(i), loss);
    rows_of(vec![("logits", nll.backward(), want, F64)], 1e-30, factor, case)
}

fn scale_shift_rows(case: &OracleScaleShift, note: &str, factor: f64) -> Vec<Row> {
    let grad_y = Numbers::new(7).vec(case.x.len(), -1.0, 1.0, Dtype::F32);
    let by = Numbers::new(9).vec(2 * case.scale.len(), -1.0, 1.0, Dtype::F32);
    let loss = |c: &OracleScaleShift| dot(&c.forward(), &grad_y) + dot(&c.sums(), &by);
    let grads = case.backward(&grad_y);
    let through_sums = case.sums_backward(&by);
    let of_x = grads.x.iter().zip(through_sums).map(|(one, two)| one + two).collect();
    let arrays = vec![
        ("x", of_x, differences(case, |c, i| c.x.get_mut(i), loss), F64),
        ("scale", grads.scale, differences(case, |c, i| c.scale.get_mut(i), loss), F64),
        ("shift", grads.shift, differences(case, |c, i| c.shift.get_mut(i), loss), F64),
    ];
    rows_of(arrays, 1e-30, factor, note)
}

fn layer_norm_rows(case: &OracleLayerNorm, note: &str, factor: f64) -> Vec<Row> {
    let grad_y = Numbers::new(7).vec(case.x.len(), -1.0, 1.0, Dtype::F32);
    let loss = |c: &OracleLayerNorm| dot(&c.forward(), &grad_y);
    let grads = case.backward(&grad_y);
    let arrays = vec![
        ("x", grads.x, differences(case, |c, i| c.x.get_mut(i), loss), F64),
        ("weight", grads.weight, differences(case, |c, i| c.weight.get_mut(i), loss), F64),
        ("bias", grads.bias, differences(case, |c, i| c.bias.get_mut(i), loss), F64),
    ];
    rows_of(arrays, 1e-30, factor, note)
}

/// The forms and directions to go through.
fn forms(context: &Context) -> impl Iterator<Item = (Form, bool, String)> {
    let forms = if context.quick { &Form::ALL[1..2] } else { &Form::ALL[..] };
    let ways =
        |&form| [false, true].map(|reverse| (form, reverse, format!("{form:?} reverse {reverse}")));
    forms.iter().flat_map(ways)
}

/// The selective scan of real states or complex ones, every method and series.
fn scans<T: StateNumber>(context: &Context) -> Vec<Check> {
    let check_of = |method, series| {
        let run = move |context: &Context, factor| {
            let lens = |(form, reverse, case): (_, _, String)| {
                [1, 2, 3].map(|len| (len, form, reverse, format!("L={len} {case}")))
            };
            worst(forms(context).flat_map(lens).map(|(len, form, reverse, case)| {
                let base = inputs([2, len, 4, 2], form, 3.0, Dtype::F32);
                let base = OracleScan { method, series, reverse, ..base };
                let scan: OracleScan<T> = with_parts(base, 3.0, Dtype::F32);
                let grad_y = grad_of(&scan, Dtype::F32);
                let loss = |s: &OracleScan<T>| dot(&s.forward().0, &grad_y);
                Ok(scan_rows(&scan, |s| s, loss, scan.backward(&grad_y), &case, factor))
            }))
        };
        check(T::OPERATION, run).of(method, series)
    };
    let of = |method: Discretization| {
        method.series().iter().map(move |&series| check_of(method, series))
    };
    methods_of::<T>(context).flat_map(of).collect()
}

/// Every operation; the selective scan by every method and series.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let mut checks = scans::<f64>(context);
    checks.extend(scans::<Complex<f64>>(context));
    checks.push(check("full_scan", |context, factor| {
        worst(forms(context).map(|(form, reverse, case)| {
            let base = inputs([1, 3, 4, 3], form, 3.0, Dtype::F32);
            let scan = full(OracleScan { reverse, ..base }, 3.0);
            let grad_y = grad_of(&scan.0, Dtype::F32);
            let loss = |s: &OracleFullScan| dot(&s.forward().0, &grad_y);
            Ok(scan_rows(&scan, |s| &mut s.0, loss, scan.backward(&grad_y), &case, factor))
        }))
    }));
    checks.push(check("causal_conv1d", |_, factor| {
        let forms = [(true, false), (true, true), (false, false), (false, true)];
        worst(forms.map(|(silu, reverse)| {
            let mut x = Numbers::new(5);
            let mut vec = |n| x.vec(n, -1.0, 1.0, Dtype::F32);
            let conv = OracleConv {
                batch: 2,
                len: 5,
                d_inner: 3,
                width: 4,
                silu,
                reverse,
                x: vec(30),
                weight: vec(12),
                bias: Some(vec(3)),
            };
            Ok(conv_rows(&conv, &format!("silu {silu} reverse {reverse}"), factor))
        }))
    }));
    checks.extend(norms());
    checks.push(check("rotate_pairs", |_, factor| {
        worst([[1, 1, 2], [2, 3, 6], [1, 5, 10]].map(|shape| {
            let tokens = rotate_pairs::inputs(shape, Dtype::F32);
            Ok(rotation_rows(&tokens, &format!("{shape:?}"), factor))
        }))
    }));
    checks.push(check("conv3x3", |_, factor| {
        worst([([2, 3, 4], 2, 3), ([1, 1, 2], 3, 1)].map(|(size, inputs, outputs)| {
            let conv = conv3x3::inputs(size, inputs, outputs, Precision::F32);
            Ok(conv3x3_rows(&conv, &format!("{size:?} {inputs} to {outputs}"), factor))
        }))
    }));
    let sizes = [([2, 2, 3, 3], [7, 5]), ([1, 4, 3, 2], [2, 3]), ([1, 1, 2, 4], [4, 8])];
    checks.push(check("resize", move |_, factor| {
        worst(sizes.map(|(from, to)| {
            let images = resize::inputs(from, to, Dtype::F32);
            Ok(resize_rows(&images, &format!("{from:?} to {to:?}"), factor))
        }))
    }));
    checks.push(check("roi_align", |_, factor| {
        let sizes = [([2, 5, 7, 3], 3), ([1, 1, 9, 1], 2), ([1, 4, 5, 2], 2), ([1, 6, 3, 1], 3)];
        worst(sizes.into_iter().zip(roi_align::SAMPLINGS).map(|((from, bins), sampling)| {
            let boxes = roi_align::inputs(from, bins, 0.5, sampling, Dtype::F32);
            Ok(roi_rows(&boxes, &format!("{from:?} to {bins}, {sampling:?}"), factor))
        }))
    }));
    checks.push(check("resize_nll", move |_, factor| {
        worst(sizes.map(|(from, to)| {
            let nll = resize::nll_inputs(from, to, Some(3), Dtype::F32);
            Ok(nll_rows(&nll, &format!("{from:?} to {to:?}"), factor))
        }))
    }));
    checks.push(check("scale_shift", |_, factor| {
        worst([true, false].map(|relu| {
            let case = batch_norm::inputs(6, 3, relu, Dtype::F32);
            Ok(scale_shift_rows(&case, &format!("relu {relu}"), factor))
        }))
    }));
    checks
}

/// Those of both norms.
fn norms() -> [Check; 2] {
    [
        check("add_rms_norm", |_, factor| {
            worst([true, false].map(|residual| {
                let norm = norm::inputs(3, 5, residual, Dtype::F32);
                Ok(norm_rows(&norm, &format!("residual {residual}"), factor))
            }))
        }),
        check("layer_norm", |_, factor| {
            worst([true, false].map(|relu| {
                let case = layer_norm::inputs(3, 5, relu, Dtype::F32);
                Ok(layer_norm_rows(&case, &format!("relu {relu}"), factor))
            }))
        }),
    ]
}

fn check(
    operation: &'static str,
    run: impl Fn(&Context, f64) -> Result<Vec<Row>, KernelError> + 'static,
) -> Check {
    Check::new(Subject::Adjoint, operation, "oracle", "f64", run)
}
