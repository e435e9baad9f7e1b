//! `explain`: the files that it writes, what is in them, and what it refuses.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::dense::write_picture;
use crate::features::array;
use crate::support::{
    Bench, assert_code, assert_parts, assert_says, repository, run, set, stderr, stdout, write,
};

/// A run of a few steps with these values.
fn train(bench: &Bench, name: &str, values: &[&str]) {
    assert_code(&bench.train(name, &[&["--steps", "4"][..], &set(values)].concat()), 0);
}

fn explain(bench: &Bench, image: &str, runs: &[&str], more: &[&str]) -> Output {
    let (image, out) = (bench.folder(image), bench.folder("out"));
    let runs: Vec<String> = runs
        .iter()
        .map(|run| bench.folder(run).join("checkpoints/last").display().to_string())
        .collect();
    let runs: Vec<&str> = runs.iter().flat_map(|run| ["--checkpoint", run.as_str()]).collect();
    let first = ["explain", image.to_str().unwrap(), "-o", out.to_str().unwrap()];
    run(&[&first[..], &runs, more].concat())
}

fn floats(bench: &Bench, file: &str, name: &str) -> (Vec<u64>, Vec<f64>) {
    array(&bench.folder("out").join(file), name)
}

fn copy(bench: &Bench, name: &str) {
    let odd = repository("crates/vim-data/tests/golden/odd").join(name);
    fs::copy(odd, bench.folder(name)).unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn methods_are_side_by_side_and_other_weights_look_elsewhere() {
    let bench = Bench::new();
    train(&bench, "zoh", &[]);
    train(&bench, "poly", &["model.discretization=poly"]);
    train(&bench, "other", &["run.seed=1"]);
    copy(&bench, "444.jpg");
    let output = explain(&bench, "444.jpg", &["zoh", "poly", "other"], &[]);
    assert_code(&output, 0);
    assert_parts(&stdout(&output), &["444.jpg  zoh: ", "444.jpg  poly: ", "explain.html\n"]);
    let out = bench.folder("out");
    let of = |run: &str| {
        let ends = ["-cam.png", "-layer00-backward.png", "-layer00-forward.png"];
        let more = ["-layer01-backward.png", "-layer01-forward.png", "-rollout.png", ".npz"];
        ends.into_iter().chain(more).map(move |end| format!("444-{run}{end}")).collect::<Vec<_>>()
    };
    let expected = [of("other"), of("poly"), of("zoh"), vec!["explain.html".to_owned()]].concat();
    assert_eq!(names(&out), expected);

    let mut maps = Vec::new();
    for run in ["zoh", "poly", "other"] {
        let file = format!("444-{run}.npz");
        let (shape, attention) = floats(&bench, &file, "attention");
        assert_eq!(shape, [2, 2, 17]);
        assert!(attention.iter().all(|alpha| *alpha >= 0.0 && alpha.is_finite()));
        // The class token is the ninth of seventeen; one way of a one-way method sees half.
        let seen = |way: usize, token: usize| attention[17 * way + token] > 0.0;
        assert!(seen(0, 0) && seen(0, 8) && seen(1, 8) && seen(1, 16));
        assert_eq!(seen(0, 9) && seen(1, 7), run == "poly", "{run}");
        let (_, rollout) = floats(&bench, &file, "rollout");
        assert!((rollout.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let (shape, cam) = floats(&bench, &file, "cam");
        assert!(shape == [4, 4] && cam.iter().all(|value| *value >= 0.0));
        let (_, read) = floats(&bench, &file, "read");
        assert_eq!(read.iter().position(|share| *share == 1.0), Some(8));
        maps.push((attention, rollout, cam));
    }
    for (a, b) in [(0, 1), (0, 2)] {
        assert!(maps[a].0 != maps[b].0 && maps[a].1 != maps[b].1 && maps[a].2 != maps[b].2);
    }
    let page = fs::read_to_string(out.join("explain.html")).unwrap();
    let titles = ["What is looked at", "Grad-CAM of the class", "Roll-out over all layers"];
    assert_parts(&page, &titles);
    assert_parts(&page, &["Hidden attention of layer 1, backward", "<code>poly</code>"]);
    assert!(!page.contains("layer 0,") && !page.contains("http:") && !page.contains("https:"));

    // The same bytes again, if they may be written over.
    let before = fs::read(out.join("444-zoh.npz")).unwrap();
    assert_says(&explain(&bench, "444.jpg", &["zoh"], &[]), 73, &["is there already"]);
    assert_code(&explain(&bench, "444.jpg", &["zoh"], &["--force"]), 0);
    assert!(fs::read(out.join("444-zoh.npz")).unwrap() == before);
}

#[test]
fn what_a_causal_model_cannot_see_has_nothing() {
    let bench = Bench::new();
    train(&bench, "one", &["model.bimamba=none", "model.class_token=none", "model.pool=mean"]);
    write_picture(bench.folder("a.png").to_str().unwrap());
    let image = bench.folder("a.png").display().to_string();
    // A pixel of the picture's middle.
    let more = ["--pixel", "20,28", "--draw", "attention", "--layers", "-1", "--erf", &image];
    assert_code(&explain(&bench, "a.png", &["one"], &more), 0);
    let files = ["a-one-layer01-forward.png", "a-one.npz", "erf-one.npz", "erf-one.png"];
    assert_eq!(names(&bench.folder("out")), [&files[..], &["explain.html"]].concat());
    let (_, read) = floats(&bench, "a-one.npz", "read");
    let token = read.iter().position(|share| *share == 1.0).unwrap();
    let (shape, attention) = floats(&bench, "a-one.npz", "attention");
    assert_eq!(shape, [1, 1, 16]);
    assert!((1..15).contains(&token), "{token}");
    for (at, alpha) in attention.iter().enumerate() {
        assert_eq!(*alpha != 0.0, at <= token, "token {at} of {token}");
    }
    // The middle patch is the third of the third row, of 8 pixels.
    let (shape, erf) = floats(&bench, "erf-one.npz", "erf");
    assert_eq!(shape, [32, 32]);
    for (at, gradient) in erf.iter().enumerate() {
        let patch = at / 32 / 8 * 4 + at % 32 / 8;
        assert!(patch <= 10 || *gradient == 0.0, "pixel {at}");
    }
    assert!(erf[31 * 32 / 2] > 0.0);
}

#[test]
fn a_pixel_is_segmented_and_a_box_detected() {
    let bench = Bench::of("crates/vim-train/tests/it/fixtures/segment.toml");
    train(&bench, "seg", &[]);
    write_picture(bench.folder("a.png").to_str().unwrap());
    assert_code(&explain(&bench, "a.png", &["seg"], &["--pixel", "3,4", "--class", "2"]), 0);
    let (shape, attention) = floats(&bench, "a-seg.npz", "attention");
    assert_eq!((shape, attention.len()), (vec![4, 2, 16], 128));
    let (_, read) = floats(&bench, "a-seg.npz", "read");
    assert_eq!(read[0], 1.0, "the patch of the pixel: {read:?}");
    let refused = explain(&bench, "a.png", &["seg"], &["--box", "1,2,9,9", "--force"]);
    assert_says(&refused, 2, &["--box has no meaning with task = \"segmentation\": a class is of"]);

    let bench = Bench::of("crates/vim-train/tests/it/fixtures/detect.toml");
    train(&bench, "det", &["detection.score_threshold=0.0"]);
    write_picture(bench.folder("a.png").to_str().unwrap());
    assert_code(&explain(&bench, "a.png", &["det"], &["--box", "2,2,20,20"]), 0);
    let (shape, cam) = floats(&bench, "a-det.npz", "cam");
    assert!(shape == [4, 4] && cam.iter().all(|value| value.is_finite()));
    assert_code(&explain(&bench, "a.png", &["det"], &["--draw", "cam", "--force"]), 0);
    let refused = explain(&bench, "a.png", &["det"], &["--pixel", "1,2", "--force"]);
    assert_says(
        &refused,
        2,
        &["--pixel has no meaning with task = \"detection\": a class is of a"],
    );
}

#[test]
fn mistakes_are_one_line() {
    let bench = Bench::new();
    train(&bench, "a", &[]);
    train(&bench, "full", &["model.discretization=bilinear", "ssm.a=full"]);
    copy(&bench, "444.jpg");
    write(&bench.folder("none.png"), "no image");
    for (image, run, more, code, said) in [
        ("444.jpg", "a", &["--class", "99"][..], 2, "--class 99: the model knows 0 to"),
        ("444.jpg", "a", &["--layers", "0,2"], 2, "--layers 2: the model has 2 blocks, 0 to 1 or"),
        ("444.jpg", "a", &["--pixel", "9000,1"], 2, "--pixel is nothing that the model sees"),
        ("444.jpg", "a", &["--box", "1,1,5,5"], 2, "--box has no meaning with task"),
        ("444.jpg", "full", &[], 78, "does not run with a full A"),
        ("none.png", "a", &[], 65, "none.png"),
        ("missing.png", "a", &[], 74, "missing.png"),
        ("444.jpg", "a", &["--erf", "/nowhere"], 74, "/nowhere"),
    ] {
        let output = explain(&bench, image, &[run], more);
        assert_says(&output, code, &[said]);
        let lines = stderr(&output).lines().filter(|line| line.starts_with("error")).count();
        assert_eq!((lines, stderr(&output).lines().count()), (1, 1), "{}", stderr(&output));
        let _ = fs::remove_dir_all(bench.folder("out"));
    }
    for (more, said) in [
        (&["--box", "5,1,1,5"][..], "expected X0 < X1"),
        (&["--pixel", "5"], "expected 2 numbers"),
        (&["--draw", "lime"], "attention, rollout, cam"),
        (&["--pixel", "1,1", "--box", "1,1,5,5"], "cannot be used with"),
    ] {
        assert_says(&explain(&bench, "444.jpg", &["a"], more), 2, &[said]);
    }
}
