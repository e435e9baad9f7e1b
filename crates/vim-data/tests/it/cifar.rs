//! CIFAR from well-formed files, and from files that are missing, damaged or something else: an
//! error that says so, never a panic.

use std::{fs, path::Path, process::Command};

use vim_data::{
    Class, DataConfig, DataError, DatasetKind, Normalize, PUBLISHED_ARCHIVES, Statistics,
    known_archive,
};

use crate::fixture::{archive, archives, binary_folder, content, make_archive, open, unpack};

const KINDS: [(DatasetKind, &str, usize); 2] =
    [(DatasetKind::Cifar10, "cifar10", 10), (DatasetKind::Cifar100, "cifar100", 100)];

#[test]
fn binary_and_python_versions_agree() {
    for (kind, dataset, classes) in KINDS {
        let binary = open(kind, &archive(dataset, "binary")).unwrap();
        let python = open(kind, &archive(dataset, "python")).unwrap();
        assert_eq!((binary.train.len(), binary.test.len()), (230, 110));
        assert_eq!(binary.train.num_classes(), classes);
        assert!(binary.train.class_names().is_sorted_by(|a, b| a < b), "names of {dataset}");
        assert!(binary.val.is_none(), "the test set must not serve as validation set");
        let images = content(&binary);
        assert!(images == content(&python), "{dataset}");
        let distinct: std::collections::BTreeSet<_> =
            images.iter().map(|(_, pixels)| pixels).collect();
        assert_eq!(distinct.len(), 340, "every image is its own");
        assert_eq!(images.iter().map(|&(label, _)| label as usize).max(), Some(classes - 1));
    }
}

#[test]
fn planes_become_pixels_and_the_fine_label_counts() {
    let folder = binary_folder(&[(3, 42, 0)], &[(0, 99, 7)]);
    let mut record = vec![3, 42];
    record.extend((0..3072_u32).map(|at| (at % 251) as u8)); // 251 is prime: planes differ
    fs::write(folder.path().join("train.bin"), &record).unwrap();
    let splits = open(DatasetKind::Cifar100, folder.path()).unwrap();
    assert_eq!((splits.train.label(0), splits.test.label(0)), (42, 99));
    assert_eq!(splits.train.class_names()[42], "leopard");
    let pixels = splits.train.image(0).unwrap();
    for (y, x, channel) in [(0, 0, 0), (0, 1, 0), (1, 0, 1), (31, 31, 2), (17, 5, 1)] {
        let expected = ((channel * 1024 + y * 32 + x) % 251) as u8;
        assert_eq!(pixels[(y * 32 + x) * 3 + channel], expected, "({y}, {x}, {channel})");
    }
}

#[test]
fn packed_unpacked_and_enclosing_folders_read_the_same() {
    for (kind, dataset, _) in KINDS {
        for format in ["binary", "python"] {
            let packed = archive(dataset, format);
            let expected = content(&open(kind, &packed).unwrap());

            let root = tempfile::tempdir().unwrap();
            unpack(&packed, root.path());
            let inner = fs::read_dir(root.path()).unwrap().next().unwrap().unwrap().path();
            let plain = tempfile::tempdir().unwrap();
            let name = packed.file_name().unwrap().to_str().unwrap().replace(".gz", "");
            let mut tar = tar::Builder::new(fs::File::create(plain.path().join(&name)).unwrap());
            tar.append_dir_all("renamed", &inner).unwrap();
            tar.finish().unwrap();
            let holder = tempfile::tempdir().unwrap();
            fs::copy(&packed, holder.path().join(packed.file_name().unwrap())).unwrap();

            let tar_file = plain.path().join(&name);
            for path in [root.path(), &inner, &tar_file, plain.path(), holder.path()] {
                let got = content(&open(kind, path).unwrap());
                assert!(got == expected, "{dataset} {format} {}", path.display());
            }
        }
    }
}

