//! `vim-train import`: checks a PyTorch checkpoint and converts it to our format.

use std::path::PathBuf;

use burn::tensor::Device;
use clap::Args;
use serde::Serialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use vim_dense::SegmenterConfig;
use vim_dense::detection::DetectorConfig;
use vim_model::{Assumption, LoadOptions, LoadReport, NamedArrays, Resize, SsmConfig, VimConfig};
use vim_run::storage::{Disk, replace};
use vim_torch::Section;

use crate::args::Overrides;
use crate::commands::models::known_model;
use crate::config::{Config, Part, config_inputs};
use crate::error::Error;
use crate::output::{OutputError, check_free, check_no_input, print, print_json};
use crate::task::kinds::{task_of, with_task};
use crate::task::named::NamedTask;
use crate::weights::heads::{Described, Heads};
use crate::weights::place::Place;
use crate::weights::provenance::{Remarks, Use};
use crate::weights::record::{METADATA_KEY, Recorded};
use crate::weights::source::{Origin, WeightsSource, notes};

const EXAMPLES: &str = "\
Examples:
  vim-train import vim_t_midclstok_76p1acc.pth                  check it and say what it is
  vim-train import vim_t_midclstok_76p1acc.pth -o vim_t.safetensors
  vim-train import checkpoint.pth --ema --preset small -o vim_s.safetensors
  vim-train import vim_t.pth --config configs/my.toml --allow head --classes 100 -o start.safetensors
  vim-train import upernet.pth --config configs/vim_tiny_ade20k_60k.toml -o upernet.safetensors

Reads PyTorch's archives (.pth, .pt) and safetensors, and executes nothing in them. Strict: every key
that is missing, unknown or of another shape is listed, and nothing is written. docs/checkpoints.md.";

/// Read a checkpoint of PyTorch: check it, say what it is, keep it in this program's format.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImportArgs {
    /// The file: .pth, .pt or .safetensors.
    file: PathBuf,
    /// Where to write it as safetensors under this program's names; left out: check only.
    #[arg(short, long, value_name = "FILE.safetensors")]
    output: Option<PathBuf>,
    /// Configuration whose `[model]`, `[ssm]`, `[segmentation]` and `[detection]` it must fit; left
    /// out: as recorded in the file, or from a classifier's or a detector's shapes.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// Named model that it must fit: a size, or the original's name (`vim-train models`).
    #[arg(long, value_name = "NAME", conflicts_with = "config", value_parser = known_model)]
    preset: Option<String>,
    /// Classes of the model; left out: those of the file's head.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    classes: Option<u32>,
    #[command(flatten)]
    take: TakeArgs,
    /// Write over the output if it is there.
    #[arg(long)]
    force: bool,
    /// Print what was read as JSON.
    #[arg(long)]
    json: bool,
}

/// What to take from a checkpoint, and what may be amiss with it.
#[derive(Debug, Default, Args)]
pub(crate) struct TakeArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Let a part be otherwise than the weights record it, which is then said; or the head missing
    /// or of other classes: the model keeps its initial one (seed 0).
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',')]
    allow: Vec<Part>,
    /// Let any parameter be missing; the model keeps its initial one (seed 0).
    #[arg(long)]
    allow_missing: bool,
    /// Resize positions of another grid; left out, another grid is an error.
    #[arg(long, value_name = "middle_aware|parity", value_parser = from_name::<Resize>)]
    pos_embed: Option<Resize>,
}

/// Whether the weights or their moving average are meant.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct WhichArgs {
    /// Take the moving average of the weights: `ema.safetensors` of a run, `model_ema` of a file.
    #[arg(long)]
    ema: bool,
    /// Take the weights themselves, also where their moving average was the best of a run.
    #[arg(long, conflicts_with = "ema")]
    no_ema: bool,
}

impl WhichArgs {
    /// The selected parameters; `None`: the best ones of a run's best checkpoint, else the weights.
    pub(crate) fn section(self) -> Option<Section> {
        match (self.ema, self.no_ema) {
            (true, _) => Some(Section::Ema),
            (false, true) => Some(Section::Model),
            (false, false) => None,
        }
    }
}

impl TakeArgs {
    pub(crate) fn section(&self) -> Option<Section> {
        self.which.section()
    }

    /// The parts that may be otherwise than recorded.
    pub(crate) fn allowed(&self) -> Vec<Part> {
        let size = self.pos_embed.map(|_| Part::Size);
        self.allow.iter().copied().chain(size).collect()
    }

    pub(crate) fn options(&self) -> LoadOptions<'static> {
        LoadOptions {
            head: self.allow.contains(&Part::Head),
            missing: self.allow_missing,
            extra: self.allow.contains(&Part::Extra),
            resize: self.pos_embed,
            ..LoadOptions::default()
        }
    }
}

/// Parses a value by its name in a configuration file.
pub(crate) fn from_name<T: serde::de::DeserializeOwned>(name: &str) -> Result<T, String> {
    T::deserialize(name.into_deserializer()).map_err(|error: ValueError| error.to_string())
}

