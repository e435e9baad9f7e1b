//! Boxes, their features and their masks, against detectron2 and torchvision.

use std::path::Path;

use burn::tensor::{Device, Tensor, TensorData};
use serde::Deserialize;
use vim_dense::detection::anchors::Anchors;
use vim_dense::detection::boxes::{Edges, iou};
use vim_dense::detection::coder::BoxCoder;
use vim_dense::detection::mask_target::InstanceMask;
use vim_dense::detection::matcher::{Label, Matcher};
use vim_dense::detection::nms::{batched_nms, nms};
use vim_dense::detection::paste::paste;
use vim_dense::detection::pooler::{WHOLE, level_of, pooled};
use vim_engine::Error;
use vim_kernels::{KernelChoice, Roi, RoiSampling, roi_align};

use super::super::arrays::{Arrays, Floats};
use super::{Known, Row, arrays_of, field, json, unlike};

pub(super) const FILES: [Known; 7] = [
    ("roi_align.json", roi_aligns),
    ("roi_pooler.npz", pooler),
    ("nms.json", |path, _| suppressions(path)),
    ("anchors.json", |path, _| anchors(path)),
    ("box_coder.json", |path, _| coders(path)),
    ("matcher.json", |path, _| matchers(path)),
    ("masks.json", |path, _| masks(path)),
];

/// f32 in another order of operations.
const F32: f64 = 1e-5;
/// Of anchors.
const ANCHORS: f64 = 1e-6;
/// Cells of the grid of a mask.
const SIDE: usize = 28;

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f32>().map(f64::from).collect()
}

/// Boxes of an array `[R, 4]`.
fn edges(path: &Path, arrays: &mut Arrays, name: &str) -> Result<Vec<Edges>, Error> {
    let Floats { shape, values } = arrays.floats(name)?;
    match shape[..] {
        [_, 4] => Ok(values.as_chunks().0.to_vec()),
        _ => Err(unlike(path, &format!("{name} is {shape:?}, expected [R, 4]"))),
    }
}

fn flat(boxes: &[Edges]) -> Vec<f64> {
    wide(boxes.as_flattened())
}

/// Maps `[B, C, H, W]` as they are here, `[B, H, W, C]`.
fn map(path: &Path, arrays: &mut Arrays, name: &str, device: &Device) -> Result<Tensor<4>, Error> {
    let Floats { shape, values } = arrays.floats(name)?;
    let &[batch, channels, height, width] = &shape[..] else {
        return Err(unlike(path, &format!("{name} is {shape:?}, expected four dimensions")));
    };
    let data = TensorData::new(values, [batch, channels, height, width]);
    let first = Tensor::<4>::from_data(data, device);
    Ok(first.permute([0, 2, 3, 1]).mul_scalar(1.0))
}

/// `[B, C, H, W]` of `[B, H, W, C]`.
fn first(map: Tensor<4>) -> Tensor<4> {
    map.permute([0, 3, 1, 2])
}

#[derive(Deserialize)]
struct Align {
    i: usize,
    output: usize,
    spatial_scale: f32,
    sampling_ratio: i64,
    aligned: bool,
}

fn roi_aligns(path: &Path, device: &Device) -> Result<Vec<Row>, Error> {
    let about = json(path)?;
    let cases: Vec<Align> =
        serde_json::from_value(about).map_err(|error| unlike(path, &error.to_string()))?;
    let npz = arrays_of(path);
    let mut arrays = Arrays::open(&npz)?;
    let device = device.clone().autodiff();
    let mut rows = Vec::new();
    for Align { i, output, spatial_scale, sampling_ratio, aligned } in cases {
        // torchvision takes any number below 1 as 0.
        let sampling = RoiSampling { ratio: sampling_ratio.max(0) as usize, aligned };
        let features = map(&npz, &mut arrays, &format!("{i}.features"), &device)?.require_grad();
        let Floats { values, .. } = arrays.floats(&format!("{i}.rois"))?;
        let roi = |&[image, left, top, right, bottom]: &[f32; 5]| Roi {
            image: image as usize,
            corners: [left, top, right, bottom],
        };
        let rois: Vec<Roi> = values.as_chunks().0.iter().map(roi).collect();
        let (x, choice) = (features.clone(), KernelChoice::Auto);
        let out = roi_align(x, &rois, spatial_scale, output, sampling, choice)?;
        let grad_out = map(&npz, &mut arrays, &format!("{i}.grad_out"), &device.clone().inner())?;
        let grads = (out.clone() * Tensor::from_inner(grad_out)).sum().backward();
        let theirs = wide(&arrays.floats(&format!("{i}.out"))?.values);
        rows.push(Row::relative(format!("roi_align {i}.out"), &numbers(first(out)), &theirs, F32));
        let ours = features.grad(&grads).map(|grad| numbers(first(grad))).unwrap_or_default();
        let theirs = wide(&arrays.floats(&format!("{i}.grad_features"))?.values);
        rows.push(Row::relative(format!("roi_align {i}.grad_features"), &ours, &theirs, F32));
    }
    Ok(rows)
}

