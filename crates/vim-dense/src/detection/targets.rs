//! Which boxes of an image are in a stage's losses, and what each is to find.

use vim_model::Draw;

use super::box_head::{BoxTargets, CODERS, OVERLAPS};
use super::boxes::{Edges, clip, is_finite, is_nonempty};
use super::coder::BoxCoder;
use super::detector::Detector;
use super::matcher::{Label, Matcher, Matches};
use super::rpn::Proposals;
use super::sampler::{Purpose, Sampled, sample};
use super::truths::Truths;
use crate::error::{DenseError, expect};

/// Most of the boxes of an image in the heads' losses that are foreground.
const FOREGROUND: f64 = 0.25;

/// What a training pass is of, image by image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenes<'a> {
    /// `[height, width]`, without what pads it.
    pub(super) sizes: &'a [[usize; 2]],
    /// What there is to find.
    pub(super) truths: &'a [Truths],
    /// Of the first image.
    pub(super) draw: Option<Draw>,
    /// Of each stage of the cascade the boxes of each image, where they are given.
    pub(super) boxes: Option<&'a [Vec<Vec<Edges>>]>,
}

impl Scenes<'_> {
    /// The draw of each image.
    pub(super) fn draws(&self) -> Vec<Option<Draw>> {
        let of = |image| self.draw.map(|Draw { seed, first }| Draw { seed, first: first + image });
        (0..self.truths.len()).map(of).collect()
    }
}

impl Detector {
    /// Checks that `scenes` are `batch` images, and that what they have is possible.
    pub(super) fn check_scenes(&self, scenes: &Scenes<'_>, batch: usize) -> Result<(), DenseError> {
        let Scenes { sizes, truths, boxes, .. } = scenes;
        self.check_sizes(sizes, batch)?;
        let images = || format!("those of {batch}");
        let got = || format!("those of {} images", truths.len());
        expect(truths.len() == batch, "truths", got, images)?;
        let masks = self.mask_head.is_some();
        truths.iter().try_for_each(|of| of.check(self.num_classes(), masks))?;
        let Some(boxes) = boxes else { return Ok(()) };
        let (stages, what) = (self.box_heads.len(), "boxes of the stages");
        let got = || format!("those of {} stages", boxes.len());
        expect(boxes.len() == stages, what, got, || format!("those of {stages}"))?;
        for of in *boxes {
            let got = || format!("those of {} images", of.len());
            expect(of.len() == batch, what, got, images)?;
            let is_good = |&edges: &Edges| is_finite(edges) && is_nonempty(edges);
            if let Some(edges) = of.iter().flatten().find(|edges| !is_good(edges)) {
                let (what, got) = ("a stage's box", format!("{edges:?}"));
                return Err(DenseError::Argument {
                    what,
                    got,
                    expected: "finite edges and an area".to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Of each image the boxes that are in the first stage's losses: of its proposals and, behind
    /// them, its truths. Foreground comes first.
    pub(super) fn drawn(&self, proposals: &[Proposals], scenes: &Scenes<'_>) -> Vec<BoxTargets> {
        let each = proposals.iter().zip(scenes.truths).zip(scenes.draws());
        let drawn = |((proposals, truths), draw): ((&Proposals, &Truths), Option<Draw>)| {
            let boxes: Vec<Edges> = proposals.boxes.iter().chain(&truths.boxes).copied().collect();
            let found = Matcher::at(OVERLAPS[0]).matches(&truths.boxes, &boxes);
            let (count, purpose) = (self.config().box_samples, Purpose::Proposals);
            let Sampled { positives, negatives } =
                sample(&found.labels, count, FOREGROUND, draw, purpose);
            let chosen = positives.into_iter().chain(negatives);
            let all = self.to_find(boxes, found, truths);
            let mut targets = BoxTargets::default();
            for at in chosen {
                targets.boxes.push(all.boxes[at]);
                targets.classes.push(all.classes[at]);
                targets.truths.push(all.truths[at]);
                targets.to.push(all.to[at]);
            }
            targets
        };
        each.map(drawn).collect()
    }

    /// Of each image what a stage's boxes are to find.
    pub(super) fn matched(
        &self,
        stage: usize,
        boxes: impl IntoIterator<Item = Vec<Edges>>,
        truths: &[Truths],
    ) -> Vec<BoxTargets> {
        let each = boxes.into_iter().zip(truths);
        let matched = |(boxes, truths): (Vec<Edges>, &Truths)| {
            let found = Matcher::at(OVERLAPS[stage]).matches(&truths.boxes, &boxes);
            self.to_find(boxes, found, truths)
        };
        each.map(matched).collect()
    }

    /// Of each image the boxes of a stage: those within the image that the one before, which said
    /// `deltas` of its own, `before`, makes of them.
    pub(super) fn passed_on(
        &self,
        stage: usize,
        before: &[BoxTargets],
        deltas: &[f32],
        scenes: &Scenes<'_>,
    ) -> Vec<BoxTargets> {
        let boxes = before.iter().map(|of| &of.boxes[..]);
        let refined = refined(deltas, boxes, CODERS[stage - 1]);
        let within = |(boxes, &size): (Vec<Edges>, &[usize; 2])| -> Vec<Edges> {
            let boxes = boxes.into_iter().filter(|&edges| is_finite(edges));
            boxes.map(|edges| clip(edges, size)).filter(|&edges| is_nonempty(edges)).collect()
        };
        let boxes = refined.into_iter().zip(scenes.sizes).map(within);
        self.matched(stage, boxes, scenes.truths)
    }

    /// What boxes are to find that are matched with the truths of their image.
    fn to_find(&self, boxes: Vec<Edges>, found: Matches, truths: &Truths) -> BoxTargets {
        let background = self.num_classes();
        let each = found.labels.iter().zip(&found.matched);
        let class = |(&label, &truth): (&Label, &usize)| {
            if label == Label::Positive { truths.classes[truth] } else { background }
        };
        let classes = each.map(class).collect();
        let to =
            |(&edges, &truth): (&Edges, &usize)| truths.boxes.get(truth).copied().unwrap_or(edges);
        let to = boxes.iter().zip(&found.matched).map(to).collect();
        BoxTargets { classes, to, truths: found.matched, boxes }
    }
}

/// The boxes of each image as a stage refines them.
pub(super) fn refined<'a>(
    deltas: &[f32],
    boxes: impl Iterator<Item = &'a [Edges]>,
    coder: BoxCoder,
) -> Vec<Vec<Edges>> {
    let mut deltas = deltas.as_chunks::<4>().0.iter();
    boxes
        .map(|own| {
            own.iter().zip(&mut deltas).map(|(&edges, &by)| coder.decode(edges, by)).collect()
        })
        .collect()
}
