//! Writes small models of every method and of the variants of a model, and a Vim-Ti, as files of
//! ONNX, each with its probe, for `scripts/verify_export.py`:
//!
//! `cargo run -p vim-onnx --example grid -- FOLDER [attention] [tiny]`
//!
//! `attention` writes graphs of opset 27 too, which old runtimes do not load; `tiny` writes a
//! Vim-Ti by every method and node, and nothing else.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor, TensorData};
use vim_dense::SegmenterConfig;
use vim_model::{
    Bimamba, ClassToken, Discretization, LastTap, LayerScale, NamedArrays, NormKind, Pool, Rope,
    Series, SsmConfig, Tapped, VariantArray, Vim, VimConfig, burn,
};
use vim_onnx::{
    ATTENTION_OPSET, LEAST_OPSET, Options, Pixels, ScanNode, classifier, probe, segmenter, write,
};

/// Makes every part of a model count: steps, skips and gains of all sizes, and no bias of the
/// logits that hides them.
struct Shake;

impl ModuleMapper for Shake {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let shape = param.dims();
        let (by, offset) = match (D, shape[0], shape[D - 1]) {
            (1, ..=CLASSES, _) | (2, _, STATES) => (1.0, 0.0),
            (1, ..) => (1.0, 0.5),
            _ => (1.5, 0.0),
        };
        param.map(|tensor| {
            let values: Vec<f32> = tensor.to_data().iter().collect();
            let shaken = values.iter().enumerate();
            let shaken = shaken.map(|(i, value)| by * value + offset * (i as f32).sin());
            let data = TensorData::new(shaken.collect::<Vec<f32>>(), tensor.shape());
            Tensor::from_data(data, &tensor.device())
        })
    }
}

const CLASSES: usize = 10;
const STATES: usize = 8;

fn small() -> VimConfig {
    VimConfig {
        image_size: 48.into(),
        patch_size: 8,
        depth: 4,
        d_model: 32,
        d_state: STATES,
        num_classes: CLASSES,
        ..VimConfig::default()
    }
}

