//! COCO's masks and its evaluation, as pycocotools has them.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use vim_data::mask_ops::{
    Rle, area, bbox_iou, decode, encode, fr_polys, iou, merge, rle_from_string, rle_to_string,
    to_bbox,
};
use vim_data::{COCO_NUMBERS, CocoAnnotations, CocoDetections, CocoEvaluation, CocoKind};
use vim_engine::Error;

use super::super::arrays::Arrays;
use super::{Row, arrays_of, field, json, unlike};

/// Sums of many shares, in f64 on both sides.
const SCORES: f64 = 1e-9;
/// Precision and recall are recorded in f32.
const CURVES: f64 = 1e-7;
/// Two divisions of exact sums.
const IOU: f64 = 1e-12;

#[derive(Deserialize)]
struct Case {
    name: String,
    kind: String,
    stats: BTreeMap<String, f64>,
    #[serde(rename = "per_class_AP")]
    per_class: Vec<Option<f64>>,
    class_ids: Vec<u64>,
}

/// Evaluates the detections beside `path`, by boxes and by masks.
pub(super) fn evaluation(path: &Path) -> Result<Vec<Row>, Error> {
    let about = json(path)?;
    let mut arrays = Arrays::open(&arrays_of(path))?;
    let mut rows = Vec::new();
    for case in field::<Vec<Case>>(path, &about, "results")? {
        let Case { name, kind, stats, per_class, class_ids } = case;
        let beside = |what| path.with_file_name(format!("coco_{name}_{what}.json"));
        let truths = CocoAnnotations::read(&beside("annotations"))?;
        let found = CocoDetections::read(&beside("detections"), &truths)?;
        let of_name = [CocoKind::Bbox, CocoKind::Segm].into_iter();
        let of_name = { of_name }.find(|one| one.to_string() == kind);
        let of_name = of_name.ok_or_else(|| unlike(path, &format!("`{kind}` is no kind")))?;
        let mut evaluation = CocoEvaluation::new(&truths, &found, of_name)?;
        let scores = evaluation.scores();
        let row = format!("coco {name} {kind}");
        let none = |score: Option<f64>| score.unwrap_or(-1.0);
        let theirs: Vec<f64> =
            COCO_NUMBERS.iter().filter_map(|number| stats.get(*number).copied()).collect();
        rows.push(Row::new(row.clone(), &scores.numbers.map(none), &theirs, SCORES));
        let classes: Vec<f64> = scores.classes.iter().map(|class| none(class.ap)).collect();
        let theirs: Vec<f64> = per_class.into_iter().map(none).collect();
        rows.push(Row::new(format!("{row} AP by class"), &classes, &theirs, SCORES));
        let wide = |ids: Vec<u64>| ids.into_iter().map(|id| id as f64).collect::<Vec<_>>();
        let ours = scores.classes.iter().map(|class| class.category).collect();
        rows.push(Row::new(format!("{row} classes"), &wide(ours), &wide(class_ids), 0.0));
        for (what, ours) in ["precision", "recall"].into_iter().zip(evaluation.curves()) {
            let theirs = arrays.doubles(&format!("{name}.{kind}.{what}"))?;
            rows.push(Row::new(format!("{row} {what}"), ours, &theirs, CURVES));
        }
    }
    Ok(rows)
}

/// A mask as its rows of `.` and `#`.
#[derive(Deserialize)]
struct Bitmap {
    h: u32,
    w: u32,
    rows: Vec<String>,
}

#[derive(Deserialize)]
struct MaskCase {
    mask: Bitmap,
    counts: String,
    area: f64,
    bbox: [f64; 4],
}

#[derive(Deserialize)]
struct PolygonCase {
    h: u32,
    w: u32,
    polygons: Vec<Vec<f64>>,
    counts: String,
    area: f64,
    bbox: [f64; 4],
    each: Vec<String>,
}

#[derive(Deserialize)]
struct Encoded {
    size: [u32; 2],
    counts: String,
}

