//! Weights in and out: `import`, `export`, `eval` and `predict` of files, `train.init`.

use std::ffi::OsStr;
use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Output;

use burn::tensor::Device;
use serde_json::Value;
use vim_dense::detection::DetectorConfig;
use vim_model::{Names, Preset, VimConfig};
use vim_torch::{
    ArrayView, Section, StateDict, Value as Stored, read_checkpoint, write_mmcv, write_safetensors,
};

use crate::support::{
    self, Bench, assert_code, assert_parts, assert_says, parsed, read_json, repository, set, state,
    stderr, stdout, write_bare,
};

/// The small model of the original's that vim-model is tested with: 64 px, 10 classes, 75 tensors.
fn original() -> PathBuf {
    repository("crates/vim-model/tests/fixtures/a_mid.pth")
}

fn vim_train(args: &[&dyn AsRef<OsStr>]) -> Output {
    support::vim_train(&[]).args(args.iter().map(|arg| arg.as_ref())).output().unwrap()
}

fn json(output: &Output) -> Value {
    assert_code(output, 0);
    parsed(output)
}

#[test]
fn import_export_import_is_bit_identical() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let first = json(&vim_train(&[&"import", &original(), &"-o", &at("1.safetensors"), &"--json"]));
    assert_eq!((&first["tensors"], &first["num_classes"]), (&75.into(), &10.into()));
    assert_eq!(first["description"], "inferred from the shapes");
    assert_eq!((&first["model"]["image_size"], &first["model"]["depth"]), (&64.into(), &4.into()));
    assert_eq!(first["ignored"], serde_json::json!(["epoch", "args"]));
    for (name, back) in [("2.pth", "2.safetensors"), ("3.safetensors", "4.safetensors")] {
        assert_code(&vim_train(&[&"export", &at("1.safetensors"), &"-o", &at(name)]), 0);
        assert_code(&vim_train(&[&"import", &at(name), &"-o", &at(back)]), 0);
        let same = fs::read(at("1.safetensors")).unwrap() == fs::read(at(back)).unwrap();
        assert!(same, "{name}");
    }
    assert_code(&vim_train(&[&"export", &at("1.safetensors"), &"-o", &at("5.pth")]), 0);
    assert!(fs::read(at("5.pth")).unwrap() == fs::read(at("2.pth")).unwrap(), "the same bytes");

    let again = vim_train(&[&"export", &at("1.safetensors"), &"-o", &at("5.pth")]);
    assert_says(&again, 73, &["is there already"]);
    let forced = vim_train(&[&"export", &at("1.safetensors"), &"-o", &at("5.pth"), &"--force"]);
    assert_code(&forced, 0);
    assert_code(&vim_train(&[&"export", &at("1.safetensors"), &"-o", &at("6.pb")]), 2);
}

/// The arrays of [`original`], as other programs would leave them.
fn original_state() -> StateDict {
    read_checkpoint(File::open(original()).unwrap(), Section::Model).unwrap().state
}

