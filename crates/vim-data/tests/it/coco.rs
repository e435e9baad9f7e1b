//! COCO's files and numbers, on a set small enough to compute them by hand.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use vim_data::mask_ops::{encode, rle_to_string};
use vim_data::{CocoAnnotations, CocoDetections, CocoEvaluation, CocoKind, DataError};

/// Side of the images.
const SIDE: u32 = 100;

/// The mask of a box of whole pixels, less the last `less` of its lower row.
fn mask([x, y, width, height]: [u32; 4], less: u32) -> Value {
    let is_in = |column: u32, row: u32| {
        let inside = (x..x + width).contains(&column) && (y..y + height).contains(&row);
        inside && !(row == y + height - 1 && column >= x + width - less)
    };
    let columns = (0..SIDE).flat_map(|column| (0..SIDE).map(move |row| (column, row)));
    let pixels: Vec<u8> = columns.map(|(column, row)| u8::from(is_in(column, row))).collect();
    let rle = encode(&pixels, SIDE, SIDE).unwrap();
    json!({ "size": [SIDE, SIDE], "counts": rle_to_string(&rle) })
}

/// Two objects in image 3, one and a crowd in image 7.
fn truths() -> Value {
    let one = |id: u32, image: u32, bbox: [u32; 4], crowd: u32| {
        json!({
            "id": id, "image_id": image, "category_id": 44, "bbox": bbox, "iscrowd": crowd,
            "area": bbox[2] * bbox[3], "segmentation": mask(bbox, 0),
        })
    };
    json!({
        "images": [
            { "id": 3, "height": SIDE, "width": SIDE, "file_name": "a.jpg" },
            { "id": 7, "height": SIDE, "width": SIDE, "file_name": "b.jpg" },
        ],
        "categories": [{ "id": 90, "name": "newt" }, { "id": 44, "name": "cat" }],
        "annotations": [
            one(1, 3, [10, 10, 20, 20], 0),
            one(2, 3, [50, 50, 20, 20], 0),
            one(3, 7, [10, 10, 40, 40], 0),
            one(4, 7, [60, 60, 30, 30], 1),
        ],
    })
}

/// In falling order of scores: an object just so, one overlapped by 310 of 400 pixels, nothing, and
/// a part of the crowd.
fn detections() -> Value {
    let one = |image: u32, score: f64, bbox: [f64; 4], segmentation: Value| {
        json!({
            "image_id": image, "category_id": 44, "score": score, "bbox": bbox,
            "segmentation": segmentation,
        })
    };
    json!([
        one(3, 0.9, [10.0, 10.0, 20.0, 20.0], mask([10, 10, 20, 20], 0)),
        one(3, 0.8, [50.0, 50.0, 20.0, 15.5], mask([50, 50, 20, 16], 10)),
        one(7, 0.7, [80.0, 10.0, 10.0, 10.0], mask([80, 10, 10, 10], 0)),
        one(7, 0.6, [65.0, 65.0, 10.0, 10.0], mask([65, 65, 10, 10], 0)),
    ])
}

fn write(folder: &Path, name: &str, content: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    path
}

fn read(truths: &str, detections: &str) -> Result<(CocoAnnotations, CocoDetections), DataError> {
    let folder = tempfile::tempdir().unwrap();
    let truths = CocoAnnotations::read(&write(folder.path(), "truths.json", truths))?;
    let found = write(folder.path(), "detections.json", detections);
    let found = CocoDetections::read(&found, &truths)?;
    Ok((truths, found))
}

