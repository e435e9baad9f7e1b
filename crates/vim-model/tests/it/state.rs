//! Out of a model and into another: bit by bit, under both names, and as PyTorch's files.

use std::io::Cursor;

use burn::store::{ModuleSnapshot, PytorchStore};
use vim_kernels::{Discretization, KernelChoice};
use vim_model::{
    Bimamba, ClassToken, LayerScale, LoadOptions, Names, NormKind, Preset, Resize, Rope, SsmConfig,
    StateDictMismatch, StateMatrix, Vim, VimConfig, pytorch_key,
};
use vim_torch::{Array, Item, Section, StateDict, read_checkpoint};

use crate::golden::a_mid;
use crate::support::{arrays, batch, build, dict, fixture, logits, small, values};

fn load(
    config: &VimConfig,
    state: &StateDict,
    options: LoadOptions,
) -> Result<Vim, Box<StateDictMismatch>> {
    build(config, 9).load(state, options).map(|(model, _)| model)
}

#[test]
fn a_model_goes_through_either_naming_unchanged() {
    let model = build(&small(), 1);
    for names in [Names::Ours, Names::Pytorch] {
        let state = dict(arrays(&model, names));
        let back = load(&small(), &state, LoadOptions::default()).unwrap();
        assert_eq!(values(&back), values(&model), "{names:?}");
        assert_ne!(values(&build(&small(), 9)), values(&model));
    }
}

/// Keys and shapes that the original registers for Vim-Ti and Vim-S at 224 px and 1000 classes.
fn registered(m: usize, d: usize, x_proj: usize, dt_rank: usize) -> Vec<(String, Vec<usize>)> {
    let mut keys: Vec<(String, Vec<usize>)> = vec![
        ("cls_token".into(), vec![1, 1, m]),
        ("pos_embed".into(), vec![1, 197, m]),
        ("patch_embed.proj.weight".into(), vec![m, 3, 16, 16]),
        ("patch_embed.proj.bias".into(), vec![m]),
        ("head.weight".into(), vec![1000, m]),
        ("head.bias".into(), vec![1000]),
        ("norm_f.weight".into(), vec![m]),
    ];
    for layer in 0..24 {
        let mut add = |name: &str, shape: &[usize]| {
            keys.push((format!("layers.{layer}.{name}"), shape.to_vec()));
        };
        add("mixer.in_proj.weight", &[2 * d, m]);
        add("mixer.out_proj.weight", &[m, d]);
        add("norm.weight", &[m]);
        for b in ["", "_b"] {
            add(&format!("mixer.A{b}_log"), &[d, 16]);
            add(&format!("mixer.D{b}"), &[d]);
            add(&format!("mixer.conv1d{b}.weight"), &[d, 1, 4]);
            add(&format!("mixer.conv1d{b}.bias"), &[d]);
            add(&format!("mixer.x_proj{b}.weight"), &[x_proj, d]);
            add(&format!("mixer.dt_proj{b}.weight"), &[d, dt_rank]);
            add(&format!("mixer.dt_proj{b}.bias"), &[d]);
        }
    }
    keys.sort();
    keys
}

#[test]
fn exported_keys_and_shapes_are_those_that_the_original_registers() {
    for (preset, expected) in [
        (Preset::Tiny, registered(192, 384, 44, 12)),
        (Preset::Small, registered(384, 768, 56, 24)),
    ] {
        let state = arrays(&build(&VimConfig::preset(preset), 0), Names::Pytorch);
        let mut keys: Vec<(String, Vec<usize>)> =
            state.into_iter().map(|(key, array)| (key, array.shape)).collect();
        keys.sort();
        assert_eq!(keys, expected, "{preset:?}");
    }
}

/// Burn's reader of PyTorch files shares no code with ours.
#[test]
fn an_independent_reader_finds_the_same_numbers() {
    let model = build(&small(), 2);
    let bytes = model.state(Names::Pytorch).unwrap().to_pytorch().unwrap();
    let path = std::env::temp_dir().join(format!("vim-model-export-{}.pth", std::process::id()));
    std::fs::write(&path, bytes).unwrap();

    let mut store =
        PytorchStore::from_file(&path).with_top_level_key("model").map_indices_contiguous(false);
    for parameter in model.parameters() {
        let (ours, theirs) = (parameter.path.clone(), pytorch_key(&parameter.path));
        store = store.with_key_remapping(format!("^{}$", theirs.replace('.', r"\.")), ours);
    }
    let mut twin = build(&small(), 3);
    let result = twin.load_from(&mut store).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(result.errors.is_empty() && result.missing.is_empty() && result.unused.is_empty());
    assert_eq!(values(&twin), values(&model));
}

#[test]
fn the_original_s_file_comes_back_bit_by_bit() {
    let read = |bytes: &[u8]| read_checkpoint(Cursor::new(bytes), Section::Model).unwrap().state;
    let original = read(&std::fs::read(fixture("a_mid.pth")).unwrap());
    let model = load(&a_mid(KernelChoice::Auto), &original, LoadOptions::default()).unwrap();
    let exported = arrays(&model, Names::Pytorch);
    assert_eq!(exported.len(), original.len());
    for (key, array) in &exported {
        let bits = |array: &Array| array.values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let theirs = original.array(key).unwrap();
        assert_eq!((&theirs.shape, bits(theirs)), (&array.shape, bits(array)), "{key}");
    }
}

