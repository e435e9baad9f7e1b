//! Arrays of an `.npz` file, and how far ours are from them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use half::f16;
use npyz::{Deserialize, NpyFile, Order};
use serde::Serialize;
use vim_engine::Error;
use vim_engine::weights::WeightsError;
use vim_model::StateDictMismatch;
use vim_torch::{ReadError, Section, StateDict, read_checkpoint};
use zip::ZipArchive;
use zip::result::ZipError;

use super::EvalGoldenArgs;

/// Upper bound of an array's elements; a larger header is damaged.
const MOST_NUMBERS: u64 = 1 << 28;

/// How NumPy describes numbers of two bytes.
const HALF: &str = "'<f2'";

/// How the name of an array's entry ends.
const ENTRY: &str = ".npy";

/// An `.npz` file and the arrays not yet read.
pub(super) struct Arrays {
    archive: ZipArchive<BufReader<File>>,
    path: PathBuf,
    unread: BTreeSet<String>,
}

pub(super) struct Floats {
    pub(super) shape: Vec<usize>,
    pub(super) values: Vec<f32>,
}

impl Arrays {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::io("read", path))?;
        let archive = ZipArchive::new(BufReader::new(file))
            .map_err(|error| damaged(path, &format!("not an .npz file: {error}")))?;
        let names = archive.file_names().flatten();
        let unread = names.filter_map(|name| Some(name.strip_suffix(ENTRY)?.to_owned())).collect();
        Ok(Self { archive, path: path.to_owned(), unread })
    }

    pub(super) fn unread(&self) -> Vec<String> {
        self.unread.iter().cloned().collect()
    }

    /// Marks `name` as deliberately unread.
    pub(super) fn pass_over(&mut self, name: &str) {
        self.unread.remove(name);
    }

    /// The array `name` of f32 or f64.
    pub(super) fn floats(&mut self, name: &str) -> Result<Floats, Error> {
        let (values, shape) = self.read(name, "f32 or f64", |x: f32| x, |x: f64| x as f32)?;
        Ok(Floats { shape, values })
    }

    /// The array `name` of whole numbers.
    pub(super) fn integers(&mut self, name: &str) -> Result<Vec<i64>, Error> {
        Ok(self.read(name, "i64 or i32", |x: i64| x, |x: i32| i64::from(x))?.0)
    }

    /// The array `name` of f16, or of one of the types of [`Self::floats`].
    pub(super) fn halves(&mut self, name: &str) -> Result<Floats, Error> {
        let path = self.path.clone();
        let (array, shape) = self.array(name)?;
        if array.dtype().descr() != HALF {
            drop(array);
            return self.floats(name);
        }
        let mut bytes = vec![0; 2 * shape.iter().product::<usize>()];
        let read = array.into_inner().read_exact(&mut bytes);
        read.map_err(|error| damaged(&path, &format!("{name}: {error}")))?;
        let values = bytes.as_chunks().0.iter().map(|&half| f16::from_le_bytes(half).to_f32());
        Ok(Floats { shape, values: values.collect() })
    }

    /// The array `name` of bytes.
    pub(super) fn bytes(&mut self, name: &str) -> Result<(Vec<i64>, Vec<usize>), Error> {
        self.read(name, "u8 or i64", |x: u8| i64::from(x), |x: i64| x)
    }

    /// The array `name` of f64 or f32.
    pub(super) fn doubles(&mut self, name: &str) -> Result<Vec<f64>, Error> {
        Ok(self.read(name, "f64 or f32", |x: f64| x, |x: f32| f64::from(x))?.0)
    }

    /// The array `name` of bytes, and its shape.
    pub(super) fn u8s(&mut self, name: &str) -> Result<(Vec<u8>, Vec<usize>), Error> {
        self.read(name, "u8", |x: u8| x, |x: u8| x)
    }

    /// The array `name` of booleans.
    pub(super) fn flags(&mut self, name: &str) -> Result<Vec<bool>, Error> {
        Ok(self.read(name, "bool", |x: bool| x, |x: bool| x)?.0)
    }

    /// The array `name` of signed bytes.
    pub(super) fn signed_bytes(&mut self, name: &str) -> Result<Vec<f32>, Error> {
        Ok(self.read(name, "i8", |x: i8| f32::from(x), |x: i8| f32::from(x))?.0)
    }

    /// Whether there is an array `name`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.unread.contains(name)
    }

    /// The values, stored as `A` or as `B`, and the shape of the array `name`.
    fn read<A: Deserialize, B: Deserialize, T>(
        &mut self,
        name: &str,
        expected: &str,
        of_a: impl Fn(A) -> T,
        of_b: impl Fn(B) -> T,
    ) -> Result<(Vec<T>, Vec<usize>), Error> {
        let path = self.path.clone();
        let (array, shape) = self.array(name)?;
        let values: io::Result<Vec<T>> = match array.try_data::<A>() {
            Ok(values) => values.map(|x| x.map(&of_a)).collect(),
            Err(array) => match array.try_data::<B>() {
                Ok(values) => values.map(|x| x.map(&of_b)).collect(),
                Err(array) => {
                    let kind = array.dtype().descr();
                    return Err(damaged(&path, &format!("{name} is {kind}, expected {expected}")));
                }
            },
        };
        let values = values.map_err(|error| damaged(&path, &format!("{name}: {error}")))?;
        Ok((values, shape))
    }

    fn array(&mut self, name: &str) -> Result<(NpyFile<impl Read + '_>, Vec<usize>), Error> {
        let path = self.path.clone();
        let wrong = |what: &str| damaged(&path, what);
        self.unread.remove(name);
        let entry = self.archive.by_name(&format!("{name}{ENTRY}")).map_err(|error| {
            if matches!(error, ZipError::FileNotFound) {
                wrong(&format!("{name} is missing"))
            } else {
                wrong(&format!("{name}: {error}"))
            }
        })?;
        let array = NpyFile::new(entry).map_err(|error| wrong(&format!("{name}: {error}")))?;
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
pub(super) fn damaged(path: &Path, what: &str) -> Error {
    Error::data(format!("arrays {}: {what}", path.display()))
}

/// How far an array is from its reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Comparison {
    pub(super) array: String,
    pub(super) max_reference: f64,
    pub(super) max_absolute_error: f64,
    /// The largest difference over the largest magnitude in the reference.
    pub(super) max_relative_error: f64,
    pub(super) tolerance: f64,
    pub(super) within: bool,
}

