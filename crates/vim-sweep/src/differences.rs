//! Which images methods differ on: runs against the baseline's runs of the same seed.

use serde::Serialize;

use crate::outcome::RunState;
use crate::predictions::{Counts, Image, Predictions, check_alike};
use crate::summary::{Group, Summary};

/// What the predictions of a sweep's finished runs say of its methods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Differences {
    /// Labels of the groups, each with the number of its runs that have predictions.
    pub groups: Vec<(String, usize)>,
    /// Each run beside the baseline's run of the same seed.
    pub pairs: Vec<Pair>,
    /// The images on which a pair differs, those on which most do first.
    pub images: Vec<DifferingImage>,
    /// Finished runs without predictions.
    pub without: Vec<String>,
    /// Finished runs whose predictions cannot be compared, and why.
    pub unfit: Vec<String>,
}

/// Two runs of the same seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// Label of the run's group.
    pub label: String,
    /// Label of the baseline.
    pub baseline: String,
    /// The seed, if the sweep varies it.
    pub seed: Option<String>,
    /// The run.
    pub run: String,
    /// The baseline's run, the first of the counts.
    pub baseline_run: String,
    /// The images by which of the two get them right.
    pub counts: Counts,
    /// Of McNemar's exact test.
    pub p: f64,
}

/// An image on which a pair differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DifferingImage {
    /// The image.
    pub image: Image,
    /// Pairs of which the baseline's run alone gets it right.
    pub only_baseline: usize,
    /// Pairs of which the other run alone does.
    pub only_other: usize,
    /// The number of runs of each group that get it right.
    pub right: Vec<usize>,
}

impl DifferingImage {
    /// Pairs of which one run alone gets the image right.
    pub fn pairs(&self) -> usize {
        self.only_baseline + self.only_other
    }
}

/// A run's images: which are right.
struct Judged {
    group: usize,
    seed: Option<String>,
    name: String,
    right: Vec<bool>,
}

/// Compares the finished runs of `summary` image by image; `read` gets a run's name and gives its
/// predictions, `None` if it has none, or why they cannot be read.
pub fn differences(
    summary: &Summary,
    read: &mut dyn FnMut(&str) -> Result<Option<Predictions>, String>,
) -> Differences {
    let mut found = Differences::default();
    let (mut images, mut runs): (Vec<Image>, Vec<Judged>) = (Vec::new(), Vec::new());
    for (number, group) in summary.groups.iter().enumerate() {
        let before = runs.len();
        for seed in group.seeds.iter().filter(|seed| seed.state == RunState::Finished) {
            let name = &seed.name;
            let predictions = match read(name) {
                Ok(Some(predictions)) => predictions,
                Ok(None) => {
                    found.without.push(name.clone());
                    continue;
                }
                Err(why) => {
                    found.unfit.push(format!("{name}: {why}"));
                    continue;
                }
            };
            let right = predictions.right().collect();
            match runs.first() {
                None => images = predictions.images,
                Some(first) => {
                    if let Err(unlike) = check_alike(&images, &predictions.images) {
                        let text = format!("{name}: not the images of {}: {unlike}", first.name);
                        found.unfit.push(text);
                        continue;
                    }
                }
            }
            let (seed, name) = (seed.seed.clone(), name.clone());
            runs.push(Judged { group: number, seed, name, right });
        }
        found.groups.push((group.label.clone(), runs.len() - before));
    }
    let pairs = pairs(&summary.groups, &runs);
    found.pairs = pairs.iter().map(|&(base, run)| pair(&summary.groups, base, run)).collect();
    found.images = differing(images, &runs, &pairs, summary.groups.len());
    found
}

/// Each run of a group that has a baseline, behind the baseline's run of the same seed.
fn pairs<'a>(groups: &[Group], runs: &'a [Judged]) -> Vec<(&'a Judged, &'a Judged)> {
    let partner = |run: &Judged| {
        let baseline = &groups[run.group].comparison.as_ref()?.baseline;
        let is_it =
            |other: &&Judged| groups[other.group].label == *baseline && other.seed == run.seed;
        runs.iter().find(is_it)
    };
    runs.iter().filter_map(|run| Some((partner(run)?, run))).collect()
}

