//! What is known of images is said before the first step: through the commands.

use std::fs;
use std::path::Path;

use serde_json::Value;
use vim_data::dense_ops::encode_grey;
use vim_data::{DataConfig, EvalPair, EvalPairs, OnBad, ShapesConfig, encode_png};

use crate::detection::{scenes, write_part};
use crate::support::{Bench, assert_code, assert_parts, assert_says, run, set, stdout, write};

/// Training on data of which a test image, called `bad`, cannot be used for what is in `says`: it
/// ends before the first step or goes on to its end, as `data.bad_test` says.
#[track_caller]
fn assert_known(bench: &Bench, values: &[&str], bad: &str, says: &str) {
    let few = ["train.steps=4", "train.batch_size=4", "train.eval_every=2st"];
    let set = set(&[&few[..], values].concat());
    let words = ["1 of 4 test images", bad, says, "data.bad_test"];
    assert_says(&bench.train("run", &[&set[..], &["--dry-run"]].concat()), 65, &words);
    assert_says(&bench.train("run", &set), 65, &words);
    assert!(!bench.folder("run").exists(), "nothing was begun");

    let wrong = [&set[..], &["--set", "data.bad_test=wrong"]].concat();
    let dry = bench.train("run", &[&wrong[..], &["--dry-run"]].concat());
    assert_code(&dry, 0);
    assert_parts(&stdout(&dry), &["note: 1 of 4 test images cannot be used", bad]);
    // Stopped and resumed as ever.
    let resumed = [&wrong[..], &["--resume", "auto"]].concat();
    assert_code(&bench.train("run", &[&resumed[..], &["--steps", "2"]].concat()), 0);
    assert_code(&bench.train("run", &resumed), 0);
    assert_eq!(bench.records("run", "train").last().unwrap()["step"], 4);
    assert_parts(&bench.read("run", "log.txt"), &["1 of 4 test images cannot be used", bad]);
    // The recorded choice holds.
    let folder = bench.folder("run");
    let folder = folder.to_str().unwrap();
    let fail = ["eval", folder, "--set", "data.bad_test=fail"];
    assert_says(&run(&fail), 65, &words);
    assert_code(&run(&["eval", folder]), 0);
}

#[test]
fn an_image_of_another_size_than_annotated() {
    let bench = Bench::of("crates/vim-train/tests/it/fixtures/detect.toml");
    let (data, split) = (bench.folder("coco"), scenes(4));
    for part in ["train2017", "val2017"] {
        write_part(&data, part, &split, |one| !one["iscrowd"].as_bool().unwrap_or_default());
    }
    let file = data.join("annotations/instances_val2017.json");
    let mut annotations: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    annotations["images"][1]["height"] = 40.into();
    let bad = annotations["images"][1]["file_name"].as_str().unwrap().to_owned();
    write(&file, annotations.to_string());
    let path = format!("data.path={}", data.display());
    assert_known(&bench, &["data.dataset=coco", &path], &format!("val2017/{bad}"), "40");
}

#[test]
fn a_label_map_of_another_size() {
    let bench = Bench::of("crates/vim-train/tests/it/fixtures/segment.toml");
    let shapes = ShapesConfig { image_size: 32, train: 4, ..ShapesConfig::default() };
    let config = DataConfig { shapes, ..DataConfig::default() };
    let scenes = vim_data::open::<vim_data::LabelMap>(&config).unwrap().train;
    let data = bench.folder("pairs");
    write(&data.join("classes.txt"), scenes.class_names().join("\n"));
    let pairs = EvalPairs::new(&scenes, (0..4).collect(), 1, OnBad::Fail).unwrap();
    for (number, pair) in pairs.enumerate() {
        let EvalPair { image, map, .. } = pair.unwrap().unwrap();
        for part in ["training", "validation"] {
            let file = |kind: &str| data.join(format!("{kind}/{part}/{number}.png"));
            let is_cut = (part, number) == ("validation", 2);
            let rows = if is_cut { 31 } else { 32 };
            write(&file("images"), encode_png(&image).unwrap());
            write(&file("annotations"), encode_grey(&map.labels[..rows * 32], [rows, 32]).unwrap());
        }
    }
    let path = format!("data.path={}", data.display());
    let values = ["data.dataset=pairs", &path];
    assert_known(&bench, &values, "validation/2.png", "a label map of 31 × 32");
    let verified = run(&[&["data", "verify"][..], &set(&values)].concat());
    assert_says(&verified, 65, &["1 of 8 images"]);
    assert_parts(&stdout(&verified), &["validation/2.png"]);
}

#[test]
fn the_verdicts_of_a_verification() {
    let bench = Bench::new();
    let data = bench.folder("data");
    let picture = |path: &Path| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        crate::dense::write_picture(path.to_str().unwrap());
    };
    for (part, count) in [("train", 8), ("val", 2)] {
        for class in ["a", "b"] {
            let file = |number| data.join(format!("{part}/{class}/{number}.png"));
            (0..count).for_each(|number| picture(&file(number)));
        }
    }
    let cut = data.join("val/b/1.png");
    let whole = fs::read(&cut).unwrap();
    write(&cut, &whole[..whole.len() / 2]);
    let path = format!("data.path={}", data.display());
    let values = set(&["data.dataset=folder", &path]);
    assert_code(&run(&[&["data", "verify"][..], &values].concat()), 65);
    let small = ["augment.preset=none", "data.dataset=folder", &path];
    assert_known(&bench, &small, "val/b/1.png", "cut short");
}
