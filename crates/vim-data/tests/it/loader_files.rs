//! A loader over encoded files: parts decoded, repeats, bad files, readers, memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vim_data::{
    AugmentPreset, Batch, CropPlan, DataError, Dataset, DecodeLimits, Decoder, Encoding,
    EvalTransform, Fingerprint, Loader, LoaderConfig, LoaderStage, OnBad, Pixels, Recipe, Resizer,
    SampleKey, Shapes, ShapesConfig, ShapesPart, Split, Statistics, ops,
};

const SIZE: [usize; 2] = [48, 40];

/// Files in memory, some of which fail to be read a few times before they are.
#[derive(Default)]
struct Files {
    files: Vec<Vec<u8>>,
    /// By index: failures still to come.
    failures: Vec<AtomicU32>,
}

impl Files {
    /// PNGs of several sizes, larger and smaller than what is made of them.
    fn new(count: usize) -> Self {
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
        let failures = (0..count).map(|_| AtomicU32::new(0)).collect();
        Self { files: (0..count).map(file).collect(), failures }
    }

    fn split(self) -> Split {
        Split::whole(Arc::new(self))
    }
}

impl Dataset for Files {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn encoding(&self) -> Encoding {
        Encoding::Files
    }

    fn class_names(&self) -> &[String] {
        static NAMES: [String; 7] = [const { String::new() }; 7];
        &NAMES
    }

    fn name(&self, index: usize) -> String {
        format!("file {index}")
    }

    fn label(&self, index: usize) -> u32 {
        (index % 7) as u32
    }

    fn read(&self, index: usize, into: &mut Vec<u8>) -> Result<(), DataError> {
        let count_down = |left: u32| left.checked_sub(1);
        let failures = &self.failures[index];
        if failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count_down).is_ok() {
            let source = std::io::Error::other("the disk is away");
            return Err(DataError::Io { path: "disk".into(), source });
        }
        into.clear();
        into.extend_from_slice(&self.files[index]);
        Ok(())
    }

    fn statistics(&self) -> Statistics {
        Statistics::IMAGENET
    }

    fn fingerprint(&self) -> Fingerprint {
        let shapes = Shapes::new(ShapesConfig::default(), ShapesPart::Train).unwrap();
        shapes.fingerprint() // any will do
    }
}

fn deit() -> Recipe {
    Recipe::preset(AugmentPreset::Deit)
}

fn training(workers: usize, recipe: Recipe) -> LoaderConfig {
    LoaderConfig::training(8, SIZE, workers, 5, recipe)
}

fn all(loader: &Loader, batches: std::ops::Range<u64>) -> Vec<Batch> {
    loader.batches(batches).map(Result::unwrap).collect()
}

/// The images of a batch, each from its file alone, by whole decoding: [B, H, W, 3].
fn expected(files: &Files, recipe: &Recipe, epoch: u64, draws: &[(usize, u32)]) -> Vec<u8> {
    let mut decoder = Decoder::new(DecodeLimits::default()).unwrap();
    let (mut resizer, mut scratch) = (Resizer::new(), ops::Scratch::default());
    let mut images = Vec::new();
    for &(index, repeat) in draws {
        let mut source = Pixels::default();
        let _ = decoder.decode(&files.files[index], &mut source).unwrap();
        let key = SampleKey { seed: 5, epoch, index: index as u64, repeat, attempt: 0 };
        let plan = recipe.draw(key, [source.height, source.width], SIZE);
        let CropPlan::Resized { region } = plan.crop else { panic!("{plan:?}") };
        let mut image = vec![0; 3 * SIZE[0] * SIZE[1]];
        resizer.resize(&source, region, SIZE, &mut image);
        if plan.flip {
            ops::flip(&mut image, SIZE);
        }
        for op in &plan.ops {
            op.apply(&mut image, SIZE, [124, 116, 104], &mut scratch);
        }
        images.extend(image);
    }
    images
}

