//! Every key of a record, and every use of weights.

use clap::ValueEnum as _;
use toml::{Table, Value};

use super::*;
use crate::config::Config;

/// A record of each task, with what is recorded of images; the keys of classification first.
fn records() -> [Recorded; 3] {
    let base = "[model]\ndiscretization = \"foh\"\nimage_size = 32\npatch_size = 8\ndepth = 4\n\
                d_model = 8\nd_state = 2\nrope = \"both\"\n[data]\nval_fraction = 0.25\n";
    ["", "task = \"segmentation\"\n", "task = \"detection\"\n"].map(|task| {
        let config = Config::from_toml(&format!("{task}{base}")).unwrap();
        let data = RecordedData {
            train_fingerprint: Some("a".into()),
            test_fingerprint: Some("b".into()),
            train_images: Some(4),
            test_images: Some(2),
            ..RecordedData::of_config(&config.data)
        };
        Recorded::of_run(&config, &["x".into(), "y".into()], data)
    })
}

/// Each key with another value, and what must be allowed for it; `-` if no forward pass sees it.
const KEYS: &str = r#"
method         model.discretization = "rk4"
method         ssm.method_fwd = "zoh"
method         ssm.method_bwd = "zoh"
method         ssm.series = "taylor"
size           model.image_size = 64
model          model.patch_size = 16
model          model.stride = 4
model          model.depth = 5
model          model.d_model = 16
model          model.d_state = 4
model          model.d_conv = 3
model          model.expand = 1
model          model.dt_rank = 3
model          model.bimamba = "v1"
model          model.divide_out = false
model          model.layer_scale = 0.1
model          model.norm = "layer"
model          model.norm_eps = 1e-3
model          model.class_token = "head"
model          model.pool = "max"
model          model.abs_pos_embed = false
model          model.rope = "none"
model          model.rope_grid = 7
model          model.flip_ratio = 1.0
model          model.layer_pairs = true
model          ssm.a = "full"
-              model.preset = "small"
-              model.patch_init = "truncated"
-              model.dropout = 0.5
-              model.drop_path = 0.7
-              ssm.scan = "reference"
-              ssm.dt_b_init = "upstream_zero"
-              ssm.v1_gate_gradient = "upstream"
model          segmentation.out_indices = [3]
model          segmentation.features = "residual"
model          segmentation.last = "add"
model          segmentation.channels = 5
-              segmentation.aux_channels = 5
-              segmentation.dropout = 0.5
-              segmentation.aux_weight = 0.5
model          detection.last = "none"
model          detection.channels = 5
model          detection.box_features = 5
model          detection.anchor_size = 5.0
model          detection.box_side = 5.0
model          detection.sampling_ratio = 2
model          detection.aligned = false
-              detection.anchor_samples = 5
-              detection.proposals_per_level = 5
-              detection.proposals = 5
-              detection.box_samples = 5
view           detection.test_proposals_per_level = 5
view           detection.test_proposals = 5
view           detection.score_threshold = 0.5
view           detection.nms_threshold = 0.7
view           detection.detections = 5
normalization  images.mean = [0.1, 0.2, 0.3]
normalization  images.std = [0.1, 0.2, 0.3]
view           images.eval_crop_ratio = 0.5
view           images.pairs.scale = [9, 8]
view           images.pairs.inference = "whole"
view           images.pairs.stride = 5
-              images.dataset = "cifar10"
-              images.normalize = "dataset"
-              images.pairs.ratio = [1.0, 1.0]
-              images.pairs.cat_max_ratio = 0.5
-              images.pairs.hflip = 0.25
-              images.pairs.photometric = false
split          split.val_fraction = 0.5
split          split.val_seed = 7
split          split.val_rule = "rounded"
-              split.train_fingerprint = "c"
-              split.test_fingerprint = "c"
-              split.train_images = 9
-              split.test_images = 9
"#;

/// The uses, with the parts that each must have allowed.
fn uses() -> [(Use, &'static [&'static str]); 8] {
    const LOOKS: &[&str] = &["method", "model", "size", "normalization", "view"];
    let all = &["method", "model", "size", "normalization", "view", "split"];
    let init = &["method", "model", "normalization"];
    let init_of_part = &["method", "model", "normalization", "split"];
    let of_init = |backbone, held_out| Use::Init { backbone, held_out };
    [
        (Use::Evaluate { held_out: false }, LOOKS),
        (Use::Evaluate { held_out: true }, all),
        (Use::Predict, LOOKS),
        (Use::Write, &["method", "model", "size"]),
        (of_init(false, false), init),
        (of_init(false, true), init_of_part),
        (of_init(true, false), init),
        (of_init(true, true), init_of_part),
    ]
}

