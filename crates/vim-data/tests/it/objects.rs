//! Images with objects: procedural ones, batches of them, and their evaluation.

use std::collections::BTreeSet;
use std::fs;

use serde_json::json;
use vim_data::mask_ops::Rle;
use vim_data::object_ops::fitted;
use vim_data::{
    Batch, CocoAnnotations, CocoDetections, CocoEvaluation, CocoKind, DataConfig, DataError,
    Detection, EvalPairs, EvalScenes, IGNORED, ImageObjects, LabelMap, Loader, LoaderConfig, Mask,
    Object, ObjectRecipe, OnBad, Pixels, Purpose, ShapesConfig, Targets,
};

use crate::coco_tree::{
    SIDE, as_annotated, drawn, epoch, files, open, scenes, shapes, spoiled, training, write_folder,
    write_zips,
};

/// If this fails, every published figure on them is void: change the version in the key instead.
#[test]
fn objects_of_shapes_are_pinned() {
    let mut hasher = blake3::Hasher::new();
    for scene in scenes(&drawn().train) {
        hasher.update(&scene.image.data);
        let ImageObjects { id, size, objects, left_out } = scene.objects;
        assert!(left_out.is_empty());
        let text = |one: &Object| {
            let Object { id, class, bbox, area, crowd, mask } = one;
            let mask = mask.as_ref().unwrap();
            format!(
                "Object {{ id: {id:?}, class: {class:?}, bbox: {bbox:?}, area: {area:?}, \
                 crowd: {crowd:?}, mask: {mask:?} }}"
            )
        };
        let objects: Vec<String> = objects.iter().map(text).collect();
        let objects = objects.join(", ");
        let text = format!("ImageObjects {{ id: {id:?}, size: {size:?}, objects: [{objects}] }}");
        hasher.update(text.as_bytes());
    }
    assert_eq!(hasher.finalize().to_hex()[..16], *"e656609e6b86de46");
}

#[test]
fn objects_are_what_is_seen_of_the_scenes_of_segmentation() {
    let config = shapes(200);
    let objects = scenes(&vim_data::open::<ImageObjects>(&config).unwrap().train);
    let pairs = vim_data::open::<LabelMap>(&config).unwrap().train;
    let pairs = EvalPairs::new(&pairs, (0..pairs.len()).collect(), 2, OnBad::Fail).unwrap();
    let (mut crowds, mut all, mut alike) = (0, 0, 0);
    let mut ids = BTreeSet::new();
    for (scene, pair) in objects.iter().zip(pairs) {
        let pair = pair.unwrap().unwrap();
        let mut labels = vec![IGNORED; SIDE * SIDE];
        for object in &scene.objects.objects {
            assert!(ids.insert(object.id), "a number of its own");
            let pixels = object.mask.as_ref().unwrap().pixels([SIDE; 2]);
            let places: Vec<usize> = (0..SIDE * SIDE).filter(|&at| pixels[at] == 1).collect();
            assert_eq!(object.area, Some(places.len() as f64));
            let ends = |of: fn(usize) -> usize| {
                let along = places.iter().map(|&at| of(at));
                (along.clone().min().unwrap() as f64, along.max().unwrap() as f64 + 1.0)
            };
            let ((left, right), (top, below)) = (ends(|at| at % SIDE), ends(|at| at / SIDE));
            assert_eq!(object.bbox, [left, top, right - left, below - top]);
            for at in places {
                assert_eq!(labels[at], IGNORED, "a pixel is of one object");
                labels[at] = object.class as u8;
            }
        }
        let of_image = scene.objects.objects.iter();
        crowds += of_image.clone().filter(|object| object.crowd).count();
        all += of_image.len();
        if !of_image.clone().any(|object| object.crowd) && scene.image == pair.image {
            assert_eq!(labels, pair.map.labels);
            alike += 1;
        }
    }
    // One in ten of 200 scenes' 2 figures; all the others are those of segmentation.
    assert!((20..=60).contains(&crowds) && all > 300, "{crowds} of {all}");
    assert!(alike > 120, "{alike}");
}

