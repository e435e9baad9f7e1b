//! Archives read in place: kinds, labels, damage.

use std::path::PathBuf;
use std::{fs, thread};

use tempfile::TempDir;
use vim_data::{DataConfig, DatasetKind};

use crate::trees::{
    Image, check, config, content, flat_tar, nested_tar, open, published, refusal, tar_of, train,
    unpacked, val,
};

/// The configuration of [`published`].
fn of_published(root: &TempDir) -> DataConfig {
    DataConfig { val_labels: Some(root.path().join("val.txt")), ..config(root.path()) }
}

/// Files as `prefix/class/name`.
fn with_classes(prefix: &str, images: &[Image]) -> Vec<(String, Vec<u8>)> {
    let path = |(class, name, bytes): &Image| (format!("{prefix}{class}/{name}"), bytes.clone());
    images.iter().map(path).collect()
}

/// A folder with `train.tar`, and the unpacked validation images.
fn train_tar(bytes: &[u8]) -> (TempDir, DataConfig) {
    let root = unpacked();
    let path = root.path().join("some.tar");
    fs::write(&path, bytes).unwrap();
    let val_path = Some(root.path().join("val"));
    (root, DataConfig { val_path, ..config(path) })
}

#[test]
fn archives_as_published_read_like_the_unpacked_folders() {
    let root = published();
    let archives = check(&of_published(&root));
    let folders = open(&config(unpacked().path())).unwrap();
    for (archive, folder) in [(&archives.train, &folders.train), (&archives.test, &folders.test)] {
        assert_eq!(archive.dataset().fingerprint(), folder.dataset().fingerprint());
    }
    // The archive alone: the other one lies beside it.
    let path = Some(root.path().join("ILSVRC2012_img_train.tar"));
    let alone = DataConfig { path, dataset: DatasetKind::Imagenet, ..of_published(&root) };
    let splits = check(&alone);
    let name = splits.train.dataset().name(0);
    assert!(name.ends_with("ILSVRC2012_img_train.tar:n01.tar/n01_1.JPEG"), "{name}");
}

#[test]
fn folders_of_classes_in_an_archive_are_read() {
    for prefix in ["", "./", "imagenet/train/"] {
        let mut files = with_classes(prefix, &train());
        files.reverse();
        files.insert(3, (format!("{prefix}readme.txt"), b"text".to_vec()));
        files.insert(4, (format!("{prefix}n01/._n01_1.JPEG"), b"macOS".to_vec()));
        let splits = check(&train_tar(&tar_of(&files)).1);
        assert!(splits.notes[0].contains("readme.txt"), "{:?}", splits.notes);
    }
}

#[test]
fn an_archive_for_each_class_is_read() {
    let root = unpacked();
    let folder = root.path().join("train");
    for class in ["n01", "n02", "n03"] {
        let of_class: Vec<Image> = train().into_iter().filter(|one| one.0 == class).collect();
        fs::remove_dir_all(folder.join(class)).unwrap();
        fs::write(folder.join(format!("{class}.tar")), flat_tar(&of_class)).unwrap();
    }
    check(&config(root.path()));
}

#[test]
fn webdataset_shards_are_read_by_their_numbers() {
    let root = tempfile::tempdir().unwrap();
    let shards = |part: &str, images: &[Image]| {
        for (number, half) in images.chunks(5).enumerate() {
            let files: Vec<_> = half
                .iter()
                .flat_map(|(class, name, bytes)| {
                    let key = name.replace(".JPEG", "");
                    let number = ["n01", "n02", "n03"].iter().position(|other| other == class);
                    // As some editors save text.
                    let mark = if key.ends_with("_1") { "\u{feff}" } else { "" };
                    let label = format!("{mark}{}\n", number.unwrap()).into_bytes();
                    [
                        (format!("{key}.cls"), label),
                        (format!("{key}.jpg"), bytes.clone()),
                        (format!("{key}.json"), b"{}".to_vec()),
                    ]
                })
                .collect();
            let name = format!("imagenet1k-{part}-{number:04}.tar");
            fs::write(root.path().join(name), tar_of(&files)).unwrap();
        }
    };
    shards("train", &train());
    shards("validation", &val());
    let splits = open(&config(root.path())).unwrap();
    let expected = |images: Vec<Image>| -> Vec<Image> {
        let number = |class: &str| (class.bytes().last().unwrap() - b'1').to_string();
        images
            .into_iter()
            .map(|(class, name, bytes)| (number(&class), name.replace(".JPEG", ".jpg"), bytes))
            .collect()
    };
    assert!(content(&splits.train) == expected(train()));
    assert!(content(&splits.test) == expected(val()));

    for class in [Some("-1"), Some("dog"), Some(""), None] {
        let shown = if class.is_some() { "`lone.cls`" } else { "`lone.jpg`" };
        let image = ("lone.jpg".to_owned(), b"x".to_vec());
        let class_file = class.map(|class| ("lone.cls".to_owned(), class.as_bytes().to_vec()));
        let files: Vec<_> = std::iter::once(image).chain(class_file).collect();
        fs::write(root.path().join("imagenet1k-train-0009.tar"), tar_of(&files)).unwrap();
        let message = refusal(&config(root.path()));
        assert!(message.contains(shown), "{class:?}: {message}");
    }
}

