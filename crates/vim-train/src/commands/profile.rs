//! `vim-train profile`: how long the scan and the operations of a layer take.

use clap::{Args, Subcommand};
use strum::VariantArray;
use vim_engine::Error;
use vim_engine::device::DeviceName;
use vim_engine::work::profile::ops::{self, OpsOptions};
use vim_engine::work::profile::scan::{self, ScanProfile};
use vim_engine::work::profile::{Common, ScanSizes, Shape};
use vim_kernels::{Discretization, Implementation, Series};

use crate::args::count;
use crate::commands::bench::{PhasesArgs, phases};
use crate::commands::verify::{DtypeChoice, implementation, method};

const EXAMPLES: &str = "\
Examples:
  vim-train profile scan                              all methods at 128x384x197, N=16
  vim-train profile scan --device cpu --batch 8 --methods zoh,bilinear
  vim-train profile scan --shape 128x384x197 --shape 8x384x1025 --dtype all --json
  vim-train profile ops --device cuda:0

docs/benchmarks.md says how each figure is measured.";

/// Time the scan, or the operations that a layer is made of.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProfileArgs {
    #[command(subcommand)]
    what: Profile,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Profile {
    Scan(ScanArgs),
    Ops(OpsArgs),
    /// `bench phases`, by the name that it had.
    #[command(hide = true)]
    Train(PhasesArgs),
}

/// Where and how often.
#[derive(Debug, Args)]
struct CommonArgs {
    /// What to run on: auto, cpu, cuda, cuda:N, wgpu, wgpu:N, tch or tch:N.
    #[arg(long, value_name = "DEVICE", default_value_t)]
    device: DeviceName,
    /// Calls to time, after two to warm up.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = count)]
    trials: usize,
    /// Seconds after which no further call of a pass is timed, if there have been three.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    budget: f64,
    /// Type of the activations.
    #[arg(long, value_enum, default_value = "f32")]
    dtype: DtypeChoice,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

impl CommonArgs {
    fn options(&self) -> Common {
        let Self { trials, budget, json, .. } = *self;
        let (device, dtypes) = (self.device.clone(), self.dtype.dtypes());
        Common { device, trials, budget, dtypes, json }
    }
}

/// The sizes of a scan's inputs.
#[derive(Clone, Copy, Debug, Args)]
struct SizeArgs {
    /// Sequences.
    #[arg(long, value_name = "B", default_value_t = 128, value_parser = count)]
    batch: usize,
    /// Channels (d_inner).
    #[arg(long, value_name = "D", default_value_t = 384, value_parser = count)]
    dim: usize,
    /// Tokens.
    #[arg(long, value_name = "L", default_value_t = 197, value_parser = count)]
    seqlen: usize,
    /// States per channel.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = count)]
    dstate: usize,
}

impl SizeArgs {
    fn options(self) -> ScanSizes {
        let Self { batch, dim, seqlen, dstate } = self;
        ScanSizes { batch, dim, seqlen, dstate }
    }
}

const OPS_HELP: &str = "\
Examples:
  vim-train profile ops
  vim-train profile ops --device cuda:0 --dtype bf16 --batch 128 --seqlen 197 --json

Times the parts that a Vim layer is made of: exponential, reciprocal and the coefficients of each
method (φ functions and the inverse of bilinear) in tensor operations over [batch, seqlen, dim]; the
layer's matrix products, forward and backward; the short convolution; the addition to the residual
stream with its norm, kernel and reference; and, by the scan with a full A, an N×N solve for each
token and channel.";

/// The operations that a layer is made of.
#[derive(Debug, Args)]
#[command(after_help = OPS_HELP)]
#[command(mut_arg("dim", |dim| dim.help("Channels (d_inner); the layer's width is half of it")))]
pub(crate) struct OpsArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    sizes: SizeArgs,
}

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

/// The selective scan, for each method and implementation, forward and backward.
#[derive(Debug, Args)]
#[command(after_help = SCAN_HELP)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Batch, d_inner and tokens at once, as in 8x384x1025; may be repeated.
    #[arg(long = "shape", value_name = "BxDxL", conflicts_with_all = ["batch", "dim", "seqlen"])]
    shapes: Vec<Shape>,
    #[command(flatten)]
    sizes: SizeArgs,
    /// Only these methods, as in zoh,foh.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = method)]
    methods: Vec<Discretization>,
    /// Only these of kernel,reference; all that the device has where left out.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = implementation)]
    implementations: Vec<Implementation>,
    /// How the φ functions are evaluated: exact or taylor.
    #[arg(long, value_name = "SERIES", default_value_t, value_parser = series)]
    series: Series,
}

impl ScanArgs {
    fn options(&self) -> ScanProfile {
        let SizeArgs { batch, dim, seqlen, dstate } = self.sizes;
        let shapes = match &self.shapes[..] {
            [] => vec![Shape { batch, dim, seqlen }],
            asked => asked.to_vec(),
        };
        ScanProfile {
            common: self.common.options(),
            shapes,
            dstate,
            methods: self.methods.clone(),
            implementations: self.implementations.clone(),
            series: self.series,
        }
    }
}

fn series(name: &str) -> Result<Series, String> {
    let found = Series::VARIANTS.iter().find(|series| series.to_string() == name);
    found.copied().ok_or_else(|| "the series are exact and taylor".into())
}

/// Measures and prints. Fails if the device is absent or does not support a
/// type requested by name.
pub(crate) fn run(args: &ProfileArgs) -> Result<(), Error> {
    match &args.what {
        Profile::Scan(args) => scan::run(&args.options()),
        Profile::Ops(args) => {
            let (common, sizes) = (args.common.options(), args.sizes.options());
            ops::run(&OpsOptions { common, sizes })
        }
        Profile::Train(args) => phases(args, "profile train"),
    }
}
