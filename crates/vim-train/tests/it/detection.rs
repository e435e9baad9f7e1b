//! Detection through the commands: training, resumption, shards and ranks, evaluation, pictures.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use strum::VariantArray;
use vim_data::{
    CocoAnnotations, DataConfig, EvalScene, EvalScenes, OnBad, ShapesConfig, Split, encode_png,
};
use vim_kernels::Discretization;

use crate::dense::{LAST, assert_refused, assert_resumes, assert_same_on_ranks, write_picture};
use crate::support::{
    Bench, assert_code, assert_parts, assert_says, json_lines, parsed, read_json, run, set, stdout,
    write,
};

fn bench() -> Bench {
    Bench::of("crates/vim-train/tests/it/fixtures/detect.toml")
}

#[test]
fn it_trains_resumes_and_is_recorded_by_average_precision() {
    let bench = bench();
    let scores = ["box_ap", "box_ap50", "box_ap75", "mask_ap", "mask_ap50", "mask_ap75"];
    assert_resumes(&bench, &["box_heads.2.fc1.weight", "mask_head.predictor.bias"], &scores);
    let records = json_lines(&bench.metrics("whole"));
    let at = |step: u64| {
        let of_step = |record: &&Value| record["kind"] == "train" && record["step"] == step;
        records.iter().find(of_step).unwrap()
    };
    let losses = at(LAST).as_object().unwrap().iter().filter(|(key, _)| key.starts_with("loss_"));
    let losses: Vec<f64> = losses.map(|(_, loss)| loss.as_f64().unwrap()).collect();
    let (sum, loss) = (losses.iter().sum::<f64>(), at(LAST)["loss"].as_f64().unwrap());
    assert!(losses.len() == 9 && (sum - loss).abs() < 1e-4 * loss, "{losses:?} of {loss}");
    let rate = |step: u64| at(step)["lr"].as_f64().unwrap();
    assert!((rate(LAST) / rate(6) - 0.1).abs() < 1e-9, "a tenth from the milestone on");
    let exit = read_json(bench.folder("whole").join("exit.json"));
    assert!(exit["best_box_ap"].is_number() && exit["box_ap"].is_number(), "{exit}");
    let log = bench.read("whole", "log.txt");
    assert_parts(&log, &["Cascade Mask R-CNN on 16 tokens, strides 2 to 32", "test box AP"]);
    let config = bench.read("whole", "config.toml");
    assert_parts(&config, &["task = \"detection\"", "[detection]", "[objects]", "milestones"]);
    let rows = bench.read("whole", "per_class.csv");
    assert!(rows.starts_with("kind,class,name,objects,detections,ap,ap50,ap75,ar100\nbbox,1,"));
    assert_eq!(rows.lines().count(), 1 + 2 * 12);
}

#[test]
fn bytes_do_not_depend_on_the_number_of_ranks() {
    assert_same_on_ranks(&bench());
}