/// Writes `{"meta": {}, "state_dict": …}` with the arrays of `state` by the names that `wrapped`
/// makes of theirs, then `more`.
fn write_wrapped(
    path: &Path,
    state: &StateDict,
    wrapped: impl Fn(&str) -> String,
    more: &[(&str, Stored<'_>)],
) {
    let names: Vec<(String, ArrayView<'_>)> = state
        .iter()
        .map(|(key, _)| (wrapped(key), ArrayView::from(state.array(key).unwrap())))
        .collect();
    let arrays = names.iter().map(|(key, array)| (key.as_str(), Stored::Floats(*array)));
    let values = arrays.chain(more.iter().copied());
    write_mmcv(File::create(path).unwrap(), &[], values, &[]).unwrap();
}

#[test]
fn wrappers_and_counters_are_taken_off_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let state = original_state();
    assert_code(&vim_train(&[&"import", &original(), &"-o", &at("plain.safetensors")]), 0);

    let one = ArrayView { shape: &[1], bytes: &1.0_f32.to_le_bytes() };
    let counters = [
        ("n_averaged", Stored::Integer(7)),
        ("_orig_mod.module.model.layers.0.mixer.total_ops", Stored::Floats(one)),
        ("total_params", Stored::Floats(one)),
    ];
    let prefix = "_orig_mod.module.model.";
    let wrapped = |name: &str| {
        format!("{prefix}{}", name.replace("layers.1.", "layers.1._checkpoint_wrapped_module."))
    };
    write_wrapped(&at("1.ckpt"), &state, wrapped, &counters);
    let names: Vec<String> = state.iter().map(|(key, _)| wrapped(key)).collect();
    let arrays = state.iter().map(|(key, _)| ArrayView::from(state.array(key).unwrap()));
    let arrays = names.iter().map(String::as_str).zip(arrays);
    write_safetensors(File::create(at("2.safetensors")).unwrap(), arrays, &[]).unwrap();

    for (name, back) in [("1.ckpt", "3.safetensors"), ("2.safetensors", "4.safetensors")] {
        let read = json(&vim_train(&[&"import", &at(name), &"-o", &at(back), &"--json"]));
        assert_eq!((&read["prefix"], &read["tensors"]), (&prefix.into(), &75.into()), "{name}");
        assert_eq!(read["inner"], serde_json::json!(["_checkpoint_wrapped_module."]));
        let same = fs::read(at("plain.safetensors")).unwrap() == fs::read(at(back)).unwrap();
        assert!(same, "{name}");
    }
    let read = json(&vim_train(&[&"import", &at("1.ckpt"), &"--json"]));
    let listed = counters.map(|(name, _)| name);
    assert_eq!(read["ignored"], serde_json::json!([&["meta"][..], &listed].concat()));
    let shown = vim_train(&[&"import", &at("1.ckpt")]);
    let said = [
        "entry `state_dict`",
        "prefix `_orig_mod.module.model.` taken off",
        "`_checkpoint_wrapped_module.` taken out of names",
        "ignored  meta, n_averaged, _orig_mod.module.model.layers.0.mixer.total_ops, total_params",
    ];
    assert_parts(&stdout(&shown), &said);
    let plain = json(&vim_train(&[&"import", &original(), &"--json"]));
    assert_eq!((&plain["prefix"], &plain["inner"]), (&Value::Null, &serde_json::json!([])));
}

#[test]
fn a_prefix_that_stays_is_named_with_what_is_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let (mixed, unknown) = (folder.path().join("mixed.ckpt"), folder.path().join("unknown.pth"));
    let one = ArrayView { shape: &[1], bytes: &1.0_f32.to_le_bytes() };
    let losses = ["loss.a", "loss.b", "loss.c", "loss.d"].map(|name| (name, Stored::Floats(one)));
    let state = original_state();
    write_wrapped(&mixed, &state, |name| format!("model.{name}"), &losses);
    write_wrapped(&unknown, &state, |name| format!("vim.{name}"), &[]);
    // Whether the model is derived from the shapes or given.
    let preset: [&dyn AsRef<OsStr>; 4] = [&"--preset", &"tiny", &"--classes", &"10"];
    for more in [&preset[..0], &preset[..2], &preset] {
        let import = |file: &PathBuf| {
            let args: [&dyn AsRef<OsStr>; 2] = [&"import", file];
            vim_train(&[&args[..], more].concat())
        };
        let refused = import(&mixed);
        let words = [
            if more.len() == 2 {
                "has `model.head.bias`"
            } else {
                "has `model.patch_embed.proj.weight`"
            },
            "the prefix `model.` stays, as 4 tensors are without it: loss.a, loss.b, loss.c and 1 more",
            "k.removeprefix('model.')",
        ];
        assert_says(&refused, 65, &words);
        assert_eq!(stderr(&refused).lines().count(), 1);
        assert_says(&import(&unknown), 65, &["the prefix `vim.` is of no wrapper that is known"]);
    }
}

#[test]
fn a_detector_goes_through_detectron2_s_names_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let backbone = VimConfig {
        image_size: 64.into(),
        depth: 2,
        d_model: 8,
        d_state: 2,
        ..DetectorConfig::backbone(Preset::Tiny)
    };
    let heads = DetectorConfig { channels: 4, box_features: 6, ..DetectorConfig::default() };
    let model = heads.init(&backbone, 3, &Device::flex(), 7).unwrap();
    let arrays = model.state(Names::Pytorch).unwrap();
    fs::write(at("1.pth"), arrays.to_pytorch().unwrap()).unwrap();

    let first =
        json(&vim_train(&[&"import", &at("1.pth"), &"-o", &at("2.safetensors"), &"--json"]));
    assert_eq!((&first["num_classes"], &first["model"]["depth"]), (&3.into(), &2.into()));
    assert_eq!(
        (&first["model"]["rope"], &first["model"]["image_size"]),
        (&"both".into(), &64.into())
    );
    let heads = &first["detection"];
    assert_eq!((&heads["channels"], &heads["box_features"]), (&4.into(), &6.into()));
    assert_eq!(first["parameters"], model.num_parameters());
    assert_eq!(first["description"], "inferred from the shapes");
    let shown = vim_train(&[&"import", &at("1.pth")]);
    assert_parts(
        &stdout(&shown),
        &["assumed", "rope both", "detection.anchor_size 8", "[detection]"],
    );

    // By an archive and by safetensors, both under the original's names.
    for (name, back) in [("3.pth", "4.safetensors"), ("5.safetensors", "6.safetensors")] {
        assert_code(&vim_train(&[&"export", &at("2.safetensors"), &"-o", &at(name)]), 0);
        assert_code(&vim_train(&[&"import", &at(name), &"-o", &at(back)]), 0);
        let same = fs::read(at("2.safetensors")).unwrap() == fs::read(at(back)).unwrap();
        assert!(same, "{name}");
    }
    assert!(state(&at("1.pth")) == state(&at("3.pth")), "the same arrays");
    let recorded = json(&vim_train(&[&"import", &at("2.safetensors"), &"--json"]));
    assert_eq!(recorded["description"], "as recorded with the weights");
    assert_eq!(recorded["detection"], first["detection"]);

    let refused = vim_train(&[&"import", &at("1.pth"), &"--classes", &"2"]);
    assert_says(&refused, 65, &["does not fit the model in 8 places", "cls_score.weight"]);
    let args: [&dyn AsRef<OsStr>; 6] =
        [&"import", &at("1.pth"), &"--classes", &"2", &"--allow", &"head"];
    let allowed = vim_train(&args);
    assert_code(&allowed, 0);
    let said = "head of 3 classes replaced by a new one of 2 classes";
    assert_parts(&stdout(&allowed), &[said]);
    let other = repository("configs/debug.toml");
    let refused = vim_train(&[&"import", &at("1.pth"), &"--config", &other]);
    assert_says(&refused, 65, &["1.pth is a detector", "task = \"detection\""]);
    let short = arrays.filtered(|name| !name.starts_with("backbone.net.patch_embed"));
    fs::write(at("7.pth"), short.to_pytorch().unwrap()).unwrap();
    let refused = vim_train(&[&"import", &at("7.pth")]);
    assert_says(&refused, 65, &["7.pth is a detector", "patch_embed.proj.weight"]);
}

