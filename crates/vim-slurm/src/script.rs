//! Batch scripts.

use std::fmt::Write;
use std::path::PathBuf;

use crate::array::JobArray;
use crate::config::is_one_line;
use crate::error::SlurmError;
use crate::request::JobRequest;

/// A word of the job's command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandWord {
    /// Literal text.
    Text(String),
    /// The index of an array task's work: its task number plus the array's offset.
    ArrayIndex,
}

impl<T: Into<String>> From<T> for CommandWord {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
}

/// A job, or an array of jobs.
///
/// Its last line replaces the shell by srun. Signals to the batch script and to the job's step then
/// both reach the trainer, and the trainer's exit code is the job's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchScript {
    /// What the job asks for.
    pub request: JobRequest,
    /// The job's name.
    pub name: String,
    /// The output file; `%x`, `%j`, `%A` and `%a` are SLURM's patterns.
    pub output: String,
    /// The working folder.
    pub chdir: PathBuf,
    /// The tasks, if this is an array.
    pub array: Option<JobArray>,
    /// Dependencies besides that of the request, each as `afterok:12`.
    pub dependencies: Vec<String>,
    /// The command line.
    pub command: Vec<CommandWord>,
}

impl BatchScript {
    /// The script's text.
    ///
    /// # Errors
    ///
    /// If a value contains a line break or a zero byte.
    pub fn render(&self) -> Result<String, SlurmError> {
        let request = &self.request;
        let mut text = String::from("#!/bin/bash\n");
        for (option, value) in self.options() {
            let value = value
                .map_or_else(|| Ok(String::new()), |value| Ok(format!("={}", quote(&value)?)))?;
            let _ = writeln!(text, "#SBATCH {option}{value}");
        }
        for option in &request.extra {
            let _ = writeln!(text, "#SBATCH {option}");
        }
        text.push('\n');
        if !request.modules.is_empty() {
            text.push_str("# `module` is a function of login shells at some sites.\n");
            text.push_str("command -v module >/dev/null || . /etc/profile\n");
            text.push_str("module load");
            for module in &request.modules {
                let _ = write!(text, " {}", quote(module)?);
            }
            text.push_str(" || exit 69\n");
        }
        if let Some(folder) = &request.tmpdir {
            let _ = writeln!(text, "export SLURM_TMPDIR=\"${{SLURM_TMPDIR:-{folder}}}\"");
            // This script runs on the first node alone.
            text.push_str(if request.nodes > 1 { "srun " } else { "" });
            text.push_str("mkdir -p \"$SLURM_TMPDIR\"\n");
        }
        for (name, value) in &request.env {
            let _ = writeln!(text, "export {name}={}", quote(value)?);
        }
        let mut srun = String::from("exec srun --kill-on-bad-exit=1");
        if request.cpus.is_some() {
            // SLURM 22.05 to 23.11: srun does not inherit --cpus-per-task from sbatch.
            text.push_str("export SRUN_CPUS_PER_TASK=\"$SLURM_CPUS_PER_TASK\"\n");
            srun.push_str(" --cpus-per-task=\"$SLURM_CPUS_PER_TASK\"");
        }
        text.push_str(&srun);
        for word in &self.command {
            let _ = write!(text, " {}", self.word(word)?);
        }
        text.push('\n');
        Ok(text)
    }

    /// The job's name as passed to SLURM.
    pub fn job_name(&self) -> String {
        job_name(&self.name)
    }

