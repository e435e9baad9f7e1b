//! Examination of images with objects: their annotations, and all that `scan` and `verify` look at.

use super::Finding;
use super::known::{KnownImages, left_out};
use super::pairs::verify_all;
use super::scan::{ClassCount, ScanReport, scan_places};
use super::verify::VerifyReport;
use crate::dataset::{Dataset, OnProgress};
use crate::datasets::Coco;
use crate::error::DataError;

/// As [`scan`](super::scan()), of the images of `coco`: a class has those with an object of it. Odd
/// are also images that cannot be used by what is known of them, and those with objects that are
/// left out.
///
/// # Errors
/// If a file cannot be read at all.
pub fn scan_objects(
    coco: &Coco,
    workers: usize,
    watch: OnProgress<'_>,
) -> Result<ScanReport, DataError> {
    let all: Vec<usize> = (0..coco.len()).map(|index| coco.place(index)).collect();
    let (mut report, _) = scan_places(coco.images(), &all, workers, watch)?;
    let mut images_of = vec![0; coco.num_classes()];
    for index in 0..coco.len() {
        // Those that cannot be used are odd, below.
        let Ok(of_image) = coco.objects(index) else { continue };
        report.odd.extend(left_out(&of_image).map(|what| Finding::of(coco, index, what)));
        let mut classes: Vec<u32> = of_image.objects.iter().map(|object| object.class).collect();
        classes.sort_unstable();
        classes.dedup();
        classes.into_iter().for_each(|class| images_of[class as usize] += 1);
    }
    let count = |class: usize| ClassCount {
        class: coco.class_names()[class].clone(),
        images: images_of[class],
    };
    let classes = || 0..images_of.len();
    let least = classes().min_by_key(|&class| images_of[class]).unwrap_or(0);
    let most = classes().rev().max_by_key(|&class| images_of[class]).unwrap_or(0);
    let known = KnownImages::of_all(coco, "images", workers, &|_| {})?;
    Ok(ScanReport {
        classes: coco.num_classes(),
        fingerprint: coco.fingerprint(),
        smallest_class: count(least),
        largest_class: count(most),
        ..report.with(known)
    })
}

/// Decodes every image of `coco` by `workers` threads; bad are those that training would replace,
/// and those with objects that are left out have a warning.
///
/// Which these are is kept with the list of the files; the next verification decodes all again.
///
/// # Errors
/// If a decoder cannot be set up. Bad images are findings.
pub fn verify_objects(
    coco: &Coco,
    workers: usize,
    watch: OnProgress<'_>,
) -> Result<VerifyReport, DataError> {
    verify_all(coco, coco.images(), &|index| coco.place(index), workers, watch)
}
