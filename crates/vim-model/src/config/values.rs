//! Values that have more than one form in a file: a number or a word, a side or two.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};

/// The size of the input images, in pixels: `224`, or `[height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSize {
    /// From top to bottom.
    pub height: usize,
    /// From left to right.
    pub width: usize,
}

impl From<usize> for ImageSize {
    /// A square.
    fn from(side: usize) -> Self {
        Self { height: side, width: side }
    }
}

impl From<[usize; 2]> for ImageSize {
    /// Height and width.
    fn from([height, width]: [usize; 2]) -> Self {
        Self { height, width }
    }
}

impl ImageSize {
    /// The side of a square; `None` where height and width differ.
    #[must_use]
    pub fn side(self) -> Option<usize> {
        (self.height == self.width).then_some(self.height)
    }
}

impl fmt::Display for ImageSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.side() {
            Some(side) => write!(formatter, "{side}"),
            None => write!(formatter, "[{}, {}]", self.height, self.width),
        }
    }
}

/// Rank of the projection that delta is computed through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DtRank {
    /// ⌈`d_model` / 16⌉.
    #[default]
    Auto,
    /// This one, 1 or more.
    Rank(usize),
}

impl fmt::Display for DtRank {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => formatter.write_str("\"auto\""),
            Self::Rank(rank) => write!(formatter, "{rank}"),
        }
    }
}

/// A learned gain of every channel at the end of a mixer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LayerScale {
    /// There is none.
    #[default]
    None,
    /// It starts at this number.
    Starts(f64),
}

impl fmt::Display for LayerScale {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => formatter.write_str("\"none\""),
            Self::Starts(value) => write!(formatter, "{value}"),
        }
    }
}

impl Serialize for ImageSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.side() {
            Some(side) => side.serialize(serializer),
            None => [self.height, self.width].serialize(serializer),
        }
    }
}

impl Serialize for DtRank {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Rank(rank) => rank.serialize(serializer),
        }
    }
}

impl Serialize for LayerScale {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_str("none"),
            Self::Starts(value) => serializer.serialize_f64(*value),
        }
    }
}

impl<'de> Deserialize<'de> for ImageSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Forms {
            expected: "a number of pixels, or [height, width]",
            word: None,
            whole: |side| usize::try_from(side).ok().map(Self::from),
            real: None,
            pair: Some(Self::from),
        })
    }
}

impl<'de> Deserialize<'de> for DtRank {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Forms {
            expected: "`\"auto\"` or a rank, 1 or more",
            word: Some(("auto", Self::Auto)),
            whole: |rank| usize::try_from(rank).ok().map(Self::Rank),
            real: None,
            pair: None,
        })
    }
}

impl<'de> Deserialize<'de> for LayerScale {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Forms {
            expected: "`\"none\"` or the number that it starts at, such as 1e-5",
            word: Some(("none", Self::None)),
            whole: |value| Some(Self::Starts(value as f64)),
            real: Some(Self::Starts),
            pair: None,
        })
    }
}

/// What a value may look like in a file. Unlike that of `serde(untagged)`, its message says what is
/// wrong and names all forms.
struct Forms<T> {
    expected: &'static str,
    word: Option<(&'static str, T)>,
    whole: fn(i64) -> Option<T>,
    real: Option<fn(f64) -> T>,
    pair: Option<fn([usize; 2]) -> T>,
}

impl<'de, T> Visitor<'de> for Forms<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        let expected = self.expected;
        match self.word {
            Some((word, value)) if word == text => Ok(value),
            Some(_) => Err(E::invalid_value(Unexpected::Str(text), &expected)),
            None => Err(E::invalid_type(Unexpected::Str(text), &expected)),
        }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        let value = (self.whole)(number);
        value.ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        match i64::try_from(number) {
            Ok(number) => self.visit_i64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        let read = self.real.ok_or_else(|| E::invalid_type(Unexpected::Float(number), &self))?;
        Ok(read(number))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<T, A::Error> {
        let Some(read) = self.pair else {
            return Err(de::Error::invalid_type(Unexpected::Seq, &self));
        };
        let mut sides = Vec::new();
        while let Some(side) = items.next_element()? {
            sides.push(side);
        }
        let pair = <[usize; 2]>::try_from(sides);
        pair.map(read).map_err(|sides| de::Error::invalid_length(sides.len(), &self))
    }
}

impl JsonSchema for ImageSize {
    fn schema_name() -> Cow<'static, str> {
        "ImageSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A square's side, or [height, width], in pixels.",
            "oneOf": [
                { "type": "integer", "minimum": 1 },
                { "type": "array", "items": { "type": "integer", "minimum": 1 }, "minItems": 2, "maxItems": 2 }
            ]
        })
    }
}

impl JsonSchema for DtRank {
    fn schema_name() -> Cow<'static, str> {
        "DtRank".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "\"auto\", or a rank.",
            "oneOf": [{ "const": "auto" }, { "type": "integer", "minimum": 1 }]
        })
    }
}

impl JsonSchema for LayerScale {
    fn schema_name() -> Cow<'static, str> {
        "LayerScale".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "\"none\", or the number that it starts at.",
            "oneOf": [{ "const": "none" }, { "type": "number" }]
        })
    }
}
