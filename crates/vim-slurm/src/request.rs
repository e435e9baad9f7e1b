//! The request to sbatch: the configuration over the site's defaults.

use std::collections::BTreeMap;

use vim_config::hint;

use crate::config::{OnInterrupt, SlurmConfig};
use crate::error::SlurmError;
use crate::site::{Scheduler, Site};
use crate::values::{Cpus, GpuRequest, Memory, MemoryPer, TimeLimit, WarningSignal};

/// A job's resources and environment, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRequest {
    /// The account.
    pub account: Option<String>,
    /// The partition.
    pub partition: Option<String>,
    /// The quality of service.
    pub qos: Option<String>,
    /// The time limit.
    pub time: Option<TimeLimit>,
    /// Nodes.
    pub nodes: u32,
    /// GPUs of each node.
    pub gpus: Option<GpuRequest>,
    /// Cores of each node.
    pub cpus: Option<u32>,
    /// Memory.
    pub memory: Option<(MemoryPer, Memory)>,
    /// The signal before the time limit.
    pub signal: WarningSignal,
    /// Whether SLURM may requeue the job.
    pub requeue: bool,
    /// Modules to load.
    pub modules: Vec<String>,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// The node's local disk, where SLURM does not name one.
    pub tmpdir: Option<String>,
    /// Further options of sbatch.
    pub extra: Vec<String>,
    /// The job's dependency.
    pub dependency: Option<String>,
    /// Warnings for the user before the job waits in a queue.
    pub warnings: Vec<String>,
}

