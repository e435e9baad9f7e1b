//! Decodes all pairs of images and label maps once.

use super::verify::VerifyReport;
use super::{Finding, ProgressCounter, for_each};
use crate::dataset::{Dataset, OnProgress, Sample};
use crate::datasets::Pairs;
use crate::decode::{DecodeLimits, Decoder};
use crate::dense::{LabelMap, PairError};
use crate::loader::pairs::decode_pair;
use crate::{error::DataError, pixels::Pixels};

/// Decodes every pair by `workers` threads; bad are those that training would replace.
///
/// Nothing is recorded: the next verification decodes all of them again.
///
/// # Errors
/// If a decoder cannot be set up. Bad pairs are findings.
pub fn verify_pairs(
    pairs: &Pairs,
    workers: usize,
    watch: OnProgress<'_>,
) -> Result<VerifyReport, DataError> {
    let count = ProgressCounter::new(pairs.len(), watch);
    let start = || {
        let decoder = Decoder::new(DecodeLimits::default())?;
        Ok((decoder, Sample::default(), Pixels::default(), LabelMap::default()))
    };
    let results = for_each(0..pairs.len(), workers, &count, &start, &|tools, index| {
        let (decoder, sample, image, map) = tools;
        if let Err(error) = pairs.read(index, sample) {
            return Ok((Err(format!("cannot be read: failed to {error}")), 0));
        }
        let decoded = decode_pair(pairs, decoder, sample, image, map);
        let checked =
            decoded.and_then(|(warning, stray)| PairError::check_labels(stray).map(|()| warning));
        Ok((checked.map_err(|error| error.to_string()), sample.bytes()))
    })?;
    let mut report = VerifyReport {
        path: pairs.images().root().to_owned(),
        images: pairs.len(),
        bytes: count.bytes(),
        ..VerifyReport::default()
    };
    for (index, result) in results.into_iter().enumerate() {
        match result {
            Ok(None) => report.good += 1,
            Ok(Some(what)) => report.warned.push(Finding::new(pairs.images(), index, what)),
            Err(what) => report.bad.push(Finding::new(pairs.images(), index, what)),
        }
    }
    Ok(report)
}
