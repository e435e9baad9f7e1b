//! Examination of images with label maps or objects: all that training would decode.

use super::Finding;
use super::known::{self, KnownImages, Tools, examine};
use super::scan::{ClassCount, ScanReport, scan_places};
use super::verify::VerifyReport;
use crate::dataset::{Dataset, OnProgress};
use crate::datasets::Pairs;
use crate::error::DataError;
use crate::storage::each::{ProgressCounter, for_each};
use crate::storage::heads::keep;
use crate::storage::images::Images;

/// As [`scan`](super::scan()), of the images and of the label maps of `pairs`: a class has the
/// images with a pixel of it, and the files of label maps have none. Odd are also pairs that cannot
/// be used by what is known of them.
///
/// # Errors
/// If a file cannot be read at all.
pub fn scan_pairs(
    pairs: &Pairs,
    workers: usize,
    watch: [OnProgress<'_>; 2],
) -> Result<[ScanReport; 2], DataError> {
    let files = [pairs.images(), pairs.label_map_files()];
    let scan = |half: usize| {
        scan_places(files[half], &pairs.places_of(half), workers, watch[half])
            .map(|(report, _)| report)
    };
    let [images, maps] = [scan(0)?, scan(1)?];
    let known = KnownImages::of_all(pairs, "images", workers, watch[1])?;
    let of_class = known.labels.iter().flat_map(|labels| &labels.classes);
    let counts: Vec<ClassCount> =
        of_class.map(|one| ClassCount { class: one.class.clone(), images: one.images }).collect();
    let least = counts.iter().min_by_key(|count| count.images).cloned();
    let most = counts.iter().rev().max_by_key(|count| count.images).cloned();
    let images = ScanReport {
        classes: pairs.num_classes(),
        fingerprint: pairs.fingerprint(),
        smallest_class: least.unwrap_or_default(),
        largest_class: most.unwrap_or_default(),
        labels: known.labels.clone(),
        ..images.with(known)
    };
    let none = ClassCount::default;
    Ok([images, ScanReport { classes: 0, smallest_class: none(), largest_class: none(), ..maps }])
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
    verify_all(pairs, pairs.images(), &|index| pairs.places(index)[0], workers, watch)
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
    // Other parts may have others of the files.
    let before = images.known().bad.clone();
    let mut bad = before.clone();
    (0..dataset.len()).for_each(|index| {
        bad.remove(&(place(index) as u32));
    });
    bad.extend(report.bad.iter().map(|finding| place(finding.index) as u32));
    let is_new = before != bad;
    images.known().bad = bad;
    report.notes.extend(is_new.then(|| keep(images)).flatten());
    // The same as a run will say, without decoding the images again.
    let found = dataset.suspects(workers, watch)?;
    let indices: Vec<usize> = (0..dataset.len()).collect();
    report.notes.extend(known::said(dataset, &indices, found, "images").1);
    Ok(report)
}