impl SlurmConfig {
    /// The request at `site`; `used_gpus`: how many GPUs of a node the run
    /// computes on, 0 for none.
    ///
    /// # Errors
    ///
    /// If a value is invalid or the site does not allow it.
    pub fn request(&self, site: Option<&Site>, used_gpus: u32) -> Result<JobRequest, SlurmError> {
        self.check()?;
        let nowhere = Site::default();
        let at = site.unwrap_or(&nowhere);
        if at.scheduler == Scheduler::None {
            return Err(SlurmError::NoScheduler(at.name.clone()));
        }
        if at.account_required && self.account.is_none() {
            let example = at.account_example.clone();
            return Err(SlurmError::Account { site: at.name.clone(), example });
        }
        let partition = self.partition.clone().or_else(|| at.partition.clone());
        let limits = at.limits(partition.as_deref());
        let (is_known, limits) = (limits.is_some(), limits.cloned().unwrap_or_default());
        let cpus_per_gpu = limits.cpus_per_gpu.or(at.cpus_per_gpu);
        let gpus = self.gpus(limits.gpu_type.as_ref().or(at.gpu_type.as_ref()), used_gpus);
        let count = gpus.as_ref().map_or(0, |gpus| gpus.count);
        if (1..used_gpus).contains(&count) {
            let problem = format!("{count} is less than the {used_gpus} GPUs of devices.gpus");
            return Err(SlurmError::Unmet { key: "gpus_per_node", problem });
        }
        let mut warnings = Vec::new();
        let cpus = match (self.cpus_per_task, cpus_per_gpu) {
            (Cpus::Count(cpus), _) => Some(cpus),
            (Cpus::Auto, Some(each)) if count > 0 => Some(each.saturating_mul(count)),
            (Cpus::Auto, _) => {
                warnings.push(
                    "slurm.cpus_per_task is \"auto\", and no site says how many cores go with a \
                     GPU: the job gets the cluster's default, often one core"
                        .to_owned(),
                );
                None
            }
        };
        let of_site = [
            (MemoryPer::Gpu, limits.mem_per_gpu.or(at.mem_per_gpu).filter(|_| count > 0)),
            (MemoryPer::Cpu, at.mem_per_cpu),
        ];
        let of_site = of_site.into_iter().find_map(|(per, amount)| Some((per, amount?)));
        let memory = self.memories().next().or(of_site);
        if let (Some((MemoryPer::Gpu, _)), 0) = (memory, count) {
            return Err(SlurmError::Conflict {
                key: "mem_per_gpu",
                other: "a job without a GPU".into(),
                reason: "set slurm.mem instead".into(),
            });
        }
        if let (Some(partition), Some(site)) = (&partition, site)
            && !site.partitions.is_empty()
            && !is_known
        {
            let known = site.partitions.keys().map(String::as_str);
            warnings.push(format!(
                "site `{}` says nothing of the partition `{partition}`{}: its limits are the \
                 cluster's to say",
                site.name,
                hint(partition, known)
            ));
        }
        // Where none is used, the caller knows why.
        if used_gpus > 0 && count > used_gpus {
            let used = if used_gpus > 1 { used_gpus.to_string() } else { "one".to_owned() };
            warnings.push(format!(
                "slurm.gpus_per_node asks for {count} GPUs, and a run uses {used}: devices.gpus = \
                 {count} trains on all, and sweep.pack = \"node\" trains a run of a sweep on each \
                 (docs/cluster.md)"
            ));
        }
        if self.time.is_none() {
            warnings.push(
                "slurm.time is not set: the job gets the partition's default time limit".to_owned(),
            );
        }
        let request = JobRequest {
            account: self.account.clone(),
            partition,
            qos: self.qos.clone().or_else(|| at.qos.clone()),
            time: self.time,
            nodes: self.nodes,
            gpus,
            cpus,
            memory,
            signal: self.signal,
            requeue: match self.on_interrupt {
                OnInterrupt::Requeue | OnInterrupt::Wait => true,
                // A requeue by SLURM besides the resubmission would make two jobs of one.
                OnInterrupt::Resubmit | OnInterrupt::None => false,
            },
            modules: at.modules.iter().chain(&self.modules).cloned().collect(),
            env: at.env.iter().chain(&self.env).map(|(k, v)| (k.clone(), v.clone())).collect(),
            tmpdir: at.tmpdir.clone(),
            extra: at.extra.iter().chain(&self.extra).cloned().collect(),
            dependency: self.dependency.clone(),
            warnings,
        };
        let longest = [limits.max_time, at.max_time].into_iter().flatten().min();
        let most_nodes = [limits.max_nodes, at.max_nodes].into_iter().flatten().min();
        let most_gpus = limits.max_gpus.or(at.gpus_per_node);
        request.check_site(&at.name, longest, most_gpus, most_nodes)?;
        if let Some(most) = limits.max_gpus.filter(|most| count.saturating_mul(self.nodes) > *most)
        {
            let problem = format!(
                "{count} on each of {} nodes is more than site `{}` allows a job: at most {most}",
                self.nodes, at.name
            );
            return Err(SlurmError::Unmet { key: "gpus_per_node", problem });
        }
        Ok(request)
    }

    fn gpus(&self, of_site: Option<&String>, used: u32) -> Option<GpuRequest> {
        let asked = self.gpus_per_node.clone().or(Some(GpuRequest { kind: None, count: used }));
        let GpuRequest { kind, count } = asked.filter(|gpus| gpus.count > 0)?;
        Some(GpuRequest { kind: kind.or_else(|| of_site.cloned()), count })
    }
}

impl JobRequest {
    /// The option of sbatch by which the job gets GPUs, if it asks for any: that of
    /// `slurm.gpus_per_node`, or one of `slurm.extra`.
    pub fn asks_for_gpus(&self) -> Option<String> {
        let by_key = self.gpus.as_ref().map(|gpus| format!("--gpus-per-node={gpus}"));
        by_key.or_else(|| self.extra.iter().find(|option| is_for_gpus(option)).cloned())
    }

