//! Which of the matched boxes are in a loss.

use vim_model::{Draw, keyed, unit};

use super::matcher::Label;

/// Uses of random numbers that share a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Anchors of the proposals' loss.
    Anchors,
    /// Proposals of the heads.
    Proposals,
}

/// Boxes that were drawn: their numbers, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// At most the share of positive ones.
    pub positives: Vec<usize>,
    /// As many as are left.
    pub negatives: Vec<usize>,
}

/// Draws `count` of the labelled boxes of an image, at most `share` of them positive. With fewer
/// positive ones there are more negative ones; with few of both, fewer than `count`.
///
/// The draw is a function of its seed, of the image's place in the whole batch and of the purpose;
/// without one the first of each kind are taken.
///
/// # Source
///
/// `subsample_labels` of detectron2.
#[must_use]
pub fn sample(
    labels: &[Label],
    count: usize,
    share: f64,
    draw: Option<Draw>,
    purpose: Purpose,
) -> Sampled {
    let of = |wanted: Label| -> Vec<usize> {
        let labels = labels.iter().enumerate();
        labels.filter(|(_, label)| **label == wanted).map(|(at, _)| at).collect()
    };
    let (mut positives, mut negatives) = (of(Label::Positive), of(Label::Negative));
    let purpose = match purpose {
        Purpose::Anchors => b"detect: anchors ",
        Purpose::Proposals => b"detect: proposed",
    };
    let mut rng = draw.map(|Draw { seed, first }| keyed(purpose, seed, first as u64));
    let mut choose = |from: &mut Vec<usize>, most: usize| {
        let most = most.min(from.len());
        if let Some(rng) = &mut rng {
            // Fisher and Yates, as far as needed.
            for at in 0..most {
                let left = from.len() - at;
                let by = (unit(rng) * left as f64) as usize;
                from.swap(at, at + by.min(left - 1));
            }
        }
        from.truncate(most);
        from.sort_unstable();
    };
    choose(&mut positives, (count as f64 * share) as usize);
    choose(&mut negatives, count - positives.len());
    Sampled { positives, negatives }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(positives: usize, negatives: usize) -> Vec<Label> {
        let mut labels = vec![Label::Negative; negatives];
        labels.extend(vec![Label::Ignored; 3]);
        labels.extend(vec![Label::Positive; positives]);
        labels
    }

    #[test]
    fn there_are_as_many_as_asked_for_and_as_there_are() {
        let counts = |positives, negatives, draw| {
            let labels = labels(positives, negatives);
            let Sampled { positives, negatives } =
                sample(&labels, 16, 0.25, draw, Purpose::Anchors);
            assert!(positives.iter().all(|&at| labels[at] == Label::Positive));
            assert!(negatives.iter().all(|&at| labels[at] == Label::Negative));
            assert!(positives.is_sorted_by(|a, b| a < b) && negatives.is_sorted_by(|a, b| a < b));
            (positives.len(), negatives.len())
        };
        for draw in [None, Some(Draw { seed: 3, first: 2 })] {
            assert_eq!(counts(9, 40, draw), (4, 12));
            assert_eq!(counts(2, 40, draw), (2, 14));
            assert_eq!(counts(9, 5, draw), (4, 5));
            assert_eq!(counts(0, 0, draw), (0, 0));
        }
    }

    #[test]
    fn every_box_is_as_likely_and_the_key_decides() {
        let labels = labels(10, 20);
        let draw =
            |seed, first, purpose| sample(&labels, 12, 0.5, Some(Draw { seed, first }), purpose);
        let one = draw(1, 1, Purpose::Anchors);
        assert_eq!(one, draw(1, 1, Purpose::Anchors));
        assert_ne!(one, draw(1, 1, Purpose::Proposals));
        assert_ne!(one, draw(1, 2, Purpose::Anchors));
        let mut often = vec![0_i32; labels.len()];
        for seed in 0..2000 {
            let Sampled { positives, negatives } = draw(seed, 0, Purpose::Anchors);
            positives.into_iter().chain(negatives).for_each(|at| often[at] += 1);
        }
        // 0.6 of the positive ones and 0.3 of the negative; five standard deviations.
        assert!(often[..20].iter().all(|&count| (count - 600).abs() < 103), "{often:?}");
        assert!(often[23..].iter().all(|&count| (count - 1200).abs() < 110), "{often:?}");
        let first = sample(&labels, 12, 0.5, None, Purpose::Anchors);
        assert_eq!(first.negatives, [0, 1, 2, 3, 4, 5]);
    }
}
