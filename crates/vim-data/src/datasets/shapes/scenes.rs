//! `shapes` with label maps: several figures in an image, each over those before.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;

use super::scene::Scene;
use super::{Shapes, ShapesBackground};
use crate::dataset::{Class, Dataset, Encoding, Fingerprint, Sample};
use crate::dense::{ClassList, LabelMaps, LabelRule};
use crate::error::DataError;
use crate::rng::{self, below, uniform};
use crate::statistics::Statistics;

/// One part of the procedural dataset with label maps: some figures from back to front. The
/// class of a pixel is that of the topmost figure that covers at least half of it.
#[derive(Clone, Debug)]
pub(super) struct Scenes {
    shapes: Shapes,
    class_names: Vec<String>,
    maps: LabelMaps,
}

impl Scenes {
    /// The scenes in place of the images of `shapes`.
    pub(super) fn new(shapes: Shapes, background: ShapesBackground) -> Self {
        let named = match background {
            ShapesBackground::Ignored => None,
            ShapesBackground::Class => Some("background"),
        };
        let named_background = named.map(str::to_owned);
        let names = named_background.into_iter().chain(shapes.class_names.iter().cloned());
        let ClassList { names, colours, .. } = ClassList::of_names(names.collect());
        let rule = LabelRule::new(named.is_none());
        let maps = LabelMaps { rule, colours, by_colour: BTreeMap::new() };
        Self { shapes, class_names: names, maps }
    }

    /// The figures of an image of `shapes` with their classes, and what its noise is drawn from.
    pub(super) fn figures(shapes: &Shapes, index: usize) -> (ChaCha8Rng, Vec<(Scene, u32)>) {
        let Shapes { part, image_size, seed, figures, scale: [least, most], .. } = *shapes;
        let classes = shapes.class_names.len() as u32;
        let key = [seed, part as u64, index as u64];
        let mut rng = rng::keyed("vim-data scenes v2", &key);
        let count = 1 + below(&mut rng, figures);
        let figure = |_| {
            let class = below(&mut rng, classes);
            let scale = uniform(&mut rng, least as f32, most as f32);
            let scene = Scene::draw_scaled(&mut rng, image_size, shapes.class_of(class), scale);
            (scene, class)
        };
        let figures = (0..count).map(figure).collect();
        (rng, figures)
    }
}

impl Dataset for Scenes {
    fn len(&self) -> usize {
        self.shapes.len()
    }

    fn encoding(&self) -> Encoding {
        self.shapes.encoding()
    }

    fn class_names(&self) -> &[String] {
        &self.class_names
    }

    /// 0: the classes are in the label maps.
    fn label(&self, _index: usize) -> Class {
        0
    }

    fn label_maps(&self) -> Option<&LabelMaps> {
        Some(&self.maps)
    }

    fn name(&self, index: usize) -> String {
        self.shapes.name(index)
    }

    fn read(&self, index: usize, into: &mut Sample) -> Result<(), DataError> {
        let image_size = self.shapes.image_size;
        let (mut rng, figures) = Self::figures(&self.shapes, index);
        let (scenes, classes): (Vec<Scene>, Vec<u32>) = figures.into_iter().unzip();
        let pixels = image_size * image_size;
        let Sample { image, labels } = into;
        image.resize(3 * pixels, 0);
        labels.clear();
        labels.resize(pixels, 0);
        let covers = |at: usize, number: usize| labels[at] = classes[number] as u8 + 1;
        Scene::render_all(&scenes, &mut rng, image_size, image, covers);
        Ok(())
    }

    fn statistics(&self) -> Statistics {
        self.shapes.statistics()
    }

    fn fingerprint_by(&self, names: &[String], label: &dyn Fn(Class) -> Class) -> Fingerprint {
        let shapes = self.shapes.fingerprint_by(names, label).to_string();
        Fingerprint::of(|hasher| {
            hasher.update(b"scenes v2").update(&[self.maps.rule.first()]).update(shapes.as_bytes());
        })
    }
}
