//! Packs: the same images in a few files.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use vim_data::{
    DataConfig, DataError, EnvPaths, Images, PackOptions, PackReport, Sources, open_images, pack,
    remove_abandoned,
};

use crate::trees::{check, config, open, published, refusal, train, unpacked, val};

fn sources(config: &DataConfig) -> Sources<Images> {
    open_images(config, &EnvPaths::default()).unwrap()
}

fn write(source: &Images, folder: &Path, options: PackOptions) -> PackReport {
    pack(source, folder, options, &|_| {}, &|| false).unwrap()
}

/// Small shards: a few images each.
const OPTIONS: PackOptions = PackOptions { shard_bytes: 6_000, shuffle: None };

/// Packs both parts into `folder/train` and `folder/val`.
fn pack_both(from: &DataConfig, folder: &Path, options: PackOptions) -> PackReport {
    let Sources { train, val, .. } = sources(from);
    write(&val.unwrap(), &folder.join("val"), options);
    write(&train, &folder.join("train"), options)
}

#[test]
fn a_pack_reads_like_its_source() {
    let (folders, archives) = (unpacked(), published());
    let list = Some(archives.path().join("val.txt"));
    let archives = DataConfig { val_labels: list, ..config(archives.path()) };
    let shuffled = PackOptions { shuffle: Some(3), ..OPTIONS };
    let expected = check(&config(folders.path())).train.dataset().fingerprint();
    for from in [&config(folders.path()), &archives] {
        for options in [OPTIONS, shuffled, PackOptions::default()] {
            let target = tempfile::tempdir().unwrap();
            let report = pack_both(from, target.path(), options);
            let splits = check(&config(target.path()));
            assert_eq!(splits.train.dataset().fingerprint(), expected);
            assert_eq!(report.fingerprint, expected);
            assert_eq!(report.images, 12);
            // Packs that are there stay readable: another version would need them all made again.
            let index = fs::read(target.path().join("train/pack.index")).unwrap();
            assert_eq!(index[8..12], 1_u32.to_le_bytes());
            let bytes: u64 = report.shards.iter().map(|shard| shard.bytes).sum();
            assert!((options == PackOptions::default()) == (report.shards.len() == 1));
            // 1024 bytes end every shard.
            assert!(report.shards.iter().all(|shard| shard.bytes <= options.shard_bytes + 1024));
            assert!(bytes > train().iter().map(|(_, _, image)| image.len() as u64).sum());
        }
    }
}

#[test]
fn a_pack_of_a_pack_is_the_same_pack() {
    let root = unpacked();
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    pack_both(&config(root.path()), first.path(), OPTIONS);
    pack_both(&config(first.path()), second.path(), OPTIONS);
    for part in ["train", "val"] {
        let content = |folder: &Path| -> Vec<(std::ffi::OsString, Vec<u8>)> {
            let entries = fs::read_dir(folder.join(part)).unwrap().map(Result::unwrap);
            let mut files: Vec<_> =
                entries.map(|file| (file.file_name(), fs::read(file.path()).unwrap())).collect();
            files.sort();
            files
        };
        let (a, b) = (content(first.path()), content(second.path()));
        assert!(a.len() >= 4 && a == b, "{part}");
    }
}

/// Read by the `tar` crate from front to back, as other programs do.
#[test]
fn shards_follow_webdatasets_convention() {
    let root = unpacked();
    let target = tempfile::tempdir().unwrap();
    let report = pack_both(&config(root.path()), target.path(), OPTIONS);
    let mut seen = Vec::new();
    for shard in &report.shards {
        let path = target.path().join("train").join(&shard.name);
        assert_eq!(fs::metadata(&path).unwrap().len(), shard.bytes);
        let mut archive = tar::Archive::new(fs::File::open(path).unwrap());
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_str().unwrap().to_owned();
            assert_eq!((entry.header().mtime().unwrap(), entry.header().uid().unwrap()), (0, 0));
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            seen.push((name, bytes));
        }
    }
    let expected: Vec<_> = train()
        .into_iter()
        .enumerate()
        .flat_map(|(at, (class, _, bytes))| {
            let label = (class.as_bytes()[2] - b'1').to_string().into_bytes();
            [(format!("{at:08}.jpg"), bytes), (format!("{at:08}.cls"), label)]
        })
        .collect();
    assert!(seen == expected);

    // Without the index they are shards like any others.
    for part in ["train", "val"] {
        fs::remove_file(target.path().join(part).join("pack.index")).unwrap();
        let _ = fs::remove_file(target.path().join(format!(".{part}.vim-index")));
    }
    let splits = open(&config(target.path())).unwrap();
    assert_eq!((splits.train.len(), splits.test.len()), (train().len(), val().len()));
    assert_eq!(splits.train.class_names(), ["0", "1", "2"]);
}

