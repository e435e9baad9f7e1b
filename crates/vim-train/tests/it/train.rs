//! `train` and `eval` of the built binary, on `configs/debug.toml`.

use serde_json::Value;
use strum::VariantArray;
use vim_kernels::{Discretization, KERNEL_VARIABLE};

use crate::support::{
    Bench, assert_code, assert_parts, assert_says, cifar_archive, parsed, read_json, run, set,
    stderr, stdout,
};

/// The reverse way's delta begins near ln 2, and |A| ends at 16.
#[test]
fn arguments_beyond_a_polynomial_s_range_are_warned_of_in_every_task() {
    let fixture = |name: &str| format!("crates/vim-train/tests/it/fixtures/{name}.toml");
    let tasks = ["configs/debug.toml".to_owned(), fixture("segment"), fixture("detect")];
    for config in tasks {
        let bench = Bench::of(&config);
        for backend in if cfg!(feature = "wgpu") { &["cpu", "wgpu"][..] } else { &["cpu"] } {
            for method in ["rk4", "bilinear"] {
                let name = format!("{backend}-{method}");
                let sets = [
                    &format!("devices.backend={backend}"),
                    &format!("model.discretization={method}"),
                    "model.d_state=16",
                    "ssm.dt_b_init=upstream_zero",
                    "log.every=1st",
                ];
                let more = [&set(&sets)[..], &["--steps", "2"]].concat();
                assert_code(&bench.train(&name, &more), 0);
                let log = bench.read(&name, "log.txt");
                let reaches = log.split("warning: |delta·A| reaches ").nth(1);
                let Some(after) = reaches.filter(|_| method == "rk4") else {
                    assert!(method != "rk4" && reaches.is_none(), "{config} {name}: {log}");
                    continue;
                };
                let (largest, rest) = after.split_once(';').unwrap();
                let largest: f64 = largest.parse().unwrap();
                assert!((8.0..16.0).contains(&largest), "{config} {name}: {largest}");
                assert!(rest.starts_with(" rk4 under series "), "{config} {name}: {rest}");
                assert_eq!(log.matches("|delta·A|").count(), 1, "{config} {name}: {log}");
            }
        }
    }
}

/// What a full A has more than a diagonal one is counted by a dry run as in a run, though nobody
/// counts its operations; running statistics are not. A CPU has nothing to keep, as each task says.
#[test]
fn a_full_a_is_trained_and_its_numbers_are_counted_in_every_task() {
    let fixture = |name: &str| format!("crates/vim-train/tests/it/fixtures/{name}.toml");
    for config in ["configs/debug.toml".to_owned(), fixture("segment"), fixture("detect")] {
        let bench = Bench::of(&config);
        let numbers = |text: &str| -> i64 {
            let line = text.lines().find(|line| line.contains(" parameters, "));
            let words = line.unwrap_or_else(|| panic!("{config}: {text}")).split_whitespace();
            words.skip_while(|word| *word != "model").nth(1).unwrap().parse().unwrap()
        };
        let [diagonal, full] = ["diagonal", "full"].map(|a| {
            let a_is = format!("ssm.a={a}");
            let sets = set(&[&a_is, "model.discretization=bilinear", "train.recompute=nothing"]);
            let dry = bench.train(a, &[&sets[..], &["--dry-run"]].concat());
            assert_code(&dry, 0);
            assert_code(&bench.train(a, &[&sets[..], &["--steps", "1"]].concat()), 0);
            let (said, log) =
                (format!("{}{}", stdout(&dry), stderr(&dry)), bench.read(a, "log.txt"));
            assert!(log.contains("train.recompute changes nothing here"), "{config}: {log}");
            assert_eq!(numbers(&said), numbers(&log), "{config} {a}");
            numbers(&said)
        });
        assert!(full > diagonal, "{config}: {full} {diagonal}");
    }
}

/// How a run ended.
fn exit(bench: &Bench, name: &str) -> Value {
    read_json(bench.folder(name).join("exit.json"))
}

