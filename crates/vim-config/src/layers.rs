//! `extends`: files whose keys a file overrides.

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml_edit::{Document, Item};

use crate::location::Location;
use crate::variables::{ExpandError, expand};

/// The key that names the extended files.
pub const EXTENDS: &str = "extends";

/// One file of a configuration.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Its path, starting from that of the first file.
    pub path: PathBuf,
    /// Its text, parsed, with the place of each key.
    pub document: Document<String>,
    /// What it sets, without [`EXTENDS`].
    pub table: toml::Table,
}

impl Layer {
    /// Its text.
    pub fn text(&self) -> &str {
        self.document.raw()
    }
}

/// Why files cannot be layered.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct LayerError {
    /// The file at fault.
    pub path: PathBuf,
    /// The location in it, if it was read.
    pub location: Option<Location>,
    /// The reason.
    pub problem: LayerProblem,
}

/// What is wrong with a layer.
#[derive(Debug, thiserror::Error)]
pub enum LayerProblem {
    /// The first file cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[source] io::Error),
    /// An extended file cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Base {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The text is not TOML.
    #[error("not valid TOML: {0}")]
    Syntax(String),
    /// `extends` is not a file name or a list of file names.
    #[error("expected the name of a file, or a list of names, relative to this file")]
    Names,
    /// A variable in a name cannot be replaced.
    #[error("{0}")]
    Variable(Box<ExpandError>),
    /// A file extends itself, directly or through others.
    #[error("a cycle: {}", chain(.0))]
    Cycle(Vec<PathBuf>),
    /// There are more files than a configuration has.
    #[error("more than 256 files: that is too many for a configuration")]
    TooMany,
}

fn chain(files: &[PathBuf]) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" → ")
}

/// Most bytes of a file: more than any configuration has.
const MOST_BYTES: u64 = 4 << 20;
/// Most files of a configuration.
const MOST_FILES: usize = 256;

/// The text of a file, unless it is too large, as a device may be without end.
///
/// # Errors
/// If it cannot be read, or has more than 4 MiB.
pub fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    if File::open(path)?.take(MOST_BYTES + 1).read_to_string(&mut text)? as u64 > MOST_BYTES {
        let text = "it is larger than 4 MiB, and so no configuration";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(text)
}

/// The file `path` and all files that it extends, in the order in which later ones override earlier
/// ones: `path` itself is last.
///
/// Names are relative to the file that contains them and may contain environment variables
/// ([`expand`]). A file that is reached twice is read once, and stands where it is reached last,
/// with all that it extends: that overrides its earlier place.
pub fn layers(path: &Path) -> Result<Vec<Layer>, LayerError> {
    layers_of(path, read)
}

/// As [`layers`], with the text of each file from `read`.
pub fn layers_of(
    path: &Path,
    read: fn(&Path) -> io::Result<String>,
) -> Result<Vec<Layer>, LayerError> {
    let text = read(path).map_err(|error| LayerError {
        path: path.to_owned(),
        location: None,
        problem: LayerProblem::Read(error),
    })?;
    let mut reader = Reader { read, above: Vec::new(), files: Vec::new(), orders: BTreeMap::new() };
    let order = reader.add(path, &text)?;
    let mut files: Vec<Option<Layer>> = reader.files.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|file| files[file].take()).collect())
}

/// Reads each file once.
struct Reader {
    read: fn(&Path) -> io::Result<String>,
    /// The chain of files that leads to the one being read.
    above: Vec<PathBuf>,
    files: Vec<Layer>,
    /// Of each file read, by its canonical path: its layers as numbers in `files`, itself last.
    orders: BTreeMap<PathBuf, Vec<usize>>,
}

impl Reader {
    /// Reads what the file `path` with content `text` extends; returns the order of its layers.
    fn add(&mut self, path: &Path, text: &str) -> Result<Vec<usize>, LayerError> {
        self.above.push(path.to_owned());
        let mut order: Vec<usize> = Vec::new();
        let document = Document::parse(text.to_owned())
            .map_err(|error| syntax(path, text, error.message(), error.span()))?;
        for (number, (name, span)) in names(path, &document)?.into_iter().enumerate() {
            let wrong = |problem| LayerError {
                path: path.to_owned(),
                location: Some(Location::new(path, text, &span)),
                problem,
            };
            if number == MOST_FILES {
                return Err(wrong(LayerProblem::TooMany));
            }
            let name = expand(&name, |variable| env::var(variable).ok())
                .map_err(|error| wrong(LayerProblem::Variable(Box::new(error))))?;
            let base = path.parent().unwrap_or(Path::new("")).join(name);
            let same = |other: &PathBuf| is_same(other, &base);
            if let Some(first) = self.above.iter().position(same) {
                let files = self.above[first..].iter().cloned().chain([base]).collect();
                return Err(wrong(LayerProblem::Cycle(files)));
            }
            let below = match self.orders.get(&canonical(&base)) {
                Some(below) => below.clone(),
                None if self.above.len() + self.files.len() >= MOST_FILES => {
                    return Err(wrong(LayerProblem::TooMany));
                }
                None => {
                    let text = (self.read)(&base).map_err(|source| {
                        wrong(LayerProblem::Base { path: base.clone(), source })
                    })?;
                    self.add(&base, &text)?
                }
            };
            order.retain(|file| !below.contains(file));
            order.extend(below);
        }
        self.above.pop();
        let mut table: toml::Table = text
            .parse()
            .map_err(|error: toml::de::Error| syntax(path, text, error.message(), error.span()))?;
        table.remove(EXTENDS);
        order.push(self.files.len());
        self.files.push(Layer { path: path.to_owned(), document, table });
        self.orders.insert(canonical(path), order.clone());
        Ok(order)
    }
}

fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Whether two paths lead to the same file.
fn is_same(a: &Path, b: &Path) -> bool {
    canonical(a) == canonical(b)
}

/// The names in a file's [`EXTENDS`] with their spans.
fn names(
    path: &Path,
    document: &Document<String>,
) -> Result<Vec<(String, Range<usize>)>, LayerError> {
    let text = document.raw();
    let Some(item) = document.get(EXTENDS) else { return Ok(Vec::new()) };
    let wrong = |span: Option<Range<usize>>| LayerError {
        path: path.to_owned(),
        location: span.map(|span| Location::new(path, text, &span)),
        problem: LayerProblem::Names,
    };
    if let Some(name) = item.as_str() {
        return Ok(vec![(name.to_owned(), item.span().unwrap_or_default())]);
    }
    let values = item.as_array().ok_or_else(|| wrong(Item::span(item)))?;
    values
        .iter()
        .map(|value| match value.as_str() {
            Some(name) => Ok((name.to_owned(), value.span().unwrap_or_default())),
            None => Err(wrong(value.span())),
        })
        .collect()
}

fn syntax(path: &Path, text: &str, message: &str, span: Option<Range<usize>>) -> LayerError {
    LayerError {
        path: path.to_owned(),
        location: span.map(|span| Location::new(path, text, &span)),
        problem: LayerProblem::Syntax(message.trim().replace('\n', ", ")),
    }
}