#[test]
fn the_summary_says_what_is_there() {
    let root = unpacked();
    let target = tempfile::tempdir().unwrap();
    let report = pack_both(&config(root.path()), target.path(), OPTIONS);
    let text = fs::read_to_string(target.path().join("train/pack.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(summary, serde_json::to_value(&report).unwrap());
    assert_eq!(summary["classes"], serde_json::json!(["n01", "n02", "n03"]));
    assert_eq!(summary["shards"].as_array().unwrap().len(), report.shards.len());
}

#[test]
fn a_pack_is_whole_or_not_there() {
    let root = unpacked();
    let target = tempfile::tempdir().unwrap();
    let Sources { train, .. } = sources(&config(root.path()));
    let folder = target.path().join("deep/train");
    fs::remove_file(root.path().join("train/n03/n03_x.JPEG")).unwrap();
    let message = pack(&train, &folder, OPTIONS, &|_| {}, &|| false).unwrap_err().to_string();
    assert!(message.contains("n03_x.JPEG"), "{message}");
    assert!(!folder.exists());
    assert_eq!(fs::read_dir(folder.parent().unwrap()).unwrap().count(), 0, "nothing is left");

    fs::create_dir_all(&folder).unwrap();
    let message = pack(&train, &folder, OPTIONS, &|_| {}, &|| false).unwrap_err().to_string();
    assert!(message.contains("it is there already"), "{message}");
}

#[test]
fn a_pack_that_is_stopped_leaves_nothing() {
    let root = unpacked();
    let target = tempfile::tempdir().unwrap();
    let Sources { train, .. } = sources(&config(root.path()));
    for after in 0..20 {
        let asked = AtomicUsize::new(0);
        let is_stopped = || asked.fetch_add(1, Ordering::Relaxed) >= after;
        let stopped = pack(&train, &target.path().join("x"), OPTIONS, &|_| {}, &is_stopped);
        let message = stopped.unwrap_err().to_string();
        assert!(message.ends_with("interrupted; nothing is left of it"), "{message}");
        assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
    }
    write(&train, &target.path().join("x"), OPTIONS);
    assert!(!target.path().join("x/.lock").exists());
}

#[test]
fn what_no_process_writes_any_more_is_removed() {
    let target = tempfile::tempdir().unwrap();
    let at = |name: &str| target.path().join(name);
    let partial = |name: &str, has_lock: bool| {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("shard-000000.tar"), "bytes").unwrap();
        has_lock.then(|| File::create(at(name).join(".lock")).unwrap())
    };
    let held = partial(".train.partial-held", true).unwrap();
    held.lock().unwrap();
    drop(partial(".train.partial-left", true));
    drop(partial(".val.partial-others", true));
    // It may have been made just now, by a process that has yet to lock it.
    partial(".train.partial-new", false);
    partial(".train.partial-old", false);
    let before = std::time::SystemTime::now() - std::time::Duration::from_secs(48 * 3600);
    File::open(at(".train.partial-old")).unwrap().set_modified(before).unwrap();
    fs::create_dir(at("train.partial-mine")).unwrap();
    fs::write(at(".train.partial-file"), "mine").unwrap();

    let mut removed = remove_abandoned(&at("train")).unwrap();
    removed.sort();
    assert_eq!(removed, [at(".train.partial-left"), at(".train.partial-old")]);
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 5);
    assert!(removed.iter().all(|path| !path.exists()));
    drop(held);
    assert_eq!(remove_abandoned(&at("train")).unwrap(), [at(".train.partial-held")]);
    assert!(remove_abandoned(Path::new("/nowhere/train")).unwrap().is_empty());
}

#[test]
fn what_cannot_be_written_is_said() {
    let root = unpacked();
    let Sources { train, .. } = sources(&config(root.path()));
    let folder = Path::new("/proc/pack/train");
    let error = pack(&train, folder, OPTIONS, &|_| {}, &|| false).unwrap_err();
    assert!(matches!(error, DataError::Write { .. }), "{error}");
    assert!(error.to_string().starts_with("write `/proc/pack/train`: "), "{error}");
}

#[test]
fn damage_to_a_pack_is_found() {
    let root = unpacked();
    let target = tempfile::tempdir().unwrap();
    pack_both(&config(root.path()), target.path(), OPTIONS);
    let shard = target.path().join("train/shard-000000.tar");
    let whole = fs::read(&shard).unwrap();

    let mut flipped = whole.clone();
    flipped[512 + 20] ^= 1; // in the first image
    fs::write(&shard, &flipped).unwrap();
    let splits = open(&config(target.path())).unwrap();
    let message = splits.train.image(0).unwrap_err().to_string();
    assert!(message.contains("checksum") && message.contains("shard-000000.tar"), "{message}");
    assert!(splits.train.image(1).is_ok());

    fs::write(&shard, &whole[..whole.len() - 1]).unwrap();
    let message = refusal(&config(target.path()));
    assert!(message.contains("shard-000000.tar") && message.contains("copy it again"), "{message}");
    fs::remove_file(&shard).unwrap();
    assert!(refusal(&config(target.path())).contains("shard-000000.tar"));

    fs::write(target.path().join("train/pack.index"), "no index").unwrap();
    assert!(refusal(&config(target.path())).contains("it is damaged"));
}

#[test]
fn progress_counts_every_image() {
    let root = unpacked();
    let target = tempfile::tempdir().unwrap();
    let Sources { train, .. } = sources(&config(root.path()));
    let seen = Mutex::new(vec![]);
    let watch = |progress: vim_data::Progress| {
        seen.lock().unwrap().push((progress.images, progress.total));
    };
    pack(&train, &target.path().join("x"), OPTIONS, &watch, &|| false).unwrap();
    assert_eq!(seen.into_inner().unwrap(), Vec::from_iter((1..=12).map(|images| (images, 12))));
}
