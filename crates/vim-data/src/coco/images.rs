//! Annotations as objects of images, and back.

use std::collections::HashMap;

use hotcoco::{Annotation, Category, Dataset, Image};

use super::fault::{box_fault, mask_fault};
use super::file::CocoAnnotations;
use crate::error::{DataError, Location};
use crate::loader::OnBad;
use crate::objects::{ImageObjects, LeftOut, Mask, Object, ObjectError};
use crate::split::Split;

impl CocoAnnotations {
    /// Numbers of the categories, ascending: those of the classes in their order.
    pub(crate) fn categories(&self) -> Vec<u64> {
        self.content.categories.iter().map(|category| category.id).collect()
    }

    /// The file's name and the objects of each image, with their masks if those are wanted.
    pub(crate) fn into_images(self, masks: bool) -> Vec<(String, ImageObjects)> {
        let classes: HashMap<u64, u32> = self.categories().into_iter().zip(0..).collect();
        let places: HashMap<u64, usize> =
            self.content.images.iter().enumerate().map(|(at, image)| (image.id, at)).collect();
        let of = |image: Image| {
            let (id, size) = (image.id, [image.height as usize, image.width as usize]);
            (image.file_name, ImageObjects { id, size, ..ImageObjects::default() })
        };
        let mut images: Vec<(String, ImageObjects)> =
            self.content.images.into_iter().map(of).collect();
        for annotation in self.content.annotations {
            let (_, image) = &mut images[places[&annotation.image_id]];
            match object(annotation, &classes, image.size, masks) {
                Ok(object) => image.objects.push(object),
                Err(left_out) => image.left_out.push(left_out),
            }
        }
        images
    }

    /// A file of the annotations, which pycocotools reads as well: without the objects that have no
    /// box. One that has no mask has none there too, and pycocotools can compare boxes alone then.
    pub fn json(&self) -> Vec<u8> {
        let mut content = self.content.clone();
        content.annotations.retain(|annotation| annotation.bbox.is_some());
        serde_json::to_vec(&content).expect("invariant: its numbers are written as null or as such")
    }

    /// The annotations of the images of a split, whose files are not read.
    ///
    /// # Errors
    /// If the annotations of an image cannot be used, such as an object of a class without a
    /// category; with [`OnBad::CountAsWrong`] it is left out, as nobody knows what is to be found
    /// there.
    pub fn of(split: &Split, on_bad: OnBad) -> Result<Self, DataError> {
        let dataset = split.dataset();
        let numbers = dataset.object_classes().map_or(&[][..], |classes| &classes.categories);
        let category = |(id, name): (&Option<u64>, &String)| {
            Some(Category { id: (*id)?, name: name.clone(), ..Category::default() })
        };
        let categories = numbers.iter().zip(dataset.class_names()).filter_map(category).collect();
        let number = |object: &Object| numbers.get(object.class as usize).copied().flatten();
        let (mut images, mut annotations) = (Vec::new(), Vec::new());
        for index in (0..split.len()).map(|position| split.index(position)) {
            let checked = dataset.objects(index).and_then(|found| {
                match found.objects.iter().find(|object| number(object).is_none()) {
                    Some(&Object { id, .. }) => {
                        let why = "is of a class without a category".to_owned();
                        Err(ObjectError::Annotation { id, why })
                    }
                    None => Ok(found),
                }
            });
            let found = match (checked, on_bad) {
                (Ok(found), _) => found,
                (Err(_), OnBad::CountAsWrong) => continue,
                (Err(error), OnBad::Fail | OnBad::Replace) => {
                    let (name, reason) = (dataset.name(index), error.to_string());
                    return Err(DataError::BadImage { name, reason });
                }
            };
            let ImageObjects { id: image_id, size, objects, left_out } = found;
            let [height, width] = size.map(|side| side as u32);
            let file_name = dataset.name(index);
            images.push(Image { id: image_id, file_name, height, width, ..Image::default() });
            annotations.extend(objects.into_iter().map(|object| Annotation {
                id: object.id,
                image_id,
                category_id: number(&object).expect("invariant: checked above"),
                bbox: Some(object.bbox),
                area: object.area,
                segmentation: object.mask.as_ref().map(Mask::segmentation),
                iscrowd: object.crowd,
                ..Annotation::default()
            }));
            annotations.extend(left_out.into_iter().filter_map(|one| {
                Some(Annotation {
                    id: one.id,
                    image_id,
                    category_id: numbers.get(one.class as usize).copied().flatten()?,
                    bbox: one.bbox,
                    area: one.area,
                    iscrowd: one.crowd,
                    ..Annotation::default()
                })
            }));
        }
        let content = Dataset { images, annotations, categories, ..Dataset::default() };
        let path = "the annotations of the data".into();
        let is_federated = dataset.object_classes().is_some_and(|classes| classes.federated);
        let mut annotations = Self::new(content, Location { path, member: None })?;
        annotations.is_federated = is_federated;
        Ok(annotations)
    }
}

/// The object of an annotation, or what is known of it if it cannot be learned from. Without
/// `masks` boxes alone are, and an object is as good without a mask as with any.
pub(crate) fn object(
    annotation: Annotation,
    classes: &HashMap<u64, u32>,
    size: [usize; 2],
    masks: bool,
) -> Result<Object, LeftOut> {
    let size = size.map(|side| side as u32);
    let of_mask = masks.then(|| mask_fault(&annotation, size)).flatten();
    let of_box = box_fault(&annotation);
    let Annotation { id, category_id, bbox, area, iscrowd: crowd, segmentation, .. } = annotation;
    let (class, usable) = (classes[&category_id], bbox.filter(|_| of_box.is_none()));
    if let Some(fault) = of_box.or(of_mask) {
        let (kind, why) = (fault.kind, fault.why);
        return Err(LeftOut { id, class, bbox: usable, area, crowd, kind, why });
    }
    let bbox = usable.expect("invariant: checked above");
    if !masks {
        let area = area.or(Some(bbox[2] * bbox[3]));
        return Ok(Object { id, class, bbox, area, crowd, mask: None });
    }
    let mask = segmentation.and_then(|mask| Mask::of(mask, size));
    let mask = Some(mask.expect("invariant: checked above"));
    Ok(Object { id, class, bbox, area, crowd, mask })
}
