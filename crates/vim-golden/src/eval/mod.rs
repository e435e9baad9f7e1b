//! `vim-golden eval-golden`: compares a checkpoint of the original with arrays that the original
//! computed.

mod arrays;
mod bands;
mod detection;
mod gradients;
mod operations;
mod segmentation;
mod settings;
mod variant;

use std::path::{Path, PathBuf};

use burn::tensor::{Gradients, Int, Tensor, TensorData};
use clap::Args;
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use serde::{Deserialize, Serialize};
use vim_engine::Error;
use vim_engine::config::Config;
use vim_engine::device::{self, DeviceName, threads};
use vim_engine::output::{print, print_json};
use vim_engine::task::classification::cross_entropy;
use vim_engine::weights::WeightsError;
use vim_kernels::Precision;
use vim_model::{Bimamba, GateGradient, ImportError, Vim, VimConfig, import_pytorch, pytorch_key};

use arrays::{Arrays, Comparison, Floats, damaged};
use gradients::by_path;

const EXAMPLES: &str = "\
Examples:
  vim-golden eval-golden --weights a_mid.pth --arrays a_mid.npz --config a_mid.toml
  vim-golden eval-golden --weights a_mid.pth --arrays a_mid.npz --config a_mid.toml --grads --device cuda
  vim-golden eval-golden --weights a_tiny.pth --arrays a_tiny.npz --variant a_tiny.json --grads
  vim-golden eval-golden --operations golden/seg     the operations of a task

The configuration needs a [model] section, and [ssm] where the numerics differ; no data are opened. The
number of classes is that of the logits.

Arrays of the .npz, in f32 or f64 (y in i64 or i32), in C order:
  x             images [B, 3, H, W], normalized       y     labels [B]
  logits        [B, K], in evaluation                 loss  mean cross-entropy of logits and y
  dx            gradient of loss in x                 g.X   gradient of loss in the parameter X
X is the original's name, such as g.layers.0.mixer.A_log, and the shape is as PyTorch stores it. dx and g.*
are compared with --grads, of every parameter; without it they may be absent. A missing array, one of
another shape and one that is none of these are errors (exit 65).

With model.bimamba = \"v1\" the gradients are taken as the original takes them, without the part that the gate
gets through the backward way; ssm.v1_gate_gradient = \"exact\" takes them all.

With --variant the model is a segmentation model or a detector, described by the JSON of the reference
arrays, and the arrays are its own. Segmentation: eval.*, train.*, slide.*, and with --grads dx and g.*;
classes are compared where the two largest logits are further apart than 1e-3. Tolerances left out: 1e-5,
of gradients 5e-4, of dx 1e-4; in bf16 wider ones for each kind of array, and the last lines say how far
each kind is off. Detection: image*, gt_*, batch, train.*, eval.*, and with --grads d_* and g.*; anchors
and boxes are taken in order. Tolerances left out: 1e-5, gradients 2e-4, boxes 1e-3 pixels. In bf16 other
boxes would be chosen: the cascade is of train.stage*.boxes*, eval.* and train.proposal* are not compared,
bands are wider for each kind, and a gradient's part along the reference's (1) is compared too.

The error of an array is its largest difference over its reference's largest magnitude. Exit 1 if one
is above its tolerance, which is the same on a GPU: f32 is f32 there.";

/// Compare a checkpoint of the original with arrays that the original computed with it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EvalGoldenArgs {
    /// Checkpoint of the original.
    #[arg(long, value_name = "FILE.pth", required_unless_present = "operations")]
    weights: Option<PathBuf>,
    /// What the original computed with it.
    #[arg(long, value_name = "FILE.npz", required_unless_present = "operations")]
    arrays: Option<PathBuf>,
    /// Configuration file that describes the model.
    #[arg(long, value_name = "FILE.toml", required_unless_present_any = ["variant", "operations"])]
    config: Option<PathBuf>,
    /// What describes the segmentation model, or the detector, of the arrays.
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["config", "set"])]
    variant: Option<PathBuf>,
    /// Compare a task's operations instead, such as its data and its metrics: with every file of
    /// this folder that is known.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["weights", "arrays", "config", "variant"])]
    operations: Option<PathBuf>,
    /// Set a key over the file, as in `--set optim.lr=5e-4`; may be repeated, the last one counts.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Type to compute in: a segmenter f32, tf32 or bf16, a detector f32 or bf16;
    /// left out f32.
    #[arg(long, value_name = "DTYPE", requires = "variant", value_parser = precision)]
    dtype: Option<Precision>,
    /// Compare the gradients too: of the images and of every parameter.
    #[arg(long)]
    grads: bool,
    /// Largest relative error of the logits and the loss; left out 1e-5.
    #[arg(long, value_name = "X", value_parser = tolerance)]
    tol: Option<f64>,
    /// Largest relative error of a parameter's gradient; left out 5e-5, 5e-4 of segmentation, 2e-4
    /// of detection.
    #[arg(long, value_name = "X", value_parser = tolerance)]
    tol_grad: Option<f64>,
    /// Largest relative error of the images' gradient; left out 1e-3, 1e-4 of segmentation, 2e-4
    /// of detection.
    #[arg(long, value_name = "X", value_parser = tolerance)]
    tol_dx: Option<f64>,
    /// Where to compute: auto, cpu, cuda, cuda:N, wgpu, wgpu:N, tch or tch:N; left out, what the
    /// configuration says.
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceName>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl EvalGoldenArgs {
    /// The checkpoint, which the parser asks for unless there are operations.
    fn weights(&self) -> &Path {
        self.weights.as_deref().unwrap_or(Path::new(""))
    }

    /// The arrays, likewise.
    fn arrays(&self) -> &Path {
        self.arrays.as_deref().unwrap_or(Path::new(""))
    }
}

