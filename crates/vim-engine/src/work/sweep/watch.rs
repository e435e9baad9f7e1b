//! Display of running runs: bars on a terminal, elsewhere a line per start and end.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, stderr};
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use indicatif::MultiProgress;
use vim_run::metrics::Record;
use vim_run::{ENVIRONMENT, METRICS};

use crate::output::bar::{Bar, wants_bar};
use crate::output::progress::time_left;
use crate::output::summary::duration;
use crate::output::{say, terminal_width};
use crate::task::kinds::PRIMARY;

/// Bytes read from the end of a file for its last lines.
const TAIL: u64 = 4096;

/// Columns of a run's name.
const NAME: usize = 24;
/// Columns of a bar.
const BAR: usize = 12;

pub(crate) struct Watch {
    bars: Option<MultiProgress>,
    /// Below those of the runs: the sweep.
    whole: Bar,
}

/// The bar of one run, and how far it is.
pub(crate) struct Shown {
    bar: Bar,
    /// When it began here, and the steps that it had then.
    begun: Instant,
    first: u64,
    step: u64,
    total: u64,
}

impl Watch {
    pub(crate) fn new() -> Self {
        let bars = wants_bar().then(MultiProgress::new);
        let whole = Bar::new(0, "{wide_msg}", |bar| match &bars {
            Some(bars) => bars.add(bar),
            None => bar,
        });
        Self { bars, whole }
    }

    /// Says below the bars how the sweep stands.
    pub(crate) fn show_whole(&self, text: String) {
        if let Some(bar) = &self.whole.0 {
            bar.set_message(text);
        }
    }

    /// Writes a line above the bars.
    pub(crate) fn line(&self, text: &str) {
        match &self.bars {
            Some(bars) => bars.suspend(|| say(text)),
            None => say(text),
        }
    }

    /// Shows the run `name` from now on, whose folder is `folder`.
    pub(crate) fn show(&self, name: &str, folder: &Path) -> Shown {
        let template =
            format!("{{prefix:{NAME}!}} {{bar:{BAR}.cyan}} {{pos}}/{{len}} {{wide_msg}}");
        let bar = Bar::new(0, &template, |bar| {
            let bar = bar.with_prefix(name.to_owned());
            let bar = match (&self.bars, &self.whole.0) {
                (Some(bars), Some(whole)) => bars.insert_before(whole, bar),
                (_, _) => bar,
            };
            // Only now: a bar that ticks by itself before would leave its line behind.
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        let step = newest(&records(folder), "step").map_or(0, |step| step as u64);
        Shown { bar, begun: Instant::now(), first: step, step, total: 0 }
    }
}

impl Shown {
    /// The share of the run that was trained here, and the share that is left.
    pub(crate) fn shares(&self) -> (f64, f64) {
        let share = |steps: u64| steps as f64 / self.total.max(1) as f64;
        match self.total {
            0 => (0.0, 1.0),
            total => {
                let done = self.step.saturating_sub(self.first);
                (share(done), share(total.saturating_sub(self.step)))
            }
        }
    }

    /// Updates the progress of the run in `folder`.
    pub(crate) fn update(&mut self, folder: &Path) {
        if self.total == 0 {
            self.total = total_steps(folder).unwrap_or(0);
        }
        let records = records(folder);
        let newest = |key: &str| newest(&records, key);
        self.step = newest("step").map_or(self.step, |step| step as u64);
        let Some(bar) = &self.bar.0 else { return };
        bar.set_length(self.total);
        bar.set_position(self.step);
        let left = time_left(self.first, self.step, self.total, self.begun.elapsed());
        let left = left.map(|left| format!("eta {}", duration(left)));
        let loss = newest("loss").map(|loss| format!("loss {loss:.4}"));
        let scores = PRIMARY.iter().filter_map(|kind| Some((kind, newest(kind.name)?)));
        let score =
            scores.map(|(kind, score)| format!("{} {}", kind.label, kind.show(score))).next();
        // Besides the name, the bar and the spaces; a number that is cut off would be another.
        let steps = format!("{}/{}", bar.position(), bar.length().unwrap_or(0));
        let room =
            terminal_width(stderr()).unwrap_or(80).saturating_sub(NAME + BAR + 3 + steps.len());
        bar.set_message(fitting(loss.into_iter().chain(left).chain(score), room));
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

/// The last records of the run in `folder`.
fn records(folder: &Path) -> Vec<Record> {
    tail(&folder.join(METRICS)).lines().filter_map(Record::parse).collect()
}

/// The newest number under a key.
fn newest(records: &[Record], key: &str) -> Option<f64> {
    records.iter().rev().find_map(|record| record.number(key))
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
    fn the_share_of_a_run_counts_from_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let record = |step: u64| {
            let line = format!("{{\"event\":\"train\",\"step\":{step},\"loss\":1.0}}\n");
            std::fs::write(folder.path().join(METRICS), line).unwrap();
        };
        let new = Watch::new().show("a", folder.path());
        assert_eq!(new.shares(), (0.0, 1.0));
        record(50);
        let mut shown = Watch::new().show("a", folder.path());
        std::fs::write(folder.path().join(ENVIRONMENT), "{\"total_steps\": 100}").unwrap();
        record(75);
        shown.update(folder.path());
        assert_eq!(shown.shares(), (0.25, 0.25));
    }

    #[test]
    fn a_number_that_does_not_fit_is_left_out() {
        let parts = || ["loss 1.6661", "top-1 38.81 %"].map(str::to_owned).into_iter();
        assert_eq!(fitting(parts(), 26), "loss 1.6661, top-1 38.81 %");
        assert_eq!(fitting(parts(), 25), "loss 1.6661");
        assert_eq!(fitting(parts(), 10), "");
    }
}
