//! Ranks after the first: they train as rank 0 does, from the state that it sends them, and record
//! nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::module::Module;
use serde::{Deserialize, Serialize};
use vim_run::Log;
use vim_run::checkpoint::{Checkpoint, State};
use vim_run::signals::StopRequest;

use super::Trainer;
use super::recorder::{Recorder, TrainError};
use super::setup::ResolvedRun;
use super::state::TrainState;
use super::step::StepGraph;
use crate::config::Config;
use crate::device::memory::Pages;
use crate::error::Error;
use crate::fatal::{self, CrashGuard};
use crate::task::{Objective, Task};

/// What rank 0 tells the others before training.
pub(super) enum Start {
    /// There is nothing to do.
    Finished,
    /// The run starts or goes on.
    Run {
        /// Its folder.
        folder: PathBuf,
        /// The state, as in a checkpoint.
        state: Box<State>,
        /// The other files of a checkpoint.
        files: Vec<(String, Vec<u8>)>,
    },
}

/// A [`Start::Run`] but for the content of the files, of which it has the lengths.
#[derive(Serialize, Deserialize)]
struct Header {
    folder: PathBuf,
    state: Box<State>,
    files: Vec<(String, usize)>,
}

impl Start {
    /// From the state `train` of the run in `folder`.
    pub(super) fn of<M: Module>(train: &TrainState<M>, folder: &Path) -> Result<Self, Error> {
        let files = train.files().into_iter().map(|(name, arrays)| {
            let bytes = arrays.to_safetensors();
            let bytes = bytes.map_err(|error| Error::internal(format!("{name}: {error}")))?;
            Ok((name.to_owned(), bytes))
        });
        let files = files.collect::<Result<_, Error>>()?;
        Ok(Self::Run { folder: folder.to_owned(), state: Box::new(train.counters.clone()), files })
    }

    /// A line of JSON, then the files; nothing if there is nothing to do.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let Self::Run { folder, state, files } = self else { return Ok(Vec::new()) };
        let (folder, state) = (folder.clone(), state.clone());
        let lengths = files.iter().map(|(name, bytes)| (name.clone(), bytes.len())).collect();
        let mut bytes =
            serde_json::to_vec(&Header { folder, state, files: lengths }).map_err(broken)?;
        bytes.push(b'\n');
        files.iter().for_each(|(_, content)| bytes.extend(content));
        Ok(bytes)
    }

    /// What [`Self::to_bytes`] wrote.
    pub(super) fn of_bytes(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.is_empty() {
            return Ok(Self::Finished);
        }
        let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
        let Header { folder, state, files } =
            serde_json::from_slice(&bytes[..end]).map_err(broken)?;
        let mut rest = bytes.get(end + 1..).unwrap_or_default();
        let files = files.into_iter().map(|(name, length)| {
            let (content, after) = rest
                .split_at_checked(length)
                .ok_or_else(|| Error::internal("a state cut short"))?;
            rest = after;
            Ok((name, content.to_vec()))
        });
        let files = files.collect::<Result<_, Error>>()?;
        Ok(Self::Run { folder, state, files })
    }
}

fn broken(error: serde_json::Error) -> Error {
    Error::internal(format!("the state for the other ranks: {error}"))
}

/// Trains with rank 0, to the end or for `limit` steps, and ends after it.
pub(super) fn follow<T: Task>(
    config: &Config,
    resolved: ResolvedRun<T>,
    limit: Option<u64>,
    stop: StopRequest,
) -> Result<(), Error> {
    let comm = resolved.comm.clone();
    let start = Start::of_bytes(&comm.broadcast(Vec::new())?)?;
    let Start::Run { folder, state, files } = start else { return Ok(()) };
    let logs = folder.join("ranks");
    fs::create_dir_all(&logs).map_err(Error::io("make", &logs))?;
    let log = Log::open_quietly(&logs.join(format!("rank-{:04}.log", comm.rank())))?;
    let (load, guard) = (resolved.footprint, CrashGuard::default());
    let checkpoint = Checkpoint::received(folder, *state, files);
    let mut trainer = Trainer::following(config, resolved, checkpoint, &log, stop, &guard)?;
    let result = trainer.train(limit).map_err(|error| fatal::with_load(error, load));
    if result.as_ref().err().is_none_or(TrainError::is_of_all) {
        comm.broadcast(Vec::new())?;
    }
    result.map(drop)
}

impl<'a, T: Task> Trainer<'a, T> {
    /// A rank that records nothing, in the state of `checkpoint`.
    fn following(
        config: &'a Config,
        resolved: ResolvedRun<T>,
        checkpoint: Checkpoint,
        log: &'a Log,
        stop: StopRequest,
        guard: &'a CrashGuard,
    ) -> Result<Self, Error> {
        let ResolvedRun { chosen, comm, task, schedule, steps_per_epoch, total_steps, .. } =
            resolved;
        log.line(format!("device {}", chosen.with_hardware()));
        let device = chosen.device.autodiff();
        let model = task.objective().init(&device)?;
        let train = TrainState::new(task.objective(), config, model);
        let train = train.restored(checkpoint, config, &device, "rank 0's state")?;
        let step = train.counters.step;
        log.line(format!("rank {} of {} begins at step {step}", comm.rank(), comm.size()));
        let graph = StepGraph::of(config, task.objective(), &device, comm.size())?;
        Ok(Self {
            config,
            task,
            comm,
            graph,
            pages: Pages::default(),
            lead: None,
            log,
            guard,
            stop,
            train,
            schedule,
            steps_per_epoch,
            total_steps,
            records: Recorder::without_files(log, &device, config.train.images()),
            device,
            bad: Vec::new(),
            first_step: step,
            last_loss: None,
            last_score: None,
            test_score: None,
            start: Instant::now(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_survives_its_bytes() {
        let state = Box::new(State { step: 7, ..State::default() });
        let files = vec![("a".to_owned(), vec![10, 0, 255]), ("b".to_owned(), Vec::new())];
        let start =
            Start::Run { folder: "/x y".into(), state: state.clone(), files: files.clone() };
        let bytes = start.to_bytes().unwrap();
        let Start::Run { folder, state: got, files: received } = Start::of_bytes(&bytes).unwrap()
        else {
            panic!("a run")
        };
        assert_eq!((folder, got, received), (PathBuf::from("/x y"), state, files));
        assert!(Start::of_bytes(&bytes[..bytes.len() - 1]).is_err());
        let nothing = Start::Finished.to_bytes().unwrap();
        assert!(matches!(Start::of_bytes(&nothing).unwrap(), Start::Finished));
    }
}
