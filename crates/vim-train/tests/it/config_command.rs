//! `vim-train config show | get | diff | migrate`, `completions` and `man`.

use std::fs;
use std::process::Output;

use serde_json::json;
use tempfile::TempDir;
use vim_train::config::{Config, VERSION};

use crate::layers::vim_train;
use crate::support::{
    assert_code, assert_lines, assert_parts, assert_says, folder, parsed, set, stderr, stdout,
};

/// It ended well, printed `expected`, and said nothing.
fn assert_prints(output: &Output, expected: &str) {
    assert_code(output, 0);
    assert_eq!((stdout(output).as_str(), stderr(output).as_str()), (expected, ""));
}

fn run(folder: &TempDir, args: &[&str]) -> Output {
    vim_train(folder.path(), args).output().unwrap()
}

fn files() -> TempDir {
    folder(&[
        ("base.toml", "# the base\n[optim]\nlr = 0.01\n\n[data]\nworkers = 2\n"),
        ("fir.toml", "extends = \"base.toml\"\n[data]\nworkers = 4\nprefetch = 2\n"),
    ])
}

#[test]
fn every_value_has_an_origin() {
    let files = files();
    let mut command = vim_train(
        files.path(),
        &["config", "show", "fir.toml", "--origin", "--set", "data.prefetch=3"],
    );
    let output = command.env(vim_kernels::KERNEL_VARIABLE, "0").output().unwrap();
    let text = stdout(&output);
    let lines = [
        "version = 3  # default",
        "lr = 0.01  # base.toml:3",
        "workers = 4  # fir.toml:3",
        "prefetch = 3  # --set",
        "depth = 24  # preset tiny",
        "hflip = 0.5  # preset cifar",
        "scan = \"reference\"  # VIM_USE_CUDA_KERNEL",
        "epochs = 300  # default",
        "eps = 1e-8  # default",
        "# clip_grad is not set",
    ];
    assert_lines(&text, &lines);
    let plain = run(&files, &["config", "fir.toml", "--set", "data.prefetch=3"]);
    let config = |text: &str| Config::from_toml(text).unwrap();
    let same = text.replace("scan = \"reference\"", "scan = \"auto\"");
    assert_eq!(config(&same), config(&stdout(&plain)), "the comments change nothing");

    let args = ["config", "show", "fir.toml", "--origin", "--json"];
    let shown = parsed(&run(&files, &args));
    assert_eq!(shown["optim.lr"], json!({"value": 0.01, "origin": "base.toml:3"}));
}

#[test]
fn what_an_older_version_meant_has_it_for_an_origin() {
    let files = folder(&[("x.toml", "version = 1\n[run]\nseed = 3\n[data]\nval_fraction = 0.1\n")]);
    let lines = [
        "version = 3  # version 1",
        "seed = 3  # x.toml:3",
        "patch_init = \"truncated\"  # version 1",
        "val_fraction = 0.1  # x.toml:5",
        "val_seed = 3  # version 1",
        "val_rule = \"rounded\"  # version 1",
    ];
    let text = stdout(&run(&files, &["config", "show", "x.toml", "--origin"]));
    assert_lines(&text, &lines);
    let written = stdout(&run(&files, &["config", "show", "x.toml", "--set", "data.val_seed=7"]));
    assert_lines(&written, &["val_seed = 7", "val_rule = \"rounded\""]);
}

#[test]
fn show_is_what_config_alone_is() {
    let files = files();
    for more in [&[][..], &["--json"], &["--set", "run.seed=3"]] {
        let plain = run(&files, &[&["config", "fir.toml"], more].concat());
        let show = run(&files, &[&["config", "show", "fir.toml"], more].concat());
        assert_eq!((stdout(&plain), plain.status.code()), (stdout(&show), Some(0)));
    }
}

