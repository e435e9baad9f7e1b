//! A line of `metrics.jsonl` taken apart, its numbers digit by digit as they are written.
//!
//! The JSON reader's own floats may be one unit in the last place off, and a table made from them would not say
//! what the record says.

use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde_json::{Deserializer, Value};

/// What the key `weights` of an evaluation is, where it is there, for the model's own rather than averaged ones.
pub(crate) const OWN_WEIGHTS: &str = "model";

/// A JSON object, flat but for what nobody asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    /// Every key in order, with its text; `None` for `null`.
    pub(crate) fields: Vec<(String, Option<String>)>,
}

impl Record {
    /// Takes a line apart; `None` if it is no JSON object.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut fields = Vec::new();
        let mut rest = line.trim().strip_prefix('{')?.trim_start();
        if rest == "}" {
            return Some(Self { fields });
        }
        loop {
            let (key, _, after) = next::<String>(rest)?;
            let (value, text, after) = next::<Value>(after.trim_start().strip_prefix(':')?)?;
            fields.push((
                key,
                match value {
                    Value::Null => None,
                    Value::String(text) => Some(text),
                    Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                        Some(text.to_owned())
                    }
                },
            ));
            let after = after.trim_start();
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => return (after == "}").then_some(Self { fields }),
            }
        }
    }

    /// The text of a key, where it has one.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.fields.iter().find(|(found, _)| found == key)?.1.as_deref()
    }

    /// What was measured: every number but those that say when and of how many images, NaN for
    /// `null`.
    pub(crate) fn measured(&self) -> impl Iterator<Item = (&str, f64)> {
        let described = ["step", "epoch", "images"];
        let numbers = self.fields.iter().filter(move |(key, _)| !described.contains(&key.as_str()));
        numbers.filter_map(|(key, text)| {
            let number = text.as_ref().map_or(Some(f64::NAN), |text| text.parse().ok());
            Some((key.as_str(), number?))
        })
    }

    /// The number of a key, where it has one.
    pub(crate) fn number<T: FromStr>(&self, key: &str) -> Option<T> {
        self.text(key)?.parse().ok()
    }
}

/// The first value in `text`, its own text, and what comes after it.
fn next<T: DeserializeOwned>(text: &str) -> Option<(T, &str, &str)> {
    let text = text.trim_start();
    let mut values = Deserializer::from_str(text).into_iter();
    let value = values.next()?.ok()?;
    let (own, after) = text.split_at(values.byte_offset());
    Some((value, own, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_digits() {
        let line = r#"{"kind":"train", "step": 2,"loss":3.9629129446933398,"lr":1e-7,"x":null,"y":[1,{"z":2}]}"#;
        let record = Record::parse(line).unwrap();
        let fields: Vec<_> =
            record.fields.iter().map(|(k, v)| (k.as_str(), v.as_deref())).collect();
        assert_eq!(
            fields,
            [
                ("kind", Some("train")),
                ("step", Some("2")),
                ("loss", Some("3.9629129446933398")),
                ("lr", Some("1e-7")),
                ("x", None),
                ("y", Some("[1,{\"z\":2}]")),
            ]
        );
        assert_eq!(
            (record.number("step"), record.number("loss")),
            (Some(2_u64), Some(3.9629129446933398))
        );
        assert_eq!(record.number::<u64>("kind"), None);
        assert_eq!(Record::parse(r#"{"a":"b \"c\", d"}"#).unwrap().text("a"), Some("b \"c\", d"));
        assert_eq!(Record::parse(" {} ").unwrap().fields, []);
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
