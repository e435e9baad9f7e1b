//! Zips that are damaged, lie, or are written in other ways.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use vim_data::{EnvPaths, Loader, Pairs, Sources, VerifyReport, open_pairs, scan, verify_pairs};

use crate::pairs::{epoch, laid_out, of_path, open, pairs, training};

/// The pairs in a zip, whose bytes `change` has altered.
fn altered(change: impl FnOnce(&mut Vec<u8>)) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let [_, _, zip] = laid_out(root.path());
    let mut bytes = fs::read(&zip).unwrap();
    change(&mut bytes);
    fs::write(&zip, bytes).unwrap();
    (root, zip)
}

/// Where an entry's header is in the central directory.
fn central(zip: &[u8], name: &str) -> usize {
    let named = |&at: &usize| zip[at + 46..].starts_with(name.as_bytes());
    memchr::memmem::find_iter(zip, b"PK\x01\x02").find(named).unwrap()
}

/// Where an entry's own header is.
fn local(zip: &[u8], name: &str) -> usize {
    let named = |&at: &usize| zip[at + 30..].starts_with(name.as_bytes());
    memchr::memmem::find_iter(zip, b"PK\x03\x04").find(named).unwrap()
}

const IMAGE: &str = "ADEChallengeData2016/images/training/ADE_train_00000003.png";
const MAP: &str = "ADEChallengeData2016/annotations/training/ADE_train_00000003.png";

fn sources(path: &Path) -> Sources<Pairs> {
    open_pairs(&of_path(path), &EnvPaths::default()).unwrap()
}

fn verified(path: &Path) -> VerifyReport {
    verify_pairs(&sources(path).train, 2, &|_| {}).unwrap()
}

#[test]
fn a_flipped_bit_is_found_and_the_entry_replaced_at_once() {
    for name in [IMAGE, MAP] {
        let (_root, zip) = altered(|bytes| {
            // In the first bytes of the content, behind a PNG's chunk of sizes.
            let at = local(bytes, name) + 30 + name.len() + 50;
            bytes[at] ^= 0x08;
        });
        let report = verified(&zip);
        assert_eq!((report.good, report.bad.len(), report.bad[0].index), (23, 1, 2), "{name}");
        let what = &report.bad[0].what;
        assert!(what.contains("a damaged zip entry: "), "{what}");
        assert!(what.contains(name), "{what}");

        let begun = Instant::now();
        let loader = Loader::new(open(&zip).unwrap().train, training(2)).unwrap();
        let mut batches = loader.batches(0..12);
        batches.by_ref().for_each(|batch| assert!(!batch.unwrap().indices.contains(&2)));
        assert!(!batches.take_bad().is_empty());
        assert!(begun.elapsed() < Duration::from_secs(60), "it was waited for");
    }
}

#[test]
fn what_the_directory_says_is_compared_with_what_is_there() {
    for name in [IMAGE, MAP] {
        for (at, by) in [(16, 1), (24, 1), (24, -1_i32), (20, -1)] {
            let (_root, zip) = altered(|bytes| {
                let at = central(bytes, name) + at;
                let word = u32::from_le_bytes(*bytes[at..].first_chunk().unwrap());
                bytes[at..at + 4].copy_from_slice(&word.wrapping_add_signed(by).to_le_bytes());
            });
            let report = verified(&zip);
            assert_eq!((report.good, report.bad.len()), (23, 1), "{name} {at} {by}");
        }
    }
}

#[test]
fn lengths_that_cannot_be_are_not_believed() {
    // Of what is stored: it would end behind the file.
    let (_root, zip) = altered(|bytes| {
        let at = central(bytes, IMAGE) + 20;
        bytes[at..at + 4].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
    });
    let error = open(&zip).unwrap_err().to_string();
    assert!(error.contains("ade.zip") && error.contains("it ends inside `"), "{error}");
    assert!(error.contains("ADE_train_00000003"), "{error}");

    // Of the content: no image is so large, and one such is a bad image.
    let (_root, zip) = altered(|bytes| {
        let at = central(bytes, MAP) + 24;
        bytes[at..at + 4].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
    });
    let begun = Instant::now();
    let report = verified(&zip);
    assert_eq!((report.good, report.bad.len()), (23, 1));
    let what = &report.bad[0].what;
    assert!(what.contains("larger than 256 MiB, the most that an image may have"), "{what}");
    assert!(begun.elapsed() < Duration::from_secs(60));
    let train = sources(&zip).train;
    let maps = train.label_map_files();
    assert_eq!(maps.bytes(2), Some(0x7fff_ffff));
    let scanned = scan(maps, 1, &|_| {}).unwrap();
    assert_eq!((scanned.kinds["grey PNG"], scanned.odd.len()), (23, 1));
    let what = &scanned.odd[0].what;
    assert!(what.contains("of the 2147483647 bytes that it should have"), "{what}");
}

#[test]
fn two_entries_of_one_name_are_an_error() {
    let [one, other] = ["images/training/ADE_train_00000003", "images/training/ADE_train_00000004"];
    let (_root, zip) = altered(|bytes| {
        let places: Vec<usize> = memchr::memmem::find_iter(bytes, other).collect();
        assert_eq!(places.len(), 2);
        places.into_iter().for_each(|at| bytes[at..][..one.len()].copy_from_slice(one.as_bytes()));
    });
    let error = open(&zip).unwrap_err().to_string();
    assert!(error.contains(IMAGE) && error.contains("the archive holds it twice"), "{error}");
}

#[test]
fn names_with_backslashes_are_paths() {
    let (root, zip) = altered(|bytes| {
        let files: Vec<usize> = memchr::memmem::find_iter(bytes, "ADEChallenge").collect();
        for at in files {
            let name = &mut bytes[at..][..IMAGE.len() + 10];
            let end = name.iter().position(|&byte| byte == b'.').unwrap();
            let slashes = name[..end].iter_mut().filter(|byte| **byte == b'/');
            slashes.for_each(|byte| *byte = b'\\');
        }
    });
    let folder = open(&root.path().join("tree")).unwrap();
    let splits = open(&zip).unwrap();
    assert_eq!(splits.train.dataset().fingerprint(), folder.train.dataset().fingerprint());
    assert_eq!(pairs(&splits.train), pairs(&folder.train));
    assert_eq!(epoch(&splits.train, training(2)), epoch(&folder.train, training(1)));
    let name = splits.train.dataset().name(2);
    assert!(name.ends_with(&format!("ade.zip:{IMAGE}")), "{name}");
}
