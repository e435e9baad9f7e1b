//! The tasks that a configuration can name, each by its type.

use std::sync::LazyLock;

use strum::VariantArray;
use vim_comm::Comm;
use vim_data::{DataError, LoaderConfig, Splits};
use vim_model::{Cost, ModelError, StateMatrix};
use vim_run::metrics::ScoreKind;

use super::Task;
use super::named::NamedTask;
use super::without_data::WithoutData;
use crate::config::{Config, TaskKind};
use crate::weights::source::WeightsSource;

/// Evaluates `$body` with `$task` as the [`NamedTask`] that `$kind`, a
/// [`TaskKind`](crate::config::TaskKind), names: the only branch on the task outside of the tasks
/// and the configuration.
macro_rules! with_task {
    ($kind:expr, $task:ident => $body:expr) => {
        match $kind {
            $crate::config::TaskKind::Classification => {
                type $task = $crate::task::classification::Classification;
                $body
            }
            $crate::config::TaskKind::Segmentation => {
                type $task = $crate::task::segmentation::Segmentation;
                $body
            }
            $crate::config::TaskKind::Detection => {
                type $task = $crate::task::detection::Detection;
                $body
            }
        }
    };
}
pub(crate) use with_task;

/// Parameters and operations of the model of `config`, with its heads.
///
/// # Errors
///
/// As [`vim_model::VimConfig::cost`].
pub fn cost(config: &Config, classes: usize) -> Result<Cost, ModelError> {
    with_task!(config.task, T => <T as Task>::Objective::cost(config, classes))
}

/// Trainable numbers of the model of `config`, with its heads. A full A's operations are not
/// counted, so they are those of a diagonal one and what it has more.
///
/// # Errors
///
/// As [`cost`].
pub(crate) fn parameters(config: &Config, classes: usize) -> Result<u64, ModelError> {
    let mut diagonal = config.clone();
    diagonal.model.ssm.a = StateMatrix::Diagonal;
    let more = config.model.num_parameters() - diagonal.model.num_parameters();
    Ok(cost(&diagonal, classes)?.parameters() + more as u64)
}

/// The data of `config` for `task`, and how its training loads them.
///
/// # Errors
///
/// As [`vim_data::open`].
pub fn training_data(task: TaskKind, config: &Config) -> Result<(Splits, LoaderConfig), DataError> {
    with_task!(task, T => {
        Ok((<T as NamedTask>::splits(config)?, <T as NamedTask>::training(config, &Comm::single())))
    })
}

/// Whether runs of `task` record the scores of each class, by which sweeps are compared.
pub fn scores_classes(task: TaskKind) -> bool {
    with_task!(task, T => <T as NamedTask>::SCORES_CLASSES)
}

/// The task of the models that `source` has the heads of; classification where it has none.
pub(crate) fn task_of(source: &WeightsSource) -> TaskKind {
    let mut kinds = TaskKind::VARIANTS.iter().copied();
    let has = |kind: &TaskKind| with_task!(*kind, T => source.has::<<T as NamedTask>::Heads>());
    kinds.find(has).unwrap_or_default()
}

/// The scores of runs of every task, in the order of the tasks.
pub static SCORES: LazyLock<Vec<ScoreKind>> = LazyLock::new(|| scores_of(|_| true));

/// The scores of runs of the tasks that are `among` some, in the order of the tasks.
pub fn scores_of(among: impl Fn(TaskKind) -> bool) -> Vec<ScoreKind> {
    let scores = |&kind: &TaskKind| with_task!(kind, T => <T as Task>::SCORES);
    let kinds = TaskKind::VARIANTS.iter().filter(|kind| among(**kind));
    kinds.flat_map(scores).copied().collect()
}

/// The scores that choose the best checkpoint, each task's.
pub static PRIMARY: LazyLock<Vec<ScoreKind>> = LazyLock::new(|| {
    let primary = |&kind: &TaskKind| with_task!(kind, T => <T as Task>::PRIMARY);
    TaskKind::VARIANTS.iter().map(primary).collect()
});

/// The scores of the task with the primary score `primary`; the first task's for an unknown one.
pub fn scores_beside(primary: ScoreKind) -> &'static [ScoreKind] {
    let scores =
        |&kind: &TaskKind| with_task!(kind, T => (<T as Task>::PRIMARY, <T as Task>::SCORES));
    let mut all = TaskKind::VARIANTS.iter().map(scores);
    let of = all.find(|(own, _)| *own == primary);
    of.unwrap_or_else(|| scores(&TaskKind::default())).1
}
