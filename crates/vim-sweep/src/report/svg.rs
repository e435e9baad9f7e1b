//! What figures are made of: scales, ticks, and text that is safe in a page.

/// `text` with what means something to a page replaced.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// Numbers on one side, units of the figure on the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    from: (f64, f64),
    to: (f64, f64),
}

impl Scale {
    /// Takes `from` to `to`; an empty range is widened.
    pub(super) fn new(from: (f64, f64), to: (f64, f64)) -> Self {
        let (low, high) = from;
        let from = if high > low { from } else { (low - 0.5, low + 0.5) };
        Self { from, to }
    }

    /// The place of `value`.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = (value - self.from.0) / (self.from.1 - self.from.0);
        self.to.0 + share * (self.to.1 - self.to.0)
    }

    /// Round numbers in its range, about `count` of them.
    pub(super) fn ticks(&self, count: usize) -> Vec<f64> {
        ticks(self.from.0, self.from.1, count)
    }
}

/// The step between about `count` round numbers from `low` to `high`.
fn step(low: f64, high: f64, count: usize) -> f64 {
    let raw = (high - low) / count.max(1) as f64;
    let power = 10_f64.powf(raw.log10().floor());
    let nice = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|nice| nice * power >= raw * 0.999);
    nice.unwrap_or(10.0) * power
}

fn ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let step = step(low, high, count);
    let (first, last) = ((low / step).ceil() as i64, (high / step + 1e-9).floor() as i64);
    (first..=last).map(|number| number as f64 * step).collect()
}

/// A range with all of `values` in it and its ends on round numbers.
pub(super) fn rounded(values: impl IntoIterator<Item = f64>, count: usize) -> (f64, f64) {
    let mut range = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.into_iter().filter(|value| value.is_finite()) {
        range = (range.0.min(value), range.1.max(value));
    }
    let (low, high) = range;
    if low > high {
        return (0.0, 1.0);
    }
    if low == high {
        let air = if low == 0.0 { 1.0 } else { 0.05 * low.abs() };
        return rounded([low - air, low + air], count);
    }
    let step = step(low, high, count);
    ((low / step + 1e-9).floor() * step, (high / step - 1e-9).ceil() * step)
}

/// A tick's number with no more digits than tell it from the next one.
pub(super) fn tick_text(value: f64, ticks: &[f64]) -> String {
    let gap = ticks.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
    let gap = if gap.is_finite() { gap } else { value.abs().max(1.0) };
    if value.abs() >= 10_000.0 && gap >= 100.0 {
        let thousands = value / 1000.0;
        let text = format!("{thousands:.1}");
        return format!("{}k", text.trim_end_matches('0').trim_end_matches('.'));
    }
    let digits = (0..8).find(|&digits| {
        let scaled = gap * 10_f64.powi(digits);
        (scaled - scaled.round()).abs() < 1e-6 * scaled.max(1.0)
    });
    let text = format!("{:.*}", digits.unwrap_or(3) as usize, value);
    // No minus before a zero.
    if text.chars().all(|c| matches!(c, '-' | '0' | '.')) {
        text.trim_start_matches('-').to_owned()
    } else {
        text.replace('-', "−")
    }
}

/// A straight line of a class.
pub(super) fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> String {
    format!(
        r#"<line class="{class}" x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}"/>"#,
        from.0, from.1, to.0, to.1
    )
}

/// Text at a place; `anchor` is `start`, `middle` or `end`.
pub(super) fn text(class: &str, at: (f64, f64), anchor: &str, text: &str) -> String {
    format!(
        r#"<text class="{class}" x="{:.1}" y="{:.1}" text-anchor="{anchor}">{}</text>"#,
        at.0,
        at.1,
        escape(text)
    )
}

/// A path through `points`.
pub(super) fn path(class: &str, points: &[(f64, f64)]) -> String {
    let places: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    format!(r#"<path class="{class}" d="M{}"/>"#, places.join("L"))
}

/// Where an error bar runs: with caps, from `low` to `high` at height `y`.
pub(super) fn error_bar(class: &str, (low, high): (f64, f64), y: f64, cap: f64) -> String {
    format!(
        r#"<path class="{class}" d="M{low:.1} {y:.1}H{high:.1}M{low:.1} {:.1}v{:.1}M{high:.1} {:.1}v{:.1}"/>"#,
        y - cap,
        2.0 * cap,
        y - cap,
        2.0 * cap
    )
}

/// A figure of a size, with what it shows in words for who cannot see it.
pub(super) fn figure(width: f64, height: f64, label: &str, body: &str) -> String {
    format!(
        r#"<svg viewBox="0 0 {width:.0} {height:.0}" role="img" aria-label="{}">{body}</svg>"#,
        escape(label)
    )
}

/// A line across a figure, from `ends.0` to `ends.1`, at each tick of `y`, and its number on the left.
pub(super) fn rows(y: &Scale, ends: (f64, f64)) -> String {
    let ticks = y.ticks(5);
    let row = |&tick: &f64| {
        let label = text("", (ends.0 - 8.0, y.at(tick) + 4.0), "end", &tick_text(tick, &ticks));
        line("grid", (ends.0, y.at(tick)), (ends.1, y.at(tick))) + &label
    };
    ticks.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(0.0, 100.0, 5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(-1.2, 1.2, 4), [-1.0, 0.0, 1.0]);
        assert_eq!(rounded([0.13, 0.87], 4), (0.0, 1.0));
        assert_eq!(rounded([], 4), (0.0, 1.0));
        let one = rounded([5.0], 4);
        assert!(one.0 < 5.0 && one.1 > 5.0, "{one:?}");
    }

    #[test]
    fn ticks_have_the_digits_they_need() {
        let shown = |low, high| {
            let ticks = ticks(low, high, 4);
            ticks.iter().map(|&tick| tick_text(tick, &ticks)).collect::<Vec<_>>()
        };
        assert_eq!(shown(0.0, 1.0), ["0.00", "0.25", "0.50", "0.75", "1.00"]);
        assert_eq!(shown(-2.0, 2.0), ["−2", "−1", "0", "1", "2"]);
        assert_eq!(shown(0.0, 100_000.0), ["0", "25k", "50k", "75k", "100k"]);
    }

    #[test]
    fn names_cannot_break_the_page() {
        assert_eq!(escape("<a href='x'>&"), "&lt;a href=&#39;x&#39;&gt;&amp;");
    }
}