/// Photographs in two classes, and the settings of a short run on them.
fn on_photographs(bench: &Bench) -> Vec<String> {
    let photos = bench.folder("photos");
    for part in ["train", "val"] {
        for class in ["blue", "red"] {
            let folder = photos.join(part).join(class);
            fs::create_dir_all(&folder).unwrap();
            for name in ["444.jpg", "gray.png", "cmyk.jpg", "png.JPEG"] {
                let from = repository("crates/vim-data/tests/golden/odd").join(name);
                fs::copy(from, folder.join(name)).unwrap();
            }
        }
    }
    let path = format!("data.path={}", photos.display());
    let sets = [
        "data.dataset=folder",
        &path,
        "augment.preset=none",
        "train.batch_size=4",
        "train.epochs=1",
        "model.class_token=head",
        "model.discretization=bilinear",
    ];
    set(&sets).into_iter().map(str::to_owned).collect()
}

fn init_of(weights: &Path) -> String {
    format!("train.init={}", weights.display())
}

#[test]
fn an_exported_rectangle_is_what_the_run_is() {
    let bench = Bench::new();
    let sets = on_photographs(&bench);
    let train = |name: &str, more: &[&str]| {
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        assert_code(&bench.train(name, &[&sets[..], &set(more)].concat()), 0);
    };
    // As many patches as a square has, 4 × 9.
    train("a", &["model.image_size=[32,72]"]);
    let image = bench.folder("photos/val/red/444.jpg");
    let predict = |weights: &Path| vim_train(&[&"predict", &image, &"--checkpoint", &weights]);
    let of_run = stdout(&predict(&bench.folder("a")));
    assert_parts(&of_run, &["blue (0)", "red (1)"]);
    for extension in ["pth", "safetensors"] {
        let file = bench.folder(&format!("x.{extension}"));
        assert_code(&vim_train(&[&"export", &bench.folder("a"), &"-o", &file]), 0);
        let told = json(&vim_train(&[&"import", &file, &"--json"]));
        assert_eq!(told["description"], "as recorded with the weights", "{extension}");
        assert_eq!(told["model"]["image_size"], serde_json::json!([32, 72]));
        assert_eq!(told["model"]["class_token"], "head");
        assert_eq!(told["model"]["discretization"], "bilinear");
        for nothing in ["ignored", "notes"] {
            assert_eq!(told[nothing], serde_json::json!([]), "{nothing}");
        }
        let kept = bench.folder(&format!("{extension}.safetensors"));
        assert_code(&vim_train(&[&"import", &file, &"-o", &kept]), 0);
        for weights in [&file, &kept] {
            let output = predict(weights);
            assert_code(&output, 0);
            assert_eq!((stdout(&output), stderr(&output)), (of_run.clone(), String::new()));
        }
        // In a square of as many patches the positions are others.
        train(extension, &[&init_of(&file), "model.image_size=48"]);
        let resized = "positions resized from 4 x 9 to 6 x 6 patches (middle_aware)";
        assert_parts(&bench.read(extension, "log.txt"), &[resized]);
        let init = read_json(bench.folder(extension).join("init.json"));
        assert!(init["notes"].as_array().unwrap().contains(&resized.into()), "{init}");
        let init = init_of(&file);
        let more = set(&[&init, "model.image_size=48"]);
        let own: Vec<&str> = sets.iter().map(String::as_str).collect();
        let planned = bench.train("planned", &[&own[..], &more, &["--dry-run"]].concat());
        assert_parts(&stdout(&planned), &["init ", &format!("init: {resized}")]);
    }
    train("turned", &[&init_of(&bench.folder("a")), "model.image_size=[72,32]"]);
    let resized = "positions resized from 4 x 9 to 9 x 4 patches (middle_aware)";
    assert_parts(&bench.read("turned", "log.txt"), &[resized]);

    // Without a record the shapes count, and what is assumed is said.
    let bare = bench.folder("bare.safetensors");
    write_bare(&bench.folder("x.pth"), &bare);
    assert_parts(&stdout(&vim_train(&[&"import", &bare])), &["assumed  image_size 48"]);
    let config = bench.folder("a/config.toml");
    let told = vim_train(&[&"import", &bare, &"--config", &config]);
    assert_code(&told, 0);
    assert_parts(&stdout(&told), &["positions taken as of 4 x 9 patches as the model's"]);
}

