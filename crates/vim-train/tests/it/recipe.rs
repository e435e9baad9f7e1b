//! The recipe's options in whole runs: moving average, parts of a batch, steps that are skipped,
//! schedule, groups, loss.

use std::collections::BTreeMap;
use std::fs;

use safetensors::SafeTensors;
use serde_json::Value;
use vim_engine::config::Config;
use vim_engine::train::schedule::Schedule;

use crate::support::{
    Bench, assert_code, assert_parts, assert_says, cifar_archive, parsed, repository, run, set,
    stderr, stdout,
};

fn arrays(bytes: &[u8]) -> BTreeMap<String, Vec<f64>> {
    let tensors = SafeTensors::deserialize(bytes).unwrap();
    let floats = |data: &[u8]| -> Vec<f64> {
        let numbers = data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
        numbers.map(f64::from).collect()
    };
    tensors.iter().map(|(name, tensor)| (name.to_owned(), floats(tensor.data()))).collect()
}

#[test]
fn the_moving_average_is_kept_evaluated_and_chosen_where_it_is_better() {
    let bench = Bench::new();
    let sets = ["train.ema=0.75", "checkpoint.every=\"1st\"", "checkpoint.keep_last=30"];
    let sets = set(&sets);
    assert_code(&bench.train("a", &sets), 0);

    // Every step of it is as defined, by the files of the steps before and after.
    let mut moved = 0.0_f64;
    for step in 2..=24 {
        let before = arrays(&bench.saved("a", step - 1, "ema.safetensors"));
        let model = arrays(&bench.saved("a", step, "model.safetensors"));
        let after = arrays(&bench.saved("a", step, "ema.safetensors"));
        assert_eq!(after.len(), model.len());
        for (path, after) in after {
            for (i, got) in after.into_iter().enumerate() {
                let want = 0.75 * before[&path][i] + 0.25 * model[&path][i];
                assert!((got - want).abs() < 1e-6, "{path} at step {step}: {got} {want}");
                moved = moved.max((got - model[&path][i]).abs());
            }
        }
    }
    assert!(moved > 1e-3, "it lags behind");

    // Both are evaluated each time, and the best of all is tested.
    let evaluations = bench.records("a", "eval");
    let (val, test): (Vec<_>, Vec<_>) = evaluations.iter().partition(|r| r["split"] == "val");
    let kinds: Vec<_> = val.iter().map(|r| (r["step"].as_u64(), r["weights"].as_str())).collect();
    let expected = [8, 16, 24].map(|step| [(Some(step), Some("model")), (Some(step), Some("ema"))]);
    assert_eq!(kinds, expected.concat());
    let first_best = val.iter().copied().reduce(|best, record| {
        if record["top1"].as_f64() > best["top1"].as_f64() { record } else { best }
    });
    let (test, best) = (test[0], first_best.unwrap());
    assert_eq!((&test["weights"], &test["step"]), (&best["weights"], &best["step"]));
    assert_eq!(bench.records("a", "eval").len(), 7);

    // `eval` finds the same weights without being told which.
    let chosen = bench.scores("a", &sets);
    assert_eq!((&chosen["weights"], &chosen["loss"]), (&test["weights"], &test["loss"]));
    for (flag, record) in [("--no-ema", val[4]), ("--ema", val[5])] {
        let more = [&sets[..], &["--checkpoint", "last", "--split", "val", flag]].concat();
        let got = bench.scores("a", &more);
        for key in ["weights", "loss", "top1", "top5"] {
            assert_eq!(got[key], record[key], "{flag} {key}");
        }
    }
    assert_ne!(val[4]["loss"], val[5]["loss"]);
}

