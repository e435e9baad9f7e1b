//! Files over files, and variables in paths.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use vim_engine::config::{Config, ConfigError};

use crate::support::{
    self, assert_code, assert_says, cifar_archive, folder, parsed, read_json, stderr, stdout,
};

/// `vim-train` with these arguments in `folder`, where paths are as short as a user's.
pub(crate) fn vim_train(folder: &Path, args: &[&str]) -> Command {
    let mut command = support::vim_train(args);
    command.current_dir(folder).env_remove("NOWHERE");
    command
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
    assert_eq!((config.model.depth, config.model.patch_size), (2, 4));
    assert_eq!((config.data.shapes.train, config.data.shapes.val), (10, 7));
    assert_eq!((config.data.workers.count(), config.optim.lr), (2, 0.2));
    let text = config.to_toml();
    assert!(!text.contains("extends") && text.starts_with("version = 3\n"), "{text}");
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
        parsed(&output)
    };
    let config = json(&[]);
    assert_eq!(config["run"]["root"], "/scratch/me/runs");
    assert_eq!(config["data"]["path"], "/tmp//scratch/me");
    assert_eq!(config["train"]["init"], "/scratch/me");
    assert_eq!(config["run"]["name"], "$x{run.seed}", "a name is no path");
    let config = json(&["--set", "data.index_cache=${PLACE}/index"]);
    assert_eq!(config["data"]["index_cache"], "/scratch/me/index");
    let config = json(&[
        "--set",
        "data.path=$PLACE/$$x",
        "--set",
        "data.val_path=./~",
        "--set",
        "data.dataset=folder",
    ]);
    assert_eq!(config["data"]["path"], "/scratch/me/$x");
    assert_eq!(config["data"]["val_path"], "./~");

    // In files of earlier versions braces alone made a variable.
    let old = json(&["--set", "version=2", "--set", "data.index_cache=$NOWHERE"]);
    assert_eq!(old["train"]["init"], "$PLACE");
    assert_eq!(old["data"]["index_cache"], "$NOWHERE");
    let plain = json(&["--set", "version=2", "--set", "data.index_cache=/a:-~b/${PLACE}:-~/$x"]);
    assert_eq!(plain["data"]["index_cache"], "/a:-~b//scratch/me:-~/$x");
    assert_eq!(old["run"]["root"], "/scratch/me/runs");
    for (set, expected) in [
        ("data.path=$NOWHERE/x", "data.path: the environment variable `NOWHERE` is not set"),
        ("run.root=~you/runs", "run.root: `~you` is no folder here"),
    ] {
        let args = ["config", "run.toml", "--set", set];
        let output = vim_train(files.path(), &args).env("PLACE", "/scratch/me").output().unwrap();
        assert_says(&output, 78, &[&format!("error: from --set {set}: {expected}")]);
    }
}

#[test]
fn no_word_of_the_command_line_makes_a_folder_called_tilde() {
    let files = folder(&[("x.toml", "")]);
    for words in [&["data", "show", "x.toml", "--out=~/a.png"][..], &["config", "~/x.toml"]] {
        let word = words[words.len() - 1];
        let expected = format!("error: `{word}`: the shell leaves this `~` as it is: write $HOME");
        assert_says(&vim_train(files.path(), words).output().unwrap(), 2, &[&expected]);
        assert!(!files.path().join("~").exists());
    }
}

#[test]
fn a_run_is_at_home_and_its_data_are_found_from_anywhere() {
    let files = folder(&[
        ("home/x", ""),
        (
            "work/run.toml",
            "[run]\nroot = \"~/runs\"\nname = \"a\"\n[model]\nimage_size = 32\npatch_size = 8\nd_model = 16\ndepth = 1\n[data]\ndataset = \"cifar10\"\npath = \"../$DATA\"\nval_fraction = 0\n[train]\nbatch_size = 4\nsteps = 1\n[devices]\nbackend = \"cpu\"\n",
        ),
    ]);
    let at = |name: &str| files.path().join(name);
    cifar_archive(&at("cifar.tar"), "cifar10", &["--train", "20", "--test", "10"]);
    let run = |from: &str, args: &[&str]| {
        let mut command = vim_train(&at(from), args);
        command.env("HOME", at("home")).env("DATA", "cifar.tar").output().unwrap()
    };
    assert_code(&run("work", &["train", "run.toml"]), 0);
    assert!(!at("work/~").exists());
    let paths = read_json(at("home/runs/a/paths.json"));
    let resolved = at("work/../cifar.tar").display().to_string();
    assert_eq!(paths["data.path"]["resolved"], resolved);
    assert_eq!(paths["data.path"]["given"], "../$DATA");
    assert_eq!(paths["run.root"]["given"], "~/runs");

    let recorded = at("home/runs/a").display().to_string();
    assert_code(&run("home", &["eval", &recorded]), 0);
    let config = format!("{recorded}/config.toml");
    assert_says(&run("home", &["train", &config, "--resume", "auto"]), 0, &["finished"]);
    let path = run("home", &["config", "get", &recorded, "data.path"]);
    assert_eq!(stdout(&path).trim(), resolved);

    // Moved together: the path as given leads there.
    for name in ["home", "work", "cifar.tar"] {
        fs::create_dir_all(at("there")).unwrap();
        fs::rename(at(name), at("there").join(name)).unwrap();
    }
    let moved = at("there/home/runs/a").display().to_string();
    let read = at("there/work/../cifar.tar").display().to_string();
    let note =
        format!("note: data.path: `{resolved}`, as recorded, is not there; `{read}` is read");
    assert_says(&run("there/work", &["eval", &moved]), 0, &[&note]);
    let neither = format!("`{resolved}`, as recorded, is not there; ");
    assert_says(&run("", &["eval", &moved]), 65, &[&neither, "is not there, either", "cifar.tar"]);
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
        assert_code(&vim_train(files.path(), args).output().unwrap(), 0);
    };
    run(&["train", "x.toml"]);
    let recorded = fs::read_to_string(files.path().join("data/runs/zoh-s0/config.toml")).unwrap();
    assert!(recorded.contains("depth = 1\n") && !recorded.contains("extends"), "{recorded}");
    run(&["train", "x.toml", "--resume", "auto"]);
    // From another folder the run's own file begins no second run.
    fs::create_dir(files.path().join("else")).unwrap();
    let own = ["train", "../data/runs/zoh-s0/config.toml", "--resume", "auto"];
    let other = vim_train(&files.path().join("else"), &own).output().unwrap();
    let root = files.path().join("data/runs").canonicalize().unwrap().display().to_string();
    let way = format!("run.root={root}");
    assert_says(
        &other,
        78,
        &["run.root: the file is of the run in ", &format!("--set {way} goes")],
    );
    assert!(!files.path().join("else/data").exists());
    let with_root = [&own[..], &["--set", &way]].concat();
    let found = vim_train(&files.path().join("else"), &with_root).output().unwrap();
    assert_says(&found, 0, &["is finished"]);
    run(&["eval", "x.toml"]);
    run(&["flops", "--config", "x.toml"]);
}
