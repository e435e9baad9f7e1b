//! Segmentation through the commands: training, resumption, shards and ranks, evaluation, maps.

use std::fs;
use std::path::Path;

use vim_data::dense_ops::encode_grey;
use vim_data::{DataConfig, EvalPair, EvalPairs, OnBad, Pixels, ShapesConfig, encode_png};

use crate::dense::{assert_refused, assert_resumes, assert_same_on_ranks, write_picture};
use crate::support::{
    Bench, assert_code, assert_parts, assert_says, parsed, read_json, repository, run, set, stderr,
    stdout, write, write_bare,
};

fn bench() -> Bench {
    Bench::of("crates/vim-train/tests/it/fixtures/segment.toml")
}

#[test]
fn it_trains_resumes_and_is_recorded_by_miou() {
    let bench = bench();
    let arrays = ["decode_head.bottleneck.bn.running_mean", "pyramid.fpn1"];
    assert_resumes(&bench, &arrays, &["miou", "macc", "aacc"]);
    let exit = read_json(bench.folder("whole").join("exit.json"));
    assert!(exit["best_miou"].is_number() && exit["miou"].is_number(), "{exit}");
    let log = bench.read("whole", "log.txt");
    assert_parts(&log, &["UperNet on 16 tokens", "floors of the test images' mIoU", "test mIoU"]);
    let config = bench.read("whole", "config.toml");
    assert_parts(&config, &["task = \"segmentation\"", "[segmentation]", "[pairs]"]);
}

#[test]
fn bytes_do_not_depend_on_the_number_of_ranks() {
    assert_same_on_ranks(&bench());
}

#[test]
fn maps_scores_and_submissions_come_out() {
    let bench = bench();
    assert_code(&bench.train("run", &["--set", "train.epochs=1"]), 0);
    let folder = bench.folder("run");
    let (run_folder, out) = (folder.to_str().unwrap(), tempfile::tempdir().unwrap());
    let path = |name: &str| out.path().join(name).display().to_string();
    let (table, figure) = (path("classes.csv"), path("confusion.svg"));
    let evaluated =
        run(&["eval", run_folder, "--per-class", &table, "--confusion", &figure, "--json"]);
    assert_code(&evaluated, 0);
    let scores = parsed(&evaluated);
    assert_eq!(scores["classes"].as_array().unwrap().len(), 12);
    assert!(scores["miou"].is_number() && scores["images"] == 8, "{scores}");
    let rows = fs::read_to_string(&table).unwrap();
    assert!(rows.starts_with("class,name,labelled,predicted,correct,iou,accuracy\n0,solid disk,"));
    assert!(fs::read_to_string(&figure).unwrap().contains("<svg"));
    let text = run(&["eval", run_folder]);
    assert_parts(&stdout(&text), &["checkered cross", "test images 8, mIoU"]);

    // A picture of another size than the model's.
    write_picture(&path("a.png"));
    let (maps, submission) = (path("maps"), path("submission"));
    let predicted = run(&[
        "predict",
        &path("a.png"),
        "--checkpoint",
        run_folder,
        "--maps",
        &maps,
        "--submission",
        &submission,
        "--json",
    ]);
    assert_code(&predicted, 0);
    assert!(parsed(&predicted)[0]["classes"][0]["share"].is_number());
    let header = |file: String| {
        let bytes = fs::read(file).unwrap();
        // Width, height, bits and colour type of a PNG.
        (bytes[16..24].to_vec(), bytes[24], bytes[25])
    };
    let size = vec![0, 0, 0, 48, 0, 0, 0, 48];
    assert_eq!(header(format!("{maps}/a.png")), (size.clone(), 8, 3), "a palette");
    assert_eq!(header(format!("{maps}/a_overlay.png")), (size.clone(), 8, 2), "colours");
    assert_eq!(header(format!("{submission}/a.png")), (size, 8, 0), "grey");
    let again = run(&["predict", &path("a.png"), "--checkpoint", run_folder, "--maps", &maps]);
    assert_says(&again, 73, &["a.png"]);

    let shown = path("shown.png");
    let config = "tests/it/fixtures/segment.toml";
    let shown = run(&["data", "show", config, "--count", "3", "--out", &shown]);
    assert_code(&shown, 0);
    assert_parts(&stdout(&shown), &["cropped", " % "]);
}