#[test]
fn scores_files_and_pictures_come_out() {
    let bench = bench();
    // The first detections are unsure.
    let few = set(&["train.epochs=1", "detection.score_threshold=0.0"]);
    assert_code(&bench.train("run", &few), 0);
    let folder = bench.folder("run");
    let (run_folder, out) = (folder.to_str().unwrap(), tempfile::tempdir().unwrap());
    let path = |name: &str| out.path().join(name).display().to_string();
    let files = ["classes.csv", "found.json", "there.json"].map(path);
    let [table, found, there] = &files;
    let evaluated = run(&[
        "eval",
        run_folder,
        "--per-class",
        table,
        "--detections",
        found,
        "--annotations",
        there,
        "--json",
    ]);
    assert_code(&evaluated, 0);
    let scores = parsed(&evaluated);
    assert_eq!(scores["bbox"]["classes"].as_array().unwrap().len(), 12);
    assert_eq!(scores["images"], 8);
    let count = scores["detections"].as_u64().unwrap();
    assert!(count > 0, "{scores}");
    // The files say the same to whoever reads them.
    let again = parsed(&run(&["eval", "--coco", there, found, "--json"]));
    assert_eq!(again["bbox"], scores["bbox"]);
    for number in ["AP", "AP50", "AP75", "AR1", "AR10", "AR100"] {
        assert_eq!(again["segm"][number], scores["segm"][number], "{number}");
    }
    let list: Value = serde_json::from_str(&fs::read_to_string(found).unwrap()).unwrap();
    // By size they do of masks alone: beside a box, its area counts there.
    let mut masks = list.clone();
    for one in masks.as_array_mut().unwrap() {
        one.as_object_mut().unwrap().remove("bbox");
    }
    let alone = path("masks.json");
    write(Path::new(&alone), masks.to_string());
    let alone = parsed(&run(&["eval", "--coco", there, &alone, "--json"]));
    assert_eq!(alone["segm"], scores["segm"]);
    assert_eq!(list.as_array().unwrap().len() as u64, count);
    assert!(list[0]["segmentation"]["counts"].is_string() && list[0]["bbox"][3].is_number());
    let text = run(&["eval", run_folder]);
    assert_parts(&stdout(&text), &["test images 8, ", "AP50", "AR_large", "checkered cross"]);
    let refused = run(&["eval", run_folder, "--detections", found]);
    assert_says(&refused, 73, &["found.json"]);
    // Another threshold is another evaluation of the same model.
    let least = ["--set", "detection.score_threshold=1.0", "--json"];
    let unsaid = run(&[&["eval", run_folder][..], &least].concat());
    assert_says(&unsaid, 78, &["detection.score_threshold (recorded 0.0, now 1.0)"]);
    let least = [&least[..], &["--allow", "view"]].concat();
    let nothing = parsed(&run(&[&["eval", run_folder][..], &least].concat()));
    assert_eq!((&nothing["detections"], &nothing["bbox"]["AP"]), (&json!(0), &json!(0.0)));

    // A picture of another size than the model's.
    write_picture(&path("a.png"));
    fs::write(path("b.png"), "no picture").unwrap();
    let pictures = path("drawn");
    let both = [path("a.png"), path("b.png")];
    let predict = |more: &[&str]| {
        run(&[&["predict", &both[0], &both[1], "--checkpoint", run_folder], more].concat())
    };
    let predicted = predict(&["--drawn", &pictures, "--least", "0", "--json"]);
    assert_says(&predicted, 65, &["b.png", "left out", "1 of 2 images"]);
    let objects = &parsed(&predicted)[0]["objects"];
    assert!(objects[0]["score"].is_number() && objects[0]["bbox"][2].is_number(), "{objects}");
    assert_eq!(objects[0]["segmentation"]["size"], json!([48, 48]));
    let bytes = fs::read(format!("{pictures}/a_objects.png")).unwrap();
    // Enlarged six times.
    assert_eq!(bytes[16..24], [0, 0, 1, 32, 0, 0, 1, 32]);
    let text = predict(&["--least", "1.0"]);
    assert_parts(&stdout(&text), &["a.png\n  nothing of 100 % or more; the surest: "]);
    assert_says(&predict(&["--drawn", &pictures]), 73, &["a_objects.png"]);
    assert_says(&predict(&["--maps", &pictures]), 2, &["--maps", "detection"]);
}

