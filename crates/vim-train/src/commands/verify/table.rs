//! Terminal output of `verify`.

use vim_engine::Error;
use vim_engine::output::print;
use vim_engine::program;
use vim_verify::{Outcome, Row, Subject, Verdict};

/// Prints outcomes as they come, one section per subject and operation.
pub(crate) struct Table {
    shown: bool,
    part: Option<(Subject, &'static str)>,
}

/// Widths of the name column and of the other columns.
const NAME: usize = 37;
const COLUMN: usize = 11;

/// The heading of the section for `operation`.
fn title(subject: Subject, operation: &str) -> String {
    match subject {
        Subject::Oracle => format!(
            "{operation} against loops in f64: max error (below it the mean), over the largest |reference|"
        ),
        Subject::Adjoint => format!(
            "the f64 gradients of {operation} against finite differences: max error (below it the mean)"
        ),
        Subject::Order => format!(
            "{operation} of a smooth input that is sampled at the tokens: the order in delta"
        ),
        Subject::Methods => format!(
            "{operation}, method against method, y on one input: max above the diagonal, mean below it"
        ),
        Subject::Bits => {
            format!(
                "{operation}, the same bits: from launch to launch, and wherever the inputs lie"
            )
        }
        Subject::Stability => format!(
            "{operation} over |delta A|: largest |y| over what an integrator of the input would reach"
        ),
    }
}

impl Table {
    pub(crate) fn new(shown: bool) -> Self {
        Self { shown, part: None }
    }

    fn line(&self, text: &str) -> Result<(), Error> {
        if self.shown { print(text.trim_end()) } else { Ok(()) }
    }

    pub(crate) fn head(&self, device: &str, hardware: Option<&str>) -> Result<(), Error> {
        let hardware = hardware.map_or_else(String::new, |name| format!(" ({name})"));
        self.line(&format!("vim-train {} on {device}{hardware}", program::VERSION))
    }

    pub(crate) fn outcome(&mut self, outcome: &Outcome) -> Result<(), Error> {
        if outcome.skipped.is_some() {
            return Ok(());
        }
        if self.part != Some((outcome.subject, outcome.operation)) {
            self.part = Some((outcome.subject, outcome.operation));
            self.line("")?;
            self.line(&title(outcome.subject, outcome.operation))?;
            if !matches!(outcome.subject, Subject::Methods | Subject::Bits | Subject::Order) {
                let arrays = shown_rows(outcome).map(|row| format!("{:>COLUMN$}", row.array));
                self.line(&format!("{:<NAME$}{}", "", arrays.collect::<String>()))?;
            }
        }
        if let Some(error) = &outcome.error {
            return self.line(&format!("{:<NAME$}  FAIL  {error}", label(outcome)));
        }
        match outcome.subject {
            Subject::Oracle | Subject::Adjoint => self.errors(outcome),
            Subject::Bits => self.bits(outcome),
            Subject::Stability => self.sweep(outcome),
            Subject::Order => self.order(outcome),
            Subject::Methods => self.matrix(outcome),
        }
    }

    fn errors(&self, outcome: &Outcome) -> Result<(), Error> {
        let cells = |figure: fn(&Row) -> f64| -> String {
            outcome.rows.iter().map(|row| format!("{:>COLUMN$.1e}", figure(row))).collect()
        };
        let (name, verdict) = (label(outcome), verdict(outcome));
        self.line(&format!("{name:<NAME$}{}  {verdict}", cells(|row| row.max)))?;
        self.line(&format!("{:<NAME$}{}", "", cells(|row| row.mean)))?;
        for row in outcome.rows.iter().filter(|row| row.verdict == Verdict::Fail) {
            let Row { array, max, tolerance, note, .. } = row;
            self.line(&format!("    FAIL {array}: {max:.2e} is above {tolerance:.1e} at {note}"))?;
        }
        Ok(())
    }

    fn bits(&self, outcome: &Outcome) -> Result<(), Error> {
        self.line(&format!("{:<NAME$}  {}", label(outcome), verdict(outcome)))?;
        for Row { array, verdict, note, .. } in &outcome.rows {
            let same = match verdict {
                Verdict::Pass => "same bits",
                Verdict::Fail => "FAIL: other bits",
                Verdict::Reported => "other bits (reported)",
            };
            self.line(&format!("    {array}, {note}: {same}"))?;
        }
        Ok(())
    }