/// Without held-out images the test images are evaluated as training goes on, and nothing else
/// differs from a run that tests at its end alone.
#[test]
fn watched_test_images_choose_nothing() {
    let bench = Bench::new();
    let sets = |watch: &'static str| set(&["data.shapes.val=0", "train.ema=0.8", watch]);
    let (on, off) = (sets("data.watch_test=true"), sets("data.watch_test=false"));
    assert_code(&bench.train("on", &on), 0);
    assert_code(&bench.train("off", &off), 0);
    let tested = |name: &str| -> Vec<(u64, String)> {
        let records = bench.records(name, "eval");
        assert!(records.iter().all(|r| r["split"] == "test" && r["checkpoint"] == "last"));
        let step = |r: &Value| (r["step"].as_u64().unwrap(), r["weights"].as_str().unwrap().into());
        records.iter().map(step).collect()
    };
    let at = |step: u64| [(step, "model".to_owned()), (step, "ema".to_owned())];
    assert_eq!(tested("on"), [at(8), at(16), at(24)].concat());
    assert_eq!(tested("off"), at(24));
    let metrics = bench.metrics("on");
    let unwatched =
        metrics.lines().filter(|line| !line.contains("\"test\"") || line.contains("\"step\":24,"));
    assert!(unwatched.eq(bench.metrics("off").lines()), "{metrics}");
    for file in ["model.safetensors", "ema.safetensors", "optimizer.safetensors"] {
        assert!(bench.saved("on", 24, file) == bench.saved("off", 24, file), "{file}");
    }
    assert!(!bench.folder("on/checkpoints/best").exists());
    assert_parts(&bench.read("on", "log.txt"), &["the test images are watched", "test at step 8"]);
    assert!(!bench.read("off", "log.txt").contains("watched"));

    // It resumes to the same bytes, and may be switched off on the way.
    let resumed = |name: &str, sets: &[&str]| {
        assert_code(&bench.train(name, &[&on[..], &["--steps", "11"]].concat()), 0);
        assert_code(&bench.train(name, &[sets, &["--resume", "must"]].concat()), 0);
        bench.metrics(name)
    };
    assert_eq!(resumed("again", &on), metrics);
    resumed("switched", &off);
    assert_eq!(tested("switched"), [at(8), at(24)].concat());

    // The curve is of the test images, and says so.
    let show = run(&["runs", "show", bench.folder("on").to_str().unwrap()]);
    assert_code(&show, 0);
    let lines = stdout(&show);
    assert_eq!(lines.lines().filter(|line| line.starts_with("test top-1")).count(), 1, "{lines}");
    assert!(!lines.contains("val top-1"), "{lines}");

    // With validation images it makes no difference.
    let short = ["--set", "train.epochs=1"];
    assert_code(&bench.train("val", &short), 0);
    assert_code(&bench.train("val-off", &[&short[..], &off[4..]].concat()), 0);
    assert_eq!(bench.metrics("val"), bench.metrics("val-off"));
}

#[test]
fn a_run_leaves_its_result_and_its_record() {
    let bench = Bench::new();
    let output = bench.train("a", &[]);
    assert_code(&output, 0);
    let test = bench.records("a", "eval").into_iter().find(|r| r["split"] == "test").unwrap();
    let top1 = test["top1"].as_f64().unwrap();
    let line = format!("test top-1 {:.2} %", top1 * 100.0);
    assert_eq!(stdout(&output).lines().last(), Some(line.as_str()));
    for file in ["config.toml", "env.json", "timing.jsonl", "log.txt", "checkpoints/best"] {
        assert!(bench.folder("a").join(file).is_file(), "{file}");
    }
    assert_eq!(exit(&bench, "a")["reason"], "finished");
    let kernels = "fused kernels: add_rms_norm, causal_conv1d, mixer_inner, selective_scan";
    assert_parts(&bench.read("a", "log.txt"), &[kernels]);

    // Twelve records of two steps each, three evaluations on val, one on test.
    let steps = bench.numbers("a", "train", "step");
    assert_eq!(steps, (1..=12).map(|i| 2.0 * f64::from(i)).collect::<Vec<_>>());
    let losses = bench.numbers("a", "train", "loss");
    // 24 steps of a toy model, augmented: a little below where it started, ln 12 = 2.485.
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    assert!(mean(&losses[9..]) < mean(&losses[..3]) - 0.01, "it does not learn: {losses:?}");
    assert_eq!(bench.records("a", "eval").len(), 4);

    // `eval` agrees with what training wrote, of the same weights.
    for (which, step) in [("best", test["step"].clone()), ("last", Value::from(24))] {
        let scores = bench.scores("a", &["--checkpoint", which]);
        assert_eq!(scores["step"], step);
        if step == test["step"] {
            assert_eq!(scores["top1"], test["top1"]);
            assert_eq!(scores["loss"], test["loss"]);
        }
    }
}

#[test]
fn a_folder_with_a_run_is_not_touched_unasked() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &[]), 0);
    let before = bench.metrics("a");
    assert_says(&bench.train("a", &[]), 73, &["--resume auto", "--fresh"]);

    let finished = bench.train("a", &["--resume", "auto"]);
    assert_code(&finished, 0);
    assert!(stderr(&finished).contains("is finished"));
    assert!(stdout(&finished).starts_with("test top-1 "));
    assert_eq!(bench.metrics("a"), before);

    assert_code(&bench.train("a", &["--fresh", "--set", "run.seed=1"]), 0);
    assert_eq!(bench.metrics("a.old-1"), before);
    assert_ne!(bench.metrics("a"), before, "another seed is another run");
}

