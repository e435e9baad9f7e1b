//! Weights with everything that they were trained with: what `load` opens, and what `predict` and
//! `features` look at images with.

use std::path::Path;

use burn::tensor::Device;
use vim_model::{LoadOptions, LoadReport};
pub use vim_run::checkpoint::Weights;
use vim_torch::Section;

use super::classes::class_names;
pub use super::classification::TrainedClassifier;
pub use super::detection::TrainedDetector;
use super::kinds::{task_of, with_task};
use super::named::{NamedTask, Settings};
pub use super::segmentation::{PixelClasses, TrainedSegmenter};
use crate::config::{Config, Part, TaskKind};
use crate::error::Error;
use crate::weights::WeightsError;
use crate::weights::heads::{Described, Heads};
use crate::weights::place::Place;
use crate::weights::provenance::{Remarks, Use};
use crate::weights::record::Recorded;
use crate::weights::source::{Origin, WeightsSource, notes};

/// A trained model, and all that is known of it.
#[derive(Debug)]
pub struct Trained {
    /// The model, the names of its classes, and how it is shown images.
    pub model: TrainedModel,
    /// What the weights record: the configuration of the model and its heads, the names of the
    /// classes, the normalization, and which images were held out. Without a record it is what
    /// [`Self::origin`] says of the model, and nothing of images.
    pub record: Recorded,
    /// Who says what the model is.
    pub origin: Origin,
    /// What had to be assumed of weights that do not record it; how they are used otherwise than
    /// they were trained, as [`Load::allow`] has it. Empty for weights of this program.
    pub remarks: Remarks,
    /// What else is to be known: which checkpoint of a run this is where it has no best one, and
    /// what [`Load::fit`] allowed. `predict` prints these lines on stderr.
    pub notes: Vec<String>,
    /// The file or checkpoint, in words.
    pub name: String,
    /// Whether these are the weights or their moving average.
    pub weights: Weights,
    /// The training step of a checkpoint.
    pub step: Option<u64>,
    /// BLAKE3 of the file of weights, in hexadecimal.
    pub blake3: String,
}

/// A trained model of any task.
#[derive(Debug)]
pub enum TrainedModel {
    /// Of classes of images.
    Classifier(Box<TrainedClassifier>),
    /// Of classes of pixels.
    Segmenter(Box<TrainedSegmenter>),
    /// Of objects.
    Detector(Box<TrainedDetector>),
}

/// Loads the weights at `path`, with everything they were trained with, onto the CPU.
///
/// `path` is a run's folder (its best checkpoint, else its last, with a note), its name in the
/// default `run.root`, `RUN/checkpoints/best` or `last`, the folder of a checkpoint, an exported
/// file, or a `.pth`, `.pt` or `.safetensors` of others: whatever `vim-train predict` takes, and
/// the model answers as that does. [`Load`] has a device and what may be otherwise.
///
/// ```no_run
/// let trained = vim_engine::load("data/runs/photos")?;
/// let guesses = trained.classifier()?.classify("cat.jpg")?;
/// for guess in guesses.likeliest(1) {
///     println!("{} {:.1} %", guess.name, 100.0 * guess.probability);
/// }
/// # Ok::<(), vim_engine::Error>(())
/// ```
///
/// # Errors
///
/// [`WeightsError`], by [`Error::downcast_ref`]: nothing is there, it cannot be read, or it does
/// not fit the model. [`Error::details`] lists what does not fit.
pub fn load(path: impl AsRef<Path>) -> Result<Trained, Error> {
    Load::default().open(path)
}