/// Python 3 encodes bytes otherwise, differently in each protocol. The classes are stand-ins of the
/// same names as numpy's, so that numpy itself is not needed.
#[test]
fn pickles_written_by_python_3_read_the_same() {
    const REPICKLE: &str = r#"
import pickle, sys, types
source, target, protocol = sys.argv[1], sys.argv[2], int(sys.argv[3])
fortran = sys.argv[4] == "fortran"
multiarray, numpy = types.ModuleType("numpy.core.multiarray"), types.ModuleType("numpy")
sys.modules.update({"numpy": numpy, "numpy.core": types.ModuleType("numpy.core")})
sys.modules["numpy.core.multiarray"] = multiarray
def _reconstruct(*arguments): pass
_reconstruct.__module__ = "numpy.core.multiarray"; multiarray._reconstruct = _reconstruct
def dtype(*arguments): pass
dtype.__module__ = "numpy"; dtype.__qualname__ = "dtype"; numpy.dtype = dtype
class Dtype:
    def __reduce__(self): return dtype, ("u1", False, True), (3, "|", None, None, None, -1, -1, 0)
class ndarray:
    def __reduce__(self):
        state = 1, (self.rows, 3072), Dtype(), fortran, self.data
        return _reconstruct, (ndarray, (0,), b"b"), state
ndarray.__module__ = "numpy"; numpy.ndarray = ndarray
raw = open(source, "rb").read()
records = [raw[i:i + 3074] for i in range(0, len(raw), 3074)]
array = ndarray(); array.rows = len(records); planes = [r[2:] for r in records]
array.data = bytes(p[i] for i in range(3072) for p in planes) if fortran else b"".join(planes)
content = {"fine_labels": [r[1] for r in records], "data": array}
if protocol < 4: content = {key.encode(): value for key, value in content.items()}
pickle.dump(content, open(target, "wb"), protocol)
"#;
    let packed = archive("cifar100", "binary");
    let expected = content(&open(DatasetKind::Cifar100, &packed).unwrap());
    let source = tempfile::tempdir().unwrap();
    unpack(&packed, source.path());
    for (protocol, order) in [("2", "rows"), ("3", "rows"), ("4", "rows"), ("2", "fortran")] {
        let target = tempfile::tempdir().unwrap();
        for name in ["train", "test"] {
            let status = Command::new("python3")
                .args(["-c", REPICKLE])
                .arg(source.path().join(format!("cifar-100-binary/{name}.bin")))
                .arg(target.path().join(name))
                .args([protocol, order])
                .status()
                .unwrap();
            assert!(status.success());
        }
        let got = content(&open(DatasetKind::Cifar100, target.path()).unwrap());
        assert!(got == expected, "protocol {protocol}, {order}");
    }
}

#[test]
fn script_is_deterministic() {
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str, seed| {
        let path = folder.path().join(name);
        make_archive(&path, "cifar100", "python", seed);
        fs::read(path).unwrap()
    };
    let first = make("a.tar.gz", 7);
    assert!(first == make("b.tar.gz", 7));
    assert!(first != make("c.tar.gz", 8));
}

#[test]
fn published_archives_are_known_by_name_and_length() {
    let folder = tempfile::tempdir().unwrap();
    for archive in &PUBLISHED_ARCHIVES {
        let path = folder.path().join(archive.name);
        let file = fs::File::create(&path).unwrap();
        assert_eq!(known_archive(&path).unwrap(), None, "empty");
        file.set_len(archive.bytes).unwrap(); // sparse
        assert_eq!(known_archive(&path).unwrap(), Some(archive));
    }
    assert!(known_archive(&folder.path().join("absent")).is_err());
}