/// `record` with the value of `line`, which has a key and a value in TOML's form; `None` if its
/// sections are not of this task.
fn with(record: &Recorded, line: &str) -> Option<Recorded> {
    let mut table = Table::try_from(record).unwrap();
    let (key, value) = line.split_once(" = ").unwrap();
    let mut names: Vec<&str> = key.split('.').collect();
    let name = names.pop().unwrap();
    let mut section = &mut table;
    for part in names {
        section = section.get_mut(part)?.as_table_mut().unwrap();
    }
    let value: Value = value.parse().unwrap();
    section.insert(name.to_owned(), value);
    Some(table.try_into().unwrap_or_else(|error| panic!("{line}: {error}")))
}

fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    let rows = KEYS.lines().filter(|line| !line.is_empty());
    rows.map(|row| row.split_once(char::is_whitespace).unwrap())
        .map(|(part, row)| (part, row.trim()))
}

/// Weights of a file without any array, of which `recorded` is known.
fn source(recorded: Recorded) -> WeightsSource {
    let mut bytes = Vec::new();
    vim_torch::write_safetensors(&mut bytes, [], &[]).unwrap();
    let arrays = vim_torch::read_safetensors(&bytes).unwrap();
    WeightsSource {
        name: "w".into(),
        arrays,
        classes: recorded.classes.clone(),
        run: None,
        recorded: Some(recorded),
        weights: vim_run::checkpoint::Weights::Model,
        step: None,
        blake3: String::new(),
        note: None,
    }
}

#[test]
fn every_key_is_refused_by_each_use_that_sees_it_unless_allowed() {
    let mut compared = 0;
    for recorded in records() {
        let of_file = source(recorded.clone());
        for (part, row) in rows() {
            let Some(now) = with(&recorded, row) else { continue };
            assert_ne!(now, recorded, "{row} is another value");
            let key = row.split_once(" = ").unwrap().0;
            for (what, parts) in uses() {
                let backbone = matches!(what, Use::Init { backbone: true, .. });
                let left = ["model.class_token", "model.pool"].contains(&key)
                    || key.starts_with("segmentation.")
                    || key.starts_with("detection.");
                let sees = parts.contains(&part) && !(backbone && left);
                let result = of_file.check_use(&now, what, &[]);
                let label = format!("{row}, {what:?}");
                if !sees {
                    // Other test images are evaluated, and that is said.
                    let is_said = key == "split.test_fingerprint"
                        && matches!(what, Use::Evaluate { held_out: false });
                    let said = result.unwrap().differences;
                    assert_eq!(said.len(), usize::from(is_said), "{label}: {said:?}");
                    continue;
                }
                let error = result.expect_err(&label);
                let text = error.to_string();
                let allow = match what {
                    Use::Init { .. } => format!("train.init_allow = [{part:?}]"),
                    Use::Evaluate { .. } | Use::Predict | Use::Write => format!("--allow {part}"),
                };
                let own_key = key.strip_prefix("images.").or(key.strip_prefix("split."));
                let name = own_key.unwrap_or(key);
                assert!(text.contains(name) && text.ends_with(&allow), "{label}: {text}");
                // Another part does not help, its own does and is said.
                let own = Part::from_str(part, false).unwrap();
                let other = if own == Part::Head { Part::View } else { Part::Head };
                assert!(of_file.check_use(&now, what, &[other]).is_err(), "{label}");
                let remarks = of_file.check_use(&now, what, &[own]).unwrap();
                assert_eq!(remarks.differences.len(), 1, "{label}");
                assert!(remarks.suffix().contains(name), "{label}");
                compared += 1;
            }
        }
    }
    assert!(compared > 300, "{compared}");
}

#[test]
fn every_key_of_a_record_is_decided_on() {
    let known: Vec<&str> = rows().map(|(_, row)| row.split_once(" = ").unwrap().0).collect();
    for recorded in records() {
        for key in dotted(Table::try_from(recorded).unwrap()).into_keys() {
            assert!(key == "classes" || known.contains(&key.as_str()), "{key} is in no row");
        }
    }
}

