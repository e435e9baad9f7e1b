//! Resizing, cropping, colours and normalization.

use std::path::Path;

use burn::tensor::Device;
use serde::Deserialize;
use vim_data::dense_ops::{
    bilinear, choose_corner, hsv_row_to_rgb, nearest, padding, rescaled, rgb_to_hsv,
};
use vim_data::{Batch, IGNORED, LabelMap, Photometric, Pixels, Region, Statistics};
use vim_engine::Error;
use vim_engine::task::batches;

use super::super::arrays::Arrays;
use super::{Row, arrays_of, field, json, unlike};

/// f32 in another order of operations.
const NORMALIZED: f64 = 1e-6;

#[derive(Deserialize)]
struct Resize {
    i: usize,
    /// Width and height, or height and width: the longer one is the longer side's limit.
    scale: [usize; 2],
    to_h_w: [usize; 2],
}

#[derive(Deserialize)]
struct Colours {
    i: usize,
    /// Coins and values in the order drawn.
    draws: Vec<f64>,
}

#[derive(Deserialize)]
struct Crop {
    i: usize,
    crop: usize,
    cat_max_ratio: f64,
    corners: Vec<[usize; 2]>,
    taken: [usize; 2],
}

pub(super) fn check(path: &Path) -> Result<Vec<Row>, Error> {
    let about = json(path)?;
    let npz = arrays_of(path);
    let mut arrays = Arrays::open(&npz)?;
    let mut rows = Vec::new();
    for case in field::<Vec<Resize>>(path, &about, "resize")? {
        resize(&npz, &mut arrays, &case, &mut rows)?;
    }
    for Colours { i, draws } in field::<Vec<Colours>>(path, &about, "photometric")? {
        let change = photometric(&draws).ok_or_else(|| {
            unlike(path, &format!("photometric {i}: its draws are not understood"))
        })?;
        let Pixels { width, data: mut ours, .. } =
            image(&npz, &mut arrays, &format!("photo{i}.bgr"))?;
        swap(&mut ours);
        change.apply(&mut ours, width);
        swap(&mut ours);
        let (theirs, _) = arrays.u8s(&format!("photo{i}.out_bgr"))?;
        rows.push(Row::exact(format!("data photometric {i}"), &ours, &theirs));
    }
    hsv(&npz, &mut arrays, &mut rows)?;
    normalize(&npz, &mut arrays, &mut rows)?;
    for case in field::<Vec<Crop>>(path, &about, "crop")? {
        let map = labels(&npz, &mut arrays, &format!("crop{}.seg", case.i))?;
        let size = map.size();
        let crop = [case.crop; 2];
        let chosen = choose_corner(&map, size, &case.corners, crop, case.cat_max_ratio);
        let corner = case.corners[chosen];
        let name = format!("data crop {}", case.i);
        let [ours, theirs] = [corner, case.taken].map(|at| at.map(|at| at as f64));
        rows.push(Row::new(format!("{name}.corner"), &ours, &theirs, 0.0));
        let region =
            Region { top: corner[0], left: corner[1], height: case.crop, width: case.crop };
        if !region.is_inside(size) {
            return Err(unlike(path, &format!("{name}: the corner is outside the map")));
        }
        let ours = nearest(&map.labels, size, size, region);
        let (theirs, _) = arrays.u8s(&format!("crop{}.out", case.i))?;
        rows.push(Row::exact(name, &ours, &theirs));
    }
    Ok(rows)
}

fn resize(
    npz: &Path,
    arrays: &mut Arrays,
    case: &Resize,
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let name = |what: &str| format!("resize{}.{what}", case.i);
    let image = image(npz, arrays, &name("img"))?;
    let map = labels(npz, arrays, &name("seg"))?;
    let size = rescaled([image.height, image.width], case.scale);
    let row = format!("data resize {}", case.i);
    let [ours, theirs] = [size, case.to_h_w].map(|size| size.map(|side| side as f64));
    rows.push(Row::new(format!("{row}.size"), &ours, &theirs, 0.0));
    let whole = Region { top: 0, left: 0, height: size[0], width: size[1] };
    let mut pixels = vec![0; 3 * size[0] * size[1]];
    bilinear(&image, size, whole, &mut pixels);
    let (theirs, _) = arrays.u8s(&name("out_img"))?;
    rows.push(Row::exact(format!("{row}.image"), &pixels, &theirs));
    let ours = nearest(&map.labels, map.size(), size, whole);
    let (theirs, _) = arrays.u8s(&name("out_seg"))?;
    rows.push(Row::exact(format!("{row}.labels"), &ours, &theirs));
    Ok(())
}

