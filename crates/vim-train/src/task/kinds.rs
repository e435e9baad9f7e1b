//! The tasks that a configuration can name, each by its type.

use std::sync::LazyLock;

use strum::VariantArray;
use vim_model::{Cost, ModelError};
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
pub(crate) fn cost(config: &Config, classes: usize) -> Result<Cost, ModelError> {
    with_task!(config.task, T => <T as Task>::Objective::cost(config, classes))
}

/// The task of the models that `source` has the heads of; classification where it has none.
pub(crate) fn task_of(source: &WeightsSource) -> TaskKind {
    let mut kinds = TaskKind::VARIANTS.iter().copied();
    let has = |kind: &TaskKind| with_task!(*kind, T => source.has::<<T as NamedTask>::Heads>());
    kinds.find(has).unwrap_or_default()
}

/// The scores of runs of every task, in the order of the tasks.
pub(crate) static SCORES: LazyLock<Vec<ScoreKind>> = LazyLock::new(|| scores_of(|_| true));

/// The scores of runs of the tasks that are `among` some, in the order of the tasks.
pub(crate) fn scores_of(among: impl Fn(TaskKind) -> bool) -> Vec<ScoreKind> {
    let scores = |&kind: &TaskKind| with_task!(kind, T => <T as Task>::SCORES);
    let kinds = TaskKind::VARIANTS.iter().filter(|kind| among(**kind));
    kinds.flat_map(scores).copied().collect()
}

/// The scores that choose the best checkpoint, each task's.
pub(crate) static PRIMARY: LazyLock<Vec<ScoreKind>> = LazyLock::new(|| {
    let primary = |&kind: &TaskKind| with_task!(kind, T => <T as Task>::PRIMARY);
    TaskKind::VARIANTS.iter().map(primary).collect()
});

/// The scores of the task with the primary score `primary`; the first task's for an unknown one.
pub(crate) fn scores_beside(primary: ScoreKind) -> &'static [ScoreKind] {
    let scores =
        |&kind: &TaskKind| with_task!(kind, T => (<T as Task>::PRIMARY, <T as Task>::SCORES));
    let mut all = TaskKind::VARIANTS.iter().map(scores);
    let of = all.find(|(own, _)| *own == primary);
    of.unwrap_or_else(|| scores(&TaskKind::default())).1
}
