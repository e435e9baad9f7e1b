//! Trains, evaluates and compares Vision Mamba under ten discretizations: all that `vim-train`
//! does, without its command line.
//!
//! A configuration ([`config`]) describes a run; a run has a folder ([`vim_run`]) with checkpoints
//! and metrics; every failure is an [`Error`] with an exit code. work has
//! training.
//!
//! A program of its own begins at [`load`]: a run's folder in, and a model out that answers as
//! `vim-train predict` does. docs/library.md has more.
//!
//! ```no_run
//! let trained = vim_engine::load("data/runs/photos")?;
//! println!("{}", trained.classifier()?.classify("cat.jpg")?); // as `predict` prints it
//! # Ok::<(), vim_engine::Error>(())
//! ```

/// In place of the standard library's, which panics where stderr cannot be written: no command ends
/// for a pipe that is closed or a terminal that is gone.
#[macro_export]
macro_rules! eprintln {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($argument)*);
    }};
}

pub mod config;
pub mod device;
mod error;
pub mod fatal;
pub mod output;
pub mod program;
pub mod run_folder;
pub mod task;
pub mod train;
pub mod weights;
pub mod work;

pub use error::{Error, Failure, code};
pub use task::trained::{
    Load, PixelClasses, Trained, TrainedClassifier, TrainedDetector, TrainedModel,
    TrainedSegmenter, Weights, load,
};

// The crates that a program of its own names beside this one, in the versions that belong to it.
pub use vim_model::burn;
pub use {vim_data, vim_dense, vim_model};
