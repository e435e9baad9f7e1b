//! The `[data]` section: defaults, accepted forms, messages.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use vim_data::{DataConfig, DatasetKind, HoldOut, Normalize, Workers};

#[test]
fn empty_section_is_the_default() {
    let config: DataConfig = serde_json::from_str("{}").unwrap();
    assert_eq!(config, DataConfig::default());
    assert_eq!(config.dataset, DatasetKind::Shapes);
    assert_eq!(config.workers, Workers::Auto);
    assert_eq!(config.normalize, Normalize::Imagenet);
    assert_eq!(config.val_fraction, 0.0);
    assert_eq!(config.shapes.image_size, 32);
}

#[test]
fn section_survives_a_round_trip() {
    let text = r#"{"dataset":"cifar100","path":"data/x.tar.gz","workers":3,"normalize":"dataset",
        "bad_train":"fail","prefetch":2,"val_fraction":0.1,
        "shapes":{"image_size":64,"train":10,"val":0,"test":5,"seed":9}}"#;
    let config: DataConfig = serde_json::from_str(text).unwrap();
    assert_eq!(config.workers, Workers::Fixed(3));
    assert_eq!(config.shapes.seed, 9);
    let printed = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<DataConfig>(&printed).unwrap(), config);
}

#[test]
fn what_chooses_held_out_images_is_written_where_it_is_set() {
    let read = |text: &str| serde_json::from_str::<DataConfig>(text).unwrap();
    let printed = |config: &DataConfig| serde_json::to_string(config).unwrap();
    let plain = read(r#"{"val_fraction":0.1}"#);
    assert_eq!((plain.val_seed, plain.val_rule), (None, HoldOut::EachClass));
    let text = printed(&plain);
    assert!(!text.contains("val_seed") && !text.contains("val_rule"), "{text}");
    let set = read(r#"{"val_fraction":0.1,"val_seed":7,"val_rule":"rounded"}"#);
    assert_eq!((set.val_seed, set.val_rule), (Some(7), HoldOut::Rounded));
    assert!(printed(&set).contains(r#""val_seed":7,"val_rule":"rounded""#));
    assert_eq!(read(&printed(&set)), set);
    assert_eq!(read(r#"{"val_rule":"each_class"}"#), DataConfig::default());
}

#[test]
fn the_effective_configuration_says_what_chooses_the_held_out_images() {
    let config = DataConfig { val_fraction: 0.1, ..DataConfig::default() };
    let effective = DataConfig { val_seed: Some(0), ..config.clone() };
    assert_eq!((config.effective(), effective.effective()), (effective.clone(), effective));
    let (val_seed, val_rule) = (Some(7), HoldOut::Rounded);
    let set = DataConfig { val_seed, val_rule, ..config };
    assert_eq!(set.effective(), set);
    let none = DataConfig { val_fraction: 0.0, ..set };
    assert_eq!(none.effective(), DataConfig::default());
}

#[test]
fn unknown_keys_are_refused() {
    for text in [
        r#"{"val_rule":"any"}"#,
        r#"{"datasett":"shapes"}"#,
        r#"{"shapes":{"size":32}}"#,
        r#"{"dataset":"mnist"}"#,
    ] {
        assert!(serde_json::from_str::<DataConfig>(text).is_err(), "{text}");
    }
}

#[test]
fn workers_are_auto_or_a_positive_number() {
    let read = serde_json::from_str::<Workers>;
    assert_eq!(read("\"auto\"").unwrap(), Workers::Auto);
    assert_eq!(read("4").unwrap(), Workers::Fixed(4));
    assert_eq!(serde_json::to_string(&Workers::Auto).unwrap(), "\"auto\"");
    assert_eq!(serde_json::to_string(&Workers::Fixed(4)).unwrap(), "4");
    for text in ["0", "-1", "1025", "1.5", "\"many\"", "true", "[1]"] {
        let message = read(text).unwrap_err().to_string();
        assert!(
            message.contains("`\"auto\"` or a number of threads, 1 to 1024"),
            "{text}: {message}"
        );
    }
    // TOML's integers are signed.
    let signed = |number: i64| {
        Workers::deserialize(IntoDeserializer::<serde::de::value::Error>::into_deserializer(number))
    };
    assert_eq!(signed(4).unwrap(), Workers::Fixed(4));
    assert!(signed(0).is_err());
    assert_eq!(Workers::Fixed(3).count(), 3);
    assert!((1..=8).contains(&Workers::Auto.count()));
}

#[test]
fn schema_admits_what_is_read() {
    let schema = serde_json::to_value(schemars::schema_for!(Workers)).unwrap();
    assert_eq!(schema["oneOf"][0]["const"], "auto");
    assert_eq!(schema["oneOf"][1]["minimum"], 1);
    assert_eq!(schema["oneOf"][1]["maximum"], 1024);
}
