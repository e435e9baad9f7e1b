use std::fs;

use serde_json::json;
use vim_run::RunError;
use vim_run::metrics::JsonlWriter;

#[test]
fn a_resumed_file_has_the_bytes_of_an_uninterrupted_one() {
    let folder = tempfile::tempdir().unwrap();
    let record = |step: u64| json!({ "step": step, "loss": 1.0 / (step as f64 + 3.0) });

    let whole = folder.path().join("whole.jsonl");
    let mut writer = JsonlWriter::truncated(&whole, 0).unwrap();
    (0..10).for_each(|step| writer.append(&record(step)).unwrap());

    let resumed = folder.path().join("resumed.jsonl");
    let mut writer = JsonlWriter::truncated(&resumed, 0).unwrap();
    (0..4).for_each(|step| writer.append(&record(step)).unwrap());
    writer.sync().unwrap();
    let remembered = writer.len();
    (4..7).for_each(|step| writer.append(&record(step)).unwrap());
    drop(writer);
    assert!(fs::metadata(&resumed).unwrap().len() > remembered);

    let mut writer = JsonlWriter::truncated(&resumed, remembered).unwrap();
    (4..10).for_each(|step| writer.append(&record(step)).unwrap());
    assert_eq!(fs::read(&resumed).unwrap(), fs::read(&whole).unwrap());
    assert_eq!(writer.len(), fs::metadata(&resumed).unwrap().len());
}

#[test]
fn a_file_shorter_than_remembered_is_an_error_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.jsonl");
    fs::write(&path, "{}\n").unwrap();
    let error = JsonlWriter::truncated(&path, 4).unwrap_err();
    assert!(matches!(error, RunError::Io { .. }));
    assert!(error.to_string().contains("3 of the 4 bytes"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "{}\n");
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
