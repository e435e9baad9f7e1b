//! What a detector finds in images of any size.

use burn::tensor::Device;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use vim_data::mask_ops::{Rle, encode};
use vim_data::object_ops::{Shown, draw_objects, fitted};
use vim_data::{Detection, ImageObjects, Mask, Object, ObjectClasses, Pixels, Resizer, Statistics};
use vim_dense::detection::{Detections, Detector, Found};

use crate::error::Error;
use crate::task::frame::framed;

/// The objects of an image, from the surest to the least sure, in the image's own pixels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Height and width of the image.
    pub size: [usize; 2],
    /// x0, y0, x1 and y1 of each.
    pub boxes: Vec<[f32; 4]>,
    /// How sure each is, 0 to 1.
    pub scores: Vec<f32>,
    /// Class of each, from 0.
    pub classes: Vec<usize>,
    /// Lengths of the runs of each one's mask; none where boxes alone are found.
    pub runs: Vec<Vec<u32>>,
}

/// How images are shown to a detector in evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Viewer {
    /// What pixels are normalized by.
    pub statistics: Statistics,
}

impl Viewer {
    /// The objects of each of `images`, which are seen at once: the longer side of each is
    /// resized to the model's shorter one.
    ///
    /// # Source
    ///
    /// detectron2: `ResizeShortestEdge` with the size as its limit, `GeneralizedRCNN.inference`.
    pub fn seen(
        &self,
        model: &Detector,
        images: &[&Pixels],
        device: &Device,
    ) -> Result<Vec<Seen>, Error> {
        let own = model.backbone_config().image_size;
        let side = own.height.min(own.width);
        let shown: Vec<Pixels> = images.par_iter().map(|image| resized(image, side)).collect();
        let sizes: Vec<[usize; 2]> =
            shown.iter().map(|image| [image.height, image.width]).collect();
        let framed = framed(&shown, [own.height, own.width], self.statistics, device)?;
        let found = model.detect(framed, &sizes)?;
        let each = found.par_iter().zip(&sizes).zip(images);
        let seen = |((found, &from), image): ((&Detections, &[usize; 2]), &&Pixels)| {
            let to = [image.height, image.width];
            Seen::of(&found.resized(from, to), to)
        };
        Ok(each.map(seen).collect())
    }
}

/// `image` with a longer side of `side` pixels.
pub(super) fn resized(image: &Pixels, side: usize) -> Pixels {
    let [height, width] = fitted([image.height, image.width], side);
    let mut data = vec![0; 3 * height * width];
    Resizer::new().resize(image, image.region(), [height, width], &mut data);
    Pixels { height, width, data }
}

impl Seen {
    fn of(found: &Found, size: [usize; 2]) -> Self {
        let Found { boxes, scores, classes, masks } = found;
        let runs = masks.par_iter().map(|mask| runs(mask, size)).collect();
        let (boxes, scores, classes) = (boxes.clone(), scores.clone(), classes.clone());
        Self { size, boxes, scores, classes, runs }
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.boxes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.boxes.is_empty()
    }

    /// The mask of object `at`, if masks are found.
    pub fn mask(&self, at: usize) -> Option<Mask> {
        let [h, w] = self.size.map(|side| side as u32);
        Some(Mask::Runs(Rle { h, w, counts: self.runs.get(at)?.clone() }))
    }

    /// Pixels of the mask of object `at`, if masks are found.
    pub fn area(&self, at: usize) -> Option<u64> {
        let on = self.runs.get(at)?.iter().skip(1).step_by(2);
        Some(on.map(|&run| u64::from(run)).sum())
    }

