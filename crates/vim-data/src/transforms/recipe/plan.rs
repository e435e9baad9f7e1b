//! The plan of one training image: what is done to it, with all numbers drawn.

use serde::{Deserialize, Serialize};

use crate::pixels::Region;
use crate::transforms::ops::Op;

/// The augmentation of one draw of an image, in the order that it is applied.
///
/// The crop produces the target's size, which the flip and the operations keep; these three work on
/// bytes. Boxes are erased after normalisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplePlan {
    /// From the source to the target's size.
    pub crop: CropPlan,
    /// Whether the crop is mirrored left to right.
    pub flip: bool,
    /// Applied in this order.
    pub ops: Vec<Op>,
    /// Erased in this order: a later box lies over an earlier one.
    pub erase: Vec<EraseBox>,
}

/// How an image of any size becomes one of the target's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CropPlan {
    /// As in evaluation: nothing is random.
    Evaluation,
    /// Black pixels on all sides, then a crop of the target's size.
    Padded {
        /// Rows added above and below, columns added left and right.
        padding: [usize; 2],
        /// First row of the crop in the padded image.
        top: usize,
        /// First column of the crop in the padded image.
        left: usize,
    },
    /// A part of the source, resized to the target; the filter sees nothing outside the part.
    Resized {
        /// The part.
        region: Region,
    },
    /// The source resized, a border of reflected pixels (the edge itself is not repeated), then a
    /// crop of the target's size.
    Simple {
        /// Height and width that the whole source is resized to.
        resized: [usize; 2],
        /// Pixels reflected on each side.
        padding: usize,
        /// First row of the crop in the padded image.
        top: usize,
        /// First column of the crop in the padded image.
        left: usize,
    },
}

/// A box of the normalised image that is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EraseBox {
    /// Where, inside the image.
    pub region: Region,
    /// With what.
    pub fill: EraseFill,
}

/// What an erased box holds, in units of the normalised image.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EraseFill {
    /// 0.
    Constant,
    /// One colour: red, green, blue.
    Colour([f32; 3]),
    /// Normally distributed noise per pixel and channel, a function of the seed and the position.
    Pixels {
        /// Of the noise.
        seed: u32,
    },
}