    fn options(&self) -> Vec<(&'static str, Option<String>)> {
        let request = &self.request;
        let mut options = vec![("--job-name", Some(self.job_name()))];
        let mut add = |option, value: Option<String>| {
            options.extend(value.map(|value| (option, Some(value))));
        };
        add("--account", request.account.clone());
        add("--partition", request.partition.clone());
        add("--qos", request.qos.clone());
        add("--time", request.time.map(|time| time.to_string()));
        add("--nodes", Some(request.nodes.to_string()));
        add("--ntasks-per-node", Some("1".into()));
        add("--gpus-per-node", request.gpus.as_ref().map(ToString::to_string));
        add("--cpus-per-task", request.cpus.map(|cpus| cpus.to_string()));
        if let Some((per, amount)) = request.memory {
            add(per.option(), Some(amount.to_string()));
        }
        add("--signal", Some(request.signal.to_string()));
        options.push((if request.requeue { "--requeue" } else { "--no-requeue" }, None));
        let mut add = |option, value: String| options.push((option, Some(value)));
        // One log for all attempts.
        add("--open-mode", "append".into());
        add("--chdir", self.chdir.display().to_string());
        add("--output", self.output.clone());
        if let Some(array) = &self.array {
            add("--array", array.to_string());
        }
        let given = request.dependency.iter().chain(&self.dependencies);
        let dependencies: Vec<&str> = given.map(String::as_str).collect();
        if !dependencies.is_empty() {
            add("--dependency", dependencies.join(","));
        }
        // A job whose dependency cannot be met any more would wait for ever.
        add("--kill-on-invalid-dep", "yes".into());
        options
    }

    fn word(&self, word: &CommandWord) -> Result<String, SlurmError> {
        match word {
            CommandWord::Text(text) => quote(text),
            CommandWord::ArrayIndex => {
                Ok(match self.array.as_ref().map_or(0, |array| array.offset) {
                    0 => "\"$SLURM_ARRAY_TASK_ID\"".into(),
                    offset => format!("\"$((SLURM_ARRAY_TASK_ID + {offset}))\""),
                })
            }
        }
    }
}

/// A word that the shell, and sbatch in its comments, reads as `text`.
fn quote(text: &str) -> Result<String, SlurmError> {
    let wrong = || SlurmError::Word(text.to_owned());
    if !is_one_line(text) {
        return Err(wrong());
    }
    // More characters than shlex leaves unquoted, so that patterns and lists stay readable.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./%,:@+=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return Ok(text.to_owned());
    }
    shlex::try_quote(text).map(Into::into).map_err(|_| wrong())
}

