//! What a loader guarantees: order, keys, coverage.

use std::sync::Arc;

use vim_data::{
    Augment, AugmentPlan, Batch, Dataset, Loader, LoaderConfig, Shapes, ShapesPart, Split,
};

use crate::fixture::shapes;

fn split() -> Split {
    vim_data::open(&shapes(101, 0, 5), 0).unwrap().train
}

fn loader(workers: usize, seed: u64) -> Loader {
    let config = LoaderConfig::training(8, workers, seed, Augment::Cifar);
    Loader::new(split(), LoaderConfig { drop_last: false, ..config }).unwrap()
}

fn epoch(loader: &Loader, epoch: u64, first_batch: usize) -> Vec<Batch> {
    loader.epoch(epoch, first_batch).map(Result::unwrap).collect()
}

#[test]
fn batches_do_not_depend_on_the_number_of_workers() {
    let one = loader(1, 3);
    for workers in [2, 5, 40] {
        let many = loader(workers, 3);
        for number in 0..3 {
            assert!(epoch(&one, number, 0) == epoch(&many, number, 0), "{workers} workers");
        }
    }
}

#[test]
fn an_epoch_can_be_entered_at_any_batch() {
    let loader = loader(2, 3);
    let whole = epoch(&loader, 7, 0);
    assert_eq!(whole.len(), 13);
    assert_eq!(loader.batches_per_epoch(), 13);
    for first in 0..=13 {
        assert!(epoch(&loader, 7, first) == whole[first..], "from {first}");
    }
    assert!(epoch(&loader, 7, 99).is_empty());
}

#[test]
fn epochs_and_seeds_have_orders_of_their_own() {
    let order = |seed, number| -> Vec<usize> {
        epoch(&loader(2, seed), number, 0).into_iter().flat_map(|batch| batch.indices).collect()
    };
    let ascending: Vec<usize> = (0..101).collect();
    let first = order(1, 0);
    for other in [order(1, 1), order(2, 0), order(0, 1), ascending.clone()] {
        assert_ne!(first, other);
    }
    assert_eq!(first, order(1, 0));
}

#[test]
fn every_image_once_per_epoch() {
    let batches = epoch(&loader(3, 9), 4, 0);
    let sizes: Vec<usize> = batches.iter().map(Batch::len).collect();
    assert_eq!(sizes, [[8; 12].as_slice(), &[5]].concat());
    let mut seen: Vec<usize> = batches.iter().flat_map(|batch| batch.indices.clone()).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..101).collect::<Vec<_>>());
}

#[test]
fn training_drops_the_partial_batch() {
    let config = LoaderConfig::training(8, 2, 0, Augment::None);
    let loader = Loader::new(split(), config).unwrap();
    let batches = epoch(&loader, 0, 0);
    assert_eq!((batches.len(), loader.batches_per_epoch()), (12, 12));
    assert!(batches.iter().all(|batch| batch.len() == 8));
}

#[test]
fn evaluation_is_the_split_as_it_is() {
    let all = split();
    let indices: Vec<usize> = (0..50).map(|i| 100 - 2 * i).collect();
    let subset = Split::subset(dataset(), indices.clone());
    let loader = Loader::new(subset.clone(), LoaderConfig::evaluation(16, 2)).unwrap();
    let batches = epoch(&loader, 0, 0);
    assert_eq!(batches.last().map(Batch::len), Some(2));
    assert!(batches == epoch(&loader, 5, 0), "epochs are alike");
    let mut position = 0;
    for batch in &batches {
        assert_eq!((batch.height, batch.width), (32, 32));
        for (slot, pixels) in batch.images.chunks_exact(3 * 32 * 32).enumerate() {
            assert_eq!(batch.indices[slot], indices[position]);
            assert_eq!(batch.labels[slot], all.label(indices[position]));
            assert!(pixels == all.image(indices[position]).unwrap());
            position += 1;
        }
    }
    assert_eq!(position, 50);
}

fn dataset() -> Arc<dyn Dataset> {
    let part = ShapesPart::Train;
    Arc::new(Shapes::new(shapes(101, 0, 5).shapes, part).unwrap())
}

#[test]
fn augmentation_is_keyed_by_seed_epoch_and_index() {
    // The same image at other places of a batch, of other batch sizes, is augmented alike.
    let image_of = |batch_size, number, index: usize| -> Vec<u8> {
        let config = LoaderConfig::training(batch_size, 2, 3, Augment::Cifar);
        let config = LoaderConfig { drop_last: false, ..config };
        let loader = Loader::new(split(), config).unwrap();
        for batch in epoch(&loader, number, 0) {
            if let Some(slot) = batch.indices.iter().position(|&at| at == index) {
                return batch.images[slot * 3072..(slot + 1) * 3072].to_vec();
            }
        }
        panic!("image {index} is missing");
    };
    let mut changed = 0;
    for index in [0, 17, 100] {
        let image = image_of(8, 2, index);
        assert!(image == image_of(7, 2, index));
        let mut expected = vec![0; 3072];
        let plan = AugmentPlan::draw(Augment::Cifar, 3, 2, index);
        plan.apply(&split().image(index).unwrap(), 32, &mut expected);
        assert!(image == expected);
        changed += u32::from(image != image_of(8, 3, index));
    }
    assert!(changed >= 2, "epochs augment differently");
}
