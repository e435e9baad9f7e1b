//! Runs grouped over seeds, and groups compared with the baseline.

use serde::Serialize;
use vim_run::metrics::{LARGEST_DELTA_A, ScoreKind};

use crate::config::{Assignments, Pick, ReportConfig, SEED};
use crate::error::SweepError;
use crate::metric::{Metric, metrics, no_metric};
use crate::outcome::{RunOutcome, RunState};
use crate::statistics::{LEVEL, Paired, Sample, detectable, holm, paired, sample};

/// The result of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// What is compared.
    pub metric: Metric,
    /// The evaluation that counts.
    pub pick: Pick,
    /// The choice of the evaluation, in words.
    pub choice: String,
    /// One group per combination of the grid's keys except the seed, in the order of the plan.
    pub groups: Vec<Group>,
    /// The number of comparisons planned, whether or not their runs are finished: the family of
    /// Holm's correction.
    pub comparisons: usize,
}

/// Runs that differ only in their seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// Its label.
    pub label: String,
    /// Its values of the grid's keys.
    pub assignments: Assignments,
    /// The number of planned runs.
    pub planned: usize,
    /// Statistics of the finished runs.
    pub sample: Option<Sample>,
    /// Seconds that the finished runs took.
    pub seconds: Option<Sample>,
    /// Runs that ended because they diverged.
    pub diverged: usize,
    /// The largest |delta·A| of any evaluation of its runs, whatever became of them.
    pub largest_delta_a: Option<f64>,
    /// All runs, by seed.
    pub seeds: Vec<SeedValue>,
    /// Whether it is the baseline of other groups.
    pub is_baseline: bool,
    /// Its comparison with the baseline.
    pub comparison: Option<Comparison>,
}

/// The metric of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeedValue {
    /// The seed, if the sweep varies it.
    pub seed: Option<String>,
    /// The name of the run.
    pub name: String,
    /// Its state.
    pub state: RunState,
    /// The value, if the run is finished: values of unfinished runs do not compare.
    pub value: Option<f64>,
}

/// A group against the baseline, seed by seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The baseline's label.
    pub baseline: String,
    /// The test of the differences between runs with the same seed; `None` without such a pair.
    pub paired: Option<Paired>,
    /// Its p value, corrected by Holm's method for all comparisons that the sweep plans.
    pub p_holm: Option<f64>,
    /// The smallest true difference that these pairs would show, by the test without correction:
    /// [`detectable`], by the deviation that the differences have.
    pub detectable: Option<f64>,
}

impl Summary {
    /// Whether a comparison has two pairs of seeds: a single one has no deviation.
    pub fn has_pairs(&self) -> bool {
        let comparisons = self.groups.iter().filter_map(|group| group.comparison.as_ref());
        comparisons.filter_map(|comparison| comparison.paired).any(|paired| paired.n > 1)
    }
}

impl Comparison {
    /// Whether a difference is shown: by the corrected p.
    pub fn is_shown(&self) -> bool {
        self.p_holm.is_some_and(|p| p < LEVEL)
    }
}

impl SeedValue {
    /// Which run it is and why it does not count; `None` if it counts.
    fn absence(&self) -> Option<(String, String)> {
        if self.value.is_some() {
            return None;
        }
        let name = self.seed.as_ref().map_or_else(|| self.name.clone(), |seed| format!("s{seed}"));
        let why = match self.state == RunState::Finished {
            true => "no such number".to_owned(),
            false => self.state.to_string(),
        };
        Some((name, why))
    }
}

impl Group {
    /// The runs that do not count, by why: `s1, s2 missing; s3 failed (76)`; empty if all count.
    pub fn absences(&self) -> String {
        let mut by_why: Vec<(String, Vec<String>)> = Vec::new();
        for (name, why) in self.seeds.iter().filter_map(SeedValue::absence) {
            match by_why.iter_mut().find(|(known, _)| *known == why) {
                Some((_, names)) => names.push(name),
                None => by_why.push((why, vec![name])),
            }
        }
        let each = by_why.iter().map(|(why, names)| format!("{} {why}", names.join(", ")));
        each.collect::<Vec<_>>().join("; ")
    }
}

