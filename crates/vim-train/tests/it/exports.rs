//! Objects as labelling tools export them, through the commands: boxes alone, YOLO, one part, LVIS.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::dense::write_picture;
use crate::detection::{scenes, write_part};
use crate::support::{
    Bench, assert_code, assert_parts, assert_says, parsed, read_json, run, set, stderr, stdout,
    write,
};

fn bench() -> Bench {
    Bench::of("crates/vim-train/tests/it/fixtures/detect.toml")
}

/// Two steps, and an evaluation.
const SHORT: [&str; 4] =
    ["train.steps=2", "train.batch_size=4", "train.eval_every=2st", "checkpoint.every=2st"];

fn short<'a>(more: &[&'a str]) -> Vec<&'a str> {
    set(&[&SHORT[..], more].concat())
}

/// The scores of a run on the data that it recorded.
fn scores(bench: &Bench, name: &str) -> Value {
    let evaluated = run(&["eval", bench.folder(name).to_str().unwrap(), "--json"]);
    assert_code(&evaluated, 0);
    parsed(&evaluated)
}

/// Roboflow's export of boxes: two parts, with every key that it writes.
fn roboflow(folder: &Path) {
    let split = scenes(8);
    for part in ["train", "valid"] {
        write_part(folder, part, &split, |one| !one["iscrowd"].as_bool().unwrap_or_default());
        let file = folder.join(format!("annotations/instances_{part}.json"));
        let mut content: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        for one in content["annotations"].as_array_mut().unwrap() {
            one["segmentation"] = json!([]);
        }
        content["info"] = json!({ "year": "2026", "date_created": 0 });
        write(&folder.join(part).join("_annotations.coco.json"), content.to_string());
    }
    fs::remove_dir_all(folder.join("annotations")).unwrap();
}

#[test]
fn boxes_alone_are_trained_measured_and_kept() {
    let bench = bench();
    let data = bench.folder("export");
    roboflow(&data);
    let path = format!("data.path={}", data.display());
    let of_data = ["data.dataset=coco", path.as_str()];
    // Nobody says that there are none.
    let refused = bench.train("none", &short(&of_data));
    assert_says(&refused, 65, &["has a mask", "detection.masks = false"]);
    let dry = bench.train("none", &[&short(&of_data)[..], &["--dry-run"]].concat());
    assert_says(&dry, 65, &["detection.masks = false"]);
    for what in ["scan", "verify"] {
        let looked = run(&[&["data", what][..], &set(&of_data)].concat());
        assert_code(&looked, 0);
        assert_parts(&stderr(&looked), &["no object has a mask"]);
    }

    let alone = ["data.dataset=coco", &path, "detection.masks=false"];
    let values = short(&[&alone[..], &["detection.score_threshold=0.0"]].concat());
    assert_code(&bench.train("run", &values), 0);
    assert_parts(&bench.read("run", "config.toml"), &["masks = false"]);
    assert_parts(&bench.read("run", "log.txt"), &["Cascade R-CNN on"]);
    let record = bench.records("run", "train").pop().unwrap();
    let losses = record.as_object().unwrap().keys().filter(|key| key.starts_with("loss_"));
    assert_eq!(losses.count(), 8, "{record}");
    assert!(record.get("loss_mask").is_none());
    let exit = read_json(bench.folder("run").join("exit.json"));
    assert!(exit["box_ap"].is_number() && exit.get("mask_ap").is_none(), "{exit}");
    assert_eq!(bench.read("run", "per_class.csv").lines().count(), 1 + 12);
    let saved = bench.saved("run", 2, "model.safetensors");
    assert!(!String::from_utf8_lossy(&saved).contains("mask_head"));

    let folder = bench.folder("run").display().to_string();
    let text = stdout(&run(&["eval", &folder]));
    assert!(text.contains("bbox") && !text.contains("segm"), "{text}");
    let [found, there] = ["found.json", "there.json"].map(|name| bench.folder(name));
    let [found, there] = [&found, &there].map(|path: &PathBuf| path.display().to_string());
    let files = ["--detections", &found, "--annotations", &there, "--json"];
    let scores = parsed(&run(&[&["eval", &folder][..], &files].concat()));
    assert!(scores["bbox"]["AP"].is_number() && scores.get("segm").is_none(), "{scores}");
    let again = parsed(&run(&["eval", "--coco", &there, &found, "--json"]));
    assert_eq!((&again["bbox"], again.get("segm")), (&scores["bbox"], None));
    let picture = bench.folder("a.png").display().to_string();
    write_picture(&picture);
    let drawn = bench.folder("drawn").display().to_string();
    let more = ["--checkpoint", &folder, "--least", "0", "--json", "--drawn", &drawn];
    let predicted = parsed(&run(&[&["predict", &picture][..], &more].concat()));
    let object = &predicted[0]["objects"][0];
    assert!(object["bbox"][3].is_number() && object.get("segmentation").is_none(), "{object}");
    assert!(object.get("area").is_none(), "{object}");

    // Files of either program say of themselves that they have none.
    let pth = bench.folder("run.pth").display().to_string();
    assert_code(&run(&["export", &folder, "-o", &pth]), 0);
    let onnx = bench.folder("run.onnx").display().to_string();
    assert_says(&run(&["export", &folder, "-o", &onnx]), 65, &["is a detector", "no graph"]);
    let kept = bench.folder("kept.safetensors").display().to_string();
    assert_code(&run(&["import", &pth, "-o", &kept]), 0);
    let init = format!("train.init={kept}");
    assert_code(&bench.train("next", &short(&[&alone[..], &[&init]].concat())), 0);
    let from = format!("train.init={folder}");
    let whole = bench.train("whole", &short(&[&from]));
    assert_says(&whole, 65, &["missing: mask_head.deconv.weight"]);
}

