//! Files that several processes write, that are killed, or find links in their way.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;

use vim_run::storage::{Disk, Storage, replace, replace_with};

use crate::helpers::Helper;

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Where [`replace_with`] has the new content of `path` written.
fn temporary(path: &Path) -> PathBuf {
    let mut found = None;
    let write = |at: &Path| {
        found = Some(at.to_owned());
        Err(io::Error::other("not now"))
    };
    replace_with(&Disk, path, write).unwrap_err();
    found.unwrap()
}

#[test]
fn writers_of_one_file_do_not_meet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let mut others: Vec<Helper> =
        (0..3).map(|_| Helper::start("writes_again_and_again", &path)).collect();
    thread::scope(|scope| {
        for thread in 0..4 {
            let content = format!("{thread}").repeat(100_000);
            let path = &path;
            scope.spawn(move || {
                for _ in 0..20 {
                    replace(&Disk, path, content.as_bytes()).unwrap();
                    let found = fs::read_to_string(path).unwrap();
                    let pattern = &found[..found.len() / 10_000];
                    assert!(found == pattern.repeat(10_000), "a mixture");
                }
            });
        }
    });
    for other in &mut others {
        assert_eq!(other.exit_code(), Some(0));
    }
    assert_eq!(names(folder.path()), ["x"]);
}

#[test]
fn what_a_killed_writer_left_goes_and_what_is_being_written_stays() {
    let folder = tempfile::tempdir().unwrap();
    let [x, y] = ["x", "y"].map(|name| folder.path().join(name));
    fs::write(&x, "old").unwrap();
    let mut killed = Helper::start("writes_for_ever", &x);
    let mut at_work = Helper::start("writes_for_ever", &y);
    killed.kill();
    assert_eq!(names(folder.path()).len(), 3);
    // Neither is a temporary file of x.
    fs::write(folder.path().join(".tmp-z"), "a user's").unwrap();
    fs::create_dir(folder.path().join(".tmp-x-00ff00ff-1-1")).unwrap();
    replace(&Disk, &x, b"new").unwrap();
    let left = [".tmp-x-00ff00ff-1-1", ".tmp-y", ".tmp-z", "x"];
    assert_eq!(names(folder.path()), left);
    assert_eq!(fs::read_to_string(x).unwrap(), "new");
    // A second writer gets another name, which the first writer's end does not take.
    let second = temporary(&y);
    assert!(second.to_str().unwrap().contains("/.tmp-y-"), "{second:?}");
    at_work.kill();
}

#[test]
fn a_file_that_another_process_took_away_does_not_replace_anything() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, "old").unwrap();
    let theirs = folder.path().join("theirs");
    fs::write(&theirs, "half").unwrap();
    let error = replace_with(&Disk, &path, |at| fs::rename(&theirs, at)).unwrap_err();
    assert!(error.to_string().contains("removed by another process"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(names(folder.path()), [".tmp-x", "x"]);
}

#[test]
fn links_are_neither_followed_nor_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let victim = folder.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    let path = folder.path().join("x.pth");
    symlink("victim", folder.path().join(".tmp-x.pth")).unwrap();
    let known = temporary(&path).into_os_string().into_string().unwrap();
    let (before, number) = known.rsplit_once('-').unwrap();
    let number: u64 = number.parse().unwrap();
    for next in number + 1..number + 200 {
        symlink("victim", format!("{before}-{next}")).unwrap();
    }
    replace(&Disk, &path, b"weights").unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    assert_eq!(fs::read_to_string(&path).unwrap(), "weights");
    assert!(!path.is_symlink());
    // Nor where the file that is to be written is a link itself.
    let link = folder.path().join("link");
    symlink("victim", &link).unwrap();
    assert!(Disk.write(&link, b"theirs").is_err());
    replace(&Disk, &link, b"theirs").unwrap();
    assert!(!link.is_symlink(), "the link is replaced, not what it leads to");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
}

#[test]
fn long_names_have_temporary_files_too() {
    let folder = tempfile::tempdir().unwrap();
    for length in [1, 180, 181, 250, 255] {
        let path = folder.path().join("n".repeat(length));
        replace(&Disk, &path, b"content").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "content");
        fs::remove_file(path).unwrap();
    }
    assert!(replace(&Disk, &folder.path().join("n".repeat(256)), b"").is_err());
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn a_failure_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, "old").unwrap();
    let write = |at: &Path| {
        assert_eq!(fs::metadata(at)?.len(), 0);
        fs::write(at, "half")?;
        Err(io::ErrorKind::StorageFull.into())
    };
    let error = replace_with(&Disk, &path, write).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(names(folder.path()), ["x"]);
    let error = replace(&Disk, &folder.path().join("none/x"), b"").unwrap_err();
    assert_eq!(error.to_string(), "No such file or directory (os error 2)");
}

#[test]
fn who_may_read_a_file_follows_from_the_mask_of_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let [plain, replaced] = ["plain", "replaced"].map(|name| folder.path().join(name));
    File::create(&plain).unwrap();
    replace(&Disk, &replaced, b"").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&plain), mode(&replaced));
}