/// How weights are loaded; by default as `vim-train predict` does without flags, onto the CPU.
///
/// ```no_run
/// use vim_engine::Load;
/// use vim_engine::burn::tensor::Device;
/// use vim_engine::config::Config;
///
/// // The original's weights record nothing: a configuration says what they are.
/// let config = Config::load("configs/vim_tiny_imagenet.toml".as_ref(), &[])?;
/// let load = Load { config: Some(config), device: Device::flex(), ..Load::default() };
/// let trained = load.open("vim_t_midclstok_76p1acc.pth")?;
/// assert_eq!(trained.classifier()?.size(), [224, 224]);
/// # Ok::<(), vim_engine::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Load {
    /// What the model computes on, without autodiff. A GPU is found, with what it needs, by
    /// [`choose_named`](crate::device::choose_named).
    pub device: Device,
    /// The weights or their moving average. `None`: the better of the two for a run's best
    /// checkpoint, and the weights otherwise.
    pub section: Option<Section>,
    /// What the model is and how it is shown images, over what is recorded with the weights, which
    /// it must not contradict. `None`: as recorded, else as the shapes say.
    pub config: Option<Config>,
    /// The parts in which [`Self::config`] may contradict what is recorded.
    pub allow: Vec<Part>,
    /// How weights may differ from the model: the head, missing parameters, the grid of positions.
    pub fit: LoadOptions<'static>,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            device: Device::flex(),
            section: None,
            config: None,
            allow: Vec::new(),
            fit: LoadOptions::default(),
        }
    }
}

impl Load {
    /// Loads the weights at `path`, as [`load`] does.
    ///
    /// # Errors
    ///
    /// As [`load`]; [`WeightsError::NotAsTrained`] where [`Self::config`] contradicts the record.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Trained, Error> {
        let root = match &self.config {
            Some(config) => config.run.root.clone(),
            None => Config::run_root(&[])?,
        };
        let subject = Subject::find(path.as_ref(), &root, self.section, self.config.clone())?;
        with_task!(subject.task, T => {
            let (described, mut remarks) = subject.described::<T>(&self.allow)?;
            let classes = subject.class_names::<T>(None, &described, &mut remarks)?;
            let (model, report) =
                subject.trained::<T>(&described, classes, &self.device, self.fit)?;
            let record = subject.source.record(&described);
            let of = (described.origin, remarks);
            Ok(subject.into_trained(model.into(), record, of, notes(&report, self.fit)))
        })
    }
}

impl Trained {
    /// The classifier.
    ///
    /// # Errors
    ///
    /// [`WeightsError::OtherTask`].
    pub fn classifier(&self) -> Result<&TrainedClassifier, Error> {
        match &self.model {
            TrainedModel::Classifier(model) => Ok(model),
            TrainedModel::Segmenter(_) | TrainedModel::Detector(_) => Err(self.other("classifier")),
        }
    }

    /// The segmenter.
    ///
    /// # Errors
    ///
    /// [`WeightsError::OtherTask`].
    pub fn segmenter(&self) -> Result<&TrainedSegmenter, Error> {
        match &self.model {
            TrainedModel::Segmenter(model) => Ok(model),
            TrainedModel::Classifier(_) | TrainedModel::Detector(_) => Err(self.other("segmenter")),
        }
    }

    /// The detector.
    ///
    /// # Errors
    ///
    /// [`WeightsError::OtherTask`].
    pub fn detector(&self) -> Result<&TrainedDetector, Error> {
        match &self.model {
            TrainedModel::Detector(model) => Ok(model),
            TrainedModel::Classifier(_) | TrainedModel::Segmenter(_) => Err(self.other("detector")),
        }
    }

    /// The names of the `K` classes, by number.
    pub fn classes(&self) -> &[String] {
        match &self.model {
            TrainedModel::Classifier(model) => &model.classes,
            TrainedModel::Segmenter(model) => &model.classes,
            TrainedModel::Detector(model) => &model.classes,
        }
    }

    fn other(&self, asked: &'static str) -> Error {
        let is = match &self.model {
            TrainedModel::Classifier(_) => "classifier",
            TrainedModel::Segmenter(_) => "segmenter",
            TrainedModel::Detector(_) => "detector",
        };
        WeightsError::OtherTask { checkpoint: self.name.clone(), is, asked }.into()
    }
}

impl From<TrainedClassifier> for TrainedModel {
    fn from(model: TrainedClassifier) -> Self {
        Self::Classifier(Box::new(model))
    }
}

