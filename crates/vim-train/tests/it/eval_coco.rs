//! `eval --coco`: tables, JSON and CSV of a file of detections, and what is said of bad ones.

use std::fs;

use serde_json::Value;

use crate::support::{assert_code, assert_says, folder, parsed, run, stdout};

const TRUTHS: &str = r#"{
    "images": [{ "id": 4, "height": 50, "width": 60 }, { "id": 6, "height": 50, "width": 60 }],
    "categories": [{ "id": 18, "name": "dog" }, { "id": 3, "name": "car" }],
    "annotations": [
        { "id": 1, "image_id": 4, "category_id": 18, "iscrowd": 0, "area": 400,
          "bbox": [10, 10, 20, 20], "segmentation": [[10, 10, 30, 10, 30, 30, 10, 30]] },
        { "id": 2, "image_id": 6, "category_id": 18, "iscrowd": 0, "area": 400,
          "bbox": [30, 20, 20, 20], "segmentation": [[30, 20, 50, 20, 50, 40, 30, 40]] }
    ]
}"#;
/// One of two is found, just so.
const FOUND: &str =
    r#"[{ "image_id": 4, "category_id": 18, "score": 0.5, "bbox": [10, 10, 20, 20] }]"#;
const FILES: [(&str, &str); 3] = [
    ("truths.json", TRUTHS),
    ("found.json", FOUND),
    ("stray.json", r#"[{ "image_id": 5, "category_id": 18, "score": 0.5, "bbox": [1, 1, 2, 2] }]"#),
];

#[test]
fn the_numbers_are_printed_and_written() {
    let folder = folder(&FILES);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (truths, found, table) = (path("truths.json"), path("found.json"), path("classes.csv"));
    let args = ["eval", "--coco", &truths, &found];
    // At every overlap the precision is 1 at 51 of 101 recalls.
    let ap = 51.0 / 101.0;
    let text = stdout(&run(&args));
    for line in
        ["1 detections, 2 images", "AP         50.50 %", "AR1        50.00 %", "AP_large         –"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("segm"), "the detections have no masks: {text}");
    let report = parsed(&run(&[&args[..], &["--json", "--per-class", &table]].concat()));
    assert_eq!((&report["images"], &report["detections"]), (&Value::from(2), &Value::from(1)));
    let bbox = &report["bbox"];
    assert!((bbox["AP"].as_f64().unwrap() - ap).abs() < 1e-12, "{report}");
    assert_eq!((&bbox["AP_large"], &report["segm"]), (&Value::Null, &Value::Null));
    assert_eq!(bbox["classes"][0]["name"], "car", "by number");
    let rows = "kind,class,name,objects,detections,ap,ap50,ap75,ar100\n\
                bbox,3,car,0,0,,,,\n\
                bbox,18,dog,2,1,0.504950,0.504950,0.504950,0.500000\n";
    assert_eq!(fs::read_to_string(&table).unwrap(), rows);
    // The file is there now.
    assert_code(&run(&[&args[..], &["--per-class", &table]].concat()), 73);
}

#[test]
fn bad_files_are_told_in_a_line() {
    let folder = folder(&FILES);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (truths, stray, missing) = (path("truths.json"), path("stray.json"), path("x.json"));
    let said = run(&["eval", "--coco", &truths, &stray]);
    assert_says(&said, 65, &["stray.json", "detection 0 (from 0) is of image 5"]);
    let said = run(&["eval", "--coco", &stray, &truths]);
    assert_says(&said, 65, &["stray.json", "annotations"]);
    let said = run(&["eval", "--coco", &truths, &missing]);
    assert_says(&said, 65, &["x.json"]);
    let said = run(&["eval", "--coco", &truths]);
    assert_code(&said, 2);
    let said = run(&["eval", "--coco", &truths, &stray, "--confusion", "x.csv"]);
    assert_code(&said, 2);
}

#[test]
fn objects_that_cannot_be_used_are_counted_beside_the_numbers() {
    let mask = "[[30, 20, 50, 20, 50, 40, 30, 40]]";
    let truths = TRUTHS.replace(mask, "[]").replace("\"id\": 1, ", "");
    let of_mask = r#""segmentation": [[10, 10, 30, 10, 30, 30, 10, 30]]"#;
    let found = FOUND.replace("\"bbox\"", &format!("{of_mask}, \"bbox\""));
    let folder = folder(&[("truths.json", truths.as_str()), ("found.json", found.as_str())]);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (truths, found) = (path("truths.json"), path("found.json"));
    let said = run(&["eval", "--coco", &truths, &found]);
    assert_says(&said, 0, &["note: ", "1 annotations have no `id` and are numbered from 3 on"]);
    let line = "segm: of the annotated objects 0 are left out and 1 ignored (no mask: 1; the first \
                is annotation 2 of image 6, which has no mask)";
    let text = stdout(&said);
    assert!(text.contains(line) && !text.contains("bbox: of"), "{text}");
    let report = parsed(&run(&["eval", "--coco", &truths, &found, "--json"]));
    assert_eq!(report["segm"]["unusable"]["ignored"], 1);
    assert_eq!(report["bbox"]["unusable"]["ignored"], 0);
    // The one that is ignored is not missed.
    assert!((report["segm"]["AP"].as_f64().unwrap() - 1.0).abs() < 1e-12, "{report}");
    assert!((report["bbox"]["AP"].as_f64().unwrap() - 51.0 / 101.0).abs() < 1e-12, "{report}");
}

/// A polygon of 46 kB that takes gigabytes to draw.
#[test]
fn outlines_without_end_are_not_drawn() {
    let point = |at: u32| format!("{}, {}", at % 2 * 65_535, at * 7 % 65_535);
    let zigzag: Vec<String> = (0..4000).map(point).collect();
    let truths = format!(
        r#"{{"images": [{{"id": 4, "height": 65535, "width": 65535}}],
            "categories": [{{"id": 18, "name": "dog"}}],
            "annotations": [{{"id": 1, "image_id": 4, "category_id": 18, "iscrowd": 0, "area": 81,
                "bbox": [0, 0, 9, 9], "segmentation": [[{}]]}}]}}"#,
        zigzag.join(", ")
    );
    let found = r#"[{ "image_id": 4, "category_id": 18, "score": 0.5,
        "segmentation": [[0, 0, 9, 0, 9, 9]] }]"#;
    let folder = folder(&[("truths.json", truths.as_str()), ("found.json", found)]);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let said = run(&["eval", "--coco", &path("truths.json"), &path("found.json")]);
    assert_says(&said, 65, &["truths.json", "outlines run over 262", "at most 524288"]);
}
