//! What is no data by its name is none, wherever the images are: the numbers are the same.

use std::fs;
use std::path::Path;

use vim_data::{DataConfig, EnvPaths, PackOptions, Split, open_images, pack};

use crate::pairs;
use crate::trees::{self, check, config, tar_of, train, unpacked};

/// Paths below a folder of classes at which no image is data; the first parts would be classes.
const NO_DATA: [&str; 8] = [
    ".ipynb_checkpoints/n01_1-checkpoint.JPEG",
    ".Trashes/n00/x.JPEG",
    "@eaDir/n01/SYNOPHOTO_THUMB_M.jpg",
    "__MACOSX/n01/._n01_1.JPEG",
    "lost+found/x.JPEG",
    "n01/.thumbnails/x.JPEG",
    "n02/@eaDir/n02_1.JPEG/SYNOPHOTO_THUMB_M.jpg",
    "n03/._n03_1.JPEG",
];

fn write(root: &Path, name: &str, bytes: &[u8]) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn classes_are_the_same_in_folders_archives_and_packs() {
    let root = unpacked();
    let folder = root.path().join("train");
    NO_DATA.iter().for_each(|name| write(&folder, name, b"thumbnail"));
    let expected = check(&config(root.path())).train.dataset().fingerprint();

    let mut files: Vec<(String, Vec<u8>)> = train()
        .into_iter()
        .map(|(class, name, bytes)| (format!("{class}/{name}"), bytes))
        .collect();
    // An inner archive of this kind is none either.
    let hidden = NO_DATA.iter().copied().chain(["._n01.tar", "__MACOSX/._n02.tar"]);
    files.splice(3..3, hidden.map(|name| (name.to_owned(), b"thumbnail".to_vec())));
    // Of a folder around all of them the name does not count.
    for prefix in ["", "./", "imagenet/train/", ".scratch/train/", "@eaDir/"] {
        let prefixed = files.iter().map(|(name, bytes)| (format!("{prefix}{name}"), bytes.clone()));
        let path = root.path().join("some.tar");
        fs::write(&path, tar_of(&prefixed.collect::<Vec<_>>())).unwrap();
        let val_path = Some(root.path().join("val"));
        let splits = check(&DataConfig { val_path, ..config(&path) });
        assert_eq!(splits.train.dataset().fingerprint(), expected);
        assert!(splits.notes.iter().all(|note| note.contains("made anew")), "{:?}", splits.notes);
    }

    // An archive of each class, and archives of those.
    let classes = root.path().join("classes");
    for class in ["n01", "n02", "n03"] {
        let inside = |name: &String| name.strip_prefix(&format!("{class}/")).map(str::to_owned);
        let of_class =
            files.iter().filter_map(|(name, bytes)| Some((inside(name)?, bytes.clone())));
        write(&classes, &format!("{class}.tar"), &tar_of(&of_class.collect::<Vec<_>>()));
    }
    write(&classes, "._n01.tar", b"thumbnail");
    write(&classes, "@eaDir/n01.tar/x.jpg", b"thumbnail");
    let val_path = Some(root.path().join("val"));
    let from = DataConfig { val_path, ..config(&classes) };
    assert_eq!(check(&from).train.dataset().fingerprint(), expected);

    let target = tempfile::tempdir().unwrap();
    let sources = open_images(&from, &EnvPaths::default()).unwrap();
    for (images, part) in [(&sources.train, "train"), (sources.val.as_ref().unwrap(), "val")] {
        pack(images, &target.path().join(part), PackOptions::default(), &|_| {}, &|| false)
            .unwrap();
    }
    assert_eq!(check(&config(target.path())).train.dataset().fingerprint(), expected);
}

#[test]
fn pairs_are_the_same_in_folders_and_archives() {
    let root = tempfile::tempdir().unwrap();
    let [folder, _, _] = pairs::laid_out(root.path());
    let inner = folder.join("ADEChallengeData2016");
    let expected = pairs::open(&folder).unwrap().train.dataset().fingerprint();
    for half in ["images", "annotations"] {
        for name in [
            "training/.ipynb_checkpoints/ADE_train_00000001.png",
            "training/@eaDir/ADE_train_00000001.png",
            "validation/._ADE_val_00000001.png",
        ] {
            write(&inner, &format!("{half}/{name}"), b"thumbnail");
        }
    }
    // Beside the tree, as macOS puts it into zips.
    write(&folder, "__MACOSX/ADEChallengeData2016/images/training/x.png", b"thumbnail");
    let mut files = Vec::new();
    collect(&folder, &folder, &mut files);
    assert_eq!(files.iter().filter(|(_, bytes)| bytes == b"thumbnail").count(), 7);
    let mut paths = vec![folder];
    for (number, prefix) in ["", ".scratch/"].into_iter().enumerate() {
        let named = |end: &str| root.path().join(format!("all{number}.{end}"));
        let (tar, zip) = (named("tar"), named("zip"));
        files.iter_mut().for_each(|(name, _)| name.insert_str(0, prefix));
        fs::write(&tar, tar_of(&files)).unwrap();
        let mut writer = zip::ZipWriter::new(fs::File::create(&zip).unwrap());
        for (name, bytes) in &files {
            writer.start_file(name.as_str(), zip::write::SimpleFileOptions::default()).unwrap();
            std::io::Write::write_all(&mut writer, bytes).unwrap();
        }
        writer.finish().unwrap();
        paths.extend([tar, zip]);
    }
    let numbered = |split: &Split| -> Vec<String> {
        let name = |at| split.dataset().name(at).rsplit(['/', ':']).next().unwrap().to_owned();
        (0..split.len()).map(name).collect()
    };
    let names = numbered(&pairs::open(&paths[0]).unwrap().train);
    assert_eq!(names.len(), 24);
    for path in &paths {
        let splits = pairs::open(path).unwrap();
        assert_eq!(splits.train.dataset().fingerprint(), expected, "{path:?}");
        assert_eq!((splits.test.len(), numbered(&splits.train)), (8, names.clone()));
    }
}

/// All files below a folder by their paths from `root`.
fn collect(root: &Path, folder: &Path, into: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, into);
        } else if path.extension().is_some_and(|end| end != "vim-index") {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            into.push((name, fs::read(&path).unwrap()));
        }
    }
}

#[test]
fn a_class_may_have_a_name_like_any_other() {
    let root = unpacked();
    for part in ["train", "val"] {
        let part = root.path().join(part);
        fs::rename(part.join("n03"), part.join("macosx @ 3.5")).unwrap();
    }
    let splits = trees::open(&config(root.path())).unwrap();
    assert_eq!(splits.train.class_names(), ["macosx @ 3.5", "n01", "n02"]);
}
