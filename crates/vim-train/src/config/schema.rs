//! The configuration's JSON schema: for editors, and for the names that an error message knows.

use std::sync::OnceLock;

use schemars::generate::SchemaSettings;
use serde_json::Value;
use toml_edit::{Item, TableLike};

use super::Config;
use super::error::{ConfigError, Located, Problem, nearest};

/// The JSON schema of a configuration file; draft 7 is the newest that TOML editors read.
pub fn schema() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        SchemaSettings::draft07().into_generator().into_root_schema_for::<Config>().to_value()
    })
}

/// The format of keys that are paths; variables in their values are filled in.
pub(super) const PATH: &str = "path";

/// A place in the schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    written: &'static Value,
}

impl Node {
    /// The file as a whole.
    pub(super) fn root() -> Self {
        Self { written: schema() }
    }

    /// What the items of a list may be.
    pub(super) fn items(self) -> Option<Self> {
        Some(Self { written: self.resolved().get("items")? })
    }

    /// What `key` may hold.
    pub(super) fn get(self, key: &str) -> Option<Self> {
        let properties = self.resolved().get("properties")?;
        Some(Self { written: properties.get(key)? })
    }

    /// The keys of a section; `None` if this is a value.
    pub(super) fn keys(self) -> Option<Vec<String>> {
        Some(self.resolved().get("properties")?.as_object()?.keys().cloned().collect())
    }

    /// Aliases of [choices](Self::choices): accepted, but not advertised.
    pub(super) fn aliases(self) -> Vec<&'static str> {
        let forms = self.resolved().get("oneOf").and_then(Value::as_array);
        let aliases = forms.into_iter().flatten().filter(|form| is_alias(form));
        let names = aliases.filter_map(|form| form.get("enum")?.as_array()).flatten();
        names.filter_map(Value::as_str).collect()
    }

    /// The values that a string may have, if they can be listed.
    pub(super) fn choices(self) -> Option<Vec<String>> {
        let value = self.resolved();
        let listed: Option<Vec<String>> = if let Some(names) = value.get("enum") {
            names.as_array()?.iter().map(|name| name.as_str().map(str::to_owned)).collect()
        } else {
            let forms = value.get("oneOf")?.as_array()?;
            // Documented and undocumented variants are listed apart: `const` here, `enum` there.
            forms.iter().filter(|form| !is_alias(form)).try_fold(Vec::new(), |mut names, form| {
                match (form.get("const"), form.get("enum")) {
                    (Some(name), _) => names.push(name.as_str()?.to_owned()),
                    (None, Some(more)) => {
                        for name in more.as_array()? {
                            names.push(name.as_str()?.to_owned());
                        }
                    }
                    (None, None) => return None,
                }
                Some(names)
            })
        };
        listed.filter(|names| !names.is_empty())
    }

    /// Whether the key is the path of a file or folder.
    pub(super) fn is_path(self) -> bool {
        self.resolved().get("format") == Some(&Value::from(PATH))
    }

    /// What the key is for.
    pub(super) fn description(self) -> &'static str {
        let text = |value: &'static Value| value.get("description").and_then(Value::as_str);
        text(self.written).or_else(|| text(self.resolved())).unwrap_or_default()
    }

    /// The schema behind references and the `null` of optional keys.
    pub(super) fn resolved(self) -> &'static Value {
        let mut value = self.written;
        loop {
            let reference = value.get("$ref").and_then(Value::as_str);
            let inner = if let Some(pointer) = reference {
                schema().pointer(pointer.trim_start_matches('#'))
            } else {
                let wrapped = value.get("allOf").or_else(|| value.get("anyOf"));
                wrapped.and_then(Value::as_array).and_then(|forms| {
                    forms.iter().find(|form| form.get("type") != Some(&Value::from("null")))
                })
            };
            match inner {
                Some(inner) => value = inner,
                None => return value,
            }
        }
    }
}

/// Whether a form of a schema lists aliases.
fn is_alias(form: &Value) -> bool {
    form.get("x-alias") == Some(&Value::Bool(true))
}

/// The path of every key that holds a value.
pub(crate) fn keys() -> Vec<String> {
    paths().into_iter().map(|(path, _)| path).collect()
}

/// The path of every key that holds a value, such as `data.shapes.seed`; a section's own keys come
/// before those of the sections inside it, as they must in a file.
pub(super) fn paths() -> Vec<(String, Node)> {
    fn collect(prefix: &str, node: Node, into: &mut Vec<(String, Node)>) {
        let mut sections = Vec::new();
        for key in node.keys().unwrap_or_default() {
            let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
            match node.get(&key) {
                Some(child) if child.keys().is_some() => sections.push((path, child)),
                Some(child) => into.push((path, child)),
                None => {}
            }
        }
        for (path, child) in sections {
            collect(&path, child, into);
        }
    }
    let mut paths = Vec::new();
    collect("", Node::root(), &mut paths);
    paths
}

