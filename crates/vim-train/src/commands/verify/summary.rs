//! What all checks came to, and the worst of their rows.

use serde::Serialize;
use vim_verify::Outcome;

/// What all checks came to.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    pub(super) checks: usize,
    pub(super) failed: usize,
    skipped: usize,
    pub(super) passed: bool,
    worst: Option<WorstRow>,
}

/// The judged array with the largest error relative to its tolerance.
#[derive(Clone, Debug, Serialize)]
struct WorstRow {
    check: String,
    array: String,
    max: f64,
    tolerance: f64,
    case: String,
}

impl Summary {
    pub(super) fn of(outcomes: &[Outcome]) -> Self {
        let failed = outcomes.iter().filter(|outcome| outcome.failed()).count();
        let skipped = outcomes.iter().filter(|outcome| outcome.skipped.is_some()).count();
        // The bound of the stability sweep is not an error: methods may come close to it.
        let errors = outcomes.iter().filter(|o| o.failed() || o.subject.has_errors());
        let worst = errors
            .filter_map(|outcome| Some((outcome, outcome.worst()?)))
            .max_by(|(_, one), (_, two)| one.compared(two))
            .map(|(outcome, row)| WorstRow {
                check: outcome.name.clone(),
                array: row.array.clone(),
                max: row.max,
                tolerance: row.tolerance,
                case: row.note.clone(),
            });
        let checks = outcomes.len() - skipped;
        Self { checks, failed, skipped, passed: failed == 0, worst }
    }

    pub(super) fn line(&self) -> String {
        let skipped = match self.skipped {
            0 => String::new(),
            n => format!(", {n} skipped"),
        };
        let worst = self.worst.as_ref().map_or_else(String::new, |worst| {
            let WorstRow { check, array, max, tolerance, case } = worst;
            format!(", worst {check} {array}: {max:.1e} of {tolerance:.1e} ({case})")
        });
        format!("{} checks, {} failed{skipped}{worst}", self.checks, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use vim_verify::{Context, Row, Verdict, all_checks};

    use vim_engine::fatal::explain;
    use vim_engine::work::methods;

    use super::super::DtypeChoice;
    use super::*;

    fn context() -> Context {
        Context {
            device: Device::flex(),
            methods: methods(&[]),
            dtypes: DtypeChoice::F32.dtypes(),
            quick: true,
            compiles: false,
            explain_panic: explain,
        }
    }

    fn summary(rows: Vec<Row>) -> Summary {
        let mut check = all_checks(&context()).swap_remove(0);
        check.run = Box::new(move |_, _| Ok(rows.clone()));
        Summary::of(&[Outcome::of(&check, &context(), 1.0)])
    }

    #[test]
    fn a_check_without_rows_fails() {
        let summary = summary(Vec::new());
        assert!(!summary.passed && summary.line() == "1 checks, 1 failed");
    }

    /// An exact array, one within its tolerance, and one that failed though it is nearer to it.
    #[test]
    fn the_worst_row_is_a_real_one() {
        let row = |array: &str, max, tolerance, verdict| Row {
            array: array.to_owned(),
            max,
            mean: 0.0,
            tolerance,
            verdict,
            note: "here".to_owned(),
        };
        let mut rows = vec![
            row("counts", 0.0, 0.0, Verdict::Pass),
            row("y", 0.5, 2.0, Verdict::Pass),
            row("u", 0.1, 2.0, Verdict::Pass),
        ];
        let line = summary(rows.clone()).line();
        assert!(line.ends_with(" y: 5.0e-1 of 2.0e0 (here)"), "{line}");
        rows.push(row("z", 0.2, 2.0, Verdict::Fail));
        let failed = summary(rows);
        assert!(!failed.passed && failed.worst.is_some_and(|worst| worst.array == "z"));
    }
}
