//! What needs no network: scores that a segmentation must beat to have learned anything.

use super::OnBad;
use super::evaluation::EvalPairs;
use crate::dense::{Confusion, IGNORED};
use crate::error::DataError;
use crate::pixels::Pixels;
use crate::split::Split;

/// Grey levels of a channel that are told apart: the upper four bits.
const LEVELS: usize = 16;

/// Scores without a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Floors {
    /// Of the class that most training pixels have, everywhere.
    pub majority: Confusion,
    /// Of the class that most training pixels of a pixel's colour have.
    pub colour: Confusion,
}

impl Floors {
    /// Learns from the first `most` images of `train`, and measures on all of `test`.
    ///
    /// # Errors
    /// If a pair cannot be used.
    ///
    /// # Panics
    /// If the splits have no label maps.
    pub fn measure(train: &Split, test: &Split, most: usize) -> Result<Self, DataError> {
        let classes = train.num_classes();
        let mut counts = vec![0_u64; LEVELS * LEVELS * LEVELS * classes];
        let pairs = |split, count| EvalPairs::new(split, (0..count).collect(), 2, OnBad::Fail);
        for pair in pairs(train, train.len().min(most))? {
            let Ok(pair) = pair? else { continue };
            for (cell, &label) in cells(&pair.image).zip(&pair.map.labels) {
                if usize::from(label) < classes {
                    counts[cell * classes + usize::from(label)] += 1;
                }
            }
        }
        let most_frequent = |counts: &[u64]| {
            let best = (0..classes).rev().max_by_key(|&class| counts[class]);
            best.filter(|&class| counts[class] > 0).map(|class| class as u8)
        };
        let mut all = vec![0; classes];
        for cell in counts.chunks_exact(classes) {
            all.iter_mut().zip(cell).for_each(|(sum, count)| *sum += count);
        }
        let majority = most_frequent(&all).unwrap_or(IGNORED);
        let by_colour: Vec<u8> = counts
            .chunks_exact(classes)
            .map(|cell| most_frequent(cell).unwrap_or(majority))
            .collect();
        let mut floors =
            Self { majority: Confusion::new(classes), colour: Confusion::new(classes) };
        for pair in pairs(test, test.len())? {
            let Ok(pair) = pair? else { continue };
            let labels = &pair.map.labels;
            floors.majority.add(&vec![majority; labels.len()], labels);
            let predicted: Vec<u8> = cells(&pair.image).map(|cell| by_colour[cell]).collect();
            floors.colour.add(&predicted, labels);
        }
        Ok(floors)
    }
}

/// The cell of the colour cube that each pixel is in.
fn cells(image: &Pixels) -> impl Iterator<Item = usize> + '_ {
    let level = |value: u8| usize::from(value) * LEVELS / 256;
    let pixels = image.data.as_chunks::<3>().0.iter();
    pixels
        .map(move |&[red, green, blue]| (level(red) * LEVELS + level(green)) * LEVELS + level(blue))
}
