//! Files that are larger than any image: named, and not read.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use vim_data::{
    DataConfig, EnvPaths, Images, PackOptions, VerifyOptions, open_images, pack, scan, verify,
};

use crate::trees::{config, unpacked};

const HUGE: u64 = 6 << 30;

/// A PNG, and zeros behind it, of which the disk has none.
fn sparse(path: &Path, before: &[u8]) -> File {
    let mut file = File::create(path).unwrap();
    file.write_all(before).unwrap();
    file.write_all(include_bytes!("../fixtures/pattern.png")).unwrap();
    file
}

/// The training images at `path`, the third of which is huge, are as they should be.
fn check(config: &DataConfig) {
    let begun = Instant::now();
    let mut images: Images = open_images(config, &EnvPaths::default()).unwrap().train;
    let scanned = scan(&images, 2, &|_| {}).unwrap();
    assert_eq!(scanned.kinds["PNG"], 1, "the start alone is read: {:?}", scanned.kinds);
    assert!(scanned.bytes >= HUGE);
    let report = verify(&mut images, VerifyOptions { workers: 2, again: false }, &|_| {}).unwrap();
    // The others are no images either.
    let huge = report.bad.iter().find(|bad| bad.name.ends_with("huge.png")).unwrap();
    assert!(huge.what.contains("larger than 256 MiB, the most that an image may have"), "{huge:?}");
    let target = tempfile::tempdir().unwrap();
    let error = pack(&images, &target.path().join("p"), PackOptions::default(), &|_| {}, &|| false);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("huge.png") && error.contains("256 MiB"), "{error}");
    // To read 6 GiB takes longer than a busy machine is late.
    assert!(begun.elapsed() < Duration::from_secs(120));
}

#[test]
fn one_in_a_class_is_named() {
    let root = unpacked();
    let path = root.path().join("train/n01/huge.png");
    sparse(&path, &[]).set_len(HUGE).unwrap();
    check(&config(root.path()));
}

#[test]
fn one_in_an_archive_is_named() {
    let root = unpacked();
    let path = root.path().join("some.tar");
    let mut header = tar::Header::new_gnu();
    header.set_path("n01/huge.png").unwrap();
    header.set_size(HUGE);
    header.set_cksum();
    let file = sparse(&path, header.as_bytes());
    // The end of the archive is zeros, too.
    file.set_len(512 + HUGE + 1024).unwrap();
    let val_path = Some(root.path().join("val"));
    for class in ["n02", "n03"] {
        fs::remove_dir_all(root.path().join("val").join(class)).unwrap();
    }
    check(&DataConfig { val_path, ..config(&path) });
}
