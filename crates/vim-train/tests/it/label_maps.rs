//! What label maps hold is said by the commands: in a table, and in a line where it matters.

use std::fs;
use std::path::Path;

use vim_data::dense_ops::{encode_grey, encode_palette};
use vim_data::{Pixels, encode_png};

use crate::support::{Bench, assert_code, assert_parts, run, set, stdout, write};

const AREA: usize = 32 * 32;

/// Four pairs for training and two for validation in `layout`, folders of images and of label maps
/// of a part, whose maps `map` makes.
fn write_pairs(data: &Path, layout: [&str; 2], map: impl Fn(usize) -> Vec<u8>) {
    write(&data.join("classes.txt"), "bg\nfg\n");
    for (part, count) in [("train", 4), ("val", 2)] {
        for number in 0..count {
            let file = |half: &str| {
                data.join(half.replace("PART", part).replace("STEM", &format!("{part}{number}")))
            };
            let grey = vec![(40 * number) as u8; 3 * AREA];
            let image = Pixels { height: 32, width: 32, data: grey };
            write(&file(layout[0]), encode_png(&image).unwrap());
            write(&file(layout[1]), map(number));
        }
    }
}

/// The settings of a short training on `data`.
fn settings(data: &Path, more: &[&str]) -> Vec<String> {
    let path = format!("data.path={}", data.display());
    let own = ["data.dataset=pairs", &path, "train.steps=2", "train.batch_size=2"];
    set(&[&own[..], more].concat()).iter().map(|&value| value.to_owned()).collect()
}

#[test]
fn masks_of_0_and_255_are_named_everywhere() {
    let bench = Bench::of("crates/vim-train/tests/it/fixtures/segment.toml");
    let data = bench.folder("data");
    let mask = |_| encode_grey(&[&[0; 768][..], &[255; 256]].concat(), [32, 32]).unwrap();
    write_pairs(&data, ["images/PART/STEM.png", "masks/PART/STEM.png"], mask);
    let settings = settings(&data, &[]);
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let says = |of: &str| {
        [
            format!("the label maps of the {of} are masks of 0 and 255"),
            "255 is ignored (25.0 % of the pixels)".to_owned(),
            "class `fg` occurs in no label map".to_owned(),
        ]
    };
    let assert_said = |text: &str, of: &str| {
        let says = says(of);
        assert_parts(text, &says.each_ref().map(String::as_str));
    };
    let dry = bench.train("run", &[&settings[..], &["--dry-run"]].concat());
    assert_code(&dry, 0);
    assert_said(&stdout(&dry), "4 training images");
    assert_code(&bench.train("run", &settings), 0);
    assert_said(&bench.read("run", "log.txt"), "4 training images");
    assert_said(&bench.read("run", "log.txt"), "2 test images");

    let data_settings = &settings[..4];
    let verified = run(&[&["data", "verify"][..], data_settings].concat());
    assert_code(&verified, 0);
    assert_said(&stdout(&verified), "4 images");
    let scanned = run(&[&["data", "scan"][..], data_settings].concat());
    assert_code(&scanned, 0);
    assert_said(&stdout(&scanned), "4 images");
    let rows = [
        "images       4 of 2 classes",
        "pixels       4096 in 4 label maps, 25.0 % ignored",
        "bg               3072   75.00 %         4",
        "fg                  0     never         0",
        "train label maps",
        "files        4",
    ];
    assert_parts(&stdout(&scanned), &rows);

    // Written anew as advised, in their place: nothing is said any more.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let labels = [&[0; 768][..], &[1; 256]].concat();
    for part in ["train", "val"] {
        for file in fs::read_dir(data.join("masks").join(part)).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "png") {
                fs::write(path, encode_grey(&labels, [32, 32]).unwrap()).unwrap();
            }
        }
    }
    let dry = bench.train("mended", &[&settings[..], &["--dry-run"]].concat());
    assert_code(&dry, 0);
    assert!(!stdout(&dry).contains("no label map"), "{}", stdout(&dry));
}

#[test]
fn palettes_suffixes_and_lists_are_read() {
    let bench = Bench::of("crates/vim-train/tests/it/fixtures/segment.toml");
    let data = bench.folder("data");
    let labels = |number| vec![(number % 2) as u8; AREA];
    let map = |number| encode_palette(&labels(number), [32, 32], &[[0; 3], [128, 0, 0]]).unwrap();
    write_pairs(&data, ["JPEGImages/STEM.png", "SegmentationClass/STEM_mask.png"], map);
    for (part, count) in [("train", 4), ("val", 2)] {
        let names: String = (0..count).map(|number| format!("{part}{number}\n")).collect();
        write(&data.join(format!("ImageSets/Segmentation/{part}.txt")), names);
    }
    let settings = settings(&data, &["data.label_suffix=_mask"]);
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    assert_code(&bench.train("run", &settings), 0);
    let folder = bench.folder("run");
    assert_code(&run(&["eval", folder.to_str().unwrap()]), 0);
    assert_parts(&bench.read("run", "config.toml"), &["label_suffix = \"_mask\""]);
    assert_parts(&bench.read("run", "classes.json"), &["bg", "fg"]);
}
