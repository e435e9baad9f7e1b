//! Each flag of `eval` and `predict` with each task: it does what it says, or is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use crate::dense::write_picture;
use crate::support::{
    Bench, assert_code, assert_parts, assert_says, repository, run, set, stderr, stdout,
};

/// Flags that every command has, and that no task changes.
const COMMON: [&str; 2] = ["--help", "--set"];
/// The flag that needs no task: it compares two files.
const WITHOUT_TASK: &str = "--coco";

/// A task: its configuration, and what its predictions are printed with.
struct Case {
    task: &'static str,
    config: &'static str,
    /// Parameters with a number for each class.
    head: &'static str,
    /// Rows of positions that are no patches.
    tokens: usize,
}

const CASES: [Case; 3] = [
    Case { task: "classification", config: "configs/debug.toml", head: "head.", tokens: 1 },
    Case {
        task: "segmentation",
        config: "crates/vim-train/tests/it/fixtures/segment.toml",
        head: "decode_head.conv_seg.",
        tokens: 0,
    },
    Case {
        task: "detection",
        config: "crates/vim-train/tests/it/fixtures/detect.toml",
        head: "mask_head.predictor.",
        tokens: 0,
    },
];

/// A trained run of a task, and files of its weights that lack something.
struct Trained {
    case: &'static Case,
    bench: Bench,
}

impl Trained {
    fn new(case: &'static Case) -> Self {
        let bench = Bench::of(case.config);
        let short = set(&["train.epochs=1", "train.ema=0.5", "train.eval_every=4st"]);
        assert_code(&bench.train("run", &short), 0);
        let trained = Self { case, bench };
        let saved = trained.bench.folder("run/checkpoints");
        let steps = fs::read_dir(saved).unwrap().map(|entry| entry.unwrap().path());
        let newest = steps.filter(|path| path.is_dir()).max().unwrap();
        let bytes = fs::read(newest.join("model.safetensors")).unwrap();
        let keeps = |name: &str| !name.starts_with(case.head);
        fs::write(trained.path("headless.safetensors"), rewritten(&bytes, keeps, None)).unwrap();
        let rows = 4 + case.tokens;
        let other_grid = rewritten(&bytes, |_| true, Some(rows));
        fs::write(trained.path("other_grid.safetensors"), other_grid).unwrap();
        write_picture(&trained.path("picture.png"));
        trained
    }

    fn path(&self, name: &str) -> String {
        self.bench.folder(name).display().to_string()
    }

    fn eval(&self, more: &[&str]) -> Output {
        self.bench.eval(
            "run",
            &[&set(&["train.epochs=1", "train.ema=0.5", "train.eval_every=4st"]), more].concat(),
        )
    }

    fn predict(&self, more: &[&str]) -> Output {
        let (picture, run_folder) = (self.path("picture.png"), self.path("run"));
        run(&[&["predict", &picture, "--checkpoint", &run_folder], more].concat())
    }
}

/// The weights in `bytes` that `keeps` names, with as many `rows` of positions, if it is given.
fn rewritten(bytes: &[u8], keeps: impl Fn(&str) -> bool, rows: Option<usize>) -> Vec<u8> {
    let file = SafeTensors::deserialize(bytes).unwrap();
    let mut arrays: BTreeMap<String, TensorView<'_>> = file.tensors().into_iter().collect();
    arrays.retain(|name, _| keeps(name));
    for (name, array) in &mut arrays {
        if let (true, Some(rows)) = (name.ends_with("pos_embed"), rows) {
            let width = array.shape()[2];
            let data = &array.data()[..4 * rows * width];
            *array = TensorView::new(array.dtype(), vec![1, rows, width], data).unwrap();
        }
    }
    safetensors::serialize(arrays, None).unwrap()
}

