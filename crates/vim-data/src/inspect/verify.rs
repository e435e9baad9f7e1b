//! Decodes all images once and records the results.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Serialize;

use super::Finding;
use crate::dataset::{Dataset, OnProgress};
use crate::decode::{DecodeLimits, Decoder};
use crate::storage::each::{ProgressCounter, for_each};
use crate::storage::heads::keep;
use crate::storage::images::Images;
use crate::storage::index::{Facts, Verdict};
use crate::{error::DataError, pixels::Pixels};

/// Images whose verdicts are saved at a time: an interruption loses no more.
const BLOCK: usize = 1 << 16;

/// How images are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyOptions {
    /// Threads, ≥ 1.
    pub workers: usize,
    /// Whether images are examined again, and files that have changed since are accepted. The
    /// checksums of a pack are kept.
    pub again: bool,
}

/// How verification went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// The folder or archive.
    pub path: PathBuf,
    /// Number of images.
    pub images: usize,
    /// Images that an earlier verification had examined.
    pub known: usize,
    /// Those that decode without a warning.
    pub good: usize,
    /// Bytes read.
    pub bytes: u64,
    /// Those that decode with a warning, as they do in the original.
    pub warned: Vec<Finding>,
    /// Those that cannot be used.
    pub bad: Vec<Finding>,
    /// What else is to be said of them, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What one look at a file has shown.
enum Examined {
    /// Known from before.
    Known,
    /// Decoded or not, and the checksum of the file.
    Seen(Facts, u32),
    /// Not read, or changed: nothing is recorded.
    Unsure(String),
}

/// Decodes every image, and saves sizes, verdicts and checksums with the index.
///
/// From then on reading compares the checksums. An interrupted verification continues where it
/// stopped.
///
/// # Errors
/// If a thread's decoder cannot be set up. Bad images are findings, and an index that cannot be
/// kept is a note.
pub fn verify(
    images: &mut Images,
    options: VerifyOptions,
    watch: OnProgress<'_>,
) -> Result<VerifyReport, DataError> {
    let mut report = VerifyReport {
        path: images.root().to_owned(),
        images: images.len(),
        ..VerifyReport::default()
    };
    let count = ProgressCounter::new(images.len(), watch);
    let start = || Ok((Decoder::new(DecodeLimits::default())?, Vec::new(), Pixels::default()));
    let mut unsure = BTreeMap::new();
    for first in (0..images.len()).step_by(BLOCK) {
        let range = first..images.len().min(first + BLOCK);
        let results = for_each(range, options.workers, &count, &start, &|tools, index| {
            Ok(examine(tools, images, index, options.again))
        })?;
        let mut examined = Vec::new();
        for (index, result) in (first..).zip(results) {
            match result {
                Examined::Known => report.known += 1,
                Examined::Seen(facts, checksum) => examined.push((index, facts, checksum)),
                Examined::Unsure(what) => {
                    unsure.insert(index, what);
                }
            }
        }
        if !examined.is_empty() {
            images.record(examined);
            report.notes = keep(images).into_iter().collect();
        }
    }
    report.bytes = count.bytes();

    for index in 0..images.len() {
        // Whatever was recorded before.
        if let Some(what) = unsure.remove(&index) {
            report.bad.push(Finding::of(images, index, what));
            continue;
        }
        match images.facts(index).map(|facts| &facts.verdict) {
            Some(Verdict::Good) => report.good += 1,
            Some(Verdict::Warned(what)) => report.warned.push(Finding::of(images, index, what)),
            Some(Verdict::Bad(what)) => report.bad.push(Finding::of(images, index, what)),
            None => {}
        }
    }
    Ok(report)
}

/// Looks at one image with a thread's decoder and buffers; also gives the bytes read.
fn examine(
    (decoder, file, pixels): &mut (Decoder, Vec<u8>, Pixels),
    images: &Images,
    index: usize,
    again: bool,
) -> (Examined, u64) {
    // A bad one may have been mended since.
    if images.facts(index).is_some() && !images.is_bad(index) && !again {
        return (Examined::Known, 0);
    }
    if let Err(error) = images.read_unchecked(index, file) {
        return (Examined::Unsure(error.to_string()), 0);
    }
    let (found, bytes) = (crc32c::crc32c(file), file.len() as u64);
    if let Some(expected) = images.checksum(index)
        && found != expected
        && (images.is_pack() || !again)
    {
        let what = format!("has checksum {found:08x}, and had {expected:08x}");
        return (Examined::Unsure(what), bytes);
    }
    let verdict = match decoder.decode(file, pixels) {
        Ok(decoded) => decoded.warning.map_or(Verdict::Good, Verdict::Warned),
        Err(error) => Verdict::Bad(error.to_string()),
    };
    let facts = Facts { header: decoder.header(file).ok(), verdict };
    match !again && images.facts(index) == Some(&facts) {
        true => (Examined::Known, bytes),
        false => (Examined::Seen(facts, found), bytes),
    }
}
