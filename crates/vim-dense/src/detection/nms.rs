//! Which of overlapping boxes stay.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rayon::prelude::*;

use super::boxes::{Edges, iou};

/// Numbers of the `most` highest of `scores` from the highest to the lowest, equal ones in their
/// order.
#[must_use]
pub fn by_score(scores: &[f32], most: usize) -> Vec<usize> {
    let mut best: Vec<(Reverse<i32>, usize)> =
        (0..scores.len()).map(|at| rank(scores, at)).collect();
    if most < best.len() {
        best.select_nth_unstable(most);
        best.truncate(most);
    }
    best.sort_unstable();
    best.into_iter().map(|(_, at)| at).collect()
}

/// What sorts score `at` from the highest to the lowest, as `f32::total_cmp` orders them. Zero of
/// either sign is one number.
fn rank(scores: &[f32], at: usize) -> (Reverse<i32>, usize) {
    let bits = (scores[at] + 0.0).to_bits() as i32;
    // Of negative numbers all bits but the sign, so that integers have the order of the floats.
    let magnitude = ((bits >> 31) as u32 >> 1) as i32;
    (Reverse(bits ^ magnitude), at)
}

/// Non-maximum suppression: the boxes that stay, from the highest score to the lowest. A box goes
/// if its overlap with a higher one of the same class that stays is larger than `threshold`. Of
/// those that stay, the first `most` are returned.
///
/// The lengths of the three slices must agree; boxes beyond the shortest are not looked at.
///
/// # Source
///
/// `batched_nms` of torchvision, class by class.
#[must_use]
pub fn batched_nms(
    boxes: &[Edges],
    scores: &[f32],
    classes: &[usize],
    threshold: f64,
    most: usize,
) -> Vec<usize> {
    let count = boxes.len().min(scores.len()).min(classes.len());
    let mut of_class: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for at in by_score(&scores[..count], count) {
        of_class.entry(classes[at]).or_default().push(at);
    }
    let kept =
        of_class.into_par_iter().map(|(_, order)| suppressed(boxes, &order, threshold, most));
    let mut kept = kept.collect::<Vec<_>>().concat();
    kept.sort_unstable_by_key(|&at| rank(scores, at));
    kept.truncate(most);
    kept
}

/// At most `most` of `order`, boxes of one class from the highest score to the lowest, none of
/// which overlaps with a higher one by more than `threshold`.
fn suppressed(boxes: &[Edges], order: &[usize], threshold: f64, most: usize) -> Vec<usize> {
    // A number of f32 is above the threshold where it is above the largest f32 that is not.
    let nearest = threshold as f32;
    let limit = if f64::from(nearest) > threshold { nearest.next_down() } else { nearest };
    let mut kept: Vec<usize> = Vec::new();
    let mut groups: Vec<Group> = Vec::new();
    for &at in order {
        if kept.len() == most {
            break;
        }
        if groups.iter().any(|group| group.overlaps(boxes[at], limit)) {
            continue;
        }
        let lane = kept.len() % LANES;
        if lane == 0 {
            groups.push(Group::NONE);
        }
        if let Some(group) = groups.last_mut() {
            group.0.iter_mut().zip(boxes[at]).for_each(|(edge, of)| edge[lane] = of);
        }
        kept.push(at);
    }
    kept
}

/// Boxes of a group: enough for the processor to compare several at once.
const LANES: usize = 16;

/// Left, top, right and bottom edges of some boxes.
struct Group([[f32; LANES]; 4]);

impl Group {
    /// Boxes that overlap with nothing.
    const NONE: Self = {
        let (most, least) = ([f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES]);
        Self([most, most, least, least])
    };

    /// Whether the overlap of one of them with `edges` is larger than `limit`.
    fn overlaps(&self, edges: Edges, limit: f32) -> bool {
        let [left, top, right, bottom] = &self.0;
        let larger =
            |lane: usize| iou([left[lane], top[lane], right[lane], bottom[lane]], edges) > limit;
        // All of them: a loop that ends early is not compiled to vectors.
        (0..LANES).fold(false, |any, lane| any | larger(lane))
    }
}