/// What the original keeps of every variant goes out, comes back, and gives the same logits.
#[test]
fn every_variant_goes_through_the_original_s_names() {
    for config in [
        VimConfig { bimamba: Bimamba::V1, ..small() },
        VimConfig { bimamba: Bimamba::None, ..small() },
        VimConfig { class_token: ClassToken::Double, norm: NormKind::Layer, ..small() },
        VimConfig { class_token: ClassToken::None, abs_pos_embed: false, ..small() },
        VimConfig { rope: Rope::Both, layer_scale: LayerScale::Starts(0.5), ..small() },
    ] {
        let model = build(&config, 1);
        let state = dict(arrays(&model, Names::Pytorch));
        assert_eq!(state.get("rope.freqs_sin").is_some(), config.rope != Rope::None);
        let back = load(&config, &state, LoadOptions::default()).unwrap();
        assert_eq!(values(&back), values(&model), "{config:?}");
        assert_eq!(logits(&back, batch(2, 16)), logits(&model, batch(2, 16)), "{config:?}");
    }
}

#[test]
fn what_the_original_lacks_is_not_exported() {
    let config = VimConfig {
        discretization: Discretization::Bilinear,
        ssm: SsmConfig { a: StateMatrix::Full, ..SsmConfig::default() },
        ..small()
    };
    let model = build(&config, 1);
    assert_eq!(model.state(Names::Pytorch).unwrap_err(), "layers.0.mixer.forward.a_off");
    let back = load(&config, &dict(arrays(&model, Names::Ours)), LoadOptions::default());
    assert_eq!(values(&back.unwrap()), values(&model));
}

#[test]
fn a_head_of_other_classes_is_replaced_only_where_allowed() {
    let state = dict(arrays(&build(&small(), 1), Names::Pytorch));
    let other = VimConfig { num_classes: 3, ..small() };
    let mismatch = load(&other, &state, LoadOptions::default()).unwrap_err();
    assert_eq!(
        mismatch.lines(),
        [
            "of another shape: head.weight (expected [3, 16], got [5, 16])",
            "of another shape: head.bias (expected [3], got [5])",
        ]
    );
    let allowed = LoadOptions { head: true, ..LoadOptions::default() };
    let (model, report) = build(&other, 9).load(&state, allowed).unwrap();
    assert_eq!(report.head, Some((5, 3)));
    let (got, fresh) = (values(&model), values(&build(&other, 9)));
    let given = values(&build(&small(), 1));
    for (path, value) in &got {
        let expected = if path.starts_with("head.") { &fresh } else { &given };
        assert_eq!(value, &expected[path], "{path}");
    }
}

#[test]
fn missing_parameters_keep_their_values_only_where_allowed() {
    let mut arrays = arrays(&build(&small(), 1), Names::Pytorch);
    arrays.retain(|(key, _)| key != "layers.1.mixer.D_b");
    arrays.push(("rope.freqs_cos".into(), arrays[0].1.clone()));
    let mut state = dict(arrays);
    let count = Item::Unreadable("a tensor of Long numbers".into());
    state.insert("probe.num_batches_tracked".into(), count);
    let mismatch = load(&small(), &state, LoadOptions::default()).unwrap_err();
    let lines = ["missing: layers.1.mixer.D_b [32]", "not in the model: rope.freqs_cos"];
    assert_eq!(mismatch.lines(), lines);
    let allowed = LoadOptions { missing: true, ..LoadOptions::default() };
    let turned = VimConfig { rope: Rope::Hidden, ..small() };
    let (_, report) = build(&turned, 9).load(&state, allowed).unwrap();
    assert_eq!(report.missing, ["layers.1.mixer.D_b"]);
    assert_eq!(report.computed, ["rope.freqs_cos", "probe.num_batches_tracked"]);
}

#[test]
fn numbers_that_are_not_finite_are_named() {
    let mut arrays = arrays(&build(&small(), 1), Names::Pytorch);
    let find = |(key, _): &&mut (String, Array)| key == "head.bias";
    arrays.iter_mut().find(find).unwrap().1.values[2] = f32::NAN;
    let (_, report) = build(&small(), 9).load(&dict(arrays), LoadOptions::default()).unwrap();
    assert_eq!(report.not_finite, ["head.bias"]);
}

#[test]
fn positions_follow_a_larger_image_only_where_allowed() {
    let state = dict(arrays(&build(&small(), 1), Names::Pytorch));
    let larger = VimConfig { image_size: 24.into(), ..small() };
    let mismatch = load(&larger, &state, LoadOptions::default()).unwrap_err();
    assert_eq!(
        mismatch.lines(),
        ["of another shape: pos_embed (expected [1, 37, 16], got [1, 17, 16])"]
    );
    let allowed = LoadOptions { resize: Some(Resize::MiddleAware), ..LoadOptions::default() };
    let (model, report) = build(&larger, 9).load(&state, allowed).unwrap();
    assert_eq!(report.resized, Some(([4, 4], [6, 6])));
    assert!(logits(&model, batch(2, 24)).iter().all(|x| x.is_finite()));
}
