//! Images that cannot be read or decoded.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

use crate::error::DataError;

/// What becomes of an image that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBad {
    /// Another image takes its place, drawn from the same key; too many bad ones are an error.
    Replace,
    /// It is an error.
    Fail,
    /// It is black, and its place is in [`Batch::unread`](crate::Batch::unread).
    CountAsWrong,
}

/// What becomes of a training image that cannot be read.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "lowercase")]
pub enum BadTrain {
    /// Another takes its place, and `bad_samples.jsonl` names it; more than 10 such images, and
    /// than one in 10 000 draws, end the run.
    #[default]
    Replace,
    /// The run ends.
    Fail,
}

/// What becomes of a validation or test image that cannot be read.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "lowercase")]
pub enum BadTest {
    /// The evaluation ends with an error.
    #[default]
    Fail,
    /// It counts as classified wrongly.
    Wrong,
}

impl From<BadTrain> for OnBad {
    fn from(bad: BadTrain) -> Self {
        match bad {
            BadTrain::Replace => Self::Replace,
            BadTrain::Fail => Self::Fail,
        }
    }
}

impl From<BadTest> for OnBad {
    fn from(bad: BadTest) -> Self {
        match bad {
            BadTest::Fail => Self::Fail,
            BadTest::Wrong => Self::CountAsWrong,
        }
    }
}

/// An image that could not be read, and when it was needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadSample {
    /// Pass over the images.
    pub epoch: u64,
    /// Number of the batch, counted over all epochs.
    pub batch: u64,
    /// Index in the dataset.
    pub index: usize,
    /// The file, or `archive:member`.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Number of bad images that is accepted however few images were drawn.
const ALWAYS: u64 = 10;
/// Number of draws per accepted bad image.
const ONE_IN: u64 = 10_000;

/// Bad images so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    draws: u64,
    /// Indices of the bad images, each once however often it was drawn.
    images: BTreeSet<usize>,
    /// Those that [`Tally::take`] has not returned.
    samples: Vec<BadSample>,
}

impl Tally {
    /// Adds the bad images of a batch of `draws` images.
    ///
    /// # Errors
    /// If there are too many by now.
    pub(super) fn add(&mut self, bad: Vec<BadSample>, draws: usize) -> Result<(), DataError> {
        self.draws += draws as u64;
        self.images.extend(bad.iter().map(|bad| bad.index));
        let count = self.images.len() as u64;
        let most = ALWAYS.max(self.draws / ONE_IN);
        let last = bad.last().map(|last| format!("{}: {}", last.name, last.reason));
        self.samples.extend(bad);
        match last {
            Some(last) if count > most => {
                Err(DataError::TooManyBad { count, draws: self.draws, last })
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn take(&mut self) -> Vec<BadSample> {
        std::mem::take(&mut self.samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_or_one_in_ten_thousand_are_borne() {
        let bad = |indices: std::ops::Range<usize>| -> Vec<BadSample> {
            let of = |index| BadSample {
                epoch: 0,
                batch: 0,
                index,
                name: "a".into(),
                reason: "b".into(),
            };
            indices.map(of).collect()
        };
        let mut tally = Tally::default();
        assert!(tally.add(bad(0..10), 64).is_ok());
        assert_eq!(tally.take().len(), 10);
        // Bad images that are drawn again do not count again.
        assert!(tally.add(bad(0..10), 64).is_ok());
        assert!(tally.add(bad(0..0), 64).is_ok());
        let more = tally.add(bad(9..11), 64);
        assert!(matches!(more, Err(DataError::TooManyBad { count: 11, .. })));

        let mut tally = Tally::default();
        assert!(tally.add(bad(0..0), 1_000_000).is_ok());
        assert!(tally.add(bad(0..100), 0).is_ok());
        assert!(tally.add(bad(100..101), 1).is_err());
    }
}
