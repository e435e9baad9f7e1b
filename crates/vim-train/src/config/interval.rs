//! Lengths of training as a configuration value: `"20st"`, `"1ep"`, `"10min"`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};

/// A length of training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interval {
    /// Optimizer steps.
    Steps(u64),
    /// Epochs, whole or not.
    Epochs(f64),
    /// Minutes of wall-clock time.
    Minutes(f64),
}

/// A text that is not an [`Interval`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a length of training: write a number and a unit, as in \"20st\" (steps), \
     \"1ep\" (epochs) or \"10min\" (minutes)"
)]
pub struct IntervalError {
    /// What was written.
    pub text: String,
}

impl Interval {
    /// The length in steps, not rounded; `None` for minutes.
    pub fn in_steps(self, steps_per_epoch: u64) -> Option<f64> {
        match self {
            Self::Steps(steps) => Some(steps as f64),
            Self::Epochs(epochs) => Some(epochs * steps_per_epoch as f64),
            Self::Minutes(_) => None,
        }
    }

    /// Whether the length is nothing at all.
    pub fn is_zero(self) -> bool {
        match self {
            Self::Steps(steps) => steps == 0,
            Self::Epochs(length) | Self::Minutes(length) => length == 0.0,
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps(steps) => write!(formatter, "{steps}st"),
            Self::Epochs(epochs) => write!(formatter, "{epochs}ep"),
            Self::Minutes(minutes) => write!(formatter, "{minutes}min"),
        }
    }
}

impl FromStr for Interval {
    type Err = IntervalError;

    fn from_str(text: &str) -> Result<Self, IntervalError> {
        let wrong = || IntervalError { text: text.to_owned() };
        let unit = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
        let (number, unit) = (text[..unit].trim(), text[unit..].trim());
        // `f64::from_str` also reads "inf", which has no digit, and signs, which a length has not.
        if !number.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(wrong());
        }
        let length = || number.parse::<f64>().ok().filter(|n| n.is_finite()).ok_or_else(wrong);
        match unit {
            "st" => number.parse().map(Self::Steps).map_err(|_| wrong()),
            "ep" => length().map(Self::Epochs),
            "min" => length().map(Self::Minutes),
            _ => Err(wrong()),
        }
    }
}

impl Serialize for Interval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IntervalVisitor)
    }
}

/// Names the missing unit in the error for a bare number, the likely mistake.
struct IntervalVisitor;

impl Visitor<'_> for IntervalVisitor {
    type Value = Interval;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a length of training such as \"20st\", \"1ep\" or \"10min\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Interval, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Interval, E> {
        Err(E::invalid_type(Unexpected::Signed(number), &self))
    }
}

impl JsonSchema for Interval {
    fn schema_name() -> Cow<'static, str> {
        "Interval".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A length of training: steps (\"20st\"), epochs (\"1ep\") or minutes \
             (\"10min\").",
            "type": "string",
            "pattern": "^[0-9]+(\\.[0-9]+)? *(ep|min)$|^[0-9]+ *st$"
        })
    }
}

/// Tells when an event that repeats every [`Interval`] is due; ask once after every step.
#[derive(Clone, Copy, Debug)]
pub struct Cadence {
    interval: Interval,
    steps_per_epoch: u64,
    last: Duration,
}

impl Cadence {
    /// A cadence whose clock starts at 0.
    pub fn new(interval: Interval, steps_per_epoch: u64) -> Self {
        Self { interval, steps_per_epoch, last: Duration::ZERO }
    }

    /// Whether the event is due after `step` steps, `elapsed` after the start of this process.
    ///
    /// Steps and epochs count from the start of training, so that a resumed run keeps the cadence;
    /// minutes count from the last time the event was due.
    pub fn due(&mut self, step: u64, elapsed: Duration) -> bool {
        match self.interval {
            Interval::Steps(_) | Interval::Epochs(_) => {
                let period = self.interval.in_steps(self.steps_per_epoch).unwrap_or(f64::INFINITY);
                // Whole periods, not remainders, so that 0.5ep works for an odd number of steps.
                let periods = |steps: u64| (steps as f64 / period).floor();
                step > 0 && periods(step) > periods(step - 1)
            }
            Interval::Minutes(minutes) => {
                let due = elapsed.saturating_sub(self.last).as_secs_f64() >= minutes * 60.0;
                if due {
                    self.last = elapsed;
                }
                due
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_prints() {
        for (text, interval) in [
            ("20st", Interval::Steps(20)),
            ("1ep", Interval::Epochs(1.0)),
            ("0.5ep", Interval::Epochs(0.5)),
            ("10min", Interval::Minutes(10.0)),
            ("0.1min", Interval::Minutes(0.1)),
        ] {
            assert_eq!(text.parse(), Ok(interval));
            assert_eq!(interval.to_string(), text);
        }
        assert_eq!("5 ep".parse(), Ok(Interval::Epochs(5.0)));
    }

    #[test]
    fn rejects_what_is_no_length() {
        for text in
            ["", "ep", "10", "10 m", "1.5st", "-1ep", "+1ep", "infep", "nanmin", "1e999ep", "1ep2"]
        {
            assert_eq!(text.parse::<Interval>(), Err(IntervalError { text: text.into() }));
        }
    }

    fn due_steps(interval: &str, steps_per_epoch: u64, until: u64) -> Vec<u64> {
        let mut cadence = Cadence::new(interval.parse().unwrap(), steps_per_epoch);
        (0..=until).filter(|&step| cadence.due(step, Duration::ZERO)).collect()
    }

    #[test]
    fn steps_and_epochs_are_counted_from_the_start_of_training() {
        assert_eq!(due_steps("3st", 7, 10), [3, 6, 9]);
        assert_eq!(due_steps("1ep", 7, 21), [7, 14, 21]);
        assert_eq!(due_steps("0.5ep", 7, 14), [4, 7, 11, 14]);
        assert_eq!(due_steps("0.01ep", 7, 3), [1, 2, 3]);
    }

    #[test]
    fn minutes_are_counted_from_the_last_time() {
        let mut cadence = Cadence::new(Interval::Minutes(1.0), 7);
        let seconds = [0, 59, 61, 119, 121];
        let due = seconds.map(|s| cadence.due(1, Duration::from_secs(s)));
        assert_eq!(due, [false, false, true, false, true]);
    }
}
