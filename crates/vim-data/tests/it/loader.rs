//! What a loader guarantees: order, keys, coverage.

use vim_data::{
    AugmentPreset, Batch, Class, CropPlan, Loader, LoaderConfig, Pixels, Recipe, SampleKey, Shards,
    Split, ops,
};

use crate::fixture::shapes;

fn split() -> Split {
    vim_data::open::<Class>(&shapes(101, 0, 5)).unwrap().train
}

fn loader(workers: usize, seed: u64) -> Loader {
    let recipe = Recipe::preset(AugmentPreset::Cifar);
    Loader::new(split(), LoaderConfig::training(8, [32, 32], workers, seed, recipe)).unwrap()
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
    assert_eq!(whole.len(), 12);
    assert_eq!(loader.batches_per_epoch(), 12);
    for first in 0..=12 {
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
fn batches_go_on_through_epochs() {
    let loader = loader(2, 3);
    let through: Vec<Batch> = loader.batches(20..30).map(Result::unwrap).collect();
    let apart =
        [epoch(&loader, 1, 8), epoch(&loader, 2, 0)].into_iter().flatten().collect::<Vec<_>>();
    assert!(through[..] == apart[..10]);
    assert_eq!(loader.batches(5..5).count(), 0);
}

#[test]
fn every_image_at_most_once_per_epoch_and_no_partial_batch() {
    let batches = epoch(&loader(3, 9), 4, 0);
    assert!(batches.iter().all(|batch| batch.len() == 8 && batch.count == 8));
    let mut seen: Vec<usize> = batches.iter().flat_map(|batch| batch.indices.clone()).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 96, "of 101, whole batches of 8");
}

// The shards of a batch are the batch, image by image, before mixing.
#[test]
fn shards_are_parts_of_a_batch() {
    let of = |batch_size, shards| -> Vec<Vec<(usize, u32, Vec<u8>)>> {
        let recipe = Recipe { repeats: 3, ..Recipe::preset(AugmentPreset::Cifar) };
        let config = LoaderConfig::training(batch_size, [32, 32], 2, 3, recipe);
        let loader = Loader::new(split(), LoaderConfig { shards, ..config }).unwrap();
        epoch(&loader, 1, 0)
            .iter()
            .map(|batch| {
                let images = batch.images.chunks_exact(3072).map(<[u8]>::to_vec);
                let images = batch.indices.iter().zip(&batch.labels).zip(images);
                images.map(|((&index, &label), image)| (index, label, image)).collect()
            })
            .collect()
    };
    let whole = of(24, Shards::WHOLE);
    for world in [2, 3] {
        let parts: Vec<_> =
            (0..world).map(|rank| of(24 / world, Shards::of_rank(rank, world, world))).collect();
        for (step, batch) in whole.iter().enumerate() {
            let together: Vec<_> =
                (0..24).map(|place| parts[place % world][step][place / world].clone()).collect();
            assert!(&together == batch, "step {step} of {world} shards");
        }
    }
}

// Bytes, mixing and the numbers of bad images' steps depend on the shard, not on who makes it.
#[test]
fn a_shard_is_the_same_in_every_loader() {
    let of = |shards: Shards| -> Vec<Batch> {
        let recipe = Recipe { repeats: 3, mixup: 0.8, ..Recipe::preset(AugmentPreset::Cifar) };
        let config = LoaderConfig::training(4, [32, 32], 2, 3, recipe);
        let loader = Loader::new(split(), LoaderConfig { shards, ..config }).unwrap();
        let per_epoch = loader.batches_per_epoch() as u64;
        // Past the end of an epoch.
        loader.batches(per_epoch - 2..per_epoch + 2).map(Result::unwrap).collect()
    };
    let all = of(Shards::of_rank(0, 1, 4));
    assert_eq!(all.len(), 16);
    assert!(all.iter().all(|batch| batch.mixed.len() == 4));
    assert!(all[0].mixed != all[1].mixed, "each shard is mixed by itself");
    for world in [2, 4] {
        let parts: Vec<Vec<Batch>> =
            (0..world).map(|rank| of(Shards::of_rank(rank, world, 4))).collect();
        let each = 4 / world;
        for (number, batch) in all.iter().enumerate() {
            let (step, shard) = (number / 4, number % 4);
            let part = &parts[shard / each][step * each + shard % each];
            assert!(part == batch, "step {step}, shard {shard} of {world} loaders");
        }
    }
}

#[test]
fn evaluation_is_the_split_as_it_is() {
    let all = split();
    let indices: Vec<usize> = (0..50).map(|i| 100 - 2 * i).collect();
    let subset = all.only(indices.clone());
    let config = LoaderConfig::evaluation(16, [32, 32], 2, 0.875);
    let loader = Loader::new(subset, config).unwrap();
    let batches = epoch(&loader, 0, 0);
    assert!(batches == epoch(&loader, 5, 0), "epochs are alike");
    assert_eq!(batches.iter().map(|batch| batch.count).collect::<Vec<_>>(), [16, 16, 16, 2]);
    let mut position = 0;
    for batch in &batches {
        assert_eq!((batch.height, batch.width, batch.len()), (32, 32, 16));
        assert!(batch.images[3072 * batch.count..].iter().all(|&byte| byte == 0));
        for (slot, pixels) in batch.images.chunks_exact(3072).take(batch.count).enumerate() {
            assert_eq!(batch.indices[slot], indices[position]);
            assert_eq!(batch.labels[slot], all.label(indices[position]));
            assert!(pixels == all.image(indices[position]).unwrap());
            position += 1;
        }
    }
    assert_eq!(position, 50);
}

// Whole batches, so that an image has the same neighbours; some loaders have one less, or none.
#[test]
fn loaders_evaluate_each_batch_once() {
    let of = |shards| {
        let config = LoaderConfig::evaluation(16, [32, 32], 2, 0.875);
        let loader = Loader::new(split(), LoaderConfig { shards, ..config }).unwrap();
        epoch(&loader, 0, 0)
    };
    let all = of(Shards::WHOLE);
    assert_eq!(all.len(), 7);
    for world in [2, 3, 7, 8] {
        let parts: Vec<Vec<Batch>> =
            (0..world).map(|rank| of(Shards::of_rank(rank, world, world))).collect();
        assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), 7);
        for (number, batch) in all.iter().enumerate() {
            assert!(&parts[number % world][number / world] == batch, "{number} of {world}");
        }
    }
}

