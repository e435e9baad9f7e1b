use std::fs;

use serde_json::json;
use vim_run::RunError;
use vim_run::checkpoint::State;
use vim_run::metrics::{JsonlWriter, Prefix};

#[test]
fn a_resumed_file_has_the_bytes_of_an_uninterrupted_one() {
    let folder = tempfile::tempdir().unwrap();
    let record = |step: u64| json!({ "step": step, "loss": 1.0 / (step as f64 + 3.0) });

    let whole = folder.path().join("whole.jsonl");
    let mut writer = JsonlWriter::truncated(&whole, &Prefix::default()).unwrap();
    (0..10).for_each(|step| writer.append(&record(step)).unwrap());

    let resumed = folder.path().join("resumed.jsonl");
    let mut writer = JsonlWriter::truncated(&resumed, &Prefix::default()).unwrap();
    (0..4).for_each(|step| writer.append(&record(step)).unwrap());
    writer.sync().unwrap();
    let remembered = writer.prefix();
    (4..7).for_each(|step| writer.append(&record(step)).unwrap());
    drop(writer);
    assert!(fs::metadata(&resumed).unwrap().len() > remembered.len);

    let mut writer = JsonlWriter::truncated(&resumed, &remembered).unwrap();
    (4..10).for_each(|step| writer.append(&record(step)).unwrap());
    assert_eq!(fs::read(&resumed).unwrap(), fs::read(&whole).unwrap());
    let bytes = fs::read(&resumed).unwrap();
    let blake3 = blake3::hash(&bytes).to_hex().to_string();
    let all = Prefix { len: bytes.len() as u64, blake3: Some(blake3) };
    assert_eq!((writer.len(), writer.prefix()), (all.len, all));
}

#[test]
fn a_file_shorter_than_remembered_is_an_error_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.jsonl");
    fs::write(&path, "{}\n").unwrap();
    let error = JsonlWriter::truncated(&path, &Prefix { len: 4, blake3: None }).unwrap_err();
    assert!(matches!(error, RunError::Io { .. }));
    assert!(error.to_string().contains("3 of the 4 bytes"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "{}\n");
}

#[test]
fn an_altered_file_is_an_error_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.jsonl");
    let mut writer = JsonlWriter::truncated(&path, &Prefix::default()).unwrap();
    (0..3).for_each(|step| writer.append(&json!({ "step": step })).unwrap());
    let known = writer.prefix();
    let good = fs::read_to_string(&path).unwrap();
    for bad in [good.replace('1', "7"), format!("{{}}\n{good}")] {
        fs::write(&path, &bad).unwrap();
        let error = JsonlWriter::truncated(&path, &known).unwrap_err().to_string();
        assert!(error.contains("its first 33 bytes are no longer those"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), bad);
        // A checkpoint of an earlier version knows the length alone.
        let earlier = Prefix { blake3: None, ..known.clone() };
        let writer = JsonlWriter::truncated(&path, &earlier).unwrap();
        let hash = blake3::hash(&bad.as_bytes()[..33]).to_hex().to_string();
        assert_eq!(writer.prefix(), Prefix { blake3: Some(hash), ..earlier });
    }
    fs::write(&path, format!("{good}later")).unwrap();
    assert_eq!(JsonlWriter::truncated(&path, &known).unwrap().prefix(), known);
    assert_eq!(fs::read_to_string(&path).unwrap(), good);
}

#[test]
fn a_state_without_the_checksum_is_read() {
    let text = r#"{"step":3,"epoch":0,"batch":3,"metrics_len":120}"#;
    let state: State = serde_json::from_str(text).unwrap();
    assert_eq!(state.metrics, Prefix { len: 120, blake3: None });
    assert!(serde_json::from_str::<State>(&text.replace("metrics_len", "x")).is_err());
    let written = serde_json::to_value(&state).unwrap();
    assert_eq!((&written["metrics_len"], written.get("metrics_blake3")), (&json!(120), None));
}

#[test]
fn appending_keeps_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timing.jsonl");
    JsonlWriter::appending(&path).unwrap().append(&json!({ "a": 1 })).unwrap();
    JsonlWriter::appending(&path).unwrap().append(&json!({ "a": f64::NAN })).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"a\":1}\n{\"a\":null}\n");
}

#[test]
fn floats_have_the_fewest_digits_that_tell_them_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.jsonl");
    let numbers = [0.1, 1e-8, 1.0 / 3.0, 2.0];
    JsonlWriter::appending(&path).unwrap().append(&numbers).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "[0.1,1e-8,0.3333333333333333,2.0]\n");
}
