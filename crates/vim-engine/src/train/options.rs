//! What a start of training is asked for.

use std::path::PathBuf;

use vim_run::Resume;

/// What `vim-train train` is asked for.
#[derive(Clone, Debug, Default)]
pub struct TrainOptions {
    /// Configuration file, or the name of one that is built in, such as `quickstart`.
    pub config: PathBuf,
    /// The assignments over the configuration's file.
    pub sets: Vec<String>,
    /// What to do if the run's folder holds a run.
    pub resume: Resume,
    /// Stop after this many steps, with a checkpoint to go on from.
    pub steps: Option<u64>,
    /// Move a run in the run's folder aside, and start anew.
    pub fresh: bool,
    /// Check all that can be wrong, print what would be done, and make no folder.
    pub dry_run: bool,
    /// With [`Self::dry_run`]: time steps.
    pub time: bool,
    /// Machines that train together, each with another [`Self::node`].
    pub nodes: Option<u16>,
    /// With [`Self::nodes`]: the number of this machine, from 0; the first one writes.
    pub node: Option<u16>,
    /// With [`Self::nodes`]: a name for this start, the same on all machines and a new one each
    /// time.
    pub attempt: Option<String>,
    /// Processes on this machine that train together, for tests.
    pub ranks: Option<usize>,
    /// What a supervisor tells a rank that it starts, as JSON.
    pub rank: Option<String>,
    /// Whether whoever started this process sees to its job of SLURM.
    pub led: bool,
    /// Whether to print the run's result on stdout as JSON.
    pub json: bool,
}
