//! A loader over encoded files: parts decoded, repeats, bad files, readers, memory.

use std::sync::atomic::Ordering;

use vim_data::{
    AugmentPreset, Batch, CropMode, CropPlan, DataError, DecodeLimits, Decoder, EvalTransform,
    Loader, LoaderConfig, LoaderStage, OnBad, Pixels, Recipe, Resizer, SampleKey, ops,
};

use crate::memory::Memory;

const SIZE: [usize; 2] = [48, 40];
/// ImageNet's mean colour.
const FILL: [u8; 3] = [124, 116, 104];

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
fn expected(
    files: &Memory,
    recipe: &Recipe,
    (epoch, fill): (u64, [u8; 3]),
    draws: &[(usize, u32)],
) -> Vec<u8> {
    let mut decoder = Decoder::new(DecodeLimits::default()).unwrap();
    let (mut resizer, mut scratch) = (Resizer::new(), ops::Scratch::default());
    let mut images = Vec::new();
    for &(index, repeat) in draws {
        let mut source = Pixels::default();
        let _ = decoder.decode(&files.images[index], &mut source).unwrap();
        let key = SampleKey { seed: 5, epoch, index: index as u64, repeat, attempt: 0 };
        let plan = recipe.draw(key, [source.height, source.width], SIZE);
        let CropPlan::Resized { region } = plan.crop else { panic!("{plan:?}") };
        let mut image = vec![0; 3 * SIZE[0] * SIZE[1]];
        resizer.resize(&source, region, SIZE, &mut image);
        if plan.flip {
            ops::flip(&mut image, SIZE);
        }
        for op in &plan.ops {
            op.apply(&mut image, SIZE, fill, &mut scratch);
        }
        images.extend(image);
    }
    images
}

#[test]
fn a_photograph_is_not_cut_to_a_small_piece_unless_that_is_written() {
    let padded = |recipe: Recipe| {
        let config = LoaderConfig { size: [32, 32], ..training(1, recipe) };
        let described = Loader::new(Memory::files(8).split(), config).unwrap().describe(0).unwrap();
        let crops = described.iter().map(|one| one.plan.as_ref().unwrap().crop);
        crops.filter(|crop| matches!(crop, CropPlan::Padded { .. })).count()
    };
    assert_eq!(padded(deit()), 0, "auto resizes");
    assert_eq!(padded(Recipe { crop: CropMode::Pad, ..deit() }), 8);
}

#[test]
fn what_comes_from_outside_an_image_has_the_colour_that_is_asked_for() {
    let config = || LoaderConfig::training(8, SIZE, 1, 5, Recipe { repeats: 1, ..deit() });
    let of = |fill| {
        let loader = Loader::new(Memory::files(8).split(), LoaderConfig { fill, ..config() });
        all(&loader.unwrap(), 0..1).remove(0)
    };
    let (mean, other) = (of(FILL), of([7, 200, 90]));
    assert_ne!(*mean.images, *other.images);
    let draws: Vec<(usize, u32)> = other.indices.iter().map(|&index| (index, 0)).collect();
    let recipe = Recipe { repeats: 1, ..deit() };
    assert!(*other.images == expected(&Memory::files(8), &recipe, (0, [7, 200, 90]), &draws));
    // A loader that is told nothing takes ImageNet's.
    assert_eq!(config().fill, FILL);
}