/// The keys with `format = "path"`.
pub(super) fn path_keys() -> impl Iterator<Item = String> {
    paths().into_iter().filter(|(_, node)| node.is_path()).map(|(path, _)| path)
}

/// Checks that every name in `table` is one of the schema at `node`; suggests similar ones.
pub(super) fn check_names(table: &dyn TableLike, node: Node, prefix: &str) -> Result<(), Located> {
    for (key, item) in table.iter() {
        let path = if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
        let Some(child) = node.get(key) else {
            let span = table.get_key_value(key).and_then(|(key, _)| key.span());
            return Err((Box::new(unknown_key(&path, key, node)), span));
        };
        match (item.as_table_like(), child.keys()) {
            (Some(section), Some(_)) => check_names(section, child, &path)?,
            (Some(_), None) | (None, _) => check_choice(item, child, &path)?,
        }
    }
    Ok(())
}

fn unknown_key(path: &str, key: &str, node: Node) -> ConfigError {
    let known = node.keys().unwrap_or_default();
    // A correct key in the wrong section is as common a mistake as a misspelt key.
    let elsewhere = || {
        // Of a short word, every other one is near.
        let keys = if key.len() > 4 { keys() } else { Vec::new() };
        let leaves: Vec<String> = keys.iter().map(|key| leaf(key).to_owned()).collect();
        key_named(&nearest(key, &leaves)?)
    };
    let nearest = key_named(key).or_else(|| nearest(key, &known)).or_else(elsewhere);
    ConfigError::new(path, Problem::UnknownKey { nearest, known })
}

/// What is meant by other programs' words, and by parts of keys that several have.
const SYNONYMS: [(&str, &str); 23] = [
    ("batch", "train.batch_size"),
    ("bs", "train.batch_size"),
    ("data", "data.path"),
    ("datapath", "data.path"),
    ("dataroot", "data.path"),
    ("finetune", "train.init"),
    ("imgsize", "model.image_size"),
    ("imgsz", "model.image_size"),
    ("inputsize", "model.image_size"),
    ("learningrate", "optim.lr"),
    ("lr0", "optim.lr"),
    ("maxepochs", "train.epochs"),
    ("model", "model.preset"),
    ("name", "run.name"),
    ("numworkers", "data.workers"),
    ("out", "run.root"),
    ("output", "run.root"),
    ("outputdir", "run.root"),
    ("pretrained", "train.init"),
    ("project", "run.root"),
    ("wd", "optim.weight_decay"),
    ("weights", "train.init"),
    ("warmupepochs", "optim.warmup"),
];

/// The key that is called `word` in whichever section, or in another program; `-` and `_` do not
/// count. Of several the outermost.
pub(crate) fn key_named(word: &str) -> Option<String> {
    let plain = |word: &str| word.to_lowercase().replace(['-', '_'], "");
    let word = plain(word);
    if let Some((_, key)) = SYNONYMS.iter().find(|(other, _)| *other == word) {
        return Some((*key).to_owned());
    }
    let named = keys().into_iter().filter(|key| key.contains('.') && plain(leaf(key)) == word);
    named.min_by_key(|key| key.matches('.').count())
}