/// Summarizes the runs of a sweep, which measured `scores`, as configured by `report`.
///
/// # Errors
///
/// If the metric is unknown, or no finished run has it.
pub fn summarize(
    outcomes: &[RunOutcome],
    report: &ReportConfig,
    scores: &[ScoreKind],
) -> Result<Summary, SweepError> {
    let is_finished = |run: &&RunOutcome| run.state == RunState::Finished;
    let finished: Vec<RunOutcome> = outcomes.iter().filter(is_finished).cloned().collect();
    let known = metrics(&finished);
    if !finished.is_empty() && !known.contains(&report.metric) {
        return Err(no_metric(&report.metric, &known));
    }
    let metric = Metric::parse(&report.metric, scores)?;
    let mut groups: Vec<Group> = Vec::new();
    for run in outcomes {
        let mut assignments = run.assignments.clone();
        let seed = assignments.remove(SEED).map(|seed| seed.to_string());
        let counts = run.state == RunState::Finished;
        let value = metric.value(run, report.pick).filter(|value| counts && value.is_finite());
        let value = SeedValue { seed, name: run.name.clone(), state: run.state, value };
        match groups.iter_mut().find(|group| group.assignments == assignments) {
            Some(group) => group.seeds.push(value),
            None => groups.push(Group {
                label: label(&assignments),
                assignments,
                planned: 0,
                sample: None,
                seconds: None,
                diverged: 0,
                largest_delta_a: None,
                seeds: vec![value],
                is_baseline: false,
                comparison: None,
            }),
        }
    }
    for group in &mut groups {
        group.planned = group.seeds.len();
        let values: Vec<f64> = group.seeds.iter().filter_map(|seed| seed.value).collect();
        group.sample = sample(&values);
        let all = || outcomes.iter().filter(|run| group.seeds.iter().any(|s| s.name == run.name));
        // Of a run whose times were not copied nothing is known.
        let seconds = all().filter(is_finished).map(|run| run.seconds).filter(|&time| time > 0.0);
        group.seconds = sample(&seconds.collect::<Vec<_>>());
        group.diverged = all().filter(|run| run.state.is_diverged()).count();
        let arguments = all().flat_map(|run| &run.scores);
        let arguments = arguments.filter_map(|score| score.values.get(LARGEST_DELTA_A).copied());
        group.largest_delta_a = arguments.reduce(f64::max);
    }
    let comparisons = compare(&mut groups, &report.baseline);
    let choice = metric.choice(report.pick, &finished);
    Ok(Summary { metric, pick: report.pick, choice, groups, comparisons })
}

/// Compares each group with the group that has the baseline's values and otherwise its own; the
/// number of such comparisons.
fn compare(groups: &mut [Group], baseline: &Assignments) -> usize {
    if baseline.is_empty() {
        return 0;
    }
    let all = groups.to_vec();
    for group in groups.iter_mut() {
        let mut wanted = group.assignments.clone();
        wanted.extend(baseline.clone());
        if wanted == group.assignments {
            group.is_baseline = true;
            continue;
        }
        let Some(base) = all.iter().find(|other| other.assignments == wanted) else { continue };
        let differences = group.seeds.iter().filter_map(|run| {
            let other = base.seeds.iter().find(|other| other.seed == run.seed)?;
            Some(run.value? - other.value?)
        });
        let paired = paired(&differences.collect::<Vec<_>>());
        let baseline = base.label.clone();
        let detectable = paired.and_then(|paired| Some(detectable(paired.n)? * paired.sd?));
        group.comparison = Some(Comparison { baseline, paired, p_holm: None, detectable });
    }
    let planned = groups.iter().filter(|group| group.comparison.is_some()).count();
    let p = |group: &Group| group.comparison.as_ref()?.paired?.p;
    let known: Vec<f64> = groups.iter().filter_map(p).collect();
    let mut corrected = holm(&known, planned).into_iter();
    for group in groups.iter_mut().filter(|group| p(group).is_some()) {
        if let Some(comparison) = &mut group.comparison {
            comparison.p_holm = corrected.next();
        }
    }
    planned
}

