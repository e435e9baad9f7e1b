//! The configuration: extended TOML files, the file over them, and `--set` over both.
//!
//! Each section's struct belongs to its consumer and is embedded here. The structs' `Default` is
//! the only place of defaults; the presets of `[model]` and `[augment]` are layers under the files.
//! [`Config::load`] resolves and checks every value once.

mod check;
mod compared;
mod embedded;
mod error;
mod load;
mod paths;
mod print;
mod schema;
mod sections;
mod task;
mod values;
mod versions;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vim_data::{DataConfig, DenseRecipe, ObjectRecipe, Recipe};
use vim_dense::SegmenterConfig;
use vim_dense::detection::DetectorConfig;
use vim_model::{SsmConfig, VimConfig};
use vim_slurm::SlurmConfig;
use vim_sweep::SweepConfig;

pub use compared::Part;
pub(crate) use compared::{is_of_backbone, part};
pub use embedded::{embedded, is_embedded};
pub use error::{ConfigError, Origin, Problem, nearest};
pub use load::{Loaded, config_inputs};
pub(crate) use paths::RecordedPaths;
pub(crate) use print::dotted;
pub use print::{dotted_values, in_toml, reference};
pub(crate) use schema::keys;
pub use schema::{check_key, key_named, schema};
pub use sections::{
    Backend, CheckpointConfig, DevicesConfig, EmaStatistics, GraphChoice, InitHead, LogConfig,
    LossKind, NonFinite, OptimConfig, Optimizer, RecomputeChoice, RunConfig, ScheduleKind,
    TrainConfig,
};
pub use task::TaskKind;
pub use values::{BatchSize, Extends, Gpus, Interval, IntervalError, ResultsPage, Version};
pub use versions::{OLDEST, VERSION};
pub(crate) use versions::{canonical, meant_version, upgrade};

/// A whole configuration file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Version of this file, the newest where it is left out: a file of an older one means what it
    /// meant to the vim-train of its time. docs/config.md says what each changed.
    pub version: Version,
    /// A file, or a list of files, whose keys stand below this file's, by names relative to it:
    /// sections are merged, of several the later counts. A run records what comes out, and not
    /// this.
    #[serde(skip_serializing)]
    pub extends: Extends,
    /// What is learned: `classification`, a class for each image, as where it is left out,
    /// `segmentation`, a class for each pixel, or `detection`, a class, a box and a mask for each
    /// object.
    #[serde(skip_serializing_if = "TaskKind::is_default")]
    pub task: TaskKind,
    /// Name, place and seed of the run.
    pub run: RunConfig,
    /// The model: a named size and what differs from it.
    pub model: VimConfig,
    /// Numerics of the state-space layer.
    // As written; code reads `model.ssm`, which loading copies from here.
    pub(crate) ssm: SsmConfig,
    /// The images.
    pub data: DataConfig,
    /// What is done to training images, and in which order they come. Of classification alone.
    pub augment: Recipe,
    /// With `task = "segmentation"`: the heads on the backbone, which `[model]` describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segmentation: Option<SegmenterConfig>,
    /// With `task = "segmentation"`: what is done to pairs of an image and a label map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairs: Option<DenseRecipe>,
    /// With `task = "detection"`: the detector on the backbone, which `[model]` describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detection: Option<DetectorConfig>,
    /// With `task = "detection"`: what is done to images with objects, large-scale jitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<ObjectRecipe>,
    /// The loop.
    pub train: TrainConfig,
    /// The optimizer and its schedule.
    pub optim: OptimConfig,
    /// When to save, and what to keep.
    pub checkpoint: CheckpointConfig,
    /// What to compute on.
    pub devices: DevicesConfig,
    /// What to report.
    pub log: LogConfig,
    /// The job on a cluster.
    pub slurm: SlurmConfig,
    /// With this section, the file describes many runs: `vim-train sweep`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<SweepConfig>,
    /// Paths as they were given, by their keys, where variables or the home folder stood in them.
    #[serde(skip)]
    pub(crate) given: BTreeMap<String, String>,
}

