//! The `[augment]` section: presets, overrides, messages; and what a plan depends on.

use strum::VariantArray;
use vim_data::{
    AugmentPreset, AutoAugment, CropMode, CropPlan, EraseFill, EraseMode, MixMode, RandAugment,
    Recipe, SampleKey, Statistics,
};

/// The recipe of an `[augment]` section.
fn read(text: &str) -> Result<Recipe, toml::de::Error> {
    let mut section = serde_json::from_str(text).unwrap();
    Recipe::fill_from_preset(&mut section, false);
    section.try_into()
}

fn resolve(text: &str) -> Recipe {
    let recipe = read(text).unwrap();
    recipe.check().unwrap();
    recipe
}

fn refusal(text: &str) -> String {
    read(text).unwrap().check().unwrap_err().to_string()
}

#[test]
fn presets_lie_under_sections() {
    for &preset in AugmentPreset::VARIANTS {
        let recipe = resolve(&format!(r#"{{"preset": "{preset}", "erase_count": 7}}"#));
        assert_eq!(recipe, Recipe { erase_count: 7, ..Recipe::preset(preset) });
    }
}

#[test]
fn the_default_is_crop_and_flip() {
    let recipe = resolve("{}");
    assert_eq!(recipe, Recipe::default());
    assert_eq!((recipe.crop, recipe.hflip, recipe.repeats), (CropMode::Pad, 0.5, 1));
    assert_eq!(recipe.auto_augment, AutoAugment::Off);
    assert_eq!(recipe.erase_prob, 0.0);
    assert!(!recipe.mixes() && !recipe.three_augment);
}

#[test]
fn only_a_written_pad_cuts_images_of_all_sizes() {
    for (text, of_all_sizes, crop) in [
        ("{}", false, "pad"),
        ("{}", true, "auto"),
        (r#"{"preset": "cifar"}"#, true, "auto"),
        (r#"{"crop": "pad"}"#, true, "pad"),
        (r#"{"preset": "none"}"#, true, "none"),
        (r#"{"preset": "three"}"#, true, "resized"),
    ] {
        let mut section: toml::Table = serde_json::from_str(text).unwrap();
        Recipe::fill_from_preset(&mut section, of_all_sizes);
        assert_eq!(section["crop"].as_str(), Some(crop), "{text} {of_all_sizes}");
    }
}

#[test]
fn a_crop_is_said_in_words() {
    let deit = Recipe::preset(AugmentPreset::Deit);
    assert_eq!(deit.cropping([32; 2], Some([32; 2])), "crop pad");
    let small = "crop resized; evaluation resized to cover 32x32 px";
    assert_eq!(deit.cropping([32; 2], None), small);
    let large = "crop resized; evaluation resized to cover 256x256 px and cut to 224x224";
    assert_eq!(deit.cropping([224; 2], None), large);
}

/// The original's `main.py`: its options' defaults.
#[test]
fn deit_is_the_originals_recipe() {
    let recipe = resolve(r#"{"preset": "deit"}"#);
    assert_eq!((recipe.scale(), recipe.ratio()), ([0.08, 1.0], [3.0 / 4.0, 4.0 / 3.0]));
    for (target, images, crop) in [
        (224, None, CropMode::Resized),
        (224, Some([32, 32]), CropMode::Resized),
        (33, Some([33, 33]), CropMode::Resized),
        (32, Some([32, 32]), CropMode::Pad),
        (32, Some([32, 33]), CropMode::Resized),
        (32, None, CropMode::Resized),
        (8, None, CropMode::Resized),
    ] {
        assert_eq!(recipe.crop_mode([target; 2], images), crop, "{target} of {images:?}");
    }
    assert_eq!(recipe.auto_augment.to_string(), "rand-m9-mstd0.5-inc1");
    assert_eq!((recipe.hflip, recipe.color_jitter), (0.5, 0.3));
    assert_eq!(
        (recipe.erase_prob, recipe.erase_mode, recipe.erase_count),
        (0.25, EraseMode::Pixel, 1)
    );
    assert_eq!((recipe.mixup, recipe.cutmix()), (0.8, 1.0));
    assert_eq!((recipe.mix_prob, recipe.mix_switch_prob), (1.0, 0.5));
    assert_eq!((recipe.mix_mode, recipe.cutmix_minmax), (MixMode::Batch, None));
    assert_eq!((recipe.repeats, recipe.eval_crop_ratio), (3, 0.875));
    assert_eq!(Statistics::IMAGENET.fill(), [124, 116, 104]);
}

#[test]
fn what_is_written_stands_over_the_preset() {
    let recipe = resolve(
        r#"{"preset": "deit", "crop": "simple", "auto_augment": "", "erase_prob": 0, "mixup": 0,
        "cutmix_minmax": [0.2, 0.8], "repeats": 1, "hflip": 0.1}"#,
    );
    assert_eq!((recipe.crop, recipe.hflip, recipe.repeats), (CropMode::Simple, 0.1, 1));
    assert_eq!(recipe.auto_augment, AutoAugment::Off);
    assert_eq!((recipe.mixup, recipe.cutmix()), (0.0, 1.0));
    // As in the original, jitter comes back where RandAugment goes.
    let plan = recipe.draw(SampleKey::default(), [40, 50], [32, 32]);
    assert_eq!(plan.ops.len(), 3);
}

#[test]
fn an_effective_recipe_is_the_same_recipe() {
    for text in [
        "{}",
        r#"{"preset": "none"}"#,
        r#"{"preset": "deit", "auto_augment": "rand-m5-n3-mstd2-w0"}"#,
        r#"{"preset": "three", "cutmix_minmax": [0.2, 0.8], "crop": "simple",
            "order": "reference"}"#,
    ] {
        let recipe = resolve(text);
        let section = recipe.effective();
        let printed = serde_json::to_string(&section).unwrap();
        assert_eq!(resolve(&printed), section);
        let keys = [
            (recipe.scale(), section.scale()),
            (recipe.ratio(), section.ratio()),
            ([recipe.cutmix(); 2], [section.cutmix(); 2]),
        ];
        assert!(keys.iter().all(|(before, after)| before == after), "{text}");
    }
}

#[test]
fn unknown_keys_and_names_are_refused() {
    for text in [
        r#"{"mixupp": 1}"#,
        r#"{"preset": "timm"}"#,
        r#"{"crop": "center"}"#,
        r#"{"mix_mode": "all"}"#,
    ] {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn values_out_of_range_are_named() {
    for (text, key) in [
        (r#"{"hflip": 1.5}"#, "augment.hflip = 1.5"),
        (r#"{"erase_prob": -0.1}"#, "augment.erase_prob"),
        (r#"{"mix_prob": 2}"#, "augment.mix_prob"),
        (r#"{"mix_switch_prob": 2}"#, "augment.mix_switch_prob"),
        (r#"{"crop": "resized", "scale": [0, 1]}"#, "augment.scale = [0, 1]"),
        (r#"{"crop": "resized", "scale": [0.5, 0.2]}"#, "augment.scale"),
        (r#"{"crop": "resized", "ratio": [2, 1]}"#, "augment.ratio"),
        (r#"{"crop": "pad", "ratio": [0.5, 1]}"#, "augment.ratio"),
        (r#"{"scale": [0.5, 1]}"#, "left out"),
        (r#"{"color_jitter": 1.2}"#, "augment.color_jitter"),
        (r#"{"erase_count": 0}"#, "augment.erase_count"),
        (r#"{"repeats": 0}"#, "augment.repeats"),
        (r#"{"mixup": -1}"#, "augment.mixup"),
        (r#"{"cutmix": -1}"#, "augment.cutmix"),
        (r#"{"cutmix_minmax": [0.8, 0.2]}"#, "augment.cutmix_minmax"),
        (r#"{"cutmix": 1, "cutmix_minmax": [0.2, 0.8]}"#, "augment.cutmix ="),
        (r#"{"eval_crop_ratio": 0}"#, "augment.eval_crop_ratio"),
        (r#"{"preset": "deit", "three_augment": true}"#, "augment.auto_augment"),
    ] {
        let message = refusal(text);
        assert!(message.contains(key), "{text}: {message}");
    }
}

#[test]
fn timms_notation_is_read() {
    let rand = |text: &str| match text.parse::<AutoAugment>() {
        Ok(AutoAugment::Rand(rand)) => rand,
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(rand("rand-m9-mstd0.5-inc1"), RandAugment::DEIT);
    assert_eq!(rand("rand-inc1-mstd0.5-m9"), RandAugment::DEIT);
    let plain = RandAugment {
        magnitude: 10,
        deviation: 0.0,
        operations: 2,
        increasing: false,
        weighted: false,
    };
    assert_eq!(rand("rand"), plain);
    assert_eq!(rand("rand-inc0"), RandAugment { increasing: true, ..plain }, "as timm reads it");
    assert_eq!(rand("rand-m12-n4"), RandAugment { magnitude: 12, operations: 4, ..plain });
    assert_eq!(rand("rand-mstd1-w0"), RandAugment { deviation: 1.0, weighted: true, ..plain });
    for text in ["rand-m9-mstd0.5-inc1", "rand-m5-n3-mstd2-w0", "rand-m10"] {
        assert_eq!(rand(text).to_string(), text);
    }
    assert_eq!("".parse(), Ok(AutoAugment::Off));
    assert_eq!(AutoAugment::Off.to_string(), "");
}

#[test]
fn anything_else_is_refused_with_what_is_known() {
    for text in [
        "original",
        "v0",
        "augmix-m5",
        "randm9",
        "rand-m",
        "rand-m9.5",
        "rand-m-9",
        "rand-n0",
        "rand-w1",
        "rand-x3",
        "rand-mstdinf",
        "rand-mstd1e999",
        "rand-m9-m9",
        "rand-",
        "rand-n14-w0",
        " rand",
    ] {
        let message = text.parse::<AutoAugment>().unwrap_err();
        assert!(message.contains(&format!("`{text}`")), "{message}");
        assert!(message.contains("rand-m9-mstd0.5-inc1"), "{message}");
        let config = serde_json::json!({ "auto_augment": text }).to_string();
        assert!(read(&config).unwrap_err().to_string().contains(text));
    }
}

#[test]
fn a_plan_is_a_function_of_its_key() {
    let recipe = resolve(r#"{"preset": "deit", "erase_prob": 1}"#);
    let draw = |key| recipe.draw(key, [375, 500], [224, 224]);
    let key = SampleKey { seed: 1, epoch: 2, index: 3, repeat: 4, attempt: 5 };
    assert_eq!(draw(key), draw(key));
    for other in [
        SampleKey { seed: 2, ..key },
        SampleKey { epoch: 3, ..key },
        SampleKey { index: 4, ..key },
        SampleKey { repeat: 5, ..key },
        SampleKey { attempt: 6, ..key },
    ] {
        assert_ne!(draw(key).crop, draw(other).crop);
        assert_ne!(draw(key).erase, draw(other).erase);
    }
}

#[test]
fn parts_of_a_recipe_do_not_change_each_other() {
    let key = SampleKey { seed: 9, ..SampleKey::default() };
    let all = resolve(r#"{"preset": "deit", "erase_prob": 1}"#).draw(key, [375, 500], [224, 224]);
    let some = resolve(r#"{"preset": "deit", "erase_prob": 1, "auto_augment": "", "hflip": 0}"#)
        .draw(key, [375, 500], [224, 224]);
    assert_eq!(all.crop, some.crop);
    assert_eq!(all.erase, some.erase);
}

#[test]
fn boxes_are_filled_as_said() {
    let fills = |mode: &str, count: u32| -> Vec<EraseFill> {
        let text =
            format!(r#"{{"erase_prob": 1, "erase_mode": "{mode}", "erase_count": {count}}}"#);
        let recipe = resolve(&text);
        let plans = (0..50).map(|index| {
            recipe.draw(SampleKey { index, ..SampleKey::default() }, [32; 2], [32; 2])
        });
        plans.flat_map(|plan| plan.erase).map(|erased| erased.fill).collect()
    };
    assert!(fills("const", 1).iter().all(|fill| *fill == EraseFill::Constant));
    let distinct =
        |fills: Vec<EraseFill>| (1..fills.len()).all(|i| !fills[..i].contains(&fills[i]));
    assert!(fills("rand", 2).iter().all(|fill| matches!(fill, EraseFill::Colour(_))));
    assert!(fills("pixel", 2).iter().all(|fill| matches!(fill, EraseFill::Pixels { .. })));
    assert!(distinct(fills("rand", 2)) && distinct(fills("pixel", 2)));
}

#[test]
fn images_of_any_size_have_a_plan() {
    for preset in AugmentPreset::VARIANTS {
        for crop in ["none", "pad", "resized", "simple", "auto"] {
            let recipe = resolve(&format!(r#"{{"preset": "{preset}", "crop": "{crop}"}}"#));
            for source in [[1, 1], [1, 5000], [5000, 1], [2, 3], [31, 33], [4000, 3000]] {
                for target in [[8, 8], [32, 32], [224, 224]] {
                    for index in 0..20 {
                        let key = SampleKey { index, ..SampleKey::default() };
                        check_inside(recipe.draw(key, source, target).crop, source, target);
                    }
                }
            }
        }
    }
}

fn check_inside(crop: CropPlan, source: [usize; 2], target: [usize; 2]) {
    let fits = |size: [usize; 2], padding: [usize; 2], top, left| {
        [top, left]
            .iter()
            .enumerate()
            .all(|(axis, start)| start + target[axis] <= size[axis] + 2 * padding[axis])
    };
    let inside = match crop {
        CropPlan::Evaluation => true,
        CropPlan::Padded { padding, top, left } => fits(source, padding, top, left),
        CropPlan::Simple { resized, padding, top, left } => fits(resized, [padding; 2], top, left),
        CropPlan::Resized { region } => region.is_inside(source),
    };
    assert!(inside, "{crop:?} of {source:?} for {target:?}");
}

#[test]
fn a_plan_can_be_printed() {
    let recipe = resolve(r#"{"preset": "deit", "erase_prob": 1}"#);
    let plan = recipe.draw(SampleKey { index: 3, ..SampleKey::default() }, [375, 500], [224, 224]);
    let printed = serde_json::to_value(&plan).unwrap();
    assert!(printed["crop"]["resized"]["region"]["height"].is_u64(), "{printed}");
    assert!(printed["erase"][0]["fill"]["pixels"]["seed"].is_u64(), "{printed}");
    assert!(printed["flip"].is_boolean() && printed["ops"].is_array(), "{printed}");
}

#[test]
fn an_image_must_be_larger_than_what_is_added_at_its_edges() {
    for (crop, smallest) in [("simple", 5), ("pad", 5), ("none", 1), ("resized", 1)] {
        let recipe = resolve(&format!(r#"{{"crop": "{crop}"}}"#));
        recipe.check_size([smallest, 32]).unwrap();
        recipe.check_size([32, smallest]).unwrap();
        if smallest > 1 {
            let error = recipe.check_size([32, smallest - 1]).unwrap_err().to_string();
            assert!(error.contains("augment.crop") && error.contains("32x4"), "{error}");
        }
    }
    // Then each side is longer than what is mirrored, as the crop of it asks.
    let recipe = resolve(r#"{"preset": "none", "crop": "simple"}"#);
    for number in 0..64 {
        let key = SampleKey { index: number, ..SampleKey::default() };
        let plan = recipe.draw(key, [7, 9], [5, 5]);
        let CropPlan::Simple { resized, padding: 4, top, left } = plan.crop else {
            panic!("{:?}", plan.crop)
        };
        assert!(
            resized[0] >= 5 && resized[1] >= 5 && top <= resized[0] + 3 && left <= resized[1] + 3
        );
    }
}
