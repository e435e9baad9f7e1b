use vim_chart::text_width;

use super::*;
use crate::classes::{ClassScores, class_differences};
use crate::differences::differences;
use crate::fixture::{SCORES, study};
use crate::predictions::Predictions;
use crate::{Assignments, ReportConfig, summarize};

fn page(outcomes: &[RunOutcome], metric: &str) -> String {
    page_with(outcomes, metric, &|_| Ok(None), &[])
}

#[test]
fn every_figure_is_a_file_that_needs_nothing_else() {
    let runs = study(&[("zoh", &[0.7, 0.72]), ("a <b>&", &[0.6, 0.61])]);
    let files = with_page(
        &summary(&runs, "val/top1"),
        &runs,
        &Differences::default(),
        &[],
        None,
        super::figures,
    );
    let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    let expected = ["result", "curves", "curves-second-half", "loss", "loss-second-half", "speed"];
    assert_eq!(names, expected);
    for (name, svg) in &files {
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width="), "{name}");
        for foreign in ["<script", "href", "url(", "@import", "var(", "<b>", "NaN"] {
            assert!(!svg.contains(foreign), "{name}: {foreign}");
        }
        assert!(svg.contains("a &lt;b&gt;&amp;") && svg.contains("prefers-color-scheme: dark"));
        // Every class has a rule.
        let (style, body) = svg.split_once("</style>").unwrap();
        for class in body
            .split("class=\"")
            .skip(1)
            .flat_map(|rest| rest.split('"').next().unwrap().split(' ').collect::<Vec<_>>())
        {
            assert!(class.is_empty() || style.contains(&format!(".{class} ")), "{name}: {class}");
        }
    }
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
    with_page(summary, outcomes, differences, thumbnails, classes, html)
}

