//! The progress of training: a bar on a terminal, plain lines elsewhere.

use std::cell::Cell;
use std::env;
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use vim_run::Log;
use vim_run::metrics::ScoreKind;

use crate::output::summary::{bytes, duration, rate};

/// The state of training at a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Steps done.
    pub step: u64,
    /// The epoch being trained, from 0.
    pub epoch: u64,
    /// Mean training loss since the last report.
    pub loss: f64,
    /// Learning rate.
    pub lr: f64,
    /// The primary score of the last evaluation.
    pub score: Option<f64>,
    /// Since the last report.
    pub speed: Speed,
}

/// Speed and memory of training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Images per second.
    pub images_per_second: f64,
    /// Share of the time that the loop waited for images, 0 to 1.
    pub data_wait: f64,
    /// Memory of the process in RAM, in bytes.
    pub memory: Option<u64>,
    /// Device memory in bytes, if separate.
    pub device_memory: Option<u64>,
}

/// Minimum interval between two lines without a bar. The log gets all lines.
const BETWEEN_LINES: Duration = Duration::from_secs(1);

/// Shows reports; see [`Progress::new`].
#[derive(Debug)]
pub struct Progress {
    log: Log,
    bar: Bar,
    epochs: u64,
    kind: ScoreKind,
    total: u64,
    first: u64,
    start: Instant,
    last_line: Cell<Option<Instant>>,
}

impl Progress {
    /// Starts at step `first` of `total`.
    ///
    /// A bar is drawn if stderr is a terminal and none of `NO_COLOR`, `CI` and `TERM=dumb` is set.
    pub fn new(log: &Log, first: u64, total: u64, epochs: u64, kind: ScoreKind) -> Self {
        let bar = Bar::new(total, "{bar:24} {pos}/{len} {elapsed_precise} {wide_msg}", |bar| {
            bar.enable_steady_tick(Duration::from_millis(200));
            bar.with_position(first)
        });
        log.set_bar(bar.0.clone());
        let (start, last_line) = (Instant::now(), Cell::new(None));
        Self { log: log.clone(), bar, epochs, kind, total, first, start, last_line }
    }

    /// Moves the bar; call after every step.
    pub fn step(&self, step: u64) {
        if let Some(bar) = &self.bar.0 {
            bar.set_position(step);
        }
    }

    /// Shows a report; call every `log.every` steps.
    pub fn report(&self, report: &Report) {
        let left = time_left(self.first, report.step, self.total, self.start.elapsed());
        let line = line(report, self.kind, self.epochs, self.total, left);
        match &self.bar.0 {
            Some(bar) => {
                bar.set_position(report.step);
                bar.set_message(line.clone());
                self.log.file_line(line);
            }
            None => {
                let now = Instant::now();
                if report.step == self.total || is_due(self.last_line.get(), now) {
                    self.last_line.set(Some(now));
                    self.log.line(line);
                } else {
                    self.log.file_line(line);
                }
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.log.set_bar(None);
    }
}

/// A bar, if a user sees it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Bar(pub(crate) Option<ProgressBar>);

impl Bar {
    /// A bar of `total` units, set up by `with`.
    pub(crate) fn new(
        total: u64,
        template: &str,
        with: impl FnOnce(ProgressBar) -> ProgressBar,
    ) -> Self {
        Self(wants_bar().then(|| {
            let style = ProgressStyle::with_template(template);
            let style = style.expect("invariant: the template is well formed");
            with(ProgressBar::new(total).with_style(style))
        }))
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Whether a user sees a bar.
pub(crate) fn wants_bar() -> bool {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    stderr().is_terminal() && !is_set("CI") && !is_set("NO_COLOR") && !is_dumb
}

/// Whether a line may be printed `now`, after one at `last`.
fn is_due(last: Option<Instant>, now: Instant) -> bool {
    last.is_none_or(|last| now.saturating_duration_since(last) >= BETWEEN_LINES)
}

/// The time that the remaining steps take at the pace so far; `None` before there is a pace.
fn time_left(first: u64, step: u64, total: u64, elapsed: Duration) -> Option<Duration> {
    let done = step.checked_sub(first).filter(|&done| done > 0)?;
    let share = total.saturating_sub(step) as f64 / done as f64;
    Duration::try_from_secs_f64(elapsed.as_secs_f64() * share).ok()
}

/// A report as a line.
fn line(
    report: &Report,
    kind: ScoreKind,
    epochs: u64,
    total: u64,
    left: Option<Duration>,
) -> String {
    let Report { step, epoch, loss, lr, score, speed } = report;
    let mut line =
        format!("epoch {}/{epochs} step {step}/{total} loss {loss:.4} lr {lr:.2e}", epoch + 1);
    if let Some(score) = score {
        line.push_str(&format!(" {} {}", kind.label, kind.show(*score)));
    }
    let Speed { images_per_second, data_wait, memory, device_memory } = *speed;
    line.push_str(&format!(" {} img/s wait {:.0} %", rate(images_per_second), data_wait * 100.0));
    if let Some(memory) = memory {
        line.push_str(&format!(" mem {}", bytes(memory)));
    }
    if let Some(memory) = device_memory {
        line.push_str(&format!(" gpu {}", bytes(memory)));
    }
    if let Some(left) = left {
        line.push_str(&format!(" eta {}", duration(left)));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let top1 = ScoreKind::share("top1", "top-1");
        let mut report = Report {
            step: 1200,
            epoch: 2,
            loss: 3.214_56,
            lr: 8.8e-4,
            score: None,
            speed: Speed {
                images_per_second: 1840.4,
                data_wait: 0.014,
                memory: Some(1 << 30),
                device_memory: None,
            },
        };
        assert_eq!(
            line(&report, top1, 300, 117_000, None),
            "epoch 3/300 step 1200/117000 loss 3.2146 lr 8.80e-4 1840 img/s wait 1 % mem 1.0 GiB"
        );
        report.score = Some(0.2134);
        report.speed.device_memory = Some(31 << 30);
        let left = Some(Duration::from_secs(7980));
        assert_eq!(
            line(&report, top1, 300, 117_000, left),
            "epoch 3/300 step 1200/117000 loss 3.2146 lr 8.80e-4 top-1 21.34 % 1840 img/s wait 1 % \
             mem 1.0 GiB gpu 31.0 GiB eta 2h13m"
        );
    }

    #[test]
    fn lines_keep_their_distance() {
        let start = Instant::now();
        assert!(is_due(None, start));
        assert!(!is_due(Some(start), start + BETWEEN_LINES / 2));
        assert!(is_due(Some(start), start + BETWEEN_LINES));
    }

    #[test]
    fn time_left_counts_only_this_process() {
        let minute = Duration::from_secs(60);
        assert_eq!(time_left(100, 100, 400, minute), None);
        assert_eq!(time_left(100, 200, 400, minute), Some(2 * minute));
        assert_eq!(time_left(100, 400, 400, minute), Some(Duration::ZERO));
    }
}
