//! What is written is read back, bit by bit, and the same bytes every time; safetensors by hand.

use std::io::Cursor;

use vim_torch::{
    Array, Element, Format, Item, Section, StateDict, Value, read_checkpoint, write_mmcv,
    write_pytorch, write_safetensors,
};

use crate::forge::{read, refusal};

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
    let views = arrays.iter().map(|(key, array)| (key.as_str(), array.into()));
    write_pytorch(&mut out, views, &TEXTS).unwrap();
    out.into_inner()
}

fn safetensors(arrays: &[(String, Array)]) -> Vec<u8> {
    let mut out = Vec::new();
    let views = arrays.iter().map(|(key, array)| (key.as_str(), array.into()));
    write_safetensors(&mut out, views, &TEXTS).unwrap();
    out
}

/// Quotes, line ends and letters of other scripts are what headers and pickles may get wrong.
const TEXTS: [(&str, &str); 2] = [("format", "pt"), ("about", "size = [16, 36]\nname = \"ä\\\"\n")];

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
    for about in [read_pth.about, read_safetensors.about] {
        assert_eq!(about.len(), TEXTS.len());
        assert!(TEXTS.iter().all(|(key, text)| about[*key] == *text), "{about:?}");
    }
    assert_eq!(read_pth.ignored, ["format", "about"]);
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

/// A file with this header and content.
fn file(header: &str, content: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), content].concat()
}

#[test]
fn floats_of_all_widths_and_texts_are_read() {
    let header = r#"{"__metadata__":{"format":"pt"},
        "module.h":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},
        "module.w":{"dtype":"F16","shape":[1,2],"data_offsets":[4,8]},
        "module.d":{"dtype":"F64","shape":[],"data_offsets":[8,16]},
        "module.i":{"dtype":"I64","shape":[1],"data_offsets":[16,24]}}"#;
    let content = [
        &[0x80, 0x3f, 0x00, 0xc0][..], // 1, -2
        &[0x00, 0x3c, 0x00, 0xc0],
        &0.1_f64.to_le_bytes(),
        &7_i64.to_le_bytes(),
    ]
    .concat();
    let checkpoint = read(&file(header, &content)).unwrap();
    assert_eq!(checkpoint.format, Format::Safetensors);
    assert_eq!(checkpoint.prefix.as_deref(), Some("module."));
    assert_eq!(checkpoint.about["format"], "pt");
    for (key, shape, values, stored) in [
        ("h", &[2][..], &[1.0, -2.0][..], Element::Bf16),
        ("w", &[1, 2], &[1.0, -2.0], Element::F16),
        ("d", &[], &[0.1], Element::F64),
    ] {
        let array = checkpoint.state.array(key).unwrap();
        assert_eq!((&array.shape[..], &array.values[..], array.stored), (shape, values, stored));
    }
    assert!(
        matches!(checkpoint.state.get("i"), Some(Item::Unreadable(what)) if what.contains("I64"))
    );
}

#[test]
fn damage_is_told() {
    let header = r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let whole = file(header, &[0; 8]);
    for cut in 9..whole.len() {
        assert!(refusal(&whole[..cut]).contains("damaged"), "{cut}");
    }
    let absurd = r#"{"w":{"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]}}"#;
    assert!(refusal(&file(absurd, &[0; 8])).contains("damaged"));
    let error = read_checkpoint(Cursor::new(&whole), Section::Ema).unwrap_err();
    assert!(error.to_string().contains("being safetensors"), "{error}");
}

/// `{"meta": …, "state_dict": …}` with counts among the tensors.
#[test]
fn a_checkpoint_of_mmcv_is_read_back() {
    let arrays = arrays();
    let values = arrays.iter().flat_map(|(key, array)| {
        [(key.as_str(), Value::Floats(array.into())), ("bn.num_batches_tracked", Value::Integer(7))]
    });
    let mut out = Cursor::new(Vec::new());
    write_mmcv(&mut out, &[("made by", "a test"), ("more", "")], values, &TEXTS).unwrap();
    let checkpoint = read_checkpoint(out, Section::Model).unwrap();
    assert_eq!(checkpoint.about["about"], TEXTS[1].1, "beside `meta`");
    let count = checkpoint.state.get("bn.num_batches_tracked");
    assert_eq!(count, Some(&Item::Unreadable("a tensor of Long numbers".into())));
    let mut floats = StateDict::default();
    for (key, item) in checkpoint.state.iter().filter(|(_, item)| matches!(item, Item::Array(_))) {
        floats.insert(key.to_owned(), item.clone());
    }
    let plain = read_checkpoint(Cursor::new(pth(&arrays)), Section::Model).unwrap();
    assert_eq!(bits(&floats), bits(&plain.state));
}
