//! The findings of checks.

use serde::Serialize;
use serde_json::{Map, Value};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(super) enum Verdict {
    /// As it should be.
    Pass,
    /// It works, and may be slow or at risk.
    Warn,
    /// It would not work.
    Fail,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The name of the check, stable for scripts.
    pub(super) what: String,
    pub(super) verdict: Verdict,
    /// The finding in words.
    pub(super) detail: String,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
    /// Measured values under stable names, for programs.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(super) figures: Map<String, Value>,
}

impl Finding {
    pub(super) fn pass(what: impl Into<String>, detail: impl Into<String>) -> Self {
        let (what, detail) = (what.into(), detail.into());
        Self { what, verdict: Verdict::Pass, detail, advice: None, figures: Map::new() }
    }

    pub(super) fn warn(
        what: impl Into<String>,
        detail: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let advice = Some(advice.into());
        Self { verdict: Verdict::Warn, advice, ..Self::pass(what, detail) }
    }

    pub(super) fn fail(
        what: impl Into<String>,
        detail: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Fail, ..Self::warn(what, detail, advice) }
    }

    /// The same with figures.
    pub(super) fn with<const N: usize>(mut self, figures: [(&str, Value); N]) -> Self {
        self.figures.extend(figures.map(|(name, value)| (name.to_owned(), value)));
        self
    }

    /// As printed.
    pub(super) fn line(&self) -> String {
        let Self { what, verdict, detail, advice, .. } = self;
        let verdict = verdict.to_string();
        let advice = advice.as_ref().map_or_else(String::new, |advice| format!("; {advice}"));
        format!("{verdict:<4}  {what:<18}  {detail}{advice}")
    }
}

/// Bytes in a readable unit.
pub(super) fn size(bytes: u64) -> String {
    let units = [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    units.iter().find(|(_, unit)| bytes >= *unit).map_or_else(
        || format!("{bytes} B"),
        |(name, unit)| format!("{:.1} {name}", bytes as f64 / *unit as f64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_to_do() {
        let line = Finding::warn("memory", "2 GiB free", "ask for more by --mem").line();
        assert_eq!(line, "warn  memory              2 GiB free; ask for more by --mem");
        assert_eq!(Finding::pass("cpu", "2 cores").line(), "pass  cpu                 2 cores");
    }

    #[test]
    fn sizes() {
        let cases: [(u64, &str); 5] = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (3 << 30, "3.0 GiB"),
            (5 << 40, "5.0 TiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(size(bytes), text);
        }
    }
}