#[test]
fn running_statistics_are_averaged_unless_the_models_own_are_asked_for() {
    let bench = Bench::of("crates/vim-train/tests/it/fixtures/segment.toml");
    let train = |name: &str, sets: &[&str], more: &[&str]| {
        let every = set(&["checkpoint.every=1st", "checkpoint.keep_last=30"]);
        assert_code(&bench.train(name, &[&every[..], &set(sets), more].concat()), 0);
    };
    let saved = |name: &str, step: u64, file: &str| arrays(&bench.saved(name, step, file));
    let is_statistic = |path: &str| path.contains(".running_");
    train("averaged", &[], &[]);
    train("own", &["train.ema_statistics=model"], &[]);
    let (mut statistics, mut moved) = (0, 0.0_f64);
    for step in 2..=12 {
        let before = saved("averaged", step - 1, "ema.safetensors");
        let model = saved("averaged", step, "model.safetensors");
        let own = saved("own", step, "ema.safetensors");
        for (path, after) in saved("averaged", step, "ema.safetensors") {
            if !is_statistic(&path) {
                assert_eq!(after, own[&path], "{path}: the weights are the same");
                continue;
            }
            statistics += 1;
            assert_eq!(own[&path], model[&path], "{path} at step {step}");
            for (i, got) in after.into_iter().enumerate() {
                let want = 0.9 * before[&path][i] + 0.1 * model[&path][i];
                let allowed = 1e-6 * (1.0 + want.abs());
                assert!((got - want).abs() < allowed, "{path} at step {step}: {got} {want}");
                moved = moved.max((got - model[&path][i]).abs());
            }
        }
    }
    assert!(statistics > 0 && moved > 1e-3, "{statistics} that lag behind by {moved}");
    let scores = |name: &str, weights: &str| -> Vec<Value> {
        let of = |record: &Value| record["weights"] == weights && record["split"] == "val";
        bench.records(name, "eval").into_iter().filter(of).collect()
    };
    assert_eq!(scores("averaged", "model"), scores("own", "model"));
    assert_ne!(scores("averaged", "ema"), scores("own", "ema"));

    // A file of version 1 means the model's own, and goes on with them.
    train("then", &["version=1"], &[]);
    for more in [&["--steps", "5"][..], &["--resume", "auto"]] {
        train("parts", &["version=1"], more);
    }
    for file in ["model.safetensors", "ema.safetensors"] {
        assert_eq!(bench.saved("then", 12, file), bench.saved("parts", 12, file), "{file}");
    }
    let (average, model) =
        (saved("then", 12, "ema.safetensors"), saved("then", 12, "model.safetensors"));
    let mut own = average.iter().filter(|(path, _)| is_statistic(path));
    assert!(own.all(|(path, values)| *values == model[path]));
}

#[test]
fn the_moving_average_survives_a_pause_to_the_bit() {
    let bench = Bench::new();
    let sets = set(&["train.ema=0.99", "train.ema_warmup=true"]);
    assert_code(&bench.train("whole", &sets), 0);
    assert_code(&bench.train("paused", &[&sets[..], &["--steps", "7"]].concat()), 0);
    assert_code(&bench.train("paused", &[&sets[..], &["--resume", "must"]].concat()), 0);
    assert_eq!(bench.metrics("whole"), bench.metrics("paused"));
    for file in ["model.safetensors", "ema.safetensors"] {
        let same = bench.saved("whole", 24, file) == bench.saved("paused", 24, file);
        assert!(same, "{file}");
    }
    // The model trains as it does without.
    assert_code(&bench.train("without", &[]), 0);
    let weights = |name| bench.saved(name, 24, "model.safetensors");
    assert!(weights("whole") == weights("without"));

    let output = bench.eval("without", &["--ema", "--checkpoint", "last"]);
    assert_says(&output, 65, &["has no entry ema.safetensors (train.ema was not set)"]);
}

