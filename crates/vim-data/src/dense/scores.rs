//! How well label maps were predicted: intersection over union and accuracy of each class.

use serde::{Deserialize, Serialize};

use super::label_map::IGNORED;

/// How many pixels of each label were taken for which class.
///
/// # Source
/// mmsegmentation 0.29.1, `intersect_and_union` and `legacy_mean_iou`: sums over all images, then
/// ratios.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confusion {
    classes: usize,
    /// `[K + 1, K + 1]`: label, prediction. The last row has the pixels whose label is none of the
    /// classes and not ignored either, the last column those without a prediction.
    counts: Vec<u64>,
    /// Classes that the data do not know, which no mean counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    absent: Vec<usize>,
}

/// The scores of one class.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClassScore {
    /// Pixels of the class, ignored ones aside.
    pub labelled: u64,
    /// Pixels taken for the class.
    pub predicted: u64,
    /// Pixels of the class that were taken for it.
    pub correct: u64,
}

impl ClassScore {
    /// Pixels of the class or taken for it.
    pub fn union(&self) -> u64 {
        self.labelled + self.predicted - self.correct
    }

    /// Intersection over union; `None` if the class is neither labelled nor predicted.
    pub fn iou(&self) -> Option<f64> {
        ratio(self.correct, self.union())
    }

    /// Share of the class's pixels that were taken for it; `None` if it is not labelled.
    pub fn accuracy(&self) -> Option<f64> {
        ratio(self.correct, self.labelled)
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl Confusion {
    /// Counts of nothing, of `classes` classes.
    pub fn new(classes: usize) -> Self {
        Self { classes, counts: vec![0; (classes + 1) * (classes + 1)], absent: Vec::new() }
    }

    /// These counts, of images whose data do not know the classes `absent`: no mean counts those,
    /// also if pixels are taken for one.
    pub fn without(self, absent: &[u32]) -> Self {
        let absent = absent.iter().map(|&class| class as usize).collect();
        Self { absent, ..self }
    }

    /// The scores of the classes that the data know.
    fn known_scores(&self) -> impl Iterator<Item = ClassScore> {
        let scores = self.class_scores().into_iter().enumerate();
        scores.filter(|(class, _)| !self.absent.contains(class)).map(|(_, score)| score)
    }

    /// Number of classes.
    pub fn num_classes(&self) -> usize {
        self.classes
    }

    /// Adds an image: the class predicted for each pixel, and its label. Ignored pixels do not
    /// count; a prediction that is no class counts as none.
    ///
    /// # Panics
    /// If there are not as many predictions as labels.
    pub fn add(&mut self, predicted: &[u8], labels: &[u8]) {
        assert_eq!(predicted.len(), labels.len(), "a prediction for each label");
        for (&predicted, &label) in predicted.iter().zip(labels) {
            if label != IGNORED {
                let place = |class: u8| usize::from(class).min(self.classes);
                let at = place(label) * (self.classes + 1) + place(predicted);
                self.counts[at] += 1;
            }
        }
    }

    /// Adds an image that could not be read: all its labelled pixels are without a prediction.
    pub fn add_unread(&mut self, labels: &[u8]) {
        for &label in labels {
            if label != IGNORED {
                let label = usize::from(label).min(self.classes);
                self.counts[label * (self.classes + 1) + self.classes] += 1;
            }
        }
    }

    /// Adds the counts of other images.
    ///
    /// # Panics
    /// If they are of another number of classes.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.classes, other.classes, "counts of the same classes");
        self.counts.iter_mut().zip(&other.counts).for_each(|(ours, theirs)| *ours += theirs);
    }

    /// Pixels of each label by prediction, `[K + 1]` numbers for each class: the last is of those
    /// without a prediction.
    pub fn rows(&self) -> impl Iterator<Item = &[u64]> {
        self.counts.chunks_exact(self.classes + 1).take(self.classes)
    }

    /// The scores of each class.
    pub fn class_scores(&self) -> Vec<ClassScore> {
        let side = self.classes + 1;
        let of = |class: usize| ClassScore {
            labelled: self.counts[class * side..][..side].iter().sum(),
            predicted: self.counts.iter().skip(class).step_by(side).sum(),
            correct: self.counts[class * side + class],
        };
        (0..self.classes).map(of).collect()
    }

    /// Mean IoU over the classes that have one.
    pub fn mean_iou(&self) -> f64 {
        mean(self.known_scores().filter_map(|score| score.iou()))
    }

    /// Mean accuracy over the classes that have one.
    pub fn mean_accuracy(&self) -> f64 {
        mean(self.known_scores().filter_map(|score| score.accuracy()))
    }

    /// Share of all labelled pixels that were taken for their class.
    pub fn accuracy(&self) -> f64 {
        let scores = self.class_scores();
        let sum = |of: fn(&ClassScore) -> u64| scores.iter().map(of).sum::<u64>();
        ratio(sum(|score| score.correct), sum(|score| score.labelled)).unwrap_or(f64::NAN)
    }
}

/// NaN of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_sums_and_classes_without_pixels_are_left_out() {
        let mut counts = Confusion::new(4);
        counts.add(&[0, 0, 1, 1, 2], &[0, 1, 1, 255, 0]);
        counts.add(&[1, 0], &[1, 255]);
        let iou: Vec<_> = counts.class_scores().iter().map(ClassScore::iou).collect();
        // Class 2 was predicted and is nowhere; class 3 is not there at all.
        assert_eq!(iou, [Some(1.0 / 3.0), Some(2.0 / 3.0), Some(0.0), None]);
        let accuracy: Vec<_> = counts.class_scores().iter().map(ClassScore::accuracy).collect();
        assert_eq!(accuracy, [Some(0.5), Some(2.0 / 3.0), None, None]);
        assert!((counts.mean_iou() - 1.0 / 3.0).abs() < 1e-15);
        assert!((counts.mean_accuracy() - 7.0 / 12.0).abs() < 1e-15);
        assert_eq!(counts.accuracy(), 0.6);
        assert!(Confusion::new(3).mean_iou().is_nan());
    }

    #[test]
    fn a_label_beyond_the_classes_counts_among_the_predicted_alone() {
        let mut counts = Confusion::new(2);
        counts.add(&[1, 1], &[1, 9]);
        assert_eq!(counts.class_scores()[1].iou(), Some(0.5));
        assert_eq!(counts.accuracy(), 1.0);
    }

    #[test]
    fn an_unread_image_is_wrong_everywhere() {
        let mut counts = Confusion::new(2);
        counts.add_unread(&[0, 255, 1]);
        counts.add(&[0], &[0]);
        assert_eq!((counts.accuracy(), counts.mean_iou()), (1.0 / 3.0, 0.25));
        let mut twice = counts.clone();
        twice.merge(&counts);
        assert_eq!(twice.mean_iou(), counts.mean_iou());
    }

    /// A class that the data do not know has no part in a mean; its pixels stay wrong.
    #[test]
    fn classes_that_the_data_do_not_know_are_in_no_mean() {
        let mut confusion = Confusion::new(3).without(&[2]);
        confusion.add(&[0, 0, 1, 2], &[0, 0, 1, 1]);
        // IoU 1 and 1/2; with the unknown class, whose IoU is 0, a third less.
        assert_eq!(confusion.mean_iou(), 0.75);
        assert_eq!(confusion.mean_accuracy(), 0.75);
        assert_eq!(confusion.clone().without(&[]).mean_iou(), 0.5);
        assert_eq!(confusion.accuracy(), 0.75);
    }
}
