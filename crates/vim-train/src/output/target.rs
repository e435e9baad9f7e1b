//! Whether an output file can be written, asked before the work that makes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf, absolute};

use rustix::fs::{Access, access};
use vim_run::storage::folder_of;

use crate::error::{Error, Failure, code};

/// Errors of output files.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    #[error("{}: the name must end in {expected}", path.display())]
    Extension { path: PathBuf, expected: &'static str },

    #[error("{} is there already: name another file, or write over it by --force", .0.display())]
    Exists(PathBuf),

    #[error("{} is read by this command, or lies in what is: name another", .0.display())]
    Input(PathBuf),

    #[error("{} is a folder, a device or `-`: name a file", .0.display())]
    NotAFile(PathBuf),

    #[error(
        "cannot write {}: there is no folder {}: make it, or name another",
        path.display(), folder_of(path).display()
    )]
    NoFolder { path: PathBuf },

    #[error(
        "cannot write {}: {} is not a folder: name another",
        path.display(), folder_of(path).display()
    )]
    NotAFolder { path: PathBuf },

    #[error("cannot write {} into its folder: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
}

impl Failure for OutputError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Extension { .. } => code::USAGE,
            Self::Exists(_) | Self::Input(_) | Self::NotAFile(_) => code::EXISTS,
            Self::NoFolder { .. } | Self::NotAFolder { .. } | Self::Folder { .. } => code::IO,
        }
    }
}

/// Checks that the file `path` can be made; one that is there is refused, unless `force`.
pub(crate) fn check_free(path: &Path, force: bool) -> Result<(), Error> {
    if !force && fs::symlink_metadata(path).is_ok() {
        return Err(OutputError::Exists(path.to_owned()).into());
    }
    Ok(check(path)?)
}

/// Checks that the file `path`, which may be written over, is none of the `inputs` of the same
/// command, under whatever name, and in no folder among them.
pub(crate) fn check_no_input<'a>(
    path: &Path,
    inputs: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Error> {
    // Whatever is not there is read by nobody.
    if fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    let (own, place) = (id(path), place(path));
    let is_read = |input: &Path| match id(input) {
        None => false,
        found if found == own => true,
        Some(_) => is_below(&place, input) || is_below(&whole(path), input),
    };
    match inputs.into_iter().any(is_read) {
        true => Err(OutputError::Input(path.to_owned()).into()),
        false => Ok(()),
    }
}

/// What is at `path`, under whatever name.
fn id(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Checks that the new file or folder `path` is not one of the folders `inputs`, nor in one of
/// them: it would be read as a part of what it was made from.
pub(crate) fn check_apart(path: &Path, inputs: &[PathBuf]) -> Result<(), Error> {
    match inputs.iter().any(|input| is_below(&whole(path), input)) {
        true => Err(OutputError::Input(path.to_owned()).into()),
        false => Ok(()),
    }
}

/// Whether the canonical path `place` is `input`, or in this folder.
fn is_below(place: &Path, input: &Path) -> bool {
    place == self::place(input) || place.starts_with(whole(input))
}

/// The path of a name without the links before it; a link itself is not followed.
fn place(path: &Path) -> PathBuf {
    whole(folder_of(path)).join(path.file_name().unwrap_or_default())
}

/// The path without links, as far as it is there.
fn whole(path: &Path) -> PathBuf {
    let path = absolute(path).unwrap_or_else(|_| path.to_owned());
    let known = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match known.and_then(|(above, found)| Some(found.join(path.strip_prefix(above).ok()?))) {
        Some(found) => found.components().collect(),
        None => path,
    }
}

/// Makes `folders`, and checks that no two of the `files` of the images at `paths` would be one,
/// that none is there unless it may be written over, and that none is one of `paths`.
pub(crate) fn check_distinct<'a>(
    folders: impl Iterator<Item = &'a Path>,
    paths: &[PathBuf],
    force: bool,
    files: impl Fn(&Path) -> Vec<PathBuf>,
) -> Result<(), Error> {
    for folder in folders {
        fs::create_dir_all(folder).map_err(Error::io("make", folder))?;
    }
    let mut taken: BTreeMap<PathBuf, &Path> = BTreeMap::new();
    let inputs: BTreeSet<(u64, u64)> = paths.iter().filter_map(|path| id(path)).collect();
    for path in paths {
        for file in files(path) {
            if id(&file).is_some_and(|found| inputs.contains(&found)) {
                return Err(OutputError::Input(file).into());
            }
            check_free(&file, force)?;
            if let Some(other) = taken.insert(file.clone(), path) {
                return Err(Error::failed(format!(
                    "{} and {} would both be {}: take them one after the other",
                    other.display(),
                    path.display(),
                    file.display()
                )));
            }
        }
    }
    Ok(())
}

