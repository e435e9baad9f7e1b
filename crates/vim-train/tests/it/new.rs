//! The first commands: `new`, a folder in place of a configuration, `--dry-run --time`.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use vim_data::{Pixels, encode_png};
use vim_engine::config::Config;

use crate::layers::vim_train;
use crate::support::{assert_code, assert_parts, assert_says, parsed, stderr, stdout, write};

/// `photos/` with pictures of two classes for training and validation, of two colours.
fn photos() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (part, count) in [("train", 20), ("val", 3)] {
        for (class, level) in [("cat", 40), ("dog", 200)] {
            for number in 0..count {
                let (height, width) = (36, 40 + number);
                let data = vec![level + number as u8; 3 * height * width];
                let image = encode_png(&Pixels { height, width, data }).unwrap();
                let path = format!("photos/{part}/{class}/{number}.png");
                write(&folder.path().join(path), image);
            }
        }
    }
    folder
}

fn run(folder: &Path, args: &[&str]) -> std::process::Output {
    vim_train(folder, args).output().unwrap()
}

#[test]
fn a_configuration_is_written_that_trains() {
    let folder = photos();
    let here = folder.path();
    let made = run(here, &["new", "photos", "--device", "cpu"]);
    assert_code(&made, 0);
    assert_eq!(stdout(&made), "photos.toml\n");
    assert_parts(&stderr(&made), &["2 classes, ", "36 px on the shorter side", "vim-train train"]);
    let text = fs::read_to_string(here.join("photos.toml")).unwrap();
    assert_parts(&text, &["# Found:     ", "# Time:      about ", "img/s as measured", "--init"]);
    let config = Config::load(&here.join("photos.toml"), &[]).unwrap();
    assert_eq!((config.model.image_size.height, config.train.images()), (32, 8));
    assert!(config.data.path.unwrap().is_absolute());
    // It is not written over.
    assert_says(&run(here, &["new", "photos"]), 73, &["photos.toml is there already"]);

    let short = ["train", "photos.toml", "--set", "train.epochs=1", "--device", "cpu"];
    let trained = run(here, &[&short[..], &["--set", "model.depth=1"]].concat());
    assert_code(&trained, 0);
    let tuned = ["new", "photos", "--init", "photos-s0", "-o", "tuned.toml", "--device", "cpu"];
    assert_code(&run(here, &tuned), 0);
    let tuned = Config::load(&here.join("tuned.toml"), &[]).unwrap();
    assert_eq!((tuned.model.depth, tuned.train.layer_decay), (1, Some(0.75)));
    let text = fs::read_to_string(here.join("tuned.toml")).unwrap();
    let called = ": vim-train new photos --init photos-s0 -o tuned.toml --device cpu\n";
    assert!(text.lines().next().unwrap().ends_with(called.trim_end()), "{text}");
    let planned = run(here, &["train", "tuned.toml", "--dry-run", "--set", "run.name=tuned"]);
    assert_says(&planned, 0, &[]);
    assert_parts(&stdout(&planned), &["init "]);
}

#[test]
fn what_a_configuration_is_made_of_stays() {
    let folder = photos();
    let here = folder.path();
    let exported = here.join("w.safetensors");
    fs::write(&exported, b"weights").unwrap();
    let over = ["new", "photos", "--init", "w.safetensors", "-o", "w.safetensors", "--force"];
    assert_says(&run(here, &over), 73, &["is read by this command"]);
    assert_eq!(fs::read(&exported).unwrap(), b"weights");
    // A line break in a name ends no comment, and blanks no word.
    fs::rename(here.join("photos"), here.join("my\nrun.seed = 7")).unwrap();
    let made = run(here, &["new", "my\nrun.seed = 7", "-o", "my file.toml", "--device", "cpu"]);
    assert_code(&made, 0);
    assert!(stderr(&made).contains("vim-train train 'my file.toml' --device cpu"));
    let config = Config::load(&here.join("my file.toml"), &[]).unwrap();
    assert_eq!(config.run.seed, 0);
}

#[test]
fn a_folder_is_no_configuration() {
    let folder = photos();
    let words = ["2 classes", "`vim-train new photos` writes photos.toml"];
    assert_says(&run(folder.path(), &["train", "photos"]), 78, &words);
    fs::create_dir(folder.path().join("none")).unwrap();
    let words = ["no images to train on are found", "`vim-train new none`"];
    assert_says(&run(folder.path(), &["train", "none"]), 78, &words);
    assert_says(&run(folder.path(), &["new", "absent"]), 74, &["cannot read"]);
    assert_says(&run(folder.path(), &["new", "."]), 73, &["is read by this command"]);
}

#[test]
fn a_dry_run_tells_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let timed = ["train", "debug", "--dry-run", "--time", "--device", "cpu"];
    let output = run(folder.path(), &timed);
    assert_code(&output, 0);
    assert_parts(&stdout(&output), &["\ntime about ", " steps, ", "s each here ("]);
    assert!(!folder.path().join("data").exists());
    let json = parsed(&run(folder.path(), &[&timed[..], &["--json"]].concat()));
    assert!(json["time"].as_str().unwrap().starts_with("about "), "{json}");
    assert_code(&run(folder.path(), &["train", "debug", "--time"]), 2);
}

#[test]
fn few_tokens_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let plan = ["train", "quickstart", "--dry-run", "--device", "cpu"];
    let note = "note: patches of 16 px make 5 tokens of an image of 32 px, 2 x 2 patches";
    let coarse = run(folder.path(), &[&plan[..], &["--set", "model.patch_size=16"]].concat());
    assert_parts(&stdout(&coarse), &[note, "model.patch_size = 4"]);
    assert!(!stdout(&run(folder.path(), &plan)).contains("make 65 tokens"));
}
