//! Progress of a command: a bar on a terminal, occasional lines elsewhere.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use vim_data::Progress;

use crate::output::progress::wants_bar;
use crate::output::summary::rate;

/// Interval between two lines without a bar.
const PAUSE: Duration = Duration::from_secs(30);

/// Shows the progress of one task.
pub(super) struct Bar {
    task: String,
    bar: Option<ProgressBar>,
    start: Instant,
    last: Mutex<Instant>,
}

impl Bar {
    /// A bar for `task` over `total` images.
    pub(super) fn new(task: String, total: usize) -> Self {
        let bar = wants_bar().then(|| {
            let style =
                ProgressStyle::with_template("{msg} {bar:24} {pos}/{len} {per_sec} eta {eta}")
                    .expect("invariant: the template is well formed");
            ProgressBar::new(total as u64).with_style(style).with_message(task.clone())
        });
        let now = Instant::now();
        Self { task, bar, start: now, last: Mutex::new(now) }
    }

    /// Updates the progress, from any thread.
    pub(super) fn show(&self, progress: Progress) {
        if let Some(bar) = &self.bar {
            bar.set_position(progress.images as u64);
            return;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() >= PAUSE {
            *last = Instant::now();
            let speed = progress.images as f64 / self.start.elapsed().as_secs_f64();
            let Progress { images, total, .. } = progress;
            eprintln!("{} {images}/{total} images {} img/s", self.task, rate(speed));
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