#[test]
fn weights_go_out_under_the_original_s_names_and_come_back() {
    let bench = bench();
    assert_code(&bench.train("run", &["--set", "train.epochs=1"]), 0);
    let (folder, config) = (bench.folder("run"), bench.folder("run/config.toml"));
    let (run_folder, config) = (folder.to_str().unwrap(), config.to_str().unwrap());
    let path = |name: &str| bench.folder(name).display().to_string();
    let [pth, ours] = ["1.pth", "2.safetensors"].map(path);
    let exported = parsed(&run(&["export", run_folder, "-o", &pth, "--json"]));
    assert_eq!(exported["step"], 4);
    let imported = run(&["import", &pth, "--config", config, "-o", &ours, "--json"]);
    let imported = parsed(&imported);
    assert_eq!(imported["tensors"], exported["tensors"]);
    assert_eq!(imported["segmentation"]["out_indices"], serde_json::json!([0, 1, 2, 3]));
    // Seven kinds of convolution modules, 13 in all.
    let notes = imported["notes"].as_array().unwrap();
    let counts = notes.iter().filter_map(|note| note.as_str()).flat_map(|note| note.split(", "));
    assert_eq!(counts.filter(|name| name.ends_with("num_batches_tracked")).count(), 13);

    // What is recorded in our file needs no configuration.
    let [first, second] = ["3.safetensors", "4.safetensors"].map(path);
    assert_code(&run(&["export", run_folder, "-o", &first]), 0);
    assert_code(&run(&["export", &ours, "-o", &second]), 0);
    assert!(fs::read(&first).unwrap() == fs::read(&second).unwrap(), "the same bytes");
    for weights in [&pth, &first] {
        let eval = |more: &[&str]| parsed(&run(&[&["eval", run_folder, "--json"], more].concat()));
        let (whole, file) = (eval(&[]), eval(&["--checkpoint", weights]));
        assert_eq!((&whole["miou"], &whole["classes"]), (&file["miou"], &file["classes"]));
    }
    let image = repository("crates/vim-train/tests/it/fixtures/grey.png");
    let predict =
        |weights: &str| run(&["predict", image.to_str().unwrap(), "--checkpoint", weights]);
    let of_run = predict(run_folder);
    assert_code(&of_run, 0);
    for weights in [&pth, &first, &ours] {
        assert_eq!(stdout(&predict(weights)), stdout(&of_run), "{weights}");
    }
    assert_code(&run(&["export", run_folder, "-o", &path("1.onnx"), "--pixels"]), 0);
    // Nothing but arrays, as other programs write them.
    let bare = path("bare.safetensors");
    write_bare(Path::new(&pth), Path::new(&bare));
    for refused in [run(&["import", &bare]), predict(&bare)] {
        assert_says(&refused, 65, &["bare.safetensors is a segmenter", "--config"]);
    }
    let allowed = run(&["import", &pth, "--config", config, "--allow", "head", "--classes", "5"]);
    assert_code(&allowed, 0);
    assert_parts(&stdout(&allowed), &["head of 12 classes replaced by a new one of 5 classes"]);
    let other = repository("configs/debug.toml");
    let refused =
        run(&["export", &ours, "--config", other.to_str().unwrap(), "-o", &path("5.pth")]);
    assert_says(&refused, 65, &["task = \"segmentation\""]);
}

/// Four scenes that are both trained on and tested on, as files.
#[test]
fn four_images_are_learned_by_heart() {
    let bench = bench();
    let shapes = ShapesConfig { image_size: 32, train: 4, ..ShapesConfig::default() };
    let config = DataConfig { shapes, ..DataConfig::default() };
    let scenes = vim_data::open::<vim_data::LabelMap>(&config).unwrap().train;
    let pairs = EvalPairs::new(&scenes, (0..4).collect(), 1, OnBad::Fail).unwrap();
    let data = bench.folder("pairs");
    // The same scenes, with the classes listed the other way round.
    let reversed = bench.folder("reversed");
    let last = scenes.num_classes() as u8 - 1;
    for (number, pair) in pairs.enumerate() {
        let EvalPair { image, map, .. } = pair.unwrap().unwrap();
        let turned = |&label: &u8| if label <= last { last - label } else { label };
        let turned: Vec<u8> = map.labels.iter().map(turned).collect();
        for (data, labels) in [(&data, &map.labels), (&reversed, &turned)] {
            let label_map = encode_grey(labels, [32, 32]).unwrap();
            for part in ["training", "validation"] {
                let file = |kind: &str| data.join(format!("{kind}/{part}/{number}.png"));
                write(&file("images"), encode_png(&image).unwrap());
                write(&file("annotations"), &label_map);
            }
        }
    }
    let names = scenes.class_names().to_vec();
    write(&data.join("classes.txt"), names.join("\n"));
    let listed = |names: &[String]| {
        let backwards: Vec<&str> = names.iter().rev().map(String::as_str).collect();
        backwards.join("\n")
    };
    write(&reversed.join("classes.txt"), listed(&names));
    let path = format!("data.path={}", data.display());
    let learn = set(&[
        "data.dataset=pairs",
        &path,
        "pairs.scale=[32, 32]",
        "pairs.ratio=[1.0, 1.0]",
        "pairs.hflip=0.0",
        "pairs.photometric=false",
        "segmentation.dropout=0.0",
        "model.drop_path=0.0",
        "train.batch_size=4",
        "train.steps=400",
        "train.eval_every=400st",
        "checkpoint.every=400st",
        "optim.lr=5e-3",
    ]);
    assert_code(&bench.train("run", &learn), 0);
    let scores = bench.scores("run", &learn);
    assert!(scores["aacc"].as_f64().unwrap() >= 0.99, "{scores}");

    // The names count, in whatever order they are listed.
    let path = format!("data.path={}", reversed.display());
    let elsewhere = [&learn[..], &["--set", &path]].concat();
    let again = bench.scores("run", &elsewhere);
    for key in ["miou", "macc", "aacc"] {
        assert_eq!(again[key], scores[key], "{key}");
    }
    assert_parts(&again["assumed"].to_string(), &["classes by name", "another order"]);
    let mut renamed = names.clone();
    renamed[3] = "a thing".to_owned();
    write(&reversed.join("classes.txt"), listed(&renamed));
    assert_says(&bench.eval("run", &elsewhere), 65, &["does not know 1 class: a thing"]);
}