/// What the draws of mmsegmentation's `PhotoMetricDistortion` say, in its order.
fn photometric(draws: &[f64]) -> Option<Photometric> {
    let mut draws = draws.iter().copied();
    let if_heads = |draws: &mut dyn Iterator<Item = f64>| -> Option<Option<f64>> {
        match draws.next()? {
            0.0 => Some(None),
            _ => draws.next().map(Some),
        }
    };
    let brightness = if_heads(&mut draws)?;
    let contrast_first = draws.next()? == 1.0;
    let early = if contrast_first { if_heads(&mut draws)? } else { None };
    let saturation = if_heads(&mut draws)?;
    let hue = if_heads(&mut draws)?.map(|steps| steps as i32);
    let late = if contrast_first { None } else { if_heads(&mut draws)? };
    let contrast = early.or(late);
    let change = Photometric { brightness, contrast, contrast_first, saturation, hue };
    draws.next().is_none().then_some(change)
}

fn hsv(npz: &Path, arrays: &mut Arrays, rows: &mut Vec<Row>) -> Result<(), Error> {
    let mut pixels = image(npz, arrays, "hsv.bgr")?.data;
    swap(&mut pixels);
    let ours: Vec<u8> =
        pixels.as_chunks::<3>().0.iter().flat_map(|&pixel| rgb_to_hsv(pixel)).collect();
    let Pixels { width, data: mut back, .. } = image(npz, arrays, "hsv.hsv")?;
    rows.push(Row::exact("data hsv", &ours, &back));
    back.as_chunks_mut::<3>().0.chunks_exact_mut(width.max(1)).for_each(hsv_row_to_rgb);
    swap(&mut back);
    let (theirs, _) = arrays.u8s("hsv.back")?;
    rows.push(Row::exact("data hsv.back", &back, &theirs));
    Ok(())
}

/// Normalized and padded on the way that training's batches go.
fn normalize(npz: &Path, arrays: &mut Arrays, rows: &mut Vec<Row>) -> Result<(), Error> {
    let mut image = image(npz, arrays, "norm.bgr")?;
    swap(&mut image.data);
    let theirs = arrays.floats("norm.out_rgb")?;
    let (padded, shape) = arrays.u8s("norm.out_seg")?;
    let (&[height, width], &[rows_of, columns, 3]) = (&shape[..], &theirs.shape[..]) else {
        return Err(unlike(npz, "norm.out_rgb is not [H, W, 3]"));
    };
    let content = [image.height, image.width];
    if [height, width] != [rows_of, columns] || content[0] > height || content[1] > width {
        return Err(unlike(npz, "norm.out_rgb and norm.out_seg are not of one size, or too small"));
    }
    let map = labels(npz, arrays, "norm.seg")?;
    let mut pixels = vec![0; 3 * height * width];
    let mut ours = vec![IGNORED; height * width];
    for row in 0..content[0] {
        let from = &image.data[3 * row * content[1]..][..3 * content[1]];
        pixels[3 * row * width..][..from.len()].copy_from_slice(from);
        ours[row * width..][..content[1]]
            .copy_from_slice(&map.labels[row * content[1]..][..content[1]]);
    }
    let mut batch = Batch::plain(pixels, vec![0], [height, width]);
    batch.erased = padding(content, [height, width]).into_iter().map(|one| (0, one)).collect();
    let tensor = batches::images(&batch, Statistics::IMAGENET, &Device::flex())?;
    let got: Vec<f64> =
        tensor.permute([0, 2, 3, 1]).into_data().iter::<f32>().map(f64::from).collect();
    let want: Vec<f64> = theirs.values.iter().map(|&value| f64::from(value)).collect();
    rows.push(Row::new("data normalize and pad", &got, &want, NORMALIZED));
    rows.push(Row::exact("data pad.labels", &ours, &padded));
    Ok(())
}

/// An image `[H, W, 3]`, its channels in the order of the file.
fn image(npz: &Path, arrays: &mut Arrays, name: &str) -> Result<Pixels, Error> {
    match arrays.u8s(name)? {
        (data, shape) if shape.len() == 3 && shape[2] == 3 => {
            Ok(Pixels { height: shape[0], width: shape[1], data })
        }
        (_, shape) => Err(unlike(npz, &format!("{name} is {shape:?}, expected [H, W, 3]"))),
    }
}

fn labels(npz: &Path, arrays: &mut Arrays, name: &str) -> Result<LabelMap, Error> {
    match arrays.u8s(name)? {
        (labels, shape) if shape.len() == 2 => {
            Ok(LabelMap { height: shape[0], width: shape[1], labels })
        }
        (_, shape) => Err(unlike(npz, &format!("{name} is {shape:?}, expected [H, W]"))),
    }
}

/// Blue, green, red to red, green, blue and back.
fn swap(pixels: &mut [u8]) {
    pixels.as_chunks_mut::<3>().0.iter_mut().for_each(|pixel| pixel.swap(0, 2));
}
