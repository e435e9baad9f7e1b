//! Why a job failed, by the end of its output.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use vim_slurm::JobId;
use vim_slurm::submissions::FOLDER;

/// How much of an output is read, from its end.
const END: u64 = 1 << 16;

/// Lines in which an error is looked for: below it are the line of a file that it marks, and what
/// srun says of the exit code.
const LINES: usize = 12;

/// The error at the end of a job's output, else its last line that is not srun's; nothing without
/// an output.
pub fn last_words(output: &Path) -> Option<String> {
    let mut file = File::open(output).ok()?;
    let start = file.metadata().ok()?.len().saturating_sub(END);
    file.seek(SeekFrom::Start(start)).ok()?;
    let mut bytes = Vec::new();
    file.take(END).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<&str> = lines.take(LINES).collect();
    let error = lines.iter().find_map(|line| line.strip_prefix("error: "));
    let other = || lines.iter().find(|line| !line.starts_with("srun: ")).copied();
    let words = error.or_else(other).or_else(|| lines.first().copied());
    words.map(str::to_owned)
}

/// The present or future output of a sweep's task, whose job's name it begins with.
pub fn output_of_task(sweep: &Path, job: JobId) -> PathBuf {
    let (folder, ending) = (sweep.join(FOLDER), format!("-{job}.out"));
    let files = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut paths = files.map(|entry| entry.path());
    let found = paths.find(|path| path.to_string_lossy().ends_with(&ending));
    found.unwrap_or_else(|| folder.join(format!("*{ending}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_found_among_the_last_lines() {
        let output = tempfile::NamedTempFile::new().unwrap();
        let long = format!("error: old\n{}", "epoch 1\n".repeat(20_000));
        for (text, words) in [
            (
                "device cpu\nerror: x.toml:1:1: run.nme: unknown key\n  |\n1 | nme\n  | ^^^\nsrun: error: n1: task 0: Exited with exit code 78\n",
                Some("x.toml:1:1: run.nme: unknown key"),
            ),
            (
                "epoch 3\nslurmstepd: error: *** STEP 7.0 CANCELLED DUE TO TIME LIMIT ***\nsrun: error: n1: task 0: Terminated\n",
                Some("slurmstepd: error: *** STEP 7.0 CANCELLED DUE TO TIME LIMIT ***"),
            ),
            ("srun: error: Unable to create step\n", Some("srun: error: Unable to create step")),
            (long.as_str(), Some("epoch 1")),
            (" \n", None),
        ] {
            fs::write(output.path(), text).unwrap();
            assert_eq!(last_words(output.path()).as_deref(), words, "{text}");
        }
        assert_eq!(last_words(Path::new("/no/such")), None);
    }
}
