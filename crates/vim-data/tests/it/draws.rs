//! What recipes draw, beside what timm 0.4.12 and torchvision 0.16.1 draw: the histograms of
//! `scripts/reference_draws.py`, over 300 000 draws there and 100 000 here.

use std::{collections::BTreeMap, iter::zip};

use serde::Deserialize;
use vim_data::ops::Op;
use vim_data::{
    AugmentPreset, AutoAugment, CropMode, CropPlan, EraseMode, MixKey, MixPlan, Recipe, Region,
    SampleKey, SamplePlan,
};

use crate::chi2::{assert_same, bins};

pub(crate) const DRAWS: u64 = 100_000;

#[derive(Deserialize)]
struct Reference {
    crop: Vec<Crop>,
    erase: Vec<Erase>,
    rand_augment: Vec<Rand>,
    jitter: Vec<Jitter>,
    mix: Vec<Mix>,
}

#[derive(Deserialize)]
struct Crop {
    source: [usize; 2],
    #[serde(flatten)]
    regions: Regions,
}

#[derive(Deserialize)]
struct Erase {
    size: usize,
    count: u32,
    boxes: Vec<u64>,
    #[serde(flatten)]
    regions: Regions,
}

#[derive(Deserialize)]
struct Regions {
    area: Vec<u64>,
    ratio: Vec<u64>,
    top: Vec<u64>,
    left: Vec<u64>,
}

#[derive(Deserialize)]
struct Rand {
    config: String,
    names: Vec<String>,
    chosen: Vec<u64>,
    applied: Vec<u64>,
    values: BTreeMap<String, Vec<u64>>,
}

#[derive(Deserialize)]
struct Jitter {
    most: f64,
    factors: [Vec<u64>; 3],
    orders: Vec<u64>,
}

#[derive(Deserialize)]
struct Mix {
    size: usize,
    minmax: Option<[f64; 2]>,
    kinds: Vec<u64>,
    mixup: Vec<u64>,
    cutmix: Vec<u64>,
    top: Vec<u64>,
    height: Vec<u64>,
}

fn reference() -> Reference {
    serde_json::from_str(include_str!("../fixtures/reference_draws.json")).unwrap()
}

/// A recipe without anything random.
pub(crate) fn none() -> Recipe {
    Recipe::preset(AugmentPreset::None)
}

/// The plans of the first images.
pub(crate) fn draws(
    config: &Recipe,
    source: [usize; 2],
    target: [usize; 2],
) -> impl Iterator<Item = SamplePlan> {
    let recipe = config.clone();
    recipe.check().unwrap();
    (0..DRAWS).map(move |index| {
        recipe.draw(SampleKey { seed: 7, index, ..SampleKey::default() }, source, target)
    })
}

/// Asserts that regions of an image are inside, and that their areas (shares up to `largest`),
/// proportions (`ratio`, in the range `ratios`) and places are distributed as theirs.
fn assert_regions(
    what: &str,
    ours: &[Region],
    [rows, columns]: [usize; 2],
    largest: f64,
    ratio: impl Fn(&Region) -> f64,
    ratios: [f64; 2],
    theirs: &Regions,
) {
    assert!(ours.iter().all(|r| r.is_inside([rows, columns])), "{what}");
    let area = |r: &Region| (r.height * r.width) as f64 / (rows * columns) as f64;
    let areas = bins(ours.iter().map(area), [0.0, largest], 20);
    assert_same(&format!("area of {what}"), &areas, &theirs.area);
    let ratios = bins(ours.iter().map(ratio), ratios, 20);
    assert_same(&format!("ratio of {what}"), &ratios, &theirs.ratio);
    // Where they begin, as a share of the room that they have.
    let places = |place: &dyn Fn(&Region) -> (usize, usize)| {
        let with_room = ours.iter().map(place).filter(|&(_, room)| room > 0);
        bins(with_room.map(|(start, room)| start as f64 / room as f64), [0.0, 1.0], 10)
    };
    let tops = places(&|r| (r.top, rows - r.height));
    assert_same(&format!("top of {what}"), &tops, &theirs.top);
    let lefts = places(&|r| (r.left, columns - r.width));
    assert_same(&format!("left of {what}"), &lefts, &theirs.left);
}

