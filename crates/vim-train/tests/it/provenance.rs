//! What weights record of themselves, and that every command which takes weights heeds it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use vim_data::{Pixels, encode_png};
use vim_torch::read_safetensors;

use crate::support::{
    Bench, assert_code, assert_parts, assert_says, json_lines, parsed, read_json, repository, run,
    set, stderr, stdout,
};

/// Settings under which weights are not what they were trained to be, and the part of each.
const OTHERWISE: [(&str, &str, &str); 5] = [
    ("model.discretization", "bilinear", "method"),
    ("model.rope", "both", "model"),
    ("model.norm_eps", "0.01", "model"),
    ("data.normalize", "dataset", "normalization"),
    ("augment.eval_crop_ratio", "0.5", "view"),
];

/// The debug configuration with a setting, as a file.
fn config_with(bench: &Bench, key: &str, value: &str) -> String {
    let path = bench.folder(&format!("{key}.toml"));
    let base = fs::canonicalize(repository("configs/debug.toml")).unwrap();
    let (section, name) = key.split_once('.').unwrap();
    let value = value.parse::<f64>().map_or(format!("{value:?}"), |_| value.to_owned());
    let text = format!("version = 3\nextends = {base:?}\n[{section}]\n{name} = {value}\n");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn what_would_change_a_number_is_refused_or_said() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--steps", "2"]), 0);
    let root = format!("run.root={}", bench.folder("").display());
    let at = |name: &str| bench.folder(name).display().to_string();
    for name in ["a.safetensors", "a.pth"] {
        assert_code(&run(&["export", &at("a"), "-o", &at(name)]), 0);
    }
    let picture = repository("crates/vim-train/tests/it/fixtures/grey.png").display().to_string();
    let plain = bench.scores("a", &["--checkpoint", "last"]);
    assert_eq!(plain.get("not_as_trained"), None);
    for (key, value, part) in OTHERWISE {
        let setting = format!("{key}={value}");
        let sets = set(&[&setting]);
        let config = config_with(&bench, key, value);
        let [archive, arrays] = [at("a.pth"), at("a.safetensors")];
        let out = at("out.npz");
        let eval = |weights: &str, more: &[&str]| {
            bench.eval("b", &[&["--checkpoint", weights], &sets[..], more].concat())
        };
        let of_run = [&["eval", "a", "--set", &root], &sets[..]].concat();
        let predict = ["predict", &picture, "--checkpoint", &archive, "--config", &config];
        let features =
            ["features", &picture, "--checkpoint", &arrays, "--config", &config, "-o", &out];
        let refused: [(&str, Output); 6] = [
            ("a run by its configuration", run(&of_run)),
            ("another run's weights", eval(&at("a"), &[])),
            ("an archive", eval(&archive, &[])),
            ("arrays", eval(&arrays, &[])),
            ("predict", run(&predict)),
            ("features", run(&features)),
        ];
        let allow = format!("--allow {part}");
        for (what, output) in &refused {
            let said = stderr(output);
            assert_code(output, 78);
            assert_eq!(said.lines().count(), 1, "{what}: {said}");
            assert!(said.contains(key) && said.contains(&allow), "{what}: {said}");
        }
        // What a file records of images it keeps, whatever a configuration says of others.
        let writes = ["method", "model"].contains(&part);
        let exported =
            run(&["export", &at("a"), "--config", &config, "-o", &at("b.pth"), "--force"]);
        let imported = run(&["import", &arrays, "--config", &config]);
        for output in [exported, imported] {
            assert_code(&output, if writes { 78 } else { 0 });
        }

        let init = format!("train.init={}", at("a"));
        let started = bench.train("c", &[&sets[..], &["--set", &init, "--steps", "1"]].concat());
        match part {
            "view" => assert_code(&started, 0),
            _ => {
                let said = format!("train.init_allow = [{part:?}]");
                assert_says(&started, 78, &[key, &said]);
                let more = [&sets[..], &["--set", &init, "--dry-run"]].concat();
                assert_says(&bench.train("c", &more), 78, &[key, &said]);
                let allowed = format!("train.init_allow=[{part:?}]");
                let more = [&sets[..], &["--set", &init, "--set", &allowed, "--steps", "1"]];
                assert_code(&bench.train("c", &more.concat()), 0);
                assert_parts(&bench.read("c", "init.json"), &["not as trained", key]);
            }
        }
        fs::remove_dir_all(bench.folder("c")).unwrap();

        // Allowed, the difference stands beside the numbers.
        let flags = ["--allow", part];
        let report = parsed(&eval(&at("a"), &[&flags[..], &["--json"]].concat()));
        let said = report["not_as_trained"][0].as_str().unwrap();
        assert!(said.starts_with(&key.to_owned()) || said.contains("images."), "{said}");
        let lines = stdout(&eval(&at("a"), &flags));
        let result = lines.lines().find(|line| line.contains("top-1")).unwrap();
        assert_parts(result, &["; not as trained: ", key]);
        let answer = parsed(&run(&[&predict[..], &flags, &["--json"]].concat()));
        assert!(answer[0]["not_as_trained"][0].is_string(), "{answer}");
    }
    // Keys that no forward pass sees are no difference.
    for free in ["model.drop_path=0.3", "ssm.series=taylor", "ssm.dt_b_init=upstream_zero"] {
        let scores = bench.scores("b", &["--checkpoint", &at("a"), "--set", free]);
        assert_eq!(
            (&scores["loss"], scores.get("not_as_trained")),
            (&plain["loss"], None),
            "{free}"
        );
    }
}