#[test]
fn repeats_decoded_once_are_what_each_would_be_alone() {
    let files = Memory::files(40);
    let reference = Memory::files(40);
    let loader = Loader::new(files.split(), training(2, deit())).unwrap();
    let mut batches = loader.batches(0..5);
    for number in 0..5 {
        let batch = batches.next().unwrap().unwrap();
        // The places of an image that comes three times in a row, also across batches.
        let draws: Vec<(usize, u32)> =
            (0..8).map(|place| (batch.indices[place], ((8 * number + place) % 3) as u32)).collect();
        assert!(
            *batch.images == expected(&reference, &deit(), (0, FILL), &draws),
            "batch {number}"
        );
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
    let whole = all(&Loader::new(Memory::files(50).split(), training(1, deit())).unwrap(), 0..12);
    for (workers, readers) in [(2, 1), (5, 3), (1, 7)] {
        let config = LoaderConfig { readers, ..training(workers, deit()) };
        let loader = Loader::new(Memory::files(50).split(), config).unwrap();
        assert_eq!(loader.batches_per_epoch(), 6);
        for first in [0, 3, 7] {
            assert!(all(&loader, first..12) == whole[first as usize..], "{workers} {readers}");
        }
    }
}

#[test]
fn evaluation_is_the_evaluation_transform() {
    let files = Memory::files(11);
    let reference = Memory::files(11);
    let config = LoaderConfig::evaluation(4, SIZE, 2, 0.875);
    let batches = all(&Loader::new(files.split(), config).unwrap(), 0..3);
    let (mut decoder, mut evaluation) =
        (Decoder::new(DecodeLimits::default()).unwrap(), EvalTransform::new(0.875));
    let bytes = 3 * SIZE[0] * SIZE[1];
    for index in 0..11 {
        let (mut source, mut image) = (Pixels::default(), vec![0; bytes]);
        let _ = decoder.decode(&reference.images[index], &mut source).unwrap();
        evaluation.apply(&source, SIZE, &mut image);
        let batch = &batches[index / 4];
        assert!(batch.images[index % 4 * bytes..][..bytes] == image);
    }
    assert_eq!(batches[2].count, 3);
}

#[test]
fn a_file_that_is_read_at_the_third_try_is_read() {
    let files = Memory::files(24);
    files.failures[3].store(2, Ordering::SeqCst);
    let want = all(&Loader::new(Memory::files(24).split(), training(2, deit())).unwrap(), 0..3);
    let loader = Loader::new(files.split(), training(2, deit())).unwrap();
    let mut batches = loader.batches(0..3);
    let got: Vec<Batch> = batches.by_ref().map(Result::unwrap).collect();
    assert!(got == want && batches.take_bad().is_empty());
}

fn cut(files: &mut Memory, indices: &[usize]) {
    for &index in indices {
        files.images[index].truncate(60);
    }
}

#[test]
fn bad_files_are_replaced_and_named_alike_by_any_number_of_threads() {
    let run = |workers| {
        let mut files = Memory::files(50);
        cut(&mut files, &[4, 17, 30]);
        let recipe = Recipe { repeats: 1, ..deit() };
        let loader = Loader::new(files.split(), training(workers, recipe)).unwrap();
        let mut batches = loader.batches(0..12);
        let made: Vec<Batch> = batches.by_ref().map(Result::unwrap).collect();
        (made, batches.take_bad())
    };
    let (made, bad) = run(1);
    assert!(bad.len() >= 3, "in two epochs: {bad:?}");
    assert!(bad.iter().all(|bad| ["image 4", "image 17", "image 30"].contains(&&bad.name[..])));
    assert!(bad.iter().all(|bad| bad.reason.contains("cut short")), "{bad:?}");
    assert!(made.iter().all(|batch| batch.indices.iter().all(|i| ![4, 17, 30].contains(i))));
    for workers in [2, 5] {
        let (made_by_many, bad_of_many) = run(workers);
        assert!(made_by_many == made && bad_of_many == bad, "{workers} workers");
    }
}

#[test]
fn too_many_bad_files_end_it() {
    let run = |bad: usize| -> Vec<_> {
        let mut files = Memory::files(40);
        cut(&mut files, &(0..bad).collect::<Vec<_>>());
        Loader::new(files.split(), training(2, deit())).unwrap().batches(0..20).collect()
    };
    let error = run(30).into_iter().find_map(Result::err).unwrap();
    assert!(matches!(error, DataError::TooManyBad { count: 11.., .. }), "{error}");
    assert!(matches!(&run(40)[..], [Err(DataError::TooManyBad { .. })]));
}

#[test]
fn a_bad_file_fails_an_evaluation_or_counts_as_wrong() {
    let make = |on_bad| {
        let mut files = Memory::files(10);
        cut(&mut files, &[6]);
        let config = LoaderConfig { on_bad, ..LoaderConfig::evaluation(4, SIZE, 2, 0.875) };
        let loader = Loader::new(files.split(), config).unwrap();
        loader.batches(0..3).collect::<Vec<_>>()
    };
    let failed = make(OnBad::Fail);
    assert_eq!(failed.len(), 2);
    let error = failed[1].as_ref().unwrap_err().to_string();
    assert!(error.contains("image 6") && error.contains("cut short"), "{error}");

    let counted: Vec<Batch> = make(OnBad::CountAsWrong).into_iter().map(Result::unwrap).collect();
    let unread: Vec<_> = counted.iter().map(|batch| batch.unread.clone()).collect();
    assert_eq!(unread, [vec![], vec![2], vec![]]);
    let bytes = 3 * SIZE[0] * SIZE[1];
    assert!(counted[1].images[2 * bytes..3 * bytes].iter().all(|&byte| byte == 0));
    assert_eq!(counted[1].labels[2], 6);
}

// Slabs and buffers are used again: what is allocated does not grow with the number of batches. A
// million batches of one tiny image, counted by the allocator's own books, would say no more than
// the addresses do.
#[test]
fn slabs_are_used_again() {
    let loader = Loader::new(Memory::files(16).split(), training(2, deit())).unwrap();
    let mut places = std::collections::BTreeSet::new();
    for batch in loader.batches(0..300) {
        places.insert(batch.unwrap().images.as_ptr() as usize);
    }
    assert!(places.len() <= loader.max_in_flight() + 1, "{} slabs", places.len());
}
