//! A line of `metrics.jsonl`.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The value of `weights` in an evaluation of the model's weights, not of their average.
pub const OWN_WEIGHTS: &str = "model";

/// A JSON object: values by key, in written order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    fields: Vec<(String, Value)>,
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Record;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Record { fields })
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl Record {
    /// Parses a line; `None` if it is no JSON object.
    pub fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }

    /// Every key with its value, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.fields.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The value of a key; `None` for `null`, the form of numbers that are not finite.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let (_, value) = self.fields.iter().find(|(name, _)| name == key)?;
        (!value.is_null()).then_some(value)
    }

    /// The string of a key.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    /// Every number but `step`, `epoch` and `images`; NaN for `null`.
    pub fn measured(&self) -> impl Iterator<Item = (&str, f64)> {
        let described = ["step", "epoch", "images"];
        let numbers = self.fields().filter(move |(key, _)| !described.contains(key));
        numbers.filter_map(|(key, value)| {
            Some((key, if value.is_null() { f64::NAN } else { value.as_f64()? }))
        })
    }

    /// The number of a key.
    pub fn number<'a, T: Deserialize<'a>>(&'a self, key: &str) -> Option<T> {
        T::deserialize(self.get(key)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_digits() {
        let line = r#"{"kind":"train", "step": 2,"loss":3.9629129446933398,"lr":1e-7,"x":null,"y":[1,{"z":2}]}"#;
        let record = Record::parse(line).unwrap();
        let fields: Vec<_> = record.fields().map(|(key, value)| (key, value.to_string())).collect();
        let expected = [
            ("kind", "\"train\""),
            ("step", "2"),
            ("loss", "3.9629129446933398"),
            ("lr", "1e-7"),
            ("x", "null"),
            ("y", "[1,{\"z\":2}]"),
        ];
        assert_eq!(fields, expected.map(|(key, text)| (key, text.to_owned())));
        assert_eq!(record.get("x"), None);
        assert_eq!(
            (record.number("step"), record.number("loss")),
            (Some(2_u64), Some(3.9629129446933398))
        );
        assert_eq!(record.number::<u64>("kind"), None);
        assert_eq!(
            Record::parse(r#"{"a":"b \"c\", d"}"#).unwrap().text("a").unwrap(),
            "b \"c\", d"
        );
        assert_eq!(Record::parse(" {} "), Some(Record::default()));
    }

    #[test]
    fn what_is_no_object_is_none() {
        for line in [
            "",
            "{",
            "}",
            "[1]",
            "1",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1",
            "{\"a\":1}x",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\":1 \"b\":2}",
            "\u{0}",
        ] {
            assert_eq!(Record::parse(line), None, "{line}");
        }
    }
}
