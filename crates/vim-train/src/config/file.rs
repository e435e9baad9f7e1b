//! The keys above all sections: the file's version and the files that it extends.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Unexpected, Visitor};

/// Version of the configuration format that this program reads and writes.
pub const VERSION: u64 = 1;

/// The `version` key of a file; always [`VERSION`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Version(u64);

impl Default for Version {
    fn default() -> Self {
        Self(VERSION)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        if number == VERSION {
            return Ok(Self(VERSION));
        }
        Err(de::Error::invalid_value(Unexpected::Unsigned(number), &"the version 1"))
    }
}

impl JsonSchema for Version {
    fn schema_name() -> Cow<'static, str> {
        "Version".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "Version of the form of the file.", "const": VERSION })
    }
}

/// Names of the extended files, whose keys the file overrides; empty after merging.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extends(Vec<String>);

impl Extends {
    /// Whether there is no such file.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for Extends {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ExtendsVisitor)
    }
}

/// Names both forms in its message; `serde(untagged)` could not.
struct ExtendsVisitor;

impl<'de> Visitor<'de> for ExtendsVisitor {
    type Value = Extends;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a file, or a list of names")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Extends, E> {
        Ok(Extends(vec![name.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Extends, A::Error> {
        let mut names = Vec::new();
        while let Some(name) = items.next_element()? {
            names.push(name);
        }
        Ok(Extends(names))
    }
}

impl JsonSchema for Extends {
    fn schema_name() -> Cow<'static, str> {
        "Extends".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A file, or a list of files.",
            "oneOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" } }
            ]
        })
    }
}
