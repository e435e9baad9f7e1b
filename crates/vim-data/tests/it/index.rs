//! Indexes kept between runs: used when nothing has changed, and only then.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use vim_data::{DataConfig, EnvPaths};

use crate::trees::{check, config, open, published, train, unpacked};

/// The kept indexes in a folder.
fn kept(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut kept: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "vim-index")).collect();
    kept.sort();
    kept
}

/// When each index was written.
fn times(folder: &Path) -> Vec<SystemTime> {
    kept(folder).iter().map(|path| fs::metadata(path).unwrap().modified().unwrap()).collect()
}

/// Moves a file's time into the past, so that a new one differs on every file system.
fn age(path: &Path) {
    let past = SystemTime::now() - Duration::from_secs(100);
    File::open(path).unwrap().set_modified(past).unwrap();
}

#[test]
fn indexes_lie_beside_the_data_and_are_used_again() {
    let root = unpacked();
    check(&config(root.path()));
    let names = [".train.vim-index", ".val.vim-index"].map(|name| root.path().join(name));
    assert_eq!(kept(root.path()), names);
    let before = times(root.path());
    let splits = check(&config(root.path()));
    assert_eq!(times(root.path()), before, "not written again");
    assert!(splits.notes.is_empty(), "{:?}", splits.notes);
    let mode = fs::metadata(&names[0]).unwrap().permissions().mode();
    assert_eq!(mode & 0o044, 0o044, "others may read it");
}

#[test]
fn what_killed_processes_left_goes_after_a_day() {
    let root = unpacked();
    let names = [
        ".vim-index-aB3xYz",
        ".vim-index-new123",
        ".vim-index-mine.vim-index",
        ".vim-index-a-b-c-",
    ];
    for name in names {
        let file = File::create(root.path().join(name)).unwrap();
        let days = if name.contains("new") { 0 } else { 2 };
        let past = SystemTime::now() - Duration::from_secs(days * 24 * 3600 + 60);
        file.set_modified(past).unwrap();
    }
    check(&config(root.path()));
    assert_eq!(names.map(|name| root.path().join(name).exists()), [false, true, true, true]);
}

#[test]
fn a_changed_folder_is_listed_again() {
    let root = unpacked();
    check(&config(root.path()));
    let class = root.path().join("train/n02");
    age(&class);
    open(&config(root.path())).unwrap();
    fs::write(class.join("n02_0.JPEG"), "new").unwrap();
    let splits = open(&config(root.path())).unwrap();
    assert_eq!(splits.train.len(), 13);
    assert_eq!(splits.train.image(4).unwrap(), b"new");
    let note = &splits.notes[0];
    assert!(note.contains(".train.vim-index") && note.contains("the data have changed"), "{note}");
    // A new class does not change the folders of the others.
    for part in ["train", "val"] {
        let class = root.path().join(part).join("n00");
        fs::create_dir(&class).unwrap();
        fs::write(class.join("x.JPEG"), "zero").unwrap();
    }
    let splits = open(&config(root.path())).unwrap();
    assert_eq!((splits.train.len(), splits.train.num_classes()), (14, 4));
}

#[test]
fn a_changed_archive_or_list_is_read_again() {
    let root = published();
    let list = root.path().join("val.txt");
    let config = DataConfig { val_labels: Some(list.clone()), ..config(root.path()) };
    check(&config);
    let before = times(root.path());
    check(&config);
    assert_eq!((times(root.path()), before.len()), (before, 2));

    fs::write(&list, "n03\nn03\nn01\nn03\nn01\nn03\n\n").unwrap();
    let splits = open(&config).unwrap();
    assert_eq!(splits.test.label(2), 2, "the new list counts");
    let archive = root.path().join("ILSVRC2012_img_train.tar");
    age(&archive);
    assert!(open(&config).unwrap().notes[0].contains("the data have changed"));
}

#[test]
fn a_damaged_index_is_made_anew() {
    let root = unpacked();
    check(&config(root.path()));
    let file = root.path().join(".train.vim-index");
    let whole = fs::read(&file).unwrap();
    let mut damaged: Vec<(Vec<u8>, &str)> = (0..whole.len())
        .step_by(7)
        .map(|at| {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            (bytes, if (8..12).contains(&at) { "another version" } else { "damaged" })
        })
        .collect();
    damaged.extend((0..whole.len()).step_by(31).map(|cut| (whole[..cut].to_vec(), "damaged")));
    for (bytes, why) in damaged {
        fs::write(&file, bytes).unwrap();
        let splits = check(&config(root.path()));
        assert!(splits.notes[0].contains(why), "{:?}", splits.notes);
        assert!(fs::read(&file).unwrap() == whole, "written again");
    }
}

#[test]
fn the_folder_of_indexes_can_be_chosen() {
    let (root, other) = (unpacked(), unpacked());
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("made");
    for root in [&root, &other] {
        check(&DataConfig { index_cache: Some(folder.clone()), ..config(root.path()) });
        assert!(kept(root.path()).is_empty());
    }
    assert_eq!(kept(&folder).len(), 4, "folders of one name have an index each");
}

#[test]
fn read_only_data_have_their_index_in_the_users_cache() {
    let root = unpacked();
    let cache = tempfile::tempdir().unwrap();
    // A folder in the place of the file cannot be written over, whoever runs this.
    for name in [".train.vim-index", ".val.vim-index"] {
        fs::create_dir_all(root.path().join(name).join("x")).unwrap();
    }
    let folder = cache.path().join("vim-train");
    let env_paths = EnvPaths { cache: Some(folder.clone()), ..EnvPaths::default() };
    let open = || vim_data::open_in::<vim_data::Class>(&config(root.path()), &env_paths).unwrap();
    open();
    assert_eq!(kept(&folder).len(), 2);
    let before = times(&folder);
    assert_eq!(open().train.len(), train().len());
    assert_eq!(times(&folder), before);
    // With nowhere to keep it, the data are read all the same.
    let notes = check(&config(root.path())).notes;
    assert!(notes.iter().any(|note| note.contains("set data.index_cache")), "{notes:?}");
}
