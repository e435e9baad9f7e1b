//! Looking into files that nobody has looked at, and keeping what they say: the heads of images,
//! and what label maps hold.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::each::{ProgressCounter, for_each};
use super::images::Images;
use crate::dataset::{Dataset, OnProgress};
use crate::decode::{DecodeLimits, Decoder, Head};
use crate::dense::LabelTally;
use crate::error::DataError;

/// Bytes of a file that are read first: nearly all headers are shorter.
pub(crate) const START: usize = 16 << 10;

/// What is seen of some files, `None` of those that cannot be used; and what is odd, a line each.
pub(crate) type Looked<T> = (Vec<Option<T>>, Vec<String>);

/// Looks at the heads of the files at `places`: those that nobody has looked at, files that have
/// changed since and those that cannot be used are read by `workers` threads, the others are known.
/// Images are made smaller in their place, which the listing of a folder does not show.
///
/// # Errors
/// If a decoder cannot be set up.
pub(crate) fn look(
    images: &Images,
    places: &[usize],
    workers: usize,
    watch: OnProgress<'_>,
) -> Result<Looked<Head>, DataError> {
    let mut heads = images.known().heads.clone();
    heads.resize(images.len(), None);
    let states: Vec<String> = places.par_iter().map(|&place| images.state(place)).collect();
    let mut unknown: Vec<(usize, String)> = places.iter().copied().zip(states).collect();
    unknown.retain(|(place, state)| heads[*place].as_ref().is_none_or(|(of, _)| of != state));
    let count = ProgressCounter::new(unknown.len(), watch);
    let start = || Ok((Decoder::new(DecodeLimits::default())?, Vec::new()));
    let found = for_each(0..unknown.len(), workers, &count, &start, &|(decoder, file), at| {
        // What cannot be read now is told by whoever reads it in earnest.
        Ok((read_head(images, unknown[at].0, decoder, file), file.len() as u64))
    })?;
    let mut is_new = false;
    for ((place, state), head) in unknown.into_iter().zip(found) {
        let head = head.map(|head| (state, head));
        is_new |= heads[place] != head;
        heads[place] = head;
    }
    let seen = places.iter().map(|&place| heads[place].as_ref().map(|&(_, head)| head)).collect();
    let mut notes = Vec::new();
    if is_new {
        images.known().heads = heads;
        notes.extend(keep(images));
    }
    Ok((seen, notes))
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

/// Counts the values of the label maps at `places`, whose colours stand for the values `by_colour`:
/// those that nobody has counted, and files that have changed since, are decoded by `workers`
/// threads. Label maps are mended in their place, which the listing of a folder does not show.
///
/// # Errors
/// If a decoder cannot be set up.
pub(crate) fn tally(
    maps: &Images,
    places: &[usize],
    by_colour: &BTreeMap<[u8; 3], u8>,
    workers: usize,
    watch: OnProgress<'_>,
) -> Result<Looked<LabelTally>, DataError> {
    let mut before = maps.known().tallies.clone();
    if maps.known().by_colour != *by_colour {
        before.clear();
    }
    before.resize(maps.len(), None);
    let count = ProgressCounter::new(places.len(), watch);
    let start = || Ok((Decoder::new(DecodeLimits::default())?, Vec::new(), Vec::new()));
    let found = for_each(0..places.len(), workers, &count, &start, &|(decoder, file, raw), at| {
        let (place, state) = (places[at], maps.state(places[at]));
        if before[place].as_ref().is_some_and(|(of, _)| *of == state) {
            return Ok((None, 0));
        }
        let read = maps.read_unchecked(place, file);
        let tally = read.ok().and_then(|()| {
            let size = decoder.decode_values(file, by_colour, raw).ok()?;
            let orientation = decoder.head(file, true).ok()?.orientation;
            Some((state, LabelTally::of(size, orientation, raw)))
        });
        Ok((Some(tally), file.len() as u64))
    })?;
    let mut is_new = false;
    for (&place, found) in places.iter().zip(found) {
        if let Some(tally) = found {
            is_new |= before[place] != tally;
            before[place] = tally;
        }
    }
    let seen = places.iter().map(|&place| Some(before[place].as_ref()?.1.clone())).collect();
    let mut notes = Vec::new();
    if is_new {
        let mut known = maps.known();
        (known.tallies, known.by_colour) = (before, by_colour.clone());
        drop(known);
        notes.extend(keep(maps));
    }
    Ok((seen, notes))
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