#[test]
fn without_validation_images_weights_and_average_are_tested_and_the_weights_count() {
    let bench = Bench::new();
    let archive = bench.folder("cifar.tar.gz");
    let size = ["--format", "binary", "--train", "64", "--test", "32"];
    cifar_archive(&archive, "cifar100", &size);
    let path = format!("data.path={}", archive.display());
    let sets = set(&["train.ema=0.5", "data.dataset=cifar100", &path]);
    let output = bench.train("a", &sets);
    assert_code(&output, 0);
    let tests = bench.records("a", "eval");
    let of: Vec<_> =
        tests.iter().map(|r| (r["weights"].as_str(), r["checkpoint"].as_str())).collect();
    // After two epochs the test images are watched; after the third they are the result.
    let both = [(Some("model"), Some("last")), (Some("ema"), Some("last"))];
    assert_eq!(of, [both; 3].concat());
    assert!(tests.iter().all(|record| record["split"] == "test"));
    let line = format!("test top-1 {:.2} %", tests[4]["top1"].as_f64().unwrap() * 100.0);
    assert_eq!(stdout(&output).trim_end(), line);
}

/// Mixed, mosaicked, dropped: whatever is drawn is drawn for the whole batch.
#[test]
fn a_batch_in_parts_trains_as_the_whole_one() {
    let bench = Bench::new();
    let losses = |name: &str, parts: &str| {
        let parts = format!("train.accumulate={parts}");
        let sets = ["augment.preset=deit", "model.drop_path=0.3", "log.every=\"1st\"", &parts];
        assert_code(&bench.train(name, &[&set(&sets)[..], &["--steps", "6"]].concat()), 0);
        (bench.numbers(name, "train", "loss"), bench.numbers(name, "train", "grad_norm"))
    };
    let whole = losses("whole", "1");
    for parts in ["2", "4", "32"] {
        let parted = losses(&format!("parts-{parts}"), parts);
        assert_eq!(parted.0.len(), 6);
        // The first step sees the same weights; later ones those of updates that differ in
        // rounding, which Adam's division makes larger where a gradient is close to nothing.
        assert!((parted.0[0] - whole.0[0]).abs() < 1e-6, "{parts}: {parted:?} {whole:?}");
        assert!((parted.1[0] / whole.1[0] - 1.0).abs() < 1e-5, "{parts}: {parted:?} {whole:?}");
        for (got, want) in parted.0.iter().zip(&whole.0) {
            assert!((got - want).abs() < 1e-3, "{parts}: {parted:?} {whole:?}");
        }
    }
    let uneven = bench.train("uneven", &set(&["train.accumulate=5"]));
    assert_says(&uneven, 78, &["train.accumulate: 5", "train.batch_size = 32"]);
}

#[test]
fn steps_that_are_not_finite_are_skipped_up_to_a_number_in_a_row() {
    let bench = Bench::new();
    // As where the run stops at once: the rate climbs to one that no model survives.
    let sets = [
        "optim.lr=1e18",
        "optim.warmup_lr=1e-3",
        "checkpoint.every=\"1st\"",
        "checkpoint.keep_last=30",
        "train.ema=0.9",
        "train.non_finite=skip",
        "train.max_non_finite=3",
    ];
    let sets = set(&sets);
    let output = bench.train("a", &sets);
    assert_code(&output, 76);
    let skipped = bench.records("a", "skipped");
    assert_eq!(bench.numbers("a", "skipped", "in_a_row"), [1.0, 2.0, 3.0]);
    let first = skipped[0]["step"].as_u64().unwrap();
    assert_eq!(skipped[2]["step"], first + 2);
    let reason = skipped[0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("the loss is ") || reason.starts_with("the gradient norm is "));
    // Nothing was saved of them: what was saved before is not pruned away for it.
    assert!(first > 1, "the first step is taken");
    let diverged = format!("diverged at step {}", first + 3);
    let newest = format!("the newest checkpoint is of step {},", first - 1);
    assert_parts(&stderr(&output), &[&diverged, "as at the 3 steps before it", &newest]);

    // They change nothing: weights, moments and average are those of the step before; and the count
    // goes on after a pause among them.
    let steps = (first + 1).to_string();
    assert_code(&bench.train("b", &[&sets[..], &["--steps", &steps]].concat()), 0);
    for file in ["model.safetensors", "optimizer.safetensors", "ema.safetensors"] {
        let before = bench.saved("a", first - 1, file);
        assert!(bench.saved("b", first + 1, file) == before, "{file}");
    }
    let state: Value = serde_json::from_slice(&bench.saved("b", first + 1, "state.json")).unwrap();
    assert_eq!((&state["skipped"], &state["skipped_in_a_row"]), (&2.into(), &2.into()));
    assert_code(&bench.train("b", &[&sets[..], &["--resume", "must"]].concat()), 76);
    assert_eq!(bench.metrics("a"), bench.metrics("b"));
}

