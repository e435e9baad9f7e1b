//! What tools put around a model: prefixes, entries, and counters among the parameters.

use std::io::Cursor;

use vim_torch::{
    Array, Checkpoint, Element, Item, ReadError, Section, read_checkpoint, read_safetensors,
    write_safetensors,
};

use crate::forge::{dict, integer, read, refusal, tensor, text, whole};

/// Names of a small model, in an order of their own.
const NAMES: [&str; 4] = ["patch.proj.weight", "layers.0.mixer.D", "cls_token", "head.bias"];

/// A tensor of the one number `place`, which is less than 4.
fn number(place: i64) -> Vec<u8> {
    tensor(4, place, &[1], &[1])
}

/// A tensor of integers, whose storage is not there.
fn integers(shape: &[i64]) -> Vec<u8> {
    let floats = tensor(4, 0, shape, &vec![1; shape.len()]);
    let at = floats.windows(5).position(|window| window == b"Float").unwrap();
    [&floats[..at], b"Long", &floats[at + 5..]].concat()
}

/// A state dict whose keys are `wrapped` names, with the numbers 0, 1, 2 and 3.
fn state(wrapped: impl Fn(&str) -> String) -> Vec<(String, Vec<u8>)> {
    NAMES.iter().zip(0..).map(|(name, place)| (wrapped(name), number(place))).collect()
}

fn pickled(state: &[(String, Vec<u8>)]) -> Vec<u8> {
    dict(&state.iter().map(|(key, value)| (key.as_str(), value.clone())).collect::<Vec<_>>())
}

/// The same as safetensors.
fn safetensors(wrapped: impl Fn(&str) -> String) -> Vec<u8> {
    let arrays: Vec<(String, Array)> = (NAMES.iter().zip([0.0, 1.0, 2.0, 3.0]))
        .map(|(name, value)| {
            (wrapped(name), Array { shape: vec![1], values: vec![value], stored: Element::F32 })
        })
        .collect();
    let mut out = Vec::new();
    let views = arrays.iter().map(|(key, array)| (key.as_str(), array.into()));
    write_safetensors(&mut out, views, &[]).unwrap();
    out
}

/// Keys and numbers of the arrays, in order.
fn arrays(checkpoint: &Checkpoint) -> Vec<(&str, f32)> {
    let array = |item: &Item| match item {
        Item::Array(array) => array.values[0],
        Item::Unreadable(what) => panic!("{what}"),
    };
    checkpoint.state.iter().map(|(key, item)| (key, array(item))).collect()
}

fn plain() -> Vec<(&'static str, f32)> {
    NAMES.into_iter().zip([0.0, 1.0, 2.0, 3.0]).collect()
}

#[test]
fn wrappers_of_all_keys_are_taken_off_in_any_order() {
    for prefix in [
        "module.",
        "_orig_mod.",
        "model.",
        "net.",
        "network.",
        "backbone.",
        "encoder.",
        "student.",
        "teacher.",
        "ema.",
        "ema_model.",
        "_forward_module.",
        "_fsdp_wrapped_module.",
        "_orig_mod.module.",
        "module._orig_mod.",
        "_orig_mod.module.model.",
        "_forward_module._orig_mod.model.backbone.net.",
        "model.model.",
    ] {
        let wrapped = |name: &str| format!("{prefix}{name}");
        let entry = dict(&[("model", pickled(&state(wrapped)))]);
        for bytes in [whole(&pickled(&state(wrapped))), whole(&entry)] {
            let checkpoint = read(&bytes).unwrap();
            assert_eq!(checkpoint.prefix.as_deref(), Some(prefix));
            assert_eq!(arrays(&checkpoint), plain(), "{prefix}");
            assert!(checkpoint.inner.is_empty() && checkpoint.ignored.is_empty(), "{prefix}");
        }
        let bytes = safetensors(wrapped);
        let checkpoint = read(&bytes).unwrap();
        assert_eq!(checkpoint.prefix.as_deref(), Some(prefix));
        let mut sorted = arrays(&checkpoint);
        sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
        assert_eq!(sorted, plain(), "{prefix}");
        let raw = read_safetensors(&bytes).unwrap();
        assert!(raw.state.iter().all(|(key, _)| key.starts_with(prefix)), "keys stay");
    }
}

#[test]
fn what_not_all_share_or_no_tool_writes_stays() {
    for (wrapped, others) in [
        // A segmenter's or a detector's backbone beside its heads; a loss with weights.
        (&(|name: &str| format!("backbone.net.{name}")) as &dyn Fn(&str) -> String, "decode.w"),
        (&|name: &str| format!("model.{name}"), "loss.weight"),
        (&|name: &str| format!("layers.{name}"), "layers.w"),
    ] {
        let mut pairs = state(wrapped);
        pairs.push((others.to_owned(), number(3)));
        let checkpoint = read(&whole(&pickled(&pairs))).unwrap();
        let keys: Vec<&str> = checkpoint.state.iter().map(|(key, _)| key).collect();
        assert_eq!(keys, pairs.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>());
        assert_eq!((checkpoint.prefix, checkpoint.inner.len()), (None, 0));
    }
    // What is shared goes, though what is behind it is not.
    let mut pairs = state(|name| format!("module.model.{name}"));
    pairs.push(("module.loss.weight".into(), number(3)));
    let checkpoint = read(&whole(&pickled(&pairs))).unwrap();
    assert_eq!(checkpoint.prefix.as_deref(), Some("module."));
    let found = checkpoint.state.prefix_before("patch.proj.weight");
    assert_eq!(found, Some(("model.", vec!["loss.weight"])));
    assert_eq!(checkpoint.state.prefix_before("loss.weight"), None);
    assert_eq!(checkpoint.state.prefix_before("proj.bias"), None);
    // A key that is nothing but a wrapper keeps its name.
    let bare = dict(&[("module.", number(0)), ("module.w", number(1))]);
    assert_eq!(read(&whole(&bare)).unwrap().prefix, None);
}

