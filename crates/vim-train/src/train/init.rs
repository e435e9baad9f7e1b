//! Weights that a run starts from: `train.init`.

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use vim_model::{LoadOptions, Vim, VimConfig};

use crate::config::Config;
use crate::error::Error;
use crate::run::checkpoint::Selection;
use crate::run::run_dir::INIT;
use crate::weights::source::{Source, notes};

/// A model that does not start from nothing, and where it came from.
pub(super) struct Initial {
    pub(super) model: Vim,
    pub(super) record: Record,
    /// What to say about it.
    pub(super) lines: Vec<String>,
}

/// `init.json`: the weights that a run started from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// As read.
    name: String,
    /// Of the file, in hexadecimal.
    blake3: String,
    /// What was resized or replaced.
    notes: Vec<String>,
}

impl Initial {
    /// The model of `config` with the weights of `train.init`, if there is one.
    ///
    /// The head may be of other classes, and positions of another grid: a fine-tune is for that.
    pub(super) fn load(
        config: &Config,
        model: &VimConfig,
        device: &Device,
    ) -> Result<Option<Self>, Error> {
        let Some(path) = &config.train.init else { return Ok(None) };
        let resize = Some(config.train.init_pos_embed);
        let options = LoadOptions { head: true, missing: false, resize };
        let source = Source::open(path, None, &Selection::Best)?;
        let (model, report) = source.load(model.init(device, config.run.seed)?, options)?;
        let notes = notes(&report, options);
        let mut lines = vec![format!("init {}, BLAKE3 {}", source.summary(), source.blake3)];
        lines.extend(notes.iter().map(|note| format!("init: {note}")));
        let ours = model.config().method_label();
        if let Some(recorded) = &source.recorded
            && let Ok(theirs) = VimConfig::new(&recorded.model, recorded.ssm, 1)
            && theirs.method_label() != ours
        {
            let theirs = theirs.method_label();
            lines.push(format!("warning: these weights were trained with {theirs}, not {ours}"));
        }
        let record = Record { name: source.name, blake3: source.blake3, notes };
        Ok(Some(Self { model, record, lines }))
    }

    /// A run that was stopped before its first checkpoint must start from the same weights again.
    pub(super) fn check_same(&self, run: &Path) -> Result<(), Error> {
        let Ok(text) = fs::read(run.join(INIT)) else { return Ok(()) };
        let Ok(recorded) = serde_json::from_slice::<Record>(&text) else { return Ok(()) };
        if recorded.blake3 == self.record.blake3 {
            return Ok(());
        }
        let (before, now) = (recorded.blake3, &self.record.blake3);
        let difference = format!("train.init's content (recorded BLAKE3 {before}, now {now})");
        Err(Error::ConfigChanged { path: run.to_owned(), differences: vec![difference] })
    }
}
