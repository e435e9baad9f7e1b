//! What label maps hold: pixels and images of each class, and what of that a user must know before
//! training.

use serde::Serialize;

use crate::dataset::Dataset;
use crate::dense::{IGNORED, LabelTally};
use crate::error::listed;

/// Names of classes that a note lists, of more the first.
const LISTED: usize = 3;

/// What the label maps of some images hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LabelCounts {
    /// Label maps that could be read.
    pub maps: usize,
    /// Pixels in all.
    pub pixels: u64,
    /// Those that are ignored.
    pub ignored: u64,
    /// Of each class, by label.
    pub classes: Vec<ClassPixels>,
    /// Whether 255, which is ignored, and 0 are the only values that are stored, and both are.
    pub is_mask: bool,
    /// Label maps of which that is true.
    pub masks: usize,
}

/// A class in label maps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassPixels {
    /// Its name.
    pub class: String,
    /// Pixels of it.
    pub pixels: u64,
    /// Images with a pixel of it.
    pub images: usize,
}

impl LabelCounts {
    /// Adds up what the label maps of the images `indices` hold; `None` if that is not known.
    pub(super) fn of(
        dataset: &dyn Dataset,
        indices: &[usize],
        tallies: &[Option<LabelTally>],
    ) -> Option<Self> {
        let rule = dataset.label_maps().filter(|_| !tallies.is_empty())?.rule;
        let mut labels: Vec<u8> = (0..=u8::MAX).collect();
        rule.apply(&mut labels);
        let class = |class: &String| ClassPixels { class: class.clone(), ..ClassPixels::default() };
        let classes = dataset.class_names().iter().map(class).collect();
        let mut counts = Self { classes, ..Self::default() };
        let mut stored = [false; 256];
        for tally in indices.iter().filter_map(|&index| tallies[index].as_ref()) {
            counts.maps += 1;
            let values: Vec<u8> = tally.values.iter().map(|&(value, _)| value).collect();
            counts.masks += usize::from(
                values.len() == 2 && [0, IGNORED].iter().all(|one| values.contains(one)),
            );
            for &(value, pixels) in &tally.values {
                stored[usize::from(value)] = true;
                counts.pixels += pixels;
                let label = labels[usize::from(value)];
                if label == IGNORED {
                    counts.ignored += pixels;
                } else if let Some(class) = counts.classes.get_mut(usize::from(label)) {
                    class.pixels += pixels;
                    class.images += 1;
                }
            }
        }
        let values = stored.iter().filter(|&&is_stored| is_stored).count();
        counts.is_mask = values == 2 && stored[0] && stored[usize::from(IGNORED)];
        Some(counts)
    }

    /// Names of the classes that are in no map.
    fn absent(&self) -> Vec<String> {
        let absent = self.classes.iter().filter(|class| class.images == 0);
        absent.map(|class| class.class.clone()).collect()
    }

    /// The share of the pixels that is ignored, in percent.
    pub fn ignored_percent(&self) -> f64 {
        100.0 * self.ignored as f64 / self.pixels.max(1) as f64
    }

    /// What is to be said of the label maps of the images called `what`, a line each: what keeps
    /// classes from being learned. `unknown` are classes that the data do not know, of which others
    /// speak.
    pub(super) fn notes(&self, what: &str, unknown: &[String]) -> Vec<String> {
        let Self { maps, classes, .. } = self;
        let percent = self.ignored_percent();
        let of = format!("of the {maps} {what}");
        let seen: Vec<String> =
            classes.iter().filter(|one| one.images > 0).map(|one| one.class.clone()).collect();
        let absent: Vec<String> =
            self.absent().into_iter().filter(|class| !unknown.contains(class)).collect();
        let nowhere = match &absent[..] {
            [] => None,
            [one] => Some(format!("class `{one}` occurs in no label map")),
            [..] => {
                let names = match absent.len() > LISTED {
                    true => format!("{} …", listed(&absent[..LISTED])),
                    false => listed(&absent),
                };
                let all = classes.len();
                Some(format!("{} of {all} classes occur in no label map ({names})", absent.len()))
            }
        };
        if *maps == 0 {
            return vec![];
        }
        let mut notes = Vec::new();
        let is_said = self.is_mask || seen.is_empty();
        if self.is_mask {
            let learned = match &seen[..] {
                [] => "nothing is learned".to_owned(),
                [..] => format!("{} alone is learned", listed(&seen)),
            };
            let nowhere = nowhere.map(|text| format!(" and {text}")).unwrap_or_default();
            notes.push(format!(
                "the label maps {of} are masks of 0 and 255, and 255 is ignored ({percent:.1} % of \
                 the pixels): {learned}{nowhere}; write a class's number for 255 \
                 (docs/segmentation.md, *Masks of 0 and 255*)"
            ));
        } else if seen.is_empty() {
            notes.push(format!("not one pixel {of} has a class: all are ignored"));
        } else if let ([one], Some(nowhere)) = (&seen[..], &nowhere) {
            notes.push(format!(
                "{nowhere} {of}: `{one}` is the only class, every answer is right and nothing is \
                 learned"
            ));
        } else {
            notes.extend(nowhere.map(|nowhere| format!("{nowhere} {of}")));
        }
        if self.masks > 0 && !self.is_mask {
            notes.push(format!(
                "{} {of} have label maps of 0 and 255 alone, and 255 is ignored: where it stands \
                 for an object, write its class's number (docs/segmentation.md, *Masks of 0 and \
                 255*)",
                self.masks
            ));
        }
        if percent >= 50.0 && !is_said {
            notes.push(format!("{percent:.1} % of the pixels {of} are ignored"));
        }
        notes
    }
}
