//! The settings of a model in the JSON beside its arrays, as `[model]`, `[ssm]` and the section of
//! its heads.

use std::collections::BTreeSet;

use schemars::{JsonSchema, schema_for};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use vim_dense::SegmenterConfig;
use vim_dense::detection::DetectorConfig;
use vim_model::{ClassToken, SsmConfig, VimConfig};

/// A section of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Model,
    Ssm,
    /// `[segmentation]` or `[detection]`.
    Heads,
}

/// What a key of the original's means here.
enum Meaning {
    /// That key, with the same values.
    Key(Section, &'static str),
    /// Keys with other values, by what is written down for them.
    Read(fn(&Value, &mut Sections) -> Result<(), String>),
    /// One value alone, in JSON, and what the others would need.
    Only(&'static str, &'static str),
    /// It is read where the arrays are compared, or no number depends on it.
    Aside,
}
use Meaning::{Aside, Key, Only, Read};
use Section::{Heads, Model, Ssm};

/// The original's flags of rotary positions: of the tokens, and of the residual stream too.
const TOKENS: usize = 0;
const STREAM: usize = 1;
/// Why nothing may be drawn.
const DRAWS: &str = "arrays with random draws cannot be computed again";

/// The keys of the originals' models and heads: of the constructors in Vim's `vim/`, `seg/` and
/// `det/`, of mmsegmentation's and detectron2's heads, and shorter ones. Keys of the sections
/// themselves are read as well, and win.
const KEYS: &[(&str, Meaning)] = &[
    ("img", Key(Model, "image_size")),
    ("img_size", Key(Model, "image_size")),
    ("patch", Key(Model, "patch_size")),
    ("preset", Only("\"tiny\"", "sizes are written down one by one")),
    ("embed_dim", Key(Model, "d_model")),
    ("norm_epsilon", Key(Model, "norm_eps")),
    (
        "rms_norm",
        Read(|value, to| to.set(Model, "norm", if flag(value)? { "rms" } else { "layer" })),
    ),
    (
        "bimamba_type",
        Read(|value, to| {
            to.set(Model, "bimamba", if value.is_null() { "none" } else { text(value)? })
        }),
    ),
    ("if_divide_out", Key(Model, "divide_out")),
    (
        "init_layer_scale",
        Read(|value, to| {
            let value = if value.is_null() { "none".into() } else { value.clone() };
            to.set(Model, "layer_scale", value)
        }),
    ),
    ("if_abs_pos_embed", Key(Model, "abs_pos_embed")),
    ("if_bidirectional", Key(Model, "layer_pairs")),
    ("if_rope", Read(|value, to| to.rope(TOKENS, value))),
    ("rope_residual", Read(|value, to| to.rope(STREAM, value))),
    ("if_rope_residual", Read(|value, to| to.rope(STREAM, value))),
    ("pt_hw_seq_len", Key(Model, "rope_grid")),
    ("ft_seq_len", Only("null", "rotary positions are those of the image's own grid")),
    (
        "flip_img_sequences_ratio",
        Read(|value, to| {
            let ratio = value.as_f64().ok_or("expected a number")?;
            to.set(Model, "flip_ratio", ratio.max(0.0))
        }),
    ),
    ("drop_rate", Only("0.0", DRAWS)),
    ("drop_path_rate", Only("0.0", DRAWS)),
    ("dropout_ratio", Only("0.0", DRAWS)),
    (
        "ssm_cfg",
        Read(|value, to| {
            let inner = value.as_object().ok_or("expected an object")?;
            inner.iter().try_for_each(|(key, value)| to.read(key, value))
        }),
    ),
    ("bias", Only("false", "the projections in and out have no bias here")),
    ("conv_bias", Only("true", "the convolution has a bias here")),
    // Where training starts, which weights that are given do not depend on.
    ("initializer_cfg", Aside),
    ("dt_min", Aside),
    ("dt_max", Aside),
    ("dt_init", Aside),
    ("dt_scale", Aside),
    ("dt_init_floor", Aside),
    ("use_fast_path", Aside),        // the same numbers
    ("fused_add_norm", Aside),       // the same numbers
    ("residual_in_fp32", Aside),     // the same numbers: all are f32
    ("if_cls_token", Aside),         // the original drops the token before the heads
    ("use_middle_cls_token", Aside), // likewise
    ("use_double_cls_token", Only("false", "two tokens are of a classifier")),
    ("final_pool_type", Only("\"none\"", "it is of a classifier's head")),
    ("out_indices", Key(Heads, "out_indices")),
    (
        "use_residual_as_feature",
        Read(|value, to| {
            to.set(Heads, "features", if flag(value)? { "residual" } else { "hidden" })
        }),
    ),
    (
        "last_layer_process",
        Read(|value, to| {
            to.set(Heads, "last", if value == "add & norm" { "add_norm" } else { text(value)? })
        }),
    ),
    ("aux_loss_weight", Key(Heads, "aux_weight")),
    ("decode_loss_weight", Only("1.0", "the decode head's loss has the weight 1")),
    ("pool_scales", Only("[1,2,3,6]", "the pooling has these scales here")),
    ("align_corners", Only("false", "corners are not aligned here")),
    ("aux_in_index", Only("2", "the auxiliary head reads the third level")),
    ("aux_num_convs", Only("1", "the auxiliary head has one convolution")),
    ("aux_concat_input", Only("false", "the auxiliary head reads its convolution alone")),
    ("ignore_index", Only("255", "the ignored label is 255 here")),
    ("fc_dim", Key(Heads, "box_features")),
    ("pooler_sampling_ratio", Key(Heads, "sampling_ratio")),
    (
        "pooler_type",
        Read(|value, to| match text(value)? {
            "ROIAlignV2" => to.set(Heads, "aligned", true),
            "ROIAlign" => to.set(Heads, "aligned", false),
            _ => Err("ROIAlignV2 and ROIAlign are known".to_owned()),
        }),
    ),
    ("score_thresh_test", Key(Heads, "score_threshold")),
    ("nms_thresh_test", Key(Heads, "nms_threshold")),
    ("detections_per_image", Key(Heads, "detections")),
    ("rpn_batch_size_per_image", Key(Heads, "anchor_samples")),
    ("roi_batch_size_per_image", Key(Heads, "box_samples")),
    ("rpn_positive_fraction", Only("0.5", "half of the anchors' samples are positive here")),
    ("roi_positive_fraction", Only("0.25", "a quarter of the boxes' samples is positive here")),
    ("rpn_nms_thresh", Only("0.7", "the proposals' overlap is 0.7 here")),
    ("classes", Aside),
    ("num_classes", Aside),
    ("batch", Aside), // that of the arrays
    ("sizes", Aside),
    ("gts", Aside), // that of the arrays
    ("slide", Aside),
    ("seed", Aside), // of the generator
];

/// Heads whose settings the JSON may have.
pub(super) trait Settings: Serialize + DeserializeOwned + JsonSchema {
    /// Their section.
    const SECTION: &'static str;

