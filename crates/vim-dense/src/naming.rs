//! Weights of models on a backbone: both namings, and a classifier's.

use burn::module::Module;
use vim_model::{
    LoadOptions, LoadReport, NamedArrays, Names, Naming, StateDictMismatch, Vim, VimConfig,
    load_named,
};
use vim_torch::StateDict;

/// The backbone's names begin with it here.
const BACKBONE: &str = "backbone.";

/// What the original calls the parameters and running statistics of a kind of model on a backbone.
pub(crate) struct DenseNaming {
    /// Begins names that this program alone has.
    pub(crate) ours: &'static str,
    /// Begins the backbone's names in the original.
    pub(crate) backbone: &'static str,
    /// The original's name of the one at a path.
    pub(crate) key: fn(&str) -> String,
    /// Whether a key of the original counts something, and so is not read.
    pub(crate) is_count: fn(&str) -> bool,
    /// Whether a key is of a parameter that the original deletes.
    pub(crate) is_absent: fn(&str) -> bool,
    /// Whether the parameter at a path here has a number for each class.
    pub(crate) is_head: fn(&str) -> bool,
    /// The path here of the parameter that tells the number of classes, and how many more numbers
    /// it has.
    pub(crate) classes: (&'static str, usize),
    /// Whether a key, of either naming, is of a part that the model was built without.
    pub(crate) is_unused: fn(&str) -> bool,
}

impl DenseNaming {
    /// `model`, on a backbone of `config`, with every one of `state`, which is under either naming.
    pub(crate) fn load<M: Module>(
        &self,
        model: M,
        config: &VimConfig,
        state: &StateDict,
        options: LoadOptions<'_>,
    ) -> Result<(M, LoadReport), Box<StateDictMismatch>> {
        let is_ours = state.iter().any(|(key, _)| key.starts_with(self.ours));
        let rope = format!("{}rope.", self.backbone);
        let is_computed = |key: &str| (self.is_count)(key) || key.starts_with(&rope);
        let parts = Naming {
            backbone: BACKBONE,
            head: &self.is_head,
            classes: self.classes,
            unused: &self.is_unused,
            ..Naming::OURS
        };
        let naming = match is_ours {
            true => parts,
            false => Naming {
                names: Names::Pytorch,
                key: &self.key,
                computed: &is_computed,
                absent: &self.is_absent,
                ..parts
            },
        };
        load_named(model, state, &naming, options, Some(config))
    }

    /// All of `model`, which is on `backbone`, in the order of the modules; the original's with its
    /// tables of rotary positions. Fails with the path of the first that the original lacks.
    pub(crate) fn state<M: Module>(
        &self,
        model: &M,
        backbone: &Vim,
        names: Names,
    ) -> Result<NamedArrays, String> {
        match names {
            Names::Ours => Ok(NamedArrays::of(model)),
            Names::Pytorch => {
                backbone.state(Names::Pytorch).map_err(|path| format!("{BACKBONE}{path}"))?;
                let arrays = NamedArrays::renamed(model, self.key);
                let arrays = arrays.filtered(|key| !(self.is_absent)(key));
                Ok(arrays.with_rope(backbone.config(), self.backbone))
            }
        }
    }
}

/// Weights in and out of a model on a backbone, under the naming that a function of it tells.
macro_rules! weights_by_name {
    ($model:ty, $naming:path) => {
        impl $model {
            /// Takes every parameter and running statistic from `state`, under this program's names
            /// or the original's. What the original deletes keeps its initial values.
            ///
            /// # Errors
            ///
            /// [`StateDictMismatch`](vim_model::StateDictMismatch) lists every difference that
            /// `options` does not allow.
            pub fn load(
                self,
                state: &vim_torch::StateDict,
                options: vim_model::LoadOptions<'_>,
            ) -> Result<(Self, vim_model::LoadReport), Box<vim_model::StateDictMismatch>> {
                let (naming, config) = ($naming(&self), self.backbone_config().clone());
                naming.load(self, &config, state, options)
            }

            /// Takes the backbone's parameters from `state`, which is of a classifier.
            ///
            /// `options.head` must allow that its head is left out; `options.class_token` says
            /// where its class token stands, if it has one, and `options.resize` how positions are
            /// cut and resized.
            ///
            /// # Errors
            ///
            /// [`StateDictMismatch`](vim_model::StateDictMismatch) lists every difference that
            /// `options` does not allow.
            pub fn load_backbone(
                mut self,
                state: &vim_torch::StateDict,
                options: vim_model::LoadOptions<'_>,
            ) -> Result<(Self, vim_model::LoadReport), Box<vim_model::StateDictMismatch>> {
                let (backbone, report) = self.backbone.clone().load(state, options)?;
                self.backbone = backbone;
                Ok((self, report))
            }

            /// Every parameter and running statistic under the names of `names`, in the order of
            /// the modules. The original's names are without what it deletes, and include its
            /// tables of rotary positions.
            ///
            /// # Errors
            ///
            /// The path of the first parameter that the original has no counterpart of.
            pub fn state(&self, names: vim_model::Names) -> Result<vim_model::NamedArrays, String> {
                $naming(self).state(self, &self.backbone, names)
            }
        }
    };
}
pub(crate) use weights_by_name;