/// The six of which every method is exported.
fn configurations() -> [(&'static str, VimConfig); 6] {
    let rotary = VimConfig { rope: Rope::Both, ..small() };
    let none = VimConfig { class_token: ClassToken::None, ..small() };
    [
        ("middle", small()),
        ("head", VimConfig { class_token: ClassToken::Head, ..small() }),
        ("none", none),
        ("rotary", rotary),
        ("rectangle", VimConfig { image_size: [48, 80].into(), ..small() }),
        ("v1", VimConfig { bimamba: Bimamba::V1, ..small() }),
    ]
}

/// What else a model may be.
fn variants() -> Vec<(&'static str, VimConfig)> {
    let none = |pool| VimConfig { class_token: ClassToken::None, pool: Some(pool), ..small() };
    let ssm = |ssm| VimConfig { ssm, ..small() };
    let two = SsmConfig {
        method_fwd: Some(Discretization::FohLinear),
        method_bwd: Some(Discretization::Bilinear),
        ..SsmConfig::default()
    };
    let published = SsmConfig { series: Series::Taylor, ..SsmConfig::default() };
    let paired = VimConfig { layer_pairs: true, rope: Rope::Hidden, flip_ratio: 1.0, ..small() };
    vec![
        ("double", VimConfig { class_token: ClassToken::Double, ..small() }),
        ("random", VimConfig { class_token: ClassToken::Random, ..small() }),
        ("max", none(Pool::Max)),
        ("last", none(Pool::Last)),
        ("one_way", VimConfig { bimamba: Bimamba::None, ..small() }),
        ("undivided", VimConfig { divide_out: Some(false), ..small() }),
        ("scaled", VimConfig { layer_scale: LayerScale::Starts(0.3), ..small() }),
        ("layer_norm", VimConfig { norm: NormKind::Layer, ..small() }),
        ("unplaced", VimConfig { abs_pos_embed: false, ..small() }),
        ("overlap", VimConfig { stride: Some(5), ..small() }),
        ("pairs", VimConfig { layer_pairs: true, ..small() }),
        ("pairs_flipped", paired),
        ("flipped", VimConfig { flip_ratio: 1.0, rope: Rope::Both, ..small() }),
        ("two_methods", ssm(two)),
        ("taylor", VimConfig { discretization: Discretization::HighOrder, ..ssm(published) }),
    ]
}

fn write_classifier(
    folder: &Path,
    name: &str,
    config: &VimConfig,
    options: &Options,
) -> Result<Vec<f32>, Box<dyn Error>> {
    let model = config.init(&Device::flex(), 1)?.map(&mut Shake);
    write_model(folder, name, &model, options)
}

fn write_model(
    folder: &Path,
    name: &str,
    model: &Vim,
    options: &Options,
) -> Result<Vec<f32>, Box<dyn Error>> {
    let (config, device) = (model.config(), Device::flex());
    let size = [config.image_size.height, config.image_size.width];
    let logits: Vec<f32> =
        model.forward(probe::images(size, options, &device))?.into_data().iter().collect();
    let graph = classifier(config, &NamedArrays::of(model), options)?;
    let bytes = write(graph, options, "0", &[("probe", probe::text(&logits))])?;
    fs::write(folder.join(format!("{name}.onnx")), bytes)?;
    Ok(logits)
}

fn write_segmenter(
    folder: &Path,
    name: &str,
    (config, backbone): (&SegmenterConfig, &VimConfig),
    options: &Options,
) -> Result<(), Box<dyn Error>> {
    let device = Device::flex();
    let model = config.init(backbone, 7, &device, 1)?.map(&mut Shake);
    let size = [backbone.image_size.height, backbone.image_size.width];
    let logits = model.forward(probe::images(size, options, &device))?.permute([0, 3, 1, 2]);
    let logits: Vec<f32> = logits.into_data().iter().collect();
    let graph = segmenter(config, backbone, 7, &NamedArrays::of(&model), options)?;
    let bytes = write(graph, options, "0", &[("probe", probe::text(&logits))])?;
    Ok(fs::write(folder.join(format!("{name}.onnx")), bytes)?)
}

/// A Vim-Ti of `method`, as it starts.
fn write_tiny(
    folder: &Path,
    method: Discretization,
    options: &Options,
) -> Result<(), Box<dyn Error>> {
    let config = VimConfig { discretization: method, ..VimConfig::default() };
    let node = format!("{:?}", options.scan).to_lowercase();
    let model = config.init(&Device::flex(), 1)?;
    write_model(folder, &format!("tiny-{method}-{node}"), &model, options)?;
    Ok(())
}

/// Every method, with the six configurations and with the nodes of linear attention.
fn write_methods(
    folder: &Path,
    [plain, microsoft]: [&Options; 2],
    attention: Option<&Options>,
) -> Result<(), Box<dyn Error>> {
    let mut seen: Vec<(Discretization, Vec<f32>)> = Vec::new();
    for method in Discretization::VARIANTS.iter().copied() {
        for (name, config) in configurations() {
            let config = VimConfig { discretization: method, ..config };
            write_classifier(folder, &format!("{method}-{name}"), &config, plain)?;
        }
        let config = VimConfig { discretization: method, ..small() };
        let logits = write_classifier(folder, &format!("{method}-microsoft"), &config, microsoft)?;
        if let Some(attention) = attention {
            write_classifier(folder, &format!("{method}-attention"), &config, attention)?;
        }
        let largest = logits.iter().fold(0.0_f32, |most, logit| most.max(logit.abs()));
        for (other, its) in &seen {
            let differences = logits.iter().zip(its).map(|(a, b)| (a - b).abs() / largest);
            let most = differences.fold(0.0, f32::max);
            // Else the comparison, to 1e-5, could not tell them apart.
            assert!(most > 3e-5, "{method} and {other} differ by {most} only");
        }
        seen.push((method, logits));
    }
    Ok(())
}

/// Segmenters of both sizes of patches.
fn write_segmenters(
    folder: &Path,
    plain: &Options,
    pixels: &Options,
) -> Result<(), Box<dyn Error>> {
    let backbone = |patch_size| VimConfig {
        image_size: 64.into(),
        patch_size,
        class_token: ClassToken::None,
        ..small()
    };
    let hidden = SegmenterConfig { out_indices: vec![0, 1, 2, 3], ..SegmenterConfig::default() };
    let residual = SegmenterConfig {
        features: Tapped::Residual,
        last: LastTap::AddNorm,
        channels: Some(24),
        ..hidden.clone()
    };
    let one = SegmenterConfig { out_indices: vec![2], ..hidden.clone() };
    let rotary = VimConfig { rope: Rope::Both, ..backbone(16) };
    let with_class = VimConfig { class_token: ClassToken::Middle, ..backbone(16) };
    write_segmenter(folder, "segmenter-hidden", (&hidden, &backbone(16)), plain)?;
    write_segmenter(folder, "segmenter-fine", (&residual, &backbone(8)), plain)?;
    write_segmenter(folder, "segmenter-residual", (&residual, &rotary), plain)?;
    write_segmenter(folder, "segmenter-pixels", (&one, &with_class), pixels)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let folder = arguments.next().ok_or("usage: grid FOLDER [attention] [tiny]")?;
    let words: Vec<String> = arguments.collect();
    let has = |word: &str| words.iter().any(|one| one == word);
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    let plain = Options::default();
    let microsoft = Options { scan: ScanNode::Microsoft, ..plain };
    let attention = Options { scan: ScanNode::Attention, opset: ATTENTION_OPSET, ..plain };
    let attention = has("attention").then_some(&attention);
    if has("tiny") {
        for method in Discretization::VARIANTS.iter().copied() {
            for options in [Some(&plain), Some(&microsoft), attention].into_iter().flatten() {
                write_tiny(folder, method, options)?;
            }
        }
        return Ok(());
    }
    write_tiny(folder, Discretization::Zoh, &plain)?;
    write_methods(folder, [&plain, &microsoft], attention)?;
    for (name, config) in variants() {
        write_classifier(folder, &format!("variant-{name}"), &config, &plain)?;
    }
    let pixels = Some(Pixels { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] });
    let pixels = Options { pixels, dynamic: true, ..plain };
    let forms = [
        ("dynamic", Options { dynamic: true, ..plain }),
        ("pixels", pixels),
        ("half", Options { half: true, ..plain }),
        ("oldest", Options { opset: LEAST_OPSET, ..plain }),
        ("microsoft_dynamic", Options { dynamic: true, opset: 21, ..microsoft }),
    ];
    for (name, options) in forms {
        let config = VimConfig { discretization: Discretization::Tustin, ..small() };
        write_classifier(folder, &format!("form-{name}"), &config, &options)?;
    }
    write_segmenters(folder, &plain, &pixels)
}
