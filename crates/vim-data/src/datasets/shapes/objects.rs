//! `shapes` with objects: the scenes of segmentation, each figure with its box and its mask.

use hotcoco::mask::{encode, to_bbox};
use rand_chacha::ChaCha8Rng;

use super::Shapes;
use super::scene::Scene;
use super::scenes::Scenes;
use crate::dataset::{Class, Dataset, Encoding, Fingerprint, Sample};
use crate::dense::ClassList;
use crate::error::DataError;
use crate::objects::{ImageObjects, Mask, Object, ObjectClasses, ObjectError};
use crate::rng::{self, chance};
use crate::statistics::Statistics;

/// The share of figures in whose place is a crowd.
const CROWDS: f64 = 0.1;
/// Figures of a crowd, along each side.
const SIDE: usize = 3;

/// One part of the procedural dataset with objects. An object is what is seen of a figure; one
/// figure in ten is a crowd, a patch of small ones that touch.
#[derive(Clone, Debug)]
pub(super) struct ShapeObjects {
    shapes: Shapes,
    object_classes: ObjectClasses,
    /// Whether objects have masks, and not boxes alone.
    masks: bool,
}

impl ShapeObjects {
    /// The objects in place of the images of `shapes`, with or without `masks`.
    pub(super) fn new(shapes: Shapes, masks: bool) -> Self {
        let ClassList { colours, .. } = ClassList::of_names(shapes.class_names.clone());
        let categories = (1..=shapes.class_names.len() as u64).map(Some).collect();
        let object_classes = ObjectClasses { categories, colours, federated: false };
        Self { shapes, object_classes, masks }
    }

    /// Draws the image into `pixels`, `[size, size, 3]`; returns its objects.
    fn draw(&self, index: usize, pixels: &mut [u8]) -> Vec<Object> {
        let size = self.shapes.image_size;
        let (mut rng, figures) = Scenes::figures(&self.shapes, index);
        let mut crowds = self.crowds(index);
        let (mut scenes, mut number_of, mut described) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (scene, class)) in figures.into_iter().enumerate() {
            let crowd = chance(&mut crowds, CROWDS);
            let parts = if crowd { scene.crowd(SIDE) } else { vec![scene] };
            number_of.resize(number_of.len() + parts.len(), number);
            scenes.extend(parts);
            described.push((class, crowd));
        }
        // The number of the topmost figure that covers each pixel.
        let mut topmost = vec![usize::MAX; size * size];
        let covers = |at: usize, scene: usize| topmost[at] = number_of[scene];
        Scene::render_all(&scenes, &mut rng, size, pixels, covers);
        let seen = |(number, (class, crowd)): (usize, (u32, bool))| {
            let columns = (0..size * size).map(|at| topmost[at % size * size + at / size]);
            let mask: Vec<u8> = columns.map(|top| u8::from(top == number)).collect();
            let area = mask.iter().filter(|&&pixel| pixel == 1).count();
            let runs = encode(&mask, size as u32, size as u32);
            let runs = runs.expect("invariant: an image has fewer than 2³² pixels");
            let bbox = to_bbox(&runs);
            let mask = self.masks.then_some(Mask::Runs(runs));
            (area > 0).then_some(Object {
                id: 0,
                class,
                bbox,
                area: Some(area as f64),
                crowd,
                mask,
            })
        };
        let mut objects: Vec<Object> = described.into_iter().enumerate().filter_map(seen).collect();
        for (object, number) in objects.iter_mut().zip(1..) {
            object.id = FIGURE_IDS * index as u64 + number;
        }
        objects
    }

    /// What decides which figures are crowds.
    fn crowds(&self, index: usize) -> ChaCha8Rng {
        let Shapes { part, seed, .. } = self.shapes;
        rng::keyed("vim-data crowds v1", &[seed, part as u64, index as u64])
    }
}

/// Numbers of annotations for each image.
const FIGURE_IDS: u64 = 16;

impl Dataset for ShapeObjects {
    fn len(&self) -> usize {
        self.shapes.len()
    }

    fn encoding(&self) -> Encoding {
        self.shapes.encoding()
    }

    fn class_names(&self) -> &[String] {
        &self.shapes.class_names
    }

    /// 0: the objects have the classes.
    fn label(&self, _index: usize) -> Class {
        0
    }

    fn object_classes(&self) -> Option<&ObjectClasses> {
        Some(&self.object_classes)
    }

    fn objects(&self, index: usize) -> Result<ImageObjects, ObjectError> {
        let size = [self.shapes.image_size; 2];
        let mut pixels = vec![0; 3 * size[0] * size[1]];
        let objects = self.draw(index, &mut pixels);
        Ok(ImageObjects { id: index as u64 + 1, size, objects, left_out: Vec::new() })
    }

    fn name(&self, index: usize) -> String {
        self.shapes.name(index)
    }

    fn read(&self, index: usize, into: &mut Sample) -> Result<(), DataError> {
        into.image.resize(3 * self.shapes.image_size * self.shapes.image_size, 0);
        self.draw(index, &mut into.image);
        Ok(())
    }

    fn statistics(&self) -> Statistics {
        self.shapes.statistics()
    }

    fn fingerprint_by(&self, names: &[String], label: &dyn Fn(Class) -> Class) -> Fingerprint {
        let shapes = self.shapes.fingerprint_by(names, label).to_string();
        Fingerprint::of(|hasher| {
            hasher.update(b"shapes with objects").update(shapes.as_bytes());
        })
    }
}
