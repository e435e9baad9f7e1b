//! The built binary, what it says, and files that tests give it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A file of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Arrays of a task, in this crate's fixtures.
pub(crate) fn fixture(name: &str) -> PathBuf {
    repository("crates/vim-golden/tests/fixtures").join(name)
}

/// `vim-golden` with these arguments, whatever the environment says of kernels.
pub(crate) fn vim_golden(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vim-golden"));
    command.args(args).env_remove(vim_kernels::KERNEL_VARIABLE);
    command
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The JSON that it printed.
pub(crate) fn parsed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(output)))
}

#[track_caller]
pub(crate) fn assert_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}{}", stdout(output), stderr(output));
}

/// `text` has all `parts`.
#[track_caller]
pub(crate) fn assert_parts(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

/// Fails with `code` and one line that has `words`; a configuration's mistake has its place below.
#[track_caller]
pub(crate) fn refused(output: &Output, code: i32, words: &[&str]) {
    let error = stderr(output);
    assert_code(output, code);
    let (line, place) = error.split_once('\n').unwrap_or_default();
    assert!(place.is_empty() || code == 78 && place.lines().count() == 3, "{error}");
    assert_parts(line, words);
}

/// A folder with these files.
pub(crate) fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}