#[test]
fn wrappers_inside_a_model_are_taken_out() {
    let wrapped = |name: &str| match name.split_once('.') {
        Some((first, rest)) => {
            format!("model.{first}._fsdp_wrapped_module._checkpoint_wrapped_module.{rest}")
        }
        None => format!("_fsdp_wrapped_module.model.{name}"),
    };
    let checkpoint = read(&whole(&pickled(&state(wrapped)))).unwrap();
    assert_eq!(arrays(&checkpoint), plain());
    assert_eq!(checkpoint.prefix.as_deref(), Some("model."), "shared once the others are gone");
    assert_eq!(checkpoint.inner, ["_fsdp_wrapped_module.", "_checkpoint_wrapped_module."]);
    let checkpoint = read(&safetensors(wrapped)).unwrap();
    assert_eq!(checkpoint.state.array("layers.0.mixer.D").unwrap().values, [1.0]);

    // One compiled block, and a parameter with the name of a wrapper.
    let block = |name: &str| name.replace("layers.0.", "layers.0._orig_mod.");
    let mut pairs = state(block);
    pairs.push(("head._orig_mod".into(), number(0)));
    let checkpoint = read(&whole(&pickled(&pairs))).unwrap();
    assert_eq!((checkpoint.prefix, &checkpoint.inner[..]), (None, &["_orig_mod.".to_owned()][..]));
    let keys: Vec<&str> = checkpoint.state.iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [&NAMES[..], &["head._orig_mod"]].concat());

    // Two arrays never become one.
    let both = dict(&[("a.w", number(0)), ("a._orig_mod.w", number(1))]);
    let checkpoint = read(&whole(&both)).unwrap();
    assert_eq!(arrays(&checkpoint), [("a.w", 0.0), ("a._orig_mod.w", 1.0)]);
    assert!(checkpoint.inner.is_empty());
}

#[test]
fn counters_are_ignored_and_listed() {
    let mut pairs = state(|name| format!("module.{name}"));
    pairs.insert(0, ("n_averaged".into(), integers(&[])));
    pairs.insert(3, ("module.layers.0.mixer.total_ops".into(), number(3)));
    pairs.push(("total_params".into(), tensor(4, 0, &[], &[])));
    pairs.push(("step".into(), integer(9)));
    let entries = dict(&[("epoch", integer(3)), ("state_dict", pickled(&pairs))]);
    let checkpoint = read(&whole(&entries)).unwrap();
    assert_eq!(arrays(&checkpoint), plain());
    assert_eq!(checkpoint.prefix.as_deref(), Some("module."), "counters need not share it");
    let counters = ["n_averaged", "module.layers.0.mixer.total_ops", "total_params", "step"];
    assert_eq!(checkpoint.ignored, [&["epoch"][..], &counters].concat());

    // These are no counters: a batch normalization's, which its model knows; vectors; a text.
    let kept = [
        ("bn.num_batches_tracked", integers(&[])),
        ("index", integers(&[3])),
        ("block.total_ops", tensor(4, 0, &[3], &[1])),
        ("scale", tensor(4, 1, &[], &[])),
        ("note", text("x")),
    ];
    let checkpoint = read(&whole(&dict(&kept))).unwrap();
    assert_eq!((checkpoint.state.len(), checkpoint.ignored.len()), (5, 0));
}

#[test]
fn counters_of_safetensors_are_ignored_and_listed() {
    let header = r#"{"n_averaged":{"dtype":"I64","shape":[],"data_offsets":[0,8]},
        "module.total_ops":{"dtype":"F64","shape":[1],"data_offsets":[8,16]},
        "module.index":{"dtype":"I32","shape":[1],"data_offsets":[16,20]},
        "module.w":{"dtype":"F32","shape":[],"data_offsets":[20,24]}}"#;
    let content = [&[0; 20][..], &1.5_f32.to_le_bytes()].concat();
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &content].concat();
    let checkpoint = read(&bytes).unwrap();
    assert_eq!(checkpoint.ignored, ["n_averaged", "module.total_ops"]);
    assert_eq!(checkpoint.state.array("w").unwrap().values, [1.5]);
    assert!(matches!(checkpoint.state.get("index"), Some(Item::Unreadable(_))));
    assert_eq!(read_safetensors(&bytes).unwrap().state.len(), 4, "all are there");
}

