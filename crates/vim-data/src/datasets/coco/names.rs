//! Which file an annotation's `file_name` means.

use std::collections::HashMap;

use crate::classes::nfc;
use crate::dataset::Dataset;
use crate::error::Location;
use crate::storage::images::Images;

/// Images by the last part of their paths.
pub(super) struct Places(HashMap<String, Vec<(usize, Vec<String>)>>);

impl Places {
    /// Those of `images`, which are below a folder called `folder`.
    pub(super) fn new(images: &Images, folder: &str) -> Self {
        let mut places: HashMap<String, Vec<(usize, Vec<String>)>> = HashMap::new();
        for at in 0..images.len() {
            let mut path = parts(&name_in(images, at, folder));
            if let Some(file) = path.pop() {
                places.entry(file).or_default().push((at, path));
            }
        }
        Self(places)
    }

    /// The image that `name` means: the one at this path. Programs write the path from elsewhere,
    /// or without folders: then it is the one image whose path ends with `name`, or that `name`
    /// ends with. `Err` says what is wrong.
    pub(super) fn find(&self, name: &str) -> Result<usize, String> {
        let mut folders = parts(name);
        let candidates = folders.pop().and_then(|file| self.0.get(&file));
        let candidates = candidates.map_or(&[][..], |candidates| candidates);
        if let Some((at, _)) = candidates.iter().find(|(_, own)| *own == folders) {
            return Ok(*at);
        }
        // The longest path below the folder that `name` ends with counts.
        let within = candidates.iter().filter(|(_, own)| folders.ends_with(own));
        if let Some((at, _)) = within.max_by_key(|(_, own)| own.len()) {
            return Ok(*at);
        }
        let around: Vec<usize> =
            candidates.iter().filter(|(_, own)| own.ends_with(&folders)).map(|one| one.0).collect();
        match around[..] {
            [at] => Ok(at),
            [] => Err(format!("it names `{name}`, which is not in")),
            [..] => {
                let count = around.len();
                Err(format!("it names `{name}`, of which there are {count} in folders below"))
            }
        }
    }
}

/// The parts of a path, whichever program wrote it: `\` separates too, and `.` and `..` are none.
pub(super) fn parts(path: &str) -> Vec<String> {
    let parts = path.split(['/', '\\']).filter(|part| !matches!(*part, "" | "." | ".."));
    parts.map(nfc).collect()
}

/// The path of an image below the folder of its part.
fn name_in(images: &Images, index: usize, folder: &str) -> String {
    let Location { path, member } = images.location(index);
    match member {
        Some(member) => {
            let below = format!("{folder}/");
            let start = member.find(&below).map_or(0, |at| at + below.len());
            member[start..].to_owned()
        }
        None => path.strip_prefix(images.root()).unwrap_or(&path).to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(files: &[&str], name: &str) -> Result<usize, String> {
        let mut places: HashMap<String, Vec<(usize, Vec<String>)>> = HashMap::new();
        for (at, file) in files.iter().enumerate() {
            let mut path = parts(file);
            places.entry(path.pop().unwrap()).or_default().push((at, path));
        }
        Places(places).find(name)
    }

    #[test]
    fn a_name_is_a_path_from_here_or_from_elsewhere() {
        let files = ["a.jpg", "x/a.jpg", "x/y/b.jpg", "c\u{e4}.jpg", "z/d.jpg", "w/d.jpg"];
        for (name, expected) in [
            ("a.jpg", 0),
            ("./a.jpg", 0),
            (".\\a.jpg", 0),
            ("x/a.jpg", 1),
            ("x\\a.jpg", 1),
            ("images/x/a.jpg", 1),
            ("C:\\data\\images\\a.jpg", 0),
            ("../../upload/1/a.jpg", 0),
            ("b.jpg", 2),
            ("y/b.jpg", 2),
            ("ca\u{308}.jpg", 3),
            ("w/d.jpg", 5),
        ] {
            assert_eq!(find(&files, name), Ok(expected), "{name}");
        }
        for (name, why) in [
            ("d.jpg", "of which there are 2"),
            // Of another folder than the one there is.
            ("v/b.jpg", "which is not in"),
            ("A.jpg", "which is not in"),
            ("e.jpg", "which is not in"),
            ("/", "which is not in"),
        ] {
            assert!(find(&files, name).unwrap_err().contains(why), "{name}");
        }
    }
}
