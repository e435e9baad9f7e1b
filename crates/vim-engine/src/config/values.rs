//! Values with a form of their own: `version`, `extends`, whether there is a page, the batch size,
//! the GPUs, lengths of training.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::versions::{OLDEST, VERSION};

/// The `version` key of a file, [`OLDEST`] to [`VERSION`]; of a loaded configuration always
/// [`VERSION`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Version(u64);

impl Default for Version {
    fn default() -> Self {
        Self(VERSION)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        if (OLDEST..=VERSION).contains(&number) {
            return Ok(Self(number));
        }
        let expected = format!("a version from {OLDEST} to {VERSION}");
        Err(de::Error::invalid_value(Unexpected::Unsigned(number), &expected.as_str()))
    }
}

impl JsonSchema for Version {
    fn schema_name() -> Cow<'static, str> {
        "Version".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Version of the form of the file.",
            "type": "integer",
            "minimum": OLDEST,
            "maximum": VERSION
        })
    }
}

/// Names of the extended files, whose keys the file overrides; empty after merging.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extends(Vec<String>);

impl Extends {
    /// Whether there is no such file.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for Extends {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ExtendsVisitor)
    }
}

/// Names both forms in its message; `serde(untagged)` could not.
struct ExtendsVisitor;

impl<'de> Visitor<'de> for ExtendsVisitor {
    type Value = Extends;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a file, or a list of names")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Extends, E> {
        Ok(Extends(vec![name.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Extends, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(items)).map(Extends)
    }
}

impl JsonSchema for Extends {
    fn schema_name() -> Cow<'static, str> {
        "Extends".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A file, or a list of files.",
            "oneOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" } }
            ]
        })
    }
}

/// What stands for a value that is found out.
const AUTO: &str = "auto";

/// Whether a run ends with a page of its results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResultsPage {
    /// A finished run of its own.
    #[default]
    Auto,
    /// Any run that has done what it was asked.
    Always,
    /// None.
    Never,
}

impl ResultsPage {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Serialize for ResultsPage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str(AUTO),
            Self::Always => serializer.serialize_bool(true),
            Self::Never => serializer.serialize_bool(false),
        }
    }
}

impl<'de> Deserialize<'de> for ResultsPage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordOrBool {
            expected: "`\"auto\"`, true or false",
            words: &[(AUTO, Self::Auto)],
            of_bool: |is_wanted| if is_wanted { Self::Always } else { Self::Never },
        })
    }
}

/// A value that is one of some words, or true or false.
pub(super) struct WordOrBool<T: 'static> {
    pub(super) expected: &'static str,
    pub(super) words: &'static [(&'static str, T)],
    pub(super) of_bool: fn(bool) -> T,
}

impl<T: Copy> Visitor<'_> for WordOrBool<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        let known = self.words.iter().find(|(word, _)| *word == text);
        known.map(|(_, value)| *value).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<T, E> {
        Ok((self.of_bool)(value))
    }
}

impl JsonSchema for ResultsPage {
    fn schema_name() -> Cow<'static, str> {
        "ResultsPage".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Whether there is a page: \"auto\", true or false.",
            "oneOf": [{ "const": AUTO }, { "type": "boolean" }]
        })
    }
}

/// Images per optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSize {
    /// As many as the device holds, which is sought when a run first starts.
    Auto,
    /// This many.
    Images(usize),
}

impl BatchSize {
    /// The number where none is written.
    pub const USUAL: usize = 128;
}

impl Default for BatchSize {
    fn default() -> Self {
        Self::Images(Self::USUAL)
    }
}

impl Serialize for BatchSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str(AUTO),
            Self::Images(count) => serializer.serialize_u64(*count as u64),
        }
    }
}

impl<'de> Deserialize<'de> for BatchSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BatchSizeVisitor)
    }
}

struct BatchSizeVisitor;

impl Visitor<'_> for BatchSizeVisitor {
    type Value = BatchSize;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number of images or `\"auto\"`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<BatchSize, E> {
        let wrong = || E::invalid_value(Unexpected::Str(text), &self);
        (text == AUTO).then_some(BatchSize::Auto).ok_or_else(wrong)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<BatchSize, E> {
        usize::try_from(number)
            .map(BatchSize::Images)
            .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }
}

impl JsonSchema for BatchSize {
    fn schema_name() -> Cow<'static, str> {
        "BatchSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of images, or \"auto\".",
            "oneOf": [{ "type": "integer", "minimum": 1 }, { "const": AUTO }]
        })
    }
}

