//! Models from files and into files, for `import` and `export`.

use burn::tensor::Device;
use vim_model::{Assumption, LoadOptions, LoadReport, NamedArrays};

use crate::config::{Config, Part};
use crate::error::Error;
use crate::task::kinds::{task_of, with_task};
use crate::task::named::NamedTask;
use crate::weights::heads::{Described, Heads, Original};
use crate::weights::provenance::{Remarks, Use};
use crate::weights::record::Recorded;
use crate::weights::source::{Origin, Take, WeightsSource};
use crate::work::onnx::{GraphOptions, graph};

/// What is taken from a file, and what it is of.
#[derive(Debug)]
pub struct Taken {
    /// The model's arrays.
    pub arrays: NamedArrays,
    /// What is recorded with them.
    pub recorded: Recorded,
    /// Classes of the model.
    pub classes: usize,
    /// Who says what the model is.
    pub origin: Origin,
    /// What had to be assumed of it.
    pub assumed: Vec<Assumption>,
    /// What was read.
    pub report: LoadReport,
    /// How the weights are used otherwise than they were trained.
    pub remarks: Remarks,
}

/// Takes the model in `source`, of the configuration `given` or as recorded, with `classes` or as
/// many as it has.
pub fn take(
    source: &WeightsSource,
    given: Option<&Config>,
    classes: Option<usize>,
    take: &Take,
) -> Result<Taken, Error> {
    with_task!(task_of(source), T => {
        take_as::<<T as NamedTask>::Heads>(source, given, classes, take)
    })
}

fn take_as<H: Heads>(
    source: &WeightsSource,
    given: Option<&Config>,
    classes: Option<usize>,
    take: &Take,
) -> Result<Taken, Error> {
    let described = source.described::<H>(given, classes)?;
    let remarks = source.check_described(given, Use::Write, &take.allowed)?;
    let (model, report) = source.model(&described, &Device::flex(), take.fit)?;
    let (arrays, recorded) = (NamedArrays::of(&model), source.record(&described));
    let Described { classes, origin, assumed, .. } = described;
    Ok(Taken { arrays, recorded, classes, origin, assumed, report, remarks })
}

/// What a file is to be.
#[derive(Clone, Copy, Debug)]
pub enum FileKind {
    /// An archive of PyTorch, as the original saves it.
    Archive,
    /// The same tensors in safetensors.
    Safetensors,
    /// The model as a graph of ONNX.
    Graph(GraphOptions),
}

/// A file as it is to be written, and what is in it.
#[derive(Debug)]
pub struct Exported {
    /// The file.
    pub bytes: Vec<u8>,
    /// Arrays in it.
    pub tensors: usize,
    /// Numbers in them.
    pub parameters: usize,
    /// Classes of the model.
    pub classes: usize,
    /// Who says what the model is.
    pub origin: Origin,
    /// What the arrays are called in an archive.
    pub entry: &'static str,
}

/// The model in `source`, of the configuration `given` or as recorded, as a file of `kind`.
pub fn export(
    source: &WeightsSource,
    given: Option<&Config>,
    kind: FileKind,
    allowed: &[Part],
) -> Result<Exported, Error> {
    with_task!(task_of(source), T => export_as::<T>(source, given, kind, allowed))
}

fn export_as<T: NamedTask>(
    source: &WeightsSource,
    given: Option<&Config>,
    kind: FileKind,
    allowed: &[Part],
) -> Result<Exported, Error> {
    let described = source.described::<T::Heads>(given, None)?;
    let remarks = source.check_described(given, Use::Write, allowed)?;
    for what in &remarks.differences {
        eprintln!("note: not as recorded: {what}");
    }
    let (model, _) = source.model(&described, &Device::flex(), LoadOptions::default())?;
    let record = source.record(&described);
    let (classes, origin) = (described.classes, described.origin);
    if let FileKind::Graph(asked) = kind {
        let bytes = graph::<T>((source, given), asked, &described, &model, &record)?;
        let arrays = NamedArrays::of(&model);
        let (tensors, parameters) = (arrays.iter().count(), arrays.num_elements());
        return Ok(Exported { bytes, tensors, parameters, classes, origin, entry: "" });
    }
    let Original { arrays, parameters, archive, entry } =
        T::Heads::original(&model, source, &record)?;
    let tensors = arrays.iter().count();
    let bytes = match kind {
        FileKind::Archive => archive,
        FileKind::Safetensors | FileKind::Graph(_) => arrays
            // Readers of other programs look for it.
            .with_metadata("format", "pt".to_owned())
            .to_safetensors()
            .map_err(|error| Error::internal(error.to_string()))?,
    };
    Ok(Exported { bytes, tensors, parameters, classes, origin, entry })
}
