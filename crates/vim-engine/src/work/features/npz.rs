//! An `.npz` file whose arrays grow image by image.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use npyz::{DType, Serialize, TypeStr, WriteOptions, WriterBuilder};
use vim_run::storage::{Disk, Storage as _, replace_with};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::labels::Labels;
use crate::error::Error;

/// Sizes above this need the zip format's 64-bit fields; the array's header is in the rest.
const LARGE: u64 = u32::MAX as u64 - (1 << 16);

/// The output, and what is known of its arrays so far.
///
/// An archive holds one array behind the other, each with its shape in front, but the features of
/// all layers come together and nobody knows how many images can be read. So each array waits in a
/// file without a name beside the output.
pub(super) struct Npz {
    path: PathBuf,
    arrays: Vec<Growing>,
}

struct Growing {
    name: String,
    /// Of an image's values.
    shape: Vec<u64>,
    images: u64,
    values: BufWriter<File>,
}

impl Npz {
    /// Prepares the arrays called `names` of the file `path`.
    pub(super) fn new(path: &Path, names: impl Iterator<Item = String>) -> Result<Self, Error> {
        let growing = |name: String| {
            let open = || -> io::Result<BufWriter<File>> {
                let temporary = Disk.temporary(path)?;
                let values = File::options().read(true).write(true).open(temporary.path())?;
                // Its name goes at once: the space is free again as soon as the process ends,
                // however it does.
                drop(temporary);
                Ok(BufWriter::new(values))
            };
            let values = open().map_err(Error::io("write", path))?;
            Ok(Growing { name, shape: Vec::new(), images: 0, values })
        };
        let arrays: Result<Vec<Growing>, Error> = names.map(growing).collect();
        Ok(Self { path: path.to_owned(), arrays: arrays? })
    }

    /// Adds images to the array at `place`: their values, `shape` each.
    pub(super) fn append(
        &mut self,
        place: usize,
        shape: &[usize],
        values: &[f32],
    ) -> Result<(), Error> {
        let array = &mut self.arrays[place];
        array.shape = shape.iter().map(|&side| side as u64).collect();
        array.images += (values.len() / shape.iter().product::<usize>()) as u64;
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        array.values.write_all(&bytes).map_err(Error::io("write", &self.path))
    }

    /// Writes the file, whole or not at all; the names of its arrays, and their shapes.
    pub(super) fn write(
        mut self,
        images: &[&PathBuf],
        layers: &[usize],
        labels: Option<&Labels>,
    ) -> Result<Vec<(String, Vec<u64>)>, Error> {
        let names: Vec<String> = images.iter().map(|path| path.display().to_string()).collect();
        let layers: Vec<i64> = layers.iter().map(|&layer| layer as i64).collect();
        let mut shapes = Vec::new();
        let write = |at: &Path| {
            let mut npz = ZipWriter::new(WholeFile::new(File::create(at)?));
            for array in &mut self.arrays {
                shapes.push((array.name.clone(), array.write(&mut npz)?));
            }
            shapes.push(("names".into(), write_text(&mut npz, "names", &names)?));
            shapes.push(("layers".into(), write_numbers(&mut npz, "layers", &layers)?));
            if let Some(Labels { classes, labels }) = labels {
                shapes.push(("labels".into(), write_numbers(&mut npz, "labels", labels)?));
                shapes.push(("classes".into(), write_text(&mut npz, "classes", classes)?));
            }
            npz.finish()?.end()
        };
        replace_with(&Disk, &self.path, write).map_err(Error::io("write", &self.path))?;
        Ok(shapes)
    }
}

/// Numbers of an array.
pub(in crate::work) enum Numbers {
    Floats(Vec<f64>),
    Integers(Vec<i64>),
}

/// Writes a file of these arrays, each with its name and shape, whole or not at all.
pub(in crate::work) fn write_arrays(
    path: &Path,
    arrays: &[(&str, Vec<usize>, Numbers)],
) -> Result<(), Error> {
    let write = |at: &Path| {
        let mut npz = ZipWriter::new(WholeFile::new(File::create(at)?));
        for (name, shape, numbers) in arrays {
            let shape: Vec<u64> = shape.iter().map(|&side| side as u64).collect();
            match numbers {
                Numbers::Floats(numbers) => write_array(&mut npz, name, "<f8", &shape, numbers)?,
                Numbers::Integers(numbers) => write_array(&mut npz, name, "<i8", &shape, numbers)?,
            }
        }
        npz.finish()?.end()
    };
    replace_with(&Disk, path, write).map_err(Error::io("write", path))
}

/// A file that keeps its first error for the end: an archive whose file fails says so on stderr by
/// itself, when it is dropped.
struct WholeFile {
    file: BufWriter<File>,
    position: u64,
    length: u64,
    state: io::Result<()>,
}

