//! The methods against each other on one input: no two of them may be the same thing under two
//! names, and each must be the same bits twice.

use vim_kernels::oracle::OracleScan;
use vim_kernels::{Implementation, KernelError, Series};

use crate::bits;
use crate::check::{Check, Context, Row, Subject, Verdict};
use crate::compare::{Dtype, figures};
use crate::run::{PER_TOKEN, Results, STORED_BF16};
use crate::scan::{Form, grad_of, inputs};

/// How near the outputs of two methods are, whose greatest difference is `max`.
fn nearness(max: f64, rounding: f64) -> &'static str {
    if max == 0.0 {
        "identical"
    } else if max <= rounding {
        "same within rounding"
    } else {
        "different"
    }
}

/// One check for each implementation and type; it has a row for each pair of methods.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let check = |(implementation, dtype)| Check {
        series: Some(Series::Exact),
        ..Check::new(
            Subject::Methods,
            "selective_scan",
            implementation,
            dtype,
            move |context, _| rows(context, implementation, dtype),
        )
    };
    context.runs().map(check).collect()
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
                let note = if same { "identical, twice" } else { "not the same bits twice" };
                rows.push(bits::row(array, same, Verdict::Fail, note));
                continue;
            }
            let scale = all[i].y.iter().fold(1e-30, |m: f64, y| m.max(y.abs()));
            let off = figures(&all[i].y, &all[j].y, scale);
            let good = off.max > rounding && off.max.is_finite();
            rows.push(Row {
                array,
                max: off.max,
                mean: off.mean,
                tolerance: rounding,
                verdict: if good { Verdict::Pass } else { Verdict::Fail },
                note: nearness(off.max, rounding).to_owned(),
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
        assert_eq!(nearness(0.0, 1e-5), "identical");
        assert_eq!(nearness(1e-6, 1e-5), "same within rounding");
        assert_eq!(nearness(1e-4, 1e-5), "different");
        assert_eq!(nearness(f64::INFINITY, 1e-5), "different");
    }
}
