//! Display of running runs: bars on a terminal, elsewhere a line per start and end.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, stderr};
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use indicatif::MultiProgress;
use vim_run::metrics::Record;
use vim_run::{ENVIRONMENT, METRICS};

use crate::output::bar::{Bar, wants_bar};
use crate::output::terminal_width;
use crate::task::kinds::PRIMARY;

/// Bytes read from the end of a file for its last lines.
const TAIL: u64 = 4096;

/// Columns of a run's name.
const NAME: usize = 24;
/// Columns of a bar.
const BAR: usize = 12;

pub(crate) struct Watch {
    bars: Option<MultiProgress>,
}

/// The bar of one run.
pub(crate) struct Shown(Bar);

impl Watch {
    pub(crate) fn new() -> Self {
        Self { bars: wants_bar().then(MultiProgress::new) }
    }

    /// Writes a line above the bars.
    pub(crate) fn line(&self, text: &str) {
        match &self.bars {
            Some(bars) => bars.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// Shows the run `name` from now on.
    pub(crate) fn show(&self, name: &str) -> Shown {
        let template =
            format!("{{prefix:{NAME}!}} {{bar:{BAR}.cyan}} {{pos}}/{{len}} {{wide_msg}}");
        Shown(Bar::new(0, &template, |bar| {
            let bar = bar.with_prefix(name.to_owned());
            bar.enable_steady_tick(Duration::from_millis(500));
            match &self.bars {
                Some(bars) => bars.add(bar),
                None => bar,
            }
        }))
    }
}

impl Shown {
    /// Updates the progress of the run in `folder`.
    pub(crate) fn update(&self, folder: &Path) {
        let Some(bar) = &self.0.0 else { return };
        if bar.length() == Some(0)
            && let Some(total) = total_steps(folder)
        {
            bar.set_length(total);
        }
        let lines = tail(&folder.join(METRICS));
        let records: Vec<Record> = lines.lines().filter_map(Record::parse).collect();
        let newest = |key: &str| records.iter().rev().find_map(|record| record.number::<f64>(key));
        if let Some(step) = newest("step") {
            bar.set_position(step as u64);
        }
        let loss = newest("loss").map(|loss| format!("loss {loss:.4}"));
        let scores = PRIMARY.iter().filter_map(|kind| Some((kind, newest(kind.name)?)));
        let score =
            scores.map(|(kind, score)| format!("{} {}", kind.label, kind.show(score))).next();
        // Besides the name, the bar and the spaces; a number that is cut off would be another.
        let steps = format!("{}/{}", bar.position(), bar.length().unwrap_or(0));
        let room =
            terminal_width(stderr()).unwrap_or(80).saturating_sub(NAME + BAR + 3 + steps.len());
        bar.set_message(fitting(loss.into_iter().chain(score), room));
    }
}

/// As many of the `parts` as `room` columns have space for.
fn fitting(parts: impl Iterator<Item = String>, room: usize) -> String {
    let mut shown = String::new();
    for part in parts {
        let comma = if shown.is_empty() { "" } else { ", " };
        if shown.len() + comma.len() + part.len() <= room {
            shown = format!("{shown}{comma}{part}");
        }
    }
    shown
}

fn total_steps(folder: &Path) -> Option<u64> {
    let text = std::fs::read(folder.join(ENVIRONMENT)).ok()?;
    serde_json::from_slice::<serde_json::Value>(&text).ok()?.get("total_steps")?.as_u64()
}

/// The last lines of a file; empty if it cannot be read.
fn tail(path: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// The last non-empty line of a log; the error of a failed run, which a caret line may follow.
pub(crate) fn last_line(path: &Path, failed: bool) -> String {
    let text = tail(path);
    let error = text.lines().rev().find(|line| failed && line.starts_with("error: "));
    let line = error.or_else(|| text.lines().rev().find(|line| !line.trim().is_empty()));
    line.unwrap_or("it said nothing").trim().to_owned()
}

/// Describes how a process ended.
pub(crate) fn ended_by(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("failed ({code})"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_does_not_fit_is_left_out() {
        let parts = || ["loss 1.6661", "top-1 38.81 %"].map(str::to_owned).into_iter();
        assert_eq!(fitting(parts(), 26), "loss 1.6661, top-1 38.81 %");
        assert_eq!(fitting(parts(), 25), "loss 1.6661");
        assert_eq!(fitting(parts(), 10), "");
    }
}
