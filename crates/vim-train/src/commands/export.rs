//! `vim-train export`: writes weights in PyTorch's formats.

use std::path::PathBuf;

use burn::tensor::Device;
use clap::Args;
use serde::Serialize;
use vim_model::LoadOptions;
use vim_run::storage::{Disk, replace};

use crate::args::Overrides;
use crate::commands::import::WhichArgs;
use crate::config::{Config, Part, config_inputs};
use crate::error::Error;
use crate::output::{OutputError, check_free, check_no_input, print, print_json};
use crate::task::kinds::{task_of, with_task};
use crate::task::named::NamedTask;
use crate::weights::heads::{Heads, Original};
use crate::weights::place::Place;
use crate::weights::provenance::Use;
use crate::weights::source::{Origin, WeightsSource};

const EXAMPLES: &str = "\
Examples:
  vim-train export data/runs/zoh-s0 -o vim.pth                      the run's best checkpoint
  vim-train export zoh-s0 --checkpoint last -o vim.pth              by its name in run.root
  vim-train export data/runs/zoh-s0/checkpoints/step-00000500 -o vim.pth
  vim-train export vim_t.safetensors -o vim_t.pth

The file has the original's keys and shapes, in f32: torch.load(\"vim.pth\", weights_only=True)[\"model\"]
goes into its load_state_dict, of a detector into detectron2's; of a segmenter the entry is
\"state_dict\", as mmsegmentation has it.
What the run records of its model, classes and images goes along, so that predict, import and train.init take
the file as they take the run. docs/checkpoints.md.";

/// Write weights as PyTorch's, under the original's names.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    /// A run's folder, its name in `run.root`, the folder of a checkpoint, or a file of weights.
    weights: PathBuf,
    /// Where to write it: .pth or .pt (`{"model": …}`, `{"state_dict": …}` of a segmenter), or
    /// .safetensors, all under the original's names.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
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

pub(crate) fn run(args: &ExportArgs) -> Result<(), Error> {
    let extension = args.output.extension().and_then(|extension| extension.to_str());
    let as_archive = match extension {
        Some("pth" | "pt") => true,
        Some("safetensors") => false,
        Some(_) | None => {
            let expected = ".pth, .pt or .safetensors";
            return Err(OutputError::Extension { path: args.output.clone(), expected }.into());
        }
    };
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
    let given = given.as_ref();
    let exported = with_task!(task_of(&source), T => {
        export::<<T as NamedTask>::Heads>(&source, given, as_archive, &args.allow)?
    });
    let Exported { bytes, tensors, parameters, classes, origin, entry } = exported;
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
    let entry = if as_archive { format!(", entry `{entry}`") } else { String::new() };
    print(&format!(
        "wrote    {} ({tensors} tensors, {parameters} parameters in f32{entry})",
        args.output.display(),
    ))
}

/// A file as it is to be written, and what is in it.
struct Exported {
    bytes: Vec<u8>,
    tensors: usize,
    parameters: usize,
    classes: usize,
    origin: Origin,
    /// What the arrays are called in an archive.
    entry: &'static str,
}

/// As the original saves it, or the same tensors in safetensors.
fn export<H: Heads>(
    source: &WeightsSource,
    given: Option<&Config>,
    as_archive: bool,
    allowed: &[Part],
) -> Result<Exported, Error> {
    let described = source.described::<H>(given, None)?;
    let remarks = source.check_described(given, Use::Write, allowed)?;
    for what in &remarks.differences {
        eprintln!("note: not as recorded: {what}");
    }
    let (model, _) = source.model(&described, &Device::flex(), LoadOptions::default())?;
    let record = source.record(&described);
    let Original { arrays, parameters, archive, entry } = H::original(&model, source, &record)?;
    let tensors = arrays.iter().count();
    let bytes = match as_archive {
        true => archive,
        false => arrays
            // Readers of other programs look for it.
            .with_metadata("format", "pt".to_owned())
            .to_safetensors()
            .map_err(|error| Error::internal(error.to_string()))?,
    };
    let (classes, origin) = (described.classes, described.origin);
    Ok(Exported { bytes, tensors, parameters, classes, origin, entry })
}