#[test]
fn an_exported_file_answers_as_its_run() {
    let bench = Bench::new();
    let own = ["model.discretization=bilinear", "model.class_token=head", "data.normalize=dataset"];
    assert_code(&bench.train("a", &[&set(&own)[..], &["--steps", "2"]].concat()), 0);
    let at = |name: &str| bench.folder(name).display().to_string();
    let picture = repository("crates/vim-train/tests/it/fixtures/grey.png").display().to_string();
    let predict = |weights: &str| {
        let output = run(&["predict", &picture, "--checkpoint", weights, "--json"]);
        assert_code(&output, 0);
        (stdout(&output), stderr(&output))
    };
    let of_run = predict(&at("a"));
    for name in ["a.safetensors", "a.pth"] {
        assert_code(&run(&["export", &at("a"), "-o", &at(name)]), 0);
        let (said, notes) = predict(&at(name));
        assert_eq!(said, of_run.0, "{name}");
        assert_eq!(notes, "", "{name}: nothing is assumed");
    }
    assert_code(&run(&["import", &at("a.pth"), "-o", &at("b.safetensors")]), 0);
    assert_eq!(predict(&at("b.safetensors")).0, of_run.0);
    // A checkpoint away from its run has its record with it.
    let step = bench.folder("a/checkpoints/step-00000002");
    fs::create_dir(bench.folder("away")).unwrap();
    fs::rename(&step, bench.folder("away/step-00000002")).unwrap();
    assert_eq!(predict(&at("away/step-00000002")).0, of_run.0);
    // Without a record it says what it assumes, in the answer as well.
    let state = bench.folder("away/step-00000002/model.safetensors");
    let (answer, _) = predict(&state.display().to_string());
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_parts(&answer[0]["assumed"].to_string(), &["\"discretization zoh\"", "ImageNet"]);
}

