//! What there is to find in an image.

use super::boxes::{Edges, is_finite, is_nonempty};
use super::mask_target::InstanceMask;
use crate::error::{DenseError, expect};

/// The instances of an image, in pixels of the image that the model sees.
#[derive(Clone, Debug, Default)]
pub struct Truths {
    /// Of each its box.
    pub boxes: Vec<Edges>,
    /// Of each its class, from 0.
    pub classes: Vec<usize>,
    /// Of each its mask; none are needed where boxes alone are learned.
    pub masks: Vec<InstanceMask>,
}

impl Truths {
    /// Checks that there are as many of each, of masks if `masks` are learned, that boxes have an
    /// inside, and that classes are below `classes`.
    ///
    /// # Errors
    ///
    /// [`DenseError::Argument`] names the first that is wrong.
    pub fn check(&self, classes: usize, masks: bool) -> Result<(), DenseError> {
        let counts = [self.boxes.len(), self.classes.len(), self.masks.len()];
        let same = counts[1] == counts[0] && (!masks || counts[2] == counts[0]);
        let got = || format!("{} boxes, {} classes, {} masks", counts[0], counts[1], counts[2]);
        expect(same, "truths", got, || "one of each to an instance".to_owned())?;
        let is_good = |&edges: &Edges| is_finite(edges) && is_nonempty(edges);
        if let Some(edges) = self.boxes.iter().find(|edges| !is_good(edges)) {
            let (what, got) = ("a truth's box", format!("{edges:?}"));
            return Err(DenseError::Argument { what, got, expected: "an inside".to_owned() });
        }
        if let Some(class) = self.classes.iter().find(|&&class| class >= classes) {
            let (what, got) = ("a truth's class", class.to_string());
            return Err(DenseError::Argument { what, got, expected: format!("below {classes}") });
        }
        Ok(())
    }
}
