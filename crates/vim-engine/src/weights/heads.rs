//! Weights of the model of any task: what they are of, and into a model.

use burn::module::Module;
use burn::tensor::Device;
use vim_model::{
    Assumption, Inferred, LoadOptions, LoadReport, ModelError, NamedArrays, StateDictMismatch,
    VimConfig,
};
use vim_torch::StateDict;

use crate::config::{Config, TaskKind};
use crate::error::Error;
use crate::weights::WeightsError;
use crate::weights::record::Recorded;
use crate::weights::source::{Origin, WeightsSource};

/// A graph of ONNX, and the logits of its probe in the order of its output.
pub type Probed = (vim_onnx::Graph, Vec<f32>);

/// What a task's models have on their backbone.
pub trait Heads: Sized {
    /// With the backbone.
    type Model: Module;

    /// What a model is called.
    const WHAT: &'static str;
    /// The arrays that hold a number for each class, and how many more, of which one is in every
    /// file, under this program's name or the original's.
    const CLASSES: &'static [(&'static str, usize)];
    /// The task.
    const TASK: TaskKind;

    /// Those of a configuration that may be of this task.
    fn of_config(config: &Config) -> Option<Self>;

    /// Those that are recorded with weights.
    fn of_record(recorded: &Recorded) -> Option<Self>;

    /// Those that `state` is of, and their backbone, as far as shapes tell. `Err` says what they do
    /// not tell, and what to do.
    fn of_shapes(state: &StateDict) -> Result<(Self, Inferred), String>;

    /// The sections that describe them on `backbone`.
    fn record(&self, backbone: &VimConfig) -> Recorded;

    /// A model with the weights of seed 0.
    fn build(
        &self,
        backbone: &VimConfig,
        classes: usize,
        device: &Device,
    ) -> Result<Self::Model, ModelError>;

    /// `model` with all of `state`, but for what `options` allows.
    fn load(
        model: Self::Model,
        state: &StateDict,
        options: LoadOptions,
    ) -> Result<(Self::Model, LoadReport), Box<StateDictMismatch>>;

    /// `model` with a classifier's `state` in its backbone.
    fn load_backbone(
        model: Self::Model,
        state: &StateDict,
        options: LoadOptions,
    ) -> Result<(Self::Model, LoadReport), Box<StateDictMismatch>>;

    /// What `model` is as a file of the original, with the text of `record` beside its arrays.
    fn original(
        model: &Self::Model,
        source: &WeightsSource,
        record: &Recorded,
    ) -> Result<Original, Error>;

    /// What `model` is as a graph of ONNX.
    fn graph(
        model: &Self::Model,
        source: &WeightsSource,
        options: &vim_onnx::Options,
    ) -> Result<Probed, Error>;
}

/// A model under the original's names.
#[derive(Debug)]
pub struct Original {
    /// Its arrays.
    pub arrays: NamedArrays,
    /// Numbers in its parameters.
    pub parameters: usize,
    /// The bytes of an archive of PyTorch.
    pub archive: Vec<u8>,
    /// What the arrays are called in there.
    pub entry: &'static str,
}

/// What weights are of.
#[derive(Clone, Debug)]
pub struct Described<H> {
    /// The heads.
    pub heads: H,
    /// What they are on.
    pub backbone: VimConfig,
    /// Classes.
    pub classes: usize,
    /// Who says so.
    pub origin: Origin,
    /// What the shapes do not tell, where they are what says so.
    pub assumed: Vec<Assumption>,
}

/// The name of a parameter that every backbone has.
pub const PATCHES: &str = "patch_embed.proj.weight";

/// Says which prefix stands in front of `name` in `state`, where one does that stays, why it stays,
/// and what to do.
pub fn in_the_way(state: &StateDict, name: &str) -> Option<String> {
    const SHOWN: usize = 3;
    let (prefix, others) = state.prefix_before(name)?;
    let shown = |text: &str| text.escape_debug().to_string();
    let prefix = shown(prefix);
    let names: Vec<String> = others.iter().take(SHOWN).map(|other| shown(other)).collect();
    let names = names.join(", ");
    let why = match others.len() {
        0 => "is of no wrapper that is known (docs/checkpoints.md)".to_owned(),
        1 => format!("stays, as one tensor is without it: {names}"),
        count if count <= SHOWN => format!("stays, as {count} tensors are without it: {names}"),
        count => {
            let more = count - SHOWN;
            format!("stays, as {count} tensors are without it: {names} and {more} more")
        }
    };
    Some(format!(
        "has `{prefix}{name}`, and the prefix `{prefix}` {why}; save the model alone, without it, in \
         Python: torch.save({{k.removeprefix('{prefix}'): v for k, v in state_dict.items() if \
         k.startswith('{prefix}')}}, 'new.pth')"
    ))
}

impl WeightsSource {
    /// Whether these are of a model with such heads, under this program's names or the original's.
    pub fn has<H: Heads>(&self) -> bool {
        self.num_classes::<H>().is_some()
    }

