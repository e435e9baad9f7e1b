//! Decodes all images once and records the results.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Serialize;

use super::Finding;
use super::parallel::{ProgressCounter, for_each};
use crate::dataset::Dataset;
use crate::decode::{DecodeLimits, Decoder};
use crate::error::DataError;
use crate::pixels::Pixels;
use crate::progress::OnProgress;
use crate::storage::images::Images;
use crate::storage::index::{Facts, Verdict};

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
/// If the index cannot be kept. Bad images are findings.
pub fn verify(
    images: &mut Images,
    options: VerifyOptions,
    watch: OnProgress<'_>,
) -> Result<VerifyReport, DataError> {
    let mut report = VerifyReport {
        path: images.root().to_owned(),
        images: images.len(),
        known: 0,
        good: 0,
        bytes: 0,
        warned: Vec::new(),
        bad: Vec::new(),
    };
    let count = ProgressCounter::new(images.len(), watch);
    let mut unsure = BTreeMap::new();
    for first in (0..images.len()).step_by(BLOCK) {
        let range = first..images.len().min(first + BLOCK);
        let results =
            for_each(range, options.workers, &count, &Examiner::new, &|examiner, index| {
                examiner.examine(images, index, options.again)
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
            images.record(examined)?;
        }
    }
    report.bytes = count.bytes();

    for index in 0..images.len() {
        // Whatever was recorded before.
        if let Some(what) = unsure.remove(&index) {
            report.bad.push(Finding::new(images, index, what));
            continue;
        }
        match images.facts(index).map(|facts| &facts.verdict) {
            Some(Verdict::Good) => report.good += 1,
            Some(Verdict::Warned(what)) => report.warned.push(Finding::new(images, index, what)),
            Some(Verdict::Bad(what)) => report.bad.push(Finding::new(images, index, what)),
            None => {}
        }
    }
    Ok(report)
}

/// A thread's decoder and buffers.
struct Examiner {
    decoder: Decoder,
    file: Vec<u8>,
    pixels: Pixels,
}

impl Examiner {
    fn new() -> Result<Self, DataError> {
        let decoder = Decoder::new(DecodeLimits::default())?;
        Ok(Self { decoder, file: Vec::new(), pixels: Pixels::default() })
    }

    fn examine(
        &mut self,
        images: &Images,
        index: usize,
        again: bool,
    ) -> Result<(Examined, u64), DataError> {
        if images.facts(index).is_some() && !again {
            return Ok((Examined::Known, 0));
        }
        if let Err(error) = images.read_unchecked(index, &mut self.file) {
            return Ok((Examined::Unsure(error.to_string()), 0));
        }
        let found = crc32c::crc32c(&self.file);
        let bytes = self.file.len() as u64;
        if let Some(expected) = images.checksum(index)
            && found != expected
            && (images.is_pack() || !again)
        {
            let what = format!("has checksum {found:08x}, and had {expected:08x}");
            return Ok((Examined::Unsure(what), bytes));
        }
        let verdict = match self.decoder.decode(&self.file, &mut self.pixels) {
            Ok(decoded) => decoded.warning.map_or(Verdict::Good, Verdict::Warned),
            Err(error) => Verdict::Bad(error.to_string()),
        };
        let header = self.decoder.header(&self.file).ok();
        Ok((Examined::Seen(Facts { header, verdict }, found), bytes))
    }
}