#[test]
fn weights_with_masks_are_those_of_boxes_too() {
    let bench = bench();
    assert_code(&bench.train("masks", &short(&[])), 0);
    let folder = bench.folder("masks").display().to_string();
    let unsaid = run(&["eval", &folder, "--set", "detection.masks=false"]);
    assert_says(&unsaid, 78, &["detection.masks (recorded not set, now false)"]);
    let boxes = ["--set", "detection.masks=false", "--allow", "view", "--json"];
    let alone = parsed(&run(&[&["eval", &folder][..], &boxes].concat()));
    let all = scores(&bench, "masks");
    assert_eq!((&alone["bbox"], alone.get("segm")), (&all["bbox"], None));
    let from = format!("train.init={folder}");
    let started = bench.train("boxes", &short(&[&from, "detection.masks=false"]));
    assert_code(&started, 0);
    let log = bench.read("boxes", "log.txt");
    assert_parts(&log, &["init all weights from", "not in the model, so not read: mask_head"]);
}

#[test]
fn an_export_of_one_part_is_trained_by_what_it_holds_out() {
    let bench = bench();
    let data = bench.folder("studio");
    let split = scenes(16);
    write_part(&data, "images", &split, |_| true);
    fs::rename(data.join("annotations/instances_images.json"), data.join("result.json")).unwrap();
    let path = format!("data.path={}", data.display());
    let of_data = ["data.dataset=coco", path.as_str()];
    let refused = bench.train("none", &short(&of_data));
    assert_says(&refused, 65, &["data.val_fraction"]);
    let held = [&of_data[..], &["data.val_fraction=0.25"]].concat();
    assert_code(&bench.train("run", &short(&held)), 0);
    let log = bench.read("run", "log.txt");
    assert!(log.contains(" val, ") && !log.contains(" 0 val, "), "{log}");
    assert_eq!(scores(&bench, "run")["images"], 4);
    let parts = bench.folder("parts");
    for part in ["train", "valid", "test"] {
        write_part(&parts, part, &split, |_| true);
    }
    let path = format!("data.path={}", parts.display());
    let own = bench.train("own", &short(&["data.dataset=coco", &path, "data.val_fraction=0.25"]));
    assert_says(&own, 78, &["0, as the data have validation images of their own"]);
    assert!(!stderr(&own).contains("data.parts"), "{}", stderr(&own));
}

