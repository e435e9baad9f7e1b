//! Numbers, flags and texts as programs write them in COCO's files.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// What a text begins with that stands for a number which is not finite; a minus follows of −∞, a
/// plus of ∞.
pub(super) const NON_FINITE: char = '\x7f';

/// A number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Number(pub(super) f64);

/// A number of a box or a polygon: what is none is NaN, which costs the object and not the file.
pub(super) struct Coordinate(pub(super) f64);

/// A whole number, not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Whole<T>(pub(super) T);

/// Yes or no.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Flag(pub(super) bool);

/// A text, or what stands in the place of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Text(pub(super) String);

/// A scalar of JSON.
enum Scalar {
    None,
    Flag(bool),
    Natural(u64),
    Negative(i64),
    Float(f64),
    Text(String),
}

struct ScalarVisitor(&'static str);

impl Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }

    fn visit_unit<E: Error>(self) -> Result<Scalar, E> {
        Ok(Scalar::None)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar::Flag(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Scalar, E> {
        Ok(Scalar::Natural(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Scalar, E> {
        Ok(Scalar::Negative(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Scalar, E> {
        Ok(Scalar::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Scalar, E> {
        let sign = value.strip_prefix(NON_FINITE).map(|rest| rest.as_bytes().first());
        Ok(match sign {
            None => Scalar::Text(value.to_owned()),
            Some(Some(b'-')) => Scalar::Float(f64::NEG_INFINITY),
            Some(Some(b'+')) => Scalar::Float(f64::INFINITY),
            Some(_) => Scalar::Float(f64::NAN),
        })
    }
}

impl Scalar {
    /// That it is not what was `expected`.
    fn wrong<E: Error>(&self, expected: &'static str) -> E {
        match self {
            Self::None => E::invalid_type(Unexpected::Unit, &expected),
            Self::Flag(value) => E::invalid_type(Unexpected::Bool(*value), &expected),
            Self::Natural(value) => E::invalid_value(Unexpected::Unsigned(*value), &expected),
            Self::Negative(value) => E::invalid_value(Unexpected::Signed(*value), &expected),
            Self::Float(value) if !value.is_finite() => {
                E::invalid_value(Unexpected::Other(&value.to_string()), &expected)
            }
            Self::Float(value) => E::invalid_value(Unexpected::Float(*value), &expected),
            Self::Text(value) => E::invalid_value(Unexpected::Str(value), &expected),
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Self::Natural(value) => Some(*value as f64),
            Self::Negative(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::Text(value) => value.trim().parse().ok(),
            Self::None | Self::Flag(_) => None,
        }
    }

    fn whole(&self) -> Option<u64> {
        let of_float = |value: f64| {
            let is_whole = value.fract() == 0.0 && (0.0..u64::MAX as f64).contains(&value);
            is_whole.then_some(value as u64)
        };
        let value = match self {
            Self::Natural(value) => Some(*value),
            Self::Float(value) => of_float(*value),
            Self::Text(text) => {
                let text = text.trim();
                text.parse().ok().or_else(|| text.parse().ok().and_then(of_float))
            }
            Self::None | Self::Flag(_) | Self::Negative(_) => None,
        };
        // The last one stands for none.
        value.filter(|&value| value < u64::MAX)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a number";
        let scalar = deserializer.deserialize_any(ScalarVisitor(EXPECTED))?;
        scalar.number().map(Self).ok_or_else(|| scalar.wrong(EXPECTED))
    }
}

impl<'de> Deserialize<'de> for Coordinate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let scalar = deserializer.deserialize_any(ScalarVisitor("a number"))?;
        Ok(Self(scalar.number().unwrap_or(f64::NAN)))
    }
}

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Whole<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = match size_of::<T>() {
            4 => "a whole number below 2^32",
            _ => "a whole number below 2^64 - 1",
        };
        let scalar = deserializer.deserialize_any(ScalarVisitor(expected))?;
        let value = scalar.whole().and_then(|value| T::try_from(value).ok());
        value.map(Self).ok_or_else(|| scalar.wrong(expected))
    }
}

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "0 or 1, true or false";
        let scalar = deserializer.deserialize_any(ScalarVisitor(EXPECTED))?;
        let value = match &scalar {
            Scalar::None => Some(false),
            Scalar::Flag(value) => Some(*value),
            Scalar::Text(text) if text.trim().eq_ignore_ascii_case("true") => Some(true),
            Scalar::Text(text) if text.trim().eq_ignore_ascii_case("false") => Some(false),
            Scalar::Natural(_) | Scalar::Negative(_) | Scalar::Float(_) | Scalar::Text(_) => {
                let number = scalar.number().filter(|value| value.fract() == 0.0);
                number.map(|value| value != 0.0)
            }
        };
        value.map(Self).ok_or_else(|| scalar.wrong(EXPECTED))
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a text";
        Ok(Self(match deserializer.deserialize_any(ScalarVisitor(EXPECTED))? {
            Scalar::None => String::new(),
            Scalar::Flag(value) => value.to_string(),
            Scalar::Natural(value) => value.to_string(),
            Scalar::Negative(value) => value.to_string(),
            Scalar::Float(value) if value.is_finite() => value.to_string(),
            scalar @ Scalar::Float(_) => return Err(scalar.wrong(EXPECTED)),
            Scalar::Text(text) => text,
        }))
    }
}
