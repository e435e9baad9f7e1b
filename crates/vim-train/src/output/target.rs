//! Whether an output file can be written, asked before the work that makes it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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

    #[error("{} is a folder or a device: name a file", .0.display())]
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
            Self::Exists(_) | Self::NotAFile(_) => code::EXISTS,
            Self::NoFolder { .. } | Self::NotAFolder { .. } | Self::Folder { .. } => code::IO,
        }
    }
}

/// Checks that the file `path` can be made; one that is there is refused, unless `force`.
pub(crate) fn check_free(path: &Path, force: bool) -> Result<(), Error> {
    if !force && fs::symlink_metadata(path).is_ok() {
        return Err(OutputError::Exists(path.to_owned()).into());
    }
    check_folder(path)
}

/// Makes `folders`, and checks that no two of the `files` of the images at `paths` would be one,
/// and that none is there unless it may be written over.
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
    for path in paths {
        for file in files(path) {
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
pub(crate) fn check_folder(path: &Path) -> Result<(), Error> {
    check(path).map_err(Error::from)
}

fn check(path: &Path) -> Result<(), OutputError> {
    let (path, folder) = (path.to_owned(), folder_of(path));
    // A rename would put a plain file in the place of a device.
    let is_other = fs::metadata(&path).is_ok_and(|there| !there.is_file());
    if is_other || path.as_os_str().as_bytes().ends_with(b"/") {
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
        let not_a_file = "folder is a folder or a device: name a file";
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
    }

    #[test]
    fn devices_and_read_only_places_are_refused() {
        let error = check_free(Path::new("/dev/null"), true).unwrap_err();
        assert_eq!(error.exit_code(), 73);
        let error = check_free(Path::new("/proc/self/x"), false).unwrap_err();
        assert_eq!(error.exit_code(), 74, "{error}");
    }
}