fn pooler(path: &Path, device: &Device) -> Result<Vec<Row>, Error> {
    const LEVELS: [&str; 4] = ["p2", "p3", "p4", "p5"];
    let mut arrays = Arrays::open(path)?;
    let device = device.clone().autodiff();
    let mut maps = Vec::new();
    for name in LEVELS {
        maps.push(map(path, &mut arrays, name, &device)?.require_grad());
    }
    let mut rois = Vec::new();
    for image in 0..2 {
        let boxes = edges(path, &mut arrays, &format!("boxes{image}"))?;
        rois.extend(boxes.into_iter().map(|corners| Roi { image, corners }));
    }
    let levels: Vec<f64> =
        rois.iter().map(|roi| level_of(roi.corners, LEVELS.len(), WHOLE) as f64).collect();
    let theirs: Vec<f64> = arrays.integers("levels")?.iter().map(|&level| level as f64).collect();
    let mut rows = vec![Row::new("roi_pooler levels", &levels, &theirs, 0.0)];
    let out = pooled(&maps, &[4, 8, 16, 32], WHOLE, &rois, 7, RoiSampling::default())?;
    let grad_out = map(path, &mut arrays, "grad_out", &device.clone().inner())?;
    let grads = (out.clone() * Tensor::from_inner(grad_out)).sum().backward();
    let theirs = wide(&arrays.floats("out")?.values);
    rows.push(Row::relative("roi_pooler out", &numbers(first(out)), &theirs, F32));
    for (name, map) in LEVELS.into_iter().zip(maps) {
        let theirs = wide(&arrays.floats(&format!("grad_{name}"))?.values);
        let ours = match map.grad(&grads) {
            Some(grad) => numbers(first(grad)),
            None => vec![0.0; theirs.len()],
        };
        rows.push(Row::relative(format!("roi_pooler grad_{name}"), &ours, &theirs, F32));
    }
    Ok(rows)
}

#[derive(Deserialize)]
struct Suppression {
    i: usize,
    threshold: f64,
    classes: usize,
}

fn suppressions(path: &Path) -> Result<Vec<Row>, Error> {
    let cases: Vec<Suppression> =
        serde_json::from_value(json(path)?).map_err(|error| unlike(path, &error.to_string()))?;
    let npz = arrays_of(path);
    let mut arrays = Arrays::open(&npz)?;
    let mut rows = Vec::new();
    for Suppression { i, threshold, classes } in cases {
        let boxes = edges(&npz, &mut arrays, &format!("{i}.boxes"))?;
        let scores = arrays.floats(&format!("{i}.scores"))?.values;
        let of: Vec<usize> =
            arrays.integers(&format!("{i}.classes"))?.iter().map(|&class| class as usize).collect();
        let kept = if classes == 1 {
            nms(&boxes, &scores, threshold)
        } else {
            batched_nms(&boxes, &scores, &of, threshold, usize::MAX)
        };
        let ours: Vec<f64> = kept.into_iter().map(|at| at as f64).collect();
        let theirs: Vec<f64> =
            arrays.integers(&format!("{i}.keep"))?.iter().map(|&at| at as f64).collect();
        rows.push(Row::new(format!("nms {i}"), &ours, &theirs, 0.0));
    }
    Ok(rows)
}

