//! Made-up runs for tests.

use std::collections::BTreeMap;

use vim_run::metrics::ScoreKind;

use crate::classes::ClassScores;
use crate::config::{Assignments, SEED};
use crate::outcome::{Machine, RunOutcome, RunState, Score};
use crate::predictions::Predictions;

/// What evaluations measure.
pub(crate) const SCORES: &[ScoreKind] =
    &[ScoreKind::LOSS, ScoreKind::share("top1", "top-1"), ScoreKind::share("top5", "top-5")];

/// A finished run whose last validation accuracy is `top1`; the one before was half of it.
pub(crate) fn outcome(method: &str, seed: i64, top1: f64) -> RunOutcome {
    let assignments = Assignments::from([
        ("model.discretization".to_owned(), method.into()),
        (SEED.to_owned(), seed.into()),
    ]);
    let score = |step: u64, top1: f64| Score {
        step,
        split: "val".into(),
        checkpoint: "last".into(),
        averaged: None,
        values: BTreeMap::from([("top1".to_owned(), top1), ("loss".to_owned(), 1.0 - top1)]),
    };
    RunOutcome {
        index: 0,
        id: format!("{method}{seed}"),
        name: format!("{method}-s{seed}"),
        values: assignments.clone(),
        assignments,
        state: RunState::Finished,
        step: Some(20),
        total_steps: Some(20),
        error: None,
        scores: vec![score(10, top1 / 2.0), score(20, top1)],
        losses: vec![(10.0, 2.0), (20.0, 1.0 - top1)],
        images_per_second: Some(100.0 + seed as f64),
        seconds: 10.0,
        machine: Machine { host: Some("node1".into()), ..Machine::default() },
    }
}

/// Finished runs: each method with its accuracies by seed.
pub(crate) fn study(methods: &[(&str, &[f64])]) -> Vec<RunOutcome> {
    let runs = methods.iter().flat_map(|(method, values)| {
        values.iter().enumerate().map(|(seed, &top1)| outcome(method, seed as i64, top1))
    });
    runs.enumerate().map(|(index, run)| RunOutcome { index, ..run }).collect()
}

/// Predictions for images of class 0 with a digit each: 1 if it is right.
pub(crate) fn predictions(right: &str) -> Predictions {
    let rows = right.char_indices().map(|(index, digit)| {
        let predicted = if digit == '1' { "0" } else { "" };
        format!("{index},{index}.png,0,class 0,{predicted}\n")
    });
    let head = "index,image,label,label_name,predicted\n";
    Predictions::parse((head.to_owned() + &rows.collect::<String>()).as_bytes()).unwrap()
}

/// Scores of classes with these IoUs.
pub(crate) fn class_scores(ious: &[Option<f64>]) -> ClassScores {
    let names = (0..ious.len()).map(|class| format!("class {class}")).collect();
    ClassScores { names, scores: ious.to_vec(), ..ClassScores::default() }
}