    fn check_site(
        &self,
        site: &str,
        longest: Option<TimeLimit>,
        most_gpus: Option<u32>,
        most_nodes: Option<u32>,
    ) -> Result<(), SlurmError> {
        let at = || match &self.partition {
            Some(partition) => format!("site `{site}`, partition `{partition}`"),
            None => format!("site `{site}`"),
        };
        if let (Some(time), Some(longest)) = (self.time, longest)
            && time > longest
        {
            let problem = format!("{time} is more than {} allows: at most {longest}", at());
            return Err(SlurmError::Unmet { key: "time", problem });
        }
        if let (Some(gpus), Some(most)) = (&self.gpus, most_gpus)
            && gpus.count > most
        {
            let problem = format!("{gpus} is more than {} has: at most {most}", at());
            return Err(SlurmError::Unmet { key: "gpus_per_node", problem });
        }
        if let Some(most) = most_nodes.filter(|most| self.nodes > *most) {
            let problem = format!("{} is more than {} allows: at most {most}", self.nodes, at());
            return Err(SlurmError::Unmet { key: "nodes", problem });
        }
        Ok(())
    }
}

/// Whether an option of sbatch asks for GPUs, whole or shared.
fn is_for_gpus(option: &str) -> bool {
    let (name, value) = option.split_once(['=', ' ']).unwrap_or((option, ""));
    match name {
        "--gres" | "--tres-per-task" => ["gpu", "shard", "mps"].iter().any(|it| value.contains(it)),
        "-G" | "--gpus" | "--gpus-per-node" | "--gpus-per-socket" | "--gpus-per-task" => {
            value.trim() != "0"
        }
        _ => name.starts_with("-G"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> SlurmConfig {
        toml::from_str(text).unwrap()
    }

    fn site() -> Site {
        let text = "account_required = true\naccount_example = \"def-someone\"\n\
                    gpu_type = \"h100\"\ngpus_per_node = 4\ncpus_per_gpu = 12\n\
                    mem_per_gpu = \"124G\"\nmodules = [\"a/1\"]\nmax_time = \"7-00:00:00\"\n\
                    env = { X = \"1\", Y = \"1\" }\nmax_nodes = 8\n[partitions.short]\n\
                    max_time = \"3:00:00\"\nmax_gpus = 1\nmax_nodes = 2";
        Site { name: "north".into(), ..toml::from_str(text).unwrap() }
    }

    #[test]
    fn a_site_fills_in() {
        let config = config(
            "account = \"def-me\"\ntime = \"12:00:00\"\ngpus_per_node = 2\nmodules = [\"b\"]\n\
             env = { Y = \"2\" }",
        );
        let request = config.request(Some(&site()), 1).unwrap();
        assert_eq!(request.gpus.as_ref().unwrap().to_string(), "h100:2");
        assert_eq!(request.cpus, Some(24));
        assert_eq!(request.memory, Some((MemoryPer::Gpu, "124G".parse().unwrap())));
        assert_eq!(request.modules, ["a/1", "b"]);
        assert_eq!(request.env["X"], "1");
        assert_eq!(request.env["Y"], "2");
        assert!(request.requeue);
        let [warning] = request.warnings.as_slice() else { panic!("{:?}", request.warnings) };
        let start = "slurm.gpus_per_node asks for 2 GPUs, and a run uses one: devices.gpus = 2";
        assert!(warning.starts_with(start), "{warning}");
    }

    #[test]
    fn a_partition_that_the_site_does_not_list_is_said() {
        let with = |partition: &str| {
            let config = config(&format!(
                "account = \"x\"\ntime = \"1:00:00\"\npartition = \"{partition}\""
            ));
            config.request(Some(&site()), 1).unwrap().warnings
        };
        assert_eq!(
            with("shrot"),
            ["site `north` says nothing of the partition `shrot`, did you mean `short`? (known: \
              short): its limits are the cluster's to say"]
        );
        assert!(with("short").is_empty());
    }

    #[test]
    fn without_a_site_what_is_left_to_the_cluster_is_said() {
        let request = config("").request(None, 1).unwrap();
        assert_eq!(request.gpus.unwrap().to_string(), "1");
        assert_eq!((request.cpus, request.memory, request.warnings.len()), (None, None, 2));
        assert_eq!(config("").request(None, 4).unwrap().gpus.unwrap().to_string(), "4");
        let request = config("gpus_per_node = 4").request(None, 4).unwrap();
        assert!(!request.warnings.iter().any(|warning| warning.contains("a run uses")));
        let error = config("gpus_per_node = 2").request(None, 4).unwrap_err().to_string();
        assert!(error.contains("2 is less than the 4 GPUs of devices.gpus"), "{error}");

        let request = config("gpus_per_node = 0").request(None, 1).unwrap();
        assert_eq!(request.gpus, None);
        assert_eq!(config("").request(None, 0).unwrap().gpus, None);
        assert!(!config("on_interrupt = \"resubmit\"").request(None, 0).unwrap().requeue);
    }

    #[test]
    fn gpus_are_asked_for_by_the_key_or_by_an_option() {
        for (text, option) in [
            ("", Some("--gpus-per-node=1")),
            ("gpus_per_node = \"gpu:h100:1\"", Some("--gpus-per-node=h100:1")),
            ("gpus_per_node = 0", None),
            ("gpus_per_node = 0\nextra = [\"--mail-type=END\", \"-G 2\"]", Some("-G 2")),
            ("gpus_per_node = 0\nextra = [\"--gres=gpu:a100:2\"]", Some("--gres=gpu:a100:2")),
            ("gpus_per_node = 0\nextra = [\"--gres=nvme:1\", \"--gpus=0\"]", None),
        ] {
            let request = config(text).request(None, 1).unwrap();
            assert_eq!(request.asks_for_gpus().as_deref(), option, "{text}");
        }
        // Where none is used, no number of used ones is said.
        let request = config("gpus_per_node = 4").request(None, 0).unwrap();
        assert!(!request.warnings.iter().any(|warning| warning.contains("a run uses")));
    }

    #[test]
    fn no_number_is_too_large_to_be_refused() {
        let config = config("account = \"x\"\ngpus_per_node = 4294967295");
        let message = config.request(Some(&site()), 1).unwrap_err().to_string();
        assert!(message.contains("h100:4294967295 is more than site `north`"), "{message}");
    }

    #[test]
    fn what_the_site_does_not_allow() {
        for (text, said) in [
            (
                "",
                "site `north` takes jobs with an account only: set slurm.account, such as \
                 \"def-someone\"",
            ),
            (
                "account = \"x\"\ntime = \"8-00:00:00\"",
                "slurm.time: 8-00:00:00 is more than site `north` allows: at most 7-00:00:00",
            ),
            (
                "account = \"x\"\npartition = \"short\"\ntime = \"4:00:00\"",
                "partition `short` allows: at most 03:00:00",
            ),
            (
                "account = \"x\"\npartition = \"short\"\ngpus_per_node = \"h100:2\"",
                "slurm.gpus_per_node: h100:2 is more than site `north`, partition `short` has: at \
                 most 1",
            ),
            ("account = \"x\"\ngpus_per_node = 0\nmem_per_gpu = \"1G\"", "set slurm.mem instead"),
            (
                "account = \"x\"\nnodes = 9",
                "slurm.nodes: 9 is more than site `north` allows: at most 8",
            ),
            (
                "account = \"x\"\nnodes = 3\npartition = \"short\"",
                "partition `short` allows: at most 2",
            ),
            (
                "account = \"x\"\nnodes = 2\npartition = \"short\"",
                "slurm.gpus_per_node: 1 on each of 2 nodes is more than site `north` allows a job: at \
                 most 1",
            ),
        ] {
            let message = config(text).request(Some(&site()), 1).unwrap_err().to_string();
            assert!(message.contains(said), "{message}");
        }
        let workstation = Site { scheduler: Scheduler::None, ..site() };
        let message = config("").request(Some(&workstation), 1).unwrap_err().to_string();
        assert!(message.contains("run `vim-train train` there directly"), "{message}");
    }
}