#[test]
fn the_reference_schedule_has_a_rate_an_epoch_and_is_one_late() {
    let bench = Bench::new();
    let sets = ["optim.schedule=reference", "optim.warmup=\"1ep\"", "log.every=\"1st\""];
    let more = ["optim.lr=1e-3", "optim.min_lr=0", "optim.warmup_lr=1e-6"];
    assert_code(&bench.train("a", &set(&[sets, more].concat())), 0);
    let rates = bench.numbers("a", "train", "lr");
    // Eight steps an epoch: twice the warm-up's first rate, then the cosine at ⅓ of its way, cos
    // 60° = ½.
    let expected = [[1e-6; 8], [1e-6; 8], [0.75e-3; 8]].concat();
    assert_eq!(rates.len(), expected.len());
    assert!(rates.iter().zip(expected).all(|(got, want)| (got - want).abs() < 1e-15), "{rates:?}");
    let uneven = bench.train("b", &set(&["optim.schedule=reference", "optim.warmup=\"4st\""]));
    assert_code(&uneven, 78);
}

#[test]
fn the_intended_groups_spare_a_log_and_nothing_else() {
    let bench = Bench::new();
    let after = |groups: &str| {
        let groups_set = format!("optim.decay_groups={groups}");
        let sets = ["optim.weight_decay=0.5", "optim.warmup=\"0ep\"", &groups_set];
        assert_code(&bench.train(groups, &[&set(&sets)[..], &["--steps", "1"]].concat()), 0);
        arrays(&bench.saved(groups, 1, "model.safetensors"))
    };
    let (reference, intended) = (after("reference"), after("intended"));
    let differ: Vec<_> = reference.iter().filter(|(path, v)| intended[*path] != **v).collect();
    assert!(differ.iter().all(|(path, _)| path.ends_with(".a_log")), "{differ:?}");
    assert_eq!(differ.len(), 4, "two blocks of two directions");
}

#[test]
fn bce_trains_and_its_threshold_is_checked() {
    let bench = Bench::new();
    let sets = ["train.loss=bce", "train.label_smoothing=0", "train.bce_threshold=0"];
    assert_code(&bench.train("a", &set(&sets)), 0);
    let losses = bench.numbers("a", "train", "loss");
    // Twelve classes, each with a logit of about 0 at first: ln 2; the eleven wrong ones are soon
    // unlikely.
    assert!((losses[0] - 2f64.ln()).abs() < 0.1, "{losses:?}");
    assert!(losses[11] < 0.5, "{losses:?}");

    let all = bench.train("b", &set(&["train.loss=bce", "train.bce_threshold=0"]));
    assert_says(&all, 78, &["train.bce_threshold", "every class is a target"]);
    let useless = bench.train("b", &set(&["train.bce_threshold=0"]));
    assert_says(&useless, 78, &["cross_entropy"]);
    assert!(!bench.folder("b").exists());
}

/// By the formulas of mmcv's `PolyLrUpdaterHook`: the power of what is left, and a factor of the
/// warm-up.
#[test]
fn a_recipe_of_ade20k_takes_mmsegmentation_s_usual_curve() {
    let sets = ["optim.power=0.9", "optim.min_lr=1e-6", "data.path=/no/such"].map(str::to_owned);
    for (name, lr) in [("vim_tiny_ade20k_60k", 2e-4), ("vim_small_ade20k_60k", 1e-4)] {
        let config = repository(&format!("configs/{name}.toml"));
        let config = Config::load(&config, &sets).unwrap();
        let schedule = Schedule::new(&config.optim, 631, 60_000).unwrap();
        for step in [0, 1, 749, 1499, 1500, 30_000, 59_999, 60_000] {
            let left = 1.0 - step as f64 / 60_000.0;
            let regular = (lr - 1e-6) * left.powf(0.9) + 1e-6;
            let short = (1.0 - step as f64 / 1500.0).max(0.0) * (1.0 - 1e-6);
            let (got, want) = (schedule.lr(step), regular * (1.0 - short));
            assert!((got - want).abs() < 1e-16, "{name}, step {step}: {got} {want}");
        }
    }
    let bench = Bench::new();
    let refused = bench.train("power", &set(&["optim.power=0.9"]));
    assert_says(&refused, 78, &["optim.power", "optim.schedule = \"poly\" alone has a power"]);
}

