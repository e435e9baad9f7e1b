//! Examination of images with label maps or objects: all that training would decode.

use super::Finding;
use super::known::{self, KnownImages, Tools, examine};
use super::scan::{ScanReport, scan};
use super::verify::VerifyReport;
use crate::dataset::{Dataset, OnProgress};
use crate::datasets::Pairs;
use crate::error::DataError;
use crate::storage::each::{ProgressCounter, for_each};
use crate::storage::heads::keep;
use crate::storage::images::Images;

/// As [`scan`], of the images and of the label maps of `pairs`: odd are also pairs that cannot be
/// used by what is known of them.
///
/// # Errors
/// If a file cannot be read at all.
pub fn scan_pairs(
    pairs: &Pairs,
    workers: usize,
    watch: [OnProgress<'_>; 2],
) -> Result<[ScanReport; 2], DataError> {
    let images = scan(pairs.images(), workers, watch[0])?;
    let maps = scan(pairs.label_map_files(), workers, watch[1])?;
    let known = KnownImages::of_all(pairs, "images", workers, &|_| {})?;
    Ok([images.with(known), maps])
}

/// Decodes every pair by `workers` threads; bad are those that training would replace. Which these
/// are is kept with the list of the files.
///
/// The next verification decodes all of them again.
///
/// # Errors
/// If a decoder cannot be set up. Bad pairs are findings.
pub fn verify_pairs(
    pairs: &Pairs,
    workers: usize,
    watch: OnProgress<'_>,
) -> Result<VerifyReport, DataError> {
    verify_all(pairs, pairs.images(), &|index| index, workers, watch)
}

/// Decodes every image of `dataset` with what belongs to it; `place` gives its index among the
/// files.
pub(super) fn verify_all(
    dataset: &dyn Dataset,
    images: &Images,
    place: &dyn Fn(usize) -> usize,
    workers: usize,
    watch: OnProgress<'_>,
) -> Result<VerifyReport, DataError> {
    let count = ProgressCounter::new(dataset.len(), watch);
    let results = for_each(0..dataset.len(), workers, &count, &Tools::new, &|tools, index| {
        Ok(examine(dataset, index, tools))
    })?;
    let mut report = VerifyReport {
        path: images.root().to_owned(),
        images: dataset.len(),
        bytes: count.bytes(),
        ..VerifyReport::default()
    };
    for (index, result) in results.into_iter().enumerate() {
        match result {
            Ok(None) => report.good += 1,
            Ok(Some(what)) => report.warned.push(Finding::of(dataset, index, what)),
            Err((what, _)) => report.bad.push(Finding::of(dataset, index, what)),
        }
    }
    let bad = report.bad.iter().map(|finding| place(finding.index) as u32).collect();
    let before = std::mem::replace(&mut images.known().bad, bad);
    let is_new = before != images.known().bad;
    // The same as a run will say, without decoding again.
    let suspects = dataset.suspects(workers, &|_| {})?;
    report.notes.extend(is_new.then(|| keep(images)).flatten());
    report.notes.extend(suspects.notes);
    report.notes.extend(known::turned_note(dataset, &suspects.turned, "images", dataset.len()));
    Ok(report)
}