#[test]
fn resized_crops() {
    let config = Recipe { crop: CropMode::Resized, ..none() };
    for Crop { source, regions: theirs } in reference().crop {
        let regions: Vec<Region> = draws(&config, source, [224, 224])
            .map(|plan| {
                let CropPlan::Resized { region } = plan.crop else { panic!("{plan:?}") };
                region
            })
            .collect();
        let ratio = |r: &Region| r.width as f64 / r.height as f64;
        let what = format!("crops of {source:?}");
        assert_regions(&what, &regions, source, 1.0, ratio, [0.7, 1.4], &theirs);
    }
}

#[test]
fn erased_boxes() {
    for Erase { size, count, boxes, regions: theirs } in reference().erase {
        let config =
            Recipe { erase_prob: 0.25, erase_count: count, erase_mode: EraseMode::Const, ..none() };
        let plans: Vec<SamplePlan> = draws(&config, [size; 2], [size; 2]).collect();
        let counts = plans.iter().map(|plan| plan.erase.len() as f64);
        let what = format!("up to {count} boxes at {size}");
        let range = [-0.5, f64::from(count) + 0.5];
        assert_same(&what, &bins(counts, range, count as usize + 1), &boxes);
        let regions: Vec<Region> =
            plans.iter().flat_map(|plan| &plan.erase).map(|erased| erased.region).collect();
        assert!(regions.iter().all(|r| r.height < size && r.width < size));
        let ratio = |r: &Region| r.height as f64 / r.width as f64;
        assert_regions(&what, &regions, [size; 2], 0.4, ratio, [0.2, 3.8], &theirs);
    }
}

/// A value, the range of the bins that it is counted in, and their number.
type Argument = (f64, [f64; 2], usize);

/// timm's name of an operation, and its argument.
fn described(op: Op, size: [usize; 2]) -> (&'static str, Option<Argument>) {
    let symmetric = |value, most: f64| Some((value, [-most, most], 24));
    let blend = |factor| Some((factor, [0.1, 1.9], 24));
    let [height, width] = size.map(|side| side as f64);
    match op {
        Op::AutoContrast => ("auto_contrast", None),
        Op::Equalize => ("equalize", None),
        Op::Invert => ("invert", None),
        Op::Rotate { degrees } => ("rotate", symmetric(degrees, 30.0)),
        Op::Posterize { bits } => ("posterize", Some((f64::from(bits), [-0.5, 4.5], 5))),
        Op::Solarize { threshold } => ("solarize", Some((f64::from(threshold), [0.0, 257.0], 24))),
        Op::SolarizeAdd { add } => ("solarize_add", Some((f64::from(add), [0.0, 111.0], 24))),
        Op::Color { factor } => ("color", blend(factor)),
        Op::Contrast { factor } => ("contrast", blend(factor)),
        Op::Brightness { factor } => ("brightness", blend(factor)),
        Op::Sharpness { factor } => ("sharpness", blend(factor)),
        Op::ShearX { factor } => ("shear_x", symmetric(factor, 0.3)),
        Op::ShearY { factor } => ("shear_y", symmetric(factor, 0.3)),
        Op::TranslateX { pixels } => ("translate_x_rel", symmetric(pixels / width, 0.45)),
        Op::TranslateY { pixels } => ("translate_y_rel", symmetric(pixels / height, 0.45)),
        Op::Grayscale | Op::Blur { .. } => panic!("{op:?} is not RandAugment's"),
    }
}

