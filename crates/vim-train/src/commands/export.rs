//! `vim-train export`: writes weights in PyTorch's formats, or a model as a graph of ONNX.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;
use vim_engine::Error;
use vim_engine::config::{Config, Part, config_inputs};
use vim_engine::output::{OutputError, check_free, check_no_input, print, print_json};
use vim_engine::weights::place::Place;
use vim_engine::weights::source::WeightsSource;
use vim_engine::work::convert::{Exported, FileKind, export};
use vim_engine::work::onnx::{GraphOptions, ScanNode};
use vim_run::storage::{Disk, replace};

use crate::args::Overrides;
use crate::commands::import::WhichArgs;

const EXAMPLES: &str = "\
Examples:
  vim-train export data/runs/zoh-s0 -o vim.pth                      the run's best checkpoint
  vim-train export zoh-s0 --checkpoint last -o vim.pth              by its name in run.root
  vim-train export data/runs/zoh-s0/checkpoints/step-00000500 -o vim.pth
  vim-train export vim_t.safetensors -o vim_t.pth
  vim-train export zoh-s0 -o vim.onnx                               the model as a graph of ONNX
  vim-train export zoh-s0 -o vim.onnx --pixels --dynamic            from bytes to probabilities, of any batch

A file of PyTorch has the original's keys and shapes, in f32: torch.load(\"vim.pth\", weights_only=True)[\"model\"]
goes into its load_state_dict, of a detector into detectron2's; of a segmenter the entry is
\"state_dict\", as mmsegmentation has it.
What the run records of its model, classes and images goes along, so that predict, import and train.init take
the file as they take the run. docs/checkpoints.md.
A graph of ONNX is for other runtimes. docs/export.md, and scripts/verify_export.py.";

/// Write weights as PyTorch's, under the original's names, or the model as a graph of ONNX.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    /// A run's folder, its name in `run.root`, the folder of a checkpoint, or a file of weights.
    weights: PathBuf,
    /// Where to write it: .pth or .pt (`{"model": …}`, `{"state_dict": …}` of a segmenter), or
    /// .safetensors, all under the original's names; or .onnx.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// What the file is to be, whatever its name ends in.
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    graph: GraphArgs,
    /// Which checkpoint of the run. Left out: the best, or the last where no held-out images choose
    /// a best one.
    #[arg(long, value_name = "best|last|PATH")]
    checkpoint: Option<PathBuf>,
    #[command(flatten)]
    which: WhichArgs,
    /// Let a part of --config be otherwise than the weights record it: the file then records it as
    /// that says.
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',', requires = "config")]
    allow: Vec<Part>,
    /// Configuration whose `[model]`, `[ssm]`, `[segmentation]` and `[detection]` the weights must
    /// fit; left out: as recorded, or from a classifier's or a detector's shapes.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// Write over the output if it is there.
    #[arg(long)]
    force: bool,
    /// Print what was written as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// An archive of PyTorch.
    Pth,
    /// The same tensors in safetensors.
    Safetensors,
    /// A graph of ONNX.
    Onnx,
}

/// How a graph of ONNX is written.
#[derive(Debug, Args)]
struct GraphArgs {
    /// ONNX only: what computes the recurrence. Left out: loop.
    #[arg(long, value_enum)]
    scan: Option<Scan>,
    /// ONNX only: the version of its operators, 13 to 27. Left out: 17, and 27 with --scan
    /// attention.
    #[arg(long, value_name = "N")]
    opset: Option<u32>,
    /// ONNX only: store weights in float16, half the size; everything is computed in float32.
    #[arg(long)]
    fp16: bool,
    /// ONNX only: take batches of any size, instead of one image.
    #[arg(long)]
    dynamic: bool,
    /// ONNX only: take bytes, [batch, height, width, 3], normalized in the graph, and give
    /// probabilities, or of a segmenter labels.
    #[arg(long)]
    pixels: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scan {
    /// ONNX's `Scan`, token by token: in every runtime, and the fastest on a CPU.
    Loop,
    /// ONNX's `LinearAttention`, from opset 27 on.
    Attention,
    /// onnxruntime's own `LinearAttention`.
    Microsoft,
}

impl GraphArgs {
    /// The flags that are set.
    fn given(&self) -> Option<&'static str> {
        let &Self { scan, opset, fp16, dynamic, pixels } = self;
        let flags = [
            (scan.is_some(), "--scan"),
            (opset.is_some(), "--opset"),
            (fp16, "--fp16"),
            (dynamic, "--dynamic"),
            (pixels, "--pixels"),
        ];
        flags.into_iter().find_map(|(is_set, flag)| is_set.then_some(flag))
    }