/// Checks that every target lies in the image's content and is around its mask.
fn check(targets: &Targets, size: usize) {
    assert_eq!(targets.boxes.len(), targets.classes.len());
    assert_eq!(targets.boxes.len(), targets.masks.len());
    let [rows, columns] = targets.size.map(|side| side as f32);
    for (&[x0, y0, x1, y1], mask) in targets.boxes.iter().zip(&targets.masks) {
        assert!(0.0 <= x0 && x0 < x1 && x1 <= columns, "{targets:?}");
        assert!(0.0 <= y0 && y0 < y1 && y1 <= rows, "{targets:?}");
        let pixels = mask.pixels([size; 2]);
        for at in (0..size * size).filter(|&at| pixels[at] == 1) {
            let (x, y) = ((at % size) as f32, (at / size) as f32);
            assert!(x > x0 - 1.0 && x < x1 && y > y0 - 1.0 && y < y1, "{x} {y} {mask:?}");
        }
    }
}

#[test]
fn batches_are_the_same_whatever_the_threads_and_the_files() {
    let root = tempfile::tempdir().unwrap();
    write_zips(root.path(), &files(false));
    let splits = open(root.path()).unwrap();
    let batches = epoch(&splits.train, training(1));
    assert!(!batches.is_empty());
    assert_eq!(epoch(&splits.train, training(3)), batches);
    for batch in &batches {
        assert_eq!((batch.targets.len(), batch.images.len()), (4, 4 * 3 * SIDE * SIDE));
        batch.targets.iter().for_each(|targets| check(targets, SIDE));
        for (slot, targets) in batch.targets.iter().enumerate() {
            let padded = batch.erased.iter().filter(|(of, _)| *of == slot);
            let padded: usize = padded.map(|(_, one)| one.region.height * one.region.width).sum();
            assert_eq!(padded, SIDE * SIDE - targets.size[0] * targets.size[1]);
        }
    }
    // Small ones are there as well as large ones.
    let sizes: Vec<[usize; 2]> =
        batches.iter().flat_map(|batch| batch.targets.iter().map(|one| one.size)).collect();
    assert!(sizes.contains(&[SIDE; 2]) && sizes.iter().any(|size| size[0] < SIDE / 2));
    // A later start makes the same.
    let loader = Loader::new(splits.train.clone(), training(2)).unwrap();
    let late: Vec<Batch> = loader.epoch(1, 1).map(Result::unwrap).collect();
    assert_eq!(late, batches[1..]);
    // The images of a batch are described by what was done to them.
    let described = loader.describe(loader.batches_per_epoch() as u64).unwrap();
    let indices: Vec<usize> = described.iter().map(|one| one.index).collect();
    assert_eq!(indices, batches[0].indices);
    for (one, targets) in described.iter().zip(&batches[0].targets) {
        assert_eq!(one.objects.unwrap().resized.map(|side| side.min(SIDE)), targets.size);
    }
}

#[test]
fn polygons_are_carried_along_exactly() {
    let root = tempfile::tempdir().unwrap();
    write_folder(root.path(), &files(true));
    let train = open(root.path()).unwrap().train;
    let loader = Loader::new(train.clone(), training(1)).unwrap();
    for number in 0..8 {
        let described = loader.describe(number).unwrap();
        let batch = loader.batches(number..number + 1).next().unwrap().unwrap();
        for (one, targets) in described.iter().zip(&batch.targets) {
            let plan = one.objects.unwrap();
            check(targets, SIDE);
            let ImageObjects { objects, .. } = train.dataset().objects(one.index).unwrap();
            // The polygons are the boxes: what is left of the one is what is left of the other.
            let scale = [1, 0].map(|axis| plan.resized[axis] as f64 / SIDE as f64);
            let moved = objects.iter().filter(|object| !object.crowd).filter_map(|object| {
                let [x, y, width, height] = object.bbox;
                let x = if plan.flip { SIDE as f64 - x - width } else { x };
                let [content_y, content_x] = targets.size.map(|side| side as f64);
                let x = [x, x + width]
                    .map(|x| (x * scale[0] - plan.corner[1] as f64).clamp(0.0, content_x) as f32);
                let y = [y, y + height]
                    .map(|y| (y * scale[1] - plan.corner[0] as f64).clamp(0.0, content_y) as f32);
                (x[0] < x[1] && y[0] < y[1]).then_some(([x[0], y[0], x[1], y[1]], object.class))
            });
            let moved: Vec<([f32; 4], u32)> = moved.collect();
            assert_eq!(moved.len(), targets.boxes.len(), "{plan:?}");
            for ((moved, class), (ours, of)) in
                moved.iter().zip(targets.boxes.iter().zip(&targets.classes))
            {
                assert_eq!(class, of);
                let far = moved.iter().zip(ours).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(far < 1e-4, "{moved:?} {ours:?}");
            }
        }
    }
}

