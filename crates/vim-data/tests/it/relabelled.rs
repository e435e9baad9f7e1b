//! Datasets under the labels of recorded classes: labels, label maps, objects, fingerprints.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use vim_data::{
    Class, ClassError, ClassMatch, CocoAnnotations, DataConfig, Encoding, EvalPair, EvalScene,
    LabelMap, Loader, OnBad, ShapesBackground, Split, Splits, match_classes,
};

use crate::fixture::shapes;
use crate::trees::{config, content, open, unpacked};
use crate::{coco_tree, pairs};

fn names(of: &[&str]) -> Vec<String> {
    of.iter().map(|&name| name.to_owned()).collect()
}

fn relabelled(splits: Splits, recorded: &[String]) -> Splits {
    let matched = match_classes(recorded, splits.train.class_names()).unwrap();
    splits.relabelled(recorded, &matched).unwrap()
}

fn fingerprint(split: &Split) -> String {
    split.dataset().fingerprint().to_string()
}

#[test]
fn images_of_classes_go_under_recorded_labels() {
    let root = unpacked();
    let data = DataConfig { val_fraction: 0.25, ..config(root.path()) };
    let of_data = open(&data).unwrap();
    let (before, print) = (content(&of_data.train), fingerprint(&of_data.train));
    let own = of_data.train.class_names().to_vec();
    let recorded = names(&["n03", "n00", "n01", "n02"]);
    let splits = relabelled(of_data.clone(), &recorded);
    for split in [&splits.train, splits.val.as_ref().unwrap(), &splits.test] {
        assert_eq!(split.class_names(), recorded);
        assert_eq!(split.num_classes(), 4);
        assert_eq!(split.encoding(), Encoding::Files);
        assert_eq!(split.empty_classes(), ["n00"]);
    }
    // The same images, by the names of their classes.
    assert!(content(&splits.train) == before);
    assert_eq!(splits.test.class_counts(), Some(vec![2, 0, 2, 2]));
    assert_eq!(splits.test.label(0), 2);
    assert_ne!(fingerprint(&splits.train), print);
    // And back: what was recorded of the data as they were has their fingerprint.
    let of_data = open(&config(root.path())).unwrap();
    let permuted = relabelled(of_data, &names(&["n03", "n01", "n02"]));
    assert_ne!(fingerprint(&permuted.train), print);
    assert_eq!(fingerprint(&relabelled(permuted, &own).train), print);
}

#[test]
fn what_is_as_recorded_stays_as_it_is() {
    let splits = vim_data::open::<Class>(&shapes(24, 0, 12)).unwrap();
    let own = splits.train.class_names().to_vec();
    let print = fingerprint(&splits.train);
    let same = relabelled(splits.clone(), &own);
    assert_eq!(fingerprint(&same.train), print);
    // Placeholders, as records without names have them.
    let placeholders: Vec<String> = (0..12).map(|class| format!("class {class}")).collect();
    let named = relabelled(splits, &placeholders);
    assert_eq!(named.test.class_names(), placeholders);
    let labels: Vec<Class> = (0..12).map(|position| named.test.label(position)).collect();
    assert_eq!(labels, (0..12).collect::<Vec<_>>());
}

#[test]
fn classes_that_were_not_recorded_are_refused() {
    let splits = vim_data::open::<Class>(&shapes(24, 0, 12)).unwrap();
    let own = splits.train.class_names().to_vec();
    let matched = match_classes(&own[2..], &own).unwrap();
    let error = splits.clone().relabelled(&own[2..], &matched).unwrap_err();
    assert_eq!(error, ClassError::Unknown { names: own[..2].to_vec() });
    let expected = format!("`{}` and `{}` are not among the recorded classes", own[0], own[1]);
    assert!(error.to_string().contains(&expected), "{error}");
    // A match of other lists.
    let other = match_classes(&names(&["a", "b"]), &names(&["b", "a"])).unwrap();
    for recorded in [&own[..], &names(&["a", "b"])] {
        let error = splits.clone().relabelled(recorded, &other).unwrap_err();
        assert!(matches!(error, ClassError::OtherMatch { classes: 12, matched: 2, .. }), "{error}");
    }
    let past_end = ClassMatch { labels: (1..=12).map(Some).collect(), ..ClassMatch::default() };
    let error = splits.relabelled(&own, &past_end).unwrap_err();
    assert!(matches!(error, ClassError::OtherMatch { .. }), "{error}");
}