/// [`batched_nms`] of boxes that are all of one class.
#[must_use]
pub fn nms(boxes: &[Edges], scores: &[f32], threshold: f64) -> Vec<usize> {
    batched_nms(boxes, scores, &vec![0; boxes.len()], threshold, usize::MAX)
}

#[cfg(test)]
mod tests {
    use vim_model::{keyed, unit};

    use super::*;

    /// Every box against all that stay, in f64, without an order that is kept.
    fn naive(boxes: &[Edges], scores: &[f32], classes: &[usize], threshold: f64) -> Vec<usize> {
        let mut kept: Vec<usize> = Vec::new();
        let mut left: Vec<usize> = (0..boxes.len()).collect();
        while !left.is_empty() {
            let mut best = left[0];
            for &other in &left {
                if scores[other] > scores[best] {
                    best = other;
                }
            }
            left.retain(|&other| other != best);
            let overlaps = |&other: &usize| {
                let (a, b) = (boxes[best].map(f64::from), boxes[other].map(f64::from));
                let width = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
                let height = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
                let size = |x: [f64; 4]| (x[2] - x[0]) * (x[3] - x[1]);
                let overlap = width * height / (size(a) + size(b) - width * height);
                classes[other] == classes[best] && overlap > threshold
            };
            if !kept.iter().any(overlaps) {
                kept.push(best);
            }
        }
        kept
    }

    #[test]
    fn it_is_what_a_loop_over_all_pairs_keeps() {
        let mut rng = keyed(b"a test of nms...", 0, 0);
        for case in 0..40 {
            let mut draw = |scale: f64| (unit(&mut rng) * scale) as f32;
            let boxes: Vec<Edges> = (0..50)
                .map(|_| {
                    let (left, top) = (draw(40.0), draw(30.0));
                    [left, top, left + draw(25.0), top + draw(25.0)]
                })
                .collect();
            // Few distinct scores, so that there are ties.
            let scores: Vec<f32> = (0..50).map(|_| draw(9.0).floor()).collect();
            let classes: Vec<usize> = (0..50).map(|_| draw(3.0) as usize).collect();
            for threshold in [0.0, 0.3, 0.7, 1.0] {
                let got = batched_nms(&boxes, &scores, &classes, threshold, usize::MAX);
                assert_eq!(got, naive(&boxes, &scores, &classes, threshold), "{case} {threshold}");
                let few = batched_nms(&boxes, &scores, &classes, threshold, 5);
                assert_eq!(few, got[..got.len().min(5)]);
            }
        }
    }

    #[test]
    fn equal_boxes_ties_and_the_threshold_itself() {
        let unit = [0.0, 0.0, 2.0, 1.0];
        assert_eq!(nms(&[unit, unit], &[0.5, 0.5], 0.9), [0]);
        // An overlap of a half: it must be larger.
        let half = [0.0, 0.0, 1.0, 1.0];
        assert_eq!(nms(&[half, unit], &[0.1, 0.2], 0.5), [1, 0]);
        let empty = [1.0, 1.0, 1.0, 1.0];
        assert_eq!(nms(&[empty, empty], &[0.5, -0.0], 0.5), [0, 1]);
        assert_eq!(nms(&[], &[], 0.5), Vec::<usize>::new());
        // An overlap of f32's 0.3, which is above f64's, as a comparison in f64 finds.
        let boxes = [[0.0, 0.0, 10.0, 1.0], [0.0, 0.0, 3.0, 1.0]];
        assert_eq!(nms(&boxes, &[0.9, 0.8], 0.3), [0]);
    }

    #[test]
    fn every_one_of_many_that_stay_suppresses() {
        let at = |place: usize| [2.0 * place as f32, 0.0, 2.0 * place as f32 + 1.0, 1.0];
        let boxes: Vec<Edges> = (0..2 * 40).map(|number| at(number % 40)).collect();
        let scores: Vec<f32> = (0..2 * 40).map(|number| -(number as f32)).collect();
        assert_eq!(nms(&boxes, &scores, 0.5), Vec::from_iter(0..40));
        assert_eq!(by_score(&[-2.0, 3.0, -1.0, -f32::INFINITY, 0.5], 4), [1, 4, 2, 0]);
    }
}