#[test]
fn a_record_says_nothing_of_place_and_time_and_its_keys_are_sorted() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--steps", "1"]), 0);
    assert_code(&bench.train("b", &["--steps", "1", "--set", "devices.threads=1"]), 0);
    let [a, b] = ["a", "b"].map(|run| bench.saved(run, 1, "provenance.toml"));
    assert_eq!(a, b);
    let text = String::from_utf8(a.clone()).unwrap();
    let table: toml::Table = text.parse().unwrap();
    assert_eq!(toml::to_string(&table).unwrap(), text, "as a sorted table writes it");
    assert_parts(&text, &["classes = [", "train_fingerprint = ", "discretization = \"zoh\""]);
    let root = bench.folder("").display().to_string();
    assert!(!text.contains(&root) && !text.contains("cpu"), "{text}");
    let manifest = String::from_utf8(bench.saved("a", 1, "MANIFEST")).unwrap();
    let line = manifest.lines().find(|line| line.ends_with(" provenance.toml")).unwrap();
    assert!(line.starts_with(&blake3::hash(&a).to_hex().to_string()), "{line}");
    let weights = bench.saved("a", 1, "model.safetensors");
    assert!(read_safetensors(&weights).unwrap().about.is_empty(), "the weights' bytes stay");
}

/// Classes of one colour each, `count` images of 32 pixels of each part.
pub(crate) fn photos(at: &Path, classes: &[(&str, [u8; 3])], counts: [usize; 2]) {
    for (part, count) in ["train", "val"].into_iter().zip(counts) {
        for (name, colour) in classes {
            let folder = at.join(part).join(name);
            fs::create_dir_all(&folder).unwrap();
            for number in 0..count {
                let shade = |c: u8| c.saturating_add(number as u8 * 7);
                let data = colour.map(shade).repeat(32 * 32);
                let pixels = Pixels { height: 32, width: 32, data };
                let path = folder.join(format!("{name}-{number}.png"));
                fs::write(path, encode_png(&pixels).unwrap()).unwrap();
            }
        }
    }
}

pub(crate) const RED: [u8; 3] = [200, 20, 20];
pub(crate) const GREEN: [u8; 3] = [20, 200, 20];
const BLUE: [u8; 3] = [20, 20, 200];

/// Settings that train on class folders.
pub(crate) fn of_folder(data: &Path) -> Vec<String> {
    [
        "data.dataset=folder".to_owned(),
        format!("data.path={}", data.display()),
        format!("data.index_cache={}", data.with_extension("index").display()),
        "train.batch_size=6".to_owned(),
        "train.epochs=1".to_owned(),
        "optim.lr=0.01".to_owned(),
    ]
    .into_iter()
    .flat_map(|text| ["--set".to_owned(), text])
    .collect()
}

/// A bench with a run `a` on `photos`, of cats, dogs and owls.
fn trained() -> (Bench, PathBuf) {
    let bench = Bench::new();
    let data = bench.folder("photos");
    photos(&data, &[("cat", RED), ("dog", GREEN), ("owl", BLUE)], [8, 4]);
    assert_code(&train(&bench, "a", &data, &[]), 0);
    (bench, data)
}

fn train(bench: &Bench, name: &str, data: &Path, more: &[&str]) -> Output {
    let sets = of_folder(data);
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    bench.train(name, &[&sets[..], more].concat())
}

fn eval(bench: &Bench, data: &Path, more: &[&str]) -> Output {
    let sets = of_folder(data);
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    bench.eval("a", &[&sets[..], &["--checkpoint", "last"], more].concat())
}