fn pair(groups: &[Group], base: &Judged, run: &Judged) -> Pair {
    let mut counts = Counts::default();
    base.right.iter().zip(&run.right).for_each(|(&base, &run)| counts.add(base, run));
    Pair {
        label: groups[run.group].label.clone(),
        baseline: groups[base.group].label.clone(),
        seed: run.seed.clone(),
        run: run.name.clone(),
        baseline_run: base.name.clone(),
        p: counts.p(),
        counts,
    }
}

/// The images on which a pair differs. Of two with equally many pairs, the one that more of them
/// agree on comes first, then the one that is first in the dataset.
fn differing(
    images: Vec<Image>,
    runs: &[Judged],
    pairs: &[(&Judged, &Judged)],
    groups: usize,
) -> Vec<DifferingImage> {
    let image = |(place, image): (usize, Image)| {
        let alone = |first: bool| {
            let is_alone = |pair: &&(&Judged, &Judged)| {
                let (base, run) = (pair.0.right[place], pair.1.right[place]);
                base != run && base == first
            };
            pairs.iter().filter(is_alone).count()
        };
        let (only_baseline, only_other) = (alone(true), alone(false));
        if only_baseline + only_other == 0 {
            return None;
        }
        let mut right = vec![0; groups];
        runs.iter().filter(|run| run.right[place]).for_each(|run| right[run.group] += 1);
        Some(DifferingImage { image, only_baseline, only_other, right })
    };
    let mut found: Vec<DifferingImage> = images.into_iter().enumerate().filter_map(image).collect();
    let rank =
        |image: &DifferingImage| (image.pairs(), image.only_baseline.abs_diff(image.only_other));
    found.sort_by_key(|image| std::cmp::Reverse(rank(image)));
    found
}

/// The pairs as CSV.
///
/// # Panics
///
/// Never: it writes to memory.
pub fn pairs_csv(differences: &Differences) -> String {
    let head =
        "run baseline_run setting baseline seed images both only_baseline only_run neither p";
    let row = |pair: &Pair| -> Vec<String> {
        let Counts { images, both, only_first, only_second, neither } = pair.counts;
        let texts = [&pair.run, &pair.baseline_run, &pair.label, &pair.baseline];
        let counts = [images, both, only_first, only_second, neither];
        let texts = texts.into_iter().cloned().chain([pair.seed.clone().unwrap_or_default()]);
        texts.chain(counts.map(|count| count.to_string())).chain([pair.p.to_string()]).collect()
    };
    let head: Vec<String> = head.split(' ').map(str::to_owned).collect();
    written([head].into_iter().chain(differences.pairs.iter().map(row)))
}

/// The images as CSV, with the number of runs of each group that get them right.
///
/// # Panics
///
/// Never: it writes to memory.
pub fn images_csv(differences: &Differences) -> String {
    let head = "index image label label_name pairs differ only_baseline only_run".split(' ');
    let groups = differences.groups.iter().map(|(label, runs)| format!("right of {runs}: {label}"));
    let head: Vec<String> = head.map(str::to_owned).chain(groups).collect();
    let pairs = differences.pairs.len();
    let row = |one: &DifferingImage| -> Vec<String> {
        let Image { index, name, label, label_name } = &one.image;
        let image = [index.to_string(), name.clone(), label.to_string(), label_name.clone()];
        let counts = [pairs, one.pairs(), one.only_baseline, one.only_other];
        let counts = counts.iter().chain(&one.right).map(usize::to_string);
        image.into_iter().chain(counts).collect()
    };
    written([head].into_iter().chain(differences.images.iter().map(row)))
}

