//! The progress of training: a bar on a terminal, plain lines elsewhere.

use std::cell::Cell;
use std::io::stderr;
use std::time::{Duration, Instant};

use vim_run::Log;
use vim_run::metrics::ScoreKind;

use crate::output::bar::Bar;
use crate::output::summary::{bytes, duration, rate};
use crate::output::terminal_width;

/// The state of training at a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Steps done.
    pub step: u64,
    /// The epoch being trained, from 0.
    pub epoch: u64,
    /// Mean training loss since the last report; `None` if all steps were skipped.
    pub loss: Option<f64>,
    /// Learning rate.
    pub lr: f64,
    /// The primary score of the last evaluation.
    pub score: Option<f64>,
    /// Since the last report; `None` between reports.
    pub speed: Option<Speed>,
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
    last_report: Cell<Option<Report>>,
    last_line: Cell<Option<Instant>>,
}

impl Progress {
    /// Starts at step `first` of `total`.
    ///
    /// A bar is drawn if stderr is a terminal and neither `CI` nor `TERM=dumb` is set. It has
    /// one colour, and none with `NO_COLOR`; outside of UTF-8 it is of ASCII.
    pub fn new(log: &Log, first: u64, total: u64, epochs: u64, kind: ScoreKind) -> Self {
        let bar = Bar::new(total, "{prefix} {bar:12.cyan} {wide_msg}", |bar| {
            bar.enable_steady_tick(Duration::from_millis(200));
            bar.with_position(first).with_prefix("eta -").with_message(format!("{first}/{total}"))
        });
        log.set_bar(bar.0.clone());
        let (start, log) = (Instant::now(), log.clone());
        let (last_report, last_line) = (Cell::new(None), Cell::new(None));
        Self { log, bar, epochs, kind, total, first, start, last_report, last_line }
    }

    /// Moves the bar; call after every step. What the last report says is shown until the next one,
    /// before the first what `report` knows.
    pub fn step(&self, report: &Report) {
        let Some(bar) = &self.bar.0 else { return };
        let last = self.last_report.get().unwrap_or(*report);
        let report = Report { loss: last.loss, speed: last.speed, ..*report };
        bar.set_position(report.step);
        let elapsed = self.start.elapsed();
        let left = time_left(self.first, report.step, self.total, elapsed).map(duration);
        let eta = format!("eta {}", left.as_deref().unwrap_or("-"));
        // The bar and the spaces around it.
        let room = terminal_width(stderr()).unwrap_or(80).saturating_sub(eta.len() + 14);
        bar.set_message(fitting(&report, self.kind, (self.epochs, self.total), elapsed, room));
        bar.set_prefix(eta);
    }

    /// Says in the bar what goes on between two steps, such as an evaluation.
    pub fn meanwhile(&self, what: &str) {
        if let Some(bar) = &self.bar.0 {
            bar.set_message(format!("{}/{} {what}", bar.position(), self.total));
            if bar.position() == self.total {
                bar.set_prefix("eta -");
            }
        }
    }

