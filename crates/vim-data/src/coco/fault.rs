//! What can be wrong with the box or the mask of an annotation.

use hotcoco::{Annotation, Segmentation};

/// Why an annotation of an image of `size`, `[height, width]`, cannot be used; follows its name.
///
/// A list without polygons is no mask, as files of boxes alone have it.
pub(crate) fn fault(annotation: &Annotation, size: [u32; 2]) -> Option<String> {
    let of_box = annotation.bbox.and_then(|numbers| {
        let is_fit =
            numbers.iter().all(|x| x.is_finite()) && numbers[2] >= 0.0 && numbers[3] >= 0.0;
        (!is_fit).then(|| {
            format!("has the box {numbers:?}, expected [x, y, width, height], no side negative")
        })
    });
    of_box.or_else(|| annotation.segmentation.as_ref().and_then(|mask| mask_fault(mask, size)))
}

fn mask_fault(mask: &Segmentation, size @ [height, width]: [u32; 2]) -> Option<String> {
    if let Some(polygons) = mask.polygons() {
        let is_fit = |polygon: &&Vec<f64>| {
            polygon.len() >= 6
                && polygon.len().is_multiple_of(2)
                && polygon.iter().all(|x| x.is_finite())
        };
        let odd = polygons.iter().find(|polygon| !is_fit(polygon))?;
        let count = odd.len();
        return Some(format!(
            "has a polygon of {count} numbers, expected two for each of three points or more"
        ));
    }
    let rle = match mask.rle_ref()?.to_rle() {
        Ok(rle) => rle,
        Err(error) => return Some(format!("has a mask that cannot be decoded: {error}")),
    };
    if [rle.h, rle.w] != size {
        return Some(format!(
            "has a mask of {} × {} pixels, and its image has {height} × {width}",
            rle.h, rle.w
        ));
    }
    let (area, covered) = (
        u64::from(height) * u64::from(width),
        rle.counts.iter().map(|&run| u64::from(run)).sum::<u64>(),
    );
    (area != covered)
        .then(|| format!("has a mask whose runs cover {covered} of the image's {area} pixels"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(mask: Segmentation) -> Annotation {
        Annotation { bbox: Some([0.0; 4]), segmentation: Some(mask), ..Annotation::default() }
    }

    fn rle(size: [u32; 2], counts: &str) -> Annotation {
        with(Segmentation::CompressedRle { size, counts: counts.to_owned() })
    }

    #[test]
    fn masks_and_boxes_that_fit_have_no_fault() {
        for good in [
            Annotation::default(),
            with(Segmentation::Polygon(Vec::new())),
            with(Segmentation::Polygon(vec![vec![0.0, 0.0, 9.0, 0.0, 9.0, 9.0]])),
            // Runs of 1, 2 and 3 pixels.
            rle([3, 2], "123"),
            with(Segmentation::UncompressedRle { size: [3, 2], counts: vec![0, 6] }),
        ] {
            assert_eq!(fault(&good, [3, 2]), None, "{good:?}");
        }
    }

    #[test]
    fn faults_say_what_is_wrong() {
        let boxed = |bbox| Annotation { bbox: Some(bbox), ..Annotation::default() };
        let runs = |counts| with(Segmentation::UncompressedRle { size: [3, 2], counts });
        for (bad, why) in [
            (boxed([0.0, 0.0, -1.0, 2.0]), "no side negative"),
            (with(Segmentation::Polygon(vec![vec![0.0; 4]])), "a polygon of 4 numbers"),
            (with(Segmentation::Polygon(vec![vec![0.0; 8], vec![1.0; 7]])), "a polygon of 7"),
            (rle([2, 3], "123"), "2 × 3 pixels, and its image has 3 × 2"),
            (rle([3, 2], "12"), "cover 3 of the image's 6"),
            (rle([3, 2], "1 3"), "cannot be decoded"),
            (rle([3, 2], "19"), "exceed"),
            (rle([3, 2], "€"), "decoded"),
            (runs(vec![7]), "exceed"),
            (runs(vec![]), "cover 0"),
        ] {
            let found = fault(&bad, [3, 2]).unwrap_or_default();
            assert!(found.contains(why), "{bad:?}: {found}");
        }
    }
}
