//! `vim-train config migrate`.

use std::path::{Path, PathBuf, absolute};

use clap::Args;
use serde_json::json;
use vim_data::{InputKind, read_input};
use vim_engine::Error;
use vim_engine::config::{Config, Origin, nearest};
use vim_engine::output::{check_free, check_no_input, print, print_json};
use vim_kernels::Discretization;
use vim_migrate::{Migration, Model, NotCarried, Script, migrate};
use vim_model::{Preset, REGISTERED};
use vim_run::storage::{Disk, replace};

const EXAMPLES: &str = "\
Examples:
  vim-train config migrate pt-vim-t.sh                        print the configuration
  vim-train config migrate pt-vim-t.sh -o configs/mine.toml
  vim-train config migrate cifar.sh -o mine.toml -- 3         the script with 3 as its $1
  vim-train config migrate all.sh --line 14                   of several trainings, the one in line 14
  vim-train config migrate run-all.sh -o configs/study.toml   methods and seeds, as a [sweep]

Reads scripts that start the original's main.py by python or torchrun, or other such scripts that are
beside them or where their paths say. Several trainings become a sweep. A placeholder such as <path> is
left as a commented key to fill in. What has no counterpart is listed, with the reason, in the file and
on stderr. A script that is broken (a merge that was never finished, options
that a missing backslash has cut off) is an error with its line, exit code 65.";

/// Turn a launch script of the original into a configuration.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MigrateArgs {
    /// The script.
    script: PathBuf,
    /// What the script is called with: its `$1`, `$2`, ….
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
    /// Where to write the configuration; left out: stdout.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The line of the training to take, where there are several.
    #[arg(long, value_name = "N")]
    line: Option<usize>,
    /// Write over the output if it is there.
    #[arg(long, requires = "output")]
    force: bool,
    /// Print the configuration, and what it does not say, as JSON.
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

pub(super) fn run(args: &MigrateArgs) -> Result<(), Error> {
    if let Some(output) = &args.output {
        check_no_input(output, [args.script.as_path()])?;
        check_free(output, args.force)?;
    }
    let read = read_input(&args.script, InputKind::Script);
    let bytes = read.map_err(Error::input(&args.script))?;
    let text = String::from_utf8_lossy(&bytes);
    let name = args.script.file_name().unwrap_or(args.script.as_os_str()).to_string_lossy();
    let (arguments, line) = (args.arguments.as_slice(), args.line);
    let called = |path: &str| called(&args.script, path);
    let script =
        Script { name: &name, text: &text, arguments, line, called: &called, model: &model };
    let migrated = migrate(script).map_err(|error| {
        let line = error.line.map_or_else(String::new, |line| format!(":{line}"));
        Error::data(format!("{}{line}: {error}", args.script.display()))
    })?;
    let Migration { toml, not_carried, notes } = &migrated;
    Config::from_toml(toml).map_err(|error| {
        error.at(Origin::File { path: args.script.clone(), position: line.map(|line| (line, 1)) })
    })?;
    if args.json {
        let listed = |not: &NotCarried| json!({"line": not.line, "what": not.what, "why": not.why});
        let listed: Vec<_> = not_carried.iter().map(listed).collect();
        return print_json(&json!({"config": toml, "not_carried": listed, "notes": notes}));
    }
    for NotCarried { what, line, why } in not_carried {
        eprintln!("not carried over: line {line}: {what}: {why}");
    }
    for note in notes {
        eprintln!("note: {note}");
    }
    match &args.output {
        None => print(toml),
        Some(output) => {
            replace(&Disk, output, toml.as_bytes()).map_err(Error::io("write", output))?;
            print(&output.display().to_string())
        }
    }
}

/// The text of a script that `script` calls by `path`: from a folder above it, or beside it.
fn called(script: &Path, path: &str) -> Option<String> {
    let script = absolute(script).ok()?;
    let above = script.ancestors().skip(1).map(|folder| folder.join(path));
    let beside = script.with_file_name(Path::new(path).file_name()?);
    let found = above.chain([beside]).find(|path| path.is_file())?;
    Some(String::from_utf8_lossy(&read_input(&found, InputKind::Script).ok()?).into_owned())
}

/// The preset that a name of the original stands for.
fn model(name: &str) -> Result<Model, String> {
    let (preset, method) = Preset::named(name).map_err(|error| {
        let known: Vec<String> = REGISTERED.iter().map(|model| model.name.to_owned()).collect();
        match nearest(name, &known) {
            Some(nearest) => format!("unknown model `{name}`, did you mean `{nearest}`?"),
            None => error,
        }
    })?;
    let discretization = method.unwrap_or(Discretization::Zoh).to_string();
    Ok(Model { preset: preset.to_string(), discretization })
}