    /// The objects as files of detections have them, of the image numbered `image`, without those
    /// of classes that the data lack.
    pub fn detections<'a>(
        &'a self,
        image: u64,
        classes: &'a ObjectClasses,
    ) -> impl Iterator<Item = Detection> + 'a {
        (0..self.len()).filter_map(move |at| {
            let [left, top, right, bottom] = self.boxes[at];
            Some(Detection {
                image,
                category: classes.categories[self.classes[at]]?,
                score: f64::from(self.scores[at]),
                bbox: [left, top, right - left, bottom - top].map(f64::from),
                mask: self.mask(at),
            })
        })
    }

    /// Of objects none of which scores `least` or more: that there are none, and the surest.
    pub(super) fn below(&self, least: f32, names: &[String]) -> Option<String> {
        let Some(&score) = self.scores.first() else { return Some("nothing".to_owned()) };
        let name = names.get(self.classes[0]).map_or("?", String::as_str);
        let (least_percent, percent) = ((1e4 * least).round() / 1e2, 100.0 * score);
        (score < least).then(|| {
            format!("nothing of {least_percent} % or more; the surest: {percent:.2} % {name}")
        })
    }

    /// `image` with the objects drawn whose score is at least `least`.
    pub fn drawn(
        &self,
        image: &Pixels,
        names: &[String],
        colours: &[[u8; 3]],
        least: f32,
    ) -> Pixels {
        let chosen: Vec<usize> = (0..self.len()).filter(|&at| self.scores[at] >= least).collect();
        let label = |&at: &usize| {
            let name = names.get(self.classes[at]).map_or("?", String::as_str);
            format!("{name} {:.0} %", 100.0 * self.scores[at])
        };
        let labels: Vec<String> = chosen.iter().map(label).collect();
        let masks: Vec<Option<Mask>> = chosen.iter().map(|&at| self.mask(at)).collect();
        let shown = |(place, &at): (usize, &usize)| Shown {
            corners: self.boxes[at],
            colour: colour(colours, self.classes[at]),
            label: &labels[place],
            mask: masks[place].as_ref(),
        };
        let shown: Vec<Shown<'_>> = chosen.iter().enumerate().map(shown).collect();
        draw_objects(image, &shown)
    }
}

/// `image` with its annotated objects drawn.
pub(super) fn annotated(
    image: &Pixels,
    objects: &ImageObjects,
    names: &[String],
    colours: &[[u8; 3]],
) -> Pixels {
    let describe = |object: &Object| -> ([f32; 4], [u8; 3], String) {
        let [x, y, width, height] = object.bbox;
        let name = names.get(object.class as usize).map_or("?", String::as_str);
        let label = if object.crowd { format!("{name} (crowd)") } else { name.to_owned() };
        let corners = [x, y, x + width, y + height].map(|at| at as f32);
        (corners, colour(colours, object.class as usize), label)
    };
    let described: Vec<_> = objects.objects.iter().map(describe).collect();
    let each = described.iter().zip(&objects.objects);
    let each = each.map(|((corners, colour, label), object)| Shown {
        corners: *corners,
        colour: *colour,
        label,
        mask: object.mask.as_ref(),
    });
    draw_objects(image, &each.collect::<Vec<_>>())
}

fn colour(colours: &[[u8; 3]], class: usize) -> [u8; 3] {
    colours.get(class).copied().unwrap_or([255; 3])
}

/// Lengths of the runs of a mask, `[height, width]`, column by column.
fn runs(mask: &[bool], [height, width]: [usize; 2]) -> Vec<u32> {
    let column = |at: usize| u8::from(mask[at % height * width + at / height]);
    let columns: Vec<u8> = (0..height * width).map(column).collect();
    let rle = encode(&columns, height as u32, width as u32);
    rle.expect("invariant: an image has fewer than 2³² pixels").counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_drawn_is_said() {
        let names = ["disk".to_owned()];
        let below = |scores: &[f32], least| {
            let (scores, classes) = (scores.to_vec(), vec![0; scores.len()]);
            Seen { scores, classes, ..Seen::default() }.below(least, &names)
        };
        let surest = "nothing of 30 % or more; the surest: 12.50 % disk";
        assert_eq!(below(&[0.125, 0.1], 0.3).as_deref(), Some(surest));
        assert_eq!(below(&[], 0.5).as_deref(), Some("nothing"));
        assert_eq!(below(&[0.5, 0.1], 0.5), None);
    }

    #[test]
    fn a_mask_comes_back_from_its_runs() {
        let mask = [false, true, true, false, false, true];
        let seen = Seen { size: [2, 3], runs: vec![runs(&mask, [2, 3])], ..Seen::default() };
        let pixels: Vec<bool> =
            seen.mask(0).unwrap().pixels([2, 3]).into_iter().map(|pixel| pixel == 1).collect();
        assert_eq!((&pixels[..], seen.area(0)), (&mask[..], Some(3)));
        assert_eq!((seen.mask(1), seen.area(1)), (None, None));
    }

    #[test]
    fn detections_have_the_numbers_of_their_categories() {
        let seen = Seen {
            size: [4, 4],
            boxes: vec![[1.0, 0.5, 3.0, 4.0]],
            scores: vec![0.5],
            classes: vec![1],
            runs: vec![vec![0, 16]],
        };
        let classes = ObjectClasses {
            categories: vec![Some(3), Some(7)],
            colours: vec![[0; 3]; 2],
            federated: false,
        };
        let found: Vec<Detection> = seen.detections(9, &classes).collect();
        let Detection { image, category, score, bbox, .. } = &found[0];
        assert_eq!((*image, *category, *score), (9, 7, 0.5));
        assert_eq!(*bbox, [1.0, 0.5, 2.0, 3.5]);
    }
}
