//! Scales and their ticks.

/// Takes numbers to positions in a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    from: (f64, f64),
    to: (f64, f64),
    logarithmic: bool,
}

impl Scale {
    /// A linear scale; an empty range is widened.
    pub fn new(from: (f64, f64), to: (f64, f64)) -> Self {
        let (low, high) = from;
        let from = if high > low { from } else { (low - 0.5, low + 0.5) };
        Self { from, to, logarithmic: false }
    }

    /// A logarithmic scale with base 2, for a range of positive numbers.
    pub fn log2(from: (f64, f64), to: (f64, f64)) -> Self {
        Self { from, to, logarithmic: true }
    }

    /// The two ends in the figure.
    pub fn target(&self) -> (f64, f64) {
        self.to
    }

    /// The position of `value`.
    pub fn at(&self, value: f64) -> f64 {
        let (low, high) = self.from;
        let share = if self.logarithmic {
            (value / low).log2() / (high / low).log2()
        } else {
            (value - low) / (high - low)
        };
        self.to.0 + share * (self.to.1 - self.to.0)
    }

    /// Position and text of about `count` round numbers in the range; of a logarithmic scale,
    /// powers of two where there are at least two.
    pub fn ticks(&self, count: usize) -> Vec<(f64, String)> {
        let (low, high) = self.from;
        let powers = if self.logarithmic { powers(low, high, count) } else { Vec::new() };
        if powers.len() > 1 {
            return powers.into_iter().map(|value| (self.at(value), power_text(value))).collect();
        }
        let ticks = ticks(low, high, count);
        ticks.iter().map(|&value| (self.at(value), tick_text(value, &ticks))).collect()
    }
}

/// The powers of two from `low` to `high`; every second, third, … if there are many more than
/// `count`.
fn powers(low: f64, high: f64, count: usize) -> Vec<f64> {
    let (first, last) = (low.log2().ceil() as i32, high.log2().floor() as i32);
    let between = usize::try_from(last - first).unwrap_or(0);
    (first..=last)
        .step_by((between / (2 * count)).max(1))
        .map(|exponent| 2_f64.powi(exponent))
        .collect()
}

/// A power of two with no more digits than it needs.
fn power_text(value: f64) -> String {
    let digits = if value >= 10.0 { 0 } else { (2.0 - value.log10().floor()).max(0.0) as usize };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
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
    let (first, last) = ((low / step - 1e-9).ceil() as i64, (high / step + 1e-9).floor() as i64);
    (first..=last).map(|number| number as f64 * step).collect()
}

/// A range with all finite `values` in it and its ends on round numbers; 0 to 1 without any.
pub fn rounded(values: impl IntoIterator<Item = f64>, count: usize) -> (f64, f64) {
    let mut range = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.into_iter().filter(|value| value.is_finite()) {
        range = (range.0.min(value), range.1.max(value));
    }
    let (low, high) = range;
    if low > high {
        return (0.0, 1.0);
    }
    if low == high {
        let margin = if low == 0.0 { 1.0 } else { 0.05 * low.abs() };
        return rounded([low - margin, low + margin], count);
    }
    let step = step(low, high, count);
    ((low / step + 1e-9).floor() * step, (high / step - 1e-9).ceil() * step)
}

/// A tick's number with no more digits than distinguish it from its neighbours.
fn tick_text(value: f64, ticks: &[f64]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(scale: Scale, count: usize) -> Vec<String> {
        scale.ticks(count).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(0.0, 100.0, 5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(-1.2, 1.2, 4), [-1.0, 0.0, 1.0]);
        assert_eq!(rounded([0.13, 0.87], 4), (0.0, 1.0));
        assert_eq!(rounded([], 4), (0.0, 1.0));
        // A range that begins on a round number begins on a tick: 0.55 / 0.05 is above 11 in f64.
        let (low, high) = rounded([0.553, 0.746], 5);
        assert!((ticks(low, high, 5)[0] - low).abs() < 1e-12, "{low}");
        let one = rounded([5.0], 4);
        assert!(one.0 < 5.0 && one.1 > 5.0, "{one:?}");
    }

    #[test]
    fn ticks_have_the_digits_they_need() {
        let linear = |low, high| shown(Scale::new((low, high), (0.0, 1.0)), 4);
        assert_eq!(linear(0.0, 1.0), ["0.00", "0.25", "0.50", "0.75", "1.00"]);
        assert_eq!(linear(-2.0, 2.0), ["−2", "−1", "0", "1", "2"]);
        assert_eq!(linear(0.0, 100_000.0), ["0", "25k", "50k", "75k", "100k"]);
    }

    #[test]
    fn logarithmic_ticks_are_powers_of_two() {
        let log2 = |low, high, count| shown(Scale::log2((low, high), (0.0, 1.0)), count);
        assert_eq!(log2(0.1, 5.0, 5), ["0.125", "0.25", "0.5", "1", "2", "4"]);
        assert_eq!(log2(1.0, 4096.0, 2), ["1", "8", "64", "512", "4096"]);
        assert_eq!(log2(41.0, 55.0, 4), ["45", "50", "55"], "without two powers of two");
        assert_eq!(Scale::log2((1.0, 16.0), (0.0, 100.0)).at(4.0), 50.0);
        for (value, text) in [(1000.0, "1000"), (20.0, "20"), (0.05, "0.05")] {
            assert_eq!(power_text(value), text);
        }
    }
}