/// Checks that the file `path` can be made or replaced, as far as that can be told without writing.
fn check(path: &Path) -> Result<(), OutputError> {
    let (path, folder) = (path.to_owned(), folder_of(path));
    // A rename would put a plain file in the place of a device.
    let is_other = fs::metadata(&path).is_ok_and(|there| !there.is_file());
    // Nor is anything printed for `-`.
    if is_other || path.as_os_str() == "-" || path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(OutputError::NotAFile(path));
    }
    match fs::metadata(folder) {
        Ok(found) if !found.is_dir() => Err(OutputError::NotAFolder { path }),
        Ok(_) => access(folder, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| OutputError::Folder { path, source: error.into() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(OutputError::NoFolder { path })
        }
        Err(source) => Err(OutputError::Folder { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_cannot_be_written_is_told_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::write(root.join("file"), "mine").unwrap();
        fs::create_dir(root.join("folder")).unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        let shown = |name: &str| root.join(name).display().to_string();
        let said = |name: &str, force| {
            let error = check_free(&root.join(name), force).unwrap_err();
            (error.exit_code(), error.to_string().replace(&shown(""), ""))
        };
        let way = "name another file, or write over it by --force";
        for name in ["file", "folder", "dangling"] {
            assert_eq!(said(name, false), (73, format!("{name} is there already: {way}")));
        }
        let not_a_file = "folder is a folder, a device or `-`: name a file";
        assert_eq!(said("folder", true), (73, not_a_file.into()));
        assert_eq!(said("new/", false).0, 73);
        let no_folder = "there is no folder a/b: make it, or name another";
        assert_eq!(said("a/b/x", false), (74, format!("cannot write a/b/x: {no_folder}")));
        let in_file = "cannot write file/x: file is not a folder: name another";
        assert_eq!(said("file/x", false), (74, in_file.into()));
        assert_eq!(said("file/a/x", true).0, 74);
        for (name, force) in
            [("new", false), ("folder/new", true), ("file", true), ("dangling", true)]
        {
            check_free(&root.join(name), force).unwrap();
        }
        check_free(Path::new("in-the-working-folder"), false).unwrap();
        check_free(Path::new("-"), false).unwrap_err();
    }

    #[test]
    fn what_is_read_is_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a.pth", "data/train/0.png", "other.png"] {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), "mine").unwrap();
        }
        symlink("a.pth", at("link.pth")).unwrap();
        symlink("data", at("named")).unwrap();
        fs::hard_link(at("a.pth"), at("same.pth")).unwrap();
        let inputs = [at("a.pth"), at("named"), at("absent")];
        let inputs = || inputs.iter().map(PathBuf::as_path);
        for name in ["a.pth", "link.pth", "same.pth", "data/train/0.png", "named/train/0.png"] {
            let error = check_no_input(&at(name), inputs()).unwrap_err();
            assert_eq!(error.exit_code(), 73, "{name}");
            let said = "is read by this command, or lies in what is: name another";
            assert_eq!(error.to_string(), format!("{} {said}", at(name).display()));
        }
        for name in ["other.png", "new", "absent", "data/new.png"] {
            check_no_input(&at(name), inputs()).unwrap();
        }
        check_no_input(&at("link.pth"), [at("link.pth").as_path()]).unwrap_err();

        for name in ["data", "named", "data/train", "named/new", "data/new/new"] {
            check_apart(&at(name), &[at("named")]).unwrap_err();
        }
        for name in ["packed", "database", "a/b"] {
            check_apart(&at(name), &[at("named"), at("data")]).unwrap();
        }
    }

    #[test]
    fn maps_go_beside_images_where_no_name_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.png"), "an image").unwrap();
        fs::write(at("b.jpg"), "an image").unwrap();
        let check = |images: &[PathBuf], end: &str| {
            let file = |path: &Path| vec![path.with_extension(end)];
            check_distinct([folder.path()].into_iter(), images, true, file)
        };
        check(&[at("b.jpg")], "png").unwrap();
        let error = check(&[at("b.jpg"), at("a.png")], "png").unwrap_err();
        assert_eq!(error.exit_code(), 73);
        check(&[at("b.jpg"), at("a.png")], "map.png").unwrap();
    }

    #[test]
    fn devices_and_read_only_places_are_refused() {
        let error = check_free(Path::new("/dev/null"), true).unwrap_err();
        assert_eq!(error.exit_code(), 73);
        let error = check_free(Path::new("/proc/self/x"), false).unwrap_err();
        assert_eq!(error.exit_code(), 74, "{error}");
    }
}