/// A short label of a combination: strings as they are, other values after the last part of their
/// key.
fn label(assignments: &Assignments) -> String {
    if assignments.is_empty() {
        return "all runs".to_owned();
    }
    let parts = assignments.iter().map(|(key, value)| match value.as_str() {
        Some(text) => text.to_owned(),
        None => format!("{} {value}", key.rsplit('.').next().unwrap_or(key)),
    });
    parts.collect::<Vec<_>>().join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{SCORES, outcome, study};

    fn report(pick: Pick) -> ReportConfig {
        let baseline = Assignments::from([("model.discretization".to_owned(), "zoh".into())]);
        ReportConfig { pick, baseline, ..ReportConfig::default() }
    }

    #[test]
    fn seeds_are_paired_and_what_is_missing_is_listed() {
        let mut runs = study(&[
            ("zoh", &[0.70, 0.72, 0.71]),
            ("foh", &[0.73, 0.74, 0.75]),
            ("rk4", &[0.60, 0.61, 0.62]),
        ]);
        runs[4].state = RunState::Failed(76);
        for (run, score, argument) in [(3, 1, 2.0), (4, 0, 9.5), (4, 1, 7.0)] {
            runs[run].scores[score].values.insert(LARGEST_DELTA_A.into(), argument);
        }
        runs[7].state = RunState::Missing;
        runs[8].state = RunState::Running;
        let summary = summarize(&runs, &report(Pick::Last), SCORES).unwrap();
        let [zoh, foh, rk4] = &summary.groups[..] else { panic!("three methods") };
        assert!(zoh.is_baseline && zoh.comparison.is_none());
        assert_eq!((foh.sample.unwrap().n, foh.planned), (2, 3));
        let paired = foh.comparison.as_ref().unwrap().paired.unwrap();
        // Seeds 0 and 2: the pair of the failed one is left out.
        assert!((paired.mean - 0.035).abs() < 1e-12 && paired.n == 2, "{paired:?}");
        assert_eq!(foh.absences(), "s1 failed (76)");
        assert_eq!((zoh.diverged, foh.diverged, foh.seconds.unwrap().n), (0, 1, 2));
        // Of the run that diverged, too.
        assert_eq!((zoh.largest_delta_a, foh.largest_delta_a), (None, Some(9.5)));
        assert_eq!(rk4.absences(), "s1 missing; s2 running");
        let paired = rk4.comparison.as_ref().unwrap().paired.unwrap();
        assert_eq!((paired.n, paired.p), (1, None));
        // Two comparisons are planned, whichever have a p: foh's is corrected for both.
        assert_eq!(summary.comparisons, 2);
        let foh = foh.comparison.as_ref().unwrap();
        let p = foh.paired.unwrap().p.unwrap();
        assert!((foh.p_holm.unwrap() - (2.0 * p).min(1.0)).abs() < 1e-12, "{foh:?}");
        // Differences of 3 and 4 points deviate by 0.707; two pairs find 11.55 deviations.
        let expected = 11.549_888_436 * 0.005 * 2.0_f64.sqrt();
        assert!((foh.detectable.unwrap() - expected).abs() < 1e-9, "{foh:?}");
        assert_eq!(rk4.comparison.as_ref().unwrap().detectable, None);
    }

    /// The same runs are as sure of a difference before the others are finished as after.
    #[test]
    fn the_family_does_not_grow_with_the_runs_that_finish() {
        let values: [(&str, &[f64]); 4] = [
            ("zoh", &[0.70, 0.72, 0.71]),
            ("foh", &[0.73, 0.74, 0.75]),
            ("poly", &[0.70, 0.72, 0.71]),
            ("rk4", &[0.71, 0.715, 0.716]),
        ];
        let of_foh = |missing: &[usize]| {
            let mut runs = study(&values);
            missing.iter().for_each(|&run| runs[run].state = RunState::Missing);
            let summary = summarize(&runs, &report(Pick::Last), SCORES).unwrap();
            summary.groups[1].comparison.as_ref().unwrap().p_holm.unwrap()
        };
        // Of differences of 3, 2 and 4 points: t = 3·√3, with two degrees of freedom.
        let t = 27.0_f64.sqrt();
        let p = 1.0 - t / (2.0 + t * t).sqrt();
        for missing in [&[][..], &[9, 10, 11], &[6, 7, 8, 9, 10, 11]] {
            assert!((of_foh(missing) - 3.0 * p).abs() < 1e-9, "{missing:?}");
        }
    }

    #[test]
    fn best_is_labelled_as_selected_and_test_as_what_it_is() {
        let mut run = outcome("zoh", 0, 0.5);
        run.scores[0].values.insert("top1".into(), 0.9);
        run.scores.push(crate::Score {
            split: "test".into(),
            checkpoint: "best".into(),
            values: [("top1".to_owned(), 0.8)].into(),
            ..crate::Score::default()
        });
        let value = |pick, metric: &str| {
            let report = ReportConfig { metric: metric.into(), pick, ..ReportConfig::default() };
            let summary = summarize(&[run.clone()], &report, SCORES).unwrap();
            (summary.groups[0].sample.unwrap().mean, summary.choice)
        };
        assert_eq!(value(Pick::Last, "val/top1").0, 0.5);
        let (best, choice) = value(Pick::Best, "val/top1");
        assert!(best == 0.9 && choice.contains("selected on val"), "{choice}");
        let (test, choice) = value(Pick::Best, "test/top1");
        assert!(test == 0.8 && choice == "of the checkpoint that was best on val", "{choice}");
    }

    #[test]
    fn metrics_are_named() {
        let runs = study(&[("zoh", &[0.5])]);
        for (metric, expected) in [
            // Guessed among what the runs have, not among the metrics of other tasks.
            (
                "val/macc",
                "no run has the metric `val/macc` (there are: train/loss, val/loss, val/top1)",
            ),
            ("val/tpo1", ", did you mean `val/top1`?"),
            ("test/top1", "(there are: train/loss, val/loss, val/top1)"),
            // Runs of fewer than five classes.
            ("val/top5", "no run has the metric `val/top5`, did you mean `val/top1`? (there are: "),
        ] {
            let report = ReportConfig { metric: metric.into(), ..ReportConfig::default() };
            let error = summarize(&runs, &report, SCORES).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
