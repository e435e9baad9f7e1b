//! What a new version of the configuration format changed in what a file means, and how a file of
//! an older version keeps its meaning.

use std::collections::BTreeMap;

use toml::{Table, Value};
use vim_data::DatasetKind;

/// Version of the configuration format that this program writes, and of files that name none.
pub const VERSION: u64 = 3;

/// The oldest version that this program reads.
pub const OLDEST: u64 = 1;

/// The steps from [`OLDEST`] to [`VERSION`], one from each version to the next: each writes, where
/// a file says nothing, the keys that express what the older version meant.
const STEPS: [fn(&mut Table); (VERSION - OLDEST) as usize] = [as_version_1_did, as_version_2_did];

const VAL_FRACTION: &str = "data.val_fraction";
const VAL_SEED: &str = "data.val_seed";
const VAL_RULE: &str = "data.val_rule";
const RUN_SEED: &str = "run.seed";
/// How version 1 rounded the numbers of held-out images.
const ROUNDED: &str = "rounded";
/// Where version 1 let the patch embedding start: every record of a later one has the key.
const PATCH_INIT: (&str, &str) = ("model.patch_init", "truncated");
/// Whose mean colour version 1 filled with: records have the key where it makes a difference.
const FILL: (&str, &str) = ("augment.fill", "imagenet");
/// Whose running statistics version 1 gave an average: likewise.
const EMA_STATISTICS: (&str, &str) = ("train.ema_statistics", "model");
/// Which parts version 2 read of folders of classes and of COCO's files, whose category above all
/// others was a class: records of a later one of such have the key.
const PARTS: (&str, &str) = ("data.parts", "train_val");
/// How often version 2 recorded a training; no result depends on it.
const LOG_EVERY: (&str, &str) = ("log.every", "50st");
/// How version 2 read images with label maps or objects: later records of such have the key.
const EXIF: (&str, &str) = ("data.exif", "ignore");

/// From 1 to 2: held-out images have a seed of their own, and leave each class a training image;
/// patches start as in the original, RandAugment fills with the mean that normalises, and running
/// statistics are averaged.
fn as_version_1_did(table: &mut Table) {
    let seed = table.get("run").and_then(|run| run.get("seed")).cloned();
    if let Some(Value::Table(data)) = table.get_mut("data")
        && data.get("val_fraction").is_some_and(holds_out)
    {
        data.entry("val_seed").or_insert_with(|| seed.unwrap_or(Value::Integer(0)));
        data.entry("val_rule").or_insert_with(|| ROUNDED.into());
    }
    set_default(table, PATCH_INIT);
    let says = |section: &str, key: &str, value: &str| {
        let found = table.get(section).and_then(|section| section.get(key));
        found.and_then(Value::as_str) == Some(value)
    };
    if says("data", "normalize", "dataset") && !says("augment", "auto_augment", "") {
        set_default(table, FILL);
    }
    let is_segmenter = table.get("task").and_then(Value::as_str) == Some("segmentation");
    if is_segmenter && table.get("train").is_some_and(|train| train.get("ema").is_some()) {
        set_default(table, EMA_STATISTICS);
    }
}

/// From 2 to 3: folders of classes may have three parts, or the training part alone, and COCO's
/// files a category above all others that is no class; images with label maps or objects are turned
/// as their EXIF orientation says; and short trainings are recorded more often.
fn as_version_2_did(table: &mut Table) {
    set_default(table, LOG_EVERY);
    let dataset = table.get("data").and_then(|data| data.get("dataset")).cloned();
    if dataset.as_ref().is_some_and(has_parts) {
        set_default(table, PARTS);
    }
    if dataset.as_ref().is_some_and(is_dense) {
        set_default(table, EXIF);
    }
}

/// Whether this value of `data.dataset` has parts.
fn has_parts(dataset: &Value) -> bool {
    matches!(dataset.as_str(), Some("folder" | "coco"))
}

/// Whether this value of `data.dataset` is of files with label maps or objects.
fn is_dense(dataset: &Value) -> bool {
    let kind = dataset.clone().try_into::<DatasetKind>();
    kind.is_ok_and(|kind| kind.has_pairs() || kind.has_objects())
}

