//! Which classes methods differ on: the score of each class over seeds, and beside the baseline's.

use crate::differences::written;
use crate::outcome::RunState;
use crate::statistics::{Paired, holm, paired, sample};
use crate::summary::{Group, Summary};

/// What a class is scored by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClassMeasure {
    /// Intersection over union, in segmentation.
    #[default]
    Iou,
    /// Average precision, in detection: that of the class's boxes and that of its masks.
    Ap,
}

impl ClassMeasure {
    /// Its name in texts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Iou => "IoU",
            Self::Ap => "AP",
        }
    }

    /// The column that has it.
    fn column(self) -> &'static str {
        match self {
            Self::Iou => "iou",
            Self::Ap => "ap",
        }
    }
}

/// The score of each class of a run, as a run of segmentation or detection and `eval --per-class`
/// write it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassScores {
    /// What the scores are.
    pub measure: ClassMeasure,
    /// The classes' names, in the order of their numbers; in detection first for boxes, then for
    /// masks.
    pub names: Vec<String>,
    /// 0 to 1; `None` of a class that has none.
    pub scores: Vec<Option<f64>>,
}

impl ClassScores {
    /// Reads a CSV file; columns are found by their names.
    ///
    /// # Errors
    ///
    /// What is missing or wrong, in words.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = csv::Reader::from_reader(bytes);
        let head = reader.headers().map_err(|error| error.to_string())?.clone();
        let place = |name: &str| {
            let found = head.iter().position(|column| column == name);
            found.ok_or_else(|| format!("it has no column `{name}`"))
        };
        let is_detection = place("kind").is_ok();
        let measure = if is_detection { ClassMeasure::Ap } else { ClassMeasure::Iou };
        let (name, score) = (place("name")?, place(measure.column())?);
        let mut read = Self { measure, ..Self::default() };
        for record in reader.records() {
            let record = record.map_err(|error| error.to_string())?;
            let field = |column: usize| record.get(column).unwrap_or_default();
            let kind = place("kind").map(field).unwrap_or_default();
            read.names.push(match kind {
                "" => field(name).to_owned(),
                "bbox" => format!("{}, boxes", field(name)),
                "segm" => format!("{}, masks", field(name)),
                other => format!("{}, {other}", field(name)),
            });
            read.scores.push(match field(score) {
                "" => None,
                text => {
                    let number = text.parse::<f64>().ok().filter(|x| (0.0..=1.0).contains(x));
                    Some(number.ok_or_else(|| format!("{text:?} is no {}", measure.name()))?)
                }
            });
        }
        Ok(read)
    }
}

/// What the classes' scores of a sweep's finished runs say of its methods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassDifferences {
    /// What the classes are scored by.
    pub measure: ClassMeasure,
    /// The groups.
    pub groups: Vec<ClassGroup>,
    /// The classes, those first of which some group differs most from its baseline.
    pub classes: Vec<ClassDifference>,
    /// Finished runs without scores of classes.
    pub without: Vec<String>,
    /// Finished runs whose scores cannot be compared, and why.
    pub unfit: Vec<String>,
}

/// A group with scores of classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassGroup {
    /// Its label.
    pub label: String,
    /// What it is compared with.
    pub baseline: Option<String>,
    /// Its runs that have scores.
    pub runs: usize,
}

/// A class under every group.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassDifference {
    /// Its number.
    pub class: usize,
    /// Its name.
    pub name: String,
    /// Of each group.
    pub cells: Vec<ClassCell>,
}

/// A class under a group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassCell {
    /// Mean score over the runs that have one.
    pub mean: Option<f64>,
    /// The test of the differences from the baseline's runs of the same seed.
    pub paired: Option<Paired>,
    /// Its p, corrected by Holm's method for all classes and all groups that are to be compared.
    pub p_holm: Option<f64>,
}

impl ClassDifference {
    /// The largest difference of a group from its baseline; 0 without any.
    fn largest(&self) -> f64 {
        let means = self.cells.iter().filter_map(|cell| cell.paired);
        means.fold(0.0, |largest, paired| largest.max(paired.mean.abs()))
    }
}

/// A run's scores.
struct Scored {
    group: usize,
    seed: Option<String>,
    scores: Vec<Option<f64>>,
}

