//! Models on a backbone among weights, segmenters and detectors: what they are of.

use burn::module::Module;
use burn::tensor::Device;
use vim_model::{
    Inferred, LoadOptions, LoadReport, ModelError, NamedArrays, StateDictMismatch, VimConfig,
};
use vim_torch::StateDict;

use crate::config::Config;
use crate::error::Error;
use crate::weights::WeightsError;
use crate::weights::source::{Origin, Recorded, WeightsSource};

/// What is on a backbone.
pub trait Heads: Sized {
    /// With the backbone.
    type Model: Module;

    /// What a model is called.
    const WHAT: &'static str;
    /// The arrays that hold a number for each class, of which one is in every file.
    const CLASSES: &'static [&'static str];
    /// The key `task` of a configuration for it.
    const TASK: &'static str;

    /// Those of a configuration that is of this task.
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

    /// `model` with all of `state`.
    fn load(
        model: Self::Model,
        state: &StateDict,
    ) -> Result<(Self::Model, LoadReport), Box<StateDictMismatch>>;

    /// `model` with a classifier's `state` in its backbone.
    fn load_backbone(
        model: Self::Model,
        state: &StateDict,
        options: LoadOptions,
    ) -> Result<(Self::Model, LoadReport), Box<StateDictMismatch>>;

    /// What `model` is as a file of the original.
    fn original(model: &Self::Model, source: &WeightsSource) -> Result<Original, Error>;
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

/// What weights with heads are of.
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
    pub assumed: Option<String>,
}

impl<H: Heads> Described<H> {
    /// A model with the weights of seed 0.
    pub fn init(&self, device: &Device) -> Result<H::Model, ModelError> {
        self.heads.build(&self.backbone, self.classes, device)
    }
}

impl WeightsSource {
    /// Whether these are of a model with such heads, under this program's names or the original's.
    pub fn has<H: Heads>(&self) -> bool {
        H::CLASSES.iter().any(|name| self.arrays.state.array(name).is_some())
    }

    /// What is `given`, else recorded, else told by the shapes.
    pub fn described<H: Heads>(&self, given: Option<&Config>) -> Result<Described<H>, Error> {
        let what = H::WHAT;
        if !self.has::<H>() {
            return Err(self.unrecognised(format!("is no {what}: it has no `{}`", H::CLASSES[0])));
        }
        let Some(classes) = self.num_classes() else {
            return Err(self.unrecognised(format!("is a {what} without classes")));
        };
        let described = |heads, backbone, origin, assumed| Described {
            heads,
            backbone,
            classes,
            origin,
            assumed,
        };
        if let Some(given) = given {
            let Some(heads) = H::of_config(given) else {
                return Err(self.unrecognised(format!(
                    "is a {what}, and the configuration is of another task: give one with task = \
                     \"{}\"",
                    H::TASK
                )));
            };
            return Ok(described(heads, given.model.clone(), Origin::Given, None));
        }
        if let Some(recorded) = &self.recorded
            && let Some(heads) = H::of_record(recorded)
        {
            return Ok(described(heads, recorded.vim(), Origin::Recorded, None));
        }
        let (heads, Inferred { config, assumed }) = H::of_shapes(&self.arrays.state)
            .map_err(|why| self.unrecognised(format!("is a {what}, and {why}")))?;
        Ok(described(heads, config, Origin::Inferred, Some(assumed)))
    }

    /// `model` with these weights; [`WeightsError::Mismatch`] lists every difference.
    pub fn load_all<H: Heads>(&self, model: H::Model) -> Result<(H::Model, LoadReport), Error> {
        H::load(model, &self.arrays.state).map_err(|mismatch| self.unfit(mismatch))
    }

    /// `model` with these weights of a classifier in its backbone; as [`Self::load_all`].
    pub fn load_backbone<H: Heads>(
        &self,
        model: H::Model,
        options: LoadOptions,
    ) -> Result<(H::Model, LoadReport), Error> {
        let loaded = H::load_backbone(model, &self.arrays.state, options);
        loaded.map_err(|mismatch| self.unfit(mismatch))
    }

    /// [`WeightsError::Mismatch`].
    fn unfit(&self, mismatch: Box<StateDictMismatch>) -> Error {
        WeightsError::Mismatch { checkpoint: self.name.clone(), mismatch }.into()
    }

    /// [`WeightsError::Unrecognised`].
    fn unrecognised(&self, why: String) -> Error {
        WeightsError::Unrecognised { checkpoint: self.name.clone(), why }.into()
    }

    /// [`WeightsError::NoCounterpart`] of the parameter at `path`.
    pub fn no_counterpart(&self, path: String) -> Error {
        WeightsError::NoCounterpart { checkpoint: self.name.clone(), path }.into()
    }
}
