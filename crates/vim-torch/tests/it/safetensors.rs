//! Safetensors.

use std::io::Cursor;

use vim_torch::{Element, Format, Item, Section, read_checkpoint};

use crate::forge::{read, refusal};

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
    assert_eq!((checkpoint.format, checkpoint.had_module_prefix), (Format::Safetensors, true));
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
