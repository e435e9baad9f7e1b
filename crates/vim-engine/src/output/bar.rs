//! Bars on a terminal.

use std::env;
use std::fmt::Write;
use std::io::{IsTerminal, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use vim_data::Progress;

use crate::output::summary::rate;
use crate::output::terminal_width;

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
            let style = if has_blocks(|name| env::var(name).ok()) {
                style
            } else {
                style.progress_chars("#-")
            };
            // Units per second, in few digits.
            let speed = |state: &ProgressState, to: &mut dyn Write| {
                // Only memory is written to.
                let _ = to.write_str(&rate(state.per_sec()));
            };
            with(ProgressBar::new(total).with_style(style.with_key("rate", speed)))
        }))
    }

    /// A bar of `total` images behind the word or words `what`, which may be empty.
    pub(crate) fn of_images(total: usize, what: &str) -> Self {
        let what = if what.is_empty() { String::new() } else { format!("{what} ") };
        let columns = terminal_width(stderr()).unwrap_or(80);
        let width = width(columns, what.len(), total);
        let template = format!("{{msg}}{{bar:{width}}} {{pos}}/{{len}} {{rate}} img/s eta {{eta}}");
        Self::new(total as u64, &template, |bar| bar.with_message(what))
    }

    /// `images` more are done.
    pub(crate) fn advance(&self, images: usize) {
        if let Some(bar) = &self.0 {
            bar.inc(images as u64);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Interval between two lines without a bar.
const PAUSE: Duration = Duration::from_secs(30);

/// The progress of a task over many images: a bar, or a line now and then.
#[derive(Debug)]
pub struct ImageBar {
    name: String,
    bar: Bar,
    start: Instant,
    last: Mutex<Instant>,
}

impl ImageBar {
    /// The task `name` over `total` images.
    pub fn new(name: String, total: usize) -> Self {
        let bar = Bar::of_images(total, &name);
        let now = Instant::now();
        Self { name, bar, start: now, last: Mutex::new(now) }
    }

    /// Updates the progress, from any thread.
    pub fn show(&self, progress: Progress) {
        let Progress { images, total, .. } = progress;
        if let Some(bar) = &self.bar.0 {
            bar.set_length(total as u64);
            bar.set_position(images as u64);
            return;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() >= PAUSE {
            *last = Instant::now();
            let speed = images as f64 / self.start.elapsed().as_secs_f64();
            eprintln!("{} {images}/{total} images {} img/s", self.name, rate(speed));
        }
    }
}

/// Whether a user sees a bar.
pub(crate) fn wants_bar() -> bool {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    stderr().is_terminal() && !is_set("CI") && !is_dumb
}

/// Whether the terminal shows the blocks of a bar: whether the locale of `variable`, the
/// environment, is of UTF-8 by POSIX's order of variables.
fn has_blocks(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    locale.is_some_and(|locale| locale.to_lowercase().replace('-', "").contains("utf8"))
}

/// How long a bar of `total` images may be for all to fit in a line, behind `before` columns.
fn width(columns: usize, before: usize, total: usize) -> usize {
    let others = " / 99999 img/s eta 59m".len() + 2 * total.to_string().len();
    columns.saturating_sub(before + others).clamp(4, 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_of_images_is_as_long_as_the_line_allows() {
        let train = "verify train ".len();
        assert_eq!(width(140, train, 1_281_167), 24);
        assert_eq!(width(60, train, 1_281_167), 11);
        assert_eq!(width(60, 0, 600), 24);
        assert_eq!(width(30, train, 1_281_167), 4);
        let line = format!("verify train {} 1281167/1281167 99999 img/s eta 59m", "█".repeat(11));
        assert_eq!(line.chars().count(), 60);
    }

    #[test]
    fn blocks_need_a_locale_of_utf_8() {
        for (set, expected) in [
            (&[("LANG", "en_US.UTF-8")][..], true),
            (&[("LANG", "C.utf8"), ("LC_ALL", "")], true),
            (&[("LANG", "en_US.UTF-8"), ("LC_ALL", "C")], false),
            (&[("LANG", "C"), ("LC_CTYPE", "de_DE.UTF-8")], true),
            (&[("LANG", "POSIX")], false),
            (&[], false),
        ] {
            let variable = |name: &str| {
                let found = set.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(has_blocks(variable), expected, "{set:?}");
        }
    }
}
