//! `train.init`: a model that starts from weights of a file, a checkpoint or a run.

use burn::tensor::Device;
use vim_data::{DataError, match_classes};
use vim_model::LoadOptions;

use super::{InitRecord, InitWeights, Objective};
use crate::config::{Config, InitHead, TaskKind};
use crate::error::Error;
use crate::weights::WeightsError;
use crate::weights::heads::Heads;
use crate::weights::place::Place;
use crate::weights::provenance::Use;
use crate::weights::record::{Recorded, RecordedData};
use crate::weights::source::{WeightsSource, notes};

/// What the weights are for: the classes and images of the run.
#[derive(Clone, Debug, Default)]
pub struct InitFor {
    /// Names of the classes, by label; empty if there are no classes.
    pub classes: Vec<String>,
    /// The images, if the task has some.
    pub data: RecordedData,
    /// Whether some are held out.
    pub held_out: bool,
}

/// The model of `objective` with the weights of `train.init`, if set: all of those of such a model,
/// or a classifier's in the backbone alone.
pub(super) fn init_weights<H: Heads>(
    objective: &impl Objective<Model = H::Model>,
    config: &Config,
    of: &InitFor,
    device: &Device,
) -> Result<Option<InitWeights<H::Model>>, Error> {
    let train = &config.train;
    let Some(path) = &train.init else { return Ok(None) };
    let place = Place::find(path, &config.run.root, None)?;
    let source = WeightsSource::open(&place, None)?;
    let backbone = H::TASK != TaskKind::Classification && !source.has::<H>();
    let now = Recorded::of_run(config, &of.classes, of.data.clone());
    let what = Use::Init { backbone, held_out: of.held_out };
    let remarks = source.check_use(&now, what, &train.init_allow)?;
    let (resize, class_token) = (Some(train.init_pos_embed), source.class_token());
    let model = objective.init(device)?;
    let (head, options);
    let (taken, (model, report)) = if backbone {
        head = HeadRows::default();
        options = LoadOptions { head: true, resize, class_token, ..LoadOptions::default() };
        ("the backbone from ", source.load_backbone::<H>(model, options)?)
    } else {
        head = head_rows(&source, of, train.init_head)?;
        let rows = head.rows.as_deref();
        options = LoadOptions { head: true, resize, rows, ..LoadOptions::default() };
        let taken = if H::TASK == TaskKind::Classification { "" } else { "all weights from " };
        (taken, source.load::<H>(model, options)?)
    };
    let mut noted = notes(&report, options);
    noted.extend(head.note);
    noted.extend(remarks.differences.iter().map(|what| format!("not as trained: {what}")));
    noted.extend(remarks.assumed.iter().map(|what| format!("assumed: {what}")));
    let mut lines = vec![format!("init {taken}{}, BLAKE3 {}", source.summary(), source.blake3)];
    lines.extend(source.note.iter().chain(&noted).map(|note| format!("init: {note}")));
    let record = InitRecord { name: source.name, blake3: source.blake3, notes: noted };
    Ok(Some(InitWeights { model, record, lines }))
}

/// Which classes of the weights' head are taken.
#[derive(Debug, Default)]
struct HeadRows {
    /// For each class of the run that of the weights; all by their numbers if it is `None`.
    rows: Option<Vec<Option<usize>>>,
    note: Option<String>,
}

/// Matches the classes of `of` with those of the weights by name: of the same set every one keeps
/// its numbers, another set has a new head, or new classes in it.
fn head_rows(source: &WeightsSource, of: &InitFor, head: InitHead) -> Result<HeadRows, Error> {
    if of.classes.is_empty() {
        return Ok(HeadRows::default());
    }
    if source.classes.is_empty() {
        if head == InitHead::Common {
            return Err(source.unrecognised(
                "names no classes, so that train.init_head = \"common\" finds none of the same name"
                    .to_owned(),
            ));
        }
        let note = "the weights name no classes: a head of as many is taken by number".to_owned();
        return Ok(HeadRows { rows: None, note: Some(note) });
    }
    let matched = match_classes(&source.classes, &of.classes).map_err(DataError::from)?;
    let rows: Vec<Option<usize>> =
        matched.labels.iter().map(|label| label.map(|label| label as usize)).collect();
    let (old, new) = (source.classes.len(), of.classes.len());
    let common = rows.iter().flatten().count();
    if common == old && common == new {
        let is_ordered = matched.is_identity();
        let note = match (matched.by_number, is_ordered) {
            (true, _) => Some("classes are numbers, so that the head is taken by number"),
            (false, false) => Some(
                "the weights list the same classes in another order: their head is taken by name",
            ),
            (false, true) => None,
        };
        let note = note.map(str::to_owned);
        return Ok(HeadRows { rows: (!is_ordered).then_some(rows), note });
    }
    match head {
        InitHead::Common if common == 0 => Err(WeightsError::UnknownClasses {
            checkpoint: source.name.clone(),
            unknown: of.classes.clone(),
            known: source.classes.clone(),
        }
        .into()),
        InitHead::Common => Ok(HeadRows {
            rows: Some(rows),
            note: Some(format!(
                "of {new} classes, {common} take those of the same name among the weights' {old}; the \
                 others are new"
            )),
        }),
        InitHead::SameClasses => Ok(HeadRows {
            rows: Some(vec![None; new]),
            note: Some(format!(
                "other classes, so a new head: the weights have {old}, the data {new}, of which \
                 {common} have a name in common (train.init_head = \"common\" carries those over)"
            )),
        }),
    }
}
