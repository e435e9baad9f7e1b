//! Mistakes in configurations, and what is said about them.

use std::path::Path;

use vim_data::HoldOut;
use vim_engine::config::Interval;
use vim_engine::config::{Config, ConfigError, Origin};

use crate::layers::vim_train;
use crate::support::{folder, stderr, stdout};

/// Loads `text` from a file `x.toml` with `sets` over it.
fn load(text: &str, sets: &[&str]) -> Result<Config, ConfigError> {
    let files = folder(&[("x.toml", text)]);
    let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
    Config::load(&files.path().join("x.toml"), &sets)
}

/// The message about `text`, from the file's name on.
fn message(text: &str) -> String {
    let message = load(text, &[]).expect_err(text).to_string();
    let name = message.find("x.toml").unwrap_or_else(|| panic!("no file in: {message}"));
    message[name..].to_owned()
}

#[test]
fn mistakes_in_a_file() {
    let corpus = [
        // Unknown keys, at every level.
        ("[data]\nwrokers = 3", "x.toml:2:1: data.wrokers: unknown key, did you mean `workers`?"),
        (
            "[data]\nwrokers = 3",
            "(known: bad_test, bad_train, classes, dataset, exif, image_suffix, images,",
        ),
        ("[dtaa]", "x.toml:1:2: dtaa: unknown key, did you mean `data`?"),
        ("data.shapes.trian = 1", "data.shapes.trian: unknown key, did you mean `train`?"),
        (
            "data = { val = 1 }",
            "x.toml:1:10: data.val: unknown key, did you mean `data.shapes.val`?",
        ),
        ("[data]\nbatch_size = 64", "unknown key, did you mean `train.batch_size`?"),
        ("seed = 1", "x.toml:1:1: seed: unknown key"),
        ("\n\n[optim]\nlr = 1\n  mom = 2", "x.toml:5:3: optim.mom: unknown key"),
        // Choices.
        (
            "[model]\ndiscretization = \"rk5\"",
            "x.toml:2:18: model.discretization: unknown value `rk5`, did you mean `rk4`?",
        ),
        ("[model]\ndiscretization = \"Bilinear\"", "did you mean `bilinear`?"),
        (
            "[model]\npreset = \"huge\"",
            "(known: tiny, small, base, tiny_stride8, small_stride8, base_depth12)",
        ),
        ("[optim]\nname = \"adam\"", "optim.name: unknown value `adam`, did you mean `adamw`?"),
        ("[devices]\nbackend = \"gpu\"", "devices.backend: unknown value `gpu`"),
        ("[ssm]\nscan = \"kernal\"", "did you mean `kernel`?"),
        // Kinds.
        (
            "[train]\nbatch_size = \"128\"",
            "x.toml:2:14: train.batch_size: invalid value: string \"128\", expected a number of images",
        ),
        (
            "[train]\nbatch_size = -1",
            "train.batch_size: invalid value: integer `-1`, expected a number of images",
        ),
        ("[train]\nepochs = 1.5", "train.epochs: invalid type: floating point `1.5`"),
        ("[optim]\nlr = \"big\"", "optim.lr: invalid type: string \"big\", expected a number"),
        ("[optim]\nbetas = [0.9]", "optim.betas"),
        ("[optim]\nbetas = [0.9, \"x\"]", "optim.betas"),
        ("model = 3", "x.toml:1:9: model: invalid type: integer `3`, expected a section"),
        ("[train.epochs]\nx = 1", "train.epochs: invalid type: map"),
        (
            "[model]\ndiscretization = 4",
            "x.toml:2:18: model.discretization: unknown value `4` (known: zoh,",
        ),
        ("[model]\nrope = true", "model.rope: unknown value `true` (known: none, hidden, both)"),
        ("[devices]\ngpus = \"both\"", "expected `\"all\"`, a number of GPUs, or a list"),
        ("[data]\nworkers = 0", "data.workers"),
        // Lengths of training.
        (
            "[checkpoint]\nevery = 10",
            "checkpoint.every: invalid type: integer `10`, expected a length of training",
        ),
        (
            "[checkpoint]\nevery = \"10\"",
            "checkpoint.every: `10` is not a length of training: write a number and a unit",
        ),
        ("[log]\nevery = \"10 steps\"", "log.every: `10 steps` is not a length"),
        // TOML itself.
        ("[data", "x.toml:1:6: not valid TOML"),
        ("[train]\nepochs = 1\nepochs = 2", "x.toml:3:1: not valid TOML: duplicate key"),
        ("[train]\n[train]", "x.toml:2:"),
        ("[train]\nepochs = ", "not valid TOML"),
        // Ranges.
        ("[train]\nepochs = 0", "x.toml:2:10: train.epochs: 0 is out of range: expected 1 or more"),
        ("[train]\nbatch_size = 0", "train.batch_size: 0"),
        ("[train]\nlabel_smoothing = 1.0", "train.label_smoothing: 1 is out of range"),
        ("[train]\nclip_grad = 0", "train.clip_grad"),
        ("[train]\nclip_grad = nan", "train.clip_grad: NaN"),
        (
            "[train]\neval_every = \"5min\"",
            "train.eval_every: 5min is out of range: expected steps or epochs",
        ),
        ("[train]\neval_every = \"0ep\"", "train.eval_every: 0ep"),
        ("[train]\nema = 1.0", "train.ema: 1 is out of range"),
        ("[train]\naccumulate = 0", "train.accumulate: 0"),
        (
            "[train]\nbce_threshold = 0.2",
            "train.bce_threshold: 0.2 does not go with train.loss = \"cross_entropy\"",
        ),
        ("[train]\nloss = \"bce\"\nbce_threshold = 1.0", "train.bce_threshold: 1 is out of range"),
        ("[train]\nnon_finite = \"skip\"\nmax_non_finite = 0", "train.max_non_finite: 0"),
        (
            "[optim]\nschedule = \"reference\"\nwarmup = \"1.5ep\"",
            "optim.warmup: 1.5ep is out of range: expected whole epochs",
        ),
        ("[optim]\nlr = 0", "optim.lr: 0"),
        ("[optim]\nlr = inf", "optim.lr: inf"),
        ("[optim]\nweight_decay = -0.1", "optim.weight_decay: -0.1"),
        ("[optim]\nbetas = [0.9, 1.0]", "optim.betas: 1"),
        ("[optim]\neps = 0", "optim.eps: 0"),
        (
            "[optim]\nmin_lr = 0.1",
            "optim.min_lr: 0.1 is out of range: expected 0 to optim.lr = 0.001",
        ),
        ("[optim]\nwarmup_lr = -1", "optim.warmup_lr: -1"),
        ("[optim]\nwarmup = \"5min\"", "optim.warmup: 5min"),
        (
            "[checkpoint]\nkeep_last = 1",
            "x.toml:2:13: checkpoint.keep_last: 1 is out of range: expected 2 or more",
        ),
        ("[checkpoint]\nevery = \"0min\"", "checkpoint.every: 0min"),
        ("[devices]\ngpus = 0", "devices.gpus: 0 is out of range: expected 1 or more"),
        (
            "[devices]\ngpus = [1, 1]",
            "devices.gpus: [1, 1] is out of range: expected one number or more",
        ),
        ("[devices]\ngpus = []", "devices.gpus: []"),
        ("[devices]\nthreads = 0", "devices.threads: 0"),
        (
            "[devices]\nthreads = 4294967296",
            "devices.threads: 4294967296 is out of range: expected 1 to 1024 threads",
        ),
        ("[data]\nworkers = 4096", "`\"auto\"` or a number of threads, 1 to 1024"),
        ("[data]\nreaders = 4096", "`\"auto\"` or a number of threads, 1 to 1024"),
        ("[log]\nevery = \"1min\"", "log.every: 1min"),
        ("[model]\npatch_size = 0", "model.patch_size: 0"),
        ("[model]\nimage_size = [8]", "expected a number of pixels, or [height, width]"),
        ("[model]\nimage_size = \"big\"", "expected a number of pixels, or [height, width]"),
        (
            "[model]\ndt_rank = \"full\"",
            "model.dt_rank: invalid value: string \"full\", expected `\"auto\"`",
        ),
        ("[model]\ndt_rank = -1", "expected `\"auto\"` or a rank, 1 or more"),
        ("[model]\nlayer_scale = true", "expected `\"none\"` or the number that it starts at"),
        ("[model]\nbimamba = \"v3\"", "model.bimamba: unknown value `v3`, did you mean `v1`?"),
        (
            "[model]\nclass_token = \"double\"\nrope = \"both\"",
            "x.toml:3:8: model.rope: both does not go with model.class_token = \"double\": ",
        ),
        (
            "[model]\npool = \"max\"",
            "x.toml:2:8: model.pool: max does not go with model.class_token = \"middle\": ",
        ),
        (
            "[ssm]\nmethod_bwd = \"foh\"\n[model]\nbimamba = \"none\"",
            "x.toml:2:14: ssm.method_bwd: foh does not go with model.bimamba = \"none\": ",
        ),
        (
            "[ssm]\nseries = \"taylor\"\n[model]\ndiscretization = \"tustin\"",
            "x.toml:4:18: model.discretization: tustin does not go with ssm.series = \"taylor\": no",
        ),
        (
            "[ssm]\na = \"full\"\n[model]\ndiscretization = \"zoh_exact\"",
            "model.discretization: zoh_exact is out of range",
        ),
        ("[model]\ndrop_path = 1.5", "x.toml:2:13: model.drop_path: 1.5"),
        // Held-out images.
        (
            "[data]\nval_seed = 1",
            "x.toml:2:12: data.val_seed: 1 is out of range: expected left out: it has no effect without data.val_fraction",
        ),
        (
            "[data]\nval_rule = \"rounded\"",
            "x.toml:2:12: data.val_rule: \"rounded\" is out of range: expected left out: it has no",
        ),
        ("[data]\nval_rule = \"each\"", "data.val_rule: unknown value `each`"),
        // The version.
        (
            "version = 0",
            "x.toml:1:11: version: 0 is unknown, this vim-train reads versions 1 to 3: use the",
        ),
        // The name.
        (
            "[run]\nname = \"{model.dicretization}\"",
            "run.name: no key `model.dicretization` for `{model.dicretization}`, did you mean `model.discretization`?",
        ),
        ("[run]\nname = \"../x\"", "run.name: `../x` cannot be the name of a folder"),
    ];
    for (text, expected) in corpus {
        let message = message(text);
        assert!(message.contains(expected), "{text:?}\n  said: {message}\n  not:  {expected}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let error = Config::load(Path::new("no/such.toml"), &[]).unwrap_err().to_string();
    assert!(error.starts_with("no/such.toml: there is no such file; `vim-train config list`"));
    let error = Config::load(Path::new("configs/quikstart.toml"), &[]).unwrap_err().to_string();
    assert!(error.ends_with("did you mean the built-in `quickstart`?"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let error = Config::load(folder.path(), &[]).unwrap_err().to_string();
    assert!(error.contains("it is a folder") && error.contains("`vim-train new "), "{error}");
}

#[test]
fn what_is_built_in_needs_no_file() {
    let folder = folder(&[("debug", "run.seed = 7\n"), ("quickstart/x.toml", "")]);
    let seed = |name: &str, note: &str| {
        let args = ["config", "get", name, "run.seed"];
        let output = vim_train(folder.path(), &args).output().unwrap();
        assert_eq!(stderr(&output), note);
        stdout(&output)
    };
    assert_eq!(seed("vim_tiny_ade20k_160k", ""), "0\n", "it extends another one");
    let note = "note: the file debug is read, not the built-in configuration of that name\n";
    assert_eq!(seed("debug", note), "7\n");
    let said = |args: &[&str]| stdout(&vim_train(folder.path(), args).output().unwrap());
    let shown = said(&["config", "show", "ablation/cifar100", "--origin"]);
    assert!(shown.contains("# built-in:configs/ablation/cifar100.toml:"), "{shown}");
    assert!(shown.contains("# built-in:configs/ablation/../vim_tiny_cifar100.toml:"), "{shown}");
    let listed = said(&["config", "list"]);
    assert!(listed.lines().any(|line| line.starts_with("ablation/shapes  ")), "{listed}");
}

#[test]
fn mistakes_in_set() {
    let corpus = [
        (
            "data.wrokers=3",
            "from --set data.wrokers=3: data.wrokers: unknown key, did you mean `workers`?",
        ),
        ("modle.depth=3", "from --set modle.depth=3: modle: unknown key, did you mean `model`?"),
        ("model.discretization=rk5", "unknown value `rk5`, did you mean `rk4`?"),
        ("train.epochs=many", "train.epochs: invalid type: string \"many\""),
        ("train.epochs=0", "from --set train.epochs=0: train.epochs: 0 is out of range"),
        ("data.shapes={trian=1}", "data.shapes.trian: unknown key"),
        ("run.seed.x=1", "run.seed: this is a value, not a section"),
        ("train.epochs", "from --set train.epochs: expected KEY=VALUE"),
        ("=1", "expected KEY=VALUE"),
        ("a..b=1", "expected KEY=VALUE"),
        ("model=3", "model: invalid type: integer `3`, expected a section"),
    ];
    for (set, expected) in corpus {
        let message = load("[run]\nseed = 1\n", &[set]).expect_err(set).to_string();
        assert!(message.contains(expected), "{set}\n  said: {message}\n  not:  {expected}");
    }
}

#[test]
fn the_assignment_at_fault_is_named_among_others() {
    let sets = ["train.epochs=0", "optim.lr=5e-4", "train.epochs=10"];
    assert_eq!(load("", &sets).unwrap().train.epochs, 10, "the last one counts");
    let error = load("", &["run.seed=1", "optim.eps=0", "run.seed=2"]).unwrap_err();
    assert_eq!(error.origin, Origin::Set("optim.eps=0".into()));
}

#[test]
fn set_takes_toml_or_text() {
    let sets = [
        "data.path=/scratch/x y",
        "model.discretization=bilinear",
        "checkpoint.every=10min",
        "run.name=\"quoted\"",
        "optim.betas=[0.8, 0.99]",
        "devices.gpus=all",
        " run.seed = 7 ",
    ];
    for text in ["", "[data]\nworkers = 2\n[run]\nseed = 1", "data = { workers = 2 }\nrun.seed = 1"]
    {
        let config = load(text, &sets).unwrap();
        assert_eq!(config.data.path.as_deref(), Some(Path::new("/scratch/x y")));
        assert_eq!(config.model.discretization.to_string(), "bilinear");
        assert_eq!(config.checkpoint.every, Interval::Minutes(10.0));
        assert_eq!(config.run.name, "quoted");
        assert_eq!(config.optim.betas, [0.8, 0.99]);
        assert_eq!(config.run.seed, 7);
        if !text.is_empty() {
            assert_eq!(toml::Value::try_from(config.data.workers).unwrap().as_integer(), Some(2));
        }
    }
}

#[test]
fn a_file_of_version_1_holds_out_by_its_runs_seed() {
    let text = "version = 1\n[run]\nseed = 3\n[data]\nval_fraction = 0.1";
    let held_out = |text: &str, sets: &[&str]| {
        let data = load(text, sets).unwrap().data;
        (data.val_seed, data.val_rule)
    };
    assert_eq!(held_out(text, &[]), (Some(3), HoldOut::Rounded));
    // What --set says is of the file's version, too: each run of a grid has its own.
    assert_eq!(held_out(text, &["run.seed=5"]), (Some(5), HoldOut::Rounded));
    assert_eq!(held_out(text, &["data.val_fraction=0"]), (None, HoldOut::EachClass));
    assert_eq!(held_out(text, &["data.val_seed=0"]), (Some(0), HoldOut::Rounded));
    assert_eq!(
        held_out(text, &["data.val_seed=0", "data.val_rule=each_class"]),
        (Some(0), HoldOut::EachClass)
    );
    let newer = text.replace("version = 1", "version = 2");
    for text in [newer.as_str(), text.trim_start_matches("version = 1\n")] {
        assert_eq!(held_out(text, &["run.seed=5"]), (Some(0), HoldOut::EachClass));
    }
    assert_eq!(held_out(text, &[]), held_out(&load(text, &[]).unwrap().to_toml(), &["run.seed=9"]));
    let again = Config::from_toml(text).unwrap();
    assert_eq!(again, load(text, &[]).unwrap());
    assert_eq!(Config::from_toml(&again.to_toml()).unwrap(), again, "what is recorded is of today");
}

#[test]
fn files_over_files_are_of_one_version() {
    let held_out = |base: &str, over: &str| -> Result<Option<u64>, String> {
        let over = format!("{over}extends = \"base.toml\"\nrun.seed = 4");
        let base = format!("{base}data.val_fraction = 0.1");
        let files = folder(&[("base.toml", &base), ("x.toml", &over)]);
        let config = Config::load(&files.path().join("x.toml"), &[]);
        let root = format!("{}/", files.path().display());
        config.map(|config| config.data.val_seed).map_err(|e| e.to_string().replace(&root, ""))
    };
    let (old, new) = ("version = 1\n", "version = 2\n");
    for (base, over) in [(old, old), (old, ""), ("", old)] {
        assert_eq!(held_out(base, over), Ok(Some(4)), "{base}{over}");
    }
    for (base, over) in [(new, new), (new, ""), ("", new), ("", "")] {
        assert_eq!(held_out(base, over), Ok(Some(0)), "{base}{over}");
    }
    let expected = "x.toml:1:11: version: 2 here, and 1 in base.toml:1:11: write the same in both, \
                    and see docs/config.md for what differs";
    assert_eq!(held_out(old, new), Err(expected.to_owned()));
    assert!(held_out(new, old).unwrap_err().contains("1 here, and 2 in base.toml:1:11"));
}

#[test]
fn the_effective_configuration_is_complete_and_loads_to_itself() {
    let everything = [
        "train.clip_grad=1",
        "data.path=/x\"y",
        "devices.threads=3",
        "devices.gpus=[1]",
        "optim.lr=0.1",
        "optim.min_lr=1e-9",
        "optim.warmup=0.5ep",
        "model.preset=small",
        "model.depth=3",
        "run.name={optim.lr}#\\n",
    ];
    for sets in [&[][..], &everything[..everything.len() - 1]] {
        let config = load("", sets).unwrap();
        let text = config.to_toml();
        assert_eq!(load(&text, &[]).unwrap(), config, "{text}");
        assert_eq!(Config::from_toml(&text).unwrap().to_toml(), text);
        assert_eq!(config.effective(), config, "what is loaded is effective");
        assert!(text.contains("depth = "), "{text}");
    }
    let text = load("", &[]).unwrap().to_toml();
    for line in ["# clip_grad is not set", "# path is not set", "eps = 1e-8", "[data.shapes]"] {
        assert!(text.lines().any(|printed| printed == line), "{line}\n{text}");
    }
    let clip = text.find("# clip_grad").unwrap();
    assert!(text.find("[train]").unwrap() < clip && clip < text.find("[optim]").unwrap(), "{text}");
}

#[test]
fn an_empty_file_is_the_defaults() {
    let config = load("", &[]).unwrap();
    assert_eq!(config, Config::default().effective());
    assert_eq!(config.run_name().unwrap(), "zoh-s0");
    assert_eq!(config.run_folder().unwrap(), Path::new("data/runs/zoh-s0"));
}
