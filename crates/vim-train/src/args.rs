//! Arguments that several commands share.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::config::{Config, ConfigError};
use crate::device::DeviceName;
use crate::error::Error;

/// Values over those of the configuration file.
#[derive(Clone, Debug, Default, Args)]
pub struct Overrides {
    /// Set a key over the file, as in `--set optim.lr=5e-4`; may be repeated, the last one counts.
    ///
    /// VALUE is TOML; what is not TOML is taken as text, so that `--set data.path=/scratch/x` needs
    /// no quotes.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl Overrides {
    /// Where runs are looked for by name, without a configuration: `run.root` of the defaults or
    /// as set.
    pub(crate) fn run_root(&self) -> Result<PathBuf, ConfigError> {
        let is_root = |set: &&String| set.starts_with("run.root");
        let sets: Vec<String> = self.set.iter().filter(is_root).cloned().collect();
        Ok(Config::from_defaults(&sets)?.run.root)
    }
}

/// The device of a call.
#[derive(Clone, Debug, Default, Args)]
pub struct DeviceArg {
    /// What to run on: auto, cpu, cuda, cuda:N, wgpu, wgpu:N, tch or tch:N; over `devices.backend`
    /// and `devices.gpus` of the configuration.
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<DeviceName>,
}

impl DeviceArg {
    /// `sets` and, after them, the assignments that choose the device.
    pub(crate) fn over(&self, sets: &[String]) -> Vec<String> {
        let chosen = self.device.iter().flat_map(|device| {
            let gpus = device.gpus();
            [format!("devices.backend={}", device.backend), format!("devices.gpus={gpus}")]
        });
        sets.iter().cloned().chain(chosen).collect()
    }
}

/// Checks that no word of the command line is a path below a `~`: shells replace it at the start of
/// a word alone, and what is written there would be in a folder called `~`.
pub(crate) fn check_homes(words: impl Iterator<Item = OsString>) -> Result<(), Error> {
    for word in words {
        let word = word.to_string_lossy();
        let (is_flag, value) =
            (word.starts_with('-'), word.split_once('=').map(|(_, value)| value));
        let places = [Some(&*word), value.filter(|_| is_flag), word.get(2..).filter(|_| is_flag)];
        if places.into_iter().flatten().any(|text| text == "~" || text.starts_with("~/")) {
            return Err(Error::usage(format!(
                "`{word}`: the shell leaves this `~` as it is: write $HOME, or ./~ for a folder of \
                 this name"
            )));
        }
    }
    Ok(())
}

/// Parses an integer of at least 1.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("`{text}` is not a number from 1")),
        Ok(number) => Ok(number),
    }
}