/// Writes the value of a key in a section, unless there is one.
fn set_default(table: &mut Table, (key, value): (&str, &str)) {
    let (section, name) = key.split_once('.').expect("invariant: a key has a section");
    let section = table.entry(section).or_insert_with(|| Table::new().into());
    // What is no section is left for the decoder to refuse.
    if let Value::Table(section) = section {
        section.entry(name).or_insert_with(|| value.into());
    }
}

/// Whether this value of `data.val_fraction` holds images out.
fn holds_out(fraction: &Value) -> bool {
    fraction.as_float().or(fraction.as_integer().map(|whole| whole as f64)).unwrap_or(0.0) > 0.0
}

/// The version that a file's table has.
pub(super) fn version_of(table: &Table) -> u64 {
    let written = table.get("version").and_then(Value::as_integer);
    written.and_then(|number| u64::try_from(number).ok()).unwrap_or(VERSION)
}

/// Makes `table`, with all layers and assignments, one of [`VERSION`] that means the same; one of
/// an unknown version stays as it is.
pub(crate) fn upgrade(table: &mut Table) {
    let version = version_of(table);
    if !(OLDEST..VERSION).contains(&version) {
        return;
    }
    for (from, step) in (OLDEST..).zip(STEPS) {
        if from >= version {
            step(table);
        }
    }
    table.insert("version".to_owned(), Value::Integer(VERSION as i64));
}

/// The effective `values` in the oldest version that can express them: what gives the same results
/// has the same values, whichever version wrote it. Ids and comparisons of runs are of these.
///
/// The version is [`OLDEST`] in all: keys that only a newer one has stand beside it.
pub(crate) fn canonical(mut values: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    values.insert("version".to_owned(), Value::Integer(OLDEST as i64));
    let is_rounded = values.get(VAL_RULE).and_then(Value::as_str) == Some(ROUNDED);
    if is_rounded && values.get(VAL_SEED) == values.get(RUN_SEED) {
        values.remove(VAL_RULE);
        values.remove(VAL_SEED);
    }
    for (key, old) in [PATCH_INIT, FILL, EMA_STATISTICS, PARTS, EXIF, LOG_EVERY] {
        if values.get(key).and_then(Value::as_str) == Some(old) {
            values.remove(key);
        }
    }
    values
}

