//! `data.yaml`, in which programs say where YOLO's images are and what the classes are called.
//!
//! It is read as far as they write it: keys at the left border, texts in quotes or not, lists and
//! maps of names in brackets or one a line.

use std::path::{Path, PathBuf};

use crate::error::DataError;
use crate::input::{InputKind, read_text};

/// What is used of the file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct DataYaml {
    pub(super) file: PathBuf,
    /// The folder that the others are in.
    pub(super) path: Option<String>,
    pub(super) train: Option<String>,
    pub(super) val: Option<String>,
    pub(super) test: Option<String>,
    /// The names of the classes in the order of their numbers.
    pub(super) names: Vec<String>,
}

/// Reads the file `path`.
pub(super) fn read(path: &Path) -> Result<DataYaml, DataError> {
    let text = read_text(path, InputKind::Script).map_err(DataError::io(path))?;
    let parsed = parse(&text).map_err(|why| super::yolo::wrong(path, why))?;
    Ok(DataYaml { file: path.to_owned(), ..parsed })
}

fn parse(text: &str) -> Result<DataYaml, String> {
    let mut found = DataYaml::default();
    let mut count = None;
    let lines: Vec<&str> = text.lines().map(without_comment).collect();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        at += 1;
        let Some((key, value)) = line.split_once(':').filter(|_| !line.starts_with(' ')) else {
            continue;
        };
        // What belongs to the key: the rest of the line, and lines further in or of a list.
        let mut value = value.trim().to_owned();
        let is_more = |line: &str| line.is_empty() || line.starts_with([' ', '\t', '-', ']', '}']);
        while at < lines.len() && is_more(lines[at]) {
            value = format!("{value}\n{}", lines[at].trim());
            at += 1;
        }
        let value = value.trim();
        match key.trim() {
            "path" => found.path = folder(key, value)?,
            "train" => found.train = folder(key, value)?,
            "val" | "valid" | "validation" => found.val = folder(key, value)?,
            "test" => found.test = folder(key, value)?,
            "nc" => count = value.parse::<usize>().ok(),
            "names" => found.names = names(value)?,
            _ => {}
        }
    }
    match count {
        Some(count) if !found.names.is_empty() && count != found.names.len() => {
            Err(format!("it says `nc: {count}`, and `names` has {}", found.names.len()))
        }
        Some(_) | None => Ok(found),
    }
}

/// A folder; a list of one is it too.
fn folder(key: &str, value: &str) -> Result<Option<String>, String> {
    let all: Vec<String> = items(value).into_iter().filter(|item| !item.is_empty()).collect();
    match &all[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.replace('\\', "/"))),
        [..] => {
            Err(format!("`{key}` lists {} folders, and one is read: put them into one", all.len()))
        }
    }
}

/// The names of a list, or of a map from the numbers 0 to K − 1.
fn names(value: &str) -> Result<Vec<String>, String> {
    let items = items(value);
    let numbered = |item: &String| {
        let (number, name) = item.split_once(':')?;
        Some((unquoted(number).parse::<usize>().ok()?, unquoted(name)))
    };
    let is_map = !value.starts_with(['[', '-']);
    let mut names: Vec<(usize, String)> = match is_map {
        true => items.iter().map(numbered).collect::<Option<_>>().unwrap_or_default(),
        false => items.iter().map(|item| unquoted(item)).enumerate().collect(),
    };
    names.sort();
    let is_whole = names.iter().enumerate().all(|(at, (number, _))| at == *number);
    if names.is_empty() || !is_whole || names.iter().any(|(_, name)| name.is_empty()) {
        return Err("`names` is neither a list nor a map from 0, 1, 2, …".to_owned());
    }
    Ok(names.into_iter().map(|(_, name)| name).collect())
}

/// The parts of a list or a map, in brackets or one a line, without quotes where they are plain.
fn items(value: &str) -> Vec<String> {
    let inner = value.trim();
    let brackets = [('[', ']'), ('{', '}')].into_iter();
    let inside = { brackets }.find_map(|(open, end)| inner.strip_prefix(open)?.strip_suffix(end));
    let Some(inside) = inside else {
        let lines = inner.lines().map(|line| line.strip_prefix('-').unwrap_or(line).trim());
        return lines.filter(|line| !line.is_empty()).map(unquoted).collect();
    };
    let (mut items, mut item, mut quote) = (Vec::new(), String::new(), None);
    for letter in inside.chars() {
        match (letter, quote) {
            (',', None) => items.push(std::mem::take(&mut item)),
            ('\n', None) => item.push(' '),
            (_, _) => item.push(letter),
        }
        quote = match quote {
            Some(open) if open == letter => None,
            None if matches!(letter, '"' | '\'')
                && !item.trim().contains(char::is_alphanumeric) =>
            {
                Some(letter)
            }
            other => other,
        };
    }
    items.push(item);
    let items = items.iter().map(|item| unquoted(item));
    items.filter(|item| !item.is_empty()).collect()
}

/// A text without the quotes around it.
fn unquoted(text: &str) -> String {
    let text = text.trim();
    let inside = ['"', '\''].into_iter().find_map(|quote| {
        text.strip_prefix(quote)?.strip_suffix(quote).filter(|inside| !inside.contains(quote))
    });
    inside.unwrap_or(text).to_owned()
}

/// A line without its comment.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, letter) in line.char_indices() {
        match (letter, quote) {
            ('#', None) if before.is_whitespace() => return line[..at].trim_end(),
            ('"' | '\'', None) if !before.is_alphanumeric() => quote = Some(letter),
            (_, Some(open)) if open == letter => quote = None,
            (_, _) => {}
        }
        before = letter;
    }
    line.trim_end()
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
        assert_eq!(parse("train: [x/images]\n").unwrap().train.as_deref(), Some("x/images"));
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        for (text, why) in [
            ("nc: 3\nnames: [a, b]\n", "`nc: 3`, and `names` has 2"),
            ("names:\n  0: a\n  2: b\n", "neither a list nor a map"),
            ("names: a\n", "neither a list nor a map"),
            ("train: [a, b]\n", "`train` lists 2 folders"),
        ] {
            assert!(parse(text).unwrap_err().contains(why), "{text}");
        }
    }
}
