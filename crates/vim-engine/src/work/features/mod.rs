//! What a trained model makes of images, as arrays for NumPy.

mod labels;
pub(super) mod npz;

use std::path::{Path, PathBuf};

use burn::tensor::Tensor;
use serde_json::{Value, json};
use vim_kernels::KernelError;
use vim_model::{FeatureError, Vim};

use super::images::{ModelOptions, Walk, images};
use crate::error::{Error, Failure, code};
use crate::output::{OutputError, check_free, check_no_input, print, print_json};
use crate::task::kinds::with_task;
use crate::task::named::NamedTask;
use crate::task::replayed::Replayed;
use crate::task::trained::Subject;
use crate::weights::heads::Heads as _;
use labels::Labels;
use npz::Npz;

/// Which features of which images are written, and where.
#[derive(Debug)]
pub struct Features {
    /// Images, and folders of images.
    pub images: Vec<PathBuf>,
    /// The model that looks at them.
    pub model: ModelOptions,
    /// The file.
    pub output: PathBuf,
    /// Blocks whose features are meant, counted from 0, or from -1 backwards.
    pub layers: Vec<i64>,
    /// Whether a map of patches is meant, in place of one vector for each image.
    pub maps: bool,
    /// Write over the file if it is there.
    pub force: bool,
    /// Whether what was written is printed as JSON.
    pub json: bool,
}

/// Layers that have no features.
#[derive(Debug, thiserror::Error)]
pub(super) enum LayersError {
    #[error("--layers {layer}: the model has {depth} blocks, 0 to {} or -{depth} to -1", depth - 1)]
    Range { layer: i64, depth: usize },
    #[error("--layers: block {0} is named twice")]
    Twice(usize),
    #[error("--layers: {0}")]
    Features(FeatureError),
}

impl Failure for LayersError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Features(FeatureError::Kernel(error)) => error.exit_code(),
            Self::Range { .. } | Self::Twice(_) | Self::Features(_) => code::USAGE,
        }
    }
}

/// Writes the features, and says which.
pub fn run(asked: &Features) -> Result<(), Error> {
    check_extension(&asked.output)?;
    check_free(&asked.output, asked.force)?;
    let subject = asked.model.find()?;
    with_task!(subject.task, T => write::<T>(asked, &subject))
}

fn write<T: NamedTask>(asked: &Features, subject: &Subject) -> Result<(), Error> {
    let output = &asked.output;
    let paths = images(&asked.images)?;
    let read = asked.model.inputs(subject);
    check_no_input(output, read.iter().chain(&paths).map(PathBuf::as_path))?;
    let (described, remarks) = asked.model.describe::<T>(subject)?;
    let device = asked.model.device(subject.given.as_ref())?.device;
    // Features have no classes.
    let trained = asked.model.load::<T>(subject, &described, Vec::new(), &device)?;
    let Some((model, seer)) = T::into_features(trained) else {
        return Err(Error::usage(format!(
            "features are a classifier's, and {} is a {}",
            subject.source.name,
            T::Heads::WHAT
        )));
    };
    let layers = blocks(model.layers.len(), &asked.layers)?;
    model.check_blocks(&layers).map_err(LayersError::Features)?;
    let name = |layer: &usize| match layers.len() {
        1 => "features".to_owned(),
        _ => format!("layer_{layer}"),
    };
    let mut npz = Npz::new(output, layers.iter().map(name))?;
    let mut walk = Walk::new(paths.len(), true);
    let mut kept = Vec::new();
    let mut passes = Replayed::new(|images| pooled(&model, images, &layers));
    for paths in paths.chunks(asked.model.batch.unwrap_or(T::PREDICTED_AT_A_TIME)) {
        let pictures = seer.read(paths);
        if let Some(images) = seer.upload(&pictures)? {
            let features = match asked.maps {
                true => maps(&model, images, &layers)?,
                false => split(passes.run(images)?, layers.len()),
            };
            for (place, (shape, values)) in features.into_iter().enumerate() {
                npz.append(place, &shape[1..], &values)?;
            }
        }
        for (path, picture) in paths.iter().zip(pictures) {
            match picture {
                Ok(_) => kept.push(path),
                Err(why) => walk.leave_out(&why.to_string()),
            }
        }
        walk.advance(paths.len());
    }
    walk.hide();
    if kept.is_empty() {
        return walk.end();
    }
    let labels = Labels::of(&kept, &asked.images);
    let arrays = npz.write(&kept, &layers, labels.as_ref())?;
    if asked.json {
        let arrays = arrays.iter().map(|(name, shape)| (name.clone(), json!(shape)));
        let arrays: serde_json::Map<String, serde_json::Value> = arrays.collect();
        let mut report = json!({
            "output": output.display().to_string(),
            "checkpoint": subject.source.name,
            "images": kept.len(),
            "layers": layers,
            "arrays": arrays,
        });
        if let (Some(report), Ok(Value::Object(remarks))) =
            (report.as_object_mut(), serde_json::to_value(&remarks))
        {
            report.extend(remarks);
        }
        print_json(&report)?;
    } else {
        let arrays: Vec<String> =
            arrays.iter().map(|(name, shape)| format!("{name} {shape:?}")).collect();
        let (output, remarks) = (output.display(), remarks.suffix());
        print(&format!("wrote {output}: {}{remarks}", arrays.join(", ")))?;
    }
    walk.end()
}

fn check_extension(path: &Path) -> Result<(), Error> {
    if path.extension().is_some_and(|extension| extension == "npz") {
        return Ok(());
    }
    Err(OutputError::Extension { path: path.to_owned(), expected: ".npz" }.into())
}

/// The numbers of the blocks of `depth` that `asked` names, from the front or from the back.
pub(super) fn blocks(depth: usize, asked: &[i64]) -> Result<Vec<usize>, LayersError> {
    let mut blocks = Vec::new();
    for &layer in asked {
        let from_front = if layer < 0 { layer.checked_add(depth as i64) } else { Some(layer) };
        let block = from_front.and_then(|block| usize::try_from(block).ok());
        let block = block.filter(|&block| block < depth);
        let block = block.ok_or(LayersError::Range { layer, depth })?;
        if blocks.contains(&block) {
            return Err(LayersError::Twice(block));
        }
        blocks.push(block);
    }
    Ok(blocks)
}

/// The shape of an array, and its values.
type Array = (Vec<usize>, Vec<f32>);

/// The maps of each of `layers`, images first.
fn maps(model: &Vim, images: Tensor<4>, layers: &[usize]) -> Result<Vec<Array>, LayersError> {
    let maps = model.feature_maps(images, layers).map_err(LayersError::Features)?;
    Ok(maps.into_iter().map(array).collect())
}

/// The pooled features of `layers`, which the model has, beside each other: `[B, layers · M]`.
fn pooled(model: &Vim, images: Tensor<4>, layers: &[usize]) -> Result<Tensor<2>, KernelError> {
    match model.pooled_features(images, layers) {
        Ok(features) => Ok(Tensor::cat(features, 1)),
        Err(FeatureError::Kernel(error)) => Err(error),
        Err(error) => unreachable!("the layers were checked: {error}"),
    }
}

/// Those of each of `layers` layers.
fn split(features: Tensor<2>, layers: usize) -> Vec<Array> {
    features.chunk(layers, 1).into_iter().map(array).collect()
}

fn array<const D: usize>(features: Tensor<D>) -> Array {
    let shape = features.dims().to_vec();
    (shape, features.into_data().iter().collect())
}