/// The long flags that `--help` of a command lists.
fn flags_of(command: &str) -> BTreeSet<String> {
    let help = stdout(&run(&[command, "--help"]));
    let options = help.split("Options:").nth(1).unwrap().split("Examples:").next().unwrap();
    let flag = |line: &str| {
        let line = line.trim_start();
        let rest = line.strip_prefix("--").or_else(|| {
            line.split_once(", --").filter(|(short, _)| short.len() == 2).map(|(_, rest)| rest)
        })?;
        let name: String =
            rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
        Some(format!("--{name}"))
    };
    let flags: BTreeSet<String> = options.lines().filter_map(flag).collect();
    flags
        .into_iter()
        .filter(|flag| !COMMON.contains(&flag.as_str()) && flag != WITHOUT_TASK)
        .collect()
}

/// What became of each flag with each task, by command.
type Table = BTreeMap<(&'static str, String), BTreeMap<&'static str, String>>;

fn note(table: &mut Table, command: &'static str, task: &'static str, flags: &[&str]) {
    for flag in flags {
        let row = table.entry((command, (*flag).to_owned())).or_default();
        row.insert(task, "yes".to_owned());
    }
}

/// `output` is a refusal of `flag`, whose reason goes into the table.
#[track_caller]
fn note_refused(
    table: &mut Table,
    command: &'static str,
    task: &'static str,
    flag: &str,
    output: &Output,
) {
    let start = format!("error: {flag} has no meaning with task = \"{task}\": ");
    assert_says(output, 2, &[&start]);
    let said = stderr(output);
    let reason = said.trim().strip_prefix(&start).unwrap().to_owned();
    assert!(reason.len() > 10, "{said}");
    table.entry((command, flag.to_owned())).or_default().insert(task, format!("no: {reason}"));
}

/// Files that `eval` writes, and the tasks that write them.
const EVAL_FILES: [(&str, &str, &[&str]); 5] = [
    ("--predictions", "csv", &["classification"]),
    ("--per-class", "csv", &["classification", "segmentation", "detection"]),
    ("--confusion", "csv", &["classification", "segmentation"]),
    ("--detections", "json", &["detection"]),
    ("--annotations", "json", &["detection"]),
];

fn eval_flags(trained: &Trained, table: &mut Table) {
    let task = trained.case.task;
    let plain = trained.eval(&["--json"]);
    assert_code(&plain, 0);
    let of_average = trained.eval(&["--json", "--ema", "--checkpoint", "last", "--split", "val"]);
    assert_code(&of_average, 0);
    assert_parts(&stdout(&of_average), &["\"weights\": \"ema\"", "\"split\": \"val\""]);
    let text = stdout(&trained.eval(&["--ema", "--checkpoint", "last"]));
    assert_parts(&text, &["moving average of the weights"]);
    let own = stdout(&trained.eval(&["--json", "--no-ema"]));
    assert_parts(&own, &["\"weights\": \"model\""]);
    let one_by_one = trained.eval(&["--json", "--batch", "3"]);
    assert_code(&one_by_one, 0);
    let elsewhere = trained.eval(&["--device", "cuda:77"]);
    assert_code(&elsewhere, 69);
    let flags = ["--json", "--ema", "--no-ema", "--checkpoint", "--split", "--batch", "--device"];
    note(table, "eval", task, &flags);

    let mut written = Vec::new();
    for (flag, extension, tasks) in EVAL_FILES {
        let file = trained.path(&format!("{}.{extension}", &flag[2..]));
        if tasks.contains(&task) {
            written.push((flag, file));
        } else {
            note_refused(table, "eval", task, flag, &trained.eval(&[flag, &file]));
            assert!(!Path::new(&file).exists(), "{flag} wrote a file");
        }
    }
    let files: Vec<&str> = written.iter().flat_map(|(flag, file)| [*flag, file.as_str()]).collect();
    assert_code(&trained.eval(&files), 0);
    for (flag, file) in &written {
        assert!(fs::metadata(file).unwrap().len() > 10, "{flag}");
        note(table, "eval", task, &[flag]);
    }
    assert_code(&trained.eval(&files), 73);
    assert_code(&trained.eval(&[&files[..], &["--force"]].concat()), 0);
    note(table, "eval", task, &["--force"]);

    let several = trained.eval(&["--multi-scale", "--json"]);
    if task == "segmentation" {
        assert_code(&several, 0);
        note(table, "eval", task, &["--multi-scale"]);
    } else {
        note_refused(table, "eval", task, "--multi-scale", &several);
    }

    // Of label maps the background is a class.
    let classes = if task == "detection" { 11 } else { 12 };
    let headless = trained.path("headless.safetensors");
    let of_file = |more: &[&str]| trained.eval(&[&["--checkpoint", &headless], more].concat());
    assert_says(&of_file(&[]), 65, &["does not fit the model"]);
    assert_says(
        &of_file(&["--allow", "head"]),
        0,
        &[&format!("no head in the file: a new one of {classes} classes")],
    );
    let missing = of_file(&["--allow-missing"]);
    assert_says(&missing, 0, &["missing, left as initialised", trained.case.head]);
    note(table, "eval", task, &["--allow", "--allow-missing"]);
    let grid = trained.path("other_grid.safetensors");
    let of_grid = |more: &[&str]| trained.eval(&[&["--checkpoint", &grid], more].concat());
    assert_says(&of_grid(&[]), 65, &["does not fit the model"]);
    let resized = "positions resized from 2 x 2 to 4 x 4 patches (parity)";
    assert_says(&of_grid(&["--pos-embed", "parity"]), 0, &[resized]);
    note(table, "eval", task, &["--pos-embed"]);
}

/// Folders and files that `predict` writes, what is in them then, and the tasks that write them.
const PREDICT_FILES: [(&str, &str, &str, &[&str]); 4] = [
    ("--output", "out.csv", "", &["classification"]),
    ("--maps", "maps", "picture_overlay.png", &["segmentation"]),
    ("--submission", "submission", "picture.png", &["segmentation"]),
    ("--drawn", "drawn", "picture_objects.png", &["detection"]),
];

fn predict_flags(trained: &Trained, table: &mut Table) {
    let task = trained.case.task;
    let plain = trained.predict(&["--json"]);
    assert_code(&plain, 0);
    let names: Vec<String> = (0..12).map(|class| format!("thing {class}")).collect();
    let classes = trained.path("names.txt");
    fs::write(&classes, names.join("\n")).unwrap();
    let named = trained.predict(&["--classes", &classes, "--json", "--batch", "2"]);
    assert_parts(&stdout(&named), &["thing "]);
    let config = repository(trained.case.config).display().to_string();
    let given = ["--config", &config, "--no-ema"];
    assert_code(&trained.predict(&given), 0);
    assert_says(&trained.predict(&["--device", "cuda:77"]), 69, &[]);
    let average = trained.predict(&["--ema", "--json"]);
    assert_code(&average, 0);
    let flags = ["--json", "--classes", "--batch", "--config", "--no-ema", "--device", "--ema"];
    note(table, "predict", task, &flags);
    note(table, "predict", task, &["--checkpoint"]);

    let key = match task {
        "classification" => "\"class\"",
        "segmentation" => "\"share\"",
        _ => "\"score\"",
    };
    let first = stdout(&trained.predict(&["--top", "1", "--json"]));
    assert!(first.matches(key).count() <= 1, "{first}");
    note(table, "predict", task, &["--top"]);

    let mut written = Vec::new();
    for (flag, name, content, tasks) in PREDICT_FILES {
        let path = trained.path(name);
        if tasks.contains(&task) {
            assert_code(&trained.predict(&[flag, &path]), 0);
            let file = PathBuf::from(&path).join(content);
            let file = if content.is_empty() { PathBuf::from(&path) } else { file };
            assert!(file.is_file(), "{}", file.display());
            note(table, "predict", task, &[flag]);
            written.push((flag, path));
        } else {
            note_refused(table, "predict", task, flag, &trained.predict(&[flag, &path]));
        }
    }
    let (flag, path) = &written[0];
    assert_code(&trained.predict(&[flag, path]), 73);
    assert_code(&trained.predict(&[flag, path, "--force"]), 0);
    note(table, "predict", task, &["--force"]);

    let least = trained.predict(&["--least", "0.999", "--json"]);
    if task == "detection" {
        assert_code(&least, 0);
        assert!(!stdout(&least).contains("\"score\""), "{}", stdout(&least));
        note(table, "predict", task, &["--least"]);
    } else {
        note_refused(table, "predict", task, "--least", &least);
    }
    let several = trained.predict(&["--multi-scale", "--json"]);
    if task == "segmentation" {
        assert_code(&several, 0);
        note(table, "predict", task, &["--multi-scale"]);
    } else {
        note_refused(table, "predict", task, "--multi-scale", &several);
    }

    let of = |file: &str, more: &[&str]| {
        let (picture, file) = (trained.path("picture.png"), trained.path(file));
        let args = ["predict", &picture, "--config", &config, "--checkpoint", &file];
        run(&[&args, more].concat())
    };
    // Weights without a head do not say how many classes there are.
    assert_says(&of("other_grid.safetensors", &[]), 65, &["does not fit the model"]);
    assert_code(&of("other_grid.safetensors", &["--pos-embed", "parity"]), 0);
    let without = trained.path("without_weight.safetensors");
    let bytes = fs::read(trained.path("other_grid.safetensors")).unwrap();
    let weight = format!("{}weight", trained.case.head);
    fs::write(&without, rewritten(&bytes, |name| name != weight, None)).unwrap();
    let resize = ["--pos-embed", "parity"];
    let of_part = |more: &[&str]| of("without_weight.safetensors", &[&resize, more].concat());
    assert_says(&of_part(&[]), 65, &["does not fit the model"]);
    assert_says(&of_part(&["--allow", "head"]), 0, &["no head in the file"]);
    assert_says(&of_part(&["--allow-missing"]), 0, &["missing, left as initialised"]);
    note(table, "predict", task, &["--pos-embed", "--allow", "--allow-missing"]);
}

/// The table in words, as docs/commands.md has it.
fn shown(table: &Table) -> String {
    let tasks = CASES.each_ref().map(|case| case.task);
    let mut lines =
        vec![format!("| flag | {} |", tasks.join(" | ")), "|---|---|---|---|".to_owned()];
    let mut rows: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for ((command, flag), row) in table {
        let cells = tasks.map(|task| row[task].as_str()).join(" | ");
        rows.entry(format!("`{flag}` | {cells} |")).or_default().push(command);
    }
    lines.extend(rows.into_iter().map(|(row, of)| {
        let (flag, cells) = row.split_once(" | ").unwrap();
        format!("| {flag} of {} | {cells}", of.join(", "))
    }));
    lines.join("\n")
}

#[test]
fn every_flag_is_honoured_or_refused_with_every_task() {
    let mut table = Table::new();
    for case in &CASES {
        let trained = Trained::new(case);
        eval_flags(&trained, &mut table);
        predict_flags(&trained, &mut table);
    }
    for command in ["eval", "predict"] {
        let of = table.keys().filter(|(of, _)| *of == command);
        let known: BTreeSet<String> = of.map(|(_, flag)| flag.clone()).collect();
        assert_eq!(flags_of(command), known, "flags of {command} --help, and those tried here");
    }
    assert!(table.values().all(|row| row.len() == CASES.len()), "{table:?}");
    let page = fs::read_to_string(repository("docs/commands.md")).unwrap();
    let shown = shown(&table);
    assert!(page.contains(&shown), "docs/commands.md should have this table:\n{shown}");
}

#[test]
fn two_files_are_compared_by_no_task_and_no_weights() {
    for flag in ["--ema", "--allow-missing", "--multi-scale"] {
        assert_code(&run(&["eval", "--coco", "a.json", "b.json", flag]), 2);
    }
    let options: [&[&str]; 4] =
        [&["--device", "cpu"], &["--batch", "2"], &["--pos-embed", "parity"], &["--allow", "head"]];
    for option in options {
        assert_code(&run(&[&["eval", "--coco", "a.json", "b.json"], option].concat()), 2);
    }
}
