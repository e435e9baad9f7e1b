//! What can be wrong with the box or the mask of an annotation.

use std::collections::BTreeMap;

use hotcoco::{Annotation, Segmentation};

/// Most pixels that the outlines of an object's polygons may run over, along rows and columns.
///
/// hotcoco walks an outline in fifths of a pixel and keeps 12 bytes of each step, up to twice that
/// while its lists grow: 120 bytes a pixel, 63 MB for the longest. COCO's and LVIS's outlines have
/// some thousands of pixels.
const MOST_OUTLINE: f64 = (1 << 19) as f64;

/// Why an annotation cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What it has, in few words: those of one kind are counted together.
    pub(crate) kind: &'static str,
    /// What is wrong, in the words that follow the annotation's name.
    pub(crate) why: String,
}

/// The kind of an annotation without a mask.
pub(crate) const NO_MASK: &str = "no mask";

/// Why the box of an annotation cannot be used.
pub(crate) fn box_fault(annotation: &Annotation) -> Option<Fault> {
    let Some(numbers) = annotation.bbox else {
        return Some(Fault { kind: "no box", why: "has no `bbox`".to_owned() });
    };
    let is_fit = numbers.iter().all(|x| x.is_finite()) && numbers[2] >= 0.0 && numbers[3] >= 0.0;
    (!is_fit).then(|| Fault {
        kind: "a box that is none",
        why: format!("has the box {numbers:?}, expected [x, y, width, height], no side negative"),
    })
}

/// Why the mask of an annotation of an image of `size`, `[height, width]`, cannot be used.
pub(crate) fn mask_fault(annotation: &Annotation, size: [u32; 2]) -> Option<Fault> {
    match &annotation.segmentation {
        Some(mask) if has_mask(annotation) => shape_fault(mask, size),
        // As files of boxes alone have it.
        Some(_) | None => Some(Fault { kind: NO_MASK, why: "has no mask".to_owned() }),
    }
}

/// Whether there is a mask: files of boxes alone have empty lists.
pub(crate) fn has_mask(annotation: &Annotation) -> bool {
    let polygons = annotation.segmentation.as_ref().map(|mask| mask.polygons());
    polygons.is_some_and(|polygons| polygons.is_none_or(|polygons| !polygons.is_empty()))
}

fn shape_fault(mask: &Segmentation, size @ [height, width]: [u32; 2]) -> Option<Fault> {
    if let Some(polygons) = mask.polygons() {
        return polygon_fault(&polygons, size);
    }
    let of_runs = |why| Some(Fault { kind: "runs that do not fit", why });
    let rle = match mask.rle_ref()?.to_rle() {
        Ok(rle) => rle,
        Err(error) => return of_runs(format!("has a mask that cannot be decoded: {error}")),
    };
    if [rle.h, rle.w] != size {
        return of_runs(format!(
            "has a mask of {} × {} pixels, and its image has {height} × {width}",
            rle.h, rle.w
        ));
    }
    let (area, covered) = (
        u64::from(height) * u64::from(width),
        rle.counts.iter().map(|&run| u64::from(run)).sum::<u64>(),
    );
    if area == covered {
        return None;
    }
    of_runs(format!("has a mask whose runs cover {covered} of the image's {area} pixels"))
}

fn polygon_fault(polygons: &[Vec<f64>], size: [u32; 2]) -> Option<Fault> {
    let bad = |kind, why| Some(Fault { kind, why });
    for polygon in polygons {
        let count = polygon.len();
        let expected = "expected two for each of three points or more";
        if count < 6 || !count.is_multiple_of(2) {
            let why = format!("has a polygon of {count} numbers, {expected}");
            return bad("a polygon that is none", why);
        }
        if let Some(number) = polygon.iter().find(|x| !x.is_finite()) {
            let why = format!("has a polygon with the number {number}");
            return bad("a polygon that is none", why);
        }
    }
    let outline: f64 = polygons.iter().map(|polygon| outline(polygon, size)).sum();
    if outline <= MOST_OUTLINE {
        return None;
    }
    let why = format!(
        "has polygons whose outlines run over {outline:.0} pixels, of which at most {MOST_OUTLINE} \
         can be drawn"
    );
    bad("an outline that is too long", why)
}

/// Pixels that the outline of a polygon runs over, along rows and columns; what is beyond the image
/// is not walked.
fn outline(polygon: &[f64], [height, width]: [u32; 2]) -> f64 {
    let points = polygon.as_chunks::<2>().0;
    let inside = |[x, y]: [f64; 2]| {
        [x.clamp(-1.0, f64::from(width) + 1.0), y.clamp(-1.0, f64::from(height) + 1.0)]
    };
    let next = points.iter().cycle().skip(1);
    let edges = points.iter().zip(next).map(|(&from, &to)| {
        let ([x0, y0], [x1, y1]) = (inside(from), inside(to));
        (x1 - x0).abs() + (y1 - y0).abs()
    });
    edges.sum()
}

/// Counts objects that cannot be used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// All that were looked at.
    pub(crate) objects: usize,
    /// Those that cannot be used.
    pub(crate) bad: usize,
    kinds: BTreeMap<&'static str, usize>,
    first: Option<String>,
}

