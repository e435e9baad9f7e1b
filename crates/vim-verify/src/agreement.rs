//! The methods against each other on one input: no two of them may be the same thing under two
//! names, and each must be the same bits twice.

use vim_kernels::oracle::OracleScan;
use vim_kernels::{Implementation, KernelError, Series};

use crate::check::{Check, Context, Row, Subject, Verdict};
use crate::compare::figures;
use crate::dtype::Dtype;
use crate::run::{PER_TOKEN, Results, STORED_BF16};
use crate::scan::{Form, grad_of, inputs};

/// How near the outputs of two methods are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nearness {
    Identical,
    Same,
    Different,
}

impl Nearness {
    pub(crate) fn of(max: f64, rounding: f64) -> Self {
        if max == 0.0 {
            Self::Identical
        } else if max <= rounding {
            Self::Same
        } else {
            Self::Different
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Identical => "identical",
            Self::Same => "same within rounding",
            Self::Different => "different",
        }
    }
}

/// One check for each implementation and type; it has a row for each pair of methods.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let mut checks = Vec::new();
    for implementation in context.implementations() {
        for &dtype in context.dtypes {
            checks.push(Check {
                subject: Subject::Methods,
                operation: "selective_scan",
                method: None,
                series: Some(Series::Exact),
                implementation: implementation.to_string(),
                dtype: dtype.to_string(),
                run: Box::new(move |context, _| rows(context, implementation, dtype)),
            });
        }
    }
    checks
}

fn rows(
    context: &Context,
    implementation: Implementation,
    dtype: Dtype,
) -> Result<Vec<Row>, KernelError> {
    let rounding = if dtype == Dtype::Bf16 { STORED_BF16 } else { PER_TOKEN };
    let run = |method| {
        let scan = OracleScan { method, ..inputs([2, 37, 10, 16], Form::Variable, 4.0, dtype) };
        let grad_y = grad_of(&scan, dtype);
        Results::on_device(&scan, &grad_y, implementation, dtype, &context.device)
    };
    let all = context.methods.iter().map(|&method| run(method)).collect::<Result<Vec<_>, _>>()?;
    let mut rows = Vec::new();
    for (i, one) in context.methods.iter().enumerate() {
        for (j, two) in context.methods.iter().enumerate().skip(i) {
            let array = format!("{one} {two}");
            if i == j {
                let same = run(*two)? == all[i];
                let max = if same { 0.0 } else { f64::INFINITY };
                let verdict = if same { Verdict::Pass } else { Verdict::Fail };
                let note = if same { "identical, twice" } else { "not the same bits twice" };
                let note = note.to_owned();
                rows.push(Row { array, max, mean: max, tolerance: 0.0, verdict, note });
                continue;
            }
            let scale = all[i].y.iter().fold(1e-30, |m: f64, y| m.max(y.abs()));
            let off = figures(&all[i].y, &all[j].y, scale);
            let near = Nearness::of(off.max, rounding);
            let good = near == Nearness::Different && off.max.is_finite();
            rows.push(Row {
                array,
                max: off.max,
                mean: off.mean,
                tolerance: rounding,
                verdict: if good { Verdict::Pass } else { Verdict::Fail },
                note: near.name().to_owned(),
            });
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearness_has_three_steps() {
        assert_eq!(Nearness::of(0.0, 1e-5), Nearness::Identical);
        assert_eq!(Nearness::of(1e-6, 1e-5), Nearness::Same);
        assert_eq!(Nearness::of(1e-4, 1e-5), Nearness::Different);
        assert_eq!(Nearness::of(f64::INFINITY, 1e-5).name(), "different");
    }
}
