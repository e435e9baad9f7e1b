//! What a run writes for TensorBoard and for spreadsheets, read by small readers of our own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Bench, assert_code, assert_parts, assert_says, json_lines, stderr};

/// CRC-32C bit by bit, as it is defined.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

fn unmasked(masked: &[u8]) -> u32 {
    let masked = u32::from_le_bytes(masked.try_into().unwrap());
    masked.wrapping_sub(0xa282_ead8).rotate_left(15)
}

/// The records of an event file, each with good checksums, and no byte besides.
fn records(file: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(file).unwrap();
    let (mut records, mut rest) = (Vec::new(), &bytes[..]);
    while !rest.is_empty() {
        let len = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        assert_eq!(unmasked(&rest[8..12]), crc32c(&rest[..8]));
        let record = &rest[12..12 + len];
        assert_eq!(unmasked(&rest[12 + len..16 + len]), crc32c(record));
        records.push(record.to_vec());
        rest = &rest[16 + len..];
    }
    records
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for place in 0.. {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            break;
        }
    }
    number
}

/// The fields of a protobuf message by number; a number as its eight bytes.
fn message(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let len = match key & 7 {
            0 => {
                fields.push((key >> 3, varint(&mut bytes).to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            5 => 4,
            2 => varint(&mut bytes) as usize,
            wire => panic!("no such type {wire}"),
        };
        fields.push((key >> 3, bytes[..len].to_vec()));
        bytes = &bytes[len..];
    }
    fields
}

fn field(of: &[(u64, Vec<u8>)], number: u64) -> Option<&[u8]> {
    of.iter().find(|(found, _)| *found == number).map(|(_, field)| &field[..])
}

fn number(field: &[u8]) -> u64 {
    u64::from_le_bytes(field.try_into().unwrap())
}

/// The scalars of event files by tag and step, as a reader that drops what a later start says is
/// done again.
fn scalars(files: &[PathBuf]) -> BTreeMap<(String, u64), f32> {
    let mut scalars = BTreeMap::new();
    for file in files {
        for (place, record) in records(file).iter().enumerate() {
            let event = message(record);
            let time = f64::from_le_bytes(field(&event, 1).unwrap().try_into().unwrap());
            assert!(time > 1.7e9, "a time in seconds since 1970");
            if place == 0 {
                assert_eq!(field(&event, 3).unwrap(), b"brain.Event:2");
                continue;
            }
            let step = number(field(&event, 2).unwrap());
            if let Some(session) = field(&event, 7) {
                assert_eq!(number(field(&message(session), 1).unwrap()), 1, "a start");
                scalars.retain(|(_, known): &(String, u64), _| *known < step);
                continue;
            }
            for (_, value) in message(field(&event, 5).unwrap()) {
                let value = message(&value);
                let tag = String::from_utf8(field(&value, 1).unwrap().to_vec()).unwrap();
                let scalar = f32::from_le_bytes(field(&value, 2).unwrap().try_into().unwrap());
                assert!(scalars.insert((tag, step), scalar).is_none(), "a step is there twice");
            }
        }
    }
    scalars
}

fn event_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_events = |path: &PathBuf| {
        path.file_name().unwrap().to_str().unwrap().starts_with("events.out.tfevents.")
    };
    let mut files: Vec<PathBuf> = entries.filter(is_events).collect();
    files.sort();
    files
}

fn assert_events_are_metrics(bench: &Bench, name: &str) {
    let found = scalars(&event_files(&bench.folder(name)));
    let mut wanted = 0;
    for record in json_lines(&bench.metrics(name)) {
        let (group, numbers) = match record["kind"].as_str().unwrap() {
            "train" => ("train", &["loss", "lr", "grad_norm"][..]),
            "eval" => {
                let keys = &["loss", "top1", "top5", "largest_delta_a"];
                (record["split"].as_str().unwrap(), &keys[..])
            }
            kind => panic!("{kind}"),
        };
        for number in numbers {
            let key = (format!("{group}/{number}"), record["step"].as_u64().unwrap());
            assert_eq!(found[&key], record[*number].as_f64().unwrap() as f32, "{key:?}");
            wanted += 1;
        }
    }
    let others: Vec<_> = found
        .keys()
        .filter(|(tag, _)| !tag.starts_with("memory/"))
        .filter(|(tag, _)| !["train/img_s", "train/data_wait"].contains(&tag.as_str()))
        .collect();
    assert_eq!(others.len(), wanted, "nothing besides: {others:?}");
    assert!(found.contains_key(&("train/img_s".into(), 24)));
}

/// A run that goes on from step 6, although its files have got to step 7.
fn resumed(bench: &Bench) {
    assert_code(&bench.train("resumed", &["--steps", "7"]), 0);
    let folder = bench.folder("resumed");
    // As if it had been killed before the save at step 7; a record of a key that is no more, too.
    fs::remove_dir_all(folder.join("checkpoints/step-00000007")).unwrap();
    for (file, more) in [
        ("metrics.csv", "7,0,train,,,9.9\n"),
        ("metrics.jsonl", "{\"kind\":\"train\",\"step\":7,\"loss\":1.0,\"more\":1}\n"),
    ] {
        fs::write(folder.join(file), bench.read("resumed", file) + more).unwrap();
    }
    let output = bench.train("resumed", &["--resume", "must"]);
    assert_says(&output, 0, &["resumed at step 6"]);
}

#[test]
fn events_hold_what_the_metrics_do_also_after_a_resume() {
    let bench = Bench::new();
    assert_code(&bench.train("whole", &[]), 0);
    assert_eq!(event_files(&bench.folder("whole")).len(), 1);
    assert_events_are_metrics(&bench, "whole");
    resumed(&bench);
    assert_eq!(event_files(&bench.folder("resumed")).len(), 2);
    assert_events_are_metrics(&bench, "resumed");
}

#[test]
fn the_table_holds_what_the_metrics_do_also_after_a_resume() {
    let bench = Bench::new();
    assert_code(&bench.train("whole", &[]), 0);
    resumed(&bench);
    let table = |name| bench.read(name, "metrics.csv");
    assert_eq!(table("whole"), table("resumed"));

    let text = table("whole");
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    assert_eq!(head[..6], ["step", "epoch", "kind", "split", "checkpoint", "loss"]);
    let records = bench.metrics("whole");
    let mut rows = 0;
    for (fields, record) in lines.zip(records.lines()) {
        rows += 1;
        assert_eq!(fields.len(), head.len());
        let filled = || head.iter().zip(&fields).filter(|(_, field)| !field.is_empty());
        for (key, value) in filled() {
            // Digit by digit, as the record's own text has it.
            let number = format!("\"{key}\":{value}");
            let word = format!("\"{key}\":\"{value}\"");
            let mut places = [',', '}'].into_iter();
            let is_there = places.any(|end| record.contains(&format!("{number}{end}")));
            assert!(is_there || record.contains(&word), "{key} {value}: {record}");
        }
        let parsed: Value = serde_json::from_str(record).unwrap();
        assert_eq!(filled().count(), parsed.as_object().unwrap().len());
    }
    assert_eq!(rows, records.lines().count());
    assert_eq!(rows + 1, text.lines().count());
}

#[test]
fn timings_tell_the_wait_and_the_memory() {
    let bench = Bench::new();
    let output = bench.train("a", &[]);
    assert_code(&output, 0);
    let records = json_lines(&bench.read("a", "timing.jsonl"));
    let (begun, records) = records.split_first().unwrap();
    assert_eq!(*begun, json!({ "step": 0, "elapsed_s": 0.0 }));
    assert_eq!(records.len(), 12);
    let mut before = 0.0;
    for record in records {
        let elapsed = record["elapsed_s"].as_f64().unwrap();
        let waited = record["data_wait_s"].as_f64().unwrap();
        assert_eq!(record["graph_replays"], 0, "the CPU has no graphs: {record}");
        assert!(waited >= 0.0 && waited <= elapsed - before + 1e-3, "{record}");
        before = elapsed;
        if cfg!(target_os = "linux") {
            assert!(record["memory_bytes"].as_u64().unwrap() > 1 << 20, "{record}");
        }
    }
    // The log has every line; the console not more than one a second, but the first and the last.
    let said = stderr(&output);
    let log = bench.read("a", "log.txt");
    let lines = |text: &str| text.lines().filter(|line| line.contains(" img/s wait ")).count();
    assert_eq!(lines(&log), 12);
    assert!(said.lines().filter(|l| l.contains(" img/s wait ")).all(|l| log.contains(l)), "{said}");
    assert_parts(&said, &[" step 2/24 ", " step 24/24 "]);
}
