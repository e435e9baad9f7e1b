//! The order of each method, measured in f64: how fast the error to the continuous system falls as
//! steps shrink, where the input is a smooth signal that is sampled at the tokens.

use vim_kernels::Series;
use vim_kernels::oracle::OracleScan;

use crate::check::{Check, Context, Row, Subject, Verdict};

/// The system `h' = RATE·h + sin(FREQUENCY·t)` from rest, at END.
const RATE: f64 = -1.3;
const FREQUENCY: f64 = 3.0;
const END: f64 = 2.0;

/// Steps, and twice as many: from here on no method's order is off by more than 0.011.
const STEPS: usize = 1000;

/// How far a measured order may be from the one that the method claims.
const TOLERANCE: f64 = 0.05;

/// One check for each method.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let check = |&method| {
        let run = move |_: &Context, factor| {
            let error = |steps| (end(&OracleScan { method, ..sampled(steps) }) - exact()).abs();
            let measured = (error(STEPS) / error(2 * STEPS)).log2();
            let claimed = method.form().order;
            let off = (measured - f64::from(claimed)).abs();
            let tolerance = TOLERANCE * factor;
            Ok(vec![Row {
                array: "order".to_owned(),
                max: off,
                mean: off,
                tolerance,
                verdict: if off <= tolerance { Verdict::Pass } else { Verdict::Fail },
                note: format!("{measured:.3} measured, {claimed} claimed"),
            }])
        };
        Check::new(Subject::Order, "selective_scan", "oracle", "f64", run).of(method, Series::Exact)
    };
    context.methods.iter().map(check).collect()
}

/// One state over `steps` tokens of the signal, which is 0 before the first.
fn sampled(steps: usize) -> OracleScan {
    let step = END / steps as f64;
    let ones = vec![1.0; steps];
    OracleScan {
        batch: 1,
        len: steps,
        d_inner: 1,
        d_state: 1,
        groups: 1,
        u: (1..=steps).map(|token| (FREQUENCY * step * token as f64).sin()).collect(),
        delta: vec![step; steps],
        a: vec![RATE],
        b: ones.clone(),
        c: ones,
        ..OracleScan::default()
    }
}

fn end(scan: &OracleScan) -> f64 {
    scan.forward().1.first().copied().unwrap_or(f64::NAN)
}

fn exact() -> f64 {
    let (a, w, t) = (RATE, FREQUENCY, END);
    ((a * t).exp() * w - a * (w * t).sin() - w * (w * t).cos()) / (a * a + w * w)
}