#[derive(Serialize)]
struct ImportReport<'a> {
    file: String,
    blake3: &'a str,
    entry: Option<&'a str>,
    ignored: &'a [String],
    prefix: Option<&'a str>,
    inner: &'a [String],
    tensors: usize,
    parameters: usize,
    num_classes: usize,
    description: String,
    model: VimConfig,
    ssm: SsmConfig,
    #[serde(skip_serializing_if = "Option::is_none")]
    segmentation: Option<SegmenterConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detection: Option<DetectorConfig>,
    notes: Vec<String>,
    output: Option<String>,
}

pub(crate) fn run(args: &ImportArgs) -> Result<(), Error> {
    if let Some(output) = &args.output {
        if output.extension().is_none_or(|extension| extension != "safetensors") {
            return Err(
                OutputError::Extension { path: output.clone(), expected: ".safetensors" }.into()
            );
        }
        check_free(output, args.force)?;
    }
    let given = args.config.as_ref().map(|path| Config::load(path, &args.overrides.set));
    let given = given.transpose()?;
    let place = Place::find(&args.file, &args.overrides.run_root()?, None)?;
    if let Some(output) = &args.output {
        let read = place.inputs();
        check_no_input(
            output,
            read.iter().chain(&config_inputs(&args.config)).map(PathBuf::as_path),
        )?;
    }
    let source = WeightsSource::open(&place, args.take.section())?;
    let options = args.take.options();
    let given = match &args.preset {
        Some(name) => {
            let model = VimConfig::named(name).map_err(Error::internal)?;
            Some(Config { model, ..Config::default() })
        }
        None => given,
    };
    let taken = with_task!(task_of(&source), T => {
        take::<<T as NamedTask>::Heads>(args, &source, given.as_ref())?
    });
    let Taken { arrays, recorded, classes, origin, assumed, report, remarks } = taken;
    if let Some(output) = &args.output {
        let bytes = arrays.with_metadata(METADATA_KEY, recorded.to_toml()).to_safetensors();
        let bytes = bytes.map_err(|error| Error::internal(error.to_string()))?;
        replace(&Disk, output, &bytes).map_err(Error::io("write", output))?;
    }
    let mut notes: Vec<String> =
        source.note.iter().cloned().chain(notes(&report, options)).collect();
    notes.extend(remarks.differences.iter().map(|what| format!("not as recorded: {what}")));
    if args.json {
        return print_json(&ImportReport {
            file: source.name.clone(),
            blake3: &source.blake3,
            entry: source.arrays.entry.as_deref(),
            ignored: &source.arrays.ignored,
            prefix: source.arrays.prefix.as_deref(),
            inner: &source.arrays.inner,
            tensors: report.tensors,
            parameters: report.parameters,
            num_classes: classes,
            description: origin.to_string(),
            model: recorded.model,
            ssm: recorded.ssm,
            segmentation: recorded.segmentation,
            detection: recorded.detection,
            notes,
            output: args.output.as_ref().map(|output| output.display().to_string()),
        });
    }
    print(&format!("read     {}", source.summary()))?;
    if !source.arrays.ignored.is_empty() {
        print(&format!("ignored  {}", first(&source.arrays.ignored)))?;
    }
    for note in notes {
        print(&format!("note     {note}"))?;
    }
    print(&format!("took     {} tensors, {} parameters", report.tensors, report.parameters))?;
    // The sections that a configuration may have.
    let sections = Recorded { classes: Vec::new(), images: None, data: None, ..recorded }.to_toml();
    print(&format!("model    {classes} classes, {origin}:\n\n{sections}"))?;
    if !assumed.is_empty() {
        let assumed: Vec<String> = assumed.iter().map(ToString::to_string).collect();
        let assumed = assumed.join(", ");
        print(&format!("assumed  {assumed}: the shapes do not say; --config says otherwise"))?;
    }
    match &args.output {
        Some(output) => print(&format!("wrote    {}", output.display())),
        None => print("wrote    nothing: -o FILE.safetensors keeps it"),
    }
}

/// The first of some names, and how many more there are: a profiler leaves two in every layer.
fn first(names: &[String]) -> String {
    const SHOWN: usize = 16;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more (--json lists all)"),
    }
}

/// What is taken from a file, and what it is of.
struct Taken {
    arrays: NamedArrays,
    recorded: Recorded,
    classes: usize,
    origin: Origin,
    assumed: Vec<Assumption>,
    report: LoadReport,
    remarks: Remarks,
}

fn take<H: Heads>(
    args: &ImportArgs,
    source: &WeightsSource,
    given: Option<&Config>,
) -> Result<Taken, Error> {
    let classes = args.classes.map(|classes| classes as usize);
    let described = source.described::<H>(given, classes)?;
    let remarks = source.check_described(given, Use::Write, &args.take.allowed())?;
    let (model, report) = source.model(&described, &Device::flex(), args.take.options())?;
    let (arrays, recorded) = (NamedArrays::of(&model), source.record(&described));
    let Described { classes, origin, assumed, .. } = described;
    Ok(Taken { arrays, recorded, classes, origin, assumed, report, remarks })
}
