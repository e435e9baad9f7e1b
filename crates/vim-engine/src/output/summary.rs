//! The summary at the end of a run, and number formatting.

use std::path::PathBuf;
use std::time::Duration;
use vim_run::metrics::ScoreKind;

/// Result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The run's name.
    pub name: String,
    /// How it ended, such as `finished` or `stopped by SIGTERM`.
    pub outcome: String,
    /// Steps done, of how many.
    pub steps: (u64, u64),
    /// Mean training loss since the report before.
    pub loss: Option<f64>,
    /// The primary score.
    pub kind: ScoreKind,
    /// Score of the last evaluation on the validation images.
    pub score: Option<f64>,
    /// The best of these evaluations, and its step.
    pub best: Option<(f64, u64)>,
    /// Score on the test images.
    pub test_score: Option<f64>,
    /// The curves of loss and score, in characters.
    pub curves: [Option<String>; 2],
    /// Training images per second in this process.
    pub images_per_second: Option<f64>,
    /// Working time of this process.
    pub elapsed: Duration,
    /// The run's folder.
    pub folder: PathBuf,
}

/// The summary as lines, without a newline at the end.
pub fn summary(summary: &Summary) -> String {
    let (done, total) = summary.steps;
    let kind = summary.kind;
    let (best, test) = (format!("best {}", kind.label), format!("test {}", kind.label));
    let curve = format!("{} curve", kind.label);
    let [loss_curve, score_curve] = &summary.curves;
    let rows = [
        ("run", Some(summary.name.clone())),
        ("outcome", Some(summary.outcome.clone())),
        ("steps", Some(format!("{done} of {total}"))),
        ("loss", summary.loss.map(|loss| format!("{loss:.4}"))),
        (kind.label, summary.score.map(|score| kind.show(score))),
        (
            best.as_str(),
            summary.best.map(|(score, step)| format!("{} at step {step}", kind.show(score))),
        ),
        (test.as_str(), summary.test_score.map(|score| kind.show(score))),
        ("loss curve", loss_curve.clone()),
        (curve.as_str(), score_curve.clone()),
        ("speed", summary.images_per_second.map(|speed| format!("{} img/s", rate(speed)))),
        ("time", Some(duration(summary.elapsed))),
        ("folder", Some(summary.folder.display().to_string())),
    ];
    let width = curve.len().max(10) + 2;
    let lines: Vec<String> = rows
        .into_iter()
        .filter_map(|(label, value)| Some(format!("{label:<width$}{}", value?)))
        .collect();
    lines.join("\n")
}

/// A number of things: `1 run`, `2 runs`.
pub fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A speed with its significant digits.
pub fn rate(per_second: f64) -> String {
    if per_second < 100.0 { format!("{per_second:.1}") } else { format!("{per_second:.0}") }
}

/// A size in bytes, in a fitting unit.
pub fn bytes(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

/// A duration in its two largest units.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h{minutes:02}m"),
        (_, _, _) => format!("{days}d{hours:02}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_leaves_out_what_is_not_known() {
        let mut numbers = Summary {
            name: "zoh-s0".into(),
            outcome: "finished".into(),
            steps: (500, 500),
            loss: Some(0.4321),
            kind: ScoreKind::share("top1", "top-1"),
            score: Some(0.912),
            best: Some((0.915, 450)),
            test_score: None,
            curves: [Some("█▁".into()), None],
            images_per_second: Some(88.04),
            elapsed: Duration::from_secs(754),
            folder: "data/runs/zoh-s0".into(),
        };
        let expected = "\
run          zoh-s0
outcome      finished
steps        500 of 500
loss         0.4321
top-1        91.20 %
best top-1   91.50 % at step 450
loss curve   █▁
speed        88.0 img/s
time         12m34s
folder       data/runs/zoh-s0";
        assert_eq!(summary(&numbers), expected);
        numbers.test_score = Some(1.0);
        assert!(summary(&numbers).contains("test top-1   100.00 %"));
    }

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "run")), ["0 runs", "1 run", "2 runs"]);
    }

    #[test]
    fn sizes() {
        for (size, text) in
            [(0, "0 MiB"), (300 << 20, "300 MiB"), (1 << 30, "1.0 GiB"), (3 << 29, "1.5 GiB")]
        {
            assert_eq!(bytes(size), text);
        }
    }

    #[test]
    fn durations() {
        for (seconds, text) in
            [(0, "0s"), (59, "59s"), (61, "1m01s"), (3600, "1h00m"), (90_061, "1d01h")]
        {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
    }
}