impl Config {
    /// The configuration as a run records it: every key of `[model]` and `[augment]` that has an
    /// effect is set.
    pub fn effective(&self) -> Self {
        let (model, augment) = (self.model.effective(), self.augment.effective());
        let data = self.data.effective();
        let augment = Recipe { fill: data.effective_fill(&augment), ..augment };
        // Only segmenters have batch normalization.
        let is_averaged = self.task == TaskKind::Segmentation && self.train.ema.is_some();
        let ema_statistics = is_averaged.then(|| self.train.ema_statistics.unwrap_or_default());
        let train = TrainConfig { ema_statistics, ..self.train.clone() };
        let own = Self { model, augment, data, train, ..self.clone() };
        match self.task {
            TaskKind::Classification => own,
            TaskKind::Segmentation => {
                let segmentation = Some(self.segmenter().effective(&own.model));
                Self { segmentation, pairs: Some(self.pairs()), ..own }
            }
            TaskKind::Detection => {
                let (detection, objects) = (Some(self.detector()), Some(self.objects()));
                Self { detection, objects, ..own }
            }
        }
    }

    /// `[segmentation]` and `[detection]`: the one that its task has.
    pub fn heads(&self) -> (Option<SegmenterConfig>, Option<DetectorConfig>) {
        match self.task {
            TaskKind::Classification => (None, None),
            TaskKind::Segmentation => (Some(self.segmenter()), None),
            TaskKind::Detection => (None, Some(self.detector())),
        }
    }

    /// This configuration with `[segmentation]` or `[detection]`, of which one is there at most,
    /// and the task that has it: the reverse of [`Self::heads`].
    pub(crate) fn with_heads(
        self,
        segmentation: Option<SegmenterConfig>,
        detection: Option<DetectorConfig>,
    ) -> Self {
        let task = match (&segmentation, &detection) {
            (Some(_), _) => TaskKind::Segmentation,
            (None, Some(_)) => TaskKind::Detection,
            (None, None) => TaskKind::Classification,
        };
        Self { task, segmentation, detection, ..self }
    }

    /// The files and folders that hold the data, none of which an output may replace. A folder that
    /// archives of a fixed name are looked for in may hold anything else.
    pub fn data_inputs(&self) -> Vec<PathBuf> {
        let DataConfig { dataset, path, val_path, val_labels, classes, .. } = &self.data;
        let DataConfig { train_images, train_annotations, .. } = &self.data;
        let DataConfig { val_images, val_annotations, .. } = &self.data;
        let is_all_data = dataset.has_image_files() || dataset.has_pairs() || dataset.has_objects();
        let of_objects = [train_images, train_annotations, val_images, val_annotations];
        let named = [path, val_path, val_labels, classes].into_iter().chain(of_objects).flatten();
        named.filter(|path| is_all_data || path.is_file()).cloned().collect()
    }

    /// `[data]` as its images are opened: with masks of objects, or boxes alone, as the task learns
    /// them.
    pub fn opened_data(&self) -> DataConfig {
        let masks = (self.task == TaskKind::Detection).then(|| self.detector().masks);
        DataConfig { masks, ..self.data.clone() }
    }

    /// The task whose targets `data show` draws: detection with `objects`, and for data that have
    /// nothing else.
    pub fn shown_task(&self, objects: bool) -> TaskKind {
        if objects || self.data.dataset.has_objects() { TaskKind::Detection } else { self.task }
    }

    /// `[segmentation]`, where it is left out the default.
    pub fn segmenter(&self) -> SegmenterConfig {
        self.segmentation.clone().unwrap_or_default()
    }

    /// `[pairs]`, where it is left out the default.
    pub fn pairs(&self) -> DenseRecipe {
        self.pairs.unwrap_or_default()
    }

    /// `[detection]`, where it is left out the default.
    pub fn detector(&self) -> DetectorConfig {
        self.detection.clone().unwrap_or_default()
    }

