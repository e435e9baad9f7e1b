//! Datasets and archives that the tests read.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::{process::Command, sync::OnceLock};

use tempfile::TempDir;
use vim_data::{Class, DataConfig, DataError, DatasetKind, ShapesConfig, Splits};

/// The four archives of `scripts/make_cifar_archive.py`, made once: 230 training and 110 test
/// images.
pub(crate) fn archives() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            for dataset in ["cifar10", "cifar100"] {
                for format in ["binary", "python"] {
                    let name = archive_name(dataset, format);
                    make_archive(&folder.path().join(name), dataset, format, 7);
                }
            }
            folder
        })
        .path()
}

/// Path of one of [`archives`].
pub(crate) fn archive(dataset: &str, format: &str) -> PathBuf {
    archives().join(archive_name(dataset, format))
}

/// `cifar-100-binary.tar.gz` and the like.
fn archive_name(dataset: &str, format: &str) -> String {
    format!("cifar-{}-{format}.tar.gz", &dataset["cifar".len()..])
}

/// Runs the script.
pub(crate) fn make_archive(out: &Path, dataset: &str, format: &str, seed: u64) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/make_cifar_archive.py");
    let output = Command::new("python3")
        .arg(script)
        .args(["--dataset", dataset, "--format", format, "--train", "230", "--test", "110"])
        .args(["--seed", &seed.to_string(), "--out"])
        .arg(out)
        .output()
        .expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Unpacks an archive into `folder`.
pub(crate) fn unpack(archive: &Path, folder: &Path) {
    let file = flate2::read::GzDecoder::new(File::open(archive).unwrap());
    tar::Archive::new(file).unpack(folder).unwrap();
}

/// Opens a CIFAR dataset without a validation split.
pub(crate) fn open(dataset: DatasetKind, path: &Path) -> Result<Splits, DataError> {
    let path = Some(path.to_owned());
    vim_data::open::<Class>(&DataConfig { dataset, path, ..DataConfig::default() })
}

/// Every label and pixel of a dataset's two parts.
pub(crate) fn content(splits: &Splits) -> Vec<(u32, Vec<u8>)> {
    let of = |split: &vim_data::Split| -> Vec<_> {
        (0..split.len()).map(|i| (split.label(i), split.image(i).unwrap())).collect()
    };
    [of(&splits.train), of(&splits.test)].concat()
}

/// A binary-version CIFAR-100 folder: each part's records as `(coarse, fine, pixel value)`.
pub(crate) fn binary_folder(train: &[(u8, u8, u8)], test: &[(u8, u8, u8)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, records) in [("train.bin", train), ("test.bin", test)] {
        let bytes: Vec<u8> = records
            .iter()
            .flat_map(|&(coarse, fine, value)| [vec![coarse, fine], vec![value; 3072]].concat())
            .collect();
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

/// A small `shapes` configuration.
pub(crate) fn shapes(train: usize, val: usize, test: usize) -> DataConfig {
    let shapes = ShapesConfig { train, val, test, ..ShapesConfig::default() };
    DataConfig { shapes, ..DataConfig::default() }
}