/// A job's name without characters that break the columns of `squeue` or the name of a log.
fn job_name(name: &str) -> String {
    let fits = |c: char| c.is_alphanumeric() || "-_.,+@".contains(c);
    let name: String = name.chars().map(|c| if fits(c) { c } else { '-' }).collect();
    name.trim_start_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SlurmConfig;
    use crate::site::Site;

    fn script(config: &str) -> BatchScript {
        let config: SlurmConfig = toml::from_str(config).unwrap();
        BatchScript {
            request: config.request(None, 0).unwrap(),
            name: "sweep/zoh s0".into(),
            output: "/scratch/u/it's here/%x-%j.out".into(),
            chdir: "/home/u".into(),
            array: None,
            dependencies: Vec::new(),
            command: vec!["/opt/vim-train".into(), "train".into(), "a b.toml".into()],
        }
    }

    #[test]
    fn everything_that_may_stand_in_one() {
        let site: Site = toml::from_str(
            "gpu_type = \"h100\"\ncpus_per_gpu = 12\n\
             modules = [\"StdEnv/2023\", \"cuda/12.6\"]\n\
             tmpdir = \"/localscratch/$USER.$SLURM_JOB_ID\"\n",
        )
        .unwrap();
        let config: SlurmConfig = toml::from_str(
            "account = \"def-someone\"\npartition = \"gpu\"\nqos = \"high\"\ntime = \"12:00:00\"\n\
             gpus_per_node = 4\nmem = \"0\"\ndependency = \"afterok:7\"\n\
             extra = [\"--mail-type=END\"]\nenv = { NOTE = \"it's $5\" }",
        )
        .unwrap();
        let script = BatchScript {
            request: config.request(Some(&site), 1).unwrap(),
            name: "disc-cifar".into(),
            output: "/scratch/u/disc-cifar/slurm/%x-%A_%a.out".into(),
            chdir: "/home/u/vim".into(),
            array: Some(JobArray { indices: vec![0, 1, 2, 5], offset: 1001, throttle: Some(8) }),
            dependencies: vec!["afterany:9".into()],
            command: ["/opt/vim-train", "sweep", "task", "/scratch/u/disc-cifar", "--index"]
                .into_iter()
                .map(CommandWord::from)
                .chain([CommandWord::ArrayIndex])
                .collect(),
        };
        assert_eq!(
            script.render().unwrap(),
            r#"#!/bin/bash
#SBATCH --job-name=disc-cifar
#SBATCH --account=def-someone
#SBATCH --partition=gpu
#SBATCH --qos=high
#SBATCH --time=12:00:00
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=h100:4
#SBATCH --cpus-per-task=48
#SBATCH --mem=0
#SBATCH --signal=USR2@240
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --chdir=/home/u/vim
#SBATCH --output=/scratch/u/disc-cifar/slurm/%x-%A_%a.out
#SBATCH --array=0-2,5%8
#SBATCH --dependency=afterok:7,afterany:9
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --mail-type=END

# `module` is a function of login shells at some sites.
command -v module >/dev/null || . /etc/profile
module load StdEnv/2023 cuda/12.6 || exit 69
export SLURM_TMPDIR="${SLURM_TMPDIR:-/localscratch/$USER.$SLURM_JOB_ID}"
mkdir -p "$SLURM_TMPDIR"
export NOTE="it's "'$5'
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
exec srun --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" /opt/vim-train sweep task /scratch/u/disc-cifar --index "$((SLURM_ARRAY_TASK_ID + 1001))"
"#
        );
    }

    #[test]
    fn little_asked_for_is_little_said_and_awkward_words_are_quoted() {
        assert_eq!(
            script("on_interrupt = \"none\"").render().unwrap(),
            r#"#!/bin/bash
#SBATCH --job-name=sweep-zoh-s0
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --signal=USR2@240
#SBATCH --no-requeue
#SBATCH --open-mode=append
#SBATCH --chdir=/home/u
#SBATCH --output="/scratch/u/it's here/%x-%j.out"
#SBATCH --kill-on-invalid-dep=yes

exec srun --kill-on-bad-exit=1 /opt/vim-train train 'a b.toml'
"#
        );
    }

    #[test]
    fn several_nodes_have_a_task_each() {
        let text = script("nodes = 3\ngpus_per_node = \"h100:4\"").render().unwrap();
        let options =
            "#SBATCH --nodes=3\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=h100:4\n";
        assert!(text.contains(options), "{text}");
        let site: Site = toml::from_str("tmpdir = \"/local/$SLURM_JOB_ID\"").unwrap();
        let config: SlurmConfig = toml::from_str("nodes = 2").unwrap();
        let request = config.request(Some(&site), 0).unwrap();
        let text = BatchScript { request, ..script("") }.render().unwrap();
        assert!(text.contains("\nsrun mkdir -p \"$SLURM_TMPDIR\"\n"), "{text}");
    }

    #[test]
    fn a_task_without_offset_is_its_number() {
        let array = JobArray { indices: vec![0, 1], offset: 0, throttle: None };
        let script = BatchScript {
            array: Some(array),
            command: vec!["x".into(), CommandWord::ArrayIndex],
            ..script("")
        };
        let text = script.render().unwrap();
        assert!(text.ends_with("srun --kill-on-bad-exit=1 x \"$SLURM_ARRAY_TASK_ID\"\n"), "{text}");
    }

    #[test]
    fn a_line_break_is_refused() {
        let script = BatchScript { output: "/a\nb".into(), ..script("") };
        assert!(script.render().unwrap_err().to_string().contains("\"/a\\nb\" has a line break"));
    }
}