#[test]
fn statistics_follow_the_choice() {
    let splits = open(DatasetKind::Cifar100, &archive("cifar100", "binary")).unwrap();
    assert_eq!(splits.train.statistics(Normalize::Dataset), Statistics::CIFAR100);
    assert_eq!(splits.train.statistics(Normalize::Imagenet), Statistics::IMAGENET);
    let splits = open(DatasetKind::Cifar10, &archive("cifar10", "binary")).unwrap();
    assert_eq!(splits.train.statistics(Normalize::Dataset), Statistics::CIFAR10);
}

fn refusal(kind: DatasetKind, path: &Path) -> DataError {
    open(kind, path).expect_err("the data are bad")
}

/// The error of bad CIFAR-100, whose text contains `says`.
fn refused(path: &Path, says: &str) -> DataError {
    let error = refusal(DatasetKind::Cifar100, path);
    assert!(error.to_string().contains(says), "{says}: {error}");
    error
}

#[test]
fn path_is_needed_and_must_exist() {
    let config = DataConfig { dataset: DatasetKind::Cifar100, ..DataConfig::default() };
    let error = vim_data::open::<Class>(&config).unwrap_err();
    assert!(matches!(error, DataError::MissingPath { dataset: "cifar100" }));
    assert!(error.to_string().contains("`data.path` is not set"), "{error}");

    let path = "/nowhere/cifar-100-binary.tar.gz";
    assert!(matches!(refused(Path::new(path), path), DataError::NoImages(_)));
}

#[test]
fn folder_without_the_files_says_what_would_do() {
    let folder = tempfile::tempdir().unwrap();
    let error = refused(folder.path(), "`cifar-100-python.tar.gz`");
    assert!(matches!(error, DataError::NotFound { .. }));
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
        let error = refused(&packed, "set `data.dataset = \"cifar10\"`");
        assert!(matches!(error, DataError::WrongDataset { found: "cifar10", .. }));

        let folder = tempfile::tempdir().unwrap();
        unpack(&archive("cifar100", format), folder.path());
        let error = refusal(DatasetKind::Cifar10, folder.path());
        assert!(matches!(error, DataError::WrongDataset { found: "cifar100", .. }));
    }
    // A folder that holds both is no error.
    assert!(open(DatasetKind::Cifar10, archives()).is_ok());
}

#[test]
fn archive_cut_or_changed_anywhere_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.tar.gz");
    for format in ["binary", "python"] {
        let whole = fs::read(archive("cifar100", format)).unwrap();
        let length = whole.len();
        let cuts = (2..length).step_by(length / 23).chain([length - 1]);
        let cuts = cuts.map(|cut| (cut, whole[..cut].to_vec()));
        let changed = [length / 3, length / 2, length - 6].map(|at| {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            (at, bytes)
        });
        for (at, bytes) in cuts.chain(changed) {
            fs::write(&path, bytes).unwrap();
            let error = refused(&path, "cut short or damaged");
            assert!(matches!(error, DataError::Archive { .. }), "{at}: {error}");
        }
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

/// The file claims what a bomb of zeros would unpack to.
#[test]
fn an_archive_of_more_than_the_dataset_is_refused_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cifar-100-binary.tar");
    let mut header = tar::Header::new_ustar();
    header.set_path("cifar-100-binary/train.bin").unwrap();
    header.set_size(1 << 29);
    header.set_cksum();
    fs::write(&path, header.as_bytes()).unwrap();
    let error = refusal(DatasetKind::Cifar100, &path);
    assert!(matches!(error, DataError::Io { .. }), "{error}");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("more than 256 MiB"), "{cause}");
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
        let error = refused(folder.path(), "train.bin");
        assert!(matches!(error, DataError::RecordSize { record: 3074, .. }), "{length}: {error}");
    }
}

#[test]
fn label_out_of_range_is_placed() {
    let folder = binary_folder(&[(0, 1, 2)], &[(0, 99, 2), (0, 100, 2)]);
    let error = refused(folder.path(), "test.bin");
    assert!(matches!(error, DataError::LabelOutOfRange { index: 1, label: 100, classes: 100, .. }));
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