/// A shipped configuration as it takes effect, and its comments at the top on one line.
fn recipe(name: &str) -> (Value, String) {
    let path = repository(&format!("configs/{name}.toml"));
    let text = fs::read_to_string(&path).unwrap();
    let header: Vec<&str> = text.lines().map_while(|line| line.strip_prefix('#')).collect();
    let header = header.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    (parsed(&run(&["config", path.to_str().unwrap(), "--json"])), header)
}

#[test]
fn recipes_of_the_original_do_as_its_code_does_or_say_where_not() {
    for (size, more) in
        [("tiny", ""), ("small", ""), ("base", ""), ("tiny", "_finetune"), ("small", "_finetune")]
    {
        let name = format!("vim_{size}_imagenet{more}");
        let (config, header) = recipe(&name);
        assert_eq!(config["augment"]["order"], "reference", "{name}");
        assert_eq!(config["train"]["shards"], 8, "{name}");
        // Weights to start from bring their bias.
        let start = if more.is_empty() { "upstream_zero" } else { "inverse_softplus" };
        assert_eq!(config["ssm"]["dt_b_init"], start, "{name}");
        let last = "the last weights are tested, where the original keeps";
        assert_parts(&header, &["Differs:", last]);
    }
    // A study's seeds vary in the order, too.
    let study = repository("configs/ablation/imagenet.toml");
    for (key, expected) in [("augment.order", "keyed\n"), ("ssm.dt_b_init", "upstream_zero\n")] {
        let output = run(&["config", "get", study.to_str().unwrap(), key]);
        assert_eq!(stdout(&output), expected, "{key}: {}", stderr(&output));
    }

    for (name, shards, rope) in [
        ("vim_tiny_ade20k_60k", Value::from(4), "none"),
        ("vim_tiny_ade20k_160k", Value::from(4), "none"),
        ("vim_small_ade20k_60k", Value::from(4), "both"),
        ("vim_small_ade20k_160k", Value::from(4), "both"),
        ("vim_tiny_coco_100ep", Value::Null, "both"),
        ("vim_small_coco_100ep", Value::Null, "both"),
    ] {
        let (config, header) = recipe(name);
        let (train, model) = (&config["train"], &config["model"]);
        // Without a class token none of the file's rows is left to be the first.
        assert_eq!(model["class_token"], "none", "{name}");
        assert_eq!(train["init_pos_embed"], "middle_aware", "{name}");
        assert_eq!((&train["shards"], &model["rope"]), (&shards, &rope.into()), "{name}");
        assert_parts(&header, &["Weights:"]);
        if !name.contains("160k") {
            assert_parts(&header, &["Differs:", "by the validation images that it reports"]);
            assert_eq!(header.contains("train.init_allow=[\"model\"]"), rope == "both", "{name}");
        }
        let published = train["init"].as_str().unwrap().contains("midclstok");
        assert_eq!(published, rope == "none", "{name}: published weights have no rotary positions");
    }
}

/// Numbers of ours are of a commit, and of the initial values of their time.
#[test]
fn what_is_expected_says_of_which_initial_values() {
    for name in ["quickstart", "digits", "segment_shapes", "detect_shapes", "detect_shapes_cpu"] {
        let (_, header) = recipe(name);
        let (_, expected) = header.split_once("Expected:").unwrap();
        assert_parts(expected, &["commit ", "as of older initial values"]);
    }
}
