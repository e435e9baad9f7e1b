//! Counts, sizes and oddities, from the headers of all files.

use std::collections::{BTreeMap, HashSet};
use std::io::ErrorKind;
use std::path::PathBuf;

use serde::Serialize;

use super::Finding;
use super::known::{KnownImages, turned_note};
use super::labels::LabelCounts;
use crate::dataset::{Dataset, Fingerprint, OnProgress, Turned};
use crate::decode::{DecodeLimits, Decoder, Exif, Head, Header, ImageKind};
use crate::error::{DataError, SourceError};
use crate::storage::each::{ProgressCounter, for_each};
use crate::storage::heads::START;
use crate::storage::images::Images;

/// A summary of a part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScanReport {
    /// The folder or archive.
    pub path: PathBuf,
    /// Number of images.
    pub images: usize,
    /// Number of classes; 0 of files of label maps.
    pub classes: usize,
    /// Identifies the images, their order and their labels.
    pub fingerprint: Fingerprint,
    /// Bytes in all files.
    pub bytes: u64,
    /// The class with the fewest images, and its number of them.
    pub smallest_class: ClassCount,
    /// The class with the most.
    pub largest_class: ClassCount,
    /// Heights of the images whose header can be read.
    pub height: Option<Sides>,
    /// Their widths.
    pub width: Option<Sides>,
    /// Number of images by what they are: `JPEG`, `grey JPEG`, `progressive JPEG`, `PNG` and so on.
    pub kinds: BTreeMap<String, usize>,
    /// Files that are unreadable, have four channels, or have the extension of another format, and
    /// images that cannot be used with what belongs to them.
    pub odd: Vec<Finding>,
    /// What else is to be said of them, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What the label maps of images hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<LabelCounts>,
}

impl ScanReport {
    /// With what is known of the images: the bad ones are odd.
    pub(super) fn with(mut self, known: KnownImages) -> Self {
        let said = |odd: &Finding| (odd.name.clone(), odd.what.clone());
        let all: HashSet<_> = self.odd.iter().map(said).collect();
        let more = known.bad.into_iter().filter(|bad| !all.contains(&said(bad)));
        self.odd.extend(more);
        self.notes.extend(known.notes);
        self
    }
}

/// A class and its number of images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassCount {
    /// Its name.
    pub class: String,
    /// Images in it.
    pub images: usize,
}

/// Lengths of images' sides, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sides {
    /// The smallest.
    pub least: usize,
    /// The average.
    pub mean: f64,
    /// The largest.
    pub most: usize,
}

/// Reads the headers of all images, by `workers` threads; a note counts those with an EXIF
/// orientation.
///
/// # Errors
/// If a file is not there or cannot be read. One that is damaged or no image is a finding.
pub fn scan(
    images: &Images,
    workers: usize,
    watch: OnProgress<'_>,
) -> Result<ScanReport, DataError> {
    let all: Vec<usize> = (0..images.len()).collect();
    let (mut report, turned) = scan_places(images, &all, workers, watch)?;
    report.notes.extend(turned_note(images, &turned, "images", images.len()));
    Ok(report)
}

