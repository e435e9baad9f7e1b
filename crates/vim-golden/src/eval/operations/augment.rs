//! Large-scale jitter of images with boxes, and the size that evaluation sees.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use vim_data::object_ops::{apply_objects, fitted, place_box};
use vim_data::{Filter, ObjectPlan, Pixels, Resizer};
use vim_engine::Error;

use super::super::arrays::Arrays;
use super::{Row, arrays_of, field, json, unlike};

/// Corners in pixels, recorded in f32.
const BOXES: f64 = 1e-4;

#[derive(Deserialize)]
struct Jitter {
    i: usize,
    size: usize,
    flip: bool,
    scale: f64,
    offset_draw: f64,
    resized_h_w: [usize; 2],
    crop_x0_y0: [usize; 2],
    out_h_w: [usize; 2],
}

#[derive(Deserialize)]
struct Resize {
    h: usize,
    w: usize,
    to: [usize; 2],
}

pub(super) fn check(path: &Path) -> Result<Vec<Row>, Error> {
    let about = json(path)?;
    let cases = about.as_array().ok_or_else(|| unlike(path, "a list of cases is expected"))?;
    let npz = arrays_of(path);
    let mut arrays = Arrays::open(&npz)?;
    let mut rows = Vec::new();
    for case in cases {
        if case.get("test_resize").is_some() {
            for Resize { h, w, to } in field::<Vec<Resize>>(path, case, "test_resize")? {
                let ours = fitted([h, w], to[0].max(to[1]));
                rows.push(sizes(format!("augment test {h}x{w}"), ours, to));
            }
            continue;
        }
        let case: Jitter = serde_json::from_value(Value::clone(case))
            .map_err(|error| unlike(path, &error.to_string()))?;
        jitter(&npz, &mut arrays, &case, &mut rows)?;
    }
    Ok(rows)
}

fn sizes(name: String, ours: [usize; 2], theirs: [usize; 2]) -> Row {
    let [ours, theirs] = [ours, theirs].map(|size| size.map(|side| side as f64));
    Row::new(name, &ours, &theirs, 0.0)
}

fn jitter(
    npz: &Path,
    arrays: &mut Arrays,
    case: &Jitter,
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let name = |what: &str| format!("{}.{what}", case.i);
    let row = |what: &str| format!("augment {}.{what}", case.i);
    let (data, shape) = arrays.u8s(&name("img"))?;
    let &[height, width, 3] = &shape[..] else {
        return Err(unlike(npz, &format!("{} is {shape:?}, expected [H, W, 3]", name("img"))));
    };
    let (source, frame) = ([height, width], [case.size; 2]);
    let mut image = Pixels { height, width, data };
    let plan = ObjectPlan::new(case.flip, case.scale, case.offset_draw, source, frame);
    rows.push(sizes(row("size"), plan.resized, case.resized_h_w));
    let [x0, y0] = case.crop_x0_y0;
    rows.push(sizes(row("corner"), plan.corner, [y0, x0]));
    // The whole of it first: a crop as large as the resized image.
    let mut resizer = Resizer::with_filter(Filter::Bilinear);
    let whole = ObjectPlan { corner: [0, 0], ..plan };
    for (what, plan, size) in [("resized", whole, plan.resized), ("out", plan, frame)] {
        let mut pixels = vec![0; 3 * size[0] * size[1]];
        let (_, targets) = apply_objects(&plan, &mut resizer, &mut image, &[], size, &mut pixels);
        let [rows_of, columns] = targets.size;
        let lines = pixels.chunks_exact(3 * size[1]).take(rows_of);
        let ours: Vec<u8> = lines.flat_map(|line| line[..3 * columns].to_vec()).collect();
        let (theirs, _) = arrays.u8s(&name(what))?;
        rows.push(Row::exact(row(what), &ours, &theirs));
        if what == "out" {
            rows.push(sizes(row("out size"), targets.size, case.out_h_w));
        }
    }
    let boxes = arrays.doubles(&name("boxes"))?;
    let corners = boxes.as_chunks::<4>().0.iter();
    let ours: Vec<[f64; 4]> = corners.map(|&corners| place_box(&plan, source, corners)).collect();
    let theirs = arrays.doubles(&name("boxes_out"))?;
    rows.push(Row::new(row("boxes"), ours.as_flattened(), &theirs, BOXES));
    Ok(())
}
