use super::*;
use crate::classes::{ClassScores, class_differences};
use crate::differences::differences;
use crate::fixture::{SCORES, study};
use crate::predictions::Predictions;
use crate::{Assignments, ReportConfig, summarize};

fn page(outcomes: &[RunOutcome], metric: &str) -> String {
    page_with(outcomes, metric, &|_| Ok(None), &[])
}

/// A page with the predictions that `read` gives of a run.
pub(super) fn page_with(
    outcomes: &[RunOutcome],
    metric: &str,
    read: &dyn Fn(&str) -> Result<Option<Predictions>, String>,
    thumbnails: &[Option<String>],
) -> String {
    let summary = summary(outcomes, metric);
    let differences = &differences(&summary, &mut |name| read(name));
    rendered(&summary, outcomes, differences, thumbnails, None)
}

/// A page with the scores of classes that `read` gives of a run.
pub(super) fn page_of_classes(
    outcomes: &[RunOutcome],
    read: &dyn Fn(&str) -> Result<Option<ClassScores>, String>,
) -> String {
    let summary = summary(outcomes, "val/top1");
    let classes = class_differences(&summary, &mut |name| read(name));
    rendered(&summary, outcomes, &Differences::default(), &[], Some(&classes))
}

fn summary(outcomes: &[RunOutcome], metric: &str) -> Summary {
    let baseline = Assignments::from([("model.discretization".to_owned(), "zoh".into())]);
    let report = ReportConfig { metric: metric.into(), baseline, ..ReportConfig::default() };
    summarize(outcomes, &report, SCORES).unwrap()
}

fn rendered(
    summary: &Summary,
    outcomes: &[RunOutcome],
    differences: &Differences,
    thumbnails: &[Option<String>],
    classes: Option<&ClassDifferences>,
) -> String {
    html(&Page {
        name: "a <b>study</b>",
        summary,
        outcomes,
        differences,
        thumbnails,
        classes,
        predict: "write them",
        coloured: "model.discretization",
        colours: &["zoh", "foh", "rk4"].map(str::to_owned),
        must_match: &["optim.lr".to_owned()],
        is_free: &|_| false,
        duration: &|seconds| format!("{seconds:.0} s"),
        provenance: Provenance::default(),
    })
}

#[test]
fn a_page_needs_nothing_from_elsewhere() {
    let page = page(&study(&[("zoh", &[0.7, 0.72]), ("rk4", &[0.6, 0.61])]), "val/top1");
    for reference in ["http://", "https://", "src=", "@import", "url(", "<script", "<b>study"] {
        assert!(!page.contains(reference), "{reference}");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert_eq!(page.matches("<svg").count(), 6);
    assert!(!page.contains("NaN") && !page.contains("inf"), "a number is none");
}

#[test]
fn a_method_keeps_its_colour() {
    let alone = page(&study(&[("zoh", &[0.7]), ("rk4", &[0.6])]), "val/top1");
    assert!(alone.contains("<i class=\"swatch c2\"></i>rk4"), "the third of its list");
}

#[test]
fn nothing_finished_is_a_page_too() {
    let mut runs = study(&[("zoh", &[0.7]), ("rk4", &[0.6])]);
    for run in &mut runs {
        run.state = RunState::Missing;
        run.scores.clear();
        run.losses.clear();
    }
    let page = page(&runs, "test/top1");
    assert!(page.contains("no finished run") && page.contains("no records"));
    assert!(!page.contains("NaN"), "a number is none");
}

#[test]
fn failures_are_named() {
    let mut runs = study(&[("zoh", &[0.7, 0.71]), ("rk4", &[0.6, 0.61])]);
    runs[3].state = RunState::Failed(76);
    runs[3].error = Some("training diverged at step 7".into());
    let page = page(&runs, "val/loss");
    assert!(page.contains("rk4-s1 failed (76): training diverged at step 7"));
    assert!(page.contains("Read with care"));
}
