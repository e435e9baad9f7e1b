//! `vim-train sweep submit`: submits unfinished runs as a SLURM array.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf, absolute};
use std::time::SystemTime;

use clap::Args;
use serde_json::json;
use vim_engine::Error;
use vim_engine::config::Loaded;
use vim_engine::output::{print, print_json};
use vim_engine::run_folder::check_nameable;
use vim_engine::work::slurm::request::{check_build, say_warnings};
use vim_engine::work::sweep::folder::{Sweep, outcomes_with_jobs};
use vim_engine::work::sweep::packs::{self, Array};
use vim_engine::work::sweep::plan::find_or_plan;
use vim_engine::work::training::preflight;
use vim_run::rfc3339;
use vim_slurm::submissions::{self, FOLDER, Submission};
use vim_slurm::{BatchScript, Client, CommandWord, JobRequest, SlurmConfig};
use vim_sweep::{RunOutcome, RunState};

use super::WhichArgs;

const EXAMPLES: &str = "\
Examples:
  vim-train sweep submit configs/ablation/cifar100.toml --dry-run
  vim-train sweep submit configs/ablation/cifar100.toml --set slurm.site=rorqual --set slurm.account=def-yourpi
  vim-train sweep submit data/runs/cifar100-ablation       what is missing or was interrupted

Runs that are finished, at work or in the queue are left out; failed ones are `sweep retry --submit`.
sweep.max_parallel throttles the array. With sweep.pack = \"node\" a task takes a node and trains a run
on each of its GPUs. The arrays' numbers go to stdout.";

/// Default limit of array tasks without a cluster: SLURM's default.
const DEFAULT_ARRAY: u32 = 1001;

/// Hand what is not finished to SLURM, as an array.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SubmitArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Plan, print the batch scripts, and submit nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print the submissions on stdout as JSON.
    #[arg(long, conflicts_with = "dry_run")]
    json: bool,
}

pub(super) fn run(args: &SubmitArgs) -> Result<(), Error> {
    let sweep = find_or_plan(&args.which.which())?;
    let chosen: Vec<RunOutcome> = outcomes_with_jobs(&sweep)
        .into_iter()
        .filter(|run| matches!(run.state, RunState::Missing | RunState::Interrupted))
        .collect();
    submit(&sweep, &chosen, args.dry_run, args.json)
}

pub(super) fn submit(
    sweep: &Sweep,
    chosen: &[RunOutcome],
    dry_run: bool,
    json: bool,
) -> Result<(), Error> {
    if chosen.is_empty() {
        eprintln!("{}: nothing to submit", sweep.folder.display());
        return Ok(());
    }
    let folder = absolute(&sweep.folder).map_err(Error::io("find", &sweep.folder))?;
    let mut absent = BTreeSet::new();
    let mut configs = Vec::new();
    for run in chosen {
        let loaded = Loaded::run(&folder.join(&sweep.plan.entries[run.index].config), &[])?;
        absent.extend(preflight(&loaded.config).map_err(|error| loaded.place(error))?);
        configs.push(loaded.config);
    }
    say_warnings(&absent);
    // All requests are equal: `sweep plan` checks this.
    let config = &configs[0];
    let (site, request, each) = packs::request(sweep, config)?;
    say_warnings(&request.warnings);
    let usable = configs.iter().try_for_each(|run| check_build(run, &request, each.is_some()));
    // A dry run prints the scripts first.
    if !dry_run && usable.is_err() {
        return usable;
    }
    let client = Client::new();
    if config.slurm.output != SlurmConfig::default().output {
        eprintln!(
            "warning: slurm.output is of single runs: an array's goes to {}",
            folder.join(FOLDER).display()
        );
    }
    let is_there = client.check();
    let largest = if let (true, Err(error)) = (dry_run, &is_there) {
        eprintln!("note: no cluster has been asked: {error}");
        DEFAULT_ARRAY
    } else {
        is_there?;
        say_warnings(&client.check_request(&request)?);
        client.max_array_size()?
    };
    let scripts = scripts(sweep, &folder, chosen, &request, (largest, each))?;
    if dry_run {
        for note in site.iter().flat_map(|site| &site.notes) {
            eprintln!("note: {note}");
        }
        for (array, script, path) in &scripts {
            eprintln!("would write and submit {}", path.display());
            array.described().iter().for_each(|line| eprintln!("{line}"));
            print(&script.render()?)?;
        }
        return usable;
    }
    let submitted = scripts.into_iter().map(|script| send(&client, &folder, script));
    let submitted = submitted.collect::<Result<Vec<_>, _>>()?;
    if json {
        return print_json(&json!({ "folder": folder, "submissions": submitted }));
    }
    let numbers: Vec<String> = submitted.iter().map(|known| known.job.to_string()).collect();
    print(&numbers.join("\n"))
}

/// Submits an array from the sweep's `folder`, and records it there.
fn send(
    client: &Client,
    folder: &Path,
    (array, script, path): (Array, BatchScript, PathBuf),
) -> Result<Submission, Error> {
    // Written first: the tasks read it.
    array.write_lists(&path)?;
    let job = client.submit(&script, &path)?;
    let array = script.array.as_ref().map(ToString::to_string);
    let submission = Submission {
        job,
        array,
        submitted: rfc3339(SystemTime::now()),
        script: path,
        output: Some(script.output.into()),
    };
    // Record each submission at once, in case the next one fails.
    submissions::append(folder, &submission)
        .map_err(Error::io("write", submissions::path(folder)))?;
    let tasks = submission.array.as_deref().unwrap_or_default();
    // As `0-3%2`.
    let tasks = match tasks.split_once('%') {
        Some((tasks, most)) => format!("{tasks}, {most} at a time"),
        None => tasks.to_owned(),
    };
    eprintln!("submitted {} as job {job}, tasks {tasks}", folder.display());
    Ok(submission)
}

/// One array within the cluster's limit, and the path of its script.
fn scripts(
    sweep: &Sweep,
    folder: &Path,
    chosen: &[RunOutcome],
    request: &JobRequest,
    (largest, each): (u32, Option<usize>),
) -> Result<Vec<(Array, BatchScript, PathBuf)>, Error> {
    let program = env::current_exe().map_err(Error::io("find", "this program"))?;
    let here = env::current_dir().map_err(Error::io("find", "."))?;
    check_nameable(&here)?;
    check_nameable(folder)?;
    let inside = folder.join(FOLDER);
    let known =
        submissions::read(folder).map_err(Error::io("read", submissions::path(folder)))?.len();
    let section = &sweep.origins.sweep;
    let most = section.max_parallel.map(std::num::NonZero::get);
    let indices: Vec<u32> =
        chosen.iter().map(|run| u32::try_from(run.index).unwrap_or(u32::MAX)).collect();
    // Escape percent signs, which SLURM would read as patterns.
    let literal = inside.display().to_string().replace('%', "%%");
    let script = |array: Array| {
        let path = inside.join(&array.script);
        let text = |path: &Path| CommandWord::from(path.to_string_lossy());
        let mut command = vec![text(&program), "sweep".into(), "task".into()];
        command.extend(array.arguments(&path).into_iter().map(CommandWord::from));
        command.extend([CommandWord::ArrayIndex, text(folder)]);
        let script = BatchScript {
            request: request.clone(),
            name: section.name.clone(),
            output: format!("{literal}/%x-%A_%a.out"),
            chdir: here.clone(),
            array: Some(array.array.clone()),
            dependencies: Vec::new(),
            command,
        };
        (array, script, path)
    };
    Ok(Array::all(&indices, each, largest, most, known).into_iter().map(script).collect())
}
