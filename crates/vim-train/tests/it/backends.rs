//! The table of tasks and backends, each cell on what this build and this machine have.

use vim_engine::config::{Backend, TaskKind};
use vim_engine::device::{DeviceName, choose_named};
use vim_engine::task::backends::{OFFERED, Work};

use crate::dense::write_picture;
use crate::support::{Bench, assert_code, assert_says, parsed, read_json, run, set};

/// Two steps of four images, and two images to evaluate on.
const FEW: [&str; 6] = [
    "train.epochs=1",
    "train.batch_size=4",
    "data.shapes.train=8",
    "data.shapes.val=2",
    "data.shapes.test=2",
    "log.every=1st",
];

/// How far the first loss on a backend may be from the CPU's, relatively. A rounding may choose
/// another proposal of a detector.
const CLOSE: f64 = 0.02;

/// Does on each backend that is here what the table says of `task`, and is refused the rest.
fn walk(task: TaskKind, config: &str) {
    let bench = Bench::of(config);
    let of_cpu = bench.train("cpu-first", &[&set(&FEW)[..], &["--device", "cpu"]].concat());
    assert_code(&of_cpu, 0);
    let loss = |name: &str| bench.numbers(name, "train", "loss")[0];
    let (model, out) = (bench.folder("cpu-first"), tempfile::tempdir().unwrap());
    let model = model.to_str().unwrap();
    let picture = out.path().join("a.png").display().to_string();
    write_picture(&picture);

    let (_, cells) = OFFERED.iter().find(|(of, _)| *of == task).unwrap();
    for &(backend, works) in cells {
        if choose_named(&DeviceName { backend, number: None }).is_err() {
            eprintln!("{backend} is not here: {task} is not tried on it");
            continue;
        }
        let device = backend.to_string();
        let on = ["--device", &device];
        for work in [Work::Train, Work::Eval, Work::Predict] {
            let output = match work {
                Work::Train => bench.train(&device, &[&set(&FEW)[..], &on].concat()),
                Work::Eval => run(&[&["eval", model, "--json"][..], &on].concat()),
                Work::Predict => {
                    run(&[&["predict", &picture, "--checkpoint", model, "--json"][..], &on]
                        .concat())
                }
            };
            if !works.contains(&work) {
                let words = [device.as_str(), &format!("`{work}` of {task} does not run on it")];
                assert_says(&output, 69, &words);
                assert!(!bench.folder(&device).exists() || work != Work::Train, "a folder is made");
                continue;
            }
            assert_code(&output, 0);
            match work {
                Work::Train => {
                    let [first, own] = ["cpu-first", &device].map(loss);
                    assert!((own - first).abs() < CLOSE * first, "{device}: {own}, cpu: {first}");
                    assert_eq!(read_json(bench.folder(&device).join("exit.json"))["step"], 2);
                }
                Work::Eval => assert_eq!(parsed(&output)["images"], 2),
                Work::Predict => assert_eq!(parsed(&output).as_array().unwrap().len(), 1),
            }
        }
    }
}

#[test]
fn classification_works_where_the_table_says() {
    walk(TaskKind::Classification, "configs/debug.toml");
}

#[test]
fn segmentation_works_where_the_table_says() {
    walk(TaskKind::Segmentation, "crates/vim-train/tests/it/fixtures/segment.toml");
}

#[test]
fn detection_works_where_the_table_says() {
    walk(TaskKind::Detection, "crates/vim-train/tests/it/fixtures/detect.toml");
}

#[test]
fn what_a_device_lacks_is_refused_before_a_folder_is_made() {
    let bench = Bench::new();
    let mut lacking =
        vec![("cpu", "train.precision=\"bf16\"", "the CPU does not multiply in bf16")];
    if choose_named(&DeviceName { backend: Backend::Tch, number: None }).is_ok() {
        let no_kernel = "no fused kernel for LibTorch (tch)";
        lacking.push((
            "tch",
            "train.precision=\"bf16\"",
            "LibTorch (tch) does not multiply in bf16",
        ));
        lacking.push(("tch", "ssm.scan=\"kernel\"", no_kernel));
    }
    for (device, value, words) in lacking {
        let output = bench.train("refused", &["--set", value, "--device", device]);
        assert_says(&output, 69, &[words]);
        assert!(!bench.folder("refused").exists(), "{device} {value}");
    }
}
