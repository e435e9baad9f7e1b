//! Files that PyTorch wrote (tests/fixtures/make.py).

use std::io::Cursor;

use vim_torch::{Element, Format, Item, Section, read_checkpoint};
use zip::CompressionMethod;

use crate::forge::{archive, fixture, read, refusal};

#[test]
fn every_layout_and_type_becomes_rows_of_f32() {
    let checkpoint = read(&fixture("whole.pth")).unwrap();
    assert_eq!(checkpoint.format, Format::Pytorch);
    assert_eq!(checkpoint.entry.as_deref(), Some("model"));
    assert_eq!(
        checkpoint.ignored,
        ["optimizer", "lr_scheduler", "epoch", "model_ema", "args"],
        "read past, never executed"
    );
    assert_eq!((checkpoint.prefix.as_deref(), checkpoint.inner.len()), (None, 0));
    let state = &checkpoint.state;
    let expected: [(&str, &[usize], &[f32], Element); 11] = [
        ("cls_token", &[1, 1, 4], &[0.0, 1.0, 2.0, 3.0], Element::F32),
        ("transposed", &[3, 2], &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0], Element::F32),
        ("half", &[3], &[0.5, -2.0, 65504.0], Element::F16),
        // 1e30 to eight bits.
        ("bfloat", &[3], &[0.5, -2.0, f32::from_bits(0x714a_0000)], Element::Bf16),
        ("double", &[3], &[0.1, -2.0, f32::INFINITY], Element::F64),
        ("slice", &[3], &[10.0, 11.0, 12.0], Element::F32),
        ("column", &[4], &[3.0, 13.0, 23.0, 33.0], Element::F32),
        ("expanded", &[5], &[1.0; 5], Element::F32),
        ("parameter", &[2], &[1.5, 2.5], Element::F32),
        ("scalar", &[], &[3.5], Element::F32),
        ("empty", &[0, 3], &[], Element::F32),
    ];
    for (key, shape, values, stored) in expected {
        let array = state.array(key).unwrap_or_else(|| panic!("no {key}"));
        assert_eq!((&array.shape[..], &array.values[..]), (shape, values), "{key}");
        assert_eq!(array.stored, stored, "{key}");
    }
    for (key, what) in [
        ("integers", "a tensor of Long numbers"),
        ("complex", "a tensor of ComplexFloat numbers"),
        ("note", "a text"),
    ] {
        assert_eq!(state.get(key), Some(&Item::Unreadable(what.to_owned())), "{key}");
    }
    assert_eq!(state.len(), 14);
}

#[test]
fn the_moving_average_is_read_where_asked_for() {
    let bytes = fixture("whole.pth");
    let checkpoint = read_checkpoint(Cursor::new(&bytes), Section::Ema).unwrap();
    assert_eq!(checkpoint.entry.as_deref(), Some("model_ema"));
    assert_eq!(checkpoint.state.array("weight").unwrap().values, [1.0, 2.0]);
    assert_eq!(checkpoint.state.array("bias").unwrap().values, [3.0]);
    let error = read_checkpoint(Cursor::new(fixture("module.pth")), Section::Ema).unwrap_err();
    assert_eq!(
        error.to_string(),
        "has no entry `model_ema` or `state_dict_ema`, nor `ema_state_dict`, `ema_model`, `ema`, \
         `params_ema`; it has module.weight, module.bias"
    );
}

#[test]
fn a_bare_state_dict_loses_its_module_prefix() {
    let checkpoint = read(&fixture("module.pth")).unwrap();
    assert_eq!(checkpoint.entry, None);
    assert_eq!(checkpoint.prefix.as_deref(), Some("module."));
    let keys: Vec<&str> = checkpoint.state.iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["weight", "bias"]);
}

#[test]
fn a_file_from_a_gpu_reads_the_same() {
    let bytes = fixture("whole.pth");
    let mut zip = zip::ZipArchive::new(Cursor::new(&bytes)).unwrap();
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for place in 0..zip.len() {
        let mut file = zip.by_index(place).unwrap();
        let name = file.name().unwrap().split_once('/').unwrap().1.to_owned();
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut content).unwrap();
        files.push((name, content));
    }
    let pickle = &mut files.iter_mut().find(|(name, _)| name == "data.pkl").unwrap().1;
    let (cpu, gpu) = (b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:0");
    let at = pickle.windows(cpu.len()).position(|window| window == cpu).unwrap();
    pickle.splice(at..at + cpu.len(), gpu.iter().copied());
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, b)| (&name[..], &b[..])).collect();
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        assert_eq!(read(&archive(&files, method)).unwrap(), read(&bytes).unwrap(), "{method:?}");
    }
}

#[test]
fn other_files_of_pytorch_are_named_with_the_way_out() {
    for (name, words) in [
        ("legacy.pth", ["from before 1.6", "save it anew"]),
        ("script.pt", ["TorchScript", "state_dict()"]),
        (
            "object.pth",
            ["the class torch.nn.modules.linear.Linear in `model`", "save model.state_dict()"],
        ),
    ] {
        let text = refusal(&fixture(name));
        assert!(words.iter().all(|word| text.contains(word)), "{name}: {text}");
    }
}
