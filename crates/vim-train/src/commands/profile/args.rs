//! The command line of `profile`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use strum::VariantArray;
use vim_kernels::{Discretization, Implementation, Series};

use crate::args::{Overrides, count};
use crate::commands::verify::{DtypeChoice, method};
use crate::device::DeviceName;

const EXAMPLES: &str = "\
Examples:
  vim-train profile scan                              all methods at 128x384x197, N=16
  vim-train profile scan --device cpu --batch 8 --methods zoh,bilinear
  vim-train profile scan --shape 128x384x197 --shape 8x384x1025 --dtype all --json
  vim-train profile ops --device cuda:0
  vim-train profile train configs/vim_tiny_imagenet.toml --batch 128,512

docs/benchmarks.md says how each figure is measured.";

const SCAN_HELP: &str = "\
Examples:
  vim-train profile scan --device cuda:0 --dtype bf16 --shape 128x384x197 --shape 1x384x6085
  vim-train profile scan --device cpu --shape 8x384x197 --implementations kernel --json

Columns, for each pass (`fwd`: without gradients; `save`: as in training, saving what the backward pass
needs; `bwd`: the backward pass alone, on a graph made before):
  ms [p10 p90]  one call between two events of the device, or of a monotonic clock where it has none:
                median and spread. Gaps between the launches of one call are in it.
  back to back  calls queued one behind the other between two waits, per call: gaps between launches
                hide behind work, as they do in a training step.
  GB/s          bytes that any implementation must move (every input read once, every output written
                once; states that are saved are not counted) over the better of the two times.
  roof          the time that those bytes, or the multiply-adds of zoh if that is more, take at the rates
                measured in the same run, over the better of the two times; exponentials, and what
                other methods compute beyond zoh, are not counted.
  vs zoh        zoh's save + bwd over the method's, same implementation: above 1 is faster than zoh.
  vs ref        the reference's save + bwd over the kernel's, same method.

The reference keeps every step's states for its backward pass: on a CPU choose a small --batch.";

const OPS_HELP: &str = "\
Examples:
  vim-train profile ops
  vim-train profile ops --device cuda:0 --dtype bf16 --batch 128 --seqlen 197 --json

Times the parts that a Vim layer is made of: exponential, reciprocal and the coefficients of each
method (φ functions and the inverse of bilinear) in tensor operations over [batch, seqlen, dim]; the
layer's matrix products, forward and backward; the short convolution; the addition to the residual
stream with its norm, kernel and reference; and, by the scan with a full A, an N×N solve for each
token and channel.";

const TRAIN_HELP: &str = "\
Examples:
  vim-train profile train configs/vim_tiny_imagenet.toml --set train.precision=bf16 --batch 128,512
  vim-train profile train configs/debug.toml --steps 5 --trace trace.json

Makes one batch of random images of the model's size and trains on it with random weights, as `train` would
compute on it, without reading data. Steps are timed twice: whole, one after the other, which gives img/s; and with a wait for
the device after each phase, which gives the phases' times (their sum is a little more than a whole step).
The trace opens in chrome://tracing or ui.perfetto.dev.";

/// `vim-train profile`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ProfileArgs {
    /// What to time.
    #[command(subcommand)]
    pub what: Profile,
}

/// What to time.
#[derive(Debug, Subcommand)]
pub enum Profile {
    /// The selective scan, for each method and implementation, forward and backward.
    #[command(after_help = SCAN_HELP)]
    Scan(ScanArgs),
    /// The operations that a layer is made of.
    #[command(after_help = OPS_HELP)]
    Ops(OpsArgs),
    /// A step of training, by its phases.
    #[command(after_help = TRAIN_HELP)]
    Train(TrainStepArgs),
}