    /// Classes of the heads, if there are any.
    pub fn num_classes<H: Heads>(&self) -> Option<usize> {
        let count = |&(name, more): &(&str, usize)| {
            self.arrays.state.array(name)?.values.len().checked_sub(more)
        };
        H::CLASSES.iter().find_map(count)
    }

    /// What is `given`, else recorded, else told by the shapes. `classes` replaces the number of
    /// the weights' head.
    pub fn described<H: Heads>(
        &self,
        given: Option<&Config>,
        classes: Option<usize>,
    ) -> Result<Described<H>, Error> {
        let what = H::WHAT;
        let (heads, backbone, origin, assumed) = if let Some(given) = given {
            let heads = H::of_config(given).ok_or_else(|| {
                self.unrecognised(format!(
                    "is a {what}, and what is given is of another task: give a configuration with \
                     task = \"{}\"",
                    H::TASK
                ))
            })?;
            (heads, given.model.clone(), Origin::Given, Vec::new())
        } else if let Some(recorded) = &self.recorded
            && let Some(heads) = H::of_record(recorded)
        {
            (heads, recorded.vim(), Origin::Recorded, Vec::new())
        } else {
            let (heads, Inferred { config, assumed }) =
                H::of_shapes(&self.arrays.state).map_err(|why| self.unrecognised(why))?;
            (heads, config, Origin::Inferred, assumed)
        };
        let Some(classes) = classes.or_else(|| self.num_classes::<H>()) else {
            let hidden = |(name, _): &(&str, usize)| in_the_way(&self.arrays.state, name);
            let why = H::CLASSES.iter().find_map(hidden).unwrap_or_else(|| {
                "has no head that says how many classes there are: give --classes".to_owned()
            });
            return Err(self.unrecognised(why));
        };
        Ok(Described { heads, backbone, classes, origin, assumed })
    }

    /// What a file with the model of `described` records: that model, and of the classes and images
    /// what is recorded with these weights.
    pub fn record<H: Heads>(&self, described: &Described<H>) -> Recorded {
        let Described { heads, backbone, classes, .. } = described;
        let names = if self.classes.len() == *classes { &self.classes[..] } else { &[] };
        let (images, data) = match &self.recorded {
            Some(recorded) => (recorded.images, recorded.data.clone()),
            None => (None, None),
        };
        Recorded { classes: names.to_vec(), images, data, ..heads.record(backbone) }
    }

    /// The model of `described` with these weights.
    pub fn model<H: Heads>(
        &self,
        described: &Described<H>,
        device: &Device,
        options: LoadOptions,
    ) -> Result<(H::Model, LoadReport), Error> {
        let Described { heads, backbone, classes, origin, .. } = described;
        let built = heads.build(backbone, *classes, device);
        let model = built.map_err(|error: ModelError| match origin {
            Origin::Given => Error::from(error),
            Origin::Recorded | Origin::Inferred => {
                self.unrecognised(format!("is of a model that cannot be built: {error}"))
            }
        })?;
        self.load::<H>(model, options)
    }

    /// `model` with these weights, whose grid of positions is the recorded one;
    /// [`WeightsError::Mismatch`] lists every difference that `options` does not allow.
    pub fn load<H: Heads>(
        &self,
        model: H::Model,
        options: LoadOptions,
    ) -> Result<(H::Model, LoadReport), Error> {
        let options = LoadOptions { grid: self.grid(), ..options };
        H::load(model, &self.arrays.state, options).map_err(|mismatch| self.unfit(mismatch))
    }

    /// `model` with these weights of a classifier in its backbone; as [`Self::load`].
    pub fn load_backbone<H: Heads>(
        &self,
        model: H::Model,
        options: LoadOptions,
    ) -> Result<(H::Model, LoadReport), Error> {
        let options = LoadOptions { grid: self.grid(), ..options };
        let loaded = H::load_backbone(model, &self.arrays.state, options);
        loaded.map_err(|mismatch| self.unfit(mismatch))
    }

    /// [`WeightsError::Mismatch`], or what is in front of all names that are missing.
    fn unfit(&self, mismatch: Box<StateDictMismatch>) -> Error {
        let mut missing = mismatch.missing.iter().map(|(name, _)| name);
        if let Some(name) = missing.find(|name| name.ends_with(PATCHES))
            && let Some(why) = in_the_way(&self.arrays.state, name)
        {
            return self.unrecognised(why);
        }
        WeightsError::Mismatch { checkpoint: self.name.clone(), mismatch }.into()
    }

    /// [`WeightsError::Unrecognised`].
    pub fn unrecognised(&self, why: String) -> Error {
        WeightsError::Unrecognised { checkpoint: self.name.clone(), why }.into()
    }

    /// [`WeightsError::NoCounterpart`] of the parameter at `path`.
    pub fn no_counterpart(&self, path: String) -> Error {
        WeightsError::NoCounterpart { checkpoint: self.name.clone(), path }.into()
    }
}