/// Compares the finished runs of `summary` class by class; `read` gets a run's name and gives its
/// scores, `None` if it has none, or why they cannot be read.
pub fn class_differences(
    summary: &Summary,
    read: &mut dyn FnMut(&str) -> Result<Option<ClassScores>, String>,
) -> ClassDifferences {
    let mut found = ClassDifferences::default();
    let (mut names, mut runs): (Option<Vec<String>>, Vec<Scored>) = (None, Vec::new());
    for (number, group) in summary.groups.iter().enumerate() {
        let before = runs.len();
        for seed in group.seeds.iter().filter(|seed| seed.state == RunState::Finished) {
            match read(&seed.name) {
                Ok(Some(scores))
                    if *names.get_or_insert_with(|| scores.names.clone()) == scores.names =>
                {
                    found.measure = scores.measure;
                    let (seed, scores) = (seed.seed.clone(), scores.scores);
                    runs.push(Scored { group: number, seed, scores });
                }
                Ok(Some(_)) => found.unfit.push(format!("{}: it has other classes", seed.name)),
                Ok(None) => found.without.push(seed.name.clone()),
                Err(why) => found.unfit.push(format!("{}: {why}", seed.name)),
            }
        }
        let baseline = group.comparison.as_ref().map(|comparison| comparison.baseline.clone());
        let (label, runs) = (group.label.clone(), runs.len() - before);
        found.groups.push(ClassGroup { label, baseline, runs });
    }
    let names = names.unwrap_or_default().into_iter().enumerate();
    found.classes = names
        .map(|(class, name)| {
            let cells = (0..summary.groups.len()).map(|group| cell(summary, &runs, group, class));
            ClassDifference { class, name, cells: cells.collect() }
        })
        .collect();
    correct(&mut found.classes, summary.comparisons);
    found.classes.sort_by(|a, b| b.largest().total_cmp(&a.largest()));
    found
}

fn cell(summary: &Summary, runs: &[Scored], group: usize, class: usize) -> ClassCell {
    let of = |number: usize| runs.iter().filter(move |run| run.group == number);
    let scores: Vec<f64> = of(group).filter_map(|run| run.scores[class]).collect();
    let mean = sample(&scores).map(|sample| sample.mean);
    let base = |group: &Group| {
        let baseline = &group.comparison.as_ref()?.baseline;
        summary.groups.iter().position(|other| other.label == *baseline)
    };
    let paired = base(&summary.groups[group]).and_then(|base| {
        let differences = of(group).filter_map(|run| {
            let other = of(base).find(|other| other.seed == run.seed)?;
            Some(run.scores[class]? - other.scores[class]?)
        });
        paired(&differences.collect::<Vec<_>>())
    });
    ClassCell { mean, paired, p_holm: None }
}

/// Corrects the p of all cells as one family: of each class, as many as groups are to be compared.
fn correct(classes: &mut [ClassDifference], comparisons: usize) {
    let p = |cell: &ClassCell| cell.paired?.p;
    let known: Vec<f64> = classes.iter().flat_map(|class| &class.cells).filter_map(p).collect();
    let corrected = holm(&known, classes.len() * comparisons);
    let with_p =
        classes.iter_mut().flat_map(|class| &mut class.cells).filter(|cell| p(cell).is_some());
    with_p.zip(corrected).for_each(|(cell, corrected)| cell.p_holm = Some(corrected));
}