#[test]
fn entries_of_many_programs_are_found() {
    let weights = || pickled(&state(str::to_owned));
    for name in [
        "model",
        "state_dict",
        "model_state_dict",
        "model_state",
        "module",
        "net",
        "network",
        "state",
        "weights",
        "params",
        "student",
        "teacher",
    ] {
        let file = dict(&[("epoch", integer(3)), (name, weights()), ("optimizer", dict(&[]))]);
        let checkpoint = read(&whole(&file)).unwrap();
        assert_eq!(checkpoint.entry.as_deref(), Some(name));
        assert_eq!(checkpoint.ignored, ["epoch", "optimizer"]);
        assert_eq!(arrays(&checkpoint), plain());
    }
    for name in ["model_ema", "state_dict_ema", "ema_state_dict", "ema_model", "ema", "params_ema"]
    {
        let other = dict(&[("other", number(0))]);
        let averaged = dict(&[("model", other), (name, dict(&[("module", weights())]))]);
        let checkpoint = read_checkpoint(Cursor::new(whole(&averaged)), Section::Ema).unwrap();
        assert_eq!(checkpoint.entry, Some(format!("{name}.module")));
        assert_eq!(checkpoint.ignored, ["model"]);
        assert_eq!(arrays(&checkpoint), plain());
        let checkpoint = read(&whole(&averaged)).unwrap();
        assert_eq!((checkpoint.entry.as_deref(), checkpoint.state.len()), (Some("model"), 1));
    }
}

#[test]
fn an_entry_may_be_in_another_and_beside_what_only_has_a_name() {
    let weights = || pickled(&state(str::to_owned));
    let inner = dict(&[("step", integer(1)), ("model", weights())]);
    let nested = read(&whole(&dict(&[("model", inner), ("epoch", integer(3))]))).unwrap();
    assert_eq!(nested.entry.as_deref(), Some("model.model"));
    assert_eq!(nested.ignored, ["epoch", "model.step"]);
    assert_eq!(arrays(&nested), plain());

    // `model` says which architecture it is; `params` are settings.
    let settings = || dict(&[("depth", integer(24))]);
    for (pairs, entry) in [
        ([("model", text("vim_tiny")), ("state_dict", weights())], Some("state_dict")),
        ([("model", settings()), ("net", weights())], Some("net")),
        ([("params", settings()), ("net", weights())], Some("net")),
        ([("model", weights()), ("module", weights())], Some("model")),
        ([("net", text("vim_tiny")), ("w", number(0))], None),
    ] {
        assert_eq!(read(&whole(&dict(&pairs))).unwrap().entry.as_deref(), entry);
    }

    for (pairs, words) in [
        ([("model", settings()), ("epoch", integer(3))], "a dictionary without tensors in `model`"),
        ([("model", dict(&[])), ("epoch", integer(3))], "an empty dictionary in `model`"),
        ([("model", text("vim_tiny")), ("epoch", integer(3))], "a text in `model`"),
        ([("net", settings()), ("epoch", integer(3))], "`teacher`; it has net, epoch"),
    ] {
        let said = refusal(&whole(&dict(&pairs)));
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn several_entries_are_refused_by_name() {
    let weights = || pickled(&state(str::to_owned));
    for (file, found, taken) in [
        (dict(&[("student", weights()), ("teacher", weights())]), "student teacher", "['student']"),
        (dict(&[("model", weights()), ("state_dict", weights())]), "model state_dict", "['model']"),
        (
            dict(&[("state", dict(&[("teacher", weights()), ("net", weights())]))]),
            "state.net state.teacher",
            "['state']['net']",
        ),
    ] {
        let bytes = whole(&file);
        let error = read(&bytes).unwrap_err();
        let names: Vec<&str> = found.split(' ').collect();
        assert!(matches!(&error, ReadError::Ambiguous { found } if *found == names), "{error}");
        let said = refusal(&bytes);
        let both = format!("`{}` and `{}`", names[0], names[1]);
        assert!(said.contains(&both) && said.contains(taken), "{said}");
    }
    // One dictionary under two names is one set of weights.
    let kept = [&weights()[..], b"q\x07"].concat();
    let shared = dict(&[("student", kept), ("teacher", b"h\x07".to_vec())]);
    assert_eq!(read(&whole(&shared)).unwrap().entry.as_deref(), Some("student"));
}

#[test]
fn entries_that_hold_themselves_or_are_deep_are_cheap() {
    // Two names, each of the dictionary itself.
    let own = [&b"}q\x00("[..], &text("model"), b"h\x00", &text("net"), b"h\x00u"].concat();
    assert!(refusal(&whole(&own)).contains("a dictionary without tensors in `model`"));
    let mut deep = dict(&[("w", number(0))]);
    for _ in 0..4 {
        deep = dict(&[("model", deep)]);
    }
    assert_eq!(read(&whole(&deep)).unwrap().entry.as_deref(), Some("model.model.model.model"));
    let deeper = dict(&[("model", deep)]);
    assert!(refusal(&whole(&deeper)).contains("a dictionary without tensors in `model`"));
}