/// Arrays that a failure names.
const NAMED: usize = 5;

fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("expected a number, 0 or more".to_owned()),
    }
}

/// By its name in a configuration.
fn precision(name: &str) -> Result<Precision, String> {
    Precision::deserialize(name.into_deserializer()).map_err(|error: ValueError| error.to_string())
}

/// Largest relative errors.
#[derive(Clone, Copy, Debug)]
struct Tolerances {
    /// Of the logits and the loss.
    outputs: f64,
    /// Of a parameter's gradient.
    parameters: f64,
    /// Of the images' gradient.
    images: f64,
}

impl Tolerances {
    /// Our formulas in f64 are off by 4e-7, 5e-6 and, where the original used TF32, 3.7e-4; the
    /// rest is f32 rounding on both sides.
    fn of(args: &EvalGoldenArgs) -> Self {
        Self {
            outputs: args.tol.unwrap_or(1e-5),
            parameters: args.tol_grad.unwrap_or(5e-5),
            images: args.tol_dx.unwrap_or(1e-3),
        }
    }
}

/// The command fails if an array is off by more than its tolerance.
pub(crate) fn run(args: &EvalGoldenArgs) -> Result<(), Error> {
    let config = match &args.config {
        Some(path) => Config::load(path, &args.set)?,
        None => Config::default(),
    };
    threads::start(config.devices.threads)?;
    let chosen = match &args.device {
        Some(name) => device::choose_named(name)?,
        None => device::choose(&config.devices)?,
    };
    if let Some(dir) = &args.operations {
        return operations::run(dir, &chosen.device, args.json);
    }
    if let Some(variant) = &args.variant {
        return variant::run(args, variant, &chosen);
    }
    let mut arrays = Arrays::open(args.arrays())?;
    let path = args.arrays();

    // 1. Inputs and outputs of the original; they give the number of classes.
    let x = arrays.floats("x")?;
    let labels = arrays.integers("y")?;
    let logits = arrays.floats("logits")?;
    let loss = arrays.floats("loss")?;
    let &[batch, classes] = &logits.shape[..] else {
        return Err(damaged(path, &format!("logits are {:?}, expected [B, K]", logits.shape)));
    };
    let mut model = config.model.with_classes(classes)?;
    if model.bimamba == Bimamba::V1 && model.ssm.v1_gate_gradient.is_none() {
        model.ssm.v1_gate_gradient = Some(GateGradient::Upstream); // as in the reference arrays
    }
    check_inputs(path, &model, &x, &labels, batch, classes)?;
    let scalar: Vec<usize> = loss.shape.iter().copied().filter(|&n| n != 1).collect();
    expect_shape(path, "loss", &scalar, &[])?;

    // 2. The same computation with our model.
    let tolerances = Tolerances::of(args);
    let device = if args.grads { chosen.device.autodiff() } else { chosen.device };
    let model = import_pytorch(&model, args.weights(), &device)
        .map_err(|error| import_error(error, args.weights()))?;
    let pixels = TensorData::new(x.values, [batch, 3, x.shape[2], x.shape[3]]);
    let mut images = Tensor::<4>::from_data(pixels, &device);
    if args.grads {
        images = images.require_grad();
    }
    let got = model.forward(images.clone())?;
    let targets = Tensor::<1, Int>::from_data(TensorData::new(labels, [batch]), &device);
    let got_loss = cross_entropy(got.clone(), targets, 0.0);
    let mut comparisons = vec![
        Comparison::new("logits", &numbers(got), &logits.values, tolerances.outputs),
        Comparison::new("loss", &numbers(got_loss.clone()), &loss.values, tolerances.outputs),
    ];
    if args.grads {
        let grads = got_loss.backward();
        comparisons.extend(gradients(path, tolerances, &mut arrays, &model, &images, &grads)?);
    } else {
        arrays.pass_over("dx");
        for parameter in model.parameters() {
            arrays.pass_over(&gradient_name(&parameter.path));
        }
    }
    let extra = arrays.unread();
    if !extra.is_empty() {
        let what = format!("not expected of this model: {}", extra.join(", "));
        return Err(damaged(path, &what));
    }
    judge(args, &comparisons, &chosen.name)
}