/// Of a classifier with a class token, and of a detector.
#[test]
fn it_starts_from_a_classifier_s_backbone_and_from_all_weights() {
    let (bench, classifier) = (bench(), Bench::of("configs/debug.toml"));
    let alike = [
        "model.image_size=32",
        "model.patch_size=8",
        "model.depth=2",
        "model.d_model=16",
        "model.d_state=4",
        "model.class_token=middle",
        "train.steps=1",
    ];
    assert_code(&classifier.train("c", &set(&alike)), 0);
    let from = |path: &Path| format!("train.init={}", path.display());
    let two = ["train.steps=2", "train.eval_every=2st", "data.watch_test=false"];
    let start = |name: &str, init: &str| {
        assert_code(&bench.train(name, &set(&[&two[..], &[init]].concat())), 0);
        bench.read(name, "log.txt")
    };
    let log = start("first", &from(&classifier.folder("c")));
    assert_parts(&log, &["init the backbone from", "class token"]);
    let log = start("second", &from(&bench.folder("first")));
    assert_parts(&log, &["init all weights from"]);
    let init = read_json(bench.folder("second").join("init.json"));
    assert!(init["blake3"].is_string(), "{init}");
    // Under detectron2's names they are the same start.
    let paths = ["first", "first.pth"].map(|name| bench.folder(name).display().to_string());
    assert_code(&run(&["export", &paths[0], "-o", &paths[1]]), 0);
    assert_parts(&start("third", &from(Path::new(&paths[1]))), &["init all weights from"]);
    assert_eq!(bench.read("third", "metrics.jsonl"), bench.read("second", "metrics.jsonl"));
    let wide = ["detection.channels=16", &from(&bench.folder("first"))];
    let refused = bench.train("fourth", &set(&wide));
    assert_says(&refused, 78, &["detection.channels (recorded 8, now 16)"]);
    let wide = [&wide[..], &["train.init_allow=[\"model\"]"]].concat();
    let refused = bench.train("fourth", &set(&wide));
    assert_says(&refused, 65, &["box_heads.0.convs.0.weight", "does not fit the model"]);
}

#[test]
fn every_method_has_finite_losses() {
    let bench = bench();
    for method in Discretization::VARIANTS.iter().map(<&str>::from) {
        let discretization = format!("model.discretization={method}");
        let two = set(&[&discretization, "train.steps=2", "data.watch_test=false"]);
        assert_code(&bench.train(method, &two), 0);
        let records = bench.records(method, "train");
        assert!(records.iter().all(|record| record["loss"].is_number()), "{records:?}");
        assert!(!records.is_empty());
    }
}

/// Writes the first images of a split, with those of their annotations that `is_kept`, as one part
/// of a folder of COCO's layout.
pub(crate) fn write_part(
    folder: &Path,
    part: &str,
    split: &Split,
    is_kept: impl Fn(&Value) -> bool,
) {
    let scenes = EvalScenes::new(split, (0..split.len()).collect(), 1, OnBad::Fail).unwrap();
    let mut names = Vec::new();
    for scene in scenes {
        let EvalScene { image, objects, .. } = scene.unwrap().unwrap();
        let name = format!("{}.png", objects.id);
        write(&folder.join(part).join(&name), encode_png(&image).unwrap());
        names.push(name);
    }
    let annotations = CocoAnnotations::of(split, OnBad::Fail).unwrap().json();
    let mut annotations: Value = serde_json::from_slice(&annotations).unwrap();
    for (image, name) in annotations["images"].as_array_mut().unwrap().iter_mut().zip(names) {
        image["file_name"] = name.into();
    }
    annotations["annotations"].as_array_mut().unwrap().retain(is_kept);
    let file = folder.join(format!("annotations/instances_{part}.json"));
    write(&file, annotations.to_string());
}

/// Procedural scenes, `count` in each part.
pub(crate) fn scenes(count: usize) -> Split {
    let shapes = ShapesConfig { image_size: 32, train: count, seed: 3, ..ShapesConfig::default() };
    let config = DataConfig { shapes, ..DataConfig::default() };
    vim_data::open::<vim_data::ImageObjects>(&config).unwrap().train
}

