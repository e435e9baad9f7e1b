#![doc = include_str!("../README.md")]

mod array;
mod client;
mod command;
mod config;
mod error;
mod events;
mod fallback;
mod fit;
mod interruption;
mod job;
mod nodes;
mod request;
mod script;
mod site;
pub mod submissions;
mod text_form;
mod values;

pub use array::{JobArray, expand, split};
pub use client::Client;
pub use config::{OnInterrupt, SlurmConfig};
pub use error::{ErrorKind, SlurmError};
pub use events::{EVENTS, Event, EventKind, attempts_at, restarts};
pub use fit::fit;
pub use interruption::{Action, Cause, Decision, JobAttempts, JobOutcome, cause, decide};
pub use job::{ExitStatus, Job, JobId, JobState, parse_jobs};
pub use nodes::{NodeKind, parse_sinfo};
pub use request::JobRequest;
pub use script::{BatchScript, CommandWord};
pub use site::{Scheduler, Site, SiteLimits, SiteSearch};
pub use values::{Cpus, GpuRequest, Memory, MemoryPer, TimeLimit, WarningSignal};
