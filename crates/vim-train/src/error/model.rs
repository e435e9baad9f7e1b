//! What is wrong with a model, as an error of the binary.

use vim_model::ModelError;

use super::Error;

impl From<ModelError> for Error {
    fn from(error: ModelError) -> Self {
        match error {
            // Not a mistake in the configuration: elsewhere it may well run.
            ModelError::Kernel(error) => Self::Kernel(error),
            ModelError::Range { .. } | ModelError::Conflict { .. } => Self::Config(error.into()),
        }
    }
}