#[test]
fn the_numbers_are_those_computed_by_hand() {
    let (truths, found) = read(&truths().to_string(), &detections().to_string()).unwrap();
    assert_eq!(truths.class_names(), ["cat", "newt"], "by number, not by place");
    // At six thresholds, up to 0.75, two of three objects are found before the first mistake: the
    // precision is 1 at the 67 recalls up to 2/3. At the other four it is one: 34 up to 1/3.
    let ap = (6.0 * 67.0 + 4.0 * 34.0) / 1010.0;
    let at_75 = 67.0 / 101.0;
    // Of the two small ones both or one: 51 recalls up to one half. The detection in the other
    // image is a mistake after them.
    let small = (6.0 + 4.0 * 51.0 / 101.0) / 10.0;
    let recall = (6.0 * 2.0 + 4.0 * 1.0) / 30.0;
    let third = 1.0 / 3.0;
    let expected = [ap, at_75, at_75, small, 0.0, -1.0, third, recall, recall, 0.8, 0.0, -1.0];
    for kind in [CocoKind::Bbox, CocoKind::Segm] {
        let scores = CocoEvaluation::new(&truths, &found, kind).unwrap().scores();
        for (ours, expected) in scores.numbers.iter().zip(expected) {
            assert!((ours.unwrap_or(-1.0) - expected).abs() < 1e-12, "{kind}: {scores:?}");
        }
        let [cat, newt] = &scores.classes[..] else { panic!("two classes: {scores:?}") };
        assert_eq!((cat.category, cat.name.as_str(), cat.objects), (44, "cat", 3));
        assert_eq!((cat.detections, newt.detections, newt.objects), (4, 0, 0));
        let of_cat = [cat.ap, cat.ap50, cat.ap75, cat.ar100];
        for (ours, expected) in of_cat.into_iter().zip([ap, at_75, at_75, recall]) {
            assert!((ours.unwrap() - expected).abs() < 1e-12, "{cat:?}");
        }
        assert_eq!([newt.ap, newt.ap50, newt.ap75, newt.ar100], [None; 4]);
    }
}

#[test]
fn sizes_of_masks_are_those_of_boxes_only_beside_boxes() {
    // Surer than what is found, and a mistake: its box of 40 × 40 pixels is of medium size, its
    // mask of 20 × 20 small.
    let mut all = detections();
    let wrong = json!({
        "image_id": 7, "category_id": 44, "score": 0.95, "bbox": [20.0, 55.0, 40.0, 40.0],
        "segmentation": mask([20, 55, 20, 20], 0),
    });
    all.as_array_mut().unwrap().insert(0, wrong);
    let (truths, found) = read(&truths().to_string(), &all.to_string()).unwrap();
    let scores = |found: &CocoDetections| {
        CocoEvaluation::new(&truths, found, CocoKind::Segm).unwrap().scores().numbers
    };
    let (beside, alone) = (scores(&found), scores(&found.without_boxes()));
    // As by hand above: what is not of the size and meets nothing does not count.
    let small = (6.0 + 4.0 * 51.0 / 101.0) / 10.0;
    assert!((beside[3].unwrap() - small).abs() < 1e-12, "{beside:?}");
    // The mistake comes first: at six thresholds two of three are right at the end, at four one of
    // two, up to one half.
    let small = (6.0 * 2.0 / 3.0 + 4.0 * (1.0 / 2.0) * 51.0 / 101.0) / 10.0;
    assert!((alone[3].unwrap() - small).abs() < 1e-12, "{alone:?}");
    // What goes by no size is the same.
    for place in [0, 1, 2, 6, 7, 8] {
        assert_eq!(beside[place], alone[place], "{place}");
    }
    assert!(found.without_boxes().has_masks() && !found.without_boxes().has_boxes());
}

#[test]
fn nothing_found_scores_0() {
    let (truths, found) = read(&truths().to_string(), "[]").unwrap();
    assert!(found.is_empty());
    let scores = CocoEvaluation::new(&truths, &found, CocoKind::Bbox).unwrap().scores();
    assert_eq!(scores.numbers[0], Some(0.0));
}

/// The file with the value at `pointer` replaced.
fn with(mut content: Value, pointer: &str, value: Value) -> String {
    *content.pointer_mut(pointer).expect("the place is there") = value;
    content.to_string()
}

