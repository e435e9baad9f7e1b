//! Scanning and verifying real image files, good and bad.

use std::{fs, path::Path};

use tempfile::TempDir;
use vim_data::{
    DataConfig, Dataset, EnvPaths, Images, KnownImages, PackOptions, Sample, Verdict,
    VerifyOptions, VerifyReport, open_images, pack, scan, verify,
};

use crate::{golden, trees::config};

/// What is in both parts: name, class, and whether Pillow reads it.
const FILES: [(&str, &str, bool); 10] = [
    ("444.jpg", "a", true),
    ("cmyk.jpg", "a", true),
    ("half.jpg", "a", false),
    ("png.JPEG", "a", true),
    ("empty.jpg", "b", false),
    ("gray.jpg", "b", true),
    ("no_eoi.jpg", "b", false),
    ("progressive.jpg", "b", true),
    ("rgb16.png", "b", true),
    ("zeroed.jpg", "b", true),
];

fn odd() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for part in ["train", "val"] {
        for (name, class, _) in FILES {
            let folder = root.path().join(part).join(class);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(name), golden::bytes(&format!("odd/{name}"))).unwrap();
        }
    }
    root
}

fn images(path: &Path) -> Images {
    open_images(&config(path), &EnvPaths::default()).unwrap().train
}

/// Three threads, only what is new.
const OPTIONS: VerifyOptions = VerifyOptions { workers: 3, again: false };

fn check(images: &mut Images, options: VerifyOptions) -> VerifyReport {
    verify(images, options, &|_| {}).unwrap()
}

/// File names of findings.
fn names(findings: &[vim_data::Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.name.rsplit(['/', ':']).next().unwrap()).collect()
}

#[test]
fn a_scan_counts_what_the_headers_say() {
    let root = odd();
    let images = images(root.path());
    let report = scan(&images, 3, &|_| {}).unwrap();
    assert_eq!((report.images, report.classes), (10, 2));
    assert_eq!((report.smallest_class.class.as_str(), report.smallest_class.images), ("a", 4));
    assert_eq!((report.largest_class.class.as_str(), report.largest_class.images), ("b", 6));
    let length = |name| golden::bytes(&format!("odd/{name}")).len() as u64;
    assert_eq!(report.bytes, FILES.iter().map(|&(name, ..)| length(name)).sum::<u64>());
    let kinds = [
        ("CMYK JPEG", 1),
        ("JPEG", 4), // the cut ones have a header
        ("PNG", 2),
        ("grey JPEG", 1),
        ("progressive JPEG", 1),
        ("unreadable", 1),
    ];
    assert_eq!(report.kinds, kinds.map(|(kind, count)| (kind.to_owned(), count)).into());
    assert_eq!(names(&report.odd), ["cmyk.jpg", "png.JPEG", "empty.jpg"]);
    assert!(report.odd[1].what.contains("PNG") && report.odd[1].class == "a");
    assert!(report.height.unwrap().least >= 1);
    assert_eq!(report, scan(&images, 1, &|_| {}).unwrap(), "threads change nothing");
    assert!(serde_json::to_value(&report).unwrap()["fingerprint"].is_string());
}

#[test]
fn verification_finds_what_pillow_refuses() {
    let root = odd();
    let mut images = images(root.path());
    let report = check(&mut images, OPTIONS);
    let refused: Vec<&str> =
        FILES.iter().filter(|(.., reads)| !reads).map(|&(name, ..)| name).collect();
    assert_eq!(names(&report.bad), refused);
    assert_eq!(report.good + report.warned.len() + report.bad.len(), 10);
    for (index, (name, _, reads)) in FILES.iter().enumerate() {
        assert_eq!(images.file_name(index), *name);
        let facts = images.facts(index).unwrap();
        assert_eq!(!matches!(facts.verdict, Verdict::Bad(_)), *reads, "{name}: {facts:?}");
    }
}

#[test]
fn what_was_found_is_kept_and_not_sought_again() {
    let root = odd();
    let first = check(&mut images(root.path()), OPTIONS);
    assert_eq!((first.known, first.bytes > 0), (0, true));
    let mut again = images(root.path());
    assert!(again.facts(0).unwrap().header.is_some());
    let second = check(&mut again, OPTIONS);
    // Those that were bad may be good now.
    let bad = ["half.jpg", "empty.jpg", "no_eoi.jpg"];
    let length = |name| golden::bytes(&format!("odd/{name}")).len() as u64;
    assert_eq!((second.known, second.bytes), (10, bad.map(length).iter().sum()));
    assert_eq!((&second.bad, &second.warned, second.good), (&first.bad, &first.warned, first.good));
    let third = check(&mut again, VerifyOptions { again: true, ..OPTIONS });
    assert_eq!((third.known, third.bytes, third.bad), (0, first.bytes, first.bad));
}