#[test]
fn every_disagreement_is_a_line_and_the_error_one_more() {
    let output = vim_train(&[&"import", &original(), &"--preset", &"tiny"]);
    assert_code(&output, 65);
    let text = stderr(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.contains(&"of another shape: head.weight (expected [10, 192], got [10, 64])"));
    assert!(lines.contains(&"missing: layers.23.mixer.D_b [384]"));
    let (last, before) = lines.split_last().unwrap();
    // Twenty layers of 17 tensors are missing, everything there is but head.bias is too small.
    assert_eq!(before.len(), 20 * 17 + 74);
    assert!(last.starts_with("error: ") && last.contains("in 414 places (listed above)"), "{last}");

    let absent = vim_train(&[&"import", &"absent.pth"]);
    assert_code(&absent, 74);
    let ema = vim_train(&[&"import", &original(), &"--ema"]);
    assert_says(&ema, 65, &["has no entry `model_ema`"]);
    let unknown = vim_train(&[&"import", &original(), &"--preset", &"huge"]);
    assert_code(&unknown, 2);
}

#[test]
fn a_head_of_other_classes_is_made_anew_where_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("x.safetensors");
    let import = |more: &[&dyn AsRef<OsStr>]| {
        let model = original();
        let three: [&dyn AsRef<OsStr>; 4] = [&"import", &model, &"--classes", &"3"];
        vim_train(&[&three, more].concat())
    };
    assert_code(&import(&[]), 65);
    let allowed = import(&[&"--allow", &"head", &"-o", &output]);
    assert_code(&allowed, 0);
    let line = "head of 10 classes replaced by a new one of 3 classes";
    assert_parts(&stdout(&allowed), &[line]);
}

