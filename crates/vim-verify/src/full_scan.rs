//! The scan with a full A against the f64 loops.

use vim_kernels::Implementation;
use vim_kernels::oracle::{OracleFullScan, OracleScan};

use crate::check::{Check, Context, Subject, worst};
use crate::compare::{Dtype, Numbers};
use crate::run::{Results, judged};
use crate::scan::{Case, Form, grad_of, without_optional_inputs};

/// What multiplies the tolerances of a scan with a diagonal A where delta·a is huge: a state then
/// turns by almost −1 a token, and its small decay carries what the tokens before it rounded.
/// Elsewhere they hold as they are: a solve is good to N·6e-8 times the condition of its system, a
/// few units for these A.
const HUGE: f64 = 10.0;

/// `scan` with a full A: its own on the diagonal, beside it a skew part and a small part of no
/// structure, both of the diagonal's size divided by √N.
#[must_use]
pub fn full(mut scan: OracleScan, reach: f64) -> OracleFullScan {
    let (channels, n_states) = (scan.d_inner, scan.d_state);
    let mut x = Numbers::new(1005);
    let size = reach / (n_states as f64).sqrt();
    let mut a = x.vec(channels * n_states * n_states, -0.05 * size, 0.05 * size, Dtype::F32);
    for (matrix, diagonal) in a.chunks_mut(n_states * n_states).zip(scan.a.chunks(n_states)) {
        for n in 0..n_states {
            for m in 0..n {
                let skew = x.vec(1, -size, size, Dtype::F32)[0];
                let (one, two) = (n * n_states + m, m * n_states + n);
                matrix[one] = Dtype::F32.round(matrix[one] + skew);
                matrix[two] = Dtype::F32.round(matrix[two] - skew);
            }
            matrix[n * n_states + n] = diagonal[n];
        }
    }
    scan.a = a;
    OracleFullScan(scan)
}

/// The cases, with how far delta·a reaches in each and what multiplies the tolerances.
fn cases(
    context: &Context,
    implementation: Implementation,
    dtype: Dtype,
) -> Vec<(OracleFullScan, String, f64)> {
    let of_case =
        |case: Case| (full(case.inputs(3, dtype), case.reach), case.name(), looser(&case));
    if context.few_kernels(implementation) {
        // Two kernels, of sizes that they are not compiled for.
        let variable = |sizes| Case::new(sizes, Form::Variable, 4.0);
        let mut cases = [[1, 1, 1, 16], [1, 2, 5, 16], [2, 21, 6, 16]].map(variable).to_vec();
        cases.push(Case::new([2, 21, 6, 16], Form::Variable, 1000.0));
        cases.push(Case { reverse: true, ..Case::new([2, 21, 6, 16], Form::Grouped(2), 4.0) });
        return cases.into_iter().map(of_case).collect();
    }
    let mut cases: Vec<_> =
        every_case(context.quick, implementation).into_iter().map(of_case).collect();
    for (scan, absent) in without_optional_inputs(dtype) {
        let OracleScan { batch, len, d_inner, d_state, .. } = scan;
        let case = format!("B={batch} L={len} D={d_inner} N={d_state} without {absent}");
        cases.push((full(scan, 4.0), case, 1.0));
    }
    cases
}

/// The cases where one costs no kernel of its own.
#[must_use]
pub fn every_case(quick: bool, implementation: Implementation) -> Vec<Case> {
    let mut cases: Vec<_> = Form::ALL.map(|form| Case::new([2, 21, 6, 5], form, 4.0)).into();
    let mut sizes = vec![[1, 1, 1, 1], [1, 2, 5, 17], [2, 5, 3, 2], [1, 5, 2, 32]];
    if !quick {
        sizes.push([1, 37, 6, 16]);
        if implementation == Implementation::Kernel {
            // Many chunks; several blocks of channels, the last of them not full.
            sizes.extend([[1, 197, 16, 16], [3, 19, 27, 16]]);
        }
    }
    cases.extend(sizes.into_iter().map(|sizes| Case::new(sizes, Form::Variable, 4.0)));
    cases.push(Case::new([1, 21, 6, 3], Form::Variable, 1000.0));
    Case::both_ways(cases)
}

/// What multiplies the tolerances of a case.
#[must_use]
pub fn looser(case: &Case) -> f64 {
    if case.reach > 4.0 { HUGE } else { 1.0 }
}

/// Both implementations, the kernel in every type: y, the last state and all gradients. The
/// reference and the CPU take f32 alone.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let check = |(implementation, dtype)| {
        let run = move |context: &Context, factor| {
            let cases = cases(context, implementation, dtype).into_iter();
            worst(cases.map(|(full, case, looser)| {
                let grad_y = grad_of(&full.0, dtype);
                let device = &context.device;
                let got =
                    Results::of_full_on_device(&full, &grad_y, implementation, dtype, device)?;
                let want = Results::of_full_oracle(&full, &grad_y);
                Ok(judged(&full.0, &got, &want, dtype, looser, factor, &case))
            }))
        };
        Check::new(Subject::Oracle, "full_scan", implementation, dtype, run)
    };
    context.runs().map(check).collect()
}