    /// What is left out.
    fn left_out() -> Self;
}

impl Settings for SegmenterConfig {
    const SECTION: &'static str = "segmentation";

    fn left_out() -> Self {
        Self { dropout: 0.0, ..Self::default() }
    }
}

impl Settings for DetectorConfig {
    const SECTION: &'static str = "detection";

    /// Those of a cascade that fits into a test, which the JSON of the first arrays leaves out.
    fn left_out() -> Self {
        Self {
            box_features: 24,
            anchor_size: 2.0,
            anchor_samples: 64,
            proposals_per_level: 200,
            proposals: 60,
            test_proposals_per_level: 100,
            test_proposals: 40,
            box_samples: 32,
            ..Self::default()
        }
    }
}

/// What is written down for each section so far.
#[derive(Default)]
struct Sections {
    model: Map<String, Value>,
    ssm: Map<String, Value>,
    heads: Map<String, Value>,
    /// Whether tokens are turned, and the residual stream with them.
    rope: [Option<bool>; 2],
    /// The keys of each section that there are.
    known: [BTreeSet<String>; 3],
}

fn flag(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "expected true or false".to_owned())
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| "expected a text".to_owned())
}

/// The keys of a section.
fn keys_of<T: JsonSchema>() -> BTreeSet<String> {
    let schema = schema_for!(T);
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().map(|(key, _)| key.clone()).collect()
}