/// One side is longer than what kernels resize: the pair is bad, and the run goes on.
#[test]
fn a_pair_too_long_for_a_segmenter_ends_no_run() {
    let bench = bench();
    let data = bench.folder("pairs");
    let pair = |part: &str, name: &str, [height, width]: [usize; 2]| {
        let file = |kind: &str| data.join(format!("{kind}/{part}/{name}.png"));
        let image = Pixels::black(height, width);
        write(&file("images"), encode_png(&image).unwrap());
        let labels: Vec<u8> = (0..height * width).map(|at| (at % 2) as u8).collect();
        write(&file("annotations"), encode_grey(&labels, [height, width]).unwrap());
    };
    for number in 0..32 {
        pair("training", &number.to_string(), [32, 32]);
    }
    for number in 0..3 {
        pair("validation", &number.to_string(), [32, 32]);
    }
    pair("validation", "long", [1, 40_000]);
    write(&data.join("classes.txt"), "even\nodd");
    let path = format!("data.path={}", data.display());
    let values = set(&["data.dataset=pairs", &path, "train.epochs=1"]);
    let says = ["long.png", "has 1 × 40000 pixels, which makes a side of 40000"];
    let config = repository("crates/vim-train/tests/it/fixtures/segment.toml");
    let look = |what: &str| {
        let args = [&["data", what, config.to_str().unwrap()], &values[..]].concat();
        run(&args)
    };
    let verified = look("verify");
    assert_code(&verified, 65);
    assert_parts(&stdout(&verified), &says);
    let scanned = look("scan");
    assert_code(&scanned, 0);
    assert_parts(&stdout(&scanned), &says);

    let wrong = [&values[..], &["--set", "data.bad_test=wrong"]].concat();
    assert_code(&bench.train("counted", &wrong), 0);
    let fails = bench.train("fails", &values);
    assert_says(&fails, 65, &says);
    // `predict` says it and goes on.
    let (short, long) = ("images/validation/1.png", "images/validation/long.png");
    let [short, long] = [short, long].map(|name| data.join(name).display().to_string());
    let checkpoint = bench.folder("counted").display().to_string();
    let maps = bench.folder("maps").display().to_string();
    let args = ["predict", &long, &short, "--checkpoint", &checkpoint, "--maps", &maps];
    let predicted = run(&args);
    assert_says(&predicted, 65, &["1 of 2 images cannot be used"]);
    assert_parts(&stderr(&predicted), &[says[1], "left out"]);
    assert!(Path::new(&maps).join("1.png").exists());
}

#[test]
fn sections_of_the_other_task_are_refused() {
    let config = "tests/it/fixtures/segment.toml";
    let values: &[(&str, &[&str])] = &[
        ("augment.mixup=0.8", &["augment", "[pairs]"]),
        ("task=classification", &["segmentation", "task = \"segmentation\""]),
        ("data.dataset=cifar10", &["data.dataset", "label maps"]),
        ("train.batch_size=1", &["train.batch_size", "2 images"]),
        ("pairs.ratio=[2.0, 1.0]", &["pairs.ratio"]),
        ("model.patch_size=4", &["patch"]),
    ];
    assert_refused(config, values);
}
