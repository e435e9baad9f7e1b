//! SLURM for training runs.
//!
//! A `[slurm]` section over a site's defaults makes a [`Request`]; with a command line it is a
//! [`BatchScript`], which a [`Client`] submits. Inside the job, [`cause`] tells from one look at
//! SLURM's record why a signal came, and [`decide`] what to do about it.
//!
//! Nothing here knows what is trained.

mod array;
mod cause;
mod client;
mod cluster;
mod command;
mod config;
mod error;
mod events;
mod fallback;
mod fit;
mod job;
pub mod jobs;
mod react;
mod request;
mod script;
mod site;
mod text;
mod time;
mod values;

pub use array::{Array, expand, split};
pub use cause::{Action, Cause, Decision, Lives, cause, decide};
pub use client::Client;
pub use cluster::{NodeKind, parse_sinfo};
pub use config::{OnInterrupt, SlurmConfig};
pub use error::{ErrorKind, SlurmError};
pub use events::{EVENTS, Event, EventKind, lives_at, restarts};
pub use fit::fit;
pub use job::{ExitStatus, Job, JobId, JobState, parse_jobs};
pub use react::Outcome;
pub use request::Request;
pub use script::{BatchScript, Word};
pub use site::{Scheduler, Site, SiteLimits, SitePlaces};
pub use time::TimeLimit;
pub use values::{Cpus, GpuRequest, Memory, MemoryPer, Warning};