#[test]
fn the_same_numbers_with_any_number_of_threads() {
    let bench = Bench::new();
    // Large enough for matrix products and the scan to be shared out among threads.
    let run = |name, workers, threads| {
        let (workers, threads) =
            (format!("data.workers={workers}"), format!("devices.threads={threads}"));
        let size = ["model.d_model=128", "train.batch_size=128", "model.patch_size=4"];
        let sets = set(&[&size[..], &[&workers, &threads]].concat());
        assert_code(&bench.train(name, &[&sets[..], &["--steps", "2"]].concat()), 0);
        bench.metrics(name)
    };
    assert_eq!(run("a", 1, 1), run("b", 5, 3));
}

#[test]
fn every_method_trains_and_kernel_and_reference_agree() {
    // Beside the three operations that are chosen, those of a segmenter's heads have kernels.
    for (config, others) in [
        ("configs/debug.toml", ""),
        (
            "crates/vim-train/tests/it/fixtures/segment.toml",
            "channel_sums, conv3x3, resize, resize_nll, scale_shift",
        ),
    ] {
        let bench = Bench::of(config);
        for method in Discretization::VARIANTS {
            let losses = losses_of_both(&bench, *method, others);
            // Steps of f32 that differ in rounding only; the losses are 1 to 3.
            assert!((losses[0] - losses[1]).abs() < 1e-4, "{config} {method}: {losses:?}");
        }
    }
}

/// The losses of the last steps by kernels and by reference operations, which say what ran.
fn losses_of_both(bench: &Bench, method: Discretization, others: &str) -> Vec<f64> {
    let method = format!("model.discretization={method}");
    let chosen = ["add_rms_norm", "causal_conv1d", "selective_scan"];
    let both = [("kernel", "fused kernels"), ("reference", "reference operations")];
    let loss = |(scan, label): (&str, &str)| {
        let scan = format!("ssm.scan={scan}");
        let more = ["--set", &method, "--set", &scan, "--steps", "4", "--fresh"];
        assert_code(&bench.train("a", &more), 0);
        let log = bench.read("a", "log.txt");
        // A process of its own says what ran in it: each operation as chosen, and nothing else.
        let said = |label: &str| -> Vec<&str> {
            let lines = log.lines().filter_map(|line| line.split_once(&format!("{label}: ")));
            lines.flat_map(|(_, names)| names.split(", ")).collect()
        };
        let mut expected: Vec<&str> = chosen.to_vec();
        let always: Vec<&str> = others.split(", ").filter(|name| !name.is_empty()).collect();
        if scan.ends_with("kernel") {
            // Which has the convolution and the scan in it.
            expected.push("mixer_inner");
            expected.extend(&always);
            expected.sort_unstable();
            assert!(said("reference operations").is_empty(), "{log}");
        } else {
            assert_eq!(said("fused kernels"), always, "{log}");
        }
        assert_eq!(said(label), expected, "{log}");
        bench.numbers("a", "train", "loss")[1]
    };
    both.map(loss).to_vec()
}

#[test]
fn the_environment_chooses_the_scan_and_set_overrules_it() {
    let bench = Bench::new();
    let ran = |more: &[&str], flag: &str| {
        let more = [&["--steps", "1", "--fresh"], more].concat();
        let output =
            bench.command("train", "a", &more).env(KERNEL_VARIABLE, flag).output().unwrap();
        assert_code(&output, 0);
        let log = bench.read("a", "log.txt");
        log.lines().any(|line| line.contains("fused kernels: ") && line.contains("selective_scan"))
    };
    assert!(ran(&[], "1") && !ran(&[], "0"));
    assert!(ran(&["--set", "ssm.scan=kernel"], "0"));
}

#[test]
fn divergence_stops_with_the_step_and_keeps_the_last_checkpoint() {
    let bench = Bench::new();
    // The rate climbs over four steps to one that no model survives; the first step is saved.
    let sets = ["optim.lr=1e18", "optim.warmup_lr=1e-3", "checkpoint.every=\"1st\""];
    assert_code(&bench.train("a", &set(&sets)), 76);
    let exit = exit(&bench, "a");
    assert_eq!((exit["reason"].as_str(), exit["exit_code"].as_u64()), (Some("diverged"), Some(76)));
    let error = exit["error"].as_str().unwrap();
    let saved =
        bench.folder("a").join(format!("checkpoints/step-{:08}", exit["step"].as_u64().unwrap()));
    let saved_at = saved.to_str().unwrap();
    assert_parts(error, &["diverged at step", saved_at]);
    assert!(saved.join("model.safetensors").is_file());
    assert_code(&bench.eval("a", &["--checkpoint", saved_at]), 0);
    assert!(!bench.metrics("a").contains("null"), "no number that is not one is recorded");
}