/// A row for every class and group, as CSV.
///
/// # Panics
///
/// Never: it writes to memory.
pub fn classes_csv(found: &ClassDifferences) -> String {
    let score = found.measure.column();
    let head = format!(
        "class name setting runs {score} baseline pairs difference ci_low ci_high p p_holm"
    );
    let head: Vec<String> = head.split(' ').map(str::to_owned).collect();
    let digits = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let rows = found.classes.iter().flat_map(|class| {
        found.groups.iter().zip(&class.cells).map(move |(group, cell)| {
            let paired = cell.paired;
            let end =
                |sign: f64| paired.and_then(|paired| Some(paired.mean + sign * paired.half_width?));
            vec![
                class.class.to_string(),
                class.name.clone(),
                group.label.clone(),
                group.runs.to_string(),
                digits(cell.mean),
                group.baseline.clone().unwrap_or_default(),
                paired.map_or_else(String::new, |paired| paired.n.to_string()),
                digits(paired.map(|paired| paired.mean)),
                digits(end(-1.0)),
                digits(end(1.0)),
                digits(paired.and_then(|paired| paired.p)),
                digits(cell.p_holm),
            ]
        })
    });
    written([head].into_iter().chain(rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{SCORES, class_scores, study};
    use crate::{Assignments, ReportConfig, summarize};

    /// Runs of two seeds, each with the IoU of two classes.
    fn found(read: impl Fn(&str) -> Result<Option<ClassScores>, String>) -> ClassDifferences {
        let runs = study(&[("zoh", &[0.5, 0.5]), ("foh", &[0.5, 0.5]), ("rk4", &[0.5, 0.5])]);
        let baseline = Assignments::from([("model.discretization".to_owned(), "zoh".into())]);
        let report = ReportConfig { baseline, ..ReportConfig::default() };
        let summary = summarize(&runs, &report, SCORES).unwrap();
        class_differences(&summary, &mut |name| read(name))
    }

    #[test]
    fn classes_are_paired_by_seed_and_ranked() {
        let found = found(|name| {
            Ok(Some(match name {
                "zoh-s0" => class_scores(&[Some(0.5), Some(0.2), None]),
                "zoh-s1" => class_scores(&[Some(0.7), Some(0.4), None]),
                "foh-s0" => class_scores(&[Some(0.5), Some(0.5), Some(0.0)]),
                "foh-s1" => class_scores(&[Some(0.75), Some(0.6), None]),
                "rk4-s0" => class_scores(&[Some(0.25), None, None]),
                _ => return Ok(None),
            }))
        });
        assert_eq!(found.without, ["rk4-s1"]);
        assert_eq!(found.groups.iter().map(|group| group.runs).collect::<Vec<_>>(), [2, 2, 1]);
        // The second class has 0.3 and 0.2 under foh, the first −0.25 under rk4; the third no pair.
        let order: Vec<usize> = found.classes.iter().map(|class| class.class).collect();
        assert_eq!(order[..2], [0, 1], "equal differences in the order of the numbers");
        let [first, second, third] = &found.classes[..] else { panic!("{found:?}") };
        assert_eq!(first.cells[0], ClassCell { mean: Some(0.6), ..ClassCell::default() });
        let of_foh = second.cells[1];
        assert!((of_foh.mean.unwrap() - 0.55).abs() < 1e-12);
        // t = 0.25/0.05 with one degree of freedom: p = 1 − 2·atan(5)/π.
        let p = 1.0 - 2.0 * 5.0_f64.atan() / std::f64::consts::PI;
        let paired = of_foh.paired.unwrap();
        assert!((paired.mean - 0.25).abs() < 1e-12 && (paired.p.unwrap() - p).abs() < 1e-9);
        // Of six tests planned, of three classes under two methods.
        assert!((of_foh.p_holm.unwrap() - 6.0 * p).abs() < 1e-9);
        assert_eq!((second.cells[2].mean, second.cells[2].paired), (None, None));
        assert_eq!((third.cells[1].mean, third.cells[1].paired), (Some(0.0), None));
        let csv = classes_csv(&found);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 1 + 3 * 3);
        assert_eq!(lines[1], "0,class 0,zoh,2,0.6,,,,,,,");
        assert_eq!(lines[3], "0,class 0,rk4,1,0.25,zoh,1,-0.25,,,,");
    }

    #[test]
    fn a_table_is_read_by_its_columns() {
        let text = "iou,class,name\n0.5,0,disk\n,1,\"a, b\"\n";
        let read = ClassScores::parse(text.as_bytes()).unwrap();
        let scores = vec![Some(0.5), None];
        let names = vec!["disk".into(), "a, b".into()];
        assert_eq!(read, ClassScores { measure: ClassMeasure::Iou, names, scores });
        let text = "kind,class,name,ap\nbbox,1,disk,0.5\nsegm,1,disk,\n";
        let read = ClassScores::parse(text.as_bytes()).unwrap();
        let names = vec!["disk, boxes".into(), "disk, masks".into()];
        let scores = vec![Some(0.5), None];
        assert_eq!(read, ClassScores { measure: ClassMeasure::Ap, names, scores });
        for (text, words) in [
            ("class,name\n", "no column `iou`"),
            ("name,iou\na,1.5\n", "\"1.5\" is no IoU"),
            ("name,iou\na\n", "record"),
        ] {
            let error = ClassScores::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn other_classes_are_told() {
        let found = found(|name| {
            let mut scores = class_scores(&[Some(0.5)]);
            if name == "foh-s1" {
                scores.names[0] = "other".into();
            }
            if name == "rk4-s0" { Err("damaged".into()) } else { Ok(Some(scores)) }
        });
        assert_eq!(found.unfit, ["foh-s1: it has other classes", "rk4-s0: damaged"]);
        assert_eq!(found.groups[1].runs, 1);
    }
}