/// Prints the comparisons, and fails if one exceeds its tolerance.
fn judge(args: &EvalGoldenArgs, comparisons: &[Comparison], device: &str) -> Result<(), Error> {
    let mut exceeding: Vec<&Comparison> = comparisons.iter().filter(|c| !c.within).collect();
    exceeding.sort_by(|a, b| b.excess().total_cmp(&a.excess()));
    let exceeding: Vec<&str> = exceeding.into_iter().map(|c| c.array.as_str()).collect();
    let failure = (!exceeding.is_empty()).then(|| {
        Error::failed(format!(
            "{} of {} arrays are off by more than their tolerance, the worst: {}{}",
            exceeding.len(),
            comparisons.len(),
            exceeding[..exceeding.len().min(NAMED)].join(", "),
            if exceeding.len() > NAMED { ", …" } else { "" }
        ))
    });
    report(args, comparisons, device)?;
    failure.map_or(Ok(()), Err)
}

fn check_inputs(
    path: &Path,
    model: &VimConfig,
    x: &Floats,
    labels: &[i64],
    batch: usize,
    classes: usize,
) -> Result<(), Error> {
    if batch == 0 || classes == 0 {
        let what = format!("logits are [{batch}, {classes}]: there is nothing to compare");
        return Err(damaged(path, &what));
    }
    let size = model.image_size;
    expect_shape(path, "x", &x.shape, &[batch, 3, size.height, size.width])?;
    expect_shape(path, "y", &[labels.len()], &[batch])?;
    match labels.iter().find(|&&label| !(0..classes as i64).contains(&label)) {
        Some(label) => Err(damaged(path, &format!("y has a label {label} of {classes} classes"))),
        None => Ok(()),
    }
}

fn expect_shape(path: &Path, name: &str, got: &[usize], expected: &[usize]) -> Result<(), Error> {
    if got == expected {
        return Ok(());
    }
    Err(damaged(path, &format!("{name} is {got:?}, the model's is {expected:?}")))
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter().collect()
}

fn gradient_name(path: &str) -> String {
    format!("g.{}", pytorch_key(path))
}

fn gradients(
    path: &Path,
    tolerances: Tolerances,
    arrays: &mut Arrays,
    model: &Vim,
    images: &Tensor<4>,
    grads: &Gradients,
) -> Result<Vec<Comparison>, Error> {
    let mut found = Vec::new();
    let dx = arrays.floats("dx")?;
    expect_shape(path, "dx", &dx.shape, &images.dims())?;
    let got = images.grad(grads).map(numbers).unwrap_or_default();
    found.push(Comparison::new("dx", &got, &dx.values, tolerances.images));
    for (parameter, Floats { shape, values }) in by_path(model, &|_| Some(grads)) {
        let name = gradient_name(&parameter);
        let expected = arrays.floats(&name)?;
        expect_shape(path, &name, &expected.shape, &shape)?;
        found.push(Comparison::new(&name, &values, &expected.values, tolerances.parameters));
    }
    Ok(found)
}

fn import_error(error: ImportError, path: &Path) -> Error {
    let name = path.display().to_string();
    match error {
        ImportError::Model(error) => error.into(),
        ImportError::Read { source, .. } => {
            Error::from(WeightsError::Unreadable { path: name, source })
        }
        ImportError::Mismatch { mismatch, .. } => {
            Error::from(WeightsError::Unfit { checkpoint: name, problems: mismatch.to_string() })
        }
    }
}

fn report(args: &EvalGoldenArgs, comparisons: &[Comparison], device: &str) -> Result<(), Error> {
    if args.json {
        #[derive(Serialize)]
        struct GoldenReport<'a> {
            weights: String,
            arrays: String,
            device: &'a str,
            within: bool,
            comparisons: &'a [Comparison],
        }
        return print_json(&GoldenReport {
            weights: args.weights().display().to_string(),
            arrays: args.arrays().display().to_string(),
            device,
            within: comparisons.iter().all(|comparison| comparison.within),
            comparisons,
        });
    }
    let width = comparisons.iter().map(|c| c.array.len()).max().unwrap_or_default();
    let mut text = format!(
        "{:<width$}  {:>10}  {:>10}  {:>10}  {:>9}\n",
        "array", "max |ref|", "max abs", "max rel", "tolerance"
    );
    for comparison in comparisons {
        let verdict = if comparison.within { "" } else { "  exceeded" };
        text.push_str(&format!(
            "{:<width$}  {:>10.3e}  {:>10.3e}  {:>10.3e}  {:>9.0e}{verdict}\n",
            comparison.array,
            comparison.max_reference,
            comparison.max_absolute_error,
            comparison.max_relative_error,
            comparison.tolerance,
        ));
    }
    let good = comparisons.iter().filter(|comparison| comparison.within).count();
    text.push_str(&format!(
        "{good} of {} arrays within tolerance, on {device}\n",
        comparisons.len()
    ));
    print(&text)
}