#[test]
fn rand_augment() {
    // Sides that are powers of two, so that dividing by them is exact; different ones, to tell x
    // from y.
    let size = [256, 128];
    for theirs in reference().rand_augment {
        let auto_augment: AutoAugment = theirs.config.parse().unwrap();
        let config = Recipe { auto_augment, ..none() };
        let plans: Vec<SamplePlan> = draws(&config, size, size).collect();
        let what = |part: &str| format!("{part} of {}", theirs.config);

        let slots = theirs.applied.len();
        let applied = plans.iter().map(|plan| plan.ops.len() as f64);
        let range = [-0.5, slots as f64 - 0.5];
        assert_same(&what("number"), &bins(applied, range, slots), &theirs.applied);

        let mut chosen = vec![0; theirs.names.len()];
        let mut values: BTreeMap<&str, (Vec<f64>, [f64; 2], usize)> = BTreeMap::new();
        for &op in plans.iter().flat_map(|plan| &plan.ops) {
            let (name, argument) = described(op, size);
            chosen[theirs.names.iter().position(|known| known == name).unwrap()] += 1;
            if let Some((value, range, count)) = argument {
                values.entry(name).or_insert((Vec::new(), range, count)).0.push(value);
            }
        }
        assert_same(&what("choice"), &chosen, &theirs.chosen);
        assert!(values.keys().eq(theirs.values.keys()), "{:?}", values.keys());
        for (name, (values, range, count)) in values {
            // timm's weights leave few draws to some operations; a few hundred are too few to say
            // much.
            if theirs.values[name].iter().sum::<u64>() > 4000 {
                assert_same(&what(name), &bins(values, range, count), &theirs.values[name]);
            }
        }
    }
}

#[test]
fn color_jitter() {
    for theirs in reference().jitter {
        let most = theirs.most;
        let config = Recipe { color_jitter: most, ..none() };
        let (mut factors, mut orders) = ([const { Vec::new() }; 3], Vec::new());
        for plan in draws(&config, [32; 2], [32; 2]) {
            let mut order = Vec::new();
            for op in plan.ops {
                let names = ["brightness", "contrast", "color"];
                let (name, Some((factor, ..))) = described(op, [32; 2]) else { panic!("{op:?}") };
                let at = names.iter().position(|known| *known == name).unwrap();
                factors[at].push(factor);
                order.push(at);
            }
            assert_eq!(order.len(), 3);
            orders.push((order[0] * 2 + usize::from(order[1] > order[2])) as f64);
        }
        for (ours, theirs) in zip(factors, &theirs.factors) {
            assert_same("factors", &bins(ours, [1.0 - most, 1.0 + most], 12), theirs);
        }
        assert_same("orders", &bins(orders, [-0.5, 5.5], 6), &theirs.orders);
    }
}

#[test]
fn mixing() {
    for theirs in reference().mix {
        let recipe = Recipe {
            mixup: 0.8,
            cutmix: theirs.minmax.is_none().then_some(1.0),
            cutmix_minmax: theirs.minmax,
            mix_prob: 0.9,
            mix_switch_prob: 0.4,
            ..none()
        };
        recipe.check().unwrap();
        let size = theirs.size;
        let (mut kinds, mut mixup, mut cutmix) = (vec![0; 3], Vec::new(), Vec::new());
        let (mut tops, mut heights) = (Vec::new(), Vec::new());
        for step in 0..DRAWS {
            let key = MixKey { seed: 3, step, ..MixKey::default() };
            match recipe.draw_mix(key, 2, [size; 2])[0] {
                MixPlan::None => kinds[0] += 1,
                MixPlan::Mixup { lambda } => {
                    kinds[1] += 1;
                    mixup.push(lambda);
                }
                MixPlan::Cutmix { region, lambda } => {
                    kinds[2] += 1;
                    cutmix.push(lambda);
                    tops.push(region.top as f64 / size as f64);
                    heights.push(region.height as f64 / size as f64);
                }
            }
        }
        let what = |part| format!("{part} at {size}, {:?}", theirs.minmax);
        assert_same(&what("kinds"), &kinds, &theirs.kinds);
        assert_same(&what("mixup"), &bins(mixup, [0.0, 1.0], 20), &theirs.mixup);
        assert_same(&what("cutmix"), &bins(cutmix, [0.0, 1.0], 20), &theirs.cutmix);
        assert_same(&what("top"), &bins(tops, [0.0, 1.0], 16), &theirs.top);
        assert_same(&what("height"), &bins(heights, [0.0, 1.0], 16), &theirs.height);
    }
}