    /// Shows a report; call every `log.every` steps.
    pub fn report(&self, report: &Report) {
        let left = time_left(self.first, report.step, self.total, self.start.elapsed());
        let line = line(report, self.kind, self.epochs, self.total, left);
        self.last_report.set(Some(*report));
        match &self.bar.0 {
            Some(_) => {
                self.step(report);
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

/// Whether a line may be printed `now`, after one at `last`.
fn is_due(last: Option<Instant>, now: Instant) -> bool {
    last.is_none_or(|last| now.saturating_duration_since(last) >= BETWEEN_LINES)
}

/// The time that the remaining steps take at the pace so far; `None` before there is a pace.
pub(crate) fn time_left(first: u64, step: u64, total: u64, elapsed: Duration) -> Option<Duration> {
    let done = step.checked_sub(first).filter(|&done| done > 0)?;
    let share = total.saturating_sub(step) as f64 / done as f64;
    Duration::try_from_secs_f64(elapsed.as_secs_f64() * share).ok()
}

/// A report in words, one for each value.
struct Words {
    epoch: String,
    loss: Option<String>,
    lr: String,
    score: Option<String>,
    /// Speed, wait, memory, device memory.
    speed: [Option<String>; 4],
}

impl Words {
    fn of(report: &Report, kind: ScoreKind, epochs: u64) -> Self {
        let Report { epoch, loss, lr, score, speed, .. } = *report;
        let memory = |speed: Speed| Some(format!("mem {}", bytes(speed.memory?)));
        let device_memory = |speed: Speed| Some(format!("gpu {}", bytes(speed.device_memory?)));
        Self {
            epoch: format!("epoch {}/{epochs}", epoch + 1),
            loss: loss.map(|loss| format!("loss {loss:.4}")),
            lr: format!("lr {lr:.2e}"),
            score: score.map(|score| format!("{} {}", kind.label, kind.show(score))),
            speed: [
                speed.map(|speed| format!("{} img/s", rate(speed.images_per_second))),
                speed.map(|speed| format!("wait {:.0} %", speed.data_wait * 100.0)),
                speed.and_then(memory),
                speed.and_then(device_memory),
            ],
        }
    }
}

/// A report as a line.
fn line(
    report: &Report,
    kind: ScoreKind,
    epochs: u64,
    total: u64,
    left: Option<Duration>,
) -> String {
    let Words { epoch, loss, lr, score, speed } = Words::of(report, kind, epochs);
    let step = format!("step {}/{total}", report.step);
    let left = left.map(|left| format!("eta {}", duration(left)));
    let known = [Some(epoch), Some(step), loss, Some(lr), score].into_iter().chain(speed);
    known.chain([left]).flatten().collect::<Vec<_>>().join(" ")
}

/// As much of a report as `room` columns have space for, what matters most first.
fn fitting(
    report: &Report,
    kind: ScoreKind,
    (epochs, total): (u64, u64),
    elapsed: Duration,
    room: usize,
) -> String {
    let Words { epoch, loss, lr, score, speed: [speed, wait, memory, device_memory] } =
        Words::of(report, kind, epochs);
    let elapsed = Some(format!("elapsed {}", duration(elapsed)));
    let mut shown = format!("{}/{total}", report.step);
    let by_weight =
        [loss, score, speed, Some(epoch), wait, Some(lr), device_memory, memory, elapsed];
    for word in by_weight.into_iter().flatten() {
        if shown.len() + 1 + word.len() <= room {
            shown = format!("{shown} {word}");
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEED: Speed = Speed {
        images_per_second: 1840.4,
        data_wait: 0.014,
        memory: Some(1 << 30),
        device_memory: None,
    };

    #[test]
    fn lines() {
        let top1 = ScoreKind::share("top1", "top-1");
        let mut report = Report {
            step: 1200,
            epoch: 2,
            loss: Some(3.214_56),
            lr: 8.8e-4,
            score: None,
            speed: Some(SPEED),
        };
        assert_eq!(
            line(&report, top1, 300, 117_000, None),
            "epoch 3/300 step 1200/117000 loss 3.2146 lr 8.80e-4 1840 img/s wait 1 % mem 1.0 GiB"
        );
        report.score = Some(0.2134);
        report.speed = Some(Speed { device_memory: Some(31 << 30), ..SPEED });
        let left = Some(Duration::from_secs(7980));
        assert_eq!(
            line(&report, top1, 300, 117_000, left),
            "epoch 3/300 step 1200/117000 loss 3.2146 lr 8.80e-4 top-1 21.34 % 1840 img/s wait 1 % \
             mem 1.0 GiB gpu 31.0 GiB eta 2h13m"
        );
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_the_loss_stays() {
        let top1 = ScoreKind::share("top1", "top-1");
        let (lr, epoch) = (8.8e-4, 2);
        let first = Report { step: 1, epoch, loss: Some(4.6), lr, score: None, speed: None };
        let later = Report { step: 1200, score: Some(0.2134), speed: Some(SPEED), ..first };
        let minute = Duration::from_secs(60);
        for (report, room, expected) in [
            (first, 57, "1/117000 loss 4.6000 epoch 3/300 lr 8.80e-4 elapsed 1m00s"),
            (first, 22, "1/117000 loss 4.6000"),
            (later, 36, "1200/117000 loss 4.6000 1840 img/s"),
            (later, 57, "1200/117000 loss 4.6000 top-1 21.34 % 1840 img/s wait 1 %"),
            (later, 77, "1200/117000 loss 4.6000 top-1 21.34 % 1840 img/s epoch 3/300 wait 1 %"),
        ] {
            let shown = fitting(&report, top1, (300, 117_000), minute, room);
            assert_eq!(shown, expected, "{room}");
            assert!(shown.len() <= room);
        }
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
