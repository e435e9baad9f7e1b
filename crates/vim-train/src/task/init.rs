//! `train.init` of a model that is a backbone with heads of its own.

use vim_model::{LoadOptions, LoadReport, StateDictMismatch};

use super::{InitRecord, InitWeights};
use crate::config::Config;
use crate::error::Error;
use crate::weights::WeightsError;
use crate::weights::place::Place;
use crate::weights::source::{WeightsSource, notes};

/// A model, and what was loaded into it.
pub(super) type Loaded<M> = (M, LoadReport);

/// The model with the weights of `train.init`, if set: `whole` loads those of such a model, where
/// `is_whole` says that they are, and `backbone` a classifier's into the backbone alone.
pub(super) fn init_weights<M>(
    config: &Config,
    is_whole: impl FnOnce(&WeightsSource) -> bool,
    whole: impl FnOnce(&WeightsSource) -> Result<Loaded<M>, Error>,
    backbone: impl FnOnce(
        &WeightsSource,
        LoadOptions,
    ) -> Result<Result<Loaded<M>, Box<StateDictMismatch>>, Error>,
) -> Result<Option<InitWeights<M>>, Error> {
    let train = &config.train;
    let Some(path) = &train.init else { return Ok(None) };
    let place = Place::find(path, &config.run.root, None)?;
    let source = WeightsSource::open(&place, None)?;
    let (resize, class_token) = (Some(train.init_pos_embed), source.class_token());
    let options = LoadOptions { head: true, resize, class_token, ..LoadOptions::default() };
    let (what, (model, report)) = match is_whole(&source) {
        true => ("all weights", whole(&source)?),
        false => {
            let unfit = |mismatch| {
                let checkpoint = source.name.clone();
                WeightsError::Mismatch { checkpoint, mismatch }
            };
            ("the backbone", backbone(&source, options)?.map_err(unfit)?)
        }
    };
    let notes = notes(&report, options);
    let mut lines =
        vec![format!("init {what} from {}, BLAKE3 {}", source.summary(), source.blake3)];
    lines.extend(source.note.iter().chain(&notes).map(|note| format!("init: {note}")));
    lines.extend(source.other_method(&config.model.method_label()));
    let record = InitRecord { name: source.name, blake3: source.blake3, notes };
    Ok(Some(InitWeights { model, record, lines }))
}