/// Twelve classes in the order of [`CLASSES`] at each of these places.
const ORDER: [usize; 12] = [7, 2, 11, 0, 5, 1, 10, 3, 9, 4, 8, 6];
const CLASSES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

/// The scenes as pairs in `root`, the classes in this order.
fn write_pairs(root: &Path, order: &[usize]) -> DataConfig {
    let Splits { train, test, .. } = pairs::scenes(ShapesBackground::Ignored);
    let place = |class: u8| order.iter().position(|&one| one == usize::from(class)).unwrap() as u8;
    let mut files = Vec::new();
    for (part, split) in [("training", &train), ("validation", &test)] {
        for number in 0..split.len() {
            let vim_data::Sample { image, mut labels } = pairs::sample(split, number);
            labels
                .iter_mut()
                .filter(|label| **label > 0)
                .for_each(|label| *label = place(*label - 1) + 1);
            let image = vim_data::Pixels { height: pairs::SIDE, width: pairs::SIDE, data: image };
            let image = vim_data::encode_png(&image).unwrap();
            files.push((format!("images/{part}/{number:02}.png"), image));
            let labels = pairs::labels_png([pairs::SIDE; 2], &labels);
            files.push((format!("annotations/{part}/{number:02}.png"), labels));
        }
    }
    let list: String = order.iter().map(|&class| format!("{}\n", CLASSES[class])).collect();
    files.push(("classes.txt".to_owned(), list.into_bytes()));
    pairs::write_files(root, &files);
    DataConfig { classes: None, ..pairs::of_path(root) }
}

#[test]
fn label_maps_go_under_recorded_labels() {
    let root = tempfile::tempdir().unwrap();
    let open = |name: &str, order: &[usize]| {
        vim_data::open::<LabelMap>(&write_pairs(&root.path().join(name), order)).unwrap()
    };
    let recorded = open("recorded", &(0..12).collect::<Vec<_>>());
    let other = open("other", &ORDER);
    let all = |split: &Split| -> Vec<EvalPair> { pairs::pairs(split) };
    assert!(all(&other.train) != all(&recorded.train));
    assert_ne!(fingerprint(&other.train), fingerprint(&recorded.train));
    let colours = other.train.dataset().label_maps().unwrap().colours.clone();
    let mapped = relabelled(other.clone(), recorded.train.class_names());
    assert!(all(&mapped.train) == all(&recorded.train) && all(&mapped.test) == all(&recorded.test));
    assert_eq!(fingerprint(&mapped.train), fingerprint(&recorded.train));
    assert_eq!(mapped.train.class_names(), CLASSES);
    let maps = mapped.train.dataset().label_maps().unwrap();
    for (place, class) in ORDER.into_iter().enumerate() {
        assert_eq!(maps.colours[class], colours[place]);
    }
    let batches = |split: &Split| -> Vec<_> {
        let epoch = pairs::epoch(split, pairs::training(2)).into_iter();
        epoch.map(|batch| (batch.images.to_vec(), batch.label_maps.unwrap().to_vec())).collect()
    };
    assert!(batches(&mapped.train) == batches(&recorded.train));
    // More classes than the data have.
    let more = names(&["x", "a", "b", "c", "d", "e", "y", "f", "g", "h", "i", "j", "k", "l"]);
    let wider = relabelled(other, &more).test;
    let maps = wider.dataset().label_maps().unwrap();
    // `g` is the last class of the data.
    assert_eq!((maps.colours.len(), maps.colours[8]), (14, colours[11]));
    let place = |label: u8| match label {
        255 => 255,
        class @ 0..5 => class + 1,
        class => class + 2,
    };
    for (wide, pair) in all(&wider).into_iter().zip(all(&recorded.test)) {
        let expected: Vec<u8> = pair.map.labels.iter().map(|&label| place(label)).collect();
        assert_eq!(wide.map.labels, expected);
    }
}

