//! Objects as they are annotated, and as a model's targets.

use std::fmt;

use super::mask::Mask;
use crate::decode::DecodeError;

/// An object of an image as annotated.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Number of the annotation.
    pub id: u64,
    /// Its class, from 0.
    pub class: u32,
    /// x, y, width and height in pixels.
    pub bbox: [f64; 4],
    /// Pixels that it is said to cover; left out, its mask tells.
    pub area: Option<f64>,
    /// Whether it stands for many objects: nothing learns from it, and a detection in it counts
    /// neither as right nor as wrong.
    pub crowd: bool,
    /// Its pixels; absent where boxes alone are of interest, and then of all objects.
    pub mask: Option<Mask>,
}

/// An object as annotated whose box or mask cannot be used: nothing learns from it.
///
/// In an evaluation one with a box counts for boxes, and where masks are compared a detection in
/// its box is neither right nor wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct LeftOut {
    /// Number of the annotation.
    pub id: u64,
    /// Its class, from 0.
    pub class: u32,
    /// x, y, width and height in pixels; `None` if it is the box that cannot be used.
    pub bbox: Option<[f64; 4]>,
    /// Pixels that it is said to cover.
    pub area: Option<f64>,
    /// Whether it stands for many objects.
    pub crowd: bool,
    /// What is wrong in few words, the same for all of a kind.
    pub kind: &'static str,
    /// What is wrong, in the words that follow the annotation's name.
    pub why: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "annotation {}, which {}", self.id, self.why)
    }
}

/// The objects of an image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageObjects {
    /// Number of the image, in files of detections.
    pub id: u64,
    /// Its height and width as annotated.
    pub size: [usize; 2],
    /// The objects in the order of the annotations.
    pub objects: Vec<Object>,
    /// Those that cannot be used.
    pub left_out: Vec<LeftOut>,
}

/// The classes of a dataset's objects, besides their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectClasses {
    /// Number of each class in files of annotations and detections; `None` of a class that these do
    /// not have.
    pub categories: Vec<Option<u64>>,
    /// Colour of each class in pictures, red, green and blue.
    pub colours: Vec<[u8; 3]>,
    /// Whether each image is annotated with some of the classes only, as LVIS's are: then COCO's
    /// numbers are not of these data.
    pub federated: bool,
}

/// What is to be found in an image as a model sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Targets {
    /// Rows and columns of the image's content, the upper left part of what the model sees.
    pub size: [usize; 2],
    /// x0, y0, x1 and y1 of each object in pixels.
    pub boxes: Vec<[f32; 4]>,
    /// Class of each object, from 0.
    pub classes: Vec<u32>,
    /// Pixels of each object; runs are of the whole of what the model sees. None where objects have
    /// boxes alone.
    pub masks: Vec<Mask>,
}

/// Why an image and its objects cannot be used. Each text follows the image's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// The image cannot be decoded.
    #[error(transparent)]
    Image(#[from] DecodeError),
    /// It is of another size than the annotations say.
    #[error(
        "has {} × {} pixels, and {} × {} in the annotations; they are of another image",
        image[0], image[1], annotated[0], annotated[1]
    )]
    Size {
        /// Height and width of the image.
        image: [usize; 2],
        /// Height and width as annotated.
        annotated: [usize; 2],
    },
    /// An annotation that cannot be used.
    #[error("has annotation {id}, which {why}")]
    Annotation {
        /// Number of the annotation.
        id: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The dataset has no objects.
    #[error("has no annotated objects")]
    None,
}
