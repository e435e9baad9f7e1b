//! Reading files of annotations and of detections.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use hotcoco::{Annotation, Category, Dataset, Image};

use super::fault::{box_fault, has_mask, mask_fault};
use super::parse::{self, UNNUMBERED};
use crate::error::{DataError, Location, SourceError};
use crate::input::{InputKind, read_input};

/// Most pixels of an image, a limit of the masks' run lengths.
const MOST_PIXELS: u64 = u32::MAX as u64;

/// A file of annotations whose references are good: every annotation is of an image and of a
/// category that the file has.
///
/// Boxes and masks are not looked at before somebody wants them: an object whose box or mask cannot
/// be used is then left out and counted.
#[derive(Clone, Debug)]
pub struct CocoAnnotations {
    pub(super) file: Location,
    /// Categories by number, ascending.
    pub(super) content: Dataset,
    /// Whether it is a file in somebody's hands, not of data that were checked when opened.
    pub(super) is_given: bool,
    /// Whether each image is annotated with some of the classes only, as LVIS's are.
    pub(super) is_federated: bool,
    notes: Vec<String>,
}

/// Detections of the images and categories of a [`CocoAnnotations`], each with a score and a good
/// box, mask or both.
#[derive(Clone, Debug)]
pub struct CocoDetections {
    pub(super) file: Location,
    pub(super) content: Vec<Annotation>,
}

/// What a file is, for its errors.
const ANNOTATIONS: &str = "annotations";
const DETECTIONS: &str = "detections";

/// For `map_err`: the file is not what it should be.
fn wrong(file: &Location, what: &'static str) -> impl Fn(String) -> DataError + use<> {
    let file = file.clone();
    move |why| SourceError::Coco { file: file.clone(), what, why }.into()
}

impl CocoAnnotations {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, is not of COCO's format, or names an image or a category that it does
    /// not have.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let bytes = read_input(path, InputKind::Annotations).map_err(DataError::io(path))?;
        Self::parse(bytes, Location { path: path.to_owned(), member: None })
    }

    /// Reads what `bytes` hold, the content of `file`.
    ///
    /// # Errors
    /// As for [`Self::read`], but for the reading.
    pub(crate) fn parse(bytes: Vec<u8>, file: Location) -> Result<Self, DataError> {
        let wrong = wrong(&file, ANNOTATIONS);
        let mut content = parse::annotations(bytes).map_err(&wrong)?;
        let mut notes = number(&mut content.annotations).map_err(&wrong)?;
        notes.extend(odd_areas(&content.annotations));
        let notes = notes.into_iter().map(|note| format!("{file}: {note}")).collect();
        Ok(Self { is_given: true, notes, ..Self::new(content, file)? })
    }

    /// Checks `content`, which is as `file` has it.
    pub(crate) fn new(mut content: Dataset, file: Location) -> Result<Self, DataError> {
        check(&content).map_err(wrong(&file, ANNOTATIONS))?;
        content.categories.sort_by_key(|category| category.id);
        let is_federated = content.images.iter().any(|image| {
            !(image.neg_category_ids.is_empty() && image.not_exhaustive_category_ids.is_empty())
        });
        Ok(Self { file, content, is_given: false, is_federated, notes: Vec::new() })
    }

    /// What a user should know of the file.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Where it was read.
    pub(crate) fn file(&self) -> &Location {
        &self.file
    }

    /// Whether each image is annotated with some of the classes only, as LVIS's are.
    pub fn is_federated(&self) -> bool {
        self.is_federated
    }

    /// The category that all others are below and that no object has: Roboflow's exports begin with
    /// one, called as the project.
    pub(crate) fn root(&self) -> Option<u64> {
        let Dataset { categories, annotations, .. } = &self.content;
        let (first, others) = categories.split_first()?;
        let is_below = |one: &Category| one.supercategory.as_deref() == Some(first.name.as_str());
        let is_root = first.id == 0 && !others.is_empty() && others.iter().all(is_below);
        let is_used = || annotations.iter().any(|one| one.category_id == first.id);
        (is_root && !is_used()).then_some(first.id)
    }

    /// Takes the category `id`, which no object has, for none.
    pub(crate) fn without_category(&mut self, id: u64) {
        self.content.categories.retain(|category| category.id != id);
    }

    /// The first of the images' `file_name`s, as the file has them.
    pub(crate) fn some_names(&self) -> impl Iterator<Item = &str> {
        const SOME: usize = 3;
        self.content.images.iter().map(|image| image.file_name.as_str()).take(SOME)
    }

    /// Names of the categories in the order of their numbers, which is that of the classes.
    pub fn class_names(&self) -> Vec<String> {
        self.content.categories.iter().map(|category| category.name.clone()).collect()
    }

    /// Number of images.
    pub fn num_images(&self) -> usize {
        self.content.images.len()
    }

    /// Whether any annotation has a mask.
    pub fn has_masks(&self) -> bool {
        self.content.annotations.iter().any(has_mask)
    }
}

