//! The mask of an annotation as its file has it.

use std::fmt;

use hotcoco::Segmentation;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::scalars::{Coordinate, Whole};

/// Polygons, runs or nothing. What is none of them becomes a polygon that is none, so that it costs
/// its object and not the file.
#[derive(Default)]
pub(super) struct Shape(pub(super) Option<Segmentation>);

/// The numbers of a polygon, or a number in the place of a polygon.
pub(super) struct Polygon(pub(super) Vec<f64>);

/// Lengths of runs.
enum Counts {
    Text(String),
    List(Vec<u32>),
}

/// Height and width.
#[derive(Deserialize)]
struct Size(Whole<u32>, Whole<u32>);

/// What has no polygons: one without a point.
fn no_polygon() -> Segmentation {
    Segmentation::Polygon(vec![Vec::new()])
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor).map(Self)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Option<Segmentation>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of polygons, or run lengths with `size` and `counts`")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Some(no_polygon()))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Some(no_polygon()))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Some(no_polygon()))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Some(no_polygon()))
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Some(no_polygon()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        // Nearly every mask is of one.
        let mut polygons = Vec::with_capacity(1);
        while let Some(Polygon(numbers)) = list.next_element()? {
            polygons.push(numbers);
        }
        polygons.shrink_to_fit();
        Ok(Some(Segmentation::Polygon(polygons)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut size, mut counts) = (None, None);
        let (mut height, mut width) = (None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "size" => {
                    let found = map.next_value::<Option<Size>>()?;
                    size = found.map(|Size(height, width)| [height.0, width.0]);
                }
                "h" => height = Some(map.next_value::<Whole<u32>>()?.0),
                "w" => width = Some(map.next_value::<Whole<u32>>()?.0),
                "counts" => counts = map.next_value::<Option<Counts>>()?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let size = size.or_else(|| Some([height?, width?]));
        Ok(Some(match (size, counts) {
            (Some(size), Some(Counts::Text(counts))) => {
                Segmentation::CompressedRle { size, counts }
            }
            (Some(size), Some(Counts::List(counts))) => {
                Segmentation::UncompressedRle { size, counts }
            }
            (None, _) | (_, None) => no_polygon(),
        }))
    }
}

impl<'de> Deserialize<'de> for Polygon {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Numbers;

        impl<'de> Visitor<'de> for Numbers {
            type Value = Vec<f64>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a polygon: x and y of each of its points in one list")
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Vec<f64>, E> {
                Ok(vec![value as f64])
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Vec<f64>, E> {
                Ok(vec![value as f64])
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Vec<f64>, E> {
                Ok(vec![value])
            }

            fn visit_str<E: Error>(self, _: &str) -> Result<Vec<f64>, E> {
                Ok(Vec::new())
            }

            fn visit_unit<E: Error>(self) -> Result<Vec<f64>, E> {
                Ok(Vec::new())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<f64>, A::Error> {
                let mut numbers = Vec::new();
                while let Some(Coordinate(number)) = list.next_element()? {
                    numbers.push(number);
                }
                // These are most of a file: a list that grew is a half larger.
                numbers.shrink_to_fit();
                Ok(numbers)
            }
        }

        deserializer.deserialize_any(Numbers).map(Self)
    }
}

impl<'de> Deserialize<'de> for Counts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Runs;

        impl<'de> Visitor<'de> for Runs {
            type Value = Counts;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("run lengths: a text or a list of whole numbers")
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Counts, E> {
                Ok(Counts::Text(value.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Counts, A::Error> {
                let mut runs = Vec::new();
                while let Some(Whole(run)) = list.next_element()? {
                    runs.push(run);
                }
                runs.shrink_to_fit();
                Ok(Counts::List(runs))
            }
        }

        deserializer.deserialize_any(Runs)
    }
}