#[test]
fn what_is_not_there_has_a_code_of_its_own() {
    let bench = Bench::new();
    if !cfg!(feature = "cuda") {
        let cuda = bench.train("a", &["--set", "devices.backend=cuda"]);
        assert_says(&cuda, 69, &["--features cuda"]);
    }
    let missing = ["--set", "data.dataset=cifar100", "--set", "data.path=/no/such/archive"];
    let expected = "failed to read `/no/such/archive`: there is no such file or folder; set \
                    `data.path` to where the images are (docs/data.md)";
    assert_says(&bench.train("a", &missing), 65, &[expected]);
    let wrong_size = bench.train("a", &["--set", "model.image_size=64"]);
    assert_says(&wrong_size, 78, &["model.image_size"]);
    assert_code(&bench.train("a", &["--set", "train.batch_size=1000"]), 78);
    assert_code(&bench.eval("a", &[]), 74);
    assert!(!bench.folder("a").exists(), "a mistake leaves no folder behind");

    assert_code(&bench.train("a", &["--steps", "1"]), 0);
    let other = ["--checkpoint", "last", "--set", "model.discretization=foh"];
    // Weights look the same under any method.
    assert_says(&bench.eval("a", &other), 78, &["model.discretization"]);
    let last = bench.folder("a").join("checkpoints/step-00000001");
    let other = ["--checkpoint", last.to_str().unwrap(), "--set", "model.d_model=48"];
    assert_says(&bench.eval("a", &other), 78, &["model.d_model (recorded 32, now 48)"]);
    let other = [&other[..], &["--allow", "model"]].concat();
    let shapes = "cls_token (expected [1, 1, 48], got [1, 1, 32])";
    assert_says(&bench.eval("a", &other), 65, &[shapes]);
}

#[test]
fn cifar_archives_train_as_they_were_downloaded() {
    let bench = Bench::new();
    for format in ["binary", "python"] {
        let archive = bench.folder(&format!("cifar-100-{format}.tar.gz"));
        let size = ["--format", format, "--train", "128", "--test", "32"];
        cifar_archive(&archive, "cifar100", &size);
        let path = format!("data.path={}", archive.display());
        assert_code(&bench.train(format, &set(&["data.dataset=cifar100", &path])), 0);
        assert_eq!(bench.records(format, "train").len(), 6);
    }
    // The two versions hold the same images, so the runs are the same.
    assert_eq!(bench.metrics("binary"), bench.metrics("python"));
}

#[test]
fn a_dry_run_makes_nothing() {
    let bench = Bench::new();
    let output = bench.train("a", &["--dry-run", "--steps", "4"]);
    assert_code(&output, 0);
    assert!(!bench.folder("a").exists());
    let said = stdout(&output);
    let expected = format!("run {}: a new run\n", bench.folder("a").display());
    assert!(said.starts_with(&expected), "{said}");
    let steps = "\nsteps 24, 8 an epoch, 3 epochs, stops after 4\n";
    let parts = [steps, " compute thread", "\nbatch ", "\nmemory ", " for checkpoints, "];
    assert_parts(&said, &[&parts[..], &["\nnothing was started\n"]].concat());

    // What was recorded is what was said.
    assert_code(&bench.train("a", &["--steps", "4"]), 0);
    let recorded = |line: &&str| line.starts_with("data ") || line.contains(" compute ");
    let recorded: Vec<&str> = said.lines().filter(recorded).collect();
    assert_parts(&bench.read("a", "log.txt"), &recorded);
    let found = |more: &[&str]| -> Value {
        let output = bench.train("a", &[&["--dry-run", "--json"], more].concat());
        assert_code(&output, 0);
        parsed(&output)["found"].clone()
    };
    let before = bench.metrics("a");
    assert_eq!(found(&["--resume", "auto"]), "run");
    assert_eq!(found(&["--fresh"]), "to_move_aside");
    assert_eq!(bench.metrics("a"), before);
    assert!(!bench.folder("a.old-1").exists());
}

#[test]
fn a_dry_run_finds_what_training_would() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--dry-run", "--resume", "must"]), 78);
    let missing = ["--dry-run", "--set", "data.dataset=cifar10", "--set", "data.path=/no/such"];
    assert_ne!(bench.train("a", &missing).status.code(), Some(0));
    assert_code(&bench.train("a", &["--dry-run", "--set", "devices.backend=tch"]), 69);
    assert!(!bench.folder("a").exists());
    assert_code(&bench.train("a", &["--steps", "2"]), 0);
    assert_code(&bench.train("a", &["--dry-run"]), 73);
    let other = ["--dry-run", "--resume", "auto", "--set", "optim.lr=0.5"];
    assert_code(&bench.train("a", &other), 78);
}