impl Sections {
    fn of<H: Settings>() -> Self {
        let known = [keys_of::<VimConfig>(), keys_of::<SsmConfig>(), keys_of::<H>()];
        Self { known, ..Self::default() }
    }

    fn section(&mut self, section: Section) -> &mut Map<String, Value> {
        match section {
            Model => &mut self.model,
            Ssm => &mut self.ssm,
            Heads => &mut self.heads,
        }
    }

    fn set(&mut self, section: Section, key: &str, value: impl Into<Value>) -> Result<(), String> {
        if !self.known[section as usize].contains(key) {
            return Err("these heads have no such setting".to_owned());
        }
        self.section(section).insert(key.to_owned(), value.into());
        Ok(())
    }

    /// Notes one of the original's two flags of rotary positions.
    fn rope(&mut self, which: usize, value: &Value) -> Result<(), String> {
        self.rope[which] = Some(flag(value)?);
        Ok(())
    }

    /// Reads one key, under the original's name or one of ours.
    fn read(&mut self, key: &str, value: &Value) -> Result<(), String> {
        let named = |what: String| format!("`{key}`: {what}");
        // The original's is a flag, ours a word.
        if key == "rope" && value.is_boolean() {
            return self.rope(TOKENS, value).map_err(named);
        }
        // Both originals' words for ours, `add_norm`.
        if key == "last" && value == "add & norm" {
            return self.set(Heads, key, "add_norm").map_err(named);
        }
        if let Some((_, meaning)) = KEYS.iter().find(|(name, _)| *name == key) {
            return match meaning {
                Key(section, ours) => self.set(*section, ours, value.clone()).map_err(named),
                Read(read) => read(value, self).map_err(named),
                Only(only, why) if !is_same(only, value) => {
                    Err(named(format!("{value}, and {only} alone is known: {why}")))
                }
                Only(..) | Aside => Ok(()),
            };
        }
        let section = [Heads, Model, Ssm]
            .into_iter()
            .find(|&section| self.known[section as usize].contains(key));
        match section {
            Some(section) => self.set(section, key, value.clone()).map_err(named),
            None => Err(named("no setting of the model or its heads".to_owned())),
        }
    }
}

/// Whether `value` is what `only` says, numbers by their value.
fn is_same(only: &str, value: &Value) -> bool {
    let only: Value = serde_json::from_str(only).unwrap_or_default();
    match (only.as_f64(), value.as_f64()) {
        (Some(only), Some(value)) => only == value,
        _ => only == *value,
    }
}

/// `base` with `changes`.
fn with<T: Serialize + DeserializeOwned>(
    base: &T,
    section: &str,
    changes: &Map<String, Value>,
) -> Result<T, String> {
    let mut values = json!(base);
    if let Some(values) = values.as_object_mut() {
        values.extend(changes.clone());
    }
    serde_json::from_value(values).map_err(|error| format!("[{section}]: {error}"))
}

