//! The configurations of `configs/`, which the program carries: `quickstart`, `ablation/shapes`.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Once;

use vim_config::{Layer, LayerError, layers_of};

// `FILES`: name and text of each, in the order of the names.
include!(concat!(env!("OUT_DIR"), "/configs.rs"));

/// The folder that they seem to be in, for messages.
const FOLDER: &str = "built-in:configs";

/// Name and text of each, in the order of the names: paths below `configs/` without `.toml`.
pub fn embedded() -> &'static [(&'static str, &'static str)] {
    &FILES
}

/// Whether `name` is an embedded configuration's and no file's. A file of that name is taken, and
/// that is said, once.
pub(crate) fn is_embedded(name: &Path) -> bool {
    static SAID: Once = Once::new();
    let known = name.to_str().is_some_and(|name| text_of(name).is_some());
    let is_file = known && name.exists() && !name.is_dir();
    if is_file {
        let name = name.display();
        SAID.call_once(|| {
            eprintln!("note: the file {name} is read, not the built-in configuration of that name");
        });
    }
    known && !is_file
}

/// The layers of the embedded configuration `name`.
pub(super) fn layers(name: &Path) -> Result<Vec<Layer>, LayerError> {
    layers_of(&Path::new(FOLDER).join(format!("{}.toml", name.display())), read)
}

/// The embedded configuration that was probably meant by the path of a file that is not there.
pub(super) fn meant(path: &Path) -> Option<&'static str> {
    let below = path.strip_prefix("configs").unwrap_or(path).with_extension("");
    let names = FILES.iter().map(|(name, _)| *name);
    vim_config::nearest(below.to_str()?, names)
}

fn text_of(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The text of a file of [`FOLDER`], as one reads a file.
fn read(path: &Path) -> io::Result<String> {
    let mut below = PathBuf::new();
    for part in path.strip_prefix(FOLDER).unwrap_or(path).components() {
        match part {
            Component::ParentDir => {
                below.pop();
            }
            Component::Normal(name) => below.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    let text = below.with_extension("").to_str().and_then(text_of);
    text.map(str::to_owned).ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::super::Config;
    use super::*;

    fn files(folder: &Path, found: &mut BTreeMap<String, String>, root: &Path) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("sites") {
                files(&path, found, root);
            } else if path.extension().is_some_and(|extension| extension == "toml") {
                let name = path.strip_prefix(root).unwrap().with_extension("");
                found.insert(name.to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap());
            }
        }
    }

    #[test]
    fn they_are_the_files() {
        let (root, mut found) =
            (Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs"), [].into());
        files(&root, &mut found, &root);
        let own = FILES.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        assert_eq!(own.collect::<BTreeMap<_, _>>(), found);
        for name in found.keys() {
            let file = Config::load_sweep(&root.join(format!("{name}.toml")), &[]).unwrap();
            assert_eq!(Config::load_sweep(Path::new(name), &[]).unwrap(), file, "{name}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_may_be_one() {
        for (path, expected) in [
            ("configs/quickstart.toml", Some("quickstart")),
            ("quickstrat", Some("quickstart")),
            ("configs/ablation/shapes.toml", Some("ablation/shapes")),
            ("/home/me/mine.toml", None),
        ] {
            assert_eq!(meant(Path::new(path)), expected, "{path}");
        }
        assert!(!is_embedded(Path::new("./quickstart")), "a path");
    }
}
