//! Reading the headers of files that nobody has looked at, and keeping what they say.

use super::each::{ProgressCounter, for_each};
use super::images::Images;
use crate::dataset::{Dataset, OnProgress};
use crate::decode::{DecodeLimits, Decoder, Head};
use crate::error::DataError;

/// Bytes of a file that are read first: nearly all headers are shorter.
pub(crate) const START: usize = 16 << 10;

/// The heads of files that are wanted.
pub(crate) struct Wanted<'a> {
    /// The files.
    pub(crate) images: &'a Images,
    /// Which of them.
    pub(crate) places: &'a [usize],
    /// Whether they are label maps: what is none is not kept.
    pub(crate) is_labels: bool,
}

impl Wanted<'_> {
    /// Whether such a file is what it is to be.
    fn fits(&self, head: &Head) -> bool {
        head.is_grey8 || !self.is_labels
    }
}

/// The heads of the places that are wanted of some files, `None` of those that cannot be used; and
/// what is odd, a line each.
pub(crate) type Heads = (Vec<Vec<Option<Head>>>, Vec<String>);

/// Looks at the heads of files: those that nobody has looked at, and those that cannot be used, are
/// read by `workers` threads, the others are known.
///
/// # Errors
/// If a decoder cannot be set up.
pub(crate) fn look(
    all: &[Wanted<'_>],
    workers: usize,
    watch: OnProgress<'_>,
) -> Result<Heads, DataError> {
    let unknown = |wanted: &Wanted<'_>| -> Vec<usize> {
        let known = wanted.images.known();
        let is_known = |place: usize| known.heads.get(place).is_some_and(Option::is_some);
        wanted.places.iter().copied().filter(|&place| !is_known(place)).collect()
    };
    let unknown: Vec<Vec<usize>> = all.iter().map(unknown).collect();
    let count = ProgressCounter::new(unknown.iter().map(Vec::len).sum(), watch);
    let start = || Ok((Decoder::new(DecodeLimits::default())?, Vec::new()));
    let (mut heads, mut notes) = (Vec::new(), Vec::new());
    for (wanted, unknown) in all.iter().zip(unknown) {
        let images = wanted.images;
        let found = for_each(0..unknown.len(), workers, &count, &start, &|(decoder, file), at| {
            // What cannot be read now is told by whoever reads it in earnest.
            let head = read_head(images, unknown[at], decoder, file);
            Ok((head.filter(|head| wanted.fits(head)), file.len() as u64))
        })?;
        if found.iter().any(Option::is_some) {
            let mut known = images.known();
            known.heads.resize(images.len(), None);
            unknown.iter().zip(found).for_each(|(&place, head)| known.heads[place] = head);
            drop(known);
            notes.extend(keep(images));
        }
        let known = images.known();
        let head = |&place: &usize| known.heads.get(place).copied().flatten();
        heads.push(wanted.places.iter().map(head).collect());
    }
    Ok((heads, notes))
}

/// The head of a file, read anew; `None` if it has none that is understood.
fn read_head(images: &Images, index: usize, decoder: &Decoder, file: &mut Vec<u8>) -> Option<Head> {
    let is_whole = images.read_start(index, START, file).ok()? <= file.len() as u64;
    decoder.head(file, is_whole).ok().or_else(|| {
        // A preview or a colour profile may precede what is sought.
        images.read_unchecked(index, file).ok().filter(|()| !is_whole)?;
        decoder.head(file, true).ok()
    })
}

/// Keeps what is known of files; a note if that fails.
pub(crate) fn keep(images: &Images) -> Option<String> {
    let (file, error) = images.keep_known().err()?;
    Some(format!(
        "what is known of the files in `{}` cannot be kept in `{}` ({error}), the next run reads \
         them again; set data.index_cache",
        images.root().display(),
        file.display()
    ))
}
