//! Files over files, variables in paths, versions; and what is said of wrong ones, word for word.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use vim_kernels::KERNEL_VARIABLE;
use vim_train::config::{Config, ConfigError};

/// A folder with these files.
pub(crate) fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// `vim-train` with these arguments in `folder`, where paths are as short as a user's.
pub(crate) fn vim_train(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vim-train"));
    command.args(args).current_dir(folder).env_remove(KERNEL_VARIABLE).env_remove("NOWHERE");
    command
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn load(folder: &TempDir, name: &str, sets: &[&str]) -> Result<Config, ConfigError> {
    let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
    Config::load(&folder.path().join(name), &sets)
}

#[test]
fn a_file_stands_over_what_it_extends() {
    let files = folder(&[
        ("base/tiny.toml", "version = 1\n[model]\ndepth = 3\npatch_size = 4\n[optim]\nlr = 0.1"),
        ("base/data.toml", "data = { workers = 2, shapes = { train = 10 } }\n[optim]\nlr = 0.2"),
        ("run.toml", "extends = [\"base/tiny.toml\", \"base/data.toml\"]\n[model]\ndepth = 2"),
    ]);
    let config = load(&files, "run.toml", &["data.shapes.val=7"]).unwrap();
    assert_eq!((config.model.depth, config.model.patch_size), (Some(2), Some(4)));
    assert_eq!((config.data.shapes.train, config.data.shapes.val), (10, 7));
    assert_eq!((config.data.workers.count(), config.optim.lr), (2, 0.2));
    let text = config.to_toml();
    assert!(!text.contains("extends") && text.starts_with("version = 1\n"), "{text}");
    assert_eq!(Config::from_toml(&text).unwrap(), config, "what is recorded needs no other file");
}

#[test]
fn variables_are_filled_in_where_paths_are() {
    let files = folder(&[(
        "run.toml",
        "[run]\nroot = \"${PLACE}/runs\"\nname = \"$x{run.seed}\"\n[data]\npath = \"${NOWHERE:-/tmp}/${PLACE:-x}\"\n[train]\ninit = \"$PLACE\"\n",
    )]);
    let json = |sets: &[&str]| -> Value {
        let args = [&["config", "run.toml", "--json"], sets].concat();
        let output = vim_train(files.path(), &args).env("PLACE", "/scratch/me").output().unwrap();
        assert_eq!(stderr(&output), "");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let config = json(&[]);
    assert_eq!(config["run"]["root"], "/scratch/me/runs");
    assert_eq!(config["data"]["path"], "/tmp//scratch/me");
    assert_eq!(config["train"]["init"], "$PLACE", "only braces make a variable");
    assert_eq!(config["run"]["name"], "$x{run.seed}", "a name is no path");
    let config = json(&["--set", "data.index_cache=${PLACE}/index"]);
    assert_eq!(config["data"]["index_cache"], "/scratch/me/index");
}

/// Files, arguments behind `vim-train`, and all that stderr says. `x.toml` is what is asked for.
type Row = (&'static [(&'static str, &'static str)], &'static [&'static str], &'static str);

const WRONG: &[Row] = &[
    (
        &[("x.toml", "[model]\ndiscretization = \"tustin4\"\n")],
        &[],
        "error: x.toml:2:18: model.discretization: unknown value `tustin4` (known: zoh, foh, bilinear, poly, highorder, rk4)
  |
2 | discretization = \"tustin4\"
  |                  ^^^^^^^^^
",
    ),
    (
        &[("x.toml", "trian = 1\n")],
        &[],
        "error: x.toml:1:1: trian: unknown key, did you mean `train`? (known: KEYS)
  |
1 | trian = 1
  | ^^^^^
",
    ),
    (
        &[("x.toml", "[log]\nevry = \"1ep\"\n")],
        &[],
        "error: x.toml:2:1: log.evry: unknown key, did you mean `every`? (known: every)
  |
2 | evry = \"1ep\"
  | ^^^^
",
    ),
    (
        &[("x.toml", "[data.shapes]\nsede = 1\n")],
        &[],
        "error: x.toml:2:1: data.shapes.sede: unknown key, did you mean `seed`? (known: image_size, seed, test, train, val)
  |
2 | sede = 1
  | ^^^^
",
    ),
    (
        &[
            ("x.toml", "extends = \"a/one.toml\"\n"),
            ("a/one.toml", "extends = [\"two.toml\"]\n"),
            ("a/two.toml", "[run]\nseed = 1\n"),
            ("y.toml", ""),
        ],
        &["--set", "extends=y.toml"],
        "error: from --set extends=y.toml: extends: only a file can extend others\n",
    ),
    (
        &[
            ("x.toml", "extends = \"a/one.toml\"\n"),
            ("a/one.toml", "extends = [\"two.toml\"]\n"),
            ("a/two.toml", "extends = \"one.toml\"\n"),
        ],
        &[],
        "error: a/two.toml:1:11: extends: a cycle: a/one.toml → a/two.toml → a/one.toml
  |
1 | extends = \"one.toml\"
  |           ^^^^^^^^^^
",
    ),
    (
        &[("x.toml", "extends = [\n  \"bsae.toml\",\n]\n")],
        &[],
        "error: x.toml:2:3: extends: bsae.toml cannot be read: No such file or directory (os error 2)
  |
2 |   \"bsae.toml\",
  |   ^^^^^^^^^^^
",
    ),
    (
        &[("x.toml", "extends = 3\n")],
        &[],
        "error: x.toml:1:11: extends: expected the name of a file, or a list of names, relative to this file
  |
1 | extends = 3
  |           ^
",
    ),
    (
        &[("x.toml", "[data]\npath = \"${NOWHERE}/cifar\"\n")],
        &[],
        "error: x.toml:2:8: data.path: the environment variable `NOWHERE` is not set: export it, or write a default, as in ${NOWHERE:-/some/folder}
  |
2 | path = \"${NOWHERE}/cifar\"
  |        ^^^^^^^^^^^^^^^^^^
",
    ),
    (
        &[("x.toml", "")],
        &["--set", "run.root=${NOWHERE"],
        "error: from --set run.root=${NOWHERE: run.root: `${NOWHERE` is no variable: write ${NAME} or ${NAME:-default}\n",
    ),
    (
        &[("x.toml", "[train]\nbatch_size = 128\naccumulate = 3\n")],
        &[],
        "error: x.toml:3:14: train.accumulate: 3 is out of range: expected 1 or more, and a divisor of train.batch_size = 128
  |
3 | accumulate = 3
  |              ^
",
    ),
    (
        &[("x.toml", "version = 2\n[new_section]\nkey = 1\n")],
        &[],
        "error: x.toml:1:11: version: 2 is unknown, this vim-train reads version 1: use the vim-train that the file was written for, or correct the number
  |
1 | version = 2
  |           ^
",
    ),
    (
        &[("x.toml", "version = \"1\"\n")],
        &[],
        "error: x.toml:1:11: version: invalid type: string \"1\", expected an integer, 0 or more
  |
1 | version = \"1\"
  |           ^^^
",
    ),
    (
        &[
            ("x.toml", "extends = \"base.toml\"\n[optim]\nlr = 0.1\n"),
            ("base.toml", "[train]\n\nepochs = 0\n"),
        ],
        &[],
        "error: base.toml:3:10: train.epochs: 0 is out of range: expected 1 or more
  |
3 | epochs = 0
  |          ^
",
    ),
    (
        &[
            ("x.toml", "extends = \"base.toml\"\n[train]\nepochs = 3\n"),
            ("base.toml", "[train]\nepochs = \"many\"\n"),
        ],
        &[],
        "error: base.toml:2:10: train.epochs: invalid type: string \"many\", expected an integer, 0 or more
  |
2 | epochs = \"many\"
  |          ^^^^^^
",
    ),
    (
        &[("x.toml", "extends = \"base.toml\"\n"), ("base.toml", "[train\n")],
        &[],
        "error: base.toml:1:7: not valid TOML: unclosed table, expected `]`
  |
1 | [train
  |       ^
",
    ),
];

#[test]
fn wrong_configurations_and_all_that_is_said_of_them() {
    let keys = "augment, checkpoint, data, devices, extends, log, model, optim, run, slurm, ssm, sweep, train, version";
    for (files, args, expected) in WRONG {
        let folder = folder(files);
        let args = [&["config", "show", "x.toml"], *args].concat();
        let output = vim_train(folder.path(), &args).output().unwrap();
        assert_eq!(stderr(&output), expected.replace("KEYS", keys), "{files:?}");
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(78), ""), "{files:?}");
    }
}

#[test]
fn all_that_loads_a_configuration_takes_layers() {
    let files = folder(&[
        ("base.toml", "[model]\nimage_size = 32\npatch_size = 8\nd_model = 16\ndepth = 1\n"),
        (
            "x.toml",
            "extends = \"base.toml\"\n[data.shapes]\ntrain = 8\nval = 2\ntest = 2\n[train]\nbatch_size = 4\nepochs = 1\n[devices]\nbackend = \"cpu\"\n",
        ),
    ]);
    let run = |args: &[&str]| {
        let output = vim_train(files.path(), args).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        stdout(&output)
    };
    run(&["train", "x.toml"]);
    let recorded = fs::read_to_string(files.path().join("data/runs/zoh-s0/config.toml")).unwrap();
    assert!(recorded.contains("depth = 1\n") && !recorded.contains("extends"), "{recorded}");
    run(&["train", "x.toml", "--resume", "auto"]);
    run(&["eval", "x.toml"]);
    run(&["flops", "--config", "x.toml"]);
}