    fn options(&self) -> GraphOptions {
        let &Self { scan, opset, fp16, dynamic, pixels } = self;
        let scan = match scan {
            None | Some(Scan::Loop) => ScanNode::Loop,
            Some(Scan::Attention) => ScanNode::Attention,
            Some(Scan::Microsoft) => ScanNode::Microsoft,
        };
        GraphOptions { scan, opset, half: fp16, dynamic, pixels }
    }
}

impl ExportArgs {
    /// What the file is to be: as said, else as its name ends.
    fn kind(&self) -> Result<FileKind, Error> {
        let extension = self.output.extension().and_then(|extension| extension.to_str());
        let kind = match (self.format, extension) {
            (Some(Format::Onnx), _) | (None, Some("onnx")) => {
                return Ok(FileKind::Graph(self.graph.options()));
            }
            (Some(Format::Pth), _) | (None, Some("pth" | "pt")) => FileKind::Archive,
            (Some(Format::Safetensors), _) | (None, Some("safetensors")) => FileKind::Safetensors,
            (None, _) => {
                let expected = ".pth, .pt, .safetensors or .onnx";
                return Err(OutputError::Extension { path: self.output.clone(), expected }.into());
            }
        };
        match self.graph.given() {
            None => Ok(kind),
            Some(flag) => Err(Error::usage(format!(
                "{flag} is for a graph of ONNX: write a file .onnx, or leave it out"
            ))),
        }
    }
}

pub(crate) fn run(args: &ExportArgs) -> Result<(), Error> {
    let kind = args.kind()?;
    check_free(&args.output, args.force)?;
    let given = args.config.as_ref().map(|path| Config::load(path, &args.overrides.set));
    let given = given.transpose()?;
    let root = match &given {
        Some(given) => given.run.root.clone(),
        None => args.overrides.run_root()?,
    };
    let mut place = Place::find(&args.weights, &root, None)?;
    if let Some(which) = &args.checkpoint {
        place = Place::find(which, &root, place.run().as_deref())?;
    }
    let read = place.inputs();
    check_no_input(
        &args.output,
        read.iter().chain(&config_inputs(&args.config)).map(PathBuf::as_path),
    )?;
    let source = WeightsSource::open(&place, args.which.section())?;
    if let Some(note) = &source.note {
        eprintln!("note: {note}");
    }
    let Exported { bytes, tensors, parameters, classes, origin, entry } =
        export(&source, given.as_ref(), kind, &args.allow)?;
    replace(&Disk, &args.output, &bytes).map_err(Error::io("write", &args.output))?;
    if args.json {
        #[derive(Serialize)]
        struct ExportReport {
            weights: String,
            step: Option<u64>,
            tensors: usize,
            parameters: usize,
            output: String,
            blake3: String,
        }
        return print_json(&ExportReport {
            weights: source.name,
            step: source.step,
            tensors,
            parameters,
            output: args.output.display().to_string(),
            blake3: blake3::hash(&bytes).to_hex().to_string(),
        });
    }
    print(&format!("read     {}", source.summary()))?;
    print(&format!("model    {classes} classes, {origin}"))?;
    let more = match kind {
        FileKind::Archive => format!(", entry `{entry}`"),
        FileKind::Safetensors => String::new(),
        FileKind::Graph(_) => ", a graph of ONNX".to_owned(),
    };
    let stored = if args.graph.fp16 { "f16" } else { "f32" };
    print(&format!(
        "wrote    {} ({tensors} tensors, {parameters} parameters in {stored}{more})",
        args.output.display(),
    ))
}