/// The heads and the backbone of `variant`, whose keys are the original's or ours, those of a
/// section within an object of its name too. A key that is neither is an error.
pub(super) fn settings<H: Settings>(
    variant: &Map<String, Value>,
) -> Result<(H, VimConfig), String> {
    let mut sections = Sections::of::<H>();
    let is_section = |key: &str| ["model", "ssm", H::SECTION].contains(&key);
    for (key, value) in variant.iter().filter(|(key, _)| !is_section(key)) {
        sections.read(key, value)?;
    }
    match sections.rope {
        [None, None] => {}
        [Some(true), Some(true)] => sections.set(Model, "rope", "both")?,
        [Some(true), _] => sections.set(Model, "rope", "hidden")?,
        [_, _] => sections.set(Model, "rope", "none")?,
    }
    // What is done with the last block is done with the stream.
    if sections.heads.get("features").is_some_and(|features| features == "hidden") {
        sections.heads.remove("last");
    }
    for (name, section) in [("model", Model), ("ssm", Ssm), (H::SECTION, Heads)] {
        let given = variant.get(name).and_then(Value::as_object);
        sections.section(section).extend(given.cloned().into_iter().flatten());
    }
    let backbone = VimConfig {
        class_token: ClassToken::None, // which the original drops
        drop_path: 0.0,
        ..VimConfig::default()
    };
    let backbone = VimConfig {
        ssm: with(&SsmConfig::default(), "ssm", &sections.ssm)?,
        ..with(&backbone, "model", &sections.model)?
    };
    for (key, drawn) in [("dropout", backbone.dropout), ("drop_path", backbone.drop_path)] {
        if drawn != 0.0 {
            return Err(format!("`{key}`: {drawn}, and 0 alone is known: {DRAWS}"));
        }
    }
    let drawn = sections.heads.get("dropout").is_some_and(|dropout| *dropout != 0.0);
    if drawn {
        return Err(format!("`dropout`: 0 alone is known: {DRAWS}"));
    }
    Ok((with(&H::left_out(), H::SECTION, &sections.heads)?, backbone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    /// Three sections as JSON, after `variant`.
    fn read<H: Settings>(variant: Value) -> Result<[Map<String, Value>; 3], String> {
        let (heads, backbone) = settings::<H>(&object(variant))?;
        Ok([object(json!(backbone)), object(json!(backbone.ssm)), object(json!(heads))])
    }

    /// A value of each key that is not the one which stands for it if it is left out.
    fn others<H: Settings>() -> Vec<(Section, String, Value)> {
        let words = json!({
            "preset": "small", "discretization": "foh", "image_size": 48, "stride": 8,
            "dt_rank": 5, "bimamba": "v1", "divide_out": false, "layer_scale": 0.5,
            "norm": "layer", "class_token": "head", "pool": "max", "abs_pos_embed": false,
            "rope": "hidden", "rope_grid": 7, "layer_pairs": true, "dropout": 0.1,
            "method_fwd": "foh", "method_bwd": "rk4", "series": "taylor", "scan": "reference",
            "dt_b_init": "upstream_zero", "v1_gate_gradient": "upstream", "a": "full",
            "patch_init": "truncated",
            "features": "residual", "last": "add_norm", "aligned": false, "masks": false,
            "out_indices": [3],
            "score_threshold": 0.25, "nms_threshold": 0.25,
        });
        let base = read::<H>(json!({})).unwrap();
        let known = [keys_of::<VimConfig>(), keys_of::<SsmConfig>(), keys_of::<H>()];
        let mut all = Vec::new();
        for ((section, keys), base) in [Model, Ssm, Heads].into_iter().zip(known).zip(base) {
            for key in keys {
                let other = match (words.get(&key), base.get(&key)) {
                    (Some(word), _) => word.clone(),
                    (None, Some(Value::Number(number))) if number.is_u64() => {
                        json!(number.as_u64().unwrap() + 1)
                    }
                    (None, Some(Value::Number(number))) => json!(number.as_f64().unwrap() + 0.5),
                    (None, _) => json!(5),
                };
                assert_ne!(base.get(&key), Some(&other), "{key}");
                all.push((section, key, other));
            }
        }
        all
    }

    /// What the variant `{key: value}` changes: names of keys, by section.
    fn changed<H: Settings>(key: &str, value: &Value) -> Result<Vec<(usize, String)>, String> {
        let (base, read) = (read::<H>(json!({})).unwrap(), read::<H>(json!({key: value}))?);
        let mut all = Vec::new();
        for (section, (base, read)) in base.iter().zip(&read).enumerate() {
            let keys: BTreeSet<&String> = base.keys().chain(read.keys()).collect();
            let differs = |key: &&String| base.get(*key) != read.get(*key);
            all.extend(keys.into_iter().filter(differs).map(|key| (section, key.clone())));
        }
        Ok(all)
    }

    fn every_key_is_read_or_refused<H: Settings>(refused: &[&str]) {
        for (section, key, other) in others::<H>() {
            match changed::<H>(&key, &other) {
                Ok(keys) => {
                    assert_eq!(keys, [(section as usize, key.clone())], "{key} = {other}");
                    assert!(!refused.contains(&key.as_str()), "{key}");
                }
                Err(error) => {
                    assert!(error.contains(&format!("`{key}`")), "{key}: {error}");
                    assert!(refused.contains(&key.as_str()), "{error}");
                }
            }
        }
    }

    #[test]
    fn every_key_of_every_section_is_read_or_refused_by_name() {
        every_key_is_read_or_refused::<SegmenterConfig>(&["preset", "dropout", "drop_path"]);
        every_key_is_read_or_refused::<DetectorConfig>(&["preset", "dropout", "drop_path"]);
    }

    /// Every key of the original's that is a setting changes one of ours, or is refused by its name
    /// if it is not as here.
    #[test]
    fn every_key_of_the_original_is_read_or_refused_by_name() {
        let other = |key: &str| match key {
            "img" | "img_size" => json!([32, 48]),
            "patch" => json!(8),
            "norm_epsilon" => json!(1e-6),
            "rms_norm" | "if_divide_out" | "if_abs_pos_embed" => json!(false),
            "bimamba_type" => json!("v1"),
            "init_layer_scale" => json!(1e-5),
            "if_bidirectional" | "use_residual_as_feature" => json!(true),
            "if_rope" => json!(true),
            "flip_img_sequences_ratio" => json!(1.0),
            "ssm_cfg" => json!({"d_conv": 3}),
            "out_indices" => json!([3]),
            "last_layer_process" => json!("add & norm"),
            "aux_loss_weight" | "score_thresh_test" | "nms_thresh_test" => json!(0.25),
            "pooler_type" => json!("ROIAlign"),
            "preset" => json!("small"),
            // Alone, without `if_rope`, it turns nothing.
            "rope_residual" | "if_rope_residual" => json!(null),
            _ => json!(7),
        };
        for (key, meaning) in KEYS {
            let found = [
                changed::<SegmenterConfig>(key, &other(key)),
                changed::<DetectorConfig>(key, &other(key)),
            ];
            match meaning {
                Key(..) | Read(_) if !key.contains("rope_residual") => {
                    let reads = |found: &Result<Vec<_>, String>| {
                        found.as_ref().is_ok_and(|keys| keys.len() == 1)
                    };
                    assert!(found.iter().any(reads), "{key}: {found:?}");
                    let names = |error: &String| error.contains(&format!("`{key}`"));
                    assert!(found.iter().all(|one| one.as_ref().err().is_none_or(names)), "{key}");
                }
                Key(..) | Read(_) | Only(..) => {
                    for one in found {
                        let error = one.unwrap_err();
                        assert!(error.contains(&format!("`{key}`")), "{error}");
                    }
                }
                Aside => assert!(found.iter().all(|one| one == &Ok(vec![])), "{key}: {found:?}"),
            }
        }
    }

    #[test]
    fn settings_are_those_of_the_json() {
        let variant = json!({
            "img": 64, "patch": 8, "d_state": 8, "depth": 2, "out_indices": [1],
            "use_residual_as_feature": true, "last_layer_process": "add & norm",
            "rope": true, "rope_residual": true, "if_cls_token": true, "classes": 7,
            "ssm_cfg": {"d_conv": 3, "dt_min": 0.001}, "segmentation": {"aux_channels": 9},
        });
        let [model, _, heads] = read::<SegmenterConfig>(variant).unwrap();
        let shown = json!([
            model["image_size"],
            model["patch_size"],
            model["d_conv"],
            model["rope"],
            model["class_token"],
            heads["out_indices"],
            heads["features"],
            heads["last"],
            heads["aux_channels"],
        ]);
        let expected = json!([64, 8, 3, "both", "none", [1], "residual", "add_norm", 9]);
        assert_eq!(shown, expected);
        // Of hidden tokens nothing is done with the last block's.
        let hidden = json!({"use_residual_as_feature": false, "last_layer_process": "add"});
        assert_eq!(read::<SegmenterConfig>(hidden).unwrap()[2]["last"], "none");
    }

    #[test]
    fn what_is_unknown_is_named() {
        for (variant, words) in [
            (json!({"hue": 1}), "`hue`: no setting"),
            (json!({"out_indices": [3]}), "`out_indices`: these heads have no such setting"),
            (json!({"last": "sum"}), "sum"),
            (json!({"model": {"breadth": 3}}), "breadth"),
            (json!({"detection": {"channel": 3}}), "channel"),
            (json!({"ssm_cfg": {"bias": true}}), "`bias`: true, and false alone"),
            (json!({"pool_scales": [1, 2]}), "`pool_scales`: [1,2]"),
        ] {
            let error = settings::<DetectorConfig>(&object(variant)).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
