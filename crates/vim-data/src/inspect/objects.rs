//! Examination of images with objects: their annotations, and all that `scan` and `verify` look at.

use super::scan::{ClassCount, ScanReport, scan};
use super::verify::VerifyReport;
use super::{Finding, ProgressCounter, for_each};
use crate::dataset::{Dataset, OnProgress, Sample};
use crate::datasets::Coco;
use crate::decode::{DecodeLimits, Decoder};
use crate::error::DataError;
use crate::loader::objects::decode_scene;
use crate::objects::ImageObjects;
use crate::pixels::Pixels;

/// A remark on image `index` of `coco`.
fn finding(coco: &Coco, index: usize, what: impl ToString) -> Finding {
    Finding { index, name: coco.name(index), class: String::new(), what: what.to_string() }
}

/// The objects of an image that are left out, if there are some.
fn left_out(of_image: &ImageObjects) -> Option<String> {
    let all: Vec<String> = of_image.left_out.iter().map(ToString::to_string).collect();
    (!all.is_empty()).then(|| format!("has an object that is left out: {}", all.join("; ")))
}

/// As [`scan`], of the files of `coco`: a class has the images with an object of it, and
/// annotations that cannot be used are odd.
///
/// # Errors
/// If a file cannot be read at all.
pub fn scan_objects(
    coco: &Coco,
    workers: usize,
    watch: OnProgress<'_>,
) -> Result<ScanReport, DataError> {
    let mut report = scan(coco.images(), workers, watch)?;
    let mut images_of = vec![0; coco.num_classes()];
    for index in 0..coco.len() {
        let of_image = match coco.objects(index) {
            Ok(of_image) => of_image,
            Err(error) => {
                report.odd.push(finding(coco, index, error));
                continue;
            }
        };
        report.odd.extend(left_out(&of_image).map(|what| finding(coco, index, what)));
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
    Ok(ScanReport {
        classes: coco.num_classes(),
        fingerprint: coco.fingerprint(),
        smallest_class: count(least),
        largest_class: count(most),
        ..report
    })
}

/// Decodes every image of `coco` by `workers` threads; bad are those that training would replace,
/// and those with objects that are left out have a warning.
///
/// Nothing is recorded: the next verification decodes all of them again.
///
/// # Errors
/// If a decoder cannot be set up. Bad images are findings.
pub fn verify_objects(
    coco: &Coco,
    workers: usize,
    watch: OnProgress<'_>,
) -> Result<VerifyReport, DataError> {
    let count = ProgressCounter::new(coco.len(), watch);
    let start =
        || Ok((Decoder::new(DecodeLimits::default())?, Sample::default(), Pixels::default()));
    let results = for_each(0..coco.len(), workers, &count, &start, &|tools, index| {
        let (decoder, sample, image) = tools;
        if let Err(error) = coco.read(index, sample) {
            return Ok((Err(format!("cannot be read: failed to {error}")), 0));
        }
        let decoded = decode_scene(coco, index, decoder, &sample.image, image);
        let warnings = |(of_image, warning): (ImageObjects, Option<String>)| -> Option<String> {
            let all: Vec<String> = warning.into_iter().chain(left_out(&of_image)).collect();
            (!all.is_empty()).then(|| all.join("; "))
        };
        let checked = decoded.map(warnings).map_err(|error| error.to_string());
        Ok((checked, sample.bytes()))
    })?;
    let mut report = VerifyReport {
        path: coco.images().root().to_owned(),
        images: coco.len(),
        bytes: count.bytes(),
        ..VerifyReport::default()
    };
    for (index, result) in results.into_iter().enumerate() {
        match result {
            Ok(None) => report.good += 1,
            Ok(Some(what)) => report.warned.push(finding(coco, index, what)),
            Err(what) => report.bad.push(finding(coco, index, what)),
        }
    }
    Ok(report)
}
