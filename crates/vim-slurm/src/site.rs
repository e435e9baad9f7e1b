//! Sites: the differences between clusters, one file per cluster.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vim_config::{hint, is_variable_name};

use crate::config::is_one_line;
use crate::error::SlurmError;
use crate::values::{Memory, TimeLimit, is_gpu_kind};

/// The environment variable that names the site if `slurm.site` does not.
const SITE_VARIABLE: &str = "VIM_TRAIN_SITE";

/// The scheduler of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// SLURM.
    #[default]
    Slurm,
    /// None: a workstation, where programs are started directly.
    None,
}

/// Limits of a partition that SLURM itself does not report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SiteLimits {
    /// The longest time limit.
    pub max_time: Option<TimeLimit>,
    /// The kind of its GPUs.
    pub gpu_type: Option<String>,
    /// The most GPUs per job, of all of its nodes together.
    pub max_gpus: Option<u32>,
    /// The most nodes per job.
    pub max_nodes: Option<u32>,
    /// Cores for each GPU.
    pub cpus_per_gpu: Option<u32>,
    /// Memory for each GPU.
    pub mem_per_gpu: Option<Memory>,
}

/// A site's file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Site {
    /// Its name: that of the file without `.toml`.
    #[serde(skip)]
    pub name: String,
    /// The file it was read from.
    #[serde(skip)]
    pub path: Option<PathBuf>,
    /// What and where it is, on one line.
    pub description: Option<String>,
    /// Its scheduler.
    pub scheduler: Scheduler,
    /// The partition, unless the configuration names one.
    pub partition: Option<String>,
    /// The quality of service, unless the configuration names one.
    pub qos: Option<String>,
    /// Whether a job needs an account.
    pub account_required: bool,
    /// An example of an account.
    pub account_example: Option<String>,
    /// The kind of its GPUs, as `--gpus-per-node` takes it.
    pub gpu_type: Option<String>,
    /// GPUs of a node.
    pub gpus_per_node: Option<u32>,
    /// The most nodes per job.
    pub max_nodes: Option<u32>,
    /// Cores for each GPU.
    pub cpus_per_gpu: Option<u32>,
    /// Memory for each GPU, unless the configuration names an amount.
    pub mem_per_gpu: Option<Memory>,
    /// Memory for each core, unless the configuration names an amount.
    pub mem_per_cpu: Option<Memory>,
    /// Modules to load.
    pub modules: Vec<String>,
    /// Environment variables of jobs.
    pub env: BTreeMap<String, String>,
    /// The node's local disk if SLURM does not set `SLURM_TMPDIR`; may contain variables, as in
    /// `/scratch/$SLURM_JOB_ID`.
    pub tmpdir: Option<String>,
    /// The longest time limit.
    pub max_time: Option<TimeLimit>,
    /// Further options for sbatch.
    pub extra: Vec<String>,
    /// Notes for its users, one line each.
    pub notes: Vec<String>,
    /// Limits of partitions, by name.
    pub partitions: BTreeMap<String, SiteLimits>,
}

/// Where sites are searched by name.
#[derive(Clone, Debug, Default)]
pub struct SiteSearch {
    /// Folders of site files; the first match counts.
    pub folders: Vec<PathBuf>,
    /// The default site, `$VIM_TRAIN_SITE`.
    pub variable: Option<String>,
}

impl SiteSearch {
    /// `configs/sites` in the working folder, then `vim-train/sites` in the user's configuration.
    pub fn from_env() -> Self {
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let home = || set("HOME").map(|home| PathBuf::from(home).join(".config"));
        let user = set("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
        let user = user.map(|folder| folder.join("vim-train/sites"));
        Self {
            folders: [Some("configs/sites".into()), user].into_iter().flatten().collect(),
            variable: env::var(SITE_VARIABLE).ok().filter(|name| !name.is_empty()),
        }
    }

    /// All known names.
    fn names(&self) -> Vec<String> {
        let entries = self.folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let files = paths.filter(|path| path.extension().is_some_and(|end| end == "toml"));
        let names = files.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
        let mut names: Vec<String> = names.collect();
        names.sort();
        names.dedup();
        names
    }
}

impl Site {
    /// The site that `slurm.site` (`name`) or else the environment names.
    ///
    /// # Errors
    ///
    /// As [`Site::find`].
    pub fn choose(name: Option<&str>, search: &SiteSearch) -> Result<Option<Self>, SlurmError> {
        let name = name.or(search.variable.as_deref());
        name.map(|name| Self::find(name, search)).transpose()
    }

    /// The site in the file `name`, or the site of that name.
    ///
    /// # Errors
    ///
    /// If there is none, or its file is invalid.
    pub fn find(name: &str, search: &SiteSearch) -> Result<Self, SlurmError> {
        if name.contains('/') || Path::new(name).extension().is_some_and(|end| end == "toml") {
            return Self::read(Path::new(name));
        }
        let files = search.folders.iter().map(|folder| folder.join(format!("{name}.toml")));
        if let Some(file) = files.into_iter().find(|file| file.is_file()) {
            return Self::read(&file);
        }
        let known = search.names();
        let folders: Vec<String> =
            search.folders.iter().map(|folder| folder.display().to_string()).collect();
        Err(SlurmError::UnknownSite {
            name: name.to_owned(),
            hint: hint(name, known.iter().map(String::as_str)),
            places: folders.join(" or "),
        })
    }