#[test]
fn a_value_that_is_no_class_is_named_as_stored_under_recorded_labels() {
    let root = tempfile::tempdir().unwrap();
    let config = write_pairs(root.path(), &ORDER);
    let mut values = vec![1; pairs::SIDE * pairs::SIDE];
    values[7] = 13;
    let file = pairs::labels_png([pairs::SIDE; 2], &values);
    fs::write(root.path().join("annotations/training/00.png"), file).unwrap();
    let more: Vec<String> = CLASSES.into_iter().chain(["m", "n"]).map(str::to_owned).collect();
    let splits = relabelled(vim_data::open::<LabelMap>(&config).unwrap(), &more);
    let fails = vim_data::LoaderConfig { on_bad: OnBad::Fail, ..pairs::training(1) };
    let loader = Loader::new(splits.train.clone(), fails).unwrap();
    let error = loader.epoch(0, 0).find_map(Result::err).unwrap().to_string();
    assert!(error.contains("the value 13, and 12 classes are numbered 1 to 12"), "{error}");
    // In evaluation it is of no class, and no recorded one either.
    let first = pairs::pairs(&splits.train).swap_remove(0);
    assert_eq!((first.map.labels[6], first.map.labels[7]), (7, 254));
}

/// The scenes as COCO's in `root`; the category of class `order[i]` has the `i`-th number, as files
/// of another program may have it.
fn write_coco(root: &Path, order: &[usize]) {
    let mut files = coco_tree::files(false);
    let place = |class: usize| order.iter().position(|&one| one == class).unwrap();
    let class_of = |id: u64| (0..12).find(|&class| coco_tree::category(class) == id).unwrap();
    let number = |id: &Value| {
        let class = class_of(id.as_u64().unwrap());
        json!(coco_tree::category(place(class as usize) as u32) + 100)
    };
    for (name, bytes) in files.iter_mut().filter(|(name, _)| name.ends_with(".json")) {
        let mut content: Value = serde_json::from_slice(bytes).unwrap();
        for category in content["categories"].as_array_mut().unwrap() {
            category["id"] = number(&category["id"]);
        }
        for annotation in content["annotations"].as_array_mut().unwrap() {
            annotation["category_id"] = number(&annotation["category_id"]);
        }
        *bytes = content.to_string().into_bytes();
        assert!(name.starts_with("annotations/"));
    }
    coco_tree::write_folder(root, &files);
}

#[test]
fn objects_go_under_recorded_labels_and_keep_their_categories() {
    let root = tempfile::tempdir().unwrap();
    let (first, second) = (root.path().join("recorded"), root.path().join("other"));
    write_coco(&first, &(0..12).collect::<Vec<_>>());
    write_coco(&second, &ORDER);
    let recorded = coco_tree::open(&first).unwrap();
    let other = coco_tree::open(&second).unwrap();
    let all = |split: &Split| -> Vec<EvalScene> { coco_tree::scenes(split) };
    assert!(all(&other.test) != all(&recorded.test));
    assert_ne!(fingerprint(&other.train), fingerprint(&recorded.train));
    let mapped = relabelled(other.clone(), recorded.train.class_names());
    assert!(all(&mapped.train) == all(&recorded.train) && all(&mapped.test) == all(&recorded.test));
    assert_eq!(fingerprint(&mapped.train), fingerprint(&recorded.train));
    // Detections are written with the numbers that the data have.
    let classes = mapped.test.dataset().object_classes().unwrap();
    let of_data = other.test.dataset().object_classes().unwrap();
    for (place, class) in ORDER.into_iter().enumerate() {
        let category = Some(coco_tree::category(place as u32) + 100);
        assert_eq!(classes.categories[class], category);
        assert_eq!(classes.colours[class], of_data.colours[place]);
    }
    let json = |split: &Split| CocoAnnotations::of(split, OnBad::Fail).unwrap().json();
    let text = |split| String::from_utf8(json(split)).unwrap();
    assert_eq!(text(&mapped.test), text(&other.test));
    // A recorded class that the data lack has no number that could be written.
    let mut more = recorded.train.class_names().to_vec();
    more.insert(3, "newt".to_owned());
    let wider = relabelled(other.clone(), &more).test;
    let categories = &wider.dataset().object_classes().unwrap().categories;
    assert_eq!((categories.len(), categories[3]), (13, None));
    assert_eq!(categories[..3], classes.categories[..3]);
    assert_eq!(categories[4..], classes.categories[3..]);
    assert_eq!(text(&wider), text(&other.test));
    // Others have no object among so few images.
    assert_eq!(wider.empty_classes()[0], "newt");
}