impl Comparison {
    /// The error in units of its tolerance; above 1 it is too large.
    pub(super) fn excess(&self) -> f64 {
        let excess = self.max_relative_error / self.tolerance;
        if excess.is_nan() { f64::INFINITY } else { excess }
    }

    /// The same with errors relative to `scale`, where that is larger than the reference: of an
    /// array that is 0 but for rounding.
    pub(super) fn on_scale(self, scale: f64) -> Self {
        if self.max_reference >= scale || !self.max_absolute_error.is_finite() {
            return self;
        }
        let max_relative_error = self.max_absolute_error / scale;
        Self { max_relative_error, within: max_relative_error <= self.tolerance, ..self }
    }

    /// Compares `got` with `expected` of the same length. NaN counts as infinitely far off.
    pub(super) fn new(array: &str, got: &[f32], expected: &[f32], tolerance: f64) -> Self {
        let largest = |numbers: &mut dyn Iterator<Item = f64>| {
            numbers.fold(0.0_f64, |max, x| if x.is_nan() { f64::INFINITY } else { max.max(x) })
        };
        let max_reference = largest(&mut expected.iter().map(|&x| f64::from(x).abs()));
        let pairs = got.iter().zip(expected);
        let max_absolute_error =
            largest(&mut pairs.map(|(&a, &b)| (f64::from(a) - f64::from(b)).abs()));
        let max_relative_error = match (max_absolute_error, max_reference) {
            (0.0, _) => 0.0,
            (_, f64::INFINITY) => f64::INFINITY,
            (error, reference) => error / reference,
        };
        let within = max_relative_error <= tolerance;
        let array = array.to_owned();
        Self { array, max_reference, max_absolute_error, max_relative_error, tolerance, within }
    }
}

/// The arrays of `--weights`.
pub(super) fn weights(args: &EvalGoldenArgs) -> Result<StateDict, Error> {
    let path = args.weights().display().to_string();
    let unread = |source| WeightsError::Unreadable { path: path.clone(), source };
    let file = File::open(args.weights()).map_err(|error| unread(ReadError::Io(error)))?;
    Ok(read_checkpoint(BufReader::new(file), Section::Model).map_err(unread)?.state)
}

/// That the arrays of `--weights` are not those of the model.
pub(super) fn unfit(args: &EvalGoldenArgs, mismatch: &StateDictMismatch) -> Error {
    let (checkpoint, problems) = (args.weights().display().to_string(), mismatch.to_string());
    WeightsError::Unfit { checkpoint, problems }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(got: &[f32], expected: &[f32]) -> Comparison {
        Comparison::new("a", got, expected, 0.1)
    }

    #[test]
    fn errors_are_in_units_of_the_largest_reference() {
        let comparison = compare(&[1.0, -3.5], &[1.25, -4.0]);
        assert_eq!((comparison.max_absolute_error, comparison.max_reference), (0.5, 4.0));
        assert_eq!((comparison.max_relative_error, comparison.within), (0.125, false));
        assert!(compare(&[1.0, -3.75], &[1.25, -4.0]).within);
    }

    #[test]
    fn an_array_of_rounding_errors_is_judged_on_another_scale() {
        let small = || compare(&[1e-9, -3e-9], &[2e-9, 1e-9]);
        assert!(!small().within && small().on_scale(1e-7).within);
        assert_eq!(small().on_scale(1e-12), small());
        assert!(!small().on_scale(1e-8).within);
        assert!(!compare(&[f32::NAN], &[0.0]).on_scale(1e9).within);
    }

    #[test]
    fn nothing_passes_by_not_being_a_number() {
        for (got, expected) in [
            (&[f32::NAN, 1.0], &[1.0, 1.0]),
            (&[1.0, 1.0], &[f32::NAN, 1.0]),
            (&[1.0, 1.0], &[f32::INFINITY, 1.0]),
            (&[f32::INFINITY, 1.0], &[f32::INFINITY, 1.0]),
            (&[1.0, 0.0], &[0.0, 0.0]),
        ] {
            assert!(!compare(got, expected).within, "{got:?} {expected:?}");
        }
        assert!(compare(&[0.0, 0.0], &[0.0, 0.0]).within);
    }
}