/// Where nothing is resized or cut, nothing changes but for the mirror.
#[test]
fn runs_are_mirrored_with_the_image() {
    let recipe = ObjectRecipe { scale: [1.0, 1.0], hflip: 1.0 };
    let config = LoaderConfig { purpose: Purpose::Objects(recipe), ..training(1) };
    let train = drawn().train;
    for batch in epoch(&train, config) {
        let images = batch.images.chunks_exact(3 * SIDE * SIDE);
        for ((&index, image), targets) in batch.indices.iter().zip(images).zip(&batch.targets) {
            let scene = scenes(&train.only(vec![index])).swap_remove(0);
            let mirrored = |row: usize, column: usize| row * SIDE + SIDE - 1 - column;
            for (row, column) in (0..SIDE).flat_map(|y| (0..SIDE).map(move |x| (y, x))) {
                let (to, from) = (row * SIDE + column, mirrored(row, column));
                assert_eq!(image[3 * to..][..3], scene.image.data[3 * from..][..3]);
            }
            let objects = scene.objects.objects.iter().filter(|object| !object.crowd);
            let objects: Vec<_> = objects.collect();
            assert_eq!(objects.len(), targets.masks.len());
            for (object, mask) in objects.iter().zip(&targets.masks) {
                let theirs = object.mask.as_ref().unwrap();
                let (ours, theirs) = (mask.pixels([SIDE; 2]), theirs.pixels([SIDE; 2]));
                let places = (0..SIDE).flat_map(|y| (0..SIDE).map(move |x| (y, x)));
                assert!({ places }.all(|(y, x)| ours[y * SIDE + x] == theirs[mirrored(y, x)]));
            }
        }
    }
}

#[test]
fn an_evaluation_reads_whole_images_and_fails_or_counts_bad_ones() {
    // The images are in falling order: the last is the first file.
    let (_root, folder) = spoiled("val2017", true, "/images/5/height", json!(47));
    let test = open(&folder).unwrap().test;
    let all = |on_bad| EvalScenes::new(&test, (0..6).collect(), 2, on_bad).unwrap();
    assert!(all(OnBad::Fail).any(|scene| matches!(scene, Err(DataError::BadImage { .. }))));
    let results: Vec<_> = all(OnBad::CountAsWrong).map(Result::unwrap).collect();
    assert_eq!(results.iter().filter(|scene| scene.is_err()).count(), 1);
    let rest = CocoAnnotations::of(&test, OnBad::CountAsWrong).unwrap();
    assert_eq!(rest.num_images(), 6, "what is to be found there counts");
    let Pixels { height, width, .. } = scenes(&drawn().test)[0].image;
    assert_eq!(fitted([height, width], 2 * SIDE), [2 * SIDE; 2]);
}

#[test]
fn an_evaluation_compares_the_box_of_an_object_without_a_mask() {
    let sound = CocoAnnotations::of(&drawn().test, OnBad::Fail).unwrap();
    let nothing = CocoDetections::of(&sound, []).unwrap();
    let objects = |truths: &CocoAnnotations, kind| -> (usize, [usize; 2]) {
        let scores = CocoEvaluation::new(truths, &nothing, kind).unwrap().scores();
        let objects = scores.classes.iter().map(|class| class.objects).sum();
        (objects, [scores.unusable.left_out, scores.unusable.ignored])
    };
    let (all, _) = objects(&sound, CocoKind::Bbox);
    let (mask, side) = ("/annotations/0/segmentation", "/annotations/0/bbox/2");
    for (pointer, value, boxes, masks) in [
        (mask, json!([[1, 2]]), (all, [0, 0]), (all - 1, [0, 1])),
        (side, json!(-1), (all - 1, [0, 0]), (all - 1, [0, 0])),
    ] {
        let (_root, folder) = spoiled("val2017", false, pointer, value);
        let test = open(&folder).unwrap().test;
        assert_eq!(scenes(&test).len(), 6, "every image is evaluated");
        let truths = CocoAnnotations::of(&test, OnBad::Fail).unwrap();
        let left_out = |(objects, [_, ignored]): (usize, [usize; 2])| {
            (objects, [usize::from(pointer == side), ignored])
        };
        assert_eq!(objects(&truths, CocoKind::Bbox), left_out(boxes));
        assert_eq!(objects(&truths, CocoKind::Segm), left_out(masks));
        // What is written is what is compared.
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), truths.json()).unwrap();
        let again = CocoAnnotations::read(file.path()).unwrap();
        assert_eq!(objects(&again, CocoKind::Bbox), boxes);
        assert_eq!(objects(&again, CocoKind::Segm), masks);
    }
}

