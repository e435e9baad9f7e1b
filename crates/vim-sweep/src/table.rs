//! A summary as a table: for terminals, Markdown and programs.

use std::collections::BTreeSet;

use crate::config::Pick;
use crate::metric::Metric;
use crate::statistics::{LEVEL, POWER, ROUNDING};
use crate::summary::{Comparison, Group, Summary};

/// Placeholder for an unknown value.
const NONE: &str = "–";

/// The titles of the columns.
pub fn head(summary: &Summary) -> Vec<String> {
    let title = format!("{}{}", summary.metric.title(), summary.metric.unit());
    let mut head: Vec<String> = ["run", "n", &title, "min", "max"].map(str::to_owned).to_vec();
    if let Some(baseline) = baseline(summary) {
        let difference = format!("minus {baseline}");
        let titles = [difference.as_str(), "95 % interval", "p", "p (Holm)", "detectable"];
        head.extend(titles.map(str::to_owned));
    }
    head.push("minutes".into());
    if has_diverged(summary) {
        head.push("diverged".into());
    }
    if has_arguments(summary) {
        head.push("largest |ΔA|".into());
    }
    if has_absences(summary) {
        head.push("not counted".into());
    }
    head
}

/// The label of the baseline; "baseline" if there are several.
pub(crate) fn baseline(summary: &Summary) -> Option<String> {
    let mut names = summary.groups.iter().filter_map(|group| {
        group.comparison.as_ref().map(|comparison| comparison.baseline.as_str())
    });
    let first = names.next()?;
    Some(if names.all(|name| name == first) { first.to_owned() } else { "baseline".to_owned() })
}

fn has_absences(summary: &Summary) -> bool {
    summary.groups.iter().any(|group| !group.absences().is_empty())
}

fn has_diverged(summary: &Summary) -> bool {
    summary.groups.iter().any(|group| group.diverged > 0)
}

fn has_arguments(summary: &Summary) -> bool {
    summary.groups.iter().any(|group| group.largest_delta_a.is_some())
}

/// One row per group, with the columns of [`head`].
pub fn rows(summary: &Summary) -> Vec<Vec<String>> {
    let metric = summary.metric;
    let with_baseline = baseline(summary).is_some();
    let with_absences = has_absences(summary);
    let row = |group: &Group| {
        let counted = group.sample.map_or(0, |sample| sample.n);
        let number = |value: Option<f64>| value.map_or(NONE.into(), |value| metric.show(value));
        let mut row = vec![
            group.label.clone(),
            format!("{counted}/{}", group.planned),
            spread(group, metric),
            number(group.sample.map(|sample| sample.min)),
            number(group.sample.map(|sample| sample.max)),
        ];
        if with_baseline {
            row.extend(comparison(group, metric));
        }
        let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.into());
        row.push(or_none(group.seconds.map(|seconds| format!("{:.1}", seconds.mean / 60.0))));
        if has_diverged(summary) {
            row.push(format!("{}/{}", group.diverged, group.planned));
        }
        if has_arguments(summary) {
            row.push(or_none(group.largest_delta_a.map(three_digits)));
        }
        if with_absences {
            row.push(group.absences());
        }
        row
    };
    summary.groups.iter().map(row).collect()
}

/// Three digits of a number that is not negative, or those before its point.
fn three_digits(number: f64) -> String {
    let before = number.max(1.0).log10().floor() as usize;
    format!("{number:.*}", 2_usize.saturating_sub(before))
}

/// Mean and deviation.
pub(crate) fn spread(group: &Group, metric: Metric) -> String {
    let Some(sample) = group.sample else { return NONE.into() };
    let mean = metric.show(sample.mean);
    let sd = sample.sd.map(|sd| format!("{mean} ± {}", metric.show(sd)));
    sd.unwrap_or_else(|| format!("{mean} (one run)"))
}

