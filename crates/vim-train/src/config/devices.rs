//! The `[devices]` section.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};
use strum::{Display, VariantArray};

/// What computes.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Display,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    JsonSchema,
    VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Backend {
    /// The first that is there: cuda, wgpu on a real GPU, cpu. The log says which.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
    /// Any GPU, through Vulkan, Metal or Direct3D.
    Wgpu,
    /// LibTorch, on the processor, or on the NVIDIA GPU that a list in `gpus` names. It has no
    /// kernels of ours and is slow: for comparison.
    Tch,
}

/// The `[devices]` section.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields, default)]
pub struct DevicesConfig {
    /// What computes.
    pub backend: Backend,
    /// Which GPUs: how many, a list of their numbers, or `"all"`. More than one is not supported
    /// yet.
    pub gpus: Gpus,
    /// Threads that compute on the CPU; left out: one per core that this process may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
}

/// A choice of GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gpus {
    /// All that are visible.
    All,
    /// The first so many.
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

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Gpus, E> {
        usize::try_from(number)
            .map(Gpus::Count)
            .map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Gpus, E> {
        match u64::try_from(number) {
            Ok(count) => self.visit_u64(count),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Gpus, A::Error> {
        let mut numbers = Vec::new();
        while let Some(number) = items.next_element()? {
            numbers.push(number);
        }
        Ok(Gpus::List(numbers))
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