/// Rows as CSV.
pub(crate) fn written(rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        let written = writer.write_record(row);
        written.expect("invariant: memory takes what is written, and rows are as wide as the head");
    }
    let bytes = writer.into_inner().expect("invariant: memory takes what is written");
    String::from_utf8(bytes).expect("invariant: texts are UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{SCORES, predictions, study};
    use crate::{Assignments, ReportConfig, summarize};

    /// Runs of two seeds, each with which of four images it gets right.
    fn found(change: impl Fn(&str) -> Result<Option<Predictions>, String>) -> Differences {
        let mut runs = study(&[("zoh", &[0.5, 0.5]), ("foh", &[0.5, 0.5]), ("rk4", &[0.5, 0.5])]);
        runs[5].state = RunState::Failed(76);
        let baseline = Assignments::from([("model.discretization".to_owned(), "zoh".into())]);
        let report = ReportConfig { baseline, ..ReportConfig::default() };
        let summary = summarize(&runs, &report, SCORES).unwrap();
        differences(&summary, &mut |name| change(name))
    }

    fn said(name: &str) -> Result<Option<Predictions>, String> {
        Ok(Some(predictions(match name {
            "zoh-s0" => "1100",
            "zoh-s1" => "1010",
            "foh-s0" => "1010",
            "foh-s1" => "0011",
            "rk4-s0" => "0110",
            _ => unreachable!("{name} is not finished"),
        })))
    }

    #[test]
    fn pairs_are_of_the_same_seed_and_images_are_ranked() {
        let found = found(said);
        let pairs: Vec<(&str, &str, Counts)> =
            found.pairs.iter().map(|p| (&*p.run, &*p.baseline_run, p.counts)).collect();
        let counts = |both, only_first, only_second, neither| Counts {
            images: 4,
            both,
            only_first,
            only_second,
            neither,
        };
        let expected = [
            ("foh-s0", "zoh-s0", counts(1, 1, 1, 1)),
            ("foh-s1", "zoh-s1", counts(1, 1, 1, 1)),
            ("rk4-s0", "zoh-s0", counts(1, 1, 1, 1)),
        ];
        assert_eq!(pairs, expected);
        assert_eq!(found.groups, [("zoh".into(), 2), ("foh".into(), 2), ("rk4".into(), 1)]);
        // Image 0: foh-s1 and rk4-s0 lose it; 2: foh-s0 and rk4-s0 win it; 1, 3: one pair each.
        let images: Vec<(u64, usize, usize, &[usize])> = found
            .images
            .iter()
            .map(|one| (one.image.index, one.only_baseline, one.only_other, &*one.right))
            .collect();
        let expected: [(u64, usize, usize, &[usize]); 4] = [
            (0, 2, 0, &[2, 1, 0]),
            (2, 0, 2, &[1, 2, 1]),
            (1, 1, 0, &[1, 0, 1]),
            (3, 0, 1, &[0, 1, 0]),
        ];
        assert_eq!(images, expected);
        let csv = images_csv(&found);
        let lines: Vec<&str> = csv.lines().collect();
        let head = "index,image,label,label_name,pairs,differ,only_baseline,only_run,\
                    right of 2: zoh,right of 2: foh,right of 1: rk4";
        assert_eq!((lines[0], lines[1]), (head, "0,0.png,0,class 0,3,2,2,0,2,1,0"));
        assert_eq!(pairs_csv(&found).lines().nth(1), Some("foh-s0,zoh-s0,foh,zoh,0,4,1,1,1,1,1"));
    }

    #[test]
    fn what_cannot_be_compared_is_told() {
        let found = found(|name| match name {
            "zoh-s1" => Ok(None),
            "foh-s0" => Ok(Some(predictions("10"))),
            "foh-s1" => Err("damaged".into()),
            _ => said(name),
        });
        assert_eq!(found.without, ["zoh-s1"]);
        let unfit = ["foh-s0: not the images of zoh-s0: they are of 4 and 2 images"];
        assert_eq!(found.unfit, [unfit[0], "foh-s1: damaged"]);
        assert_eq!(found.pairs.len(), 1, "rk4-s0");
    }
}
