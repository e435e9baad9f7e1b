//! The `[slurm]` section.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vim_config::is_variable_name;

use crate::error::SlurmError;
use crate::values::{Cpus, GpuRequest, Memory, MemoryPer, TimeLimit, WarningSignal};

/// What a run does with its job after a signal, once its state is saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnInterrupt {
    /// Requeue the job (`scontrol requeue`); where that is not allowed, submit it again.
    #[default]
    Requeue,
    /// Submit the job again, to start when this one has ended.
    Resubmit,
    /// After preemption, wait for SLURM to requeue the job; end otherwise.
    Wait,
    /// End.
    None,
}

/// The `[slurm]` section: what `vim-train slurm submit` asks for, and what a run does when its job
/// is taken away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SlurmConfig {
    /// The cluster: a file, or the name of one in `configs/sites/` or `~/.config/vim-train/sites/`.
    /// Left out: `$VIM_TRAIN_SITE`, else none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "path"))]
    pub site: Option<String>,
    /// The account that the job is billed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The partition. Left out: the site's, else the cluster's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The quality of service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,
    /// Time limit of one attempt of the job: `"12:00:00"`, `"1-00:00:00"`, `"30"` (minutes). Left
    /// out: the partition's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeLimit>,
    /// Nodes of a run, each with the GPUs of `devices.gpus` (docs/distributed.md).
    pub nodes: u32,
    /// GPUs of each node: `"h100:4"`, or `4` of the site's kind. Left out: those of `devices.gpus`,
    /// or none where `devices.backend = "cpu"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus_per_node: Option<GpuRequest>,
    /// Cores: a number, or `"auto"`, the site's per GPU times the GPUs; without a site the
    /// cluster's default.
    pub cpus_per_task: Cpus,
    /// Memory of each node, as `"64G"`; `"0"` is all. At most one of the three; left out: the
    /// site's, else the cluster's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem: Option<Memory>,
    /// Memory for each core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_per_cpu: Option<Memory>,
    /// Memory for each GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_per_gpu: Option<Memory>,
    /// Which signal comes how many seconds before the time limit. SLURM may be a minute early.
    pub signal: WarningSignal,
    /// What a run does with its job once a signal has made it save: `requeue` it, `resubmit` it,
    /// `wait` for SLURM to requeue it, or `none`.
    pub on_interrupt: OnInterrupt,
    /// Restarts after which an interrupted run is left as it is.
    pub max_restarts: u32,
    /// Attempts in a row without a new step after which an interrupted run is left as it is.
    pub stop_without_progress: u32,
    /// The job's output. `{run.dir}` is the run's folder; `%x`, `%j`, `%A` and `%a` are SLURM's
    /// name, job, array and task.
    #[schemars(extend("format" = "path"))]
    pub output: String,
    /// Modules to load, besides the site's.
    pub modules: Vec<String>,
    /// Environment variables of the job, over the site's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Options for sbatch that are not here, as `"--mail-type=END"`.
    pub extra: Vec<String>,
    /// What the job waits for, as sbatch has it: `"afterok:1234"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dependency: Option<String>,
}

impl Default for SlurmConfig {
    fn default() -> Self {
        Self {
            site: None,
            account: None,
            partition: None,
            qos: None,
            time: None,
            nodes: 1,
            gpus_per_node: None,
            cpus_per_task: Cpus::Auto,
            mem: None,
            mem_per_cpu: None,
            mem_per_gpu: None,
            signal: WarningSignal::default(),
            on_interrupt: OnInterrupt::default(),
            max_restarts: 50,
            stop_without_progress: 2,
            output: "{run.dir}/slurm/%x-%j.out".into(),
            modules: Vec::new(),
            env: BTreeMap::new(),
            extra: Vec::new(),
            dependency: None,
        }
    }
}

