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
        deserializer.deserialize_any(ImageSizeVisitor)
    }
}

impl<'de> Deserialize<'de> for DtRank {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DtRankVisitor)
    }
}

impl<'de> Deserialize<'de> for LayerScale {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LayerScaleVisitor)
    }
}

// Each names all of its forms in its message; `serde(untagged)` could not.
struct ImageSizeVisitor;
struct DtRankVisitor;
struct LayerScaleVisitor;

/// A whole number that is not negative.
fn size<E: de::Error>(number: i64, expected: &dyn de::Expected) -> Result<usize, E> {
    usize::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), expected))
}

impl<'de> Visitor<'de> for ImageSizeVisitor {
    type Value = ImageSize;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number of pixels, or [height, width]")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<ImageSize, E> {
        size(number, &self).map(ImageSize::from)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<ImageSize, E> {
        self.visit_i64(i64::try_from(number).unwrap_or(-1))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ImageSize, A::Error> {
        let mut sides = Vec::new();
        while let Some(side) = items.next_element()? {
            sides.push(side);
        }
        match sides[..] {
            [height, width] => Ok(ImageSize { height, width }),
            _ => Err(de::Error::invalid_length(sides.len(), &self)),
        }
    }
}

impl Visitor<'_> for DtRankVisitor {
    type Value = DtRank;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("`\"auto\"` or a rank, 1 or more")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<DtRank, E> {
        match text {
            "auto" => Ok(DtRank::Auto),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<DtRank, E> {
        size(number, &self).map(DtRank::Rank)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<DtRank, E> {
        self.visit_i64(i64::try_from(number).unwrap_or(-1))
    }
}

impl Visitor<'_> for LayerScaleVisitor {
    type Value = LayerScale;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("`\"none\"` or the number that it starts at, such as 1e-5")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<LayerScale, E> {
        match text {
            "none" => Ok(LayerScale::None),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<LayerScale, E> {
        Ok(LayerScale::Starts(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<LayerScale, E> {
        Ok(LayerScale::Starts(number as f64))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<LayerScale, E> {
        Ok(LayerScale::Starts(number as f64))
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