#[derive(Deserialize)]
struct Grid {
    i: usize,
    sizes: Vec<[f64; 1]>,
    aspect_ratios: Vec<f64>,
    strides: Vec<usize>,
    offset: f64,
    grids: Vec<[usize; 2]>,
}

fn anchors(path: &Path) -> Result<Vec<Row>, Error> {
    let cases: Vec<Grid> =
        serde_json::from_value(json(path)?).map_err(|error| unlike(path, &error.to_string()))?;
    let npz = arrays_of(path);
    let mut arrays = Arrays::open(&npz)?;
    let mut rows = Vec::new();
    for Grid { i, sizes, aspect_ratios, strides, offset, grids } in cases {
        if offset != 0.0 || sizes.len() != grids.len() || strides.len() != grids.len() {
            return Err(unlike(path, "an offset of 0, and a size and a stride for each grid"));
        }
        let sizes = sizes.into_iter().map(|[size]| size).collect();
        let anchors = Anchors { sizes, ratios: aspect_ratios, strides };
        for (level, grid) in grids.into_iter().enumerate() {
            let theirs = flat(&edges(&npz, &mut arrays, &format!("{i}.level{level}"))?);
            let ours = flat(&anchors.of_level(level, grid));
            rows.push(Row::relative(format!("anchors {i}.level{level}"), &ours, &theirs, ANCHORS));
        }
    }
    Ok(rows)
}

#[derive(Deserialize)]
struct Coder {
    i: usize,
    weights: [f32; 4],
}

fn coders(path: &Path) -> Result<Vec<Row>, Error> {
    let cases: Vec<Coder> =
        serde_json::from_value(json(path)?).map_err(|error| unlike(path, &error.to_string()))?;
    let npz = arrays_of(path);
    let mut arrays = Arrays::open(&npz)?;
    let mut rows = Vec::new();
    for Coder { i, weights } in cases {
        let coder = BoxCoder(weights);
        let source = edges(&npz, &mut arrays, &format!("{i}.source"))?;
        let target = edges(&npz, &mut arrays, &format!("{i}.target"))?;
        let pairs = source.iter().zip(&target);
        let ours: Vec<Edges> = pairs.map(|(&from, &to)| coder.encode(from, to)).collect();
        let theirs = flat(&edges(&npz, &mut arrays, &format!("{i}.deltas"))?);
        rows.push(Row::relative(format!("box_coder {i}.deltas"), &flat(&ours), &theirs, F32));
        for (raw, applied) in [("raw", "applied"), ("raw2", "applied2")] {
            let deltas = arrays.floats(&format!("{i}.{raw}"))?.values;
            let theirs = wide(&arrays.floats(&format!("{i}.{applied}"))?.values);
            let deltas: &[[f32; 4]] = deltas.as_chunks().0;
            let each = deltas.len() / source.len().max(1);
            let decode =
                |(at, &deltas): (usize, &[f32; 4])| coder.decode(source[at / each], deltas);
            let ours: Vec<Edges> = deltas.iter().enumerate().map(decode).collect();
            rows.push(Row::relative(
                format!("box_coder {i}.{applied}"),
                &flat(&ours),
                &theirs,
                F32,
            ));
        }
    }
    Ok(rows)
}

#[derive(Deserialize)]
struct Matching {
    i: usize,
    thresholds: Vec<f32>,
    allow_low_quality: bool,
}