#[test]
fn damaged_annotations_are_named() {
    let text = truths().to_string();
    for (bad, why) in [
        (text[..text.len() / 2].to_owned(), "EOF while parsing"),
        ("[]".to_owned(), "it is a list, as of detections"),
        ("1".to_owned(), "invalid type: integer `1`"),
        ("{}".to_owned(), "missing field `annotations`"),
        (r#"{"annotations": []}"#.to_owned(), "no `images`"),
        (with(truths(), "/categories", json!([])), "no `categories`"),
        (with(truths(), "/images/1/id", json!(3)), "image 3 twice"),
        (with(truths(), "/images/1/width", json!(0)), "image 7 has `height` 100 and `width` 0"),
        (with(truths(), "/categories/1/id", json!(90)), "category 90 twice"),
        (with(truths(), "/annotations/3/id", json!(1)), "annotation 1 twice"),
        (with(truths(), "/annotations/2/image_id", json!(4)), "annotation 3 is of image 4"),
        (with(truths(), "/annotations/2/category_id", json!(1)), "of category 1, which"),
        (with(truths(), "/images/1/width", json!("wide")), "`images[1].width`: invalid value"),
        (with(truths(), "/annotations/2/area", json!([])), "`annotations[2].area`: invalid type"),
    ] {
        let error = read(&bad, "[]").unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("truths.json"), "{error}");
    }
}

/// The second object's detection is neither right nor wrong, and the second object is not missed.
#[test]
fn truths_without_a_usable_mask_count_for_boxes_alone() {
    let mask = "/annotations/1/segmentation";
    let (sound, found) = read(&truths().to_string(), &detections().to_string()).unwrap();
    let numbers = |truths: &CocoAnnotations, found: &CocoDetections, kind| {
        let scores = CocoEvaluation::new(truths, found, kind).unwrap().scores();
        (scores.numbers, scores.unusable)
    };
    let (of_boxes, nothing) = numbers(&sound, &found, CocoKind::Bbox);
    assert_eq!((nothing.left_out, nothing.ignored, nothing.detail), (0, 0, None));
    let zigzag: Vec<u32> = (0..20_000).flat_map(|at| [at % 2 * SIDE, at % SIDE]).collect();
    for (bad, why) in [
        (Value::Null, "annotation 2 of image 3, which has no mask"),
        (json!([]), "annotation 2 of image 3, which has no mask"),
        (json!([[1, 2, 3, 4]]), "annotation 2 of image 3, which has a polygon of 4 numbers"),
        (json!([zigzag]), "outlines run over 2"),
        (json!({ "size": [5, 5], "counts": "i0" }), "has a mask of 5 × 5"),
        (json!({ "size": [100, 100], "counts": "i0!" }), "cannot be decoded"),
        (json!({ "size": [100, 100], "counts": [3, 4] }), "cover 7 of the image's 10000 pixels"),
    ] {
        let (truths, _) = read(&with(truths(), mask, bad), "[]").unwrap();
        assert_eq!(numbers(&truths, &found, CocoKind::Bbox).0, of_boxes, "{why}");
        let (numbers, unusable) = numbers(&truths, &found, CocoKind::Segm);
        assert_eq!((unusable.left_out, unusable.ignored), (0, 1), "{why}");
        assert!(unusable.detail.as_ref().unwrap().contains(why), "{why}: {unusable:?}");
        // One of two is found, before the first mistake.
        assert!((numbers[0].unwrap() - 51.0 / 101.0).abs() < 1e-12, "{why}: {numbers:?}");
        assert!((numbers[8].unwrap() - 0.5).abs() < 1e-12, "{why}: {numbers:?}");
    }
}

#[test]
fn truths_without_a_usable_box_are_left_out() {
    let infinite = truths().to_string().replacen("[10,10,20,20]", "[Infinity,10,20,20]", 1);
    for (bad, why) in [
        (with(truths(), "/annotations/0/bbox", Value::Null), "has no `bbox`"),
        (with(truths(), "/annotations/0/bbox", json!([])), "has no `bbox`"),
        (with(truths(), "/annotations/0/bbox/2", json!(-1)), "no side negative"),
        (infinite, "has the box [inf, "),
    ] {
        let (truths, found) = read(&bad, &detections().to_string()).unwrap();
        for kind in [CocoKind::Bbox, CocoKind::Segm] {
            let scores = CocoEvaluation::new(&truths, &found, kind).unwrap().scores();
            assert_eq!((scores.unusable.left_out, scores.unusable.ignored), (1, 0), "{why}");
            assert_eq!(scores.classes[0].objects, 2, "{why}");
            let detail = scores.unusable.detail.unwrap();
            assert!(detail.contains("annotation 1 of image 3") && detail.contains(why), "{detail}");
        }
    }
}