/// The last part of a key's path.
fn leaf(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

fn check_choice(item: &Item, node: Node, path: &str) -> Result<(), Located> {
    let Some(known) = node.choices() else { return Ok(()) };
    let Some(value) = item.as_str() else {
        // `true` in place of "layer" counts as an unknown name, too.
        let written = item.to_string().trim().to_owned();
        let problem = Problem::UnknownValue { value: written, nearest: None, known };
        return Err((Box::new(ConfigError::new(path, problem)), item.span()));
    };
    if known.iter().any(|name| name == value) {
        return Ok(());
    }
    let aliases: Vec<String> = node.aliases().into_iter().map(str::to_owned).collect();
    if aliases.iter().any(|name| name == value) {
        return Ok(());
    }
    let nearest = nearest(value, &known).or_else(|| nearest(value, &aliases));
    let problem = Problem::UnknownValue { value: value.to_owned(), nearest, known };
    Err((Box::new(ConfigError::new(path, problem)), item.span()))
}

/// Checks that `key` is a key or a section of the schema.
pub(crate) fn check_key(key: &str) -> Result<(), ConfigError> {
    let (mut node, mut path) = (Node::root(), String::new());
    for name in key.split('.') {
        path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        node = node.get(name).ok_or_else(|| unknown_key(&path, name, node))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    fn at(path: &str) -> Node {
        path.split('.').try_fold(Node::root(), Node::get).unwrap()
    }

    #[test]
    fn knows_keys_at_every_level() {
        assert!(Node::root().keys().unwrap().contains(&"optim".to_owned()));
        assert!(at("data.shapes").keys().unwrap().contains(&"seed".to_owned()));
        assert!(at("model.depth").keys().is_none());
        assert!(Node::root().get("nothing").is_none());
    }

    #[test]
    fn knows_keys_by_their_last_part_and_by_other_names() {
        for (word, expected) in [
            ("lr", Some("optim.lr")),
            ("epochs", Some("train.epochs")),
            ("batch-size", Some("train.batch_size")),
            ("BatchSize", Some("train.batch_size")),
            ("seed", Some("run.seed")),
            ("learning_rate", Some("optim.lr")),
            ("name", Some("run.name")),
            ("output", Some("run.root")),
            ("dry-run", None),
        ] {
            assert_eq!(key_named(word).as_deref(), expected, "{word}");
        }
        let known = keys();
        for (name, key) in SYNONYMS {
            assert!(known.iter().any(|known| known == key), "{name}: {key}");
        }
        let meant = |path: &str| check_key(path).unwrap_err().to_string();
        assert!(meant("lr").contains("did you mean `optim.lr`?"));
        assert!(meant("log.evry").contains("did you mean `every`?"));
        assert!(meant("wrokers").contains("did you mean `data.workers`?"));
    }

    #[test]
    fn knows_the_choices() {
        assert_eq!(
            at("devices.backend").choices().unwrap(),
            ["auto", "cpu", "cuda", "wgpu", "tch"]
        );
        assert!(at("model.discretization").choices().unwrap().contains(&"rk4".to_owned()));
        for open in ["run.name", "data.workers", "devices.gpus", "optim.warmup", "model.depth"] {
            assert!(at(open).choices().is_none(), "{open}");
        }
    }

    #[test]
    fn every_key_says_what_it_is_for() {
        for (path, node) in paths() {
            assert!(!node.description().is_empty(), "{path}");
        }
    }

    /// Every source below `folder`.
    fn sources(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        let sources = entries.flat_map(|entry| match entry.unwrap().path() {
            path if path.is_dir() => sources(&path),
            path => vec![path],
        });
        sources.filter(|path| path.extension().is_some_and(|name| name == "rs")).collect()
    }

    /// The texts between quotes of a source, without its comments and tests.
    fn literals(source: &str) -> Vec<String> {
        let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code: Vec<&str> = lines.map(|line| line.split(" // ").next().unwrap()).collect();
        let code = code.join("\n").replace("'\"'", "").replace("\\\"", "");
        code.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn messages_name_keys_that_exist() {
        let is_known = |path: &str| path.split('.').try_fold(Node::root(), Node::get).is_some();
        let is_other = |c: char| !(c.is_ascii_alphanumeric() || "_.{".contains(c));
        // A file's name, or one with a part that is put in.
        let is_no_key = |word: &str| {
            let ends = [
                "csv",
                "fish",
                "json",
                "md",
                "npz",
                "pth",
                "py",
                "safetensors",
                "toml",
                "txt",
                "yaml",
                "yml",
            ];
            word.contains('{') || word.rsplit('.').next().is_some_and(|end| ends.contains(&end))
        };
        let (mut named, mut unknown) = (0, Vec::new());
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let crates = fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path().join("src"));
        for path in crates.flat_map(|source| sources(&source)) {
            let shown = path.display().to_string();
            // These name arrays in files of other programs.
            if shown.contains("golden") || shown.contains("vim-torch") {
                continue;
            }
            for literal in literals(&fs::read_to_string(&path).unwrap()) {
                for word in literal.split(is_other).map(|word| word.trim_end_matches('.')) {
                    let Some((section, _)) = word.split_once('.') else { continue };
                    let is_section = Node::root().get(section).and_then(Node::keys).is_some();
                    if is_section && !is_no_key(word) {
                        named += 1;
                        unknown.extend((!is_known(word)).then(|| format!("{shown}: {word}")));
                    }
                }
            }
        }
        assert!(named > 200, "{named} keys are named");
        assert!(unknown.is_empty(), "{unknown:#?}");
    }

    #[test]
    fn knows_the_paths() {
        let mut keys: Vec<String> = path_keys().collect();
        keys.sort();
        let expected = [
            "data.classes",
            "data.index_cache",
            "data.path",
            "data.train_annotations",
            "data.train_images",
            "data.val_annotations",
            "data.val_images",
            "data.val_labels",
            "data.val_path",
            "run.root",
            "slurm.output",
            "slurm.site",
            "train.init",
        ];
        assert_eq!(keys, expected);
    }
}