impl From<TrainedSegmenter> for TrainedModel {
    fn from(model: TrainedSegmenter) -> Self {
        Self::Segmenter(Box::new(model))
    }
}

impl From<TrainedDetector> for TrainedModel {
    fn from(model: TrainedDetector) -> Self {
        Self::Detector(Box::new(model))
    }
}

/// Weights, and what they are of.
pub(crate) struct Subject {
    pub(crate) source: WeightsSource,
    /// Where they are.
    pub(crate) place: Place,
    pub(crate) given: Option<Config>,
    /// Of the configuration that was given, else of the recorded one, else of the weights.
    pub(crate) task: TaskKind,
}

impl Subject {
    /// Finds the weights called `name`, which may be a run in `root` or a checkpoint of the run
    /// that is `given`.
    pub(crate) fn find(
        name: &Path,
        root: &Path,
        section: Option<Section>,
        given: Option<Config>,
    ) -> Result<Self, Error> {
        let run = given.as_ref().map(Config::run_folder).transpose()?;
        let place = Place::find(name, root, run.as_deref())?;
        let source = WeightsSource::open(&place, section)?;
        let around = given.as_ref().or(source.run.as_ref());
        let task = around.map_or_else(|| task_of(&source), |config| config.task);
        Ok(Self { source, place, given, task })
    }

    /// The configuration that was given, else the recorded one.
    fn around(&self) -> Option<&Config> {
        self.given.as_ref().or(self.source.run.as_ref())
    }

    /// What the weights are of, whose task is `T`, and what answers must say of it; `allowed` parts
    /// of what was given may be otherwise than recorded.
    pub(crate) fn described<T: NamedTask>(
        &self,
        allowed: &[Part],
    ) -> Result<(Described<T::Heads>, Remarks), Error> {
        let (source, given) = (&self.source, self.given.as_ref());
        if T::NEEDS_CONFIG && self.around().is_none() {
            let what = T::Heads::WHAT;
            return Err(source.unrecognised(format!(
                "is a {what}: give its configuration (--config), which says how images are shown \
                 to it"
            )));
        }
        let described = source.described::<T::Heads>(given, None)?;
        let mut remarks = source.check_described(given, Use::Predict, allowed)?;
        remarks.assumed.extend(described.assumed.iter().map(ToString::to_string));
        if self.around().is_none() {
            remarks.assumed.push("normalization by ImageNet's statistics".to_owned());
        }
        Ok((described, remarks))
    }

    /// The names of the classes: those in `file`, else as recorded, else assumed, which `remarks`
    /// then say.
    pub(crate) fn class_names<T: NamedTask>(
        &self,
        file: Option<&Path>,
        described: &Described<T::Heads>,
        remarks: &mut Remarks,
    ) -> Result<Vec<String>, Error> {
        let (count, recorded) = (described.classes, &self.source.classes);
        let (names, assumed) = class_names::<T>(file, recorded, self.around(), count)?;
        remarks.assumed.extend(assumed);
        Ok(names)
    }

    /// The model on `device`, with all that it takes to answer about images.
    pub(crate) fn trained<T: NamedTask>(
        &self,
        described: &Described<T::Heads>,
        classes: Vec<String>,
        device: &Device,
        options: LoadOptions<'_>,
    ) -> Result<(T::Trained, LoadReport), Error> {
        let (model, report) = self.source.model(described, device, options)?;
        let with = Settings { config: self.around(), classes, device };
        Ok((T::trained(model, with)?, report))
    }

    fn into_trained(
        self,
        model: TrainedModel,
        record: Recorded,
        (origin, remarks): (Origin, Remarks),
        allowed: Vec<String>,
    ) -> Trained {
        let WeightsSource { name, weights, step, blake3, note, .. } = self.source;
        let notes = note.into_iter().chain(allowed).collect();
        Trained { model, record, origin, remarks, notes, name, weights, step, blake3 }
    }
}
