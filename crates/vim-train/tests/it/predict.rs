//! `predict` of folders, the names of their classes, and the files that it writes.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::support::{
    Bench, assert_code, assert_parts, assert_says, json_lines, parsed, read_json, repository, set,
    stderr, stdout, vim_train,
};

/// Odd files that are images, of vim-data's tests.
const GOOD: [&str; 4] = ["444.jpg", "gray.png", "png.JPEG", "cmyk.jpg"];
const CLASSES: [&str; 2] = ["apple pie", "cherry pie"];

fn copy(name: &str, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(repository("crates/vim-data/tests/golden/odd").join(name), to).unwrap();
}

/// A run on two classes of photographs, and the folder of these.
fn trained() -> Bench {
    let bench = Bench::new();
    let root = bench.folder("pies");
    for part in ["train", "val"] {
        for (class, name) in CLASSES.iter().flat_map(|class| GOOD.map(|name| (class, name))) {
            copy(name, &root.join(part).join(class).join(name));
        }
    }
    let path = format!("data.path={}", root.display());
    let sets = ["data.dataset=folder", &path, "train.batch_size=4", "train.epochs=1"];
    assert_code(&bench.train("a", &set(&sets)), 0);
    bench
}

fn predict(bench: &Bench, images: &Path, more: &[&str]) -> Output {
    let run = bench.folder("a");
    let args = ["predict", images.to_str().unwrap(), "--checkpoint", run.to_str().unwrap()];
    vim_train(&[&args, more].concat()).output().unwrap()
}

#[test]
fn the_names_of_the_folders_are_the_classes() {
    let bench = trained();
    assert_eq!(read_json(bench.folder("a/classes.json")), serde_json::json!(CLASSES));
    let image = bench.folder("pies/val/apple pie/444.jpg");
    let said = parsed(&predict(&bench, &image, &["--json"]));
    let guesses = said[0]["predictions"].as_array().unwrap();
    assert_eq!(guesses.len(), 2);
    for guess in guesses {
        assert_eq!(guess["name"], CLASSES[guess["class"].as_u64().unwrap() as usize]);
    }
    assert_parts(&stdout(&predict(&bench, &image, &[])), &["apple pie (0)", "cherry pie (1)"]);

    let table = bench.folder("eval.csv");
    let run = bench.folder("a");
    let args = ["eval", run.to_str().unwrap(), "--predictions", table.to_str().unwrap()];
    assert_code(&vim_train(&args).output().unwrap(), 0);
    let mut rows = csv::Reader::from_path(&table).unwrap();
    let names: Vec<String> = rows.records().map(|row| row.unwrap()[6].to_owned()).collect();
    assert_eq!(names, [[CLASSES[0]; 4], [CLASSES[1]; 4]].concat());

    // The weights have the names with them.
    fs::remove_file(bench.folder("a/classes.json")).unwrap();
    assert_parts(&stdout(&predict(&bench, &image, &[])), &["apple pie (0)", "cherry pie (1)"]);
    // A list of the same names in another order is not taken for other names.
    fs::write(bench.folder("names.txt"), format!("{}\n{}\n", CLASSES[1], CLASSES[0])).unwrap();
    let names = bench.folder("names.txt").display().to_string();
    let output = predict(&bench, &image, &["--classes", &names]);
    assert_parts(&stdout(&output), &["apple pie (0)", "cherry pie (1)"]);
    assert_says(&output, 0, &["in another order"]);
}

#[test]
fn a_folder_is_predicted_whole_and_bad_files_are_named() {
    let bench = trained();
    let photos = bench.folder("photos");
    let good = ["a/<b>.jpg", "a/c.JPEG", "d.png"];
    for (name, file) in GOOD.iter().zip(good) {
        copy(name, &photos.join(file));
    }
    copy("gray.png", &photos.join(".hidden.png"));
    fs::write(photos.join("notes.txt"), "no image").unwrap();
    let folder = photos.display();
    let expected = good.map(|name| format!("{folder}/{name}"));

    let whole = predict(&bench, &photos, &["--json", "--batch", "2"]);
    assert_code(&whole, 0);
    let whole = parsed(&whole);
    copy("half.jpg", &photos.join("b/half.jpg"));
    copy("empty.jpg", &photos.join("e.jpg"));
    let bad = ["b/half.jpg ", "e.jpg ", "error: 2 of 5 images cannot be used (named above)"];
    let write = |name: &str, more: &[&str]| {
        let path = bench.folder(name);
        let output = predict(&bench, &photos, &[&["-o", path.to_str().unwrap()], more].concat());
        assert_says(&output, 65, &bad);
        fs::read_to_string(path).unwrap()
    };

    let text = predict(&bench, &photos, &["--batch", "1", "--top", "1"]);
    assert_says(&text, 65, &bad);
    let images: Vec<String> =
        stdout(&text).lines().filter(|line| !line.starts_with(' ')).map(str::to_owned).collect();
    assert_eq!(images, expected);
    assert_eq!(stdout(&text).lines().count(), 6);

    let lines = json_lines(&write("out.jsonl", &["--top", "1"]));
    let table = write("out.csv", &[]);
    let mut table = csv::Reader::from_reader(table.as_bytes());
    let header: Vec<&str> = table.headers().unwrap().iter().collect();
    assert_eq!(header, ["image", "predicted", "probability", "top5", "predicted_name"]);
    let rows: Vec<csv::StringRecord> = table.records().map(Result::unwrap).collect();
    assert_eq!((lines.len(), rows.len()), (3, 3));
    for (place, (line, row)) in lines.iter().zip(&rows).enumerate() {
        let best = &whole[place]["predictions"][0];
        assert_eq!((&row[0], &line["image"]), (&*expected[place], &whole[place]["image"]));
        assert_eq!(row[1], best["class"].to_string());
        assert_eq!(row[4], *best["name"].as_str().unwrap());
        assert_eq!(row[3].split(' ').count(), 2, "there are two classes");
        assert_eq!(line["predictions"].as_array().unwrap().len(), 1);
        let probability: f64 = row[2].parse().unwrap();
        // Batches of other sizes round otherwise.
        assert!((probability - best["probability"].as_f64().unwrap()).abs() < 1e-5);
    }

    let page = write("out.html", &[]);
    assert_eq!(page.matches("src=\"data:image/png;base64,").count(), 3);
    assert_parts(&page, &["prefers-color-scheme: dark", "a/&lt;b&gt;.jpg", "3 images", CLASSES[0]]);
    for reference in ["http://", "https://", "<script", "<b>.jpg"] {
        assert!(!page.contains(reference), "{reference}");
    }
}

#[test]
fn what_cannot_be_written_or_found_is_said_before_any_work() {
    let bench = trained();
    let empty = bench.folder("empty");
    fs::create_dir(&empty).unwrap();
    assert_says(&predict(&bench, &empty, &[]), 65, &["empty holds no images"]);
    let pies = bench.folder("pies/val");
    assert_says(&predict(&bench, &pies, &["-o", "x.json"]), 2, &[".csv, .jsonl or .html"]);
    let there = bench.folder("there.csv");
    fs::write(&there, "mine").unwrap();
    let output = ["-o", there.to_str().unwrap()];
    assert_says(&predict(&bench, &pies, &output), 73, &["is there already"]);
    let forced = predict(&bench, &pies, &[&output[..], &["--force"]].concat());
    assert_code(&forced, 0);
    assert_eq!(stdout(&forced), format!("wrote {}, images 8\n", there.display()));
    assert_eq!(stderr(&forced), "", "the last weights are the result of such a run");
}