fn with_page<T>(
    summary: &Summary,
    outcomes: &[RunOutcome],
    differences: &Differences,
    thumbnails: &[Option<String>],
    classes: Option<&ClassDifferences>,
    render: impl FnOnce(&Page<'_>) -> T,
) -> T {
    render(&Page {
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

/// The texts of a figure, and what they cover by their heights in style.css: left, top, right,
/// bottom.
fn texts(svg: &str) -> Vec<(String, [f64; 4])> {
    let text = |rest: &str| {
        let of = |name: &str| {
            rest.split_once(&format!(" {name}=\"")).unwrap().1.split('"').next().unwrap()
        };
        let number = |name: &str| of(name).parse::<f64>().unwrap();
        let size = match rest.split('"').next().unwrap() {
            "name" => 14.0,
            "value" => 13.0,
            _ => 12.0,
        };
        let words = rest.split_once('>').unwrap().1.split("</text>").next().unwrap();
        let width = text_width(words, size);
        let left = number("x")
            - match of("text-anchor") {
                "start" => 0.0,
                "middle" => width / 2.0,
                _ => width,
            };
        let base = number("y");
        (words.to_owned(), [left, base - 0.8 * size, left + width, base + 0.2 * size])
    };
    svg.split("<text class=\"").skip(1).map(text).collect()
}

/// The figures of a page, none of whose texts lies on another.
fn figures(page: &str) -> Vec<Vec<String>> {
    let figure = |rest: &str| {
        let texts = texts(rest.split("</svg>").next().unwrap());
        for (number, (words, a)) in texts.iter().enumerate() {
            for (others, b) in &texts[..number] {
                let is_apart = a[0] >= b[2] || b[0] >= a[2] || a[1] >= b[3] || b[1] >= a[3];
                assert!(is_apart, "`{words}` {a:?} lies on `{others}` {b:?}");
            }
        }
        texts.into_iter().map(|(words, _)| words).collect()
    };
    page.split("<svg").skip(1).map(figure).collect()
}

#[test]
fn labels_do_not_overlap() {
    // Six methods of one speed and nearly one result, as of a study on one machine.
    let methods = ["zoh", "foh", "bilinear", "poly", "highorder", "rk4"];
    let values = [
        [0.741, 0.742],
        [0.742, 0.742],
        [0.741, 0.741],
        [0.74, 0.742],
        [0.741, 0.74],
        [0.742, 0.741],
    ];
    let alike: Vec<(&str, &[f64])> =
        methods.iter().copied().zip(values.iter().map(|two| &two[..])).collect();
    for metric in ["val/top1", "val/loss"] {
        let figures = figures(&page(&study(&alike), metric));
        let scatter = figures.last().unwrap();
        for method in methods {
            assert!(scatter.iter().any(|text| text == method), "{method} has no label");
        }
    }
    // More than there is room for, and longer: some are left out or cut.
    let names: Vec<String> =
        (0..60).map(|n| format!("a rather long name of a setting, {n}")).collect();
    let many: Vec<(&str, &[f64])> = [("zoh", &[0.7, 0.9][..])]
        .into_iter()
        .chain(names.iter().map(|name| (&**name, &[0.5, 0.9][..])))
        .collect();
    figures(&page(&study(&many), "val/top1"));
}

/// A bar whose axis does not begin at 0 would lie about its length.
#[test]
fn an_axis_that_does_not_begin_at_0_says_so_and_has_no_bars() {
    let bars =
        |page: &str| (page.matches("<rect class=\"bar\"").count(), page.contains("axis from"));
    let close = page(&study(&[("zoh", &[0.74, 0.742]), ("rk4", &[0.752, 0.751])]), "val/top1");
    assert_eq!(bars(&close), (0, true));
    assert!(close.contains("val top-1, %; axis from 73.5, not 0"), "{close}");
    let apart = page(&study(&[("zoh", &[0.74, 0.742]), ("rk4", &[0.3, 0.35])]), "val/top1");
    assert_eq!(bars(&apart), (2, false));
}

/// Nothing is marked as the best where nothing is shown to differ.
#[test]
fn differences_that_are_shown_are_marked_and_no_others() {
    let alike =
        page(&study(&[("zoh", &[0.70, 0.72, 0.71]), ("rk4", &[0.72, 0.70, 0.75])]), "val/top1");
    assert!(!alike.contains("class=\"shown\"") && !alike.contains("highest mean"));
    let none = "0 of 1 comparison with zoh show a difference, by a p (Holm) below 0.05.";
    assert!(alike.contains(none), "{alike}");
    let shown =
        page(&study(&[("zoh", &[0.70, 0.72, 0.71]), ("rk4", &[0.6, 0.61, 0.62])]), "val/top1");
    assert_eq!(shown.matches("<tr class=\"shown\">").count(), 1);
    assert!(shown.contains("<b>1 <small>of 1</small></b>"));
    assert!(shown.contains("p (Holm) below 0.05: rk4 (worse)."));
    assert!(shown.contains("<th>detectable</th>") && shown.contains("in 80 % of such studies"));
}

/// With one seed no difference could ever be shown, so that none is counted.
#[test]
fn one_seed_has_no_p() {
    let page = page(&study(&[("zoh", &[0.7]), ("rk4", &[0.6])]), "val/top1");
    assert!(page.contains("No comparison with zoh has two pairs of seeds, so that there is no p."));
    assert!(!page.contains("show a difference"), "{page}");
}

#[test]
fn settings_that_differ_in_their_last_key_can_be_told_apart() {
    let long = "a rather long name · of a certain setting · inverse_softplus · ";
    let (exact, taylor) = (format!("{long}exact"), format!("{long}taylor"));
    let runs = study(&[("zoh", &[0.7]), (&exact, &[0.6]), (&taylor, &[0.5])]);
    let figures = figures(&page(&runs, "val/top1"));
    for last in ["inverse_softplus · exact", "inverse_softplus · taylor"] {
        assert!(figures[0].iter().any(|text| text == last), "{:?}", figures[0]);
    }
}

#[test]
fn a_curve_without_records_is_said_to_have_none() {
    let mut runs = study(&[("zoh", &[0.7]), ("rk4", &[0.6])]);
    for run in &mut runs {
        run.scores.remove(0);
        run.scores[0].split = "test".into();
    }
    let page = page(&runs, "test/top1");
    assert!(page.contains("No run has records of val top-1."), "{page}");
    assert!(!page.contains("no records") && page.contains("Training loss: the second half"));
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