#[test]
fn scenes_can_be_made_simpler() {
    let few = |textures, figures, scale| {
        let DataConfig { shapes, .. } = shapes(60);
        let shapes = ShapesConfig { textures, figures, scale, ..shapes };
        vim_data::open::<ImageObjects>(&DataConfig { shapes, ..DataConfig::default() })
    };
    let usual = ShapesConfig::default();
    let split = few(1, 1, [0.2, 0.3]).unwrap().train;
    let solid = ["solid disk", "solid square", "solid triangle", "solid cross"];
    assert_eq!(split.class_names(), solid);
    for scene in scenes(&split) {
        let [object] = &scene.objects.objects[..] else { panic!("{:?}", scene.objects) };
        // 0.44 of the side at most, on both sides of the middle, and a pixel of outline.
        let most = 0.3 * 0.88 * SIDE as f64 + 2.0;
        assert!(object.class < 4 && object.bbox[2].max(object.bbox[3]) < most, "{object:?}");
    }
    let same = few(usual.textures, usual.figures, usual.scale).unwrap().train;
    let default = vim_data::open::<ImageObjects>(&shapes(60)).unwrap().train;
    let prints = [&split, &same, &default].map(|split| split.dataset().fingerprint().to_string());
    assert!(prints[0] != prints[1] && prints[1] == prints[2], "{prints:?}");
    for (textures, figures, scale, key) in [
        (0, 3, [0.5, 0.9], "data.shapes.textures"),
        (4, 3, [0.5, 0.9], "data.shapes.textures"),
        (3, 0, [0.5, 0.9], "data.shapes.figures"),
        (3, 13, [0.5, 0.9], "data.shapes.figures"),
        (3, 3, [0.9, 0.5], "data.shapes.scale"),
        (3, 3, [0.0, 0.5], "data.shapes.scale"),
        (3, 3, [0.5, 1.1], "data.shapes.scale"),
    ] {
        let error = few(textures, figures, scale).unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
}

#[test]
fn what_is_annotated_scores_1_and_is_read_as_it_was_written() {
    let test = drawn().test;
    let truths = CocoAnnotations::of(&test, OnBad::Fail).unwrap();
    let found = CocoDetections::of(&truths, as_annotated(&test)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("detections.json");
    fs::write(&path, found.json()).unwrap();
    let read = CocoDetections::read(&path, &truths).unwrap();
    assert_eq!(read.json(), found.json());
    for kind in [CocoKind::Bbox, CocoKind::Segm] {
        for found in [&found, &read] {
            let scores = CocoEvaluation::new(&truths, found, kind).unwrap().scores();
            assert!((scores.numbers[0].unwrap() - 1.0).abs() < 1e-12, "{scores:?}");
        }
    }
    let stray = Detection { image: 99, category: 1, score: 0.5, bbox: [0.0; 4], mask: None };
    let error = CocoDetections::of(&truths, [stray]).unwrap_err().to_string();
    assert!(error.contains("image 99"), "{error}");
    let small = Rle { h: 1, w: 1, counts: vec![1] };
    let misfit = Detection {
        image: 1,
        category: 1,
        score: 0.5,
        bbox: [0.0; 4],
        mask: Some(Mask::Runs(small)),
    };
    let error = CocoDetections::of(&truths, [misfit]).unwrap_err().to_string();
    assert!(error.contains("1 × 1"), "{error}");
}
