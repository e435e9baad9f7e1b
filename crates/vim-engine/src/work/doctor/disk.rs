//! The disks of the runs and of the data: room, speed, locks.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{statfs, statvfs};
use vim_run::{Lock, LockError};

use super::{Context, Finding, size};
use crate::task::kinds::cost;
use crate::train::dry_run::checkpoints_of;

/// How much is written, and at most read, to time a disk.
const PROBED: usize = 32 << 20;
/// Speed below which a disk is reported as slow, in bytes per second.
const SLOW: f64 = 50e6;

/// The folder itself, or the first one above it that there is.
pub(super) fn existing(folder: &Path) -> PathBuf {
    let found = folder.ancestors().find(|one| one.is_dir());
    found.filter(|one| !one.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// The path of a file that is removed when dropped.
pub(super) struct Probe {
    pub(super) path: PathBuf,
}

impl Probe {
    /// A name in `folder` that nothing has.
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        let mut number = 0_u32;
        loop {
            let path = folder.join(format!(".vim-train-doctor-{}-{number}", std::process::id()));
            match File::create_new(&path) {
                Ok(_) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // A probe that cannot be removed could not be written either.
        let _ = fs::remove_file(&self.path);
    }
}

/// Checks the folder of the runs: write access, speed, free space, locks.
pub(super) fn runs(context: &Context) -> Vec<Finding> {
    let root = &context.config.run.root;
    let folder = existing(root);
    let place = if folder == *root {
        folder.display().to_string()
    } else {
        format!("{} (not there yet; {})", root.display(), folder.display())
    };
    let set_root = "set run.root to a folder that can be written, such as one in $SCRATCH";
    let speed = match write_speed(&folder) {
        Ok(speed) => speed,
        Err(error) => {
            return vec![Finding::fail("run.root", format!("{place}: {error}"), set_root)];
        }
    };
    vec![
        room(context, &folder, &place),
        speed_of("run.root speed", "written", speed),
        locks(&folder),
    ]
}

fn speed_of(what: &str, done: &str, speed: f64) -> Finding {
    let advice =
        "slow: a shared disk that is busy, or a home folder; try $SCRATCH or the node's own disk";
    Finding::pass(what, format!("{done} at {:.0} MB/s", speed / 1e6)).warn_if(speed < SLOW, advice)
}

/// Room for the checkpoints of a run.
fn room(context: &Context, folder: &Path, place: &str) -> Finding {
    let what = "run.root";
    let free = match free(folder) {
        Ok(free) => free,
        Err(error) => return Finding::warn(what, format!("{place}: {error}"), "look yourself"),
    };
    let config = &context.config;
    let parameters = cost(config, config.task.usual_classes()).map_or(0, |cost| cost.parameters());
    let needed = checkpoints_of(config, parameters);
    let detail = format!(
        "{place}: {} free on {}, about {} for a run's checkpoints",
        size(free),
        kind(folder),
        size(needed)
    );
    if free < needed {
        return Finding::fail(what, detail, "free some, or set run.root to a larger disk");
    }
    let advice = "a few runs fill it: free some, or choose another run.root";
    Finding::pass(what, detail).warn_if(free < 4 * needed, advice)
}

/// Bytes that are free on the disk of a folder.
fn free(folder: &Path) -> io::Result<u64> {
    let disk = statvfs(folder)?;
    Ok(disk.f_bavail * disk.f_frsize)
}

/// Whether a second run in a folder would notice the first.
fn locks(folder: &Path) -> Finding {
    let what = "run.root locks";
    let tried = || -> Result<bool, LockError> {
        let probe = Probe::new(folder)?;
        let first = Lock::acquire(&probe.path)?;
        if !first.is_enforced() {
            return Ok(false);
        }
        match Lock::acquire(&probe.path) {
            Err(LockError::Held(_)) => Ok(true),
            Ok(_) => Ok(false),
            Err(error) => Err(error),
        }
    };
    let advice = "start no two runs of one name at once, or set run.root to a disk with locks";
    match tried() {
        Ok(true) => Finding::pass(what, "work"),
        Ok(false) => Finding::warn(what, "this file system has none", advice),
        Err(LockError::Held(_) | LockError::Recorded(_)) => {
            Finding::warn(what, "a new file is locked already", advice)
        }
        Err(LockError::Io(error)) => Finding::warn(what, error.to_string(), advice),
    }
}

/// Bytes a second that reach the disk.
fn write_speed(folder: &Path) -> io::Result<f64> {
    let probe = Probe::new(folder)?;
    // Numbers that no file system makes smaller.
    let mut block = vec![0_u8; 1 << 20];
    blake3::Hasher::new().update(b"doctor").finalize_xof().fill(&mut block);
    let start = Instant::now();
    let mut file = File::create(&probe.path)?;
    for _ in 0..PROBED / block.len() {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    Ok(PROBED as f64 / start.elapsed().as_secs_f64())
}

/// The images: whether they are there, and how fast they are read.
pub(super) fn data(context: &Context) -> Vec<Finding> {
    let what = "data.path";
    let config = &context.config.data;
    let Some(path) = &config.path else {
        return vec![if config.dataset.has_files() {
            Finding::fail(what, "not set, and data.dataset needs it", "set it (docs/data.md)")
        } else {
            Finding::pass(what, "none needed: the images are procedural")
        }];
    };
    let speed = match read_speed(path) {
        Ok(speed) => speed,
        Err(error) => {
            let detail = format!("{}: {error}", path.display());
            let advice = "set data.path to where the images are (docs/data.md)";
            return vec![Finding::fail(what, detail, advice)];
        }
    };
    let place = format!("{} on {}", path.display(), kind(&existing(path)));
    let mut findings = vec![Finding::pass(what, place)];
    findings.extend(speed.map(|speed| speed_of("data.path speed", "read (cached or not)", speed)));
    findings
}

/// Read speed of the first files found, in bytes per second; `None` if too few bytes were read.
fn read_speed(path: &Path) -> io::Result<Option<f64>> {
    let mut pending = vec![path.to_owned()];
    let (start, mut read) = (Instant::now(), 0_usize);
    let mut buffer = vec![0_u8; 1 << 20];
    let over = |read: usize| read >= PROBED || start.elapsed() > Duration::from_secs(5);
    while let Some(path) = pending.pop() {
        if over(read) {
            break;
        }
        if fs::metadata(&path)?.is_dir() {
            let mut below = fs::read_dir(&path)?.map(|entry| Ok(entry?.path()));
            pending.extend(below.by_ref().take(1000).collect::<io::Result<Vec<_>>>()?);
            continue;
        }
        let mut file = File::open(&path)?;
        while !over(read) {
            match file.read(&mut buffer)? {
                0 => break,
                count => read += count,
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok((read >= 1 << 20).then(|| read as f64 / seconds))
}

/// Checks the node-local disk, to which archives are copied.
pub(super) fn node(context: &Context) -> Vec<Finding> {
    let what = "node disk";
    let Some(folder) = context.machine.folder("SLURM_TMPDIR") else {
        let detail = "none named by SLURM_TMPDIR: images are read where they are";
        return vec![Finding::pass(what, detail)];
    };
    let shown = folder.display();
    let tried = || -> io::Result<(f64, u64)> { Ok((write_speed(&folder)?, free(&folder)?)) };
    vec![match tried() {
        Ok((speed, free)) => {
            let (free, kind, speed) = (size(free), kind(&folder), speed / 1e6);
            Finding::pass(
                what,
                format!("{shown}: {free} free on {kind}, written at {speed:.0} MB/s"),
            )
        }
        Err(error) => {
            let advice = "unset SLURM_TMPDIR, or set data.stage=\"off\"";
            Finding::warn(what, format!("{shown}: {error}"), advice)
        }
    }]
}

/// Magic numbers of the file systems common on clusters.
const FILE_SYSTEMS: [(i64, &str); 11] = [
    (0x6969, "NFS"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x00C3_6400, "Ceph"),
    (0xEF53, "ext"),
    (0x5846_5342, "XFS"),
    (0x9123_683E, "Btrfs"),
    (0x2FC1_2FC1, "ZFS"),
    (0x0102_1994, "memory"),
    (0x794C_7630, "an overlay"),
];

fn kind(folder: &Path) -> String {
    let Ok(disk) = statfs(folder) else { return "an unknown file system".into() };
    let known = FILE_SYSTEMS.iter().find(|(number, _)| *number == disk.f_type);
    known.map_or_else(|| format!("file system {:#x}", disk.f_type), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        assert!(write_speed(folder.path()).unwrap() > 0.0);
        assert_eq!(locks(folder.path()), Finding::pass("run.root locks", "work"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_folder_above_that_there_is() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(existing(&folder.path().join("a/b")), folder.path());
        assert_eq!(existing(Path::new("no-such-folder/x")), Path::new("."));
    }

    #[test]
    fn reading_goes_through_folders() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read_speed(folder.path()).unwrap(), None);
        fs::create_dir(folder.path().join("a")).unwrap();
        fs::write(folder.path().join("a/x"), vec![1; 2 << 20]).unwrap();
        assert!(read_speed(folder.path()).unwrap().is_some());
        assert!(read_speed(&folder.path().join("b")).is_err());
    }
}
