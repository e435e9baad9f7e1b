//! The built binary, what it says, and the files that tests give it.

use std::env;
use std::fs::{self, File};
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use vim_kernels::KERNEL_VARIABLE;
use vim_torch::{Section, StateDict, read_checkpoint, write_safetensors};

/// A file of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// `vim-train` with these arguments, whatever the environment says of kernels and sites, and of
/// GPUs that the build does not use.
pub(crate) fn vim_train(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vim-train"));
    command.args(args).env_remove(KERNEL_VARIABLE).env_remove("VIM_TRAIN_SITE");
    if !cfg!(feature = "cuda") {
        let gpus = ["SLURM_GPUS_ON_NODE", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"];
        gpus.into_iter().chain(["CUDA_VISIBLE_DEVICES"]).for_each(|name| {
            command.env_remove(name);
        });
    }
    command
}

pub(crate) fn run(args: &[&str]) -> Output {
    vim_train(args).output().unwrap()
}

/// A script of scripts/.
pub(crate) fn python(name: &str, args: &[&str]) -> Output {
    let script = repository("scripts").join(name);
    Command::new("python3").arg(script).args(args).output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The text of records without the largest |delta·A|, which earlier versions did not measure and
/// which is of all scans of a process.
pub(crate) fn without_largest(records: &str) -> String {
    let mut parts = records.split(",\"largest_delta_a\":");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + &part[part.find(',').unwrap()..])
}

/// The JSON that it printed.
pub(crate) fn parsed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(output)))
}

#[track_caller]
pub(crate) fn assert_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}{}", stdout(output), stderr(output));
}

/// It ended with `code`, and `words` are in what it says on stderr.
#[track_caller]
pub(crate) fn assert_says(output: &Output, code: i32, words: &[&str]) {
    assert_code(output, code);
    let said = stderr(output);
    for word in words {
        assert!(said.contains(word), "{word} is not in: {said}");
    }
}

/// `text` has all `parts`.
#[track_caller]
pub(crate) fn assert_parts(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

/// `text` has all `lines`.
#[track_caller]
pub(crate) fn assert_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "{line} is not in\n{text}");
    }
}

pub(crate) fn read_json(path: impl AsRef<Path>) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The arrays in a file of weights.
pub(crate) fn state(path: &Path) -> StateDict {
    let file = BufReader::new(File::open(path).unwrap());
    read_checkpoint(file, Section::Model).unwrap().state
}

/// Writes the arrays in a file of weights as safetensors, without what is recorded of them.
pub(crate) fn write_bare(from: &Path, to: &Path) {
    let state = state(from);
    let arrays = state.iter().filter_map(|(key, _)| Some((key, state.array(key)?.into())));
    let mut bytes = Vec::new();
    write_safetensors(&mut bytes, arrays, &[]).unwrap();
    write(to, bytes);
}

/// The records of JSON lines.
pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// `--set` before each.
pub(crate) fn set<'a>(values: &[&'a str]) -> Vec<&'a str> {
    values.iter().flat_map(|value| ["--set", value]).collect()
}

/// A folder with these files.
pub(crate) fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        write(&folder.path().join(name), text);
    }
    folder
}

/// Writes a file, and makes its folder.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Writes a shell script that stands for a program.
pub(crate) fn write_program(path: &Path, script: &str) {
    write(path, format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// `PATH` with `folder` before all others.
pub(crate) fn path_from(folder: &Path) -> String {
    format!("{}:{}", folder.display(), env::var("PATH").unwrap())
}

pub(crate) fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
}

/// An archive as `dataset` is downloaded, of images drawn by a script.
pub(crate) fn cifar_archive(path: &Path, dataset: &str, args: &[&str]) {
    let out = ["--dataset", dataset, "--out", path.to_str().unwrap()];
    assert_code(&python("make_cifar_archive.py", &[&out, args].concat()), 0);
}

/// A folder for runs, and the binary on a configuration in it.
pub(crate) struct Bench {
    root: TempDir,
    config: PathBuf,
}

impl Bench {
    /// On the debug configuration.
    pub(crate) fn new() -> Self {
        Self::of("configs/debug.toml")
    }

    /// On a file of the repository.
    pub(crate) fn of(config: &str) -> Self {
        Self { root: tempfile::tempdir().unwrap(), config: repository(config) }
    }

    pub(crate) fn command(&self, what: &str, name: &str, more: &[&str]) -> Command {
        let mut command = vim_train(&[what]);
        command.arg(&self.config);
        command.args(["--set", &format!("run.name={name}")]);
        command.args(["--set", &format!("run.root={}", self.root.path().display())]).args(more);
        command
    }

    pub(crate) fn train(&self, name: &str, more: &[&str]) -> Output {
        self.command("train", name, more).output().unwrap()
    }

    pub(crate) fn eval(&self, name: &str, more: &[&str]) -> Output {
        self.command("eval", name, more).output().unwrap()
    }

    /// The scores that `eval` prints.
    pub(crate) fn scores(&self, name: &str, more: &[&str]) -> Value {
        let output = self.eval(name, &[more, &["--json"]].concat());
        assert_code(&output, 0);
        parsed(&output)
    }

    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// A file of a run.
    pub(crate) fn read(&self, name: &str, file: &str) -> String {
        fs::read_to_string(self.folder(name).join(file)).unwrap()
    }

    pub(crate) fn metrics(&self, name: &str) -> String {
        self.read(name, "metrics.jsonl")
    }

    /// The records of a kind, such as `train`.
    pub(crate) fn records(&self, name: &str, kind: &str) -> Vec<Value> {
        let mut records = json_lines(&self.metrics(name));
        records.retain(|record| record["kind"] == kind);
        records
    }

    /// The numbers called `key` in the records of a kind.
    pub(crate) fn numbers(&self, name: &str, kind: &str, key: &str) -> Vec<f64> {
        let records = self.records(name, kind);
        records.iter().map(|record| record[key].as_f64().unwrap()).collect()
    }

    /// A file of a checkpoint.
    pub(crate) fn saved(&self, name: &str, step: u64, file: &str) -> Vec<u8> {
        fs::read(self.folder(name).join(format!("checkpoints/step-{step:08}/{file}"))).unwrap()
    }
}
