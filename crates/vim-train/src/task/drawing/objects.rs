//! Images with objects as rows: the image with what is annotated, its crop, and the crop's targets.

use std::collections::BTreeMap;

use vim_data::object_ops::{Shown, draw_objects};
use vim_data::{
    Batch, Described, EvalScene, EvalScenes, ImageObjects, Mask, ObjectPlan, OnBad, Pixels, Split,
    Targets,
};

use super::Row;
use super::pairs::framed;
use crate::error::Error;

/// The classes as pictures and words show them.
struct Classes<'a> {
    names: &'a [String],
    colours: &'a [[u8; 3]],
}

impl Classes<'_> {
    fn name(&self, class: u32) -> &str {
        self.names.get(class as usize).map_or("no class", String::as_str)
    }

    fn shown<'b>(
        &self,
        class: u32,
        corners: [f32; 4],
        label: &'b str,
        mask: Option<&'b Mask>,
    ) -> Shown<'b> {
        let colour = self.colours.get(class as usize).copied().unwrap_or([255; 3]);
        Shown { corners, colour, label, mask }
    }
}

/// A row for each of the first `count` images of a batch of `split`.
pub(super) fn rows(
    split: &Split,
    batch: &Batch,
    described: &[Described],
    count: usize,
) -> Result<Vec<Row>, Error> {
    let described = &described[..count.min(described.len())];
    let of_objects = split.dataset().object_classes();
    let colours = of_objects.map_or(&[][..], |classes| &classes.colours);
    let classes = Classes { names: split.class_names(), colours };
    let whole = split.only(described.iter().map(|one| one.index).collect());
    let scenes = EvalScenes::new(&whole, (0..whole.len()).collect(), 2, OnBad::Fail)?;
    let size = [batch.height, batch.width];
    let crops = batch.images.chunks_exact(3 * size[0] * size[1]).zip(&batch.targets);
    let mut rows = Vec::new();
    for ((one, scene), (pixels, targets)) in described.iter().zip(scenes).zip(crops) {
        let scene = scene?.map_err(|unread| Error::data(unread.reason))?;
        let crop = Pixels { height: size[0], width: size[1], data: pixels.to_vec() };
        let found = with_targets(&crop, targets, &classes);
        // Drawings of small images are enlarged.
        let factor = found.height / crop.height;
        let [height, width] = one.source;
        rows.push(Row {
            label: format!("{}, {height}x{width} px", one.name),
            before: framed(&annotated(&scene, &classes), size.map(|side| factor * side)),
            draws: vec![
                Some((crop.enlarged(factor), one.objects.as_ref().map(done).unwrap_or_default())),
                Some((found, counted(&targets.classes, &classes))),
            ],
        });
    }
    Ok(rows)
}

/// The whole image with its objects; crowds are named as such.
fn annotated(scene: &EvalScene, classes: &Classes<'_>) -> Pixels {
    let ImageObjects { objects, .. } = &scene.objects;
    let name = |class, crowd| match crowd {
        true => format!("crowd: {}", classes.name(class)),
        false => classes.name(class).to_owned(),
    };
    let labels: Vec<String> =
        objects.iter().map(|object| name(object.class, object.crowd)).collect();
    let shown = objects.iter().zip(&labels).map(|(object, label)| {
        let [x, y, width, height] = object.bbox;
        let corners = [x, y, x + width, y + height].map(|at| at as f32);
        classes.shown(object.class, corners, label, object.mask.as_ref())
    });
    draw_objects(&scene.image, &shown.collect::<Vec<_>>())
}

/// A crop with what is to be found in it.
fn with_targets(crop: &Pixels, targets: &Targets, classes: &Classes<'_>) -> Pixels {
    let each = targets.boxes.iter().zip(&targets.classes).enumerate();
    let shown = each.map(|(at, (&corners, &class))| {
        classes.shown(class, corners, classes.name(class), targets.masks.get(at))
    });
    draw_objects(crop, &shown.collect::<Vec<_>>())
}

/// What is done to an image, in words.
fn done(plan: &ObjectPlan) -> String {
    let ObjectPlan { resized: [height, width], flip, corner: [y, x] } = plan;
    let mirrored = if *flip { ", mirrored" } else { "" };
    format!("resized to {height}x{width} px, cropped at {x}, {y}{mirrored}")
}

/// The objects of a crop by class, the commonest first.
fn counted(found: &[u32], classes: &Classes<'_>) -> String {
    let mut counts = BTreeMap::<u32, usize>::new();
    found.iter().for_each(|&class| *counts.entry(class).or_default() += 1);
    let mut counts: Vec<(u32, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|&(class, count)| (std::cmp::Reverse(count), class));
    match counts.is_empty() {
        true => "no objects".to_owned(),
        false => {
            let words =
                counts.iter().map(|&(class, count)| format!("{count} {}", classes.name(class)));
            words.collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_and_its_objects_are_told_in_words() {
        let plan = ObjectPlan { flip: true, resized: [256, 341], corner: [3, 20] };
        assert_eq!(done(&plan), "resized to 256x341 px, cropped at 20, 3, mirrored");
        let names = ["cat".to_owned(), "dog".to_owned()];
        let classes = Classes { names: &names, colours: &[] };
        assert_eq!(counted(&[1, 0, 1], &classes), "2 dog, 1 cat");
        assert_eq!(counted(&[], &classes), "no objects");
    }
}