#[derive(Deserialize)]
struct Overlaps {
    detections: Vec<Encoded>,
    truths: Vec<Encoded>,
    iscrowd: Vec<u8>,
    iou: Vec<Vec<f64>>,
    boxes_detections: Vec<[f64; 4]>,
    boxes_truths: Vec<[f64; 4]>,
    iou_boxes: Vec<Vec<f64>>,
    union: String,
    intersection: String,
}

/// Run lengths of masks and polygons, and what is computed from them.
pub(super) fn masks(path: &Path) -> Result<Vec<Row>, Error> {
    let about = json(path)?;
    let wrong = |error: &dyn std::fmt::Display| unlike(path, &error.to_string());
    let mut rows = Vec::new();
    for (i, case) in field::<Vec<MaskCase>>(path, &about, "masks")?.into_iter().enumerate() {
        let Bitmap { h, w, rows: lines } = &case.mask;
        // Column by column.
        let pixel = |x: usize, line: &String| u8::from(line.as_bytes().get(x) == Some(&b'#'));
        let pixels: Vec<u8> =
            (0..*w as usize).flat_map(|x| lines.iter().map(move |line| pixel(x, line))).collect();
        let rle = encode(&pixels, *h, *w).map_err(|error| wrong(&error))?;
        let name = format!("rle mask {i}");
        about_mask(&name, &rle, (&case.counts, case.area, case.bbox), &mut rows);
        let back = rle_from_string(&case.counts, *h, *w).map_err(|error| wrong(&error))?;
        rows.push(Row::exact(format!("{name} decoded"), &decode(&back), &pixels));
    }
    for (i, case) in field::<Vec<PolygonCase>>(path, &about, "polygons")?.into_iter().enumerate() {
        let PolygonCase { h, w, polygons, counts, area, bbox, each } = case;
        let drawn = |polygons: &[Vec<f64>]| fr_polys(polygons, h, w).map_err(|error| wrong(&error));
        let name = format!("rle polygon {i}");
        about_mask(&name, &drawn(&polygons)?, (&counts, area, bbox), &mut rows);
        for (part, (polygon, counts)) in polygons.iter().zip(&each).enumerate() {
            let ours = rle_to_string(&drawn(std::slice::from_ref(polygon))?);
            rows.push(Row::exact(format!("{name}.{part}"), ours.as_bytes(), counts.as_bytes()));
        }
    }
    let all: Overlaps = field(path, &about, "iou")?;
    let decoded = |encoded: &[Encoded]| {
        let of = |one: &Encoded| rle_from_string(&one.counts, one.size[0], one.size[1]);
        encoded.iter().map(of).collect::<Result<Vec<Rle>, _>>().map_err(|error| wrong(&error))
    };
    let (found, truths) = (decoded(&all.detections)?, decoded(&all.truths)?);
    let crowds: Vec<bool> = all.iscrowd.iter().map(|&crowd| crowd == 1).collect();
    let ours = iou(&found, &truths, &crowds);
    rows.push(Row::new("rle iou", &ours.concat(), &all.iou.concat(), IOU));
    let ours = bbox_iou(&all.boxes_detections, &all.boxes_truths, &crowds);
    rows.push(Row::new("rle iou of boxes", &ours.concat(), &all.iou_boxes.concat(), IOU));
    // Of all truths, and of the first two.
    let two = &truths[..truths.len().min(2)];
    for (what, of, is_intersection, counts) in
        [("union", &truths[..], false, &all.union), ("intersection", two, true, &all.intersection)]
    {
        let ours = merge(of, is_intersection).map_err(|error| wrong(&error))?;
        let ours = rle_to_string(&ours);
        rows.push(Row::exact(format!("rle {what}"), ours.as_bytes(), counts.as_bytes()));
    }
    Ok(rows)
}

/// Compares run lengths, area and box of a mask.
fn about_mask(
    name: &str,
    rle: &Rle,
    (counts, of_area, bbox): (&str, f64, [f64; 4]),
    rows: &mut Vec<Row>,
) {
    rows.push(Row::exact(name, rle_to_string(rle).as_bytes(), counts.as_bytes()));
    let ours = [&[area(rle) as f64][..], &to_bbox(rle)].concat();
    rows.push(Row::new(format!("{name} area, box"), &ours, &[&[of_area], &bbox[..]].concat(), 0.0));
}