/// Difference, interval, p, corrected p and detectable difference.
pub(crate) fn comparison(group: &Group, metric: Metric) -> [String; 5] {
    let none = || NONE.to_owned();
    let only = |text: &str| [text.to_owned(), none(), none(), none(), none()];
    if group.is_baseline {
        return only("baseline");
    }
    let Some(Comparison { baseline, paired, p_holm, detectable }) = &group.comparison else {
        return only(NONE);
    };
    let Some(paired) = paired else {
        return only("no pair of seeds");
    };
    let difference = metric.show_difference(paired.mean);
    let none_for = || {
        let seeds = match paired.n {
            1 => return "one pair".to_owned(),
            2 => "both seeds".to_owned(),
            n => format!("all {n} seeds"),
        };
        match paired.mean.abs() <= ROUNDING {
            true => format!("equal to {baseline} in {seeds}"),
            false => format!("{difference} in {seeds}"),
        }
    };
    let interval = paired.half_width.map_or_else(none_for, |half| {
        let [low, high] =
            [paired.mean - half, paired.mean + half].map(|end| metric.show_difference(end));
        format!("{low} to {high}")
    });
    let p = |p: Option<f64>| match p {
        None => none(),
        Some(p) if p < 0.001 => "< 0.001".to_owned(),
        Some(p) => format!("{p:.3}"),
    };
    let detectable = detectable.map_or_else(none, |smallest| metric.show(smallest));
    [difference, interval, p(paired.p), p(*p_holm), detectable]
}

/// What the comparisons show, in a sentence; `None` without any.
pub fn verdict(summary: &Summary) -> Option<String> {
    let baseline = baseline(summary)?;
    if !summary.has_pairs() {
        return Some(format!(
            "No comparison with {baseline} has two pairs of seeds, so that there is no p."
        ));
    }
    let shown = summary.groups.iter().filter_map(|group| {
        let comparison = group.comparison.as_ref().filter(|comparison| comparison.is_shown())?;
        let is_larger = comparison.paired?.mean > 0.0;
        let which = match is_larger == summary.metric.score.larger_is_better {
            true => "better",
            false => "worse",
        };
        Some(format!("{} ({which})", group.label))
    });
    let shown: Vec<String> = shown.collect();
    let (planned, count) = (summary.comparisons, shown.len());
    let comparisons = if planned == 1 { "comparison" } else { "comparisons" };
    let which = if shown.is_empty() { ".".to_owned() } else { format!(": {}.", shown.join(", ")) };
    Some(format!(
        "{count} of {planned} {comparisons} with {baseline} show a difference, by a p (Holm) below \
         {LEVEL}{which}"
    ))
}

/// What the column of detectable differences is.
pub fn detectable_legend() -> String {
    format!(
        "detectable: the smallest true difference that this number of seeds, whose differences deviate as \
         these do, would show by a p below {LEVEL} in {:.0} % of such studies.",
        100.0 * POWER
    )
}

/// The table as Markdown, with a legend.
pub fn markdown(summary: &Summary, title: &str) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let head = head(summary);
    let rule = head.iter().enumerate().map(|(number, _)| if number == 0 { "---" } else { "---:" });
    let mut text = format!("# {title}\n\n{}: {}.\n\n", summary.metric, summary.choice);
    text.push_str(&line(&head));
    text.push_str(&format!("|{}|\n", rule.collect::<Vec<_>>().join("|")));
    for row in rows(summary) {
        text.push_str(&line(&row));
    }
    if let Some(verdict) = verdict(summary) {
        text.push_str(&format!("\n{verdict}\n"));
    }
    text.push_str(&format!("\n{}\n", legend(summary)));
    text
}

/// The meaning of the columns.
pub(crate) fn legend(summary: &Summary) -> String {
    let mut text = "n: finished runs of those planned, a run for each seed; only these count. \
                    ±: sample standard deviation over seeds (n − 1)."
        .to_owned();
    if let Some(baseline) = baseline(summary) {
        text.push_str(&format!(
            " Differences from {baseline} are of runs with the same seed: their mean, its 95 % \
             confidence interval and the two-sided p of the paired t-test, and that p corrected by \
             Holm's method for all {} comparisons planned. {}",
            summary.comparisons,
            detectable_legend()
        ));
    }
    text.push_str(" minutes: mean time of a finished run.");
    if has_diverged(summary) {
        text.push_str(" diverged: runs that ended with a loss or gradient that is not finite.");
    }
    if has_arguments(summary) {
        text.push_str(
            " largest |ΔA|: of all evaluations of all runs, over images, layers, tokens, channels \
             and states; A that is full has none.",
        );
    }
    text
}

