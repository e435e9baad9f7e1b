//! From a configuration to a batch script.

use std::env;
use std::path::{Path, PathBuf, absolute};

use vim_slurm::submissions::FOLDER;
use vim_slurm::{BatchScript, CommandWord, Site, SlurmConfig, SlurmError};

use crate::commands::job_request::site_and_request;
use crate::config::Config;
use crate::error::Error;

/// Placeholder for the run's folder in `slurm.output`.
const RUN_DIR: &str = "{run.dir}";

/// A run that could be submitted.
pub(super) struct Plan {
    /// The configuration with name and folder resolved.
    pub(super) config: Config,
    pub(super) folder: PathBuf,
    /// The site, if configured.
    pub(super) site: Option<Site>,
    /// The job.
    pub(super) script: BatchScript,
}

impl Plan {
    /// The plan for a run of `config`, to start after `after`.
    pub(super) fn new(config: Config, after: Option<&str>) -> Result<Self, Error> {
        let name = config.run_name()?;
        let here = env::current_dir().map_err(Error::io("find", "."))?;
        let mut config = config;
        config.run.root =
            absolute(&config.run.root).map_err(Error::io("find", &config.run.root))?;
        config.run.name = name.clone();
        let folder = config.run_folder()?;
        let (site, request) = site_and_request(&config)?;
        let program = env::current_exe().map_err(Error::io("find", "this program"))?;
        let frozen = frozen(&folder);
        let words = [program.as_path(), "train".as_ref(), &frozen, "--resume".as_ref()];
        let words = words.into_iter().chain(["auto".as_ref()]);
        let script = BatchScript {
            request,
            output: output_pattern(&config.slurm, &folder)?,
            name,
            chdir: here,
            array: None,
            dependencies: after.map(dependency).into_iter().collect(),
            command: words.map(|word: &Path| CommandWord::from(word.to_string_lossy())).collect(),
        };
        Ok(Self { config, folder, site, script })
    }

    /// Path of the batch script.
    pub(super) fn script_path(&self) -> PathBuf {
        self.folder.join(FOLDER).join("job.sh")
    }
}

/// Path of a submitted run's frozen configuration: edits while the job waits have no effect.
pub(super) fn frozen(folder: &Path) -> PathBuf {
    folder.join(FOLDER).join("config.toml")
}

/// `slurm.output` for a run in `folder`, absolute.
/// `{run.dir}` is the only placeholder allowed.
fn output_pattern(config: &SlurmConfig, folder: &Path) -> Result<String, Error> {
    // Escape percent signs, which SLURM would read as patterns.
    let literal = folder.display().to_string().replace('%', "%%");
    let pattern = config.output.replace(RUN_DIR, &literal);
    if let Some(at) = pattern.find('{').filter(|_| config.output.replace(RUN_DIR, "").contains('{'))
    {
        return Err(SlurmError::Range {
            key: "output",
            value: format!("`{}`", &pattern[at..]),
            expected: "no placeholder but {run.dir}; SLURM's own are %x, %j, %A and %a".into(),
        }
        .into());
    }
    let path = absolute(&pattern).map_err(Error::io("find", &pattern))?;
    Ok(path.display().to_string())
}

/// `--after`: a job number means `afterok`; anything else is passed to sbatch.
fn dependency(after: &str) -> String {
    let is_number = after.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    if is_number { format!("afterok:{after}") } else { after.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_absolute() {
        let folder = Path::new("/scratch/100%/zoh");
        let pattern = |output: &str| {
            output_pattern(&SlurmConfig { output: output.into(), ..SlurmConfig::default() }, folder)
        };
        let default = SlurmConfig::default().output;
        assert_eq!(pattern(&default).unwrap(), "/scratch/100%%/zoh/slurm/%x-%j.out");
        assert!(pattern("logs/%j.out").unwrap().starts_with('/'));
        let message = pattern("{run.name}/%j.out").unwrap_err().to_string();
        assert!(message.contains("slurm.output") && message.contains("{run.dir}"), "{message}");
    }

    #[test]
    fn a_number_is_waited_for_to_succeed() {
        assert_eq!(dependency("12"), "afterok:12");
        assert_eq!(dependency("afterany:12"), "afterany:12");
    }
}
