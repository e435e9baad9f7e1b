//! Reading a file of records line by line: it may be larger than memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::Record;

/// The most bytes of a line: more than any record has.
const MOST_BYTES: u64 = 1 << 20;

/// The whole lines of a file, each with its number from 1; `None` for one that is no record.
///
/// An incomplete last line is left out: it is being written, or was cut off by a crash, and
/// resuming rewrites it.
#[derive(Debug)]
pub struct RecordReader {
    file: BufReader<File>,
    line: Vec<u8>,
    number: usize,
}

impl RecordReader {
    /// Opens the file `path`.
    ///
    /// # Errors
    /// If it cannot be read, or is none: a device has no end.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
        }
        Ok(Self { file: BufReader::with_capacity(1 << 16, file), line: Vec::new(), number: 0 })
    }

    fn read_line(&mut self) -> io::Result<Option<Option<Record>>> {
        self.line.clear();
        let read = self.file.by_ref().take(MOST_BYTES).read_until(b'\n', &mut self.line)?;
        if self.line.last() == Some(&b'\n') {
            return Ok(Some(std::str::from_utf8(&self.line).ok().and_then(Record::parse)));
        }
        if (read as u64) < MOST_BYTES {
            return Ok(None);
        }
        self.file.skip_until(b'\n')?;
        Ok(Some(None))
    }
}

impl Iterator for RecordReader {
    type Item = io::Result<(usize, Option<Record>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.number += 1;
        let record = self.read_line().transpose()?;
        Some(record.map(|record| (self.number, record)))
    }
}

/// Most points that a [`Curve`] keeps, before neighbours are joined.
const MOST_POINTS: usize = 1 << 17;

/// Points in the order of their abscissae, of which any number may be added.
///
/// All are kept up to 131 072; of more, neighbours become their means.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    points: Vec<[f64; 2]>,
    /// Points that each of [`Self::points`] is the mean of.
    each: usize,
    /// Sums and number of those behind them.
    rest: ([f64; 2], usize),
    ends: Option<[(f64, f64); 2]>,
}

impl Default for Curve {
    fn default() -> Self {
        Self { points: Vec::new(), each: 1, rest: ([0.0; 2], 0), ends: None }
    }
}

impl Curve {
    /// Adds a point.
    pub fn push(&mut self, x: f64, y: f64) {
        let first = self.ends.map_or((x, y), |[first, _]| first);
        self.ends = Some([first, (x, y)]);
        let (sums, count) = &mut self.rest;
        *sums = [sums[0] + x, sums[1] + y];
        *count += 1;
        if *count < self.each {
            return;
        }
        self.points.push(sums.map(|sum| sum / self.each as f64));
        self.rest = ([0.0; 2], 0);
        if self.points.len() < MOST_POINTS {
            return;
        }
        let mean =
            |two: &[[f64; 2]]| [(two[0][0] + two[1][0]) / 2.0, (two[0][1] + two[1][1]) / 2.0];
        self.points = self.points.chunks_exact(2).map(mean).collect();
        self.each *= 2;
    }

    /// The first and the last point that were added.
    pub fn ends(&self) -> Option<[(f64, f64); 2]> {
        self.ends
    }

    /// The points kept.
    pub fn points(&self) -> Vec<(f64, f64)> {
        let (sums, count) = self.rest;
        let rest = (count > 0).then(|| sums.map(|sum| sum / count as f64));
        self.points.iter().copied().chain(rest).map(|[x, y]| (x, y)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(content: &[u8]) -> Vec<(usize, Option<f64>)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        fs::write(&path, content).unwrap();
        let number = |line: io::Result<(usize, Option<Record>)>| {
            let (number, record) = line.unwrap();
            (number, record.map(|record| record.number("step").unwrap_or(f64::NAN)))
        };
        RecordReader::open(&path).unwrap().map(number).collect()
    }

    #[test]
    fn whole_lines_are_read_and_others_numbered() {
        let read = read;
        assert_eq!(read(b""), []);
        assert_eq!(read(b"{\"step\":1}"), [], "it is being written");
        let lines = b"{\"step\":1}\nx\n\n\xff\n{\"step\":5}\r\n{\"step\":6";
        assert_eq!(read(lines), [(1, Some(1.0)), (2, None), (3, None), (4, None), (5, Some(5.0))]);
        let long = [b"{\"step\":1}\n".as_slice(), &vec![0; 3 << 20], b"\n{\"step\":3}\n"].concat();
        assert_eq!(read(&long), [(1, Some(1.0)), (2, None), (3, Some(3.0))]);
    }

    #[test]
    fn a_device_is_no_file_of_records() {
        let error = RecordReader::open(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.to_string(), "it is not a file");
    }

    #[test]
    fn a_long_curve_keeps_its_ends_and_its_means() {
        let mut curve = Curve::default();
        assert_eq!((curve.ends(), curve.points()), (None, vec![]));
        for x in 0..MOST_POINTS - 1 {
            curve.push(x as f64, 1.0);
        }
        assert_eq!(curve.points().len(), MOST_POINTS - 1, "all of them");
        assert_eq!(curve.points()[7], (7.0, 1.0));
        for x in MOST_POINTS - 1..5 * MOST_POINTS + 3 {
            curve.push(x as f64, 3.0);
        }
        let points = curve.points();
        assert!((MOST_POINTS / 2..MOST_POINTS).contains(&points.len()), "{}", points.len());
        assert_eq!(points[..2], [(3.5, 1.0), (11.5, 1.0)]);
        let last = (5 * MOST_POINTS) as f64;
        assert_eq!(points.last(), Some(&(last + 1.0, 3.0)), "the mean of three");
        assert_eq!(curve.ends(), Some([(0.0, 1.0), (last + 2.0, 3.0)]));
    }
}