impl Tally {
    /// Counts an object; of one that cannot be used the kind of its fault, and what `described`
    /// says of it.
    pub(crate) fn count(&mut self, kind: Option<&'static str>, described: impl FnOnce() -> String) {
        self.objects += 1;
        if let Some(kind) = kind {
            self.bad += 1;
            *self.kinds.entry(kind).or_default() += 1;
            self.first.get_or_insert_with(described);
        }
    }

    /// The kinds of their faults, the commonest first, and the first object.
    pub(crate) fn detail(&self) -> String {
        let mut kinds: Vec<_> = self.kinds.iter().collect();
        kinds.sort_by_key(|&(_, &count)| std::cmp::Reverse(count));
        let kinds: Vec<String> =
            kinds.into_iter().map(|(kind, count)| format!("{kind}: {count}")).collect();
        let first = self.first.as_deref().unwrap_or_default();
        format!("{}; the first is {first}", kinds.join(", "))
    }

    /// Refuses data most of whose objects cannot be used.
    pub(crate) fn check(&self) -> Result<(), String> {
        if 2 * self.bad <= self.objects {
            return Ok(());
        }
        let Self { bad, objects, .. } = self;
        let without = self.without_mask();
        let number = if without == *objects { "none".to_owned() } else { format!("{without}") };
        let has = if without == *objects { "has a mask" } else { "have no mask" };
        Err(match 2 * without > *objects {
            true => format!(
                "{number} of its {objects} objects {has}, which a detector learns and is measured \
                 by: `detection.masks = false` is of boxes alone"
            ),
            false => format!("{bad} of its {objects} objects cannot be used ({})", self.detail()),
        })
    }

    /// Those that cannot be used as they have no mask.
    pub(crate) fn without_mask(&self) -> usize {
        self.kinds.get(NO_MASK).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_polygons() -> Segmentation {
        Segmentation::Polygon(Vec::new())
    }

    fn with(mask: Segmentation) -> Annotation {
        Annotation { bbox: Some([0.0; 4]), segmentation: Some(mask), ..Annotation::default() }
    }

    fn rle(size: [u32; 2], counts: &str) -> Annotation {
        with(Segmentation::CompressedRle { size, counts: counts.to_owned() })
    }

    #[test]
    fn masks_and_boxes_that_fit_have_no_fault() {
        for good in [
            with(Segmentation::Polygon(vec![vec![0.0, 0.0, 9.0, 0.0, 9.0, 9.0]])),
            // Runs of 1, 2 and 3 pixels.
            rle([3, 2], "123"),
            with(Segmentation::UncompressedRle { size: [3, 2], counts: vec![0, 6] }),
        ] {
            assert_eq!((box_fault(&good), mask_fault(&good, [3, 2])), (None, None), "{good:?}");
        }
    }

    #[test]
    fn faults_say_what_is_wrong() {
        let boxed = |bbox| Annotation { bbox: Some(bbox), ..Annotation::default() };
        let point = |x| with(Segmentation::Polygon(vec![vec![0.0, 0.0, x, 0.0, 9.0, 9.0]]));
        let runs = |counts| with(Segmentation::UncompressedRle { size: [3, 2], counts });
        for (bad, why) in [
            (boxed([0.0, 0.0, -1.0, 2.0]), "no side negative"),
            (boxed([0.0, f64::NAN, 1.0, 2.0]), "NaN"),
            (Annotation::default(), "has no `bbox`"),
            (Annotation { segmentation: None, ..with(no_polygons()) }, "has no mask"),
            (with(no_polygons()), "has no mask"),
            (point(f64::INFINITY), "the number inf"),
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
            let found = box_fault(&bad).or_else(|| mask_fault(&bad, [3, 2])).unwrap();
            assert!(found.why.contains(why), "{bad:?}: {found:?}");
        }
    }

    #[test]
    fn outlines_are_as_long_as_memory_bears() {
        let zigzag = |points: usize, side: f64| {
            let point = |at: usize| [(at % 2) as f64 * side, at as f64 % side];
            with(Segmentation::Polygon(vec![(0..points).flat_map(point).collect()]))
        };
        // As dense as an outline by hand can be, and what takes gigabytes.
        for (points, side, fits) in
            [(700, 640, true), (20_000, 640, false), (40, 65_535, false), (4, 65_535, true)]
        {
            let found = mask_fault(&zigzag(points, f64::from(side)), [side; 2]);
            assert_eq!(found.is_none(), fits, "{points} points in {side} px: {found:?}");
        }
        let far = with(Segmentation::Polygon(vec![vec![-1e300, 0.0, 1e300, 0.0, 0.0, 1e300]]));
        assert_eq!(mask_fault(&far, [480, 640]), None, "what is outside is not walked");
    }

    #[test]
    fn most_objects_must_be_good() {
        let tally = |kinds: &[Option<&'static str>]| {
            let mut tally = Tally::default();
            for (at, &kind) in kinds.iter().enumerate() {
                tally.count(kind, || format!("annotation {at}"));
            }
            tally.check().err().unwrap_or_default()
        };
        let (good, none) = (None, Some(NO_MASK));
        assert_eq!(tally(&[]), "");
        assert_eq!(tally(&[good, none]), "");
        assert_eq!(
            tally(&[good, Some("no box"), none, none]),
            "3 of its 4 objects cannot be used (no mask: 2, no box: 1; the first is annotation 1)"
        );
        assert!(tally(&[none, none]).starts_with("none of its 2 objects has a mask"));
    }
}