#[test]
fn evaluation_goes_by_the_names_of_classes() {
    let (bench, data) = trained();
    let rows = bench.folder("rows.csv").display().to_string();
    let whole = parsed(&eval(&bench, &data, &["--json", "--predictions", &rows]));
    let mut table = csv::Reader::from_path(&rows).unwrap();
    let right: Vec<(String, bool)> = table
        .records()
        .map(|row| row.map(|row| (row[6].to_owned(), row[2] == row[3])).unwrap())
        .collect();
    assert_eq!(right.len(), 12);

    // A class that the weights do not know.
    let renamed = bench.folder("renamed");
    photos(&renamed, &[("dog", GREEN), ("owl", BLUE), ("zcat", RED)], [8, 4]);
    assert_says(&eval(&bench, &renamed, &[]), 65, &["1 class: zcat", "cat, dog, owl"]);

    // A head that may be of other classes is taken by number, and that is said.
    let other = parsed(&eval(&bench, &renamed, &["--allow", "head", "--json"]));
    assert_parts(&other["assumed"].to_string(), &["other classes", "cat, dog", "dog, owl"]);

    // Numbers are the classes of those numbers: the same images, the same scores.
    let numbers = bench.folder("numbers");
    photos(&numbers, &[("0", RED), ("1", GREEN), ("2", BLUE)], [8, 4]);
    let by_number = eval(&bench, &numbers, &["--json"]);
    assert_eq!(parsed(&by_number)["top1"], whole["top1"]);
    assert_eq!(parsed(&by_number)["loss"], whole["loss"]);
    let assumed = parsed(&by_number)["assumed"].to_string();
    assert_parts(&assumed, &["classes by number", "cat, dog", "0, 1"]);

    // Images of some of the classes are scored as they were among all.
    let fewer = bench.folder("fewer");
    photos(&fewer, &[("cat", RED), ("owl", BLUE)], [8, 4]);
    let of_fewer = parsed(&eval(&bench, &fewer, &["--json"]));
    let of_both: Vec<bool> =
        right.iter().filter(|(name, _)| name != "dog").map(|(_, right)| *right).collect();
    let share = of_both.iter().filter(|right| **right).count() as f64 / of_both.len() as f64;
    assert_eq!((of_both.len(), of_fewer["images"].as_u64()), (8, Some(8)));
    assert_eq!(of_fewer["top1"].as_f64(), Some(share));
    assert_eq!(of_fewer["classes_without_images"], serde_json::json!(["dog"]));
    assert_parts(&stdout(&eval(&bench, &fewer, &[])), &["; classes without images: dog"]);
    // A test part alone that lacks a class.
    let lacks = bench.folder("lacks");
    photos(&lacks, &[("cat", RED), ("dog", GREEN), ("owl", BLUE)], [8, 4]);
    fs::remove_dir_all(lacks.join("val/dog")).unwrap();
    let of_lacking = parsed(&eval(&bench, &lacks, &["--json"]));
    assert_eq!(of_lacking["top1"].as_f64(), Some(share));
    assert_eq!(of_lacking["classes_without_images"], serde_json::json!(["dog"]));
}

#[test]
fn a_run_goes_on_with_its_own_classes_and_images() {
    let (bench, data) = trained();
    let resume = |data: &Path, more: &[&str]| {
        let more = [&["--set", "train.epochs=2", "--resume", "must"], more].concat();
        train(&bench, "b", data, &more)
    };
    assert_code(&train(&bench, "b", &data, &["--set", "train.epochs=2", "--steps", "2"]), 0);

    let renamed = bench.folder("renamed");
    photos(&renamed, &[("dog", GREEN), ("owl", BLUE), ("zcat", RED)], [8, 4]);
    assert_says(&resume(&renamed, &[]), 65, &["does not know 1 class: zcat"]);
    let fewer = bench.folder("fewer");
    photos(&fewer, &[("cat", RED), ("owl", BLUE)], [12, 4]);
    assert_says(&resume(&fewer, &[]), 65, &["that the data lack: dog"]);

    // As many steps an epoch, but not the same images.
    let another = bench.folder("another");
    photos(&another, &[("cat", RED), ("dog", GREEN), ("owl", BLUE)], [8, 4]);
    fs::rename(another.join("train/cat/cat-0.png"), another.join("train/cat/cat-x.png")).unwrap();
    fs::copy(data.join("val/owl/owl-0.png"), another.join("val/owl/owl-9.png")).unwrap();
    let words = [
        "of the 24 training images, names, order or classes are no longer those recorded",
        "12 test images were recorded, now there are 13",
        "train.allow_changed_data",
    ];
    assert_says(&resume(&another, &[]), 65, &words);
    assert_code(&resume(&another, &["--set", "train.allow_changed_data=true"]), 0);
    assert_parts(&bench.read("b", "log.txt"), &["warning: trained so far on other images: "]);
    let classes = read_json(bench.folder("b/classes.json"));
    assert_eq!(classes, serde_json::json!(["cat", "dog", "owl"]));
}

