//! `train.init` of a model that is a backbone with heads of its own.

use burn::tensor::Device;
use vim_model::LoadOptions;

use super::{InitRecord, InitWeights, Objective};
use crate::config::Config;
use crate::error::Error;
use crate::weights::heads::Heads;
use crate::weights::place::Place;
use crate::weights::source::{WeightsSource, notes};

/// The model of `objective` with the weights of `train.init`, if set: all of those of such a model,
/// or a classifier's in the backbone alone.
pub(super) fn init_weights<H: Heads>(
    objective: &impl Objective<Model = H::Model>,
    config: &Config,
    device: &Device,
) -> Result<Option<InitWeights<H::Model>>, Error> {
    let train = &config.train;
    let Some(path) = &train.init else { return Ok(None) };
    let place = Place::find(path, &config.run.root, None)?;
    let source = WeightsSource::open(&place, None)?;
    let (resize, class_token) = (Some(train.init_pos_embed), source.class_token());
    let options = LoadOptions { head: true, resize, class_token, ..LoadOptions::default() };
    let model = objective.init(device)?;
    let (what, (model, report)) = match source.has::<H>() {
        true => {
            let options = LoadOptions { resize, ..LoadOptions::default() };
            ("all weights", source.load::<H>(model, options)?)
        }
        false => ("the backbone", source.load_backbone::<H>(model, options)?),
    };
    let notes = notes(&report, options);
    let mut lines =
        vec![format!("init {what} from {}, BLAKE3 {}", source.summary(), source.blake3)];
    lines.extend(source.note.iter().chain(&notes).map(|note| format!("init: {note}")));
    lines.extend(source.other_method(&config.model.method_label()));
    let record = InitRecord { name: source.name, blake3: source.blake3, notes };
    Ok(Some(InitWeights { model, record, lines }))
}