/// Merges `over` into `table`: sections key by key, all other values are replaced.
pub fn merge(table: &mut toml::Table, over: &toml::Table) {
    for (key, value) in over {
        match (table.get_mut(key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(over)) => merge(below, over),
            (Some(_) | None, _) => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A folder with these files.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn merged(folder: &tempfile::TempDir, name: &str) -> toml::Table {
        let mut table = toml::Table::new();
        for layer in layers(&folder.path().join(name)).unwrap() {
            merge(&mut table, &layer.table);
        }
        table
    }

    fn failure(folder: &tempfile::TempDir, name: &str) -> LayerError {
        layers(&folder.path().join(name)).unwrap_err()
    }

    #[test]
    fn a_name_may_hold_variables() {
        let files = folder(&[
            ("base.toml", "x = 1"),
            ("run.toml", "extends = \"${VIM_TRAIN_NOT_SET:-.}/base.toml\""),
            ("bad.toml", "extends = \"${VIM_TRAIN_NOT_SET}/base.toml\""),
        ]);
        assert_eq!(merged(&files, "run.toml")["x"], toml::Value::Integer(1));
        let problem = failure(&files, "bad.toml").to_string();
        assert!(problem.contains("`VIM_TRAIN_NOT_SET` is not set"), "{problem}");
    }

    #[test]
    fn later_files_stand_over_earlier_ones() {
        let files = folder(&[
            ("base/a.toml", "[data]\nworkers = 1\npath = \"a\"\n[data.shapes]\ntrain = 1\nval = 2"),
            ("base/b.toml", "extends = \"a.toml\"\n[data]\nworkers = 2\n[optim]\nbetas = [1, 2]"),
            ("c.toml", "[optim]\nbetas = [3]\nlr = 1"),
            ("run.toml", "extends = [\"base/b.toml\", \"c.toml\"]\ndata = { shapes.val = 9 }"),
        ]);
        let expected: toml::Table =
            "data = { workers = 2, path = \"a\", shapes = { train = 1, val = 9 } }\n\
             optim = { betas = [3], lr = 1 }"
                .parse()
                .unwrap();
        assert_eq!(merged(&files, "run.toml"), expected);
        let order: Vec<_> = layers(&files.path().join("run.toml"))
            .unwrap()
            .into_iter()
            .map(|layer| layer.path.file_name().unwrap().to_owned())
            .collect();
        assert_eq!(order, ["a.toml", "b.toml", "c.toml", "run.toml"]);
    }

    #[test]
    fn a_base_may_be_reached_twice() {
        let files = folder(&[
            ("a.toml", "x = 1"),
            ("b.toml", "extends = \"a.toml\"\nx = 2"),
            ("c.toml", "extends = \"a.toml\"\ny = 3"),
            ("run.toml", "extends = [\"b.toml\", \"c.toml\"]"),
        ]);
        // c stands over b, and brings a's x along.
        assert_eq!(merged(&files, "run.toml"), "x = 1\ny = 3".parse().unwrap());
    }

    #[test]
    fn files_that_are_named_again_and_again_are_read_once() {
        let text = |number: usize| format!("extends = [\"{0}.toml\", \"./{0}.toml\"]", number + 1);
        let names: Vec<String> = (0..300).map(|number| format!("{number}.toml")).collect();
        let texts: Vec<String> = (0..300).map(text).collect();
        let mut files: Vec<(&str, &str)> =
            names.iter().zip(&texts).map(|(name, text)| (name.as_str(), text.as_str())).collect();
        // 2^40 paths lead to it.
        files[40].1 = "x = 1";
        let files = folder(&files);
        assert_eq!(layers(&files.path().join("0.toml")).unwrap().len(), 41);
        assert_eq!(merged(&files, "0.toml"), "x = 1".parse().unwrap());
        let problem = failure(&files, "41.toml").problem;
        assert!(matches!(problem, LayerProblem::TooMany), "{problem}");

        let names = format!("extends = [{}]", "\"40.toml\", ".repeat(100_000));
        fs::write(files.path().join("list.toml"), names).unwrap();
        let error = failure(&files, "list.toml");
        assert!(matches!(error.problem, LayerProblem::TooMany), "{error}");
        assert_eq!(error.location.unwrap().position, (1, 12 + 11 * 256));
    }

    #[test]
    fn what_is_too_large_is_no_configuration() {
        let files = folder(&[("a.toml", "extends = \"/dev/zero\"")]);
        let error = failure(&files, "a.toml").to_string();
        assert!(error.contains("/dev/zero cannot be read: it is larger than 4 MiB"), "{error}");
        fs::write(files.path().join("b.toml"), "#".repeat(5 << 20)).unwrap();
        let LayerProblem::Read(error) = failure(&files, "b.toml").problem else { panic!("it is") };
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_cycle_is_shown() {
        let files = folder(&[
            ("a.toml", "extends = \"b.toml\""),
            ("b.toml", "x = 1\nextends = [\"c.toml\"]"),
            ("c.toml", "extends = \"./b.toml\""),
            ("self.toml", "extends = \"self.toml\""),
        ]);
        let error = failure(&files, "a.toml");
        let root = format!("{}/", files.path().display());
        let text = error.to_string().replace(&root, "");
        assert_eq!(text, "a cycle: b.toml → c.toml → ./b.toml");
        let location = error.location.unwrap();
        assert!(location.path.ends_with("c.toml"));
        assert_eq!(location.position, (1, 11));
        let error = failure(&files, "self.toml");
        assert_eq!(error.to_string().replace(&root, ""), "a cycle: self.toml → self.toml");
    }

    #[test]
    fn a_missing_base_is_named_where_it_is_asked_for() {
        let files = folder(&[("a.toml", "\nextends = [\"no/such.toml\"]")]);
        let error = failure(&files, "a.toml");
        assert!(error.to_string().contains("no/such.toml cannot be read: No such file"), "{error}");
        let location = error.location.unwrap();
        assert_eq!(location.position, (2, 12));
        assert_eq!(
            location.caret,
            "  |\n2 | extends = [\"no/such.toml\"]\n  |            ^^^^^^^^^^^^^^"
        );
        let error = failure(&files, "b.toml");
        assert!(error.location.is_none() && matches!(error.problem, LayerProblem::Read(_)));
    }

    #[test]
    fn names_are_texts() {
        for text in ["extends = 3", "extends = [1]", "[extends]\nx = 1", "extends = [\"a\", []]"] {
            let files = folder(&[("x.toml", text), ("a", "")]);
            let error = failure(&files, "x.toml");
            assert!(matches!(error.problem, LayerProblem::Names), "{text}: {error}");
            assert!(error.location.is_some(), "{text}");
        }
    }

    #[test]
    fn a_syntax_error_is_its_own_files() {
        let files = folder(&[("a.toml", "extends = \"b.toml\""), ("b.toml", "x = 1\ny = \n")]);
        let error = failure(&files, "a.toml");
        assert!(error.path.ends_with("b.toml"));
        assert!(error.to_string().starts_with("not valid TOML: "), "{error}");
        assert_eq!(error.location.unwrap().position.0, 2);
    }
}