#[test]
fn what_has_the_same_effect_is_no_difference() {
    let [recorded, ..] = records();
    let evaluation = Use::Evaluate { held_out: true };
    let same = |before: &Recorded, row: &str| {
        let now = with(before, row).unwrap();
        assert_eq!(before.differences(&now, evaluation), [], "{row}");
    };
    same(&recorded, "model.flip_ratio = 0.5");
    same(&recorded, "ssm.method_fwd = \"foh\"");
    same(&recorded, &format!("model.dt_rank = {}", recorded.vim().dt_rank()));
    // Of these methods nothing is truncated.
    for method in ["zoh", "bilinear", "rk4"] {
        let other = with(&recorded, &format!("model.discretization = {method:?}")).unwrap();
        same(&other, "ssm.series = \"taylor\"");
    }
}

#[test]
fn held_out_images_of_unknown_weights_are_said() {
    let [recorded, ..] = records();
    let now = with(&recorded, "split.train_fingerprint = \"c\"").unwrap();
    let now = with(&now, "split.val_seed = 7").unwrap();
    let said = |held_out| {
        source(recorded.clone()).check_use(&now, Use::Evaluate { held_out }, &[]).unwrap()
    };
    assert_eq!(said(false), Remarks::default());
    assert!(said(true).assumed[0].contains("another set of images"));
    // Runs of earlier versions know no fingerprint, and their split by its keys alone.
    let mut before = recorded;
    before.data = before.data.map(|data| RecordedData { train_fingerprint: None, ..data });
    let result = source(before).check_use(&now, Use::Evaluate { held_out: true }, &[]);
    assert!(result.unwrap_err().to_string().contains("data.val_seed (recorded 0, now 7)"));
}

#[test]
fn a_key_is_named_with_its_section() {
    for (key, name) in [
        ("images.exif", "data.exif"),
        ("images.dataset", "data.dataset"),
        ("images.pairs.scale", "pairs.scale"),
        ("split.val_seed", "data.val_seed"),
    ] {
        assert_eq!(configured(key), name);
    }
}

#[test]
fn dense_weights_say_whether_images_were_turned() {
    let of = |exif: &str| {
        let text = format!("task = \"segmentation\"\n[data]\ndataset = \"pairs\"\n{exif}");
        let config = Config::from_toml(&text).unwrap();
        let data = RecordedData::of_config(&config.data);
        Recorded::of_run(&config, &["x".into(), "y".into()], data)
    };
    let (turned, stored) = (of(""), of("exif = \"ignore\"\n"));
    let evaluate = Use::Evaluate { held_out: false };
    let result = source(stored.clone()).check_use(&turned, evaluate, &[]);
    let error = result.unwrap_err().to_string();
    assert!(error.contains("data.exif (recorded not set, now \"apply\")"), "{error}");
    // Of version 2, which knew no such key, nothing is recorded either.
    assert!(stored.images.unwrap().exif.is_none());
    assert!(source(turned.clone()).check_use(&turned, evaluate, &[]).is_ok());
    assert!(source(stored.clone()).check_use(&stored, evaluate, &[]).is_ok());
}

#[test]
fn other_test_images_than_the_run_had_are_said() {
    let [recorded, ..] = records();
    let said = |what| {
        let now = with(&recorded, "split.test_fingerprint = \"c\"").unwrap();
        let now = with(&now, "split.test_images = 6").unwrap();
        source(recorded.clone()).check_use(&now, what, &[]).unwrap().differences
    };
    let test = said(Use::Evaluate { held_out: false });
    assert_eq!(test, ["2 test images were recorded, now there are 6"]);
    assert!(said(Use::Evaluate { held_out: true }).is_empty());
    assert!(said(Use::Predict).is_empty());
}

#[test]
fn weights_without_a_record_say_what_was_assumed() {
    let [now, ..] = records();
    let nothing = WeightsSource { recorded: None, ..source(now.clone()) };
    let remarks = nothing.check_use(&now, Use::Evaluate { held_out: false }, &[]).unwrap();
    assert_eq!(remarks.assumed.len(), 3);
    assert!(remarks.suffix().starts_with("; assumed: method foh (ssm.series = exact), "));
}