#[test]
fn repeats_decoded_once_are_what_each_would_be_alone() {
    let files = Files::new(40);
    let reference = Files::new(40);
    let loader = Loader::new(files.split(), training(2, deit())).unwrap();
    let mut batches = loader.batches(0..5);
    for number in 0..5 {
        let batch = batches.next().unwrap().unwrap();
        // The places of an image that comes three times in a row, also across batches.
        let draws: Vec<(usize, u32)> =
            (0..8).map(|place| (batch.indices[place], ((8 * number + place) % 3) as u32)).collect();
        assert!(*batch.images == expected(&reference, &deit(), 0, &draws), "batch {number}");
        assert_eq!(batch.mixed.len(), 8);
        let labels: Vec<u32> = batch.indices.iter().map(|index| (index % 7) as u32).collect();
        assert_eq!(batch.labels, labels);
    }
    let stats = batches.stats();
    assert_eq!(stats.images, 40);
    // 40 draws are of 14 images; three of these are cut by the end of a batch, and decoded again.
    assert!((14..=18).contains(&stats.decoded), "{stats:?}");
    assert!(stats.busy(LoaderStage::Decode).as_nanos() > 0 && stats.bytes > 0);
}

#[test]
fn batches_depend_on_neither_workers_nor_readers_nor_where_they_begin() {
    let whole = all(&Loader::new(Files::new(50).split(), training(1, deit())).unwrap(), 0..12);
    for (workers, readers) in [(2, 1), (5, 3), (1, 7)] {
        let config = LoaderConfig { readers, ..training(workers, deit()) };
        let loader = Loader::new(Files::new(50).split(), config).unwrap();
        assert_eq!(loader.batches_per_epoch(), 6);
        for first in [0, 3, 7] {
            assert!(all(&loader, first..12) == whole[first as usize..], "{workers} {readers}");
        }
    }
}

#[test]
fn evaluation_is_the_evaluation_transform() {
    let files = Files::new(11);
    let reference = Files::new(11);
    let config = LoaderConfig::evaluation(4, SIZE, 2, 0.875);
    let batches = all(&Loader::new(files.split(), config).unwrap(), 0..3);
    let (mut decoder, mut evaluation) =
        (Decoder::new(DecodeLimits::default()).unwrap(), EvalTransform::new(0.875));
    let bytes = 3 * SIZE[0] * SIZE[1];
    for index in 0..11 {
        let (mut source, mut image) = (Pixels::default(), vec![0; bytes]);
        let _ = decoder.decode(&reference.files[index], &mut source).unwrap();
        evaluation.apply(&source, SIZE, &mut image);
        let batch = &batches[index / 4];
        assert!(batch.images[index % 4 * bytes..][..bytes] == image);
    }
    assert_eq!(batches[2].count, 3);
}

#[test]
fn a_file_that_is_read_at_the_third_try_is_read() {
    let files = Files::new(24);
    files.failures[3].store(2, Ordering::SeqCst);
    let want = all(&Loader::new(Files::new(24).split(), training(2, deit())).unwrap(), 0..3);
    let loader = Loader::new(files.split(), training(2, deit())).unwrap();
    let mut batches = loader.batches(0..3);
    let got: Vec<Batch> = batches.by_ref().map(Result::unwrap).collect();
    assert!(got == want && batches.take_bad().is_empty());
}

fn cut(files: &mut Files, indices: &[usize]) {
    for &index in indices {
        files.files[index].truncate(60);
    }
}