impl SlurmConfig {
    /// Checks the values as far as that is possible without a cluster.
    ///
    /// # Errors
    ///
    /// The first invalid value.
    pub fn check(&self) -> Result<(), SlurmError> {
        let range = |holds: bool, key, value: String, expected: &str| {
            if holds {
                return Ok(());
            }
            Err(SlurmError::Range { key, value, expected: expected.to_owned() })
        };
        range(self.nodes >= 1, "nodes", self.nodes.to_string(), "1 or more")?;
        let attempts = self.stop_without_progress;
        range(attempts >= 1, "stop_without_progress", attempts.to_string(), "1 or more")?;
        if let Some(time) = self.time {
            let lead = u64::from(self.signal.seconds);
            let expected = format!("more than the {lead} s of slurm.signal");
            range(time.seconds > lead, "time", time.to_string(), &expected)?;
        }
        let memory: Vec<MemoryPer> = self.memories().map(|(per, _)| per).collect();
        if let [first, second, ..] = memory[..] {
            return Err(SlurmError::Conflict {
                key: second.key(),
                other: format!("slurm.{}", first.key()),
                reason: "SLURM takes one of them: leave the other out".into(),
            });
        }
        let names = [
            ("account", &self.account),
            ("partition", &self.partition),
            ("qos", &self.qos),
            ("dependency", &self.dependency),
        ];
        for (key, value) in names {
            let Some(value) = value else { continue };
            let is_word = !value.is_empty() && !value.contains(char::is_whitespace);
            range(is_word, key, format!("{value:?}"), "one word")?;
        }
        let is_file = !self.output.is_empty() && is_one_line(&self.output);
        range(is_file, "output", format!("{:?}", self.output), "a file")?;
        for option in &self.extra {
            let is_option = option.starts_with('-') && is_one_line(option);
            range(
                is_option,
                "extra",
                format!("{option:?}"),
                "an option of sbatch, as \"--mail-type=END\"",
            )?;
        }
        for module in &self.modules {
            let is_word = !module.is_empty() && !module.contains(char::is_whitespace);
            range(is_word, "modules", format!("{module:?}"), "a module's name, one an entry")?;
        }
        for (name, value) in &self.env {
            range(is_variable_name(name), "env", format!("{name:?}"), "letters, digits and `_`")?;
            let shown = format!("{name} = {value:?}");
            range(is_one_line(value), "env", shown, "a value without line breaks and zero bytes")?;
        }
        Ok(())
    }

    /// The memory keys that are set.
    pub(crate) fn memories(&self) -> impl Iterator<Item = (MemoryPer, Memory)> {
        let all = [
            (MemoryPer::Node, self.mem),
            (MemoryPer::Cpu, self.mem_per_cpu),
            (MemoryPer::Gpu, self.mem_per_gpu),
        ];
        all.into_iter().filter_map(|(per, amount)| Some((per, amount?)))
    }
}

/// Whether a batch script can hold `text`: without line breaks and zero bytes.
pub(crate) fn is_one_line(text: &str) -> bool {
    !text.contains(['\n', '\r', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(toml: &str) -> String {
        let config: SlurmConfig = toml::from_str(toml).unwrap();
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_hold_and_are_a_file() {
        let config = SlurmConfig::default();
        config.check().unwrap();
        let printed = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<SlurmConfig>(&printed).unwrap(), config);
    }

    #[test]
    fn what_cannot_be_is_said() {
        for (toml, said) in [
            ("nodes = 0", "slurm.nodes: 0 is out of range: expected 1 or more"),
            ("mem = \"1G\"\nmem_per_gpu = \"1G\"", "slurm.mem_per_gpu does not go with slurm.mem"),
            ("time = \"3\"", "slurm.time: 00:03:00 is out of range: expected more than the 240 s"),
            ("account = \"a b\"", "slurm.account: \"a b\""),
            ("extra = [\"mail\"]", "an option of sbatch"),
            ("modules = [\"a b\"]", "one an entry"),
            ("env = { \"A-B\" = \"x\" }", "letters, digits"),
            ("env = { A = \"x\\ny\" }", "slurm.env: A = \"x\\ny\" is out of range"),
            ("output = \"x\\ny\"", "slurm.output: \"x\\ny\" is out of range"),
            ("stop_without_progress = 0", "1 or more"),
        ] {
            let message = problem(toml);
            assert!(message.contains(said), "{message}");
        }
        let unknown = toml::from_str::<SlurmConfig>("partion = \"x\"").unwrap_err().to_string();
        assert!(unknown.contains("unknown field `partion`"), "{unknown}");
    }
}
