//! `vim-train runs show`.

use std::fs;
use std::io::stdout;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use vim_run::checkpoint::best_step;
use vim_run::metrics::ScoreKind;
use vim_run::{checkpoints_in, fitted, printable};

use super::list::steps;
use super::plot::PlotArgs;
use super::run::Run;
use super::{RootArg, one};
use crate::error::Error;
use crate::output::summary::{bytes, duration, rate};
use crate::output::{print, print_json};
use crate::task::kinds::SCORES;
use crate::train::history::Evaluated;

const EXAMPLES: &str = "\
Examples:
  vim-train runs show zoh-s0
  vim-train runs show zoh-s0 --plot curves.svg
  vim-train runs show /scratch/runs/zoh-s0 --json";

/// Say all about one run: configuration, machine, numbers, checkpoints, end.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// The run: its folder, or its name in the root.
    #[arg(value_name = "RUN")]
    name: PathBuf,
    #[command(flatten)]
    root: RootArg,
    #[command(flatten)]
    plot: PlotArgs,
    /// Print it as JSON, with the whole configuration and all evaluations.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ShowArgs) -> Result<(), Error> {
    args.plot.check()?;
    let run = one(&args.name, &args.root.root)?;
    args.plot.write(std::slice::from_ref(&run), std::slice::from_ref(&run.row.name))?;
    if args.json { print_json(&as_json(&run)) } else { print(&fitted(&text(&run), stdout())) }
}

fn as_json(run: &Run) -> serde_json::Value {
    let history = &run.history;
    json!({
        "run": run.row,
        "exit": run.exit,
        "last_train": history.last_train,
        "val": history.val,
        "test": history.test,
        "watched": history.watched,
        "images_per_second": history.median_speed,
        "seconds": history.seconds,
        "checkpoints": run.checkpoints.iter().map(|(step, _)| step).collect::<Vec<_>>(),
        "environment": run.environment,
        "config": run.config,
    })
}

fn text(run: &Run) -> String {
    let (row, history) = (&run.row, &run.history);
    let config = |keys: &[&str]| -> Option<String> {
        let set = keys.iter().filter_map(|key| {
            let name = key.split_once('.').map_or(*key, |(_, name)| name);
            Some(format!("{name} {}", plain(run.config.get(*key)?)))
        });
        let set: Vec<String> = set.collect();
        (!set.is_empty()).then(|| set.join(", "))
    };
    let epoch = history.last_train.and_then(|train| train.epoch);
    let epochs = epoch.zip(run.config.get("train.epochs"));
    let done = epochs
        .map_or_else(String::new, |(epoch, epochs)| format!(", epoch {} of {epochs}", epoch + 1));
    let exit = run.exit.as_ref().map(|exit| format!(", exit code {}", exit.exit_code));
    let machine = ["host", "backend", "threads", "version", "commit"];
    let machine: Vec<String> =
        machine.iter().filter_map(|key| Some(format!("{key} {}", run.environment(key)?))).collect();
    let command = run.environment.get("command").and_then(serde_json::Value::as_array);
    let command = command
        .map(|words| words.iter().filter_map(|word| word.as_str()).collect::<Vec<_>>().join(" "));
    let train = history.last_train.map(|train| {
        let number = |name: &str, value: Option<f64>| {
            value.map_or_else(String::new, |value| format!(", {name} {value:.3e}"))
        };
        let loss = train.loss.map_or_else(|| "not finite".to_owned(), |loss| format!("{loss:.4}"));
        let (lr, norm) = (number("lr", train.lr), number("grad_norm", train.grad_norm));
        format!("step {}: loss {loss}{lr}{norm}", train.step)
    });
    let best = row.best.as_ref().zip(row.best_shown());
    let best = best.map(|(best, shown)| format!("{shown} at step {}", best.step));
    let speed = history.median_speed.map(|speed| format!("{} img/s", rate(speed)));
    let seconds = Duration::try_from_secs_f64(history.seconds).ok().filter(|t| !t.is_zero());
    let watched = history.split().name();
    let primary = row.primary;
    let [best_label, curve_label] = ["best", watched].map(|of| format!("{of} {}", primary.label));
    let [loss, score] = history.drawn();
    let rows = [
        ("run", Some(row.name.clone())),
        ("folder", Some(row.path.display().to_string())),
        ("status", Some(format!("{}{}", row.status, exit.unwrap_or_default()))),
        ("error", run.exit.as_ref().and_then(|exit| exit.error.clone())),
        ("steps", Some(format!("{}{done}", steps(row.step, row.total_steps)))),
        ("method", row.method.clone()),
        (
            "model",
            config(&[
                "model.preset",
                "model.depth",
                "model.d_model",
                "model.d_state",
                "model.image_size",
                "model.patch_size",
                "ssm.series",
            ]),
        ),
        ("data", config(&["data.dataset", "data.path", "augment.preset", "run.seed"])),
        ("recipe", config(&["train.epochs", "train.batch_size", "optim.lr", "optim.weight_decay"])),
        ("machine", (!machine.is_empty()).then(|| machine.join(", "))),
        ("job", job(run)),
        ("started", run.environment("started")),
        ("command", command),
        ("train", train),
        ("val", history.last_val().map(scores)),
        (best_label.as_str(), best),
        ("test", history.test.as_ref().map(scores)),
        ("speed", speed),
        ("time", seconds.map(duration)),
        ("loss", loss),
        (curve_label.as_str(), score),
    ];
    let mut lines: Vec<String> = rows
        .into_iter()
        .filter_map(|(label, value)| Some(format!("{label:<12}{}", printable(&value?))))
        .collect();
    lines.extend(checkpoints(run));
    lines.extend(row.problems.iter().map(|why| format!("{:<12}{}", "problem", printable(why))));
    lines.join("\n")
}

fn job(run: &Run) -> Option<String> {
    let slurm = run.environment.get("slurm")?;
    let text = |name: &str| slurm.get(name).and_then(serde_json::Value::as_str);
    let task = text("SLURM_ARRAY_JOB_ID").zip(text("SLURM_ARRAY_TASK_ID"));
    let id = task.map(|(array, task)| format!("{array}_{task}"));
    let id = id.or_else(|| text("SLURM_JOB_ID").map(str::to_owned))?;
    let restarts = text("SLURM_RESTART_COUNT").map(|count| format!(", restarts {count}"));
    Some(format!("{id}{}", restarts.unwrap_or_default()))
}

fn scores(evaluated: &Evaluated) -> String {
    let Evaluated { step, checkpoint, averaged, scores } = evaluated;
    let averaged = averaged.as_ref().map_or_else(String::new, |name| format!(", {name}"));
    let show = |kind: &ScoreKind, number: f64| match number.is_finite() {
        true => kind.show(number),
        false => "not finite".to_owned(),
    };
    format!("step {step} ({checkpoint}{averaged}): {}", scores.describe(&SCORES, show))
}

/// One line per checkpoint: step, size, and whether it is the best.
fn checkpoints(run: &Run) -> Vec<String> {
    let best = best_step(&checkpoints_in(&run.row.path));
    let lines = run.checkpoints.iter().map(|(step, path)| {
        let mark = if best == Some(*step) { ", the best" } else { "" };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        format!("{:<12}{name}, {}{mark}", "checkpoint", bytes(size(path)))
    });
    lines.collect()
}

fn size(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

/// A value without the quotes of text.
pub(super) fn plain(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
