//! Pairs of images and label maps as rows: the image as it is, its crop, and the crop's labels.

use vim_data::dense_ops::{bilinear, overlay, rescaled};
use vim_data::{
    Batch, DensePlan, Described, EvalPair, EvalPairs, IGNORED, OnBad, Photometric, Pixels, Region,
    Split,
};

use super::Row;
use crate::error::Error;

/// A row for each of the first `count` images of a batch of `split`.
pub(super) fn rows(
    split: &Split,
    batch: &Batch,
    described: &[Described],
    count: usize,
) -> Result<Vec<Row>, Error> {
    let described = &described[..count.min(described.len())];
    let maps = split.dataset().label_maps();
    let colours = maps.map(|maps| maps.colours.clone()).unwrap_or_default();
    let whole = Split::only(split, described.iter().map(|one| one.index).collect());
    let pairs = EvalPairs::new(&whole, (0..whole.len()).collect(), 2, OnBad::Fail)?;
    let size = [batch.height, batch.width];
    let area = size[0] * size[1];
    let labels = batch.label_maps.as_ref();
    let labels = labels.ok_or_else(|| Error::internal("a batch without label maps"))?;
    let crops = batch.images.chunks_exact(3 * area).zip(labels.chunks_exact(area));
    let mut rows = Vec::new();
    for ((one, pair), (pixels, labels)) in described.iter().zip(pairs).zip(crops) {
        let pair = pair?.map_err(|unread| Error::data(unread.reason))?;
        let crop = Pixels { height: size[0], width: size[1], data: pixels.to_vec() };
        let mapped = overlay(&crop, labels, &colours);
        let [height, width] = one.source;
        rows.push(Row {
            label: format!("{}, {height}x{width} px", one.name),
            before: framed(&seen_through(&pair, &colours), size),
            draws: vec![
                Some((crop, one.dense.as_ref().map(done).unwrap_or_default())),
                Some((mapped, seen(labels, split.class_names()))),
            ],
        });
    }
    Ok(rows)
}

/// The whole image seen through its labels.
fn seen_through(pair: &EvalPair, colours: &[[u8; 3]]) -> Pixels {
    overlay(&pair.image, &pair.map.labels, colours)
}

/// The whole image in the upper left corner of black pixels of `size`.
pub(super) fn framed(image: &Pixels, size: [usize; 2]) -> Pixels {
    let inner = rescaled([image.height, image.width], [size[0].min(size[1]); 2]);
    let region = Region { top: 0, left: 0, height: inner[0], width: inner[1] };
    let mut small = vec![0; 3 * inner[0] * inner[1]];
    bilinear(image, inner, region, &mut small);
    let mut fitted = Pixels::black(size[0], size[1]);
    for (line, row) in small.chunks_exact(3 * inner[1]).enumerate() {
        fitted.data[3 * line * size[1]..][..row.len()].copy_from_slice(row);
    }
    fitted
}

/// What is done to a pair, in words.
fn done(plan: &DensePlan) -> String {
    let DensePlan { resized: [height, width], flip, photometric, .. } = plan;
    let mut words = vec![format!("resized to {height}x{width} px, cropped")];
    words.extend(flip.then(|| "mirrored".to_owned()));
    if let Some(Photometric { brightness, contrast, saturation, hue, .. }) = photometric {
        words.extend(brightness.map(|levels| format!("brightness {levels:+.0}")));
        words.extend(contrast.map(|factor| format!("contrast × {factor:.2}")));
        words.extend(saturation.map(|factor| format!("saturation × {factor:.2}")));
        words.extend(hue.map(|steps| format!("hue {:+}°", 2 * steps)));
    }
    words.join(", ")
}

/// The classes of a crop and their shares of it, the largest first.
fn seen(labels: &[u8], names: &[String]) -> String {
    let mut counts = [0_usize; 256];
    labels.iter().for_each(|&label| counts[usize::from(label)] += 1);
    let mut classes: Vec<usize> = (0..256).filter(|&label| counts[label] > 0).collect();
    classes.sort_by_key(|&label| std::cmp::Reverse(counts[label]));
    let share = |&label: &usize| {
        let name = match names.get(label) {
            Some(name) => name.as_str(),
            None if label == usize::from(IGNORED) => "ignored",
            None => "no class",
        };
        format!("{:.0} % {name}", 100.0 * counts[label] as f64 / labels.len() as f64)
    };
    classes.iter().map(share).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_and_its_classes_are_told_in_words() {
        let colours =
            Photometric { brightness: Some(-12.3), hue: Some(7), ..Photometric::default() };
        let plan = DensePlan {
            resized: [256, 341],
            corners: vec![[0, 0]],
            flip: true,
            photometric: Some(colours),
        };
        let words = "resized to 256x341 px, cropped, mirrored, brightness -12, hue +14°";
        assert_eq!(done(&plan), words);
        let names = ["sky".to_owned(), "sea".to_owned()];
        assert_eq!(seen(&[1, 1, IGNORED, 0, 1], &names), "60 % sea, 20 % sky, 20 % ignored");
    }
}