/// Where and how often.
#[derive(Debug, Args)]
pub struct Common {
    /// What to run on: auto, cpu, cuda, cuda:N, wgpu, wgpu:N, tch or tch:N.
    #[arg(long, value_name = "DEVICE", default_value_t)]
    pub device: DeviceName,
    /// Calls to time, after two to warm up.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = count)]
    pub trials: usize,
    /// Stop timing a pass after so many seconds, if there have been three calls.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub budget: f64,
    /// Type of the activations.
    #[arg(long, value_enum, default_value = "f32")]
    pub dtype: DtypeChoice,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// `vim-train profile scan`.
#[derive(Debug, Args)]
pub struct ScanArgs {
    /// Where and how often.
    #[command(flatten)]
    pub common: Common,
    /// Batch, d_inner and tokens at once, as in 8x384x1025; may be repeated.
    #[arg(long = "shape", value_name = "BxDxL", conflicts_with_all = ["batch", "dim", "seqlen"])]
    pub shapes: Vec<Shape>,
    /// Sequences.
    #[arg(long, value_name = "B", default_value_t = 128, value_parser = count)]
    pub batch: usize,
    /// Channels (d_inner).
    #[arg(long, value_name = "D", default_value_t = 384, value_parser = count)]
    pub dim: usize,
    /// Tokens.
    #[arg(long, value_name = "L", default_value_t = 197, value_parser = count)]
    pub seqlen: usize,
    /// States per channel.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = count)]
    pub dstate: usize,
    /// Only these methods, as in zoh,foh.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = method)]
    pub methods: Vec<Discretization>,
    /// Only these of kernel,reference; all that the device has where left out.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = implementation)]
    pub implementations: Vec<Implementation>,
    /// How the φ functions are evaluated: exact or taylor.
    #[arg(long, value_name = "SERIES", default_value_t, value_parser = series)]
    pub series: Series,
}

impl ScanArgs {
    /// The selected shapes.
    pub fn all_shapes(&self) -> Vec<Shape> {
        if self.shapes.is_empty() {
            vec![Shape { batch: self.batch, dim: self.dim, seqlen: self.seqlen }]
        } else {
            self.shapes.clone()
        }
    }
}

/// `vim-train profile ops`.
#[derive(Debug, Args)]
pub struct OpsArgs {
    /// Where and how often.
    #[command(flatten)]
    pub common: Common,
    /// Sequences.
    #[arg(long, value_name = "B", default_value_t = 128, value_parser = count)]
    pub batch: usize,
    /// Channels (d_inner); the layer's width is half of it.
    #[arg(long, value_name = "D", default_value_t = 384, value_parser = count)]
    pub dim: usize,
    /// Tokens.
    #[arg(long, value_name = "L", default_value_t = 197, value_parser = count)]
    pub seqlen: usize,
    /// States per channel.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = count)]
    pub dstate: usize,
}

/// `vim-train profile train`.
#[derive(Debug, Args)]
pub struct TrainStepArgs {
    /// Configuration file.
    pub config: PathBuf,
    /// What differs from the file.
    #[command(flatten)]
    pub overrides: Overrides,
    /// Images of a step; train.batch_size where left out.
    #[arg(long, value_name = "B,B", value_delimiter = ',', value_parser = count)]
    pub batch: Vec<usize>,
    /// Steps to time, whole and by phases.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = count)]
    pub steps: usize,
    /// Steps before the clock starts: the first few compile.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = count)]
    pub warmup: usize,
    /// Classes of the model.
    #[arg(long, value_name = "K", default_value_t = 1000, value_parser = count)]
    pub classes: usize,
    /// Write the phases of every timed step as a Chrome trace.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Write over the trace that is there.
    #[arg(long)]
    pub force: bool,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Sizes of a scan, but for the states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// `B`.
    pub batch: usize,
    /// `D`, d_inner.
    pub dim: usize,
    /// `L`.
    pub seqlen: usize,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Option<Vec<usize>> = text.split('x').map(|part| part.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[batch, dim, seqlen]) if batch > 0 && dim > 0 && seqlen > 0 => {
                Ok(Self { batch, dim, seqlen })
            }
            Some(_) | None => Err(format!("`{text}` is no BxDxL such as 128x384x197")),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}x{}x{}", self.batch, self.dim, self.seqlen)
    }
}

fn series(name: &str) -> Result<Series, String> {
    let found = Series::VARIANTS.iter().find(|series| series.to_string() == name);
    found.copied().ok_or_else(|| "the series are exact and taylor".into())
}

fn implementation(name: &str) -> Result<Implementation, String> {
    match name {
        "kernel" => Ok(Implementation::Kernel),
        "reference" => Ok(Implementation::Reference),
        _ => Err("the implementations are kernel and reference".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        assert_eq!("8x384x1025".parse(), Ok(Shape { batch: 8, dim: 384, seqlen: 1025 }));
        for text in ["", "8", "8x384", "8x384x0", "8x384x1025x16", "ax1x1", "8,384,197"] {
            assert!(text.parse::<Shape>().is_err(), "{text}");
        }
        assert_eq!(Shape { batch: 1, dim: 2, seqlen: 3 }.to_string(), "1x2x3");
    }
}