#[test]
fn augmentation_is_keyed_by_seed_epoch_and_index() {
    let recipe = Recipe::preset(AugmentPreset::Cifar);
    // The same image at other places of a batch, of other batch sizes, is augmented alike.
    let image_of = |batch_size, number, index: usize| -> Option<Vec<u8>> {
        let config = LoaderConfig::training(batch_size, [32, 32], 2, 3, recipe.clone());
        let loader = Loader::new(split(), config).unwrap();
        epoch(&loader, number, 0).iter().find_map(|batch| {
            let slot = batch.indices.iter().position(|&at| at == index)?;
            Some(batch.images[slot * 3072..(slot + 1) * 3072].to_vec())
        })
    };
    let (mut checked, mut changed) = (0, 0);
    for index in [0, 17, 50, 99, 100] {
        let (Some(image), Some(again)) = (image_of(8, 2, index), image_of(5, 2, index)) else {
            continue; // left out with the last, partial batch
        };
        assert!(image == again);
        let key = SampleKey { seed: 3, epoch: 2, index: index as u64, repeat: 0, attempt: 0 };
        let plan = recipe.draw(key, [32, 32], [32, 32]);
        let CropPlan::Padded { padding, top, left } = plan.crop else { panic!("{plan:?}") };
        let source = Pixels { height: 32, width: 32, data: split().image(index).unwrap() };
        let mut expected = vec![0; 3072];
        ops::pad_crop(&source, padding, [top, left], [32, 32], &mut expected);
        if plan.flip {
            ops::flip(&mut expected, [32, 32]);
        }
        assert!(image == expected);
        checked += 1;
        changed += u32::from(image_of(8, 3, index).is_none_or(|other| image != other));
    }
    assert!(checked >= 4 && changed + 1 >= checked, "epochs augment differently");
}
