//! What is written is read back, bit by bit, and the same bytes every time.

use std::io::Cursor;

use vim_torch::{Array, Element, Item, StateDict, write_pytorch, write_safetensors};

use crate::forge::read;

fn arrays() -> Vec<(String, Array)> {
    let array = |shape: &[usize], values: Vec<f32>| Array {
        shape: shape.to_vec(),
        values,
        stored: Element::F32,
    };
    vec![
        ("cls_token".into(), array(&[1, 1, 3], vec![f32::MIN_POSITIVE / 2.0, -0.0, f32::MAX])),
        ("head.weight".into(), array(&[2, 3], (0..6).map(|i| (i as f32).sin()).collect())),
        ("head.bias".into(), array(&[2], vec![f32::NAN, f32::INFINITY])),
        ("scalar".into(), array(&[], vec![1.5])),
        ("large".into(), array(&[300, 300], (0..90_000).map(|i| i as f32).collect())),
    ]
}

fn pth(arrays: &[(String, Array)]) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    write_pytorch(&mut out, arrays.iter().map(|(key, array)| (key.as_str(), array.into())))
        .unwrap();
    out.into_inner()
}

fn safetensors(arrays: &[(String, Array)]) -> Vec<u8> {
    let mut out = Vec::new();
    let views = arrays.iter().map(|(key, array)| (key.as_str(), array.into()));
    write_safetensors(&mut out, views, Some(("a", "b"))).unwrap();
    out
}

/// Keys, shapes and bits, so that NaN equals itself.
fn bits(state: &StateDict) -> Vec<(String, Vec<usize>, Vec<u32>)> {
    let mut all: Vec<_> = state
        .iter()
        .map(|(key, item)| match item {
            Item::Array(array) => {
                let bits = array.values.iter().map(|value| value.to_bits()).collect();
                (key.to_owned(), array.shape.clone(), bits)
            }
            Item::Unreadable(what) => panic!("{key}: {what}"),
        })
        .collect();
    all.sort();
    all
}

#[test]
fn both_formats_keep_every_bit() {
    let arrays = arrays();
    let mut state = StateDict::default();
    for (key, array) in &arrays {
        state.insert(key.clone(), Item::Array(array.clone()));
    }
    let read_pth = read(&pth(&arrays)).unwrap();
    assert_eq!(read_pth.entry.as_deref(), Some("model"));
    let keys: Vec<&str> = read_pth.state.iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["cls_token", "head.weight", "head.bias", "scalar", "large"], "in order");
    assert_eq!(bits(&read_pth.state), bits(&state));
    let read_safetensors = read(&safetensors(&arrays)).unwrap();
    assert_eq!(bits(&read_safetensors.state), bits(&state));
    assert_eq!(read_safetensors.about["a"], "b");
}

#[test]
fn the_same_arrays_are_the_same_bytes() {
    assert_eq!(pth(&arrays()), pth(&arrays()));
    assert_eq!(safetensors(&arrays()), safetensors(&arrays()));
}

#[test]
fn storages_are_stored_and_aligned_as_pytorch_s() {
    let bytes = pth(&arrays());
    let mut zip = zip::ZipArchive::new(Cursor::new(&bytes)).unwrap();
    let mut storages = 0;
    for place in 0..zip.len() {
        let file = zip.by_index(place).unwrap();
        assert_eq!(file.compression(), zip::CompressionMethod::Stored);
        assert_eq!(file.data_start().unwrap() % 64, 0, "{}", file.name().unwrap());
        storages += usize::from(file.name().unwrap().starts_with("archive/data/"));
    }
    assert_eq!(storages, 5);
}
