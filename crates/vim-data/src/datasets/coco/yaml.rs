//! `data.yaml`, in which programs say where YOLO's images are and what the classes are called.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::error::DataError;
use crate::input::{InputKind, read_text};

/// What is used of the file.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct DataYaml {
    #[serde(skip)]
    pub(super) file: PathBuf,
    /// The folder that the others are in.
    #[serde(deserialize_with = "folder")]
    pub(super) path: Option<String>,
    #[serde(deserialize_with = "folder")]
    pub(super) train: Option<String>,
    #[serde(deserialize_with = "folder", alias = "valid", alias = "validation")]
    pub(super) val: Option<String>,
    #[serde(deserialize_with = "folder")]
    pub(super) test: Option<String>,
    /// Of whatever form: objects have key points.
    pub(super) kpt_shape: Option<IgnoredAny>,
    /// How many names there are.
    nc: Option<usize>,
    /// The names of the classes in the order of their numbers.
    #[serde(deserialize_with = "names")]
    pub(super) names: Vec<String>,
}

/// Reads the file `path`.
pub(super) fn read(path: &Path) -> Result<DataYaml, DataError> {
    let text = read_text(path, InputKind::Script).map_err(DataError::io(path))?;
    let parsed = parse(&text).map_err(|why| super::yolo::wrong(path, why))?;
    Ok(DataYaml { file: path.to_owned(), ..parsed })
}

fn parse(text: &str) -> Result<DataYaml, String> {
    let found: DataYaml =
        serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())?;
    match found.nc {
        Some(count) if !found.names.is_empty() && count != found.names.len() => {
            Err(format!("it says `nc: {count}`, and `names` has {}", found.names.len()))
        }
        Some(_) | None => Ok(found),
    }
}

/// A folder; a list of one is it too.
fn folder<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    match &from.deserialize_any(Texts)?[..] {
        [] => Ok(None),
        [(_, one)] => Ok(Some(one.replace('\\', "/"))),
        all => {
            let count = all.len();
            Err(D::Error::custom(format!(
                "lists {count} folders, and one is read: put them into one"
            )))
        }
    }
}

/// The names of a list, or of a map from the numbers 0 to K − 1.
fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let mut names = from.deserialize_any(Texts)?;
    names.sort();
    let is_whole = names.iter().enumerate().all(|(at, (number, _))| *number == Some(at));
    if names.is_empty() || !is_whole || names.iter().any(|(_, name)| name.is_empty()) {
        return Err(D::Error::custom("`names` is neither a list nor a map from 0, 1, 2, …"));
    }
    Ok(names.into_iter().map(|(_, name)| name).collect())
}

/// A text, the texts of a list, or those of a map from numbers: each with its number. A text that
/// YAML takes for a number or a truth is a text here: `2017`, `no`.
struct Texts;

impl<'de> Visitor<'de> for Texts {
    type Value = Vec<(Option<usize>, String)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a list or a map from 0, 1, 2, …")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(vec![(None, text.to_owned())])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = list.next_element()? {
            texts.push((Some(texts.len()), text));
        }
        Ok(texts)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut texts = Vec::new();
        while let Some((number, text)) = map.next_entry()? {
            texts.push((Some(number), text));
        }
        Ok(texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_that_programs_write_are_read() {
        let roboflow = "train: ../train/images\nval: ../valid/images\ntest: ../test/images\n\n\
                        nc: 2\nnames: ['head', \"driver's hat\"]\n\nroboflow:\n  workspace: x\n  \
                        train: other\n";
        let found = parse(roboflow).unwrap();
        assert_eq!(found.train.as_deref(), Some("../train/images"));
        assert_eq!(found.val.as_deref(), Some("../valid/images"));
        assert_eq!(found.names, ["head", "driver's hat"]);
        let ultralytics = "# COCO8\npath: coco8 # root\ntrain: images/train\nval: images/val\n\
                           test: # none\n\n# Classes\nnames:\n  0: person\n  1: traffic light\n  \
                           2: 'no: #1'\n";
        let found = parse(ultralytics).unwrap();
        assert_eq!((found.path.as_deref(), found.test), (Some("coco8"), None));
        assert_eq!(found.names, ["person", "traffic light", "no: #1"]);
        for names in [
            "names:\n- a\n- b c\n",
            "names:\n  - a\n  - 'b c'\n",
            "names: [a,\n  b c]\n",
            "names: {0: a, 1: \"b c\"}\n",
            "names:\r\n  1: b c\r\n  0: a\r\nnc: 2\r\n",
        ] {
            assert_eq!(parse(names).unwrap().names, ["a", "b c"], "{names:?}");
        }
        for (text, is_there) in [("[17, 3]", true), ("17", true), ("'17 3'", true), ("~", false)] {
            let found = parse(&format!("kpt_shape: {text}\n")).unwrap();
            assert_eq!(found.kpt_shape.is_some(), is_there, "{text}");
        }
        assert_eq!(parse("train: [x/images]\n").unwrap().train.as_deref(), Some("x/images"));
        assert_eq!(parse("names: [no, 007, 1.0]\n").unwrap().names, ["no", "007", "1.0"]);
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        for (text, why) in [
            ("nc: 3\nnames: [a, b]\n", "`nc: 3`, and `names` has 2"),
            ("names:\n  0: a\n  2: b\n", "neither a list nor a map"),
            ("names: a\n", "neither a list nor a map"),
            ("train: [a, b]\n", "lists 2 folders"),
            ("names: [a, ~]\n", "line 1"),
            ("names: [a]\nnames: [b]\n", "line 2"),
            ("names: [a,\n", "line 1"),
        ] {
            assert!(parse(text).unwrap_err().contains(why), "{text}");
        }
    }
}