    fn order(&self, outcome: &Outcome) -> Result<(), Error> {
        let notes: String = outcome.rows.iter().map(|row| format!("  {}", row.note)).collect();
        self.line(&format!("{:<NAME$}{notes}  {}", label(outcome), verdict(outcome)))
    }

    fn sweep(&self, outcome: &Outcome) -> Result<(), Error> {
        let cells: String =
            shown_rows(outcome).map(|row| format!("{:>COLUMN$.1e}", row.max)).collect();
        self.line(&format!("{:<NAME$}{cells}  {}", label(outcome), verdict(outcome)))?;
        for row in outcome.rows.iter().filter(|row| row.verdict == Verdict::Fail) {
            let Row { array, max, tolerance, note, .. } = row;
            self.line(&format!(
                "    FAIL |delta A| = {array}: {note}, {max:.2e} of {tolerance:.1e}"
            ))?;
        }
        Ok(())
    }

    fn matrix(&self, outcome: &Outcome) -> Result<(), Error> {
        let names: Vec<&str> = outcome
            .rows
            .iter()
            .filter_map(|row| row.array.split_once(' '))
            .filter_map(|(one, two)| (one == two).then_some(one))
            .collect();
        let find = |one: &str, two: &str| {
            outcome.rows.iter().find(|row| row.array == format!("{one} {two}"))
        };
        let column = names.iter().map(|name| name.len() + 1).max().unwrap_or(0).max(COLUMN);
        let head: String = names.iter().map(|name| format!("{name:>column$}")).collect();
        self.line(&format!("{:<NAME$}{head}", label(outcome)))?;
        for (i, one) in names.iter().enumerate() {
            let mut line = format!("{one:<NAME$}");
            for (j, two) in names.iter().enumerate() {
                let figure = if i <= j {
                    find(one, two).map(|row| row.max)
                } else {
                    find(two, one).map(|row| row.mean)
                };
                let cell = figure.map_or_else(String::new, |figure| match figure {
                    0.0 => "0".to_owned(),
                    _ => format!("{figure:.1e}"),
                });
                line.push_str(&format!("{cell:>column$}"));
            }
            self.line(&line)?;
        }
        let count = |word: &str| outcome.rows.iter().filter(|row| row.note == word).count();
        self.line(&format!(
            "pairs: {} different, {} same within rounding, {} identical; each twice the same bits: {}  {}",
            count("different"),
            count("same within rounding"),
            count("identical"),
            if count("not the same bits twice") == 0 { "yes" } else { "no" },
            verdict(outcome)
        ))
    }

    /// Skipped checks, grouped by reason.
    pub(crate) fn skipped(&self, outcomes: &[Outcome]) -> Result<(), Error> {
        self.line("")?;
        let mut reasons: Vec<(&str, &str, usize)> = Vec::new();
        for outcome in outcomes {
            let Some(reason) = outcome.skipped.as_deref() else { continue };
            let dtype = outcome.dtype.as_str();
            match reasons.iter_mut().find(|(known, of, _)| (*known, *of) == (reason, dtype)) {
                Some((_, _, count)) => *count += 1,
                None => reasons.push((reason, dtype, 1)),
            }
        }
        for (reason, dtype, count) in reasons {
            self.line(&format!("{count} checks in {dtype} skipped: {reason}"))?;
        }
        Ok(())
    }
}

/// The rows with a column; of a sweep only whole decades.
fn shown_rows(outcome: &Outcome) -> impl Iterator<Item = &Row> {
    let all = outcome.subject != Subject::Stability;
    outcome.rows.iter().filter(move |row| all || row.array.starts_with("1.000e"))
}

fn label(outcome: &Outcome) -> String {
    let method = outcome.method.map(|method| method.to_string());
    let series = outcome.series.map(|series| series.to_string());
    let parts = [method, series, Some(outcome.implementation.clone()), Some(outcome.dtype.clone())];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn verdict(outcome: &Outcome) -> &'static str {
    match outcome.rows.first().map(|row| row.verdict) {
        _ if outcome.failed() => "FAIL",
        Some(Verdict::Reported) => "reported",
        Some(Verdict::Pass | Verdict::Fail) | None => "pass",
    }
}
