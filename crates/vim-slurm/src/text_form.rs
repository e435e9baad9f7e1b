//! Configuration values that are written as a string or a number.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error, MapAccess, Visitor};

/// A value with a text form; [`as_text`] implements the standard traits by it.
pub(crate) trait TextForm: Sized {
    /// Description of the form, for an error's "expected …".
    const EXPECTED: &'static str;

    /// The value that `text` stands for.
    fn of_text(text: &str) -> Option<Self>;

    /// As [`of_text`](Self::of_text), or why not.
    fn parse(text: &str) -> Result<Self, String> {
        Self::of_text(text).ok_or_else(|| format!("`{text}` is not {}", Self::EXPECTED))
    }
}

/// Reads a value written as a string, as an integer, or as what TOML takes for a time of day.
pub(crate) fn deserialize<'de, T: TextForm, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(TextVisitor(PhantomData))
}

struct TextVisitor<T>(PhantomData<T>);

impl<'de, T: TextForm> Visitor<'de> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::parse(text).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    /// `12:00:00` without quotes is a TOML time of day, which serde presents as a map.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        match map.next_entry::<String, String>()? {
            Some((_, text)) => self.visit_str(&text),
            None => Err(A::Error::custom(format_args!("expected {}", T::EXPECTED))),
        }
    }
}

/// A number of at most nine digits and nothing else.
pub(crate) fn number(text: &str) -> Option<u64> {
    let is_number = (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Implements `FromStr`, serde's and schemars' traits for a [`TextForm`] type via its text form.
macro_rules! as_text {
    ($type:ident, $schema:tt) => {
        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                crate::text_form::TextForm::parse(text)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::text_form::deserialize(deserializer)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}

pub(crate) use as_text;