/// Four scenes that are both trained on and tested on, as COCO's files.
#[test]
fn four_images_are_learned_by_heart() {
    let bench = bench();
    let (data, split) = (bench.folder("coco"), scenes(4));
    for part in ["train2017", "val2017"] {
        write_part(&data, part, &split, |one| !one["iscrowd"].as_bool().unwrap_or_default());
    }
    let path = format!("data.path={}", data.display());
    let learn = set(&[
        "data.dataset=coco",
        &path,
        "objects.scale=[1.0, 1.0]",
        "objects.hflip=0.0",
        "model.drop_path=0.0",
        "detection.channels=16",
        "detection.box_features=64",
        "train.batch_size=4",
        "train.steps=400",
        "train.eval_every=400st",
        "checkpoint.every=400st",
        "optim.lr=4e-3",
        "optim.milestones=[\"300st\"]",
        "optim.warmup=20st",
        "train.clip_grad=1.0",
    ]);
    assert_code(&bench.train("run", &learn), 0);
    let scores = bench.scores("run", &learn);
    for kind in ["bbox", "segm"] {
        assert!(scores[kind]["AP"].as_f64().unwrap() >= 0.9, "{kind}: {scores}");
    }
}

#[test]
fn images_without_objects_and_with_crowds_alone_are_handled() {
    let bench = bench();
    let data = bench.folder("coco");
    let split = scenes(16);
    let of_image = |one: &Value, number: u64| one["image_id"] == number;
    write_part(&data, "train2017", &split, |one| !of_image(one, 1));
    // No object at all that counts.
    write_part(&data, "val2017", &split, |one| one["iscrowd"].as_bool().unwrap_or_default());
    let path = format!("data.path={}", data.display());
    let values = ["data.dataset=coco", &path, "train.steps=2", "train.batch_size=4"];
    let values = set(&[&values[..], &["train.eval_every=2st", "checkpoint.every=2st"]].concat());
    let trained = bench.train("run", &values);
    assert_code(&trained, 0);
    let log = bench.read("run", "log.txt");
    assert_parts(&log, &["of 16 training images have no objects but crowds"]);
    let scores = bench.scores("run", &values);
    assert!(scores["bbox"]["AP"].is_null() && scores["segm"]["AP"].is_null(), "{scores}");
    assert_eq!(scores["images"], 16);
}

/// One object without a mask in each part: the run learns and is measured without it.
#[test]
fn an_object_without_a_mask_costs_no_image() {
    let bench = bench();
    let data = bench.folder("coco");
    let split = scenes(8);
    for part in ["train2017", "val2017"] {
        write_part(&data, part, &split, |one| !one["iscrowd"].as_bool().unwrap_or_default());
        let file = data.join(format!("annotations/instances_{part}.json"));
        let mut content: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        content["annotations"][0]["segmentation"] = json!([]);
        content["info"] = json!({ "year": "2023", "version": 1.0 });
        write(&file, content.to_string());
    }
    let path = format!("data.path={}", data.display());
    let values = ["data.dataset=coco", &path, "train.steps=2", "train.batch_size=4"];
    let values = set(&[&values[..], &["train.eval_every=2st", "checkpoint.every=2st"]].concat());
    assert_code(&bench.train("run", &values), 0);
    let log = bench.read("run", "log.txt");
    assert_parts(&log, &["1 objects of 1 images in", "cannot be used (no mask: 1; the first is"]);
    let scores = bench.scores("run", &values);
    assert_eq!(scores["images"], 8);
    assert_eq!(scores["segm"]["unusable"]["ignored"], 1, "{scores}");
    assert_eq!(scores["bbox"]["unusable"]["ignored"], 0, "{scores}");
}

#[test]
fn sections_of_the_other_tasks_are_refused() {
    let config = "tests/it/fixtures/detect.toml";
    let values: &[(&str, &[&str])] = &[
        ("augment.mixup=0.8", &["augment", "[objects]"]),
        ("task=segmentation", &["detection", "task = \"detection\""]),
        ("data.dataset=cifar10", &["data.dataset", "objects"]),
        ("objects.scale=[2.0, 1.0]", &["objects.scale"]),
        ("detection.channel=4", &["detection.channel", "channels"]),
        ("detection.box_samples=0", &["detection.box_samples"]),
        ("model.patch_size=2", &["patch"]),
        ("optim.schedule=cosine", &["optim.milestones", "step"]),
        ("optim.milestones=[]", &["optim.milestones"]),
        ("data.shapes.textures=4", &["data.shapes.textures", "1 to 3"]),
    ];
    assert_refused(config, values);
}
