//! What ends a training before its last step.

use vim_run::signals::Stop;

use crate::error::{Error, Failure, code};

/// What ends a training before its last step.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A signal asked the run to stop.
    #[error("stopped by {} after step {step}: go on by the same command with --resume auto", stop.name())]
    Stopped {
        /// The signal.
        stop: Stop,
        /// Steps done and saved.
        step: u64,
    },

    /// The loss or the gradient is no longer finite.
    #[error(
        "training diverged at step {step}: {what}; lower optim.lr or set train.clip_grad, and start again with --fresh"
    )]
    Diverged {
        /// The step.
        step: u64,
        /// What is not finite, and its value.
        what: String,
    },
}

impl TrainError {
    /// The signal that ended the run, if one did.
    pub(super) fn stop_of(error: &Error) -> Option<Stop> {
        let error = error.downcast_ref()?;
        if let Self::Stopped { stop, .. } = error { Some(*stop) } else { None }
    }
}

impl Failure for TrainError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Stopped { stop, .. } => stop.exit_code(),
            Self::Diverged { .. } => code::DIVERGED,
        }
    }
}
