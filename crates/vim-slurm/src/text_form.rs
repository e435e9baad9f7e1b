//! Configuration values that are written as a string or a number.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Deserializer, Error, MapAccess, Visitor};

/// A value with a text form.
pub(crate) trait TextForm: FromStr<Err: fmt::Display> {
    /// Description of the form, for an error's "expected …".
    const EXPECTED: &'static str;
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
        text.parse().map_err(E::custom)
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

/// Implements serde's and schemars' traits for a [`TextForm`] type via its text form.
macro_rules! as_text {
    ($type:ident, $schema:tt) => {
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
