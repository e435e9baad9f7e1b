//! `vim-train slurm logs`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use vim_slurm::Client;

use super::names::{self, TaskArg};
use super::output::Output;
use crate::commands::runs::RootArg;
use crate::error::Error;

pub(super) const EXAMPLES: &str = "\
Examples:
  vim-train slurm logs zoh-s0
  vim-train slurm logs zoh-s0 -f              as it grows, until the job has ended
  vim-train slurm logs ablation --task 3      of a sweep, the run with this number in `sweep status`

A job that is requeued writes on in its file, one that is submitted again has another: the last is shown. The run's own log is log.txt in its folder.";

/// Polling intervals of a growing file and of its job.
const GROWN: Duration = Duration::from_millis(500);
const ENDED: Duration = Duration::from_secs(10);

/// `vim-train slurm logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// The run or sweep: its folder, or its name in the root.
    #[arg(value_name = "RUN")]
    pub name: PathBuf,
    /// Where names are looked for.
    #[command(flatten)]
    pub root: RootArg,
    /// Which run of a sweep.
    #[command(flatten)]
    pub which: TaskArg,
    /// Go on as the file grows, until the job has ended.
    #[arg(short, long)]
    pub follow: bool,
}

pub(super) fn run(args: &LogsArgs) -> Result<(), Error> {
    let submitted = names::one(&args.name, &args.root.root)?;
    let output = Output::of(&submitted, args.which.task)?;
    let client = Client::new();
    let is_active = || {
        let job = names::known(&client, output.job)?;
        Ok(job.is_some_and(|job| job.state.is_active()))
    };
    if args.follow {
        return follow(&output, is_active);
    }
    let path = output.path();
    match File::open(&path) {
        Ok(mut file) => copy(&mut file, &path).map(|_| ()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_active()? => {
            eprintln!("job {} has not started: no {} yet", output.job, path.display());
            Ok(())
        }
        Err(error) => Err(Error::io("open", path)(error)),
    }
}

fn follow(output: &Output, is_active: impl Fn() -> Result<bool, Error>) -> Result<(), Error> {
    let (mut file, mut path) = (None, PathBuf::new());
    loop {
        // Poll the job before the file, so that its last output is read.
        let active = is_active()?;
        let until = Instant::now() + ENDED;
        loop {
            if file.is_none() {
                path = output.path();
                match File::open(&path) {
                    Ok(opened) => file = Some(opened),
                    Err(error) if error.kind() == io::ErrorKind::NotFound && active => {}
                    Err(error) => return Err(Error::io("open", path)(error)),
                }
            }
            if let Some(file) = &mut file
                && !copy(file, &path)?
            {
                return Ok(());
            }
            if !active || Instant::now() >= until {
                break;
            }
            sleep(GROWN);
        }
        if !active {
            return Ok(());
        }
    }
}

/// Copies the rest of `file` to stdout; `false` if the reader has closed stdout.
fn copy(file: &mut File, path: &Path) -> Result<bool, Error> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    let mut stdout = io::stdout().lock();
    match stdout.write_all(&bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Error::io("write to", "stdout")(error)),
    }
}