#[test]
fn tensors_that_the_model_has_not_are_left_where_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pth");
    let state = original_state();
    let probe = Stored::Floats(ArrayView::from(state.array("norm_f.weight").unwrap()));
    write_wrapped(&path, &state, str::to_owned, &[("probe.weight", probe)]);
    let refused = vim_train(&[&"import", &path]);
    assert_says(&refused, 65, &["not in the model: probe.weight", "1 place"]);
    let allowed = vim_train(&[&"import", &path, &"--allow", &"extra"]);
    assert_code(&allowed, 0);
    assert_parts(&stdout(&allowed), &["not in the model, so not read: probe.weight"]);
}

#[test]
fn a_run_is_exported_evaluated_and_used_as_a_start() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--set", "train.epochs=1"]), 0);
    let exported = bench.folder("a.pth");
    let record = json(&vim_train(&[&"export", &bench.folder("a"), &"-o", &exported, &"--json"]));
    assert_eq!(record["step"], 8);

    // The same scores from the run's checkpoint and from the file that was exported.
    let eval = |checkpoint: &str| {
        bench.scores("a", &["--set", "train.epochs=1", "--checkpoint", checkpoint])
    };
    let (best, file) = (eval("best"), eval(exported.to_str().unwrap()));
    for key in ["loss", "top1", "top5", "images"] {
        assert_eq!(best[key], file[key], "{key}");
    }
    assert_eq!(file["step"], Value::Null);

    // Fine-tuning on larger images, with slower layers.
    let init = format!("train.init={}", exported.display());
    let size = ["model.image_size=48", "data.shapes.image_size=48"];
    let more = set(&[&init, "train.layer_decay=0.7", size[0], size[1]]);
    let tuned = bench.train("b", &[&more[..], &["--steps", "4"]].concat());
    assert_code(&tuned, 0);
    let blake3 = blake3::hash(&fs::read(&exported).unwrap()).to_hex().to_string();
    let resized = "positions resized from 4 x 4 to 6 x 6 patches (middle_aware)";
    assert_parts(&bench.read("b", "log.txt"), &[resized, &blake3]);
    assert_eq!(read_json(bench.folder("b/init.json"))["blake3"], blake3);
    let losses = bench.numbers("b", "train", "loss");
    assert!(!losses.is_empty() && losses.iter().all(|loss| loss.is_finite()), "{losses:?}");

    // It goes on without the file: the checkpoint is what counts now.
    fs::rename(&exported, bench.folder("moved.pth")).unwrap();
    let resumed = bench.train("b", &[&more[..], &["--resume", "must", "--steps", "2"]].concat());
    assert_code(&resumed, 0);
    // A fresh one cannot start.
    let fresh = bench.train("c", &more);
    assert_code(&fresh, 74);
    assert!(!bench.folder("c").exists(), "found before there is a folder");
}

