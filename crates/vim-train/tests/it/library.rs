//! A program of its own: what `load` opens answers as `predict` does.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use vim_data::{Exif, Normalize, PictureError, Pixels, read_whole_picture};
use vim_train::config::Config;
use vim_train::task::classification::predict::Guesses;
use vim_train::vim_model::{ClassToken, Discretization};
use vim_train::weights::WeightsError;
use vim_train::weights::provenance::Remarks;
use vim_train::weights::source::Origin;
use vim_train::{Load, Trained, Weights, load};

use crate::dense::write_picture;
use crate::support::{
    Bench, assert_code, assert_parts, parsed, read_json, repository, run, set, write_bare,
};

/// What `predict --json` says of a picture, on the CPU.
fn predicted(weights: &str, picture: &str, more: &[&str]) -> Value {
    let args = ["predict", picture, "--checkpoint", weights, "--json", "--device", "cpu"];
    let output = run(&[&args, more].concat());
    assert_code(&output, 0);
    parsed(&output)[0].take()
}

/// As `predict` prints it: every digit counts.
fn as_json(value: &impl serde::Serialize) -> Value {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

fn classified(trained: &Trained, picture: &str) -> Guesses {
    trained.classifier().unwrap().classify(picture).unwrap()
}

#[test]
fn whatever_is_loaded_answers_as_predict_does() {
    let bench = Bench::new();
    let own = ["model.discretization=bilinear", "model.class_token=head", "data.normalize=dataset"];
    assert_code(&bench.train("a", &[&set(&own)[..], &["--steps", "2"]].concat()), 0);
    let at = |name: &str| bench.folder(name).display().to_string();
    let picture = repository("crates/vim-train/tests/it/fixtures/grey.png").display().to_string();
    for name in ["a.safetensors", "a.pth"] {
        assert_code(&run(&["export", &at("a"), "-o", &at(name)]), 0);
    }
    assert_code(&run(&["import", &at("a.pth"), "-o", &at("b.safetensors")]), 0);
    let classes: Vec<String> =
        serde_json::from_value(read_json(bench.folder("a/classes.json"))).unwrap();
    assert_eq!(classes.len(), 12);
    let names = [
        ("a", Some(2)),
        ("a/checkpoints/last", Some(2)),
        ("a/checkpoints/step-00000002", Some(2)),
        ("a.safetensors", None),
        ("a.pth", None),
        ("b.safetensors", None),
    ];
    for (name, step) in names {
        let said = predicted(&at(name), &picture, &["--top", "12"]);
        let trained = load(at(name)).unwrap();
        let guesses = classified(&trained, &picture);
        assert_eq!(as_json(&guesses), said["predictions"], "{name}");
        assert_eq!(said["predictions"].as_array().unwrap().len(), 12);
        assert_eq!(said.get("assumed"), None, "{name}");
        assert_eq!(trained.classes(), classes, "{name}");
        assert_eq!((trained.step, trained.weights), (step, Weights::Model), "{name}");
        assert_eq!((trained.origin, &trained.remarks), (Origin::Recorded, &Remarks::default()));
        let model = trained.record.vim();
        assert_eq!(model.discretization, Discretization::Bilinear);
        assert_eq!(model.class_token, ClassToken::Head);
        let images = trained.record.images.unwrap();
        assert_eq!(images.normalize, Normalize::Dataset);
        let classifier = trained.classifier().unwrap();
        assert_eq!(classifier.size(), [32, 32]);
        assert_eq!(classifier.statistics().mean, images.mean.map(|mean| mean as f32));
        assert_eq!(classifier.model.config().discretization, Discretization::Bilinear);

        // Pixels in memory, and tensors, say the same.
        let pixels = read_whole_picture(picture.as_ref(), Exif::Ignore).unwrap();
        assert_eq!(classifier.classify_pixels(&pixels).unwrap(), guesses);
        let images = classifier.images(&[pixels.clone(), pixels]).unwrap();
        assert_eq!(images.dims(), [2, 3, 32, 32]);
        let both = classifier.guesses(images, 3).unwrap();
        assert_eq!(both.len(), 2);
        assert_eq!(both[1].likeliest(9).len(), 3);
        assert_eq!(both[1].likeliest(1)[0].class, guesses.likeliest(1)[0].class);
    }
    // Only a run is asked for its best checkpoint, and this one has none.
    let notes = load(at("a")).unwrap().notes;
    assert_eq!(notes.len(), 1);
    assert_parts(&notes[0], &["has no best checkpoint", "the last, of step 2"]);
    assert_eq!(load(at("a.pth")).unwrap().notes, [""; 0]);
}

#[test]
fn what_is_assumed_of_weights_without_a_record_is_in_the_value() {
    let bench = Bench::new();
    let own = set(&["model.discretization=bilinear", "model.class_token=head"]);
    assert_code(&bench.train("a", &[&own[..], &["--steps", "2"]].concat()), 0);
    let at = |name: &str| bench.folder(name).display().to_string();
    let picture = repository("crates/vim-train/tests/it/fixtures/grey.png").display().to_string();
    assert_code(&run(&["export", &at("a"), "-o", &at("a.pth")]), 0);
    write_bare(Path::new(&at("a.pth")), Path::new(&at("bare.safetensors")));

    let bare = at("bare.safetensors");
    let trained = load(&bare).unwrap();
    let said = predicted(&bare, &picture, &["--top", "12"]);
    assert_eq!(as_json(&classified(&trained, &picture)), said["predictions"]);
    assert_eq!((trained.origin, trained.record.images), (Origin::Inferred, None));
    let assumed = &trained.remarks.assumed;
    assert_eq!(as_json(assumed), said["assumed"]);
    for what in ["discretization zoh", "series exact", "class_token middle"] {
        assert!(assumed.iter().any(|said| said == what), "{what}: {assumed:?}");
    }
    assert_eq!(assumed.last().unwrap(), "normalization by ImageNet's statistics");
    assert_eq!(trained.classes()[11], "class 11", "nobody knows more");

    // A configuration says what the file does not.
    let path = at("a/config.toml");
    let config = Config::load(Path::new(&path), &[]).unwrap();
    let told = Load { config: Some(config), ..Load::default() }.open(&bare).unwrap();
    let said = predicted(&bare, &picture, &["--top", "12", "--config", &path]);
    let of_run = predicted(&at("a"), &picture, &["--top", "12"]);
    assert_eq!(as_json(&classified(&told, &picture)), said["predictions"]);
    assert_eq!(said["predictions"][0]["probability"], of_run["predictions"][0]["probability"]);
    assert_eq!(told.origin, Origin::Given);

    // It must not contradict what is recorded.
    let otherwise = Config::load(Path::new(&path), &["model.discretization=foh".into()]).unwrap();
    let load_as = Load { config: Some(otherwise), ..Load::default() };
    let refused = load_as.open(at("a.pth")).unwrap_err();
    let refused = refused.downcast_ref::<WeightsError>();
    assert!(matches!(refused, Some(WeightsError::NotAsTrained { .. })), "{refused:?}");
    let allow = vec![vim_train::config::Part::Method];
    let allowed = Load { allow, ..load_as }.open(at("a.pth")).unwrap();
    let differences = &allowed.remarks.differences;
    assert_eq!(differences.len(), 1);
    assert_parts(&differences[0], &["model.discretization", "recorded \"bilinear\", now \"foh\""]);
}

#[test]
fn mistakes_have_types_and_one_line() {
    let bench = Bench::new();
    assert_code(&bench.train("a", &["--steps", "1"]), 0);
    let trained = load(bench.folder("a")).unwrap();
    let absent = load(bench.folder("b")).unwrap_err();
    assert!(matches!(absent.downcast_ref(), Some(WeightsError::NotFound { .. })), "{absent}");
    let other = trained.detector().unwrap_err();
    assert!(matches!(other.downcast_ref(), Some(WeightsError::OtherTask { .. })), "{other}");
    assert_parts(&other.to_string(), &["step-00000001 is a classifier, no detector"]);
    assert!(trained.segmenter().is_err());

    let classifier = trained.classifier().unwrap();
    let text = bench.folder("text.png");
    fs::write(&text, "no picture").unwrap();
    for (path, is_read) in [(text, true), (bench.folder("none.png"), false)] {
        // Any error is one for others' functions.
        let error: Box<dyn std::error::Error> = classifier.classify(&path).unwrap_err().into();
        assert_eq!(error.to_string().lines().count(), 1);
        let error = error.downcast::<vim_train::Error>().unwrap();
        let found = match error.downcast_ref::<PictureError>().unwrap() {
            PictureError::Read { .. } => false,
            PictureError::Decode { .. } => true,
            PictureError::Shape { .. } => panic!("{error}"),
        };
        assert_eq!(found, is_read, "{error}");
    }
    assert!(classifier.images(&[]).is_err());
    let none = classifier.classify_pixels(&Pixels::default()).unwrap_err();
    assert!(matches!(none.downcast_ref(), Some(PictureError::Shape { .. })), "{none}");
}

#[test]
fn a_segmenter_has_the_classes_of_the_map() {
    let bench = Bench::of("crates/vim-train/tests/it/fixtures/segment.toml");
    assert_code(&bench.train("a", &["--set", "train.epochs=1"]), 0);
    let at = |name: &str| bench.folder(name).display().to_string();
    assert_code(&run(&["export", &at("a"), "-o", &at("a.pth")]), 0);
    let picture = at("picture.png");
    write_picture(&picture);
    for name in ["a", "a.pth"] {
        let folder = at(&format!("maps of {name}"));
        let more = ["--top", "12", "--submission", &folder];
        let said = predicted(&at(name), &picture, &more);
        let trained = load(at(name)).unwrap();
        let segmenter = trained.segmenter().unwrap();
        let seen = segmenter.segment(&picture).unwrap();
        assert_eq!(seen.size, [48, 48]);
        // Of grey, whose classes are numbered from 1.
        let map =
            read_whole_picture(format!("{folder}/picture.png").as_ref(), Exif::Ignore).unwrap();
        let map: Vec<u8> = map.data.iter().step_by(3).map(|grey| grey - 1).collect();
        assert_eq!(seen.labels, map, "{name}");
        assert_eq!(as_json(&segmenter.shares(&seen.labels, 12)), said["classes"], "{name}");
        assert_eq!(trained.classes(), segmenter.classes);
        assert!(trained.record.segmentation.is_some() && trained.classifier().is_err());
    }
}

#[test]
fn a_detector_finds_the_same_objects() {
    let bench = Bench::of("crates/vim-train/tests/it/fixtures/detect.toml");
    // The first detections are unsure.
    let few = set(&["train.epochs=1", "detection.score_threshold=0.0"]);
    assert_code(&bench.train("a", &few), 0);
    let at = |name: &str| bench.folder(name).display().to_string();
    assert_code(&run(&["export", &at("a"), "-o", &at("a.safetensors")]), 0);
    let picture = at("picture.png");
    write_picture(&picture);
    for name in ["a", "a.safetensors"] {
        let mut said = predicted(&at(name), &picture, &[]);
        let trained = load(at(name)).unwrap();
        let detector = trained.detector().unwrap();
        let seen = detector.detect(&picture).unwrap();
        assert_eq!((json!(seen.size), seen.is_empty()), (json!([48, 48]), false));
        let found = detector.objects(&seen, 0.0, usize::MAX);
        for object in said["objects"].as_array_mut().unwrap() {
            object.as_object_mut().unwrap().remove("segmentation");
        }
        assert_eq!(as_json(&found), said["objects"], "{name}");
        assert_eq!(detector.objects(&seen, 0.0, 1).len(), 1);
        assert_eq!(trained.classes().len(), 12);
        assert!(trained.record.detection.is_some() && trained.segmenter().is_err());
    }
}