    /// The site in the file `path`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is invalid.
    pub fn read(path: &Path) -> Result<Self, SlurmError> {
        let text = vim_config::read(path).map_err(SlurmError::io("read", path))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let site = Self::parse(&text, &name)
            .map_err(|problem| SlurmError::Site { path: path.to_owned(), problem })?;
        Ok(Self { path: Some(path.to_owned()), ..site })
    }

    /// Parses the file of the site `name`.
    fn parse(text: &str, name: &str) -> Result<Self, String> {
        let site: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(0, |span| {
                text.get(..span.start).unwrap_or_default().matches('\n').count() + 1
            });
            format!("line {line}: {}", error.message().replace('\n', ", "))
        })?;
        if site.mem_per_gpu.is_some() && site.mem_per_cpu.is_some() {
            return Err("mem_per_cpu does not go with mem_per_gpu: SLURM takes one of them".into());
        }
        if let Some(name) = site.env.keys().find(|name| !is_variable_name(name)) {
            return Err(format!("env: {name:?} is no name of a variable"));
        }
        let named = [("partition", &site.partition), ("qos", &site.qos)];
        let named = named.into_iter().chain([("gpu_type", &site.gpu_type)]);
        let values = named.filter_map(|(key, value)| Some((key, value.as_ref()?)));
        let values = values
            .chain(site.env.values().map(|value| ("env", value)))
            .chain(site.modules.iter().map(|value| ("modules", value)))
            .chain(site.extra.iter().map(|value| ("extra", value)));
        if let Some((key, value)) = values.into_iter().find(|(_, value)| !is_one_line(value)) {
            return Err(format!("{key}: {value:?} has a line break or a zero byte"));
        }
        let kinds = site.partitions.values().map(|limits| &limits.gpu_type);
        let wrong = kinds.chain([&site.gpu_type]).flatten().find(|kind| !is_gpu_kind(kind));
        if let Some(kind) = wrong {
            return Err(format!("gpu_type: {kind:?} is no kind of GPU such as \"h100\""));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/_-.${}".contains(c);
        if let Some(folder) = site.tmpdir.as_ref().filter(|folder| !folder.chars().all(is_plain)) {
            return Err(format!("tmpdir: {folder:?} is more than a path with $VARIABLES in it"));
        }
        Ok(Self { name: name.to_owned(), ..site })
    }

    /// Its limits of a partition.
    pub fn limits(&self, partition: Option<&str>) -> Option<&SiteLimits> {
        self.partitions.get(partition?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUGH: &str = "gpu_type = \"h100\"\ncpus_per_gpu = 12\nmem_per_gpu = \"124G\"\n\
                         max_time = \"7-00:00:00\"\n[partitions.short]\nmax_time = \"03:00:00\"\n";

    #[test]
    fn found_by_name_by_path_and_by_variable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("north.toml");
        fs::write(&path, ROUGH).unwrap();
        let search =
            SiteSearch { folders: vec![folder.path().to_owned()], variable: Some("north".into()) };
        let by_name = Site::find("north", &search).unwrap();
        assert_eq!((by_name.name.as_str(), by_name.cpus_per_gpu), ("north", Some(12)));
        assert!(by_name.limits(Some("short")).is_some() && by_name.limits(Some("long")).is_none());
        assert_eq!(Site::find(path.to_str().unwrap(), &search).unwrap(), by_name);
        let of_variable = Site::choose(None, &search).unwrap();
        assert_eq!(of_variable, Some(by_name));
        assert_eq!(Site::choose(None, &SiteSearch::default()).unwrap(), None);

        let message = Site::find("nroth", &search).unwrap_err().to_string();
        assert!(message.contains("did you mean `north`? (known: north)"), "{message}");
    }

    #[test]
    fn mistakes_have_a_line() {
        for (text, said) in [
            ("\ngpu_tpye = \"h100\"", "line 2: unknown field `gpu_tpye`"),
            ("mem_per_gpu = \"1G\"\nmem_per_cpu = \"1G\"", "SLURM takes one of them"),
            ("max_time = \"long\"", "12:00:00"),
            ("tmpdir = \"/x; rm -r /\"", "more than a path"),
            ("env = { \"a b\" = \"c\" }", "no name of a variable"),
            ("env = { A = \"b\\nc\" }", "env: \"b\\nc\" has a line break"),
            ("partition = \"b\\nc\"", "partition: \"b\\nc\" has a line break"),
            ("gpu_type = \"gpu\"", "gpu_type: \"gpu\" is no kind of GPU such as \"h100\""),
            ("[partitions.short]\ngpu_type = \"gpu:h100\"", "\"gpu:h100\" is no kind of GPU"),
            ("extra = [\"--x\\nrm\"]", "extra: \"--x\\nrm\" has a line break"),
        ] {
            let problem = Site::parse(text, "x").unwrap_err();
            assert!(problem.contains(said), "{problem}");
        }
    }
}