/// Numbers the annotations that have no number, after the others.
fn number(annotations: &mut [Annotation]) -> Result<Vec<String>, String> {
    let numbers = annotations.iter().map(|one| one.id).filter(|&id| id != UNNUMBERED);
    let first = numbers.max().map_or(1, |last| last + 1);
    let mut next = first;
    for one in annotations.iter_mut().filter(|one| one.id == UNNUMBERED) {
        if next == UNNUMBERED {
            return Err("annotations without `id` follow the largest number there is".to_owned());
        }
        one.id = next;
        next += 1;
    }
    let without = next - first;
    let note = || format!("{without} annotations have no `id` and are numbered from {first} on");
    Ok((without > 0).then(note).into_iter().collect())
}

/// A note of areas that are no finite numbers.
fn odd_areas(annotations: &[Annotation]) -> Option<String> {
    let is_odd = |one: &Annotation| one.area.is_some_and(|area| !area.is_finite());
    let place = annotations.iter().position(is_odd)?;
    let count = annotations.iter().filter(|one| is_odd(one)).count();
    let area = annotations[place].area.unwrap_or_default();
    Some(format!(
        "{count} annotations have an `area` that is no finite number, the first is {area} of \
         `annotations[{place}]`; scores by size are not exact then"
    ))
}

impl CocoDetections {
    /// Reads a file of detections on the images of `truths`: a list, or an object that has one as
    /// `annotations`.
    ///
    /// # Errors
    /// If it cannot be read or is not of COCO's format, or a detection is of no image or category
    /// of `truths`, has no score, or no good box or mask.
    pub fn read(path: &Path, truths: &CocoAnnotations) -> Result<Self, DataError> {
        let bytes = read_input(path, InputKind::Annotations).map_err(DataError::io(path))?;
        let file = Location { path: path.to_owned(), member: None };
        let content = parse::detections(bytes).map_err(wrong(&file, DETECTIONS))?;
        Self::new(content, file, truths)
    }

    /// Checks `content`, which is as `file` has it.
    pub(crate) fn new(
        content: Vec<Annotation>,
        file: Location,
        truths: &CocoAnnotations,
    ) -> Result<Self, DataError> {
        let sizes = sizes(&truths.content.images);
        let categories: HashSet<u64> =
            truths.content.categories.iter().map(|category| category.id).collect();
        let held = content.first().map(|first| (first.bbox.is_some(), has_mask(first)));
        let checked = content.iter().enumerate().try_for_each(|(number, one)| {
            check_detection(one, &sizes, &categories, held)
                .map_err(|why| format!("detection {number} (from 0) {why}"))
        });
        checked.map_err(wrong(&file, DETECTIONS))?;
        Ok(Self { file, content })
    }

    /// Number of detections.
    pub fn len(&self) -> usize {
        self.content.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.content.is_empty()
    }

    /// Whether the detections have boxes; as all have what one has, none of nothing.
    pub fn has_boxes(&self) -> bool {
        self.content.first().is_some_and(|first| first.bbox.is_some())
    }

