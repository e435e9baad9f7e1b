//! Decoding everything once, and remembering how it went.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Serialize;

use crate::dataset::Dataset;
use crate::decode::{DecodeLimits, Decoder};
use crate::error::DataError;
use crate::pixels::Pixels;
use crate::progress::Watch;
use crate::storage::images::Images;
use crate::storage::index::{Facts, Verdict};

use super::Finding;
use super::workers::{Count, over};

/// Images whose verdicts are kept at a time: an interruption loses no more.
const BLOCK: usize = 1 << 16;

/// How images are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyOptions {
    /// Threads, ≥ 1.
    pub workers: usize,
    /// Whether images are looked at that have been before, and files that have changed since are taken as
    /// they are now. A pack's checksums are its own and stay.
    pub again: bool,
}

/// How verification went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// The folder or archive.
    pub path: PathBuf,
    /// Number of images.
    pub images: usize,
    /// Those that an earlier verification had looked at, and this one has not.
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
enum Look {
    /// Known from before.
    Known,
    /// Decoded or not, and the checksum of the file.
    Seen(Facts, u32),
    /// Not read, or not what it was: nothing to be remembered.
    Unsure(String),
}

/// Decodes every image whole, and keeps sizes, verdicts and checksums with the index.
///
/// From then on a loader knows the bad ones and the sizes beforehand, and reading compares the checksums.
/// An interrupted verification goes on where it was.
///
/// # Errors
/// If the index cannot be kept. Bad images are findings.
pub fn verify(
    images: &mut Images,
    options: VerifyOptions,
    watch: Watch<'_>,
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
    let count = Count::new(images.len(), watch);
    let mut unsure = BTreeMap::new();
    for first in (0..images.len()).step_by(BLOCK) {
        let range = first..images.len().min(first + BLOCK);
        let looks = over(range, options.workers, &count, &Examiner::new, &|examiner, index| {
            examiner.look(images, index, options.again)
        })?;
        let mut learnt = Vec::new();
        for (index, look) in (first..).zip(looks) {
            match look {
                Look::Known => report.known += 1,
                Look::Seen(facts, checksum) => learnt.push((index, facts, checksum)),
                Look::Unsure(what) => {
                    unsure.insert(index, what);
                }
            }
        }
        if !learnt.is_empty() {
            images.learn(learnt)?;
        }
    }
    report.bytes = count.bytes();

    for index in 0..images.len() {
        // Whatever it was before.
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

    fn look(
        &mut self,
        images: &Images,
        index: usize,
        again: bool,
    ) -> Result<(Look, u64), DataError> {
        if images.facts(index).is_some() && !again {
            return Ok((Look::Known, 0));
        }
        if let Err(error) = images.read_unchecked(index, &mut self.file) {
            return Ok((Look::Unsure(error.to_string()), 0));
        }
        let found = crc32c::crc32c(&self.file);
        let bytes = self.file.len() as u64;
        if let Some(expected) = images.checksum(index)
            && found != expected
            && (images.is_pack() || !again)
        {
            let what = format!("has checksum {found:08x}, and had {expected:08x}");
            return Ok((Look::Unsure(what), bytes));
        }
        let verdict = match self.decoder.decode(&self.file, &mut self.pixels) {
            Ok(decoded) => decoded.warning.map_or(Verdict::Good, Verdict::Warned),
            Err(error) => Verdict::Bad(error.to_string()),
        };
        let header = self.decoder.header(&self.file).ok();
        Ok((Look::Seen(Facts { header, verdict }, found), bytes))
    }
}
