//! Files of a pair's half that have one name but for the ending.

use std::fs;
use std::path::Path;

use vim_data::{DataConfig, LabelMap};

use crate::label_maps::{config, image, of_stems, seen};
use crate::pairs::{all_of, write_files};

fn open(path: &Path) -> Result<vim_data::Splits, String> {
    vim_data::open::<LabelMap>(&config(path)).map_err(|error| error.to_string())
}

#[test]
fn of_one_name_the_file_of_a_usual_ending_counts() {
    let root = tempfile::tempdir().unwrap();
    let mut files = of_stems(&["a", "b"], "images/PART/STEM.png", "masks/PART/STEM.png");
    // A TIFF of the same picture, as the camera had it.
    files.push(("images/train/a.TIF".to_owned(), image(9)));
    files.push(("images/train/b.gif".to_owned(), image(9)));
    files.push(("masks/val/a.tiff".to_owned(), image(9)));
    for path in all_of(root.path(), &files) {
        let splits = open(&path).unwrap();
        assert_eq!(seen(&splits), [[(0, 0), (1, 1)], [(0, 0), (1, 1)]].map(Vec::from));
        let notes = splits.notes.join("\n");
        assert!(notes.contains("2 images are not read, the first "), "{notes}");
        assert!(notes.contains("1 label maps are not read, the first "), "{notes}");
        assert!(notes.contains("a.tiff"), "{notes}");
    }
}

#[test]
fn two_of_usual_endings_or_two_of_others_are_an_error() {
    for (old, new) in [("a.jpg", None), ("a.tif", Some("a.gif"))] {
        let root = tempfile::tempdir().unwrap();
        let files = of_stems(&["a", "b"], "images/PART/STEM.png", "masks/PART/STEM.png");
        write_files(root.path(), &files);
        let folder = root.path().join("images/train");
        fs::write(folder.join(old), image(9)).unwrap();
        if let Some(new) = new {
            fs::rename(folder.join("a.png"), folder.join(new)).unwrap();
        }
        let error = open(root.path()).unwrap_err();
        assert!(error.contains("several images or label maps have its name"), "{error}");
    }
    // An image and what may be its label map, in one folder.
    let root = tempfile::tempdir().unwrap();
    let files = of_stems(&["a", "b"], "PART/STEM.tif", "PART/STEM.png");
    write_files(root.path(), &files);
    let here = Some(".".to_owned());
    let both = DataConfig { images: here.clone(), label_maps: here, ..config(root.path()) };
    let error = vim_data::open::<LabelMap>(&both).unwrap_err().to_string();
    assert!(error.contains("several images or label maps have its name"), "{error}");
}
