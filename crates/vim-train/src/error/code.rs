//! The exit codes that `vim-train --help` lists; from 65 on those of BSD's sysexits.

/// The run failed, or a check did.
pub(crate) const FAILED: u8 = 1;
/// Bad command line.
pub(crate) const USAGE: u8 = 2;
/// Data, a checkpoint or a script missing, damaged or unfit.
pub(crate) const DATA: u8 = 65;
/// Device not available, or lost; SLURM not available, or a job refused.
pub(crate) const UNAVAILABLE: u8 = 69;
/// A defect of this program.
pub(crate) const INTERNAL: u8 = 70;
/// The device ran out of memory.
pub(crate) const MEMORY: u8 = 71;
/// The target exists already, or is in use.
pub(crate) const EXISTS: u8 = 73;
/// A file cannot be read or written.
pub(crate) const IO: u8 = 74;
/// Training diverged.
pub(crate) const DIVERGED: u8 = 76;
/// Bad configuration.
pub(crate) const CONFIG: u8 = 78;
