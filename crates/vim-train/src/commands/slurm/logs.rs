//! `vim-train slurm logs`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use vim_engine::Error;
use vim_engine::work::slurm::names::{self, Submitted};
use vim_engine::work::slurm::words::output_of_task;
use vim_engine::work::sweep::folder::log_of;
use vim_engine::work::sweep::packs::Tasks;
use vim_engine::work::sweep::run_name;
use vim_slurm::submissions::FOLDER;
use vim_slurm::{Client, JobId};

use super::TaskArg;

const EXAMPLES: &str = "\
Examples:
  vim-train slurm logs zoh-s0
  vim-train slurm logs zoh-s0 -f              as it grows, until the job has ended
  vim-train slurm logs ablation --task 3      of a sweep, the run with this number in `sweep status`

A job that is requeued writes on in its file, one that is submitted again has another: the last is shown. The run's own log is log.txt in its folder.";

/// Polling intervals of a growing file and of its job.
const GROWN: Duration = Duration::from_millis(500);
const ENDED: Duration = Duration::from_secs(10);

/// Print the output of a run's newest job.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LogsArgs {
    /// The run or sweep: its folder, or its name in the root.
    #[arg(value_name = "RUN")]
    name: PathBuf,
    #[command(flatten)]
    which: TaskArg,
    /// Go on as the file grows, until the job has ended.
    #[arg(short, long)]
    follow: bool,
}

pub(super) fn run(args: &LogsArgs) -> Result<(), Error> {
    let submitted = names::one(&args.name, &args.which.root.root)?;
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

/// The output of a job.
#[derive(Debug)]
pub(super) struct Output {
    job: JobId,
    place: Place,
}

#[derive(Debug)]
enum Place {
    File(PathBuf),
    /// The output of the task of a sweep in this folder.
    Task(PathBuf),
}

impl Output {
    /// The output of the last submission, or of the newest task for run number `run` of a sweep.
    pub(super) fn of(submitted: &Submitted, run: Option<u32>) -> Result<Self, Error> {
        let (name, last) = (&submitted.name, submitted.last());
        match (run, &last.output, &last.array) {
            (None, Some(path), None) => {
                Ok(Self { job: last.job, place: Place::File(path.clone()) })
            }
            (None, None, None) => {
                let folder = submitted.folder.join(FOLDER);
                Err(Error::data(format!(
                    "{name}: nothing says where the output of job {} is: look into {}",
                    last.job,
                    folder.display()
                )))
            }
            (None, _, Some(_)) => Err(Error::data(format!(
                "{name}: job {} is an array: --task I shows the output of one of its runs, by its number in `vim-train sweep status`",
                last.job
            ))),
            (Some(run), ..) => {
                let (job, submission) = submitted.task(run)?;
                if Tasks::of(&submission.script).are_packed() {
                    // The job's own output says when its runs begin and end.
                    let run_name = run_name(&submitted.folder, run)?;
                    let path = log_of(&submitted.folder, run as usize, &run_name);
                    return Ok(Self { job, place: Place::File(path) });
                }
                Ok(Self { job, place: Place::Task(submitted.folder.clone()) })
            }
        }
    }

    /// The output file's present or future path.
    pub(super) fn path(&self) -> PathBuf {
        match &self.place {
            Place::File(path) => path.clone(),
            Place::Task(folder) => output_of_task(folder, self.job),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use vim_slurm::submissions::Submission;

    use super::*;

    fn submission(job: u64, array: Option<&str>, script: &str) -> Submission {
        Submission {
            job: JobId { job, task: None },
            array: array.map(str::to_owned),
            submitted: String::new(),
            script: script.into(),
            output: Some("/x/%x-%A_%a.out".into()),
        }
    }

    #[test]
    fn a_run_is_found_in_the_newest_array_that_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join(FOLDER);
        fs::create_dir(&inside).unwrap();
        fs::write(inside.join("study-8_3.out"), "").unwrap();
        let submitted = Submitted {
            name: "study".into(),
            folder: folder.path().to_owned(),
            submissions: vec![
                submission(7, Some("0-11%2"), "tasks-from-0-1.sh"),
                submission(8, Some("3,5"), "tasks-from-0-2.sh"),
                submission(9, Some("0-4"), "tasks-from-1001-3.sh"),
            ],
        };
        let found = |run| Output::of(&submitted, Some(run)).map(|o| (o.job.to_string(), o.path()));
        assert_eq!(found(3).unwrap(), ("8_3".into(), inside.join("study-8_3.out")));
        // Not written yet.
        assert_eq!(found(4).unwrap(), ("7_4".into(), inside.join("*-7_4.out")));
        assert_eq!(found(1003).unwrap().0, "9_2");
        for (run, message) in [
            (
                Some(12),
                "study: no array that was submitted has a run 12: `vim-train sweep status` numbers them",
            ),
            (
                None,
                "study: job 9 is an array: --task I shows the output of one of its runs, by its number in `vim-train sweep status`",
            ),
        ] {
            assert_eq!(Output::of(&submitted, run).unwrap_err().to_string(), message);
        }
    }
}