#[test]
fn a_file_that_changes_in_place_is_noticed() {
    let root = odd();
    check(&mut images(root.path()), OPTIONS);
    let path = root.path().join("train/a/444.jpg");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&path, &bytes).unwrap();

    let mut changed = images(root.path());
    let message = changed.read(0, &mut Sample::default()).unwrap_err().to_string();
    assert!(message.contains("444.jpg") && message.contains("verify --again"), "{message}");
    check(&mut changed, VerifyOptions { again: true, ..OPTIONS });
    assert!(changed.read(0, &mut Sample::default()).is_ok());
    assert!(images(root.path()).read(0, &mut Sample::default()).is_ok());
}

#[test]
fn what_is_mended_in_place_is_good_again() {
    let root = odd();
    check(&mut images(root.path()), OPTIONS);
    let path = root.path().join("train/a/half.jpg");
    fs::write(&path, golden::bytes("odd/444.jpg")).unwrap();
    let mut mended = images(root.path());
    let known = KnownImages::of_all(&mended, "images", 2, &|_| {}).unwrap();
    assert_eq!(names(&known.bad), ["empty.jpg", "no_eoi.jpg"]);
    assert!(mended.read(2, &mut Sample::default()).is_ok());
    let report = check(&mut mended, OPTIONS);
    assert_eq!(names(&report.bad), ["empty.jpg", "no_eoi.jpg"]);
    assert_eq!(images(root.path()).facts(2).unwrap().verdict, Verdict::Good);
    // From now on it must stay as it is.
    fs::write(&path, golden::bytes("odd/gray.jpg")).unwrap();
    assert!(images(root.path()).read(2, &mut Sample::default()).is_err());
}

#[test]
fn findings_that_cannot_be_kept_are_told_all_the_same() {
    let root = odd();
    for name in [".train.vim-index", ".val.vim-index"] {
        fs::create_dir_all(root.path().join(name).join("x")).unwrap();
    }
    let report = check(&mut images(root.path()), OPTIONS);
    assert_eq!((report.bad.len(), report.notes.len()), (3, 1), "{:?}", report.notes);
    assert!(report.notes[0].contains("set data.index_cache"), "{:?}", report.notes);
}

#[test]
fn a_packs_own_checksums_stay() {
    let root = odd();
    let target = tempfile::tempdir().unwrap();
    let source = open_images(&config(root.path()), &EnvPaths::default()).unwrap();
    for (part, images) in [("train", &source.train), ("val", source.val.as_ref().unwrap())] {
        pack(images, &target.path().join(part), PackOptions::default(), &|_| {}, &|| false)
            .unwrap();
    }
    let again = VerifyOptions { again: true, ..OPTIONS };
    let whole = check(&mut images(target.path()), again);
    assert_eq!(whole.bad.len(), 3, "as in the source: {:?}", whole.bad);

    let shard = target.path().join("train/shard-000000.tar");
    let mut bytes = fs::read(&shard).unwrap();
    bytes[1024] ^= 1; // in the first image
    fs::write(&shard, bytes).unwrap();
    for _ in 0..2 {
        let report = check(&mut images(target.path()), again);
        assert_eq!(report.bad.len(), 4);
        assert!(report.bad[0].what.contains("checksum"), "{:?}", report.bad[0]);
    }
}

#[test]
fn facts_travel_with_a_pack() {
    let root = odd();
    let mut source = images(root.path());
    check(&mut source, OPTIONS);
    let target = tempfile::tempdir().unwrap();
    pack(&source, &target.path().join("train"), PackOptions::default(), &|_| {}, &|| false)
        .unwrap();
    let val_path = Some(root.path().join("val"));
    let config = DataConfig { val_path, ..config(target.path().join("train")) };
    let packed = open_images(&config, &EnvPaths::default()).unwrap().train;
    for index in 0..10 {
        assert_eq!(packed.facts(index), source.facts(index));
        assert!(packed.facts(index).is_some());
    }
}

#[test]
fn unreadable_files_end_a_scan_and_are_findings_of_verification() {
    let root = odd();
    let mut images = images(root.path());
    fs::remove_file(root.path().join("train/b/gray.jpg")).unwrap();
    let error = scan(&images, 2, &|_| {}).unwrap_err().to_string();
    assert!(error.contains("gray.jpg"), "{error}");
    let report = check(&mut images, OPTIONS);
    assert!(names(&report.bad).contains(&"gray.jpg"), "{:?}", report.bad);
    assert!(images.facts(5).is_none(), "it may come back");
}
