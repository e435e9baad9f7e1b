//! Writes a report of made-up numbers, for work on its layout and for browser tests:
//!
//! `cargo run -p vim-sweep --example page -- report.html [SEEDS]`; its figures go to
//! `report.figures`.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs};

use vim_run::metrics::{LARGEST_DELTA_A, ScoreKind};
use vim_sweep::differences::differences;
use vim_sweep::predictions::Predictions;
use vim_sweep::report::{Page, Provenance, SHOWN, figures, html};
use vim_sweep::{Assignments, Machine, ReportConfig, RunOutcome, RunState, SEED, Score, summarize};

const METHODS: [&str; 10] = [
    "zoh",
    "foh",
    "bilinear",
    "poly",
    "highorder",
    "rk4",
    "zoh_exact",
    "exp_trapezoidal",
    "foh_linear",
    "tustin",
];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).unwrap_or_else(|| "report.html".into());
    let seeds: i64 = env::args().nth(2).map_or(Ok(5), |text| text.parse())?;
    let mut outcomes = Vec::new();
    for (number, method) in METHODS.iter().enumerate() {
        for seed in 0..seeds {
            outcomes.push(outcome(outcomes.len(), method, number, seed));
        }
    }
    let last = outcomes.len() - 1;
    let failed = &mut outcomes[last - last / 20];
    failed.state = RunState::Failed(76);
    failed.error = Some("training diverged at step 1210: the loss is NaN".into());
    failed.scores.truncate(8);
    failed.losses.truncate(60);
    failed.step = Some(1210);
    let stopped = &mut outcomes[last - last / 6 - 1];
    stopped.state = RunState::Interrupted;
    stopped.step = Some(3000);
    let baseline = Assignments::from([("model.discretization".to_owned(), "zoh".into())]);
    let report = ReportConfig { baseline, ..ReportConfig::default() };
    let scores = [ScoreKind::LOSS, ScoreKind::share("top1", "top-1")];
    let summary = summarize(&outcomes, &report, &scores)?;
    let differences = differences(&summary, &mut |name| predictions(name).map(Some));
    let page = Page {
        name: "made-up-numbers",
        summary: &summary,
        outcomes: &outcomes,
        differences: &differences,
        thumbnails: &vec![Some(PICTURE.to_owned()); SHOWN],
        classes: None,
        predict: "vim-train eval RUN --predictions RUN/predictions.csv",
        coloured: "model.discretization",
        colours: &METHODS.map(str::to_owned),
        must_match: &["train", "optim.lr"].map(str::to_owned),
        is_free: &|key| key == "run.root",
        duration: &|seconds| format!("{:.0} min", seconds / 60.0),
        provenance: Provenance {
            folder: "data/runs/made-up-numbers".into(),
            source: "examples/page.rs".into(),
            command: "cargo run -p vim-sweep --example page".into(),
            planned: "never: these numbers are nobody's measurements".into(),
            made: "by hand".into(),
            ..Provenance::default()
        },
    };
    fs::write(&path, html(&page))?;
    let folder = PathBuf::from(path).with_extension("figures");
    fs::create_dir_all(&folder)?;
    for (name, svg) in figures(&page) {
        fs::write(folder.join(name).with_extension("svg"), svg)?;
    }
    Ok(())
}

/// A picture of one pixel.
const PICTURE: &str = "data:image/png;base64,\
    iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNwaDgAAAKEAYEml6crAAAA\
    AElFTkSuQmCC";

/// Made-up predictions: which images are right depends on the run's name.
fn predictions(name: &str) -> Result<Predictions, String> {
    let seed = name.bytes().fold(7_u64, |sum, byte| 31 * sum % 1_000_003 + u64::from(byte));
    let rows = (0..400_u64).map(|image| {
        let class = image % 10;
        let is_wrong = (image * image + seed * (image % 7)) % 11 < 3;
        let predicted = if is_wrong { (class + 1) % 10 } else { class };
        format!("{image},val/class{class}/{image:05}.png,{class},class {class},{predicted}\n")
    });
    let head = "index,image,label,label_name,predicted\n";
    Predictions::parse((head.to_owned() + &rows.collect::<String>()).as_bytes())
}

/// A run with made-up numbers: a formula and noise from a hash of its index.
fn outcome(index: usize, method: &str, number: usize, seed: i64) -> RunOutcome {
    let noise = |at: u64| {
        // SplitMix64's mixer: pseudo-random and reproducible.
        let mut mixed = (index as u64 * 1_000_003 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 40) as f64 / f64::from(1 << 24) - 0.5
    };
    let top = [0.741, 0.752, 0.757, 0.738, 0.7535, 0.729, 0.742, 0.7571, 0.7525, 0.7568][number];
    let assignments = Assignments::from([
        ("model.discretization".to_owned(), method.into()),
        (SEED.to_owned(), seed.into()),
    ]);
    let mut values = assignments.clone();
    for (key, value) in [("train.epochs", 300), ("train.batch_size", 256), ("model.depth", 24)] {
        values.insert(key.into(), i64::into(value));
    }
    values.insert("optim.lr".into(), 5e-4.into());
    let at = |step: u64| {
        top * (1.0 - (-(step as f64) / 900.0).exp()) + 0.02 * noise(0) + 0.008 * noise(step)
    };
    let score = |step: u64| Score {
        step,
        split: "val".into(),
        checkpoint: "last".into(),
        averaged: None,
        values: BTreeMap::from([
            ("top1".to_owned(), at(step)),
            ("loss".to_owned(), 3.0 - 2.0 * at(step)),
            (LARGEST_DELTA_A.to_owned(), 2.0 + step as f64 / 500.0 + noise(step)),
        ]),
    };
    let loss = |step: u64| {
        1.1 + 3.5 * (-(step as f64) / 1100.0).exp() + 0.12 * noise(step * 3)
            - 0.1 * number as f64 * (step as f64 / 6000.0)
    };
    RunOutcome {
        index,
        id: format!(
            "{:010x}",
            (index as u64 + 3).wrapping_mul(0x009e_3779_b97f) & 0x00ff_ffff_ffff
        ),
        name: format!("{method}-s{seed}"),
        assignments,
        state: RunState::Finished,
        step: Some(6000),
        total_steps: Some(6000),
        error: None,
        scores: (1..=40).map(|epoch| score(150 * epoch)).collect(),
        losses: (1..=300).map(|record| (20.0 * record as f64, loss(20 * record))).collect(),
        images_per_second: Some(
            [5200.0, 5100.0, 5150.0, 3900.0, 4800.0, 4700.0][number] + 90.0 * noise(1),
        ),
        seconds: 3400.0 + 80.0 * number as f64,
        machine: Machine {
            host: Some(format!("node{}", 1 + index % 2)),
            backend: Some("cuda:0 (made up)".into()),
            cpus: Some("12".into()),
            threads: Some("12".into()),
            version: Some("0.1.0".into()),
            commit: Some("0000000".into()),
            job: Some(format!("4711_{index}")),
        },
        values,
    }
}