/// A choice of GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gpus {
    /// All that are visible.
    All,
    /// This many, the first ones.
    Count(usize),
    /// These, by number.
    List(Vec<usize>),
}

impl Default for Gpus {
    fn default() -> Self {
        Self::Count(1)
    }
}

impl Gpus {
    /// The numbers of the chosen GPUs where `visible` are visible; more than there are may be
    /// named.
    pub fn numbers(&self, visible: usize) -> Vec<usize> {
        match self {
            Self::All => (0..visible).collect(),
            Self::Count(count) => (0..*count).collect(),
            Self::List(numbers) => numbers.clone(),
        }
    }
}

impl fmt::Display for Gpus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => formatter.write_str("\"all\""),
            Self::Count(count) => write!(formatter, "{count}"),
            Self::List(numbers) => write!(formatter, "{numbers:?}"),
        }
    }
}

impl Serialize for Gpus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => serializer.serialize_str("all"),
            Self::Count(count) => serializer.serialize_u64(*count as u64),
            Self::List(numbers) => numbers.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Gpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(GpusVisitor)
    }
}

/// Names all three forms in its message; `serde(untagged)` could not.
struct GpusVisitor;

impl<'de> Visitor<'de> for GpusVisitor {
    type Value = Gpus;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .write_str("`\"all\"`, a number of GPUs, or a list of their numbers such as [0, 2]")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Gpus, E> {
        match text {
            "all" => Ok(Gpus::All),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Gpus, E> {
        usize::try_from(number)
            .map(Gpus::Count)
            .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Gpus, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(items)).map(Gpus::List)
    }
}

impl JsonSchema for Gpus {
    fn schema_name() -> Cow<'static, str> {
        "Gpus".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Which GPUs: \"all\", a number of them, or a list of their numbers.",
            "oneOf": [
                { "const": "all" },
                { "type": "integer", "minimum": 1 },
                { "type": "array", "items": { "type": "integer", "minimum": 0 }, "minItems": 1 }
            ]
        })
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DevicesConfig, RecomputeChoice, RunConfig, TrainConfig};

    fn gpus(value: &str) -> Result<Gpus, toml::de::Error> {
        toml::from_str::<DevicesConfig>(&format!("gpus = {value}")).map(|devices| devices.gpus)
    }

    #[test]
    fn three_forms() {
        assert_eq!(gpus("\"all\"").unwrap().numbers(3), [0, 1, 2]);
        assert_eq!(gpus("2").unwrap().numbers(3), [0, 1]);
        assert_eq!(gpus("[2, 0]").unwrap().numbers(3), [2, 0]);
    }

    #[test]
    fn everything_else_is_told_the_forms() {
        for value in ["\"both\"", "-1", "true", "[\"a\"]", "1.5"] {
            let message = gpus(value).unwrap_err().to_string();
            assert!(message.contains("a number of GPUs") || value == "[\"a\"]", "{message}");
        }
    }

    #[test]
    fn what_may_be_found_out_has_a_word() {
        let page = |value: &str| {
            toml::from_str::<RunConfig>(&format!("page = {value}")).map(|run| run.page)
        };
        assert_eq!(page("\"auto\""), Ok(ResultsPage::Auto));
        assert_eq!(
            (page("true"), page("false")),
            (Ok(ResultsPage::Always), Ok(ResultsPage::Never))
        );
        let batch = |value: &str| {
            toml::from_str::<TrainConfig>(&format!("batch_size = {value}")).map(|t| t.batch_size)
        };
        assert_eq!(batch("\"auto\""), Ok(BatchSize::Auto));
        assert_eq!(batch("96"), Ok(BatchSize::Images(96)));
        let recompute = |value: &str| {
            toml::from_str::<TrainConfig>(&format!("recompute = {value}")).map(|t| t.recompute)
        };
        for (word, choice) in RecomputeChoice::WORDS {
            assert_eq!(recompute(&format!("\"{word}\"")), Ok(choice));
            assert_eq!(toml::Value::try_from(choice).unwrap().as_str(), Some(word));
        }
        // As files of before the words have them.
        assert_eq!(recompute("true"), Ok(RecomputeChoice::States));
        assert_eq!(recompute("false"), Ok(RecomputeChoice::Inputs));
        for (wrong, expected) in [
            (recompute("\"all\"").map(drop), "`\"inputs\"` or `\"states\"`"),
            (page("\"yes\"").map(drop), "true or false"),
            (page("1").map(drop), "true or false"),
            (batch("-8").map(drop), "a number of images"),
            (batch("\"max\"").map(drop), "`\"auto\"`"),
        ] {
            let message = wrong.unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

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
}
