//! CIFAR from files that are missing, damaged or something else: an error that says so, never a
//! panic.

use std::{fs, path::Path};

use vim_data::{DataConfig, DataError, DatasetKind};

use crate::fixture::{archive, archives, binary_folder, open, unpack};

fn refusal(kind: DatasetKind, path: &Path) -> DataError {
    open(kind, path).expect_err("the data are bad")
}

#[test]
fn path_is_needed_and_must_exist() {
    let config = DataConfig { dataset: DatasetKind::Cifar100, ..DataConfig::default() };
    let error = vim_data::open(&config, 0).unwrap_err();
    assert!(matches!(error, DataError::MissingPath { dataset: "cifar100" }));
    assert!(error.to_string().contains("`data.path` is not set"), "{error}");

    let error = refusal(DatasetKind::Cifar100, Path::new("/nowhere/cifar-100-binary.tar.gz"));
    assert!(matches!(error, DataError::Io { .. }));
    assert!(error.to_string().contains("/nowhere/cifar-100-binary.tar.gz"), "{error}");
}

#[test]
fn folder_without_the_files_says_what_would_do() {
    let folder = tempfile::tempdir().unwrap();
    let error = refusal(DatasetKind::Cifar100, folder.path());
    assert!(matches!(error, DataError::NotFound { .. }));
    assert!(error.to_string().contains("`cifar-100-python.tar.gz`"), "{error}");
}

#[test]
fn file_that_is_no_archive_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in [("empty", vec![]), ("text", b"<html>".repeat(200))] {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let error = refusal(DatasetKind::Cifar100, &path);
        assert!(matches!(&error, DataError::NotAnArchive(at) if *at == path), "{error}");
    }
}

#[test]
fn the_other_dataset_is_recognised() {
    for format in ["binary", "python"] {
        let packed = archive("cifar10", format);
        let error = refusal(DatasetKind::Cifar100, &packed);
        assert!(matches!(error, DataError::WrongDataset { found: "cifar10", .. }));
        assert!(error.to_string().contains("set `data.dataset = \"cifar10\"`"), "{error}");

        let folder = tempfile::tempdir().unwrap();
        unpack(&archive("cifar100", format), folder.path());
        let error = refusal(DatasetKind::Cifar10, folder.path());
        assert!(matches!(error, DataError::WrongDataset { found: "cifar100", .. }));
    }
    // A folder that holds both is no error.
    assert!(open(DatasetKind::Cifar10, archives()).is_ok());
}

#[test]
fn archive_cut_anywhere_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["binary", "python"] {
        let whole = fs::read(archive("cifar100", format)).unwrap();
        let path = folder.path().join("cut.tar.gz");
        let lengths = (2..whole.len()).step_by(whole.len() / 23).chain([whole.len() - 1]);
        for length in lengths {
            fs::write(&path, &whole[..length]).unwrap();
            let error = refusal(DatasetKind::Cifar100, &path);
            assert!(matches!(error, DataError::Archive { .. }), "{length}: {error}");
        }
        assert!(refusal(DatasetKind::Cifar100, &path).to_string().contains("cut short or damaged"));
    }
}

#[test]
fn changed_byte_fails_the_checksum() {
    let mut bytes = fs::read(archive("cifar100", "binary")).unwrap();
    let last = bytes.len();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.tar.gz");
    for at in [last / 3, last / 2, last - 6] {
        bytes[at] ^= 0x10;
        fs::write(&path, &bytes).unwrap();
        assert!(matches!(refusal(DatasetKind::Cifar100, &path), DataError::Archive { .. }), "{at}");
        bytes[at] ^= 0x10;
    }
}

#[test]
fn plain_tar_cut_inside_a_member_is_an_error() {
    let unpacked = binary_folder(&[(0, 1, 2); 4], &[(0, 1, 2); 4]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cifar-100-binary.tar");
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_dir_all("cifar-100-binary", unpacked.path()).unwrap();
    let bytes = tar.into_inner().unwrap();
    fs::write(&path, &bytes).unwrap();
    assert!(open(DatasetKind::Cifar100, &path).is_ok(), "the whole one is read");
    fs::write(&path, &bytes[..bytes.len() / 2 + 5000]).unwrap();
    assert!(matches!(refusal(DatasetKind::Cifar100, &path), DataError::Archive { .. }));
}

#[test]
fn missing_file_is_named() {
    let folder = binary_folder(&[(0, 1, 2)], &[(0, 1, 2)]);
    fs::remove_file(folder.path().join("test.bin")).unwrap();
    let error = refusal(DatasetKind::Cifar100, folder.path());
    assert!(matches!(&error, DataError::MissingMember { member, .. } if member == "test.bin"));
}

#[test]
fn partial_record_is_an_error() {
    let folder = binary_folder(&[(0, 1, 2); 3], &[(0, 1, 2)]);
    let train = folder.path().join("train.bin");
    let bytes = fs::read(&train).unwrap();
    for length in [0, 1, 3073, 3 * 3074 - 1] {
        fs::write(&train, &bytes[..length]).unwrap();
        let error = refusal(DatasetKind::Cifar100, folder.path());
        assert!(matches!(error, DataError::RecordSize { record: 3074, .. }), "{length}: {error}");
        assert!(error.to_string().contains("train.bin"), "{error}");
    }
}

#[test]
fn label_out_of_range_is_placed() {
    let folder = binary_folder(&[(0, 1, 2)], &[(0, 99, 2), (0, 100, 2)]);
    let error = refusal(DatasetKind::Cifar100, folder.path());
    assert!(matches!(
        &error,
        DataError::LabelOutOfRange { file, index: 1, label: 100, classes: 100 }
            if file.path.ends_with("test.bin")
    ));
}

#[test]
fn pickle_cut_or_changed_is_an_error_or_the_same_shape() {
    let folder = tempfile::tempdir().unwrap();
    unpack(&archive("cifar100", "python"), folder.path());
    let train = folder.path().join("cifar-100-python/train");
    let whole = fs::read(&train).unwrap();
    let cuts = (0..3000).step_by(37).chain((3000..whole.len()).step_by(whole.len() / 10));
    for length in cuts {
        fs::write(&train, &whole[..length]).unwrap();
        let error = refusal(DatasetKind::Cifar100, folder.path());
        assert!(matches!(error, DataError::Pickle { .. }), "{length}: {error}");
    }
    // Any one byte of the structure changed: refused, or still 230 images; never a panic.
    let mut refused = 0;
    for at in (0..whole.len().min(16_000)).step_by(61) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x15;
        fs::write(&train, &bytes).unwrap();
        match open(DatasetKind::Cifar100, folder.path()) {
            Ok(splits) => assert_eq!(splits.train.len(), 230),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn pickle_of_something_else_names_the_key() {
    let folder = tempfile::tempdir().unwrap();
    unpack(&archive("cifar10", "python"), folder.path());
    let cifar10 = fs::read(folder.path().join("cifar-10-batches-py/test_batch")).unwrap();
    for (bytes, key) in [(cifar10, "fine_labels"), (b"\x80\x02]q\x00.".to_vec(), "data")] {
        let fake = tempfile::tempdir().unwrap();
        for name in ["train", "test"] {
            fs::write(fake.path().join(name), &bytes).unwrap();
        }
        let error = refusal(DatasetKind::Cifar100, fake.path());
        assert!(
            matches!(&error, DataError::PickleContent { key: at, .. } if *at == key),
            "{key}: {error}"
        );
    }
}