    /// The detections with their masks alone, so that the area of each is its mask's: COCO's
    /// evaluation takes a box's where there is one, for masks too.
    #[must_use]
    pub fn without_boxes(&self) -> Self {
        let mut content = self.content.clone();
        content.iter_mut().for_each(|one| one.bbox = None);
        Self { file: self.file.clone(), content }
    }

    /// Whether the detections have masks, likewise.
    pub fn has_masks(&self) -> bool {
        self.content.first().is_some_and(has_mask)
    }
}

/// Heights and widths of the images by their numbers.
pub(super) fn sizes(images: &[Image]) -> HashMap<u64, [u32; 2]> {
    images.iter().map(|image| (image.id, [image.height, image.width])).collect()
}

/// An annotation's name in an error.
pub(super) fn name(annotation: &Annotation) -> String {
    format!("annotation {} of image {}", annotation.id, annotation.image_id)
}

fn check_detection(
    one: &Annotation,
    sizes: &HashMap<u64, [u32; 2]>,
    categories: &HashSet<u64>,
    held: Option<(bool, bool)>,
) -> Result<(), String> {
    let Some(&size) = sizes.get(&one.image_id) else {
        return Err(format!("is of image {}, which the annotations do not have", one.image_id));
    };
    if !categories.contains(&one.category_id) {
        let id = one.category_id;
        return Err(format!("is of category {id}, which the annotations do not have"));
    }
    let score = one.score.ok_or_else(|| "has no score".to_owned())?;
    if !score.is_finite() {
        return Err(format!("has the score {score}"));
    }
    let holds = (one.bbox.is_some(), has_mask(one));
    if holds == (false, false) {
        return Err("has neither a box nor a mask".to_owned());
    }
    if held.is_some_and(|first| first != holds) {
        return Err("has another of box and mask than the first one".to_owned());
    }
    let of_box = if holds.0 { box_fault(one) } else { None };
    let of_mask = || if holds.1 { mask_fault(one, size) } else { None };
    of_box.or_else(of_mask).map_or(Ok(()), |fault| Err(fault.why))
}

/// Checks the references of a file of annotations.
fn check(content: &Dataset) -> Result<(), String> {
    let Dataset { images, annotations, categories, .. } = content;
    for (what, is_empty) in [("images", images.is_empty()), ("categories", categories.is_empty())] {
        if is_empty {
            return Err(format!("it has no `{what}`"));
        }
    }
    if let Some(id) = twice(images.iter().map(|image| image.id)) {
        return Err(format!("it has image {id} twice"));
    }
    if let Some(id) = twice(categories.iter().map(|category| category.id)) {
        return Err(format!("it has category {id} twice"));
    }
    if let Some(id) = twice(annotations.iter().map(|annotation| annotation.id)) {
        return Err(format!("it has annotation {id} twice"));
    }
    if let Some(Category { id, .. }) = categories.iter().find(|one| one.name.is_empty()) {
        return Err(format!("category {id} has no `name`"));
    }
    let is_sized = |image: &&Image| {
        let pixels = u64::from(image.height) * u64::from(image.width);
        (1..=MOST_PIXELS).contains(&pixels)
    };
    if let Some(Image { id, height, width, .. }) = images.iter().find(|image| !is_sized(image)) {
        return Err(format!("image {id} has `height` {height} and `width` {width}"));
    }
    let known: HashSet<u64> = images.iter().map(|image| image.id).collect();
    let classes: HashSet<u64> = categories.iter().map(|category| category.id).collect();
    for annotation in annotations {
        if !known.contains(&annotation.image_id) {
            let (id, image) = (annotation.id, annotation.image_id);
            return Err(format!("annotation {id} is of image {image}, which it does not have"));
        }
        if !classes.contains(&annotation.category_id) {
            let id = annotation.category_id;
            return Err(format!(
                "{} is of category {id}, which it does not have",
                name(annotation)
            ));
        }
    }
    Ok(())
}

/// The first number that occurs again.
fn twice(ids: impl Iterator<Item = u64>) -> Option<u64> {
    let mut seen = HashSet::new();
    { ids }.find(|&id| !seen.insert(id))
}