    /// `[objects]`, where it is left out the default.
    pub fn objects(&self) -> ObjectRecipe {
        self.objects.unwrap_or_default()
    }

    /// The run's name: `run.name` with every `{key}` replaced by that key's value.
    pub fn run_name(&self) -> Result<String, ConfigError> {
        let name = self.filled("run.name", &self.run.name)?;
        let is_name = is_inside(&name) && !name.contains('{');
        let wrong = |name| ConfigError::new("run.name", Problem::FolderName(name));
        if is_name { Ok(name) } else { Err(wrong(name)) }
    }

    /// Replaces every `{key}` in `train.init` by that key's value.
    pub(crate) fn fill_init(&mut self) -> Result<(), ConfigError> {
        if let Some(template) = self.train.init.as_deref().and_then(Path::to_str) {
            self.train.init = Some(self.filled("train.init", template)?.into());
        }
        Ok(())
    }

    /// `template`, the value of `of`, with every `{key}` replaced by that key's value.
    fn filled(&self, of: &str, template: &str) -> Result<String, ConfigError> {
        let values = dotted_values(&self.effective());
        let (mut text, mut rest) = (String::new(), template);
        while let Some((before, (key, after))) =
            rest.split_once('{').and_then(|(before, after)| Some((before, after.split_once('}')?)))
        {
            let Some(value) = values.get(key) else {
                let known: Vec<String> = values.keys().cloned().collect();
                let problem =
                    Problem::Placeholder { name: key.to_owned(), nearest: nearest(key, &known) };
                return Err(ConfigError::new(of, problem));
            };
            text.push_str(before);
            match value.as_str() {
                Some(value) => text.push_str(value),
                None => text.push_str(&value.to_string()),
            }
            rest = after;
        }
        Ok(text + rest)
    }

    /// The run's folder: `run.root`/`run.name`.
    pub fn run_folder(&self) -> Result<PathBuf, ConfigError> {
        Ok(self.run.root.join(self.run_name()?))
    }
}

/// Whether `name` stays strictly below the folder that it is joined to.
fn is_inside(name: &str) -> bool {
    let plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    let is_home = Path::new(name).starts_with("~");
    plain && !is_home && !name.trim().is_empty() && !name.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(template: &str) -> Result<String, ConfigError> {
        let mut config = Config::default();
        config.run.name = template.into();
        config.run_name()
    }

    #[test]
    fn placeholders_take_any_key() {
        assert_eq!(Config::default().run_name().unwrap(), "zoh-s0");
        assert_eq!(name("{model.d_model}x{model.depth}-{optim.lr}").unwrap(), "192x24-0.001");
        assert_eq!(name("sweep/{checkpoint.every}").unwrap(), "sweep/1ep");
    }

    #[test]
    fn unknown_placeholders_are_named() {
        let error = name("{run.sed}").unwrap_err().to_string();
        assert!(error.contains("`run.sed`") && error.contains("`run.seed`"), "{error}");
        assert!(name("{train.clip_grad}").is_err(), "a key that is not set has no value");
    }

    #[test]
    fn weights_to_start_from_may_be_of_each_run() {
        let init = |template: &str| {
            let mut config = Config::default();
            config.train.init = Some(template.into());
            config.fill_init().map(|()| config.train.init.unwrap())
        };
        let filled = init("runs/{model.discretization}-s0/checkpoints/best").unwrap();
        assert_eq!(filled, Path::new("runs/zoh-s0/checkpoints/best"));
        assert_eq!(init("a{b").unwrap(), Path::new("a{b"));
        let error = init("runs/{model.discretisation}").unwrap_err().to_string();
        let said = ["train.init", "`model.discretisation`", "`model.discretization`"];
        assert!(said.iter().all(|part| error.contains(part)), "{error}");
    }

    #[test]
    fn a_run_stays_inside_its_root() {
        for template in ["", " ", "..", "../x", "/x", "x/../../y", "x{", "a\nb", ".", "~", "~/x"] {
            assert!(name(template).is_err(), "{template:?}");
        }
    }
}
