//! Arrays of an `.npz` file.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use npyz::npz::NpzArchive;
use npyz::{NpyFile, Order};

use crate::error::{Error, Failure, code};

/// Upper bound of an array's elements; a larger header is damaged.
const MOST_NUMBERS: u64 = 1 << 28;

/// An `.npz` file and the arrays not yet read.
pub(super) struct Arrays {
    archive: NpzArchive<BufReader<File>>,
    path: PathBuf,
    unread: BTreeSet<String>,
}

/// An array of floats.
pub(super) struct Floats {
    pub(super) shape: Vec<usize>,
    pub(super) values: Vec<f32>,
}

impl Arrays {
    /// Opens `path`.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::io("read", path))?;
        let archive = NpzArchive::new(BufReader::new(file))
            .map_err(|error| damaged(path, &format!("not an .npz file: {error}")))?;
        let unread = archive.array_names().map(str::to_owned).collect();
        Ok(Self { archive, path: path.to_owned(), unread })
    }

    /// Names of the unread arrays.
    pub(super) fn unread(&self) -> Vec<String> {
        self.unread.iter().cloned().collect()
    }

    /// Marks `name` as deliberately unread.
    pub(super) fn pass_over(&mut self, name: &str) {
        self.unread.remove(name);
    }

    /// The array `name` of f32 or f64.
    pub(super) fn floats(&mut self, name: &str) -> Result<Floats, Error> {
        let path = self.path.clone();
        let (array, shape) = self.array(name)?;
        let values: io::Result<Vec<f32>> = match array.try_data::<f32>() {
            Ok(values) => values.collect(),
            Err(array) => match array.try_data::<f64>() {
                Ok(values) => values.map(|x| x.map(|x| x as f32)).collect(),
                Err(array) => {
                    let kind = array.dtype().descr();
                    return Err(damaged(&path, &format!("{name} is {kind}, expected f32 or f64")));
                }
            },
        };
        let values = values.map_err(|error| damaged(&path, &format!("{name}: {error}")))?;
        Ok(Floats { shape, values })
    }

    /// The array `name` of whole numbers.
    pub(super) fn integers(&mut self, name: &str) -> Result<Vec<i64>, Error> {
        let path = self.path.clone();
        let (array, _) = self.array(name)?;
        let values: io::Result<Vec<i64>> = match array.try_data::<i64>() {
            Ok(values) => values.collect(),
            Err(array) => match array.try_data::<i32>() {
                Ok(values) => values.map(|x| x.map(i64::from)).collect(),
                Err(array) => {
                    let kind = array.dtype().descr();
                    return Err(damaged(&path, &format!("{name} is {kind}, expected i64 or i32")));
                }
            },
        };
        values.map_err(|error| damaged(&path, &format!("{name}: {error}")))
    }

    fn array(&mut self, name: &str) -> Result<(NpyFile<impl Read + '_>, Vec<usize>), Error> {
        let path = self.path.clone();
        let wrong = |what: &str| damaged(&path, what);
        self.unread.remove(name);
        let array = self
            .archive
            .by_name(name)
            .map_err(|error| wrong(&format!("{name}: {error}")))?
            .ok_or_else(|| wrong(&format!("{name} is missing")))?;
        let numbers = array.shape().iter().try_fold(1_u64, |product, &n| product.checked_mul(n));
        if numbers.is_none_or(|numbers| numbers > MOST_NUMBERS) {
            return Err(wrong(&format!("{name} claims a shape of {:?}", array.shape())));
        }
        if array.order() == Order::Fortran && array.shape().len() > 1 {
            let how = "save numpy.ascontiguousarray of it";
            return Err(wrong(&format!("{name} is stored column by column: {how}")));
        }
        let shape = array.shape().iter().map(|&n| n as usize).collect();
        Ok((array, shape))
    }
}

/// The reference arrays are missing, damaged or wrong.
#[derive(Debug, thiserror::Error)]
#[error("arrays {}: {problem}", path.display())]
struct BadArrays {
    path: PathBuf,
    problem: String,
}

impl Failure for BadArrays {
    fn exit_code(&self) -> u8 {
        code::DATA
    }
}

/// The error for an invalid file.
pub(super) fn damaged(path: &Path, what: &str) -> Error {
    BadArrays { path: path.to_owned(), problem: what.to_owned() }.into()
}