/// The version in whose words [canonical] values, of all keys, mean what they do.
pub(crate) fn meant_version(values: &BTreeMap<String, Value>) -> u64 {
    let holds_out = values.get(VAL_FRACTION).is_some_and(holds_out);
    let is_old =
        (holds_out && !values.contains_key(VAL_SEED)) || !values.contains_key(PATCH_INIT.0);
    let dataset = values.get("data.dataset");
    let lacks = |(key, _): (&str, &str)| !values.contains_key(key);
    let is_second = (dataset.is_some_and(has_parts) && lacks(PARTS))
        || (dataset.is_some_and(is_dense) && lacks(EXIF));
    match (is_old, is_second) {
        (true, _) => 1,
        (false, true) => 2,
        (false, false) => VERSION,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, dotted_values};
    use super::*;

    fn upgraded(text: &str) -> Table {
        let mut table = text.parse().unwrap();
        upgrade(&mut table);
        table
    }

    fn same(text: &str, expected: &str) {
        let expected = expected.replace("version = now", &format!("version = {VERSION}"));
        assert_eq!(upgraded(text), expected.parse().unwrap(), "{text}");
    }

    /// What the step adds to every file.
    const MODEL: &str = "model = { patch_init = \"truncated\" }\nlog = { every = \"50st\" }";

    #[test]
    fn version_1_held_images_out_by_the_runs_seed() {
        let rounded = |data: &str, run: &str, fraction: &str, seed: u64| {
            same(
                &format!("version = 1\n{run}\ndata = {{ {fraction}{data} }}"),
                &format!(
                    "version = now\n{MODEL}\n{run}\ndata = {{ {fraction}, val_seed = {seed}, \
                     val_rule = \"rounded\" }}"
                ),
            );
        };
        rounded("", "run.seed = 3", "val_fraction = 0.1", 3);
        rounded("", "", "val_fraction = 0.1", 0);
        rounded(", val_seed = 7", "run.seed = 3", "val_fraction = 0.1", 7);
    }

    #[test]
    fn version_1_started_filled_and_averaged_otherwise() {
        same("version = 1", &format!("version = now\n{MODEL}"));
        let dataset = "data.normalize = \"dataset\"\n";
        same(
            &format!("version = 1\n{dataset}"),
            &format!("version = now\n{MODEL}\n{dataset}augment.fill = \"imagenet\""),
        );
        let segmenter = "task = \"segmentation\"\ntrain = { ema = 0.9";
        same(
            &format!("version = 1\n{segmenter} }}"),
            &format!("version = now\n{MODEL}\n{segmenter}, ema_statistics = \"model\" }}"),
        );
        // What is written counts.
        let written = "task = \"segmentation\"\nmodel.patch_init = \"timm\"\n\
                       data.normalize = \"dataset\"\naugment.fill = \"dataset\"\n\
                       train.ema = 0.9\ntrain.ema_statistics = \"averaged\"\n\
                       log.every = \"1ep\"";
        same(&format!("version = 1\n{written}"), &format!("version = now\n{written}"));
        // A section that is none is left to the decoder.
        same("version = 1\nmodel = 3\nlog = 3", "version = now\nmodel = 3\nlog = 3");
    }

    #[test]
    fn version_2_tested_the_validation_part_of_folders() {
        let folder = "data = { dataset = \"folder\", path = \"x\"";
        let old = format!("version = 2\n{folder} }}");
        let every = "log.every = \"50st\"";
        same(&old, &format!("version = now\n{folder}, parts = \"train_val\" }}\n{every}"));
        let written = format!("{folder}, parts = \"train_test\" }}");
        same(&format!("version = 2\n{written}"), &format!("version = now\n{written}\n{every}"));
        let imagenet = folder.replace("folder", "imagenet");
        let now = format!("version = now\n{imagenet} }}\n{every}");
        same(&format!("version = 2\n{imagenet} }}"), &now);
        let of = |text: &str| canonical(dotted_values(&Config::from_toml(text).unwrap()));
        let (old, open) = (of(&old), of(&format!("{folder} }}")));
        assert!(!old.contains_key("data.parts") && meant_version(&old) == 2);
        assert_eq!(open["data.parts"].as_str(), Some("auto"));
        assert_eq!(meant_version(&open), VERSION);
        assert_eq!(of(&format!("{folder}, parts = \"train_val\" }}\n{every}")), old);
    }

    #[test]
    fn version_2_turned_no_image() {
        let of = |text: &str| canonical(dotted_values(&Config::from_toml(text).unwrap()));
        for dataset in ["coco", "pairs", "ade20k"] {
            let data = format!("data = {{ dataset = {dataset:?}, path = \"x\"");
            let old = format!("version = 2\n{data} }}");
            let every = "log.every = \"50st\"";
            let parts = if dataset == "coco" { ", parts = \"train_val\"" } else { "" };
            same(&old, &format!("version = now\n{data}, exif = \"ignore\"{parts} }}\n{every}"));
            let written = format!("{data}, exif = \"apply\"");
            let now = format!("version = now\n{written}{parts} }}\n{every}");
            same(&format!("version = 2\n{written} }}"), &now);
            let (old, new) = (of(&old), of(&format!("{data} }}")));
            assert!(!old.contains_key(EXIF.0) && meant_version(&old) == 2);
            assert_eq!(new[EXIF.0].as_str(), Some("apply"));
            assert_eq!(meant_version(&new), VERSION);
            assert_eq!(of(&format!("{data}, exif = \"ignore\"{parts} }}\n{every}")), old);
            // A category above all others is a class in the one, and none in the other.
            let open = of(&format!("{data}, exif = \"ignore\" }}\n{every}"));
            assert_eq!(open == old, parts.is_empty());
        }
        for dataset in ["cifar10", "imagenet", "shapes"] {
            let data = format!("data = {{ dataset = {dataset:?}, path = \"x\" }}");
            let now = format!("version = now\n{data}\nlog.every = \"50st\"");
            same(&format!("version = 2\n{data}"), &now);
            let new = of(&data);
            assert!(!new.contains_key(EXIF.0) && meant_version(&new) == VERSION);
        }
    }

    #[test]
    fn nothing_else_changes() {
        for fraction in ["0", "0.0", "nan"] {
            let rest = format!("run.seed = 3\ndata.val_fraction = {fraction}");
            let table = upgraded(&format!("version = 1\n{rest}"));
            assert!(!table["data"].as_table().unwrap().contains_key("val_seed"), "{fraction}");
        }
        for rest in [
            "data.normalize = \"imagenet\"\ntrain.ema = 0.9",
            "data.normalize = \"dataset\"\naugment.auto_augment = \"\"",
            "task = \"segmentation\"\ntrain.epochs = 3",
        ] {
            same(&format!("version = 1\n{rest}"), &format!("version = now\n{MODEL}\n{rest}"));
        }
        for text in [
            "",
            "run.seed = 3\ndata.val_fraction = 0.1",
            "version = 3\ndata = { val_fraction = 0.1, normalize = \"dataset\" }\ntrain.ema = 0.9",
        ] {
            same(text, text);
        }
    }

    #[test]
    fn what_means_the_same_is_the_same() {
        // As records have it: with every effective key.
        let of = |text: &str| canonical(dotted_values(&Config::from_toml(text).unwrap()));
        let old = of("version = 1\nrun.seed = 3\ndata.val_fraction = 0.1");
        let new = |seed: u64, rule: &str, start: &str| {
            of(&format!(
                "version = 3\nrun.seed = 3\nmodel.patch_init = {start:?}\n\
                 data = {{ val_fraction = 0.1, val_seed = {seed}{rule} }}"
            ))
        };
        let rounded = ", val_rule = \"rounded\"";
        assert_eq!(new(3, rounded, "truncated"), old);
        assert_eq!(meant_version(&old), 1);
        for other in [new(0, rounded, "timm"), new(3, "", "timm"), new(0, "", "timm")] {
            assert_ne!(other, old);
            assert_eq!(meant_version(&other), VERSION);
        }
        for mixed in [new(3, rounded, "timm"), new(0, "", "truncated")] {
            assert_ne!(mixed, old);
            assert_eq!(meant_version(&mixed), 1);
        }
        let (old, new) = (of("version = 1\nrun.seed = 3"), of("version = 3\nrun.seed = 3"));
        assert_ne!(old, new, "they start otherwise");
        assert_eq!((meant_version(&old), meant_version(&new)), (1, VERSION));
        assert!(!old.contains_key("model.patch_init"));
    }

    #[test]
    fn keys_of_version_2_are_recorded_where_they_make_a_difference() {
        let of = |text: &str| dotted_values(&Config::from_toml(text).unwrap());
        let dataset = "[data]\ndataset = \"cifar10\"\npath = \"x\"\nnormalize = \"dataset\"\n";
        let deit = format!("{dataset}[augment]\npreset = \"deit\"\n");
        for (text, fill) in [
            (dataset.to_owned(), None),
            (deit.replace("normalize", "# normalize"), None),
            (deit.clone(), Some("dataset")),
            (format!("{deit}fill = \"imagenet\"\n"), Some("imagenet")),
            (format!("version = 1\n{deit}"), Some("imagenet")),
            // Of a folder's images no other mean is known.
            (deit.replace("cifar10", "folder"), None),
        ] {
            let values = of(&text);
            assert_eq!(values.get(FILL.0).and_then(Value::as_str), fill, "{text}");
            let is_old = fill != Some("dataset");
            assert_eq!(canonical(values).contains_key(FILL.0), !is_old, "{text}");
        }
        for (version, task, ema, statistics) in [
            (2, "segmentation", "train.ema = 0.9\n", Some("averaged")),
            (1, "segmentation", "train.ema = 0.9\n", Some("model")),
            (1, "segmentation", "", None),
            (2, "classification", "train.ema = 0.9\n", None),
            (1, "detection", "train.ema = 0.9\n", None),
        ] {
            let text = format!("version = {version}\ntask = {task:?}\n{ema}");
            let found = of(&text);
            let found = found.get(EMA_STATISTICS.0).and_then(Value::as_str);
            assert_eq!(found, statistics, "{text}");
        }
        let without = Config::from_toml("train.ema_statistics = \"model\"").unwrap_err();
        assert!(without.to_string().contains("no effect without train.ema"), "{without}");
    }
}