fn matchers(path: &Path) -> Result<Vec<Row>, Error> {
    let cases: Vec<Matching> =
        serde_json::from_value(json(path)?).map_err(|error| unlike(path, &error.to_string()))?;
    let npz = arrays_of(path);
    let mut arrays = Arrays::open(&npz)?;
    let mut rows = Vec::new();
    for Matching { i, thresholds, allow_low_quality } in cases {
        let (Some(&low), Some(&high)) = (thresholds.first(), thresholds.last()) else {
            return Err(unlike(path, "one threshold or two are expected"));
        };
        let matcher = Matcher { low, high, low_quality: allow_low_quality };
        let truths = edges(&npz, &mut arrays, &format!("{i}.gt"))?;
        let boxes = edges(&npz, &mut arrays, &format!("{i}.boxes"))?;
        let overlaps: Vec<f64> = truths
            .iter()
            .flat_map(|&truth| boxes.iter().map(move |&edges| f64::from(iou(truth, edges))))
            .collect();
        let theirs = wide(&arrays.floats(&format!("{i}.iou"))?.values);
        rows.push(Row::new(format!("matcher {i}.iou"), &overlaps, &theirs, 0.0));
        matched(&mut arrays, &i.to_string(), &matcher, (&truths, &boxes), &mut rows)?;
    }
    let count = arrays.integers("empty.matched")?.len();
    let boxes = vec![[0.0, 0.0, 1.0, 1.0]; count];
    matched(&mut arrays, "empty", &Matcher::PROPOSALS, (&[], &boxes), &mut rows)?;
    Ok(rows)
}

fn matched(
    arrays: &mut Arrays,
    case: &str,
    matcher: &Matcher,
    (truths, boxes): (&[Edges], &[Edges]),
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let found = matcher.matches(truths, boxes);
    let ours: Vec<f64> = found.matched.iter().map(|&at| at as f64).collect();
    let theirs = arrays.integers(&format!("{case}.matched"))?;
    let theirs: Vec<f64> = theirs.into_iter().map(|at| at as f64).collect();
    rows.push(Row::new(format!("matcher {case}.matched"), &ours, &theirs, 0.0));
    let number = |label: &Label| match label {
        Label::Ignored => -1.0,
        Label::Negative => 0.0,
        Label::Positive => 1.0,
    };
    let ours: Vec<f64> = found.labels.iter().map(number).collect();
    let theirs = wide(&arrays.signed_bytes(&format!("{case}.labels"))?);
    rows.push(Row::new(format!("matcher {case}.labels"), &ours, &theirs, 0.0));
    Ok(())
}

fn masks(path: &Path) -> Result<Vec<Row>, Error> {
    let about = json(path)?;
    let size: [usize; 2] = [field(path, &about, "height")?, field(path, &about, "width")?];
    let polygons: Vec<Vec<Vec<f64>>> = field(path, &about, "polygons")?;
    let npz = arrays_of(path);
    let mut arrays = Arrays::open(&npz)?;
    let boxes = edges(&npz, &mut arrays, "boxes")?;
    let bitmaps = arrays.flags("bitmaps")?;
    let of_bitmap = |pixels: &[bool]| InstanceMask::Bitmap {
        height: size[0],
        width: size[1],
        pixels: pixels.to_vec(),
    };
    let bitmaps: Vec<_> = bitmaps.chunks_exact(size[0] * size[1]).map(of_bitmap).collect();
    let polygons: Vec<_> = polygons.into_iter().map(InstanceMask::Polygons).collect();
    let mut rows = Vec::new();
    for (what, masks) in [("polygons", &polygons), ("bitmaps", &bitmaps)] {
        let mut ours = Vec::new();
        for (mask, &edges) in masks.iter().zip(&boxes) {
            ours.extend(mask.target(edges, SIDE)?.into_iter().map(u8::from));
        }
        let theirs: Vec<u8> =
            arrays.flags(&format!("target_from_{what}"))?.into_iter().map(u8::from).collect();
        rows.push(Row::exact(format!("masks target_from_{what}"), &ours, &theirs));
        let ours: Vec<Edges> = masks.iter().map(InstanceMask::bounding_box).collect();
        let theirs = flat(&edges(&npz, &mut arrays, &format!("boxes_of_{what}"))?);
        rows.push(Row::new(format!("masks boxes_of_{what}"), &flat(&ours), &theirs, 0.0));
    }
    let probabilities = arrays.floats("probabilities")?.values;
    let each = probabilities.chunks_exact(SIDE * SIDE).zip(&boxes);
    let pasted = each.flat_map(|(own, &edges)| paste(own, SIDE, edges, size, 0.5));
    let ours: Vec<u8> = pasted.map(u8::from).collect();
    let theirs: Vec<u8> = arrays.flags("pasted")?.into_iter().map(u8::from).collect();
    rows.push(Row::exact("masks pasted", &ours, &theirs));
    Ok(rows)
}