#[test]
fn a_run_goes_by_all_its_names_and_without_a_best_checkpoint_by_its_last() {
    let bench = Bench::new();
    let without = ["--set", "data.shapes.val=0"];
    assert_code(&bench.train("a", &[&without[..], &["--steps", "2"]].concat()), 0);
    let (run, root) = (bench.folder("a"), bench.folder(""));
    let set_root = format!("run.root={}", root.display());
    let note = "a has no best checkpoint, as no held-out images have chosen one \
                (data.val_fraction): this is the last, of step 2";
    let path = |name: &str| root.join(name).display().to_string();
    let exported = bench.folder("x.safetensors");
    for (name, falls_back) in [
        ("a", true),
        (&*path("a"), true),
        ("a/checkpoints/best", true),
        (&*path("a/checkpoints/best"), true),
        ("a/checkpoints/last", false),
        (&*path("a/checkpoints/step-00000002"), false),
    ] {
        let args: [&dyn AsRef<OsStr>; 7] =
            [&"export", &name, &"--set", &set_root, &"-o", &exported, &"--force"];
        let output = vim_train(&args);
        assert_code(&output, 0);
        assert_eq!(stderr(&output).contains(note), falls_back, "{name}: {}", stderr(&output));
        assert_parts(&stdout(&output), &["checkpoint of step 2"]);
        let shown = json(&vim_train(&[&"runs", &"show", &name, &"--root", &root, &"--json"]));
        assert_eq!(shown["run"]["step"], 2, "{name}");
    }

    // By the run alone, and by its configuration.
    let image = bench.folder("x.png");
    fs::write(&image, include_bytes!("fixtures/grey.png")).unwrap();
    let predicted = vim_train(&[
        &"predict",
        &image,
        &"--checkpoint",
        &"a/checkpoints/last",
        &"--set",
        &set_root,
        &"--json",
    ]);
    assert_eq!(json(&predicted)[0]["predictions"].as_array().unwrap().len(), 5);
    let by_name = vim_train(&[&"eval", &"a", &"--set", &set_root, &"--json"]);
    assert_says(&by_name, 0, &[note]);
    let by_config = bench.scores("a", &without);
    assert_eq!(parsed(&by_name)["loss"], by_config["loss"]);
    let other = vim_train(&[&"eval", &run, &"--set", &"model.discretization=foh"]);
    assert_says(
        &other,
        78,
        &["was trained otherwise: model.discretization (recorded \"zoh\", now \"foh\")"],
    );
    let started = bench.train("b", &["--set", "train.init=a", "--steps", "1"]);
    assert_code(&started, 0);
    assert_parts(&bench.read("b", "log.txt"), &[&format!("init: {}", run.display()), "step 2"]);

    for (args, code, words) in [
        (&["eval", "c"][..], 65, "c is no file of weights"),
        (&["predict", "x.png", "--checkpoint", "last"], 65, "write RUN/checkpoints/last"),
        (&["export", "c.pth", "-o", "y.pth"], 74, "c.pth cannot be read"),
    ] {
        let output =
            vim_train(&args.iter().map(|arg| arg as &dyn AsRef<OsStr>).collect::<Vec<_>>());
        assert_says(&output, code, &[words]);
        assert_eq!(stderr(&output).lines().count(), 1);
    }
}

#[test]
fn weights_of_another_model_cannot_start_a_run() {
    let bench = Bench::new();
    let init = format!("train.init={}", original().display());
    let output = bench.train("a", &["--set", &init]);
    assert_says(&output, 65, &["of another shape: patch_embed.proj.weight"]);
    assert_code(&bench.train("a", &["--set", "train.layer_decay=1.5"]), 78);
}

#[test]
fn predict_names_what_it_sees() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--set", "train.epochs=1"]), 0);
    // A grey PNG of 2 × 2 pixels, as small as they come.
    let image = bench.folder("x.png");
    fs::write(&image, include_bytes!("fixtures/grey.png")).unwrap();
    let run = bench.folder("a");
    let predict = |image: &dyn AsRef<OsStr>, more: &[&dyn AsRef<OsStr>]| {
        let args: [&dyn AsRef<OsStr>; 4] = [&"predict", image, &"--checkpoint", &run];
        vim_train(&[&args, more].concat())
    };
    let result = json(&predict(&image, &[&"--top", &"12", &"--json"]));
    let guesses = result[0]["predictions"].as_array().unwrap();
    assert_eq!(guesses.len(), 12);
    let probabilities: Vec<f64> =
        guesses.iter().map(|guess| guess["probability"].as_f64().unwrap()).collect();
    assert!(probabilities.is_sorted_by(|a, b| a >= b));
    assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    assert!(guesses.iter().any(|guess| guess["name"] == "striped disk" && guess["class"] == 1));

    let names = bench.folder("names.txt");
    fs::write(&names, "one\ntwo\n").unwrap();
    assert_code(&predict(&image, &[&"--classes", &names]), 65);
    fs::write(&names, "x\n".repeat(12)).unwrap();
    let output = predict(&image, &[&"--classes", &names]);
    assert_code(&output, 0);
    assert_eq!(stdout(&output).lines().count(), 6, "the image and five classes");

    assert_says(&predict(&names, &[]), 65, &["names.txt begins with `"]);
    assert_says(&predict(&"absent.png", &[]), 65, &["cannot read absent.png", "1 of 1 images"]);
}