#[test]
fn long_names_of_gnu_and_pax_are_read() {
    let long = format!("{}/", "d".repeat(90)).repeat(2);
    let mut files = with_classes(&long, &train());
    check(&train_tar(&tar_of(&files)).1); // the `tar` crate writes GNU's

    let mut pax = tar::Builder::new(Vec::new());
    for (name, bytes) in files.drain(..) {
        pax.append_pax_extensions([("path", name.as_bytes())]).unwrap();
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_path("short").unwrap();
        header.set_cksum();
        pax.append(&header, bytes.as_slice()).unwrap();
    }
    check(&train_tar(&pax.into_inner().unwrap()).1);
}

#[test]
fn what_cannot_be_read_in_place_is_named() {
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    };
    let nested = nested_tar(&train());
    let inner = tar_of(&[("n01.tar.gz".to_owned(), gzip(&nested))]);
    let named_tar = tar_of(&[("n01.tar".to_owned(), gzip(&nested))]);
    let deep = tar_of(&[("a.tar".to_owned(), nested.clone())]);
    let both = [with_classes("train/", &train()), with_classes("val/", &val())].concat();
    let twice = [train(), train()].concat();
    for (bytes, expected) in [
        (gzip(&nested), "compressed by gzip"),
        (inner, "(member `n01.tar.gz`) in place: it is compressed by gzip"),
        (named_tar, "(member `n01.tar`)"),
        (deep, "archive in an archive in an archive"),
        (tar_of(&both), "both `train/` and `val/` hold images"),
        (tar_of(&with_classes("", &twice)), "holds it twice"),
        (flat_tar(&train()), "set `data.val_labels`"),
        (tar_of(&[]), "there is none of a kind that is read"),
        (vec![], "cut short or damaged"),
        (b"not a tar".repeat(200), "cut short or damaged"),
    ] {
        let message = refusal(&train_tar(&bytes).1);
        assert!(message.contains(expected), "{expected}: {message}");
        assert!(!message.contains('\n'), "{message}");
    }
    for (kind, expected) in [
        (tar::EntryType::Link, "it is a link"),
        (tar::EntryType::Symlink, "it is a link"),
        (tar::EntryType::Fifo, "neither a file nor a folder"),
    ] {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(0);
        tar.append_link(&mut header, "n01/x.JPEG", "n01/y.JPEG").unwrap();
        let message = refusal(&train_tar(&tar.into_inner().unwrap()).1);
        assert!(message.contains(expected) && message.contains("n01/x.JPEG"), "{message}");
    }
}

/// Cut anywhere before its end mark, an archive is refused by name; after it nothing is missing.
#[test]
fn an_archive_cut_anywhere_is_refused() {
    let classes = tar_of(&with_classes("", &train()));
    for (kind, whole) in [("nested", nested_tar(&train())), ("classes", classes)] {
        let marked = whole.len() - 512; // two blocks of zeros; one of them is enough
        let (root, config) = train_tar(&whole);
        check(&config);
        let path = root.path().join("some.tar");
        // Every place near a block's border, and some between.
        let near = |cut: &usize| matches!(cut % 512, 0 | 1 | 100 | 511);
        for cut in (0..whole.len()).filter(near) {
            fs::write(&path, &whole[..cut]).unwrap();
            match open(&config) {
                Ok(splits) => {
                    assert!(cut >= marked, "{kind} cut at {cut} of {} opens", whole.len());
                    assert!(content(&splits.train) == train());
                }
                Err(error) => {
                    let message = error.to_string();
                    assert!(cut < marked || cut % 512 != 0, "{kind} {cut}: {message}");
                    assert!(message.contains("some.tar"), "{kind} {cut}: {message}");
                    assert!(message.contains("download it again"), "{kind} {cut}: {message}");
                }
            }
        }
    }
}

#[test]
fn damaged_headers_are_refused() {
    let whole = nested_tar(&train());
    for at in [0, 156, 512, 512 + 156, 512 + 130] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x15;
        let message = refusal(&train_tar(&bytes).1);
        assert!(message.contains("some.tar"), "{at}: {message}");
    }
}

#[test]
fn threads_read_one_archive_without_disturbing_each_other() {
    let root = published();
    let splits = open(&of_published(&root)).unwrap();
    thread::scope(|scope| {
        for first in 0..8 {
            let (split, expected) = (&splits.train, train());
            scope.spawn(move || {
                for turn in 0..500 {
                    let at = (first + 5 * turn) % expected.len();
                    assert!(split.image(at).unwrap() == expected[at].2, "{at}");
                }
            });
        }
    });
}

/// More archives than are held open at a time.
#[test]
fn hundreds_of_shards_are_read() {
    let root = unpacked();
    let folder = root.path().join("shards");
    fs::create_dir(&folder).unwrap();
    let paths: Vec<PathBuf> = (0..300).map(|n| folder.join(format!("{n:03}.tar"))).collect();
    for (number, path) in paths.iter().enumerate() {
        let image = &train()[number % 12];
        let file = (format!("{}/{number:03}.jpg", image.0), image.2.clone());
        fs::write(path, tar_of(&[file])).unwrap();
    }
    let val_path = Some(root.path().join("val"));
    let splits = open(&DataConfig { val_path, ..config(&folder) }).unwrap();
    for _ in 0..2 {
        for (_, name, bytes) in content(&splits.train) {
            let number: usize = name[..3].parse().unwrap();
            assert!(bytes == train()[number % 12].2, "{name}");
        }
    }
}
