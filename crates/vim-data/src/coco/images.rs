//! Annotations as objects of images, and back.

use std::collections::HashMap;

use hotcoco::{Annotation, Category, Dataset, Image};

use super::fault;
use super::file::CocoAnnotations;
use crate::error::{DataError, Location};
use crate::loader::OnBad;
use crate::objects::{ImageObjects, Mask, Object, ObjectError};
use crate::split::Split;

impl CocoAnnotations {
    /// Numbers of the categories, ascending: those of the classes in their order.
    pub(crate) fn categories(&self) -> Vec<u64> {
        self.content.categories.iter().map(|category| category.id).collect()
    }

    /// The file's name and the objects of each image, or what is wrong with them.
    pub(crate) fn into_images(self) -> Vec<(String, Result<ImageObjects, ObjectError>)> {
        let classes: HashMap<u64, u32> = self.categories().into_iter().zip(0..).collect();
        let places: HashMap<u64, usize> =
            self.content.images.iter().enumerate().map(|(at, image)| (image.id, at)).collect();
        let of = |image: Image| {
            let (id, size) = (image.id, [image.height as usize, image.width as usize]);
            (image.file_name, Ok(ImageObjects { id, size, objects: Vec::new() }))
        };
        let mut images: Vec<(String, Result<ImageObjects, ObjectError>)> =
            self.content.images.into_iter().map(of).collect();
        for annotation in self.content.annotations {
            let (_, image) = &mut images[places[&annotation.image_id]];
            let Ok(of_image) = image else { continue };
            let (id, class) = (annotation.id, classes[&annotation.category_id]);
            match object(annotation, class, of_image.size) {
                Ok(object) => of_image.objects.push(object),
                Err(why) => *image = Err(ObjectError::Annotation { id, why }),
            }
        }
        images
    }

    /// A file of the annotations, which pycocotools reads as well.
    pub fn json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.content).expect("invariant: its numbers are finite")
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
            let ImageObjects { id: image_id, size, objects } = found;
            let [height, width] = size.map(|side| side as u32);
            let file_name = dataset.name(index);
            images.push(Image { id: image_id, file_name, height, width, ..Image::default() });
            annotations.extend(objects.into_iter().map(|object| Annotation {
                id: object.id,
                image_id,
                category_id: number(&object).expect("invariant: checked above"),
                bbox: Some(object.bbox),
                area: object.area,
                segmentation: Some(object.mask.segmentation()),
                iscrowd: object.crowd,
                ..Annotation::default()
            }));
        }
        let content = Dataset { images, annotations, categories, ..Dataset::default() };
        let path = "the annotations of the data".into();
        Self::new(content, Location { path, member: None })
    }
}

fn object(annotation: Annotation, class: u32, size: [usize; 2]) -> Result<Object, String> {
    let size = size.map(|side| side as u32);
    if let Some(why) = fault(&annotation, size) {
        return Err(why);
    }
    let Annotation { id, bbox, area, iscrowd, segmentation, .. } = annotation;
    let mask = segmentation.and_then(|mask| Mask::of(mask, size));
    let no_mask = || "has no mask".to_owned();
    let mask = mask.filter(|mask| *mask != Mask::Polygons(Vec::new())).ok_or_else(no_mask)?;
    let bbox = bbox.ok_or_else(|| "has no box".to_owned())?;
    Ok(Object { id, class, bbox, area, crowd: iscrowd, mask })
}