#[test]
fn most_objects_of_a_file_must_be_usable() {
    let mut bad = truths();
    for at in 0..3 {
        bad["annotations"][at]["segmentation"] = if at == 0 { json!([[1, 2]]) } else { json!([]) };
    }
    let (truths, found) = read(&bad.to_string(), "[]").unwrap();
    assert!(CocoEvaluation::new(&truths, &found, CocoKind::Bbox).is_ok());
    let error = CocoEvaluation::new(&truths, &found, CocoKind::Segm).unwrap_err().to_string();
    let why = "3 of its 4 objects cannot be used (no mask: 2, a polygon that is none: 1; the first \
               is annotation 1 of image 3";
    assert!(error.contains(why), "{error}");
}

/// As exports of labelling tools have them: what is not used is of any type, numbers are text.
#[test]
fn files_of_other_programs_give_the_same_numbers() {
    let (sound, found) = read(&truths().to_string(), &detections().to_string()).unwrap();
    let numbers = |truths: &CocoAnnotations, found: &CocoDetections, kind| {
        CocoEvaluation::new(truths, found, kind).unwrap().scores().numbers
    };
    let mut odd = truths();
    odd["info"] = json!({ "year": "2020", "version": 1.0 });
    odd["licenses"] = Value::Null;
    odd["images"][0]["license"] = json!("1");
    odd["images"][0]["id"] = json!("3");
    odd["images"][1]["height"] = json!(100.0);
    for one in odd["annotations"].as_array_mut().unwrap() {
        one.as_object_mut().unwrap().remove("id");
        one["iscrowd"] = json!(one["iscrowd"] == json!(1));
        one["category_id"] = json!("44");
        one["keypoints"] = json!("none");
    }
    let text = odd.to_string().replace("\"none\"", "NaN");
    let (truths, _) = read(&format!("\u{feff}{text}"), "[]").unwrap();
    let [note] = truths.notes() else { panic!("{:?}", truths.notes()) };
    assert!(note.ends_with("4 annotations have no `id` and are numbered from 1 on"), "{note}");
    let mut loose = detections();
    for one in loose.as_array_mut().unwrap() {
        one["image_id"] = json!(one["image_id"].to_string());
        one["score"] = json!(one["score"].to_string());
    }
    let (_, loose) = read(&text, &json!({ "annotations": loose, "info": 3 }).to_string()).unwrap();
    for kind in [CocoKind::Bbox, CocoKind::Segm] {
        assert_eq!(numbers(&truths, &loose, kind), numbers(&sound, &found, kind));
    }
    assert!(sound.notes().is_empty());
    let infinite = truths_text("\"area\":400", "\"area\":-Infinity");
    let (truths, _) = read(&infinite, "[]").unwrap();
    let [note] = truths.notes() else { panic!("{:?}", truths.notes()) };
    let why = "2 annotations have an `area` that is no finite number, the first is -inf of \
               `annotations[0]`";
    assert!(note.contains(why), "{note}");
}

/// The truths with one text in the place of another.
fn truths_text(from: &str, to: &str) -> String {
    let text = truths().to_string();
    assert!(text.contains(from), "{text}");
    text.replace(from, to)
}

#[test]
fn damaged_detections_are_named() {
    let text = detections().to_string();
    for (bad, why) in [
        (text[..text.len() / 2].to_owned(), "EOF while parsing"),
        (text.replace("0.7", "NaN"), "detection 2 (from 0) has the score NaN"),
        (with(detections(), "/2/score", json!("high")), "`[2].score`: invalid value"),
        (with(detections(), "/2/image_id", json!(4)), "detection 2 (from 0) is of image 4"),
        (with(detections(), "/2/category_id", json!(1)), "detection 2 (from 0) is of category 1"),
        (with(detections(), "/1/score", Value::Null), "detection 1 (from 0) has no score"),
        (with(detections(), "/1/bbox", Value::Null), "another of box and mask"),
        (with(detections(), "/1/bbox/2", json!(-1)), "no side negative"),
        (
            with(detections(), "/3/segmentation/counts", json!("z z")),
            "detection 3 (from 0) has a mask that cannot be decoded",
        ),
        (with(detections(), "/3/segmentation/size", json!([50, 200])), "50 × 200"),
    ] {
        let error = read(&truths().to_string(), &bad).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("detections.json"), "{error}");
    }
}