impl WholeFile {
    fn new(file: File) -> Self {
        Self { file: BufWriter::new(file), position: 0, length: 0, state: Ok(()) }
    }

    /// Does `what` with the file, unless something failed before.
    fn attempt(&mut self, what: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        if self.state.is_ok() {
            self.state = what(&mut self.file);
        }
    }

    /// Returns when all is on the disk.
    fn end(self) -> io::Result<()> {
        self.state?;
        self.file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.attempt(|file| file.write_all(bytes));
        self.position += bytes.len() as u64;
        self.length = self.length.max(self.position);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt(Write::flush);
        Ok(())
    }
}

impl Seek for WholeFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(to) => to,
            SeekFrom::Current(by) => self.position.saturating_add_signed(by),
            SeekFrom::End(by) => self.length.saturating_add_signed(by),
        };
        if to != self.position {
            self.attempt(|file| file.seek(SeekFrom::Start(to)).map(drop));
            self.position = to;
        }
        Ok(to)
    }
}

impl Growing {
    fn write<W: Write + Seek>(&mut self, npz: &mut ZipWriter<W>) -> io::Result<Vec<u64>> {
        self.values.flush()?;
        let values = self.values.get_mut();
        let bytes = values.stream_position()?;
        values.rewind()?;
        let shape: Vec<u64> = [self.images].into_iter().chain(self.shape.clone()).collect();
        start(npz, &self.name, bytes)?;
        // The bytes are those of `append`, on every machine.
        let header = WriteOptions::new_header_only().dtype(dtype("<f4")?).shape(&shape);
        io::copy(values, header.writer(npz).write_header_only()?)?;
        Ok(shape)
    }
}

fn dtype(name: &str) -> io::Result<DType> {
    let scalar = name.parse::<TypeStr>();
    Ok(DType::new_scalar(scalar.map_err(|error| io::Error::other(error.to_string()))?))
}

/// Starts the array `name` of `bytes` bytes: uncompressed, as features do not shrink, and with the
/// same bytes at any time of day.
fn start<W: Write + Seek>(npz: &mut ZipWriter<W>, name: &str, bytes: u64) -> io::Result<()> {
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(DateTime::default())
        .large_file(bytes > LARGE);
    Ok(npz.start_file(format!("{name}.npy"), options)?)
}

fn write_numbers<W: Write + Seek>(
    npz: &mut ZipWriter<W>,
    name: &str,
    numbers: &[i64],
) -> io::Result<Vec<u64>> {
    let shape = vec![numbers.len() as u64];
    write_array(npz, name, "<i8", &shape, numbers)?;
    Ok(shape)
}

/// Numbers of eight bytes.
fn write_array<W: Write + Seek, T: Serialize + Copy>(
    npz: &mut ZipWriter<W>,
    name: &str,
    of: &str,
    shape: &[u64],
    numbers: &[T],
) -> io::Result<()> {
    start(npz, name, 8 * numbers.len() as u64)?;
    let options = WriteOptions::new().dtype(dtype(of)?).shape(shape);
    let mut writer = options.writer(npz).begin_nd()?;
    writer.extend(numbers.iter().copied())?;
    writer.finish()
}

/// Texts of one width, as NumPy has them.
fn write_text<W: Write + Seek>(
    npz: &mut ZipWriter<W>,
    name: &str,
    texts: &[String],
) -> io::Result<Vec<u64>> {
    let width = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0).max(1) as u64;
    let shape = vec![texts.len() as u64];
    start(npz, name, 4 * width * shape[0])?;
    let options = WriteOptions::<str>::new().dtype(dtype(&format!("<U{width}"))?).shape(&shape);
    let mut writer = options.writer(npz).begin_nd()?;
    texts.iter().try_for_each(|text| writer.push(text))?;
    writer.finish()?;
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_at_the_end() {
        let mut npz = ZipWriter::new(WholeFile::new(File::create("/dev/full").unwrap()));
        write_numbers(&mut npz, "layers", &vec![7; 100_000]).unwrap();
        let error = npz.finish().unwrap().end().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npz");
        let mut npz = ZipWriter::new(WholeFile::new(File::create(&path).unwrap()));
        let layers: Vec<i64> = (0..10_000).collect();
        write_numbers(&mut npz, "layers", &layers).unwrap();
        npz.finish().unwrap().end().unwrap();
        let mut zip = zip::ZipArchive::new(File::open(&path).unwrap()).unwrap();
        let array = npyz::NpyFile::new(zip.by_name("layers.npy").unwrap()).unwrap();
        assert_eq!(array.into_vec::<i64>().unwrap(), layers);
    }
}
