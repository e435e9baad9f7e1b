//! When a run saves: by rank 0 alone, at a step that all ranks have agreed on.

use std::time::Instant;

use vim_run::RunDir;
use vim_run::checkpoint::{Content, Saver, Snapshot};
use vim_run::signals::Stop;

use super::Trainer;
use super::ranks::RankError;
use super::recorder::TrainError;
use crate::error::Error;
use crate::task::{Task, share};

/// The run's folder and its checkpoints.
pub(super) struct Lead<'a> {
    pub(super) run: &'a RunDir,
    pub(super) saver: Saver,
}

impl<T: Task> Trainer<'_, T> {
    pub(super) fn newest_checkpoint(&mut self) -> String {
        // A save may be in flight; if it fails, an earlier checkpoint is the newest.
        if let Err(error) = self.wait_for_save() {
            self.log.line(format!("warning: {error}"));
        }
        let Some(lead) = &self.lead else { return String::new() };
        let checkpoints = lead.saver.checkpoints();
        match checkpoints.steps().last() {
            Some(step) => format!(
                "; the newest checkpoint is of step {step}, {}",
                checkpoints.path_of(*step).display()
            ),
            None => "; there is no checkpoint yet".into(),
        }
    }

    /// Saves and stops if a signal has arrived, at whichever rank.
    pub(super) fn stop_if_asked(&mut self) -> Result<(), Error> {
        let own = self.stop.get().map_or(0, Stop::signal);
        let signal = share(&self.comm, &own)?.into_iter().find(|&signal| signal != 0);
        let Some(stop) = signal.map(Stop::of) else { return Ok(()) };
        self.record_bad()?;
        self.save(false, false)?;
        self.wait_for_save()?;
        Err(TrainError::Stopped { stop, step: self.step() }.into())
    }

    /// Takes a snapshot; a thread writes it while the loop continues.
    pub(super) fn save(&mut self, is_best: bool, is_archived: bool) -> Result<(), Error> {
        self.check_alike()?;
        let Some(lead) = &mut self.lead else { return Ok(()) };
        lead.run.check()?;
        let start = Instant::now();
        // At most one snapshot in memory.
        lead.saver.wait()?;
        let counters = &mut self.train.counters;
        counters.epoch = counters.step / self.steps_per_epoch;
        counters.batch = counters.step % self.steps_per_epoch;
        let records = self.records.records()?;
        counters.metrics = records.prefix();
        let files = self.train.files().into_iter().map(|(name, arrays)| {
            let content = move || arrays.to_safetensors().map_err(|error| error.to_string());
            (name, Box::new(content) as Content)
        });
        let (files, state) = (files.collect(), self.train.counters.clone());
        let snapshot = Snapshot { files, state, is_best, is_archived };
        lead.saver.start(snapshot, records.handle()?)?;
        self.records.save_stall += start.elapsed();
        Ok(())
    }

    /// Checks that the weights of all ranks are the same, to the bit.
    fn check_alike(&self) -> Result<(), Error> {
        if self.comm.size() == 1 {
            return Ok(());
        }
        let hashes = share(&self.comm, &self.train.hash()?)?;
        if hashes.iter().all(|hash| *hash == hashes[0]) {
            return Ok(());
        }
        let (step, hashes) = (self.step(), hashes.join(", "));
        Err(RankError::Parted { step, hashes }.into())
    }

    pub(super) fn wait_for_save(&mut self) -> Result<(), Error> {
        match &mut self.lead {
            Some(lead) => Ok(lead.saver.wait()?),
            None => Ok(()),
        }
    }

    /// Waits for the save in flight; returns its error unless `result` is an error already.
    pub(super) fn finish_saving<R>(&mut self, result: Result<R, Error>) -> Result<R, Error> {
        match (result, self.wait_for_save()) {
            (Ok(_), Err(error)) => Err(error),
            (Err(error), Err(second)) => {
                self.log.line(format!("warning: {second}"));
                Err(error)
            }
            (result, Ok(())) => result,
        }
    }
}