#[test]
fn labels_of_yolo_are_trained() {
    let bench = bench();
    let data = bench.folder("yolo");
    let split = scenes(8);
    for part in ["train", "valid"] {
        write_part(&data, &format!("{part}/images"), &split, |_| true);
    }
    fs::remove_dir_all(data.join("annotations")).unwrap();
    let names = split.class_names();
    for part in ["train", "valid"] {
        for entry in fs::read_dir(data.join(part).join("images")).unwrap() {
            let name = entry.unwrap().path().file_stem().unwrap().to_owned();
            let label = data.join(part).join("labels").join(name).with_extension("txt");
            write(&label, "1 0.5 0.5 0.25 0.5\n0 0.25 0.25 0.5 0.25\n99 0.5 0.5 0.1 0.1\n");
        }
    }
    let head = "train: ../train/images\nval: ../valid/images\nnames:\n";
    let lines: String = names.iter().map(|name| format!("  - {name}\n")).collect();
    write(&data.join("data.yaml"), format!("{head}{lines}"));
    let path = format!("data.path={}", data.display());
    let values = short(&["data.dataset=yolo", &path, "detection.masks=false"]);
    assert_code(&bench.train("run", &values), 0);
    let log = bench.read("run", "log.txt");
    assert_parts(&log, &["8 objects of 8 images", "a class that is none: 8"]);
    let scores = scores(&bench, "run");
    assert_eq!(scores["bbox"]["unusable"]["left_out"], 8, "{scores}");
}

#[test]
fn lvis_is_trained_and_refused_by_name_in_an_evaluation() {
    let bench = bench();
    let data = bench.folder("lvis");
    let split = scenes(8);
    for part in ["train2017", "val2017"] {
        write_part(&data, part, &split, |_| true);
        let file = data.join(format!("annotations/instances_{part}.json"));
        let mut content: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        for image in content["images"].as_array_mut().unwrap() {
            let name = image.as_object_mut().unwrap().remove("file_name").unwrap();
            let name = name.as_str().unwrap();
            image["coco_url"] = format!("http://images.cocodataset.org/{part}/{name}").into();
            image["neg_category_ids"] = json!([1]);
        }
        let name = part.trim_end_matches("2017");
        write(&data.join(format!("lvis_v1_{name}.json")), content.to_string());
    }
    fs::remove_dir_all(data.join("annotations")).unwrap();
    let path = format!("data.path={}", data.display());
    let trained = bench.train("run", &short(&["data.dataset=coco", &path]));
    assert_code(&trained, 0);
    let log = bench.read("run", "log.txt");
    assert_parts(&log, &["LVIS", "federated AP", "there are no scores of these data"]);
    for text in [&log, &stdout(&trained), &bench.read("run", "results.html")] {
        let untrue = ["NaN %", "no validation images", "images are watched"];
        assert!(untrue.iter().all(|word| !text.contains(word)), "{text}");
    }
    assert!(bench.records("run", "eval").is_empty());
    assert!(read_json(bench.folder("run").join("exit.json")).get("box_ap").is_none());
    let refused = run(&["eval", bench.folder("run").to_str().unwrap()]);
    assert_says(&refused, 65, &["LVIS", "federated AP"]);
    let file = data.join("lvis_v1_val.json").display().to_string();
    let none = data.join("none.json").display().to_string();
    write(Path::new(&none), "[]");
    assert_says(&run(&["eval", "--coco", &file, &none]), 65, &["LVIS", "federated AP"]);
}
