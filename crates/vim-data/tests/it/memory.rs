//! A dataset in memory that counts reads, and fails where told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::{io, thread, time::Duration};

use vim_data::{
    DataError, Dataset, Encoding, Fingerprint, OnProgress, Sample, Shapes, ShapesConfig,
    ShapesPart, Split, Statistics, Suspects,
};

pub(crate) struct Memory {
    pub(crate) images: Vec<Vec<u8>>,
    pub(crate) encoding: Encoding,
    /// Number of reads so far.
    pub(crate) reads: Arc<AtomicUsize>,
    /// How long each takes.
    pub(crate) delay: Duration,
    pub(crate) panic_at: Option<usize>,
    /// By index: failures still to come.
    pub(crate) failures: Vec<AtomicU32>,
    /// What they are.
    pub(crate) failure: io::ErrorKind,
}

impl Memory {
    fn new(images: Vec<Vec<u8>>, encoding: Encoding) -> Self {
        let failures = images.iter().map(|_| AtomicU32::new(0)).collect();
        let (reads, delay) = (Arc::default(), Duration::ZERO);
        let failure = io::ErrorKind::Other;
        Self { images, encoding, reads, delay, panic_at: None, failures, failure }
    }

    /// A thousand images of one pixel.
    pub(crate) fn pixels() -> Self {
        let images = (0..1_000).map(|index| vec![index as u8; 3]).collect();
        Self::new(images, Encoding::Pixels { size: [1, 1] })
    }

    /// PNGs of several sizes, larger and smaller than 48 × 40.
    pub(crate) fn files(count: usize) -> Self {
        let file = |index: usize| {
            let (height, width) = (30 + 7 * index % 61, 25 + 11 * index % 83);
            let value = |at: usize| ((at * (index + 3)) as u32).wrapping_mul(0x9e37_79b9) >> 24;
            let pixels: Vec<u8> = (0..3 * height * width).map(|at| value(at) as u8).collect();
            let mut bytes = Vec::new();
            let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
            encoder.set_color(png::ColorType::Rgb);
            encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
            bytes
        };
        Self::new((0..count).map(file).collect(), Encoding::Files)
    }

    pub(crate) fn split(self) -> Split {
        Split::whole(Arc::new(self))
    }
}

impl Dataset for Memory {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn encoding(&self) -> Encoding {
        self.encoding
    }

    fn class_names(&self) -> &[String] {
        static NAMES: [String; 7] = [const { String::new() }; 7];
        &NAMES
    }

    fn name(&self, index: usize) -> String {
        format!("image {index}")
    }

    fn label(&self, index: usize) -> u32 {
        (index % 7) as u32
    }

    fn read(&self, index: usize, into: &mut Sample) -> Result<(), DataError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        thread::sleep(self.delay);
        assert_ne!(self.panic_at, Some(index), "the dataset panics");
        let count_down = |left: u32| left.checked_sub(1);
        let failures = &self.failures[index];
        if failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count_down).is_ok() {
            let source = io::Error::new(self.failure, "the disk is away");
            return Err(DataError::Io { path: "disk".into(), source });
        }
        into.image.clone_from(&self.images[index]);
        Ok(())
    }

    /// Those that fail.
    fn suspects(&self, _: usize, _: OnProgress<'_>) -> Result<Suspects, DataError> {
        let fails = |&index: &usize| self.failures[index].load(Ordering::SeqCst) > 0;
        Ok(Suspects { bad: (0..self.len()).filter(fails).collect(), ..Suspects::default() })
    }

    fn statistics(&self) -> Statistics {
        Statistics::IMAGENET
    }

    fn fingerprint_by(&self, _: &[String], _: &dyn Fn(u32) -> u32) -> Fingerprint {
        let shapes = Shapes::new(ShapesConfig::default(), ShapesPart::Train).unwrap();
        shapes.fingerprint() // any will do
    }
}
