//! Which truth each box is to find.

use rayon::prelude::*;

use super::boxes::{Edges, iou};

/// Boxes of a part, the unit of parallel work.
const PART: usize = 4096;

/// What a box is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// In no loss: its best overlap is between the limits.
    Ignored,
    /// Background.
    Negative,
    /// What it is matched with.
    Positive,
}

/// Limits of overlaps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Matcher {
    /// Below it a box is negative.
    pub low: f32,
    /// From it on a box is positive.
    pub high: f32,
    /// Whether every box with the largest overlap that a truth has with any is positive, too.
    pub low_quality: bool,
}

/// The truth with which each box overlaps most, the first of equal ones (0 without truths), and
/// what the box is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    /// Numbers of truths.
    pub matched: Vec<usize>,
    /// What each box is to be.
    pub labels: Vec<Label>,
}

impl Matcher {
    /// Of region proposals.
    pub const PROPOSALS: Self = Self { low: 0.3, high: 0.7, low_quality: true };

    /// A single limit.
    #[must_use]
    pub fn at(limit: f32) -> Self {
        Self { low: limit, high: limit, low_quality: false }
    }

    /// Matches `boxes` with `truths`. Without truths all are negative.
    ///
    /// A low-quality match keeps the truth that its box overlaps most, not the one that makes it
    /// positive; and a truth that overlaps with nothing makes every box positive that overlaps with
    /// it as little.
    ///
    /// # Source
    ///
    /// Ren et al. 2015, section 3.1.2; `Matcher` of detectron2.
    #[must_use]
    pub fn matches(&self, truths: &[Edges], boxes: &[Edges]) -> Matches {
        if truths.is_empty() {
            let count = boxes.len();
            return Matches { matched: vec![0; count], labels: vec![Label::Negative; count] };
        }
        let parts: Vec<_> = boxes.par_chunks(PART).map(|part| self.part(truths, part)).collect();
        let mut largest = vec![0.0_f32; truths.len()];
        let mut found = Matches::default();
        for (part, of_part) in parts {
            found.matched.extend(part.matched);
            found.labels.extend(part.labels);
            largest.iter_mut().zip(of_part).for_each(|(all, of)| *all = all.max(of));
        }
        if self.low_quality {
            found.labels.par_iter_mut().zip(boxes).with_min_len(PART).for_each(
                |(label, &edges)| {
                    let attains = |(&truth, &largest): (&Edges, &f32)| iou(truth, edges) == largest;
                    if *label != Label::Positive && truths.iter().zip(&largest).any(attains) {
                        *label = Label::Positive;
                    }
                },
            );
        }
        found
    }

    /// By the limits alone; and the largest overlap that each truth has with any of `boxes`.
    fn part(&self, truths: &[Edges], boxes: &[Edges]) -> (Matches, Vec<f32>) {
        let mut largest = vec![0.0_f32; truths.len()];
        let mut found = Matches::default();
        for &edges in boxes {
            let (mut best, mut most) = (0, f32::NEG_INFINITY);
            for (at, (&truth, largest)) in truths.iter().zip(&mut largest).enumerate() {
                let overlap = iou(truth, edges);
                if overlap > most {
                    (best, most) = (at, overlap);
                }
                *largest = largest.max(overlap);
            }
            found.matched.push(best);
            found.labels.push(match most {
                most if most < self.low => Label::Negative,
                most if most < self.high => Label::Ignored,
                _ => Label::Positive,
            });
        }
        (found, largest)
    }
}

#[cfg(test)]
mod tests {
    use vim_model::{keyed, unit};

    use super::*;

    /// By the matrix of all overlaps.
    fn naive(matcher: &Matcher, truths: &[Edges], boxes: &[Edges]) -> Matches {
        let overlaps: Vec<Vec<f32>> = truths
            .iter()
            .map(|&truth| boxes.iter().map(|&edges| iou(truth, edges)).collect())
            .collect();
        let mut found = Matches::default();
        for at in 0..boxes.len() {
            let most = overlaps.iter().map(|row| row[at]).fold(f32::MIN, f32::max);
            let best = overlaps.iter().position(|row| row[at] == most).unwrap_or(0);
            let is_largest = overlaps.iter().any(|row| row.iter().all(|&other| other <= row[at]));
            found.matched.push(best);
            found.labels.push(if most >= matcher.high || (matcher.low_quality && is_largest) {
                Label::Positive
            } else if most < matcher.low {
                Label::Negative
            } else {
                Label::Ignored
            });
        }
        found
    }

    #[test]
    fn it_is_what_the_matrix_of_overlaps_says() {
        let mut rng = keyed(b"test of matchers", 0, 0);
        for case in 0..30 {
            let mut draw = |scale: f64| (unit(&mut rng) * scale).floor() as f32;
            let mut boxes = |count: usize| -> Vec<Edges> {
                (0..count)
                    .map(|_| {
                        let (left, top) = (draw(12.0), draw(12.0));
                        [left, top, left + draw(8.0), top + draw(8.0)]
                    })
                    .collect()
            };
            let (truths, boxes) = (boxes(1 + case % 5), boxes(40));
            for matcher in [Matcher::PROPOSALS, Matcher::at(0.5)] {
                let got = matcher.matches(&truths, &boxes);
                assert_eq!(got, naive(&matcher, &truths, &boxes), "case {case}");
            }
        }
    }

    #[test]
    fn without_truths_all_is_background() {
        let found = Matcher::PROPOSALS.matches(&[], &[[0.0, 0.0, 1.0, 1.0]; 3]);
        assert_eq!(found.labels, [Label::Negative; 3]);
        assert_eq!(Matcher::at(0.5).matches(&[[0.0; 4]], &[]), Matches::default());
    }
}