#[test]
fn fine_tuning_keeps_the_head_by_the_names_of_its_classes() {
    let (bench, data) = trained();
    let init = format!("train.init={}", bench.folder("a").display());
    let start = |name: &str, data: &Path, more: &[&str]| {
        // So slow that the weights stay.
        let slow = set(&["optim.lr=1e-12", "optim.min_lr=0.0", "optim.warmup_lr=0.0"]);
        let more = [&["--set", &init, "--steps", "1"], &slow[..], more].concat();
        let output = train(&bench, name, data, &more);
        assert_code(&output, 0);
        bench.read(name, "init.json")
    };
    let head = |name: &str, step: u64| {
        let bytes = bench.saved(name, step, "model.safetensors");
        let state = read_safetensors(&bytes).unwrap().state;
        let weight = state.array("head.weight").unwrap();
        let classes = *weight.shape.last().unwrap();
        let column = |class: usize| -> Vec<f32> {
            weight.values.iter().skip(class).step_by(classes).copied().collect()
        };
        (0..classes).map(column).collect::<Vec<_>>()
    };
    let last = json_lines(&bench.metrics("a")).last().unwrap()["step"].as_u64().unwrap();
    let before = head("a", last);
    let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);

    let notes = start("same", &data, &[]);
    assert!(!notes.contains("head"), "{notes}");
    assert!(head("same", 1).iter().zip(&before).all(|(a, b)| close(a, b)));

    let others = bench.folder("others");
    photos(&others, &[("bee", RED), ("cat", GREEN), ("owl", BLUE)], [8, 4]);
    let notes = start("others", &others, &[]);
    assert_parts(&notes, &["the weights have 3, the data 3, of which 2 have a name in common"]);
    assert!(head("others", 1).iter().all(|row| !before.iter().any(|old| close(row, old))));
    let notes = start("common", &others, &["--set", "train.init_head=common"]);
    assert_parts(&notes, &["of 3 classes, 2 take those of the same name"]);
    let common = head("common", 1);
    assert!(close(&common[1], &before[0]) && close(&common[2], &before[2]), "cats and owls");
    assert!(!before.iter().any(|old| close(&common[0], old)), "bees are new");
    let alone = ["--set", "train.init_head=common"];
    assert_says(&train(&bench, "x", &data, &alone), 78, &["no effect without weights"]);
}

#[test]
fn held_out_images_of_another_split_are_not_evaluated() {
    let bench = Bench::new();
    let sets = |seed: &str| {
        let texts = ["data.val_fraction=0.25".to_owned(), format!("data.val_seed={seed}")];
        texts.into_iter().flat_map(|text| ["--set".to_owned(), text]).collect::<Vec<_>>()
    };
    let train = |name: &str, seed: &str, more: &[&str]| {
        let own = sets(seed);
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        bench.train(name, &[&own[..], &["--steps", "2"], more].concat())
    };
    assert_code(&train("v0", "0", &[]), 0);
    // Another seed of the run leaves the split alone.
    assert_code(&train("s1", "0", &["--set", "run.seed=1"]), 0);
    let split = |name: &str, seed: &str, run: &str| {
        let own = sets(seed);
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        let weights = bench.folder(run).display().to_string();
        let more = ["--checkpoint", &weights, "--split", "val", "--set", "run.seed=1"];
        bench.eval(name, &[&own[..], &more].concat())
    };
    assert_code(&split("s1", "0", "v0"), 0);
    let refused = split("s1", "1", "v0");
    assert_says(&refused, 78, &["data.val_seed (recorded 0, now 1)", "--allow split"]);
    let init = format!("train.init={}", bench.folder("v0").display());
    let started = train("b", "1", &["--set", &init]);
    assert_says(&started, 78, &["data.val_seed", "train.init_allow = [\"split\"]"]);
    assert_code(&train("b", "0", &["--set", &init]), 0);
}