#[test]
fn bad_files_are_replaced_and_named_alike_by_any_number_of_threads() {
    let run = |workers| {
        let mut files = Files::new(50);
        cut(&mut files, &[4, 17, 30]);
        let recipe = Recipe { repeats: 1, ..deit() };
        let loader = Loader::new(files.split(), training(workers, recipe)).unwrap();
        let mut batches = loader.batches(0..12);
        let made: Vec<Batch> = batches.by_ref().map(Result::unwrap).collect();
        (made, batches.take_bad())
    };
    let (made, bad) = run(1);
    assert!(bad.len() >= 3, "in two epochs: {bad:?}");
    assert!(bad.iter().all(|bad| ["file 4", "file 17", "file 30"].contains(&&bad.name[..])));
    assert!(bad.iter().all(|bad| bad.reason.contains("cut short")), "{bad:?}");
    assert!(made.iter().all(|batch| batch.indices.iter().all(|i| ![4, 17, 30].contains(i))));
    for workers in [2, 5] {
        assert!(run(workers) == (made_again(&made), bad.clone()), "{workers} workers");
    }
}

/// A copy, which batches have none of.
fn made_again(batches: &[Batch]) -> Vec<Batch> {
    let copy = |batch: &Batch| Batch {
        images: batch.images.to_vec().into(),
        labels: batch.labels.clone(),
        indices: batch.indices.clone(),
        erased: batch.erased.clone(),
        mixed: batch.mixed.clone(),
        unread: batch.unread.clone(),
        ..*batch
    };
    batches.iter().map(copy).collect()
}

#[test]
fn too_many_bad_files_end_it() {
    let mut files = Files::new(40);
    cut(&mut files, &(0..30).collect::<Vec<_>>());
    let loader = Loader::new(files.split(), training(2, deit())).unwrap();
    let error = loader.batches(0..20).find_map(Result::err).unwrap();
    assert!(matches!(error, DataError::TooManyBad { count: 11.., .. }), "{error}");

    let mut files = Files::new(40);
    cut(&mut files, &(0..40).collect::<Vec<_>>());
    let loader = Loader::new(files.split(), training(2, deit())).unwrap();
    let results: Vec<_> = loader.batches(0..20).collect();
    assert!(matches!(&results[..], [Err(DataError::TooManyBad { .. })]));
}

#[test]
fn a_bad_file_fails_an_evaluation_or_counts_as_wrong() {
    let make = |on_bad| {
        let mut files = Files::new(10);
        cut(&mut files, &[6]);
        let config = LoaderConfig { on_bad, ..LoaderConfig::evaluation(4, SIZE, 2, 0.875) };
        let loader = Loader::new(files.split(), config).unwrap();
        loader.batches(0..3).collect::<Vec<_>>()
    };
    let failed = make(OnBad::Fail);
    assert_eq!(failed.len(), 2);
    let error = failed[1].as_ref().unwrap_err().to_string();
    assert!(error.contains("file 6") && error.contains("cut short"), "{error}");

    let counted: Vec<Batch> = make(OnBad::CountAsWrong).into_iter().map(Result::unwrap).collect();
    let unread: Vec<_> = counted.iter().map(|batch| batch.unread.clone()).collect();
    assert_eq!(unread, [vec![], vec![2], vec![]]);
    let bytes = 3 * SIZE[0] * SIZE[1];
    assert!(counted[1].images[2 * bytes..3 * bytes].iter().all(|&byte| byte == 0));
    assert_eq!(counted[1].labels[2], 6);
}

#[test]
fn an_odd_batch_cannot_be_mixed() {
    let config = LoaderConfig { batch_size: 7, ..training(1, deit()) };
    let error = Loader::new(Files::new(20).split(), config).unwrap_err().to_string();
    assert!(error.contains("train.batch_size = 7"), "{error}");
}

// Slabs and buffers are used again: what is allocated does not grow with the number of batches. A
// million batches of one tiny image, counted by the allocator's own books, would say no more than
// the addresses do.
#[test]
fn slabs_are_used_again() {
    let loader = Loader::new(Files::new(16).split(), training(2, deit())).unwrap();
    let mut places = std::collections::BTreeSet::new();
    for batch in loader.batches(0..300) {
        places.insert(batch.unwrap().images.as_ptr() as usize);
    }
    assert!(places.len() <= loader.max_in_flight() + 1, "{} slabs", places.len());
}