#[test]
fn one_value() {
    let files = files();
    let get = |key: &str| run(&files, &["config", "get", "fir.toml", key]);
    for (key, expected) in [
        ("data.workers", "4\n"),
        ("run.root", "data/runs\n"),
        ("optim.eps", "1e-8\n"),
        ("optim.betas", "[0.9, 0.999]\n"),
        ("checkpoint", "every = \"1ep\"\nkeep_last = 2\n"),
    ] {
        assert_prints(&get(key), expected);
    }
    let unknown = "error: optim.rl: unknown key, did you mean `lr`? (known: ";
    assert_says(&get("optim.rl"), 78, &[unknown]);
    let unset = "error: train.clip_grad is not set in fir.toml, and has no default\n";
    assert_says(&get("train.clip_grad"), 1, &[unset]);
    let betas = run(&files, &["config", "get", "fir.toml", "optim.betas", "--json"]);
    assert_eq!(parsed(&betas), json!([0.9, 0.999]));
}

#[test]
fn differences_of_files_and_runs() {
    let files = files();
    let show = run(&files, &["config", "fir.toml", "--set", "train.clip_grad=1"]);
    fs::create_dir(files.path().join("run")).unwrap();
    fs::write(files.path().join("run/config.toml"), stdout(&show)).unwrap();

    let output = run(&files, &["config", "diff", "base.toml", "run"]);
    assert_says(&output, 1, &["error: they differ in 3 keys\n"]);
    let text = stdout(&output);
    let cells = |line: &'static str| line.split(" | ").collect::<Vec<_>>();
    let row = |line| -> Vec<&str> {
        str::split(line, "  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
    };
    let expected = [
        "key | base.toml | run",
        "data.prefetch | 4 | 2",
        "data.workers | 2 | 4",
        "train.clip_grad | not set | 1.0",
    ];
    assert!(text.lines().map(row).eq(expected.map(cells)), "{text}");
    let output = run(&files, &["config", "diff", "base.toml", "run", "--json"]);
    assert_eq!(parsed(&output)[2], json!({"key": "train.clip_grad", "a": null, "b": 1.0}));

    assert_prints(&run(&files, &["config", "diff", "fir.toml", "./fir.toml"]), "");
}

#[test]
fn a_sweeps_file_stands_for_its_configuration_without_the_grid() {
    let files = folder(&[
        ("base.toml", "[optim]\nlr = 0.01\n"),
        (
            "sweep.toml",
            "extends = \"base.toml\"\n[optim]\neps = 1e-7\n[sweep]\nname = \"study\"\nseeds = [0, 1]\n",
        ),
        ("other.toml", "extends = \"sweep.toml\"\n[sweep]\nname = \"other\"\n"),
    ]);
    for (key, expected) in [("optim.lr", "0.01\n"), ("sweep.name", "study\n")] {
        assert_prints(&run(&files, &["config", "get", "sweep.toml", key]), expected);
    }
    let differing = |a: &str, b: &str| -> Vec<String> {
        let output = run(&files, &["config", "diff", a, b, "--json"]);
        let json = parsed(&output);
        let rows = json.as_array().unwrap().iter();
        rows.map(|row| row["key"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(differing("base.toml", "sweep.toml"), ["optim.eps"], "a grid is no difference");
    assert_eq!(differing("sweep.toml", "base.toml"), ["optim.eps"]);
    assert_eq!(differing("sweep.toml", "other.toml"), ["sweep.name"]);
    // What trains takes one run.
    assert_says(&run(&files, &["train", "sweep.toml"]), 78, &["the file describes several runs"]);
    // On a CPU there is nothing to warm up, and that is all that is said against it.
    let cpu = "[model]\nimage_size = 32\npatch_size = 8\nd_model = 16\ndepth = 1\n[devices]\nbackend = \"cpu\"\n";
    fs::write(files.path().join("base.toml"), cpu).unwrap();
    assert_says(&run(&files, &["warmup", "sweep.toml"]), 1, &["a CPU has nothing to warm up"]);
    for command in [&["config", "get"][..], &["config", "diff"], &["doctor"], &["warmup"]] {
        let help = stdout(&run(&files, &[command, &["--help"]].concat()));
        let words: Vec<&str> = help.split_whitespace().collect();
        assert!(words.join(" ").contains("without the grid"), "{command:?}: {help}");
    }
}

/// In the form of the original's scripts, written for this test.
const SCRIPT: &str = r"#!/bin/bash
OUT=./output/tiny_rk4_seed$1
torchrun --standalone --nproc_per_node=4 main.py \
    --model vim_tiny_patch16_224_bimambav2_rk4 \
    --batch-size 256 --lr 0.002 --weight-decay 0.05 --drop-path 0 \
    --num_workers 2 --data-set CIFAR --input-size 32 --data-path $SCRATCH/cifar100 \
    --seed $1 --output_dir $OUT --resume $OUT/checkpoint.pth --teacher-tau 2
";

#[test]
fn a_script_becomes_a_configuration() {
    let files = folder(&[("old.sh", SCRIPT)]);
    let output = run(&files, &["config", "migrate", "old.sh", "-o", "new.toml"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "new.toml\n"));
    let said = stderr(&output);
    for line in [
        "not carried over: line 7: --teacher-tau 2: main.py has no such option",
        "not carried over: line 7: --seed $1: the script takes it from outside: --set run.seed=N",
    ] {
        assert!(said.lines().any(|other| other.starts_with(line)), "{line}\n{said}");
    }
    let mut show = vim_train(files.path(), &["config", "new.toml", "--json"]);
    let shown = show.env("SCRATCH", "/scratch/me").output().unwrap();
    assert_eq!(stderr(&shown), "");
    let config = parsed(&shown);
    assert_eq!(config["run"]["name"], "tiny_rk4_seed{run.seed}");
    assert_eq!(config["model"]["discretization"], "rk4");
    assert_eq!(config["data"]["path"], "/scratch/me/cifar100");
    assert_eq!(config["train"]["batch_size"], 1024);
    assert_eq!(config["optim"]["lr"], 0.004);
    assert_eq!(config["train"]["ema"], 0.99996);
    // What no option says, and the original does.
    assert_eq!(config["ssm"]["dt_b_init"], "upstream_zero");
    assert_eq!(config["ssm"]["series"], "taylor");
    assert_eq!(config["augment"]["order"], "reference");
    assert_eq!(config["train"]["shards"], 4);
    assert_parts(&said, &["note: the original's kernels train every method by zoh's gradient"]);

    assert_code(&run(&files, &["config", "migrate", "old.sh", "-o", "new.toml"]), 73);
    let third = run(&files, &["config", "migrate", "old.sh", "--json", "--", "3"]);
    assert_parts(parsed(&third)["config"].as_str().unwrap(), &["name = \"tiny_rk4_seed3\""]);
}

/// Every option that has a key, with a value that it may have.
const OPTIONS: &str = "--batch-size 64 --epochs 30 --bce-loss --input-size 224 --drop 0.1 --drop-path 0.2 --model-ema --model-ema-decay 0.999 --opt adamw --opt-eps 1e-8 --opt-betas 0.9 0.95 --clip-grad 5 --weight-decay 0.1 --sched cosine --lr 1e-3 --warmup-lr 1e-6 --min-lr 1e-5 --warmup-epochs 3 --color-jitter 0.4 --smoothing 0 --repeated-aug --reprob 0.25 --remode pixel --recount 2 --mixup 0.8 --cutmix-minmax 0.2 0.8 --mixup-prob 1 --mixup-switch-prob 0.5 --mixup-mode elem --finetune w.pth --data-path /x --data-set IMNET --output_dir out/a --device cpu --seed 1 --eval-crop-ratio 0.9 --num_workers 3 --if_continue_inf --no_amp";

#[test]
fn every_key_that_migrate_writes_is_one() {
    for more in ["--aa rand-m9-mstd0.5-inc1", "--ThreeAugment --src"] {
        for model in vim_model::REGISTERED {
            let script = format!("python main.py --model {} {OPTIONS} {more}\n", model.name);
            let files = folder(&[("old.sh", &script)]);
            let output = run(&files, &["config", "migrate", "old.sh"]);
            assert_code(&output, 0);
            assert!(!stderr(&output).contains("not carried over"), "{}", stderr(&output));
            let config = Config::from_toml(&stdout(&output)).unwrap();
            assert_parts(&stdout(&output), &[&format!("\nversion = {VERSION}\n")]);
            assert_eq!(config.model.preset, model.preset);
            assert_eq!(config.model.discretization, model.discretization);
        }
    }
}

/// The original's loss with its default smoothing would make every class a target.
#[test]
fn a_migrated_binary_cross_entropy_trains() {
    let script = "python main.py --model vim_tiny_patch16_224_bimambav2_rk4 --bce-loss \
                  --batch-size 16 --num_workers 1 --output_dir out/a\n";
    let files = folder(&[("old.sh", script)]);
    let output = run(&files, &["config", "migrate", "old.sh", "-o", "new.toml"]);
    assert_code(&output, 0);
    let dropped = "not carried over: line 1: --smoothing 0.1, main.py's default: --bce-loss makes";
    assert_parts(&stderr(&output), &[dropped]);
    let toy = set(&[
        "model.image_size=32",
        "model.patch_size=8",
        "model.depth=1",
        "model.d_model=32",
        "model.d_state=4",
        "data.dataset=shapes",
        "data.shapes.train=64",
        "data.shapes.val=16",
        "data.shapes.test=16",
        "devices.backend=cpu",
    ]);
    assert_code(&run(&files, &[&["train", "new.toml", "--steps", "2"][..], &toy].concat()), 0);
}

#[test]
fn a_broken_script_is_an_error_with_its_line() {
    let unfinished = SCRIPT.replace("--drop-path 0 \\", "--drop-path 0");
    let conflict = format!("<<<<<<< HEAD\n{SCRIPT}=======\n>>>>>>> other\n");
    for (text, expected) in [
        (
            unfinished.as_str(),
            "error: old.sh:5: this line ends without a backslash, and the options `--num_workers 2 --data-set CIFAR",
        ),
        (conflict.as_str(), "error: old.sh:1: `<<<<<<<` marks a merge that was never finished"),
        ("echo\n", "error: old.sh: no command starts main.py"),
        (
            "python main.py --model vim_tiny_patch16_224_bimambav2_rk5\n",
            "error: old.sh:1: --model: unknown model `vim_tiny_patch16_224_bimambav2_rk5`, did you mean `vim_tiny_patch16_224_bimambav2_rk4`?\n",
        ),
    ] {
        let files = folder(&[("old.sh", text)]);
        let output = run(&files, &["config", "migrate", "old.sh"]);
        let said = stderr(&output);
        assert!(said.starts_with(expected), "{said}");
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(65), ""), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    // What is no value of its key is the configuration's mistake.
    let text = format!("{} --remode noise\n", SCRIPT.trim_end());
    let files = folder(&[("old.sh", &text)]);
    let noise = "augment.erase_mode: unknown value `noise`";
    assert_says(&run(&files, &["config", "migrate", "old.sh"]), 78, &[noise]);
}

#[test]
fn completions_and_manual_pages() {
    let files = folder(&[]);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&files, &["completions", shell]);
        assert_code(&output, 0);
        assert_parts(&stdout(&output), &["vim-train", "migrate"]);
    }
    assert_code(&run(&files, &["completions", "tcsh"]), 2);

    assert_prints(&run(&files, &["man", "man/man1"]), "man/man1\n");
    for page in ["vim-train", "vim-train-train", "vim-train-config", "vim-train-config-migrate"] {
        let text = fs::read_to_string(files.path().join(format!("man/man1/{page}.1"))).unwrap();
        assert!(text.contains(".TH"), "{page}");
    }
    assert_code(&run(&files, &["man", "man/man1"]), 73);
    assert_prints(&run(&files, &["man", "man/man1", "--force"]), "man/man1\n");
    // The synopsis is that of --help: the options' values, in their order.
    let text = fs::read_to_string(files.path().join("man/man1/vim-train-eval.1")).unwrap();
    assert!(text.contains(" [OPTIONS] [CONFIG|RUN]"), "{text}");
}