/// The table as CSV with all digits, for programs.
///
/// # Panics
///
/// Never: it writes to memory.
pub fn csv(summary: &Summary) -> String {
    let keys = summary.groups.iter().flat_map(|group| group.assignments.keys());
    let keys: BTreeSet<&String> = keys.collect();
    let numbers = "metric pick n planned mean sd min max baseline pairs difference ci_low ci_high \
                   p p_holm comparisons detectable seconds diverged largest_delta_a \
                   not_counted";
    let head = keys.iter().map(|key| key.as_str()).chain(numbers.split(' '));
    let pick = match summary.pick {
        Pick::Last => "last",
        Pick::Best => "best",
    };
    let mut records: Vec<Vec<String>> = vec![head.map(str::to_owned).collect()];
    for group in &summary.groups {
        let digits = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let plain =
            |value: &toml::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let values =
            keys.iter().map(|key| group.assignments.get(*key).map_or_else(String::new, plain));
        let (sample, comparison) = (group.sample, group.comparison.as_ref());
        let paired = comparison.and_then(|comparison| comparison.paired);
        let end =
            |sign: f64| paired.and_then(|paired| Some(paired.mean + sign * paired.half_width?));
        let numbers = [
            summary.metric.to_string(),
            pick.to_owned(),
            sample.map_or(0, |sample| sample.n).to_string(),
            group.planned.to_string(),
            digits(sample.map(|sample| sample.mean)),
            digits(sample.and_then(|sample| sample.sd)),
            digits(sample.map(|sample| sample.min)),
            digits(sample.map(|sample| sample.max)),
            comparison.map_or_else(String::new, |comparison| comparison.baseline.clone()),
            paired.map_or_else(String::new, |paired| paired.n.to_string()),
            digits(paired.map(|paired| paired.mean)),
            digits(end(-1.0)),
            digits(end(1.0)),
            digits(paired.and_then(|paired| paired.p)),
            digits(comparison.and_then(|comparison| comparison.p_holm)),
            comparison.map_or_else(String::new, |_| summary.comparisons.to_string()),
            digits(comparison.and_then(|comparison| comparison.detectable)),
            digits(group.seconds.map(|seconds| seconds.mean)),
            group.diverged.to_string(),
            digits(group.largest_delta_a),
            group.absences(),
        ];
        records.push(values.chain(numbers).collect());
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    for record in records {
        let written = writer.write_record(record);
        written.expect("invariant: memory takes what is written, and rows are as wide as the head");
    }
    let bytes = writer.into_inner().expect("invariant: memory takes what is written");
    String::from_utf8(bytes).expect("invariant: texts are UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{SCORES, study};
    use crate::{Assignments, ReportConfig, RunOutcome, RunState, summarize};
    use vim_run::metrics::LARGEST_DELTA_A;

    fn summary(change: impl FnOnce(&mut Vec<RunOutcome>)) -> Summary {
        let mut runs = study(&[
            ("zoh", &[0.70, 0.72, 0.71]),
            ("foh", &[0.73, 0.74, 0.75]),
            ("rk4", &[0.6, 0.6, 0.6]),
        ]);
        change(&mut runs);
        let baseline = Assignments::from([("model.discretization".to_owned(), "zoh".into())]);
        summarize(&runs, &ReportConfig { baseline, ..ReportConfig::default() }, SCORES).unwrap()
    }

    #[test]
    fn a_table_of_finished_runs() {
        let text = markdown(&summary(|_| {}), "study");
        let expected = "\
# study

val/top1: last evaluation, nothing selected.

| run | n | val top-1, % | min | max | minus zoh | 95 % interval | p | p (Holm) | detectable | minutes |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
| zoh | 3/3 | 71.00 ± 1.00 | 70.00 | 72.00 | baseline | – | – | – | – | 0.2 |
| foh | 3/3 | 74.00 ± 1.00 | 73.00 | 75.00 | +3.00 | +0.52 to +5.48 | 0.035 | 0.035 | 3.26 | 0.2 |
| rk4 | 3/3 | 60.00 ± 0.00 | 60.00 | 60.00 | −11.00 | −13.48 to −8.52 | 0.003 | 0.005 | 3.26 | 0.2 |

2 of 2 comparisons with zoh show a difference, by a p (Holm) below 0.05: foh (better), rk4 (worse).

n: finished";
        assert!(text.starts_with(expected), "{text}");
        assert!(
            text.contains("Holm's method for all 2 comparisons planned. detectable: the smallest")
        );
    }

    #[test]
    fn without_a_small_p_nothing_is_shown() {
        let close = |runs: &mut Vec<RunOutcome>| {
            for (run, top1) in runs.iter_mut().skip(3).zip([0.71, 0.71, 0.72, 0.9, 0.7, 0.6]) {
                run.scores.last_mut().unwrap().values.insert("top1".into(), top1);
            }
        };
        let expected = "0 of 2 comparisons with zoh show a difference, by a p (Holm) below 0.05.";
        assert_eq!(verdict(&summary(close)).unwrap(), expected);
        let none = ReportConfig::default();
        let runs = study(&[("zoh", &[0.70, 0.72]), ("foh", &[0.73, 0.74])]);
        assert_eq!(verdict(&summarize(&runs, &none, SCORES).unwrap()), None);
    }

    #[test]
    fn equal_differences_are_said_to_be() {
        let interval = |planned: usize, foh: f64| {
            let summary = summary(|runs| {
                for (number, run) in runs.iter_mut().enumerate() {
                    let Some(score) = run.scores.last_mut() else { continue };
                    let top1 = if (3..6).contains(&number) { foh } else { 0.5 };
                    score.values.insert("top1".into(), top1);
                    if number % 3 >= planned {
                        run.state = RunState::Missing;
                    }
                }
            });
            rows(&summary)[1][6].clone()
        };
        assert_eq!(interval(3, 0.5), "equal to zoh in all 3 seeds");
        assert_eq!(interval(2, 0.5), "equal to zoh in both seeds");
        assert_eq!(interval(3, 0.505), "+0.50 in all 3 seeds");
        assert_eq!(interval(1, 0.5), "one pair");
    }

    #[test]
    fn what_is_missing_has_a_column_and_what_cannot_be_tested_has_words() {
        let summary = summary(|runs| {
            for run in &mut runs[7..] {
                run.state = RunState::Missing;
            }
            for run in &mut runs[3..6] {
                run.state = RunState::Failed(76);
            }
            for (run, argument) in [(0, 0.5), (3, 12.34), (4, 5678.9)] {
                runs[run].scores[1].values.insert(LARGEST_DELTA_A.into(), argument);
            }
        });
        let rows = rows(&summary);
        assert_eq!(head(&summary).last().map(String::as_str), Some("not counted"));
        assert_eq!(rows[1][1..3], ["0/3", "–"]);
        assert_eq!(rows[1][5], "no pair of seeds");
        assert_eq!(rows[2][2], "60.00 (one run)");
        let rest = ["one pair", "–", "–", "–", "0.2", "0/3", "–", "s1, s2 missing"];
        assert_eq!(rows[2][6..], rest);
        assert_eq!(
            (&rows[0][12], &rows[1][10..13]),
            (&"0.50".into(), &["–", "3/3", "5679"].map(String::from)[..])
        );
        assert!(markdown(&summary, "x").contains(" | diverged | largest \\|ΔA\\| | not counted |"));
        let csv = csv(&summary);
        let lines: Vec<&str> = csv.lines().collect();
        assert!(lines[0].starts_with("model.discretization,metric,pick,n,planned,mean,sd,"));
        assert!(lines[3].starts_with("rk4,val/top1,last,1,3,0.6,,0.6,0.6,zoh,1,-0.09"), "{csv}");
    }
}