/// As [`scan`], of the images at `places` alone, and without the note: gives those that have an
/// EXIF orientation in its place.
pub(super) fn scan_places(
    images: &Images,
    places: &[usize],
    workers: usize,
    watch: OnProgress<'_>,
) -> Result<(ScanReport, BTreeMap<usize, Turned>), DataError> {
    let start = || Ok((Decoder::new(DecodeLimits::default())?, Vec::new()));
    let count = ProgressCounter::new(places.len(), watch);
    let heads = for_each(0..places.len(), workers, &count, &start, &|(decoder, file), at| {
        examine(decoder, file, images, places[at])
    })?;

    let mut report = ScanReport {
        path: images.root().to_owned(),
        images: places.len(),
        classes: images.num_classes(),
        fingerprint: images.fingerprint(),
        bytes: count.bytes(),
        smallest_class: extreme(images, std::cmp::Reverse),
        largest_class: extreme(images, |of_class| of_class),
        height: sides(heads.iter().flatten().map(|head| head.header.height)),
        width: sides(heads.iter().flatten().map(|head| head.header.width)),
        kinds: BTreeMap::new(),
        odd: Vec::new(),
        notes: Vec::new(),
        labels: None,
    };
    let mut turned = BTreeMap::new();
    for (&index, head) in places.iter().zip(&heads) {
        let (kind, odd) = match head {
            Ok(Head { header, orientation, .. }) => {
                let decided = match images.exif() {
                    Exif::Apply => Turned::Surely,
                    Exif::Ignore => Turned::AsStored,
                };
                turned.extend((*orientation != 1).then_some((index, decided)));
                (kind_of(header), oddity(header, images.file_name(index)))
            }
            Err(error) => ("unreadable".to_owned(), Some(error.clone())),
        };
        *report.kinds.entry(kind).or_default() += 1;
        if let Some(what) = odd {
            report.odd.push(Finding::of(images, index, what));
        }
    }
    Ok((report, turned))
}

/// The head of an image's file, or what is wrong with that, and its length.
fn examine(
    decoder: &Decoder,
    file: &mut Vec<u8>,
    images: &Images,
    index: usize,
) -> Result<(Result<Head, String>, u64), DataError> {
    // A damaged entry, or a file that is too large: it is there, and others can be read.
    let finding = |error: DataError| {
        if let DataError::Source(SourceError::Read { source, .. }) = &error
            && matches!(source.kind(), ErrorKind::InvalidData | ErrorKind::FileTooLarge)
        {
            return Ok(format!("cannot be read: failed to {error}"));
        }
        Err(error)
    };
    let length = match images.read_start(index, START, file) {
        Ok(length) => length,
        Err(error) => return Ok((Err(finding(error)?), 0)),
    };
    let mut head = decoder.head(file, length <= file.len() as u64);
    if head.is_err() && length > file.len() as u64 {
        // A preview or a colour profile may precede the header.
        if let Err(error) = images.read_unchecked(index, file) {
            return Ok((Err(finding(error)?), length));
        }
        head = decoder.head(file, true);
    }
    Ok((head.map_err(|error| error.to_string()), length))
}

/// The first class with the largest `key` of its number of images.
fn extreme<K: Ord>(images: &Images, key: impl Fn(usize) -> K) -> ClassCount {
    let mut counts = vec![0; images.num_classes()];
    for index in 0..images.len() {
        counts[images.label(index) as usize] += 1;
    }
    let best = (0..counts.len()).rev().max_by_key(|&label| key(counts[label])).unwrap_or(0);
    ClassCount { class: images.class_names()[best].clone(), images: counts[best] }
}

fn sides(lengths: impl Iterator<Item = usize> + Clone) -> Option<Sides> {
    let (least, most) = (lengths.clone().min()?, lengths.clone().max()?);
    let (sum, count) = lengths.fold((0, 0), |(sum, count), length| (sum + length, count + 1));
    Some(Sides { least, mean: sum as f64 / f64::from(count), most })
}

/// `grey progressive JPEG` and the like.
fn kind_of(header: &Header) -> String {
    let grey = if header.components == 1 { "grey " } else { "" };
    let progressive = if header.progressive { "progressive " } else { "" };
    let four = if is_cmyk(header) { "CMYK " } else { "" };
    format!("{grey}{four}{progressive}{}", header.kind)
}

fn is_cmyk(header: &Header) -> bool {
    header.kind == ImageKind::Jpeg && header.components == 4
}

/// The remark on an odd file.
fn oddity(header: &Header, name: &str) -> Option<String> {
    if is_cmyk(header) {
        return Some("is a JPEG of four channels (CMYK)".to_owned());
    }
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let fits =
        header.kind.extensions().iter().any(|fitting| extension.eq_ignore_ascii_case(fitting));
    (!fits).then(|| format!("is a {} by its content", header.kind))
}
