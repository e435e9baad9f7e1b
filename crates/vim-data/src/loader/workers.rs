//! The number of loader threads, as a configuration value.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};

use super::allocation::CpuAllocation;

/// Number of loader threads: `"auto"` or an integer ≥ 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workers {
    /// The cores of the allocation, shared among its GPUs, at most 16: [`CpuAllocation::workers`].
    #[default]
    Auto,
    /// This many.
    Fixed(usize),
}

impl Workers {
    /// The number of threads to start on this machine, ≥ 1.
    ///
    /// `auto` respects CPU affinity, control-group quotas and SLURM's allocation.
    pub fn count(self) -> usize {
        match self {
            Self::Auto => CpuAllocation::of_this_process().workers(),
            Self::Fixed(count) => count.max(1),
        }
    }
}

impl Serialize for Workers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Fixed(count) => serializer.serialize_u64(count as u64),
        }
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WorkersVisitor)
    }
}

/// A visitor, since the message of `serde(untagged)` would not name both accepted forms.
struct WorkersVisitor;

impl Visitor<'_> for WorkersVisitor {
    type Value = Workers;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("`\"auto\"` or a number of threads, 1 or more")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Workers, E> {
        match text {
            "auto" => Ok(Workers::Auto),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Workers, E> {
        match usize::try_from(number) {
            Ok(count) if count >= 1 => Ok(Workers::Fixed(count)),
            _ => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Workers, E> {
        match u64::try_from(number) {
            Ok(count) => self.visit_u64(count),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }
}

impl JsonSchema for Workers {
    fn schema_name() -> Cow<'static, str> {
        "Workers".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Number of loader threads: \"auto\" (the cores of the allocation, \
                 shared among its GPUs, at most 16) or a number.",
            "oneOf": [{ "const": "auto" }, { "type": "integer", "minimum": 1 }]
        })
    }
}
