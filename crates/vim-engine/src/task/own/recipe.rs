//! Recipes for images of a number and a size: models from small to large, and a configuration.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use toml::{Table, Value};
use vim_data::{DataConfig, DatasetKind};

use super::survey::Survey;
use crate::config::{Config, ConfigError, TaskKind, VERSION, in_toml};

/// What the model starts from.
#[derive(Clone, Debug)]
pub enum Start {
    /// Its initial values.
    Scratch,
    /// The weights of a file or a run.
    Weights {
        /// `train.init`.
        init: String,
        /// `[model]` without `image_size`, and `[ssm]`: what differs from the defaults.
        sections: Box<[Table; 2]>,
        /// Pixels between its patches.
        patch: usize,
        /// Pixels of the side of the images that it has seen.
        size: usize,
        /// Blocks.
        depth: usize,
    },
}

/// A model, from `[model]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rung {
    size: usize,
    patch: usize,
    depth: usize,
    width: usize,
    state: usize,
}

/// How long to train.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    batch: usize,
    /// Passes over the images; of very many images no whole one.
    epochs: Option<u64>,
    steps: u64,
    /// Where it is known.
    pub takes: Option<Duration>,
}

/// The share of the time that is for steps; evaluations and the start take the rest.
pub const FOR_STEPS: f64 = 0.75;

const fn rung([size, patch, depth, width, state]: [usize; 5]) -> Rung {
    Rung { size, patch, depth, width, state }
}

/// Of classifiers: the smallest is that of `quickstart`, the largest Vim-Ti.
const CLASSIFIERS: [Rung; 5] = [
    rung([32, 4, 4, 64, 8]),
    rung([64, 8, 4, 96, 8]),
    rung([96, 8, 6, 128, 8]),
    rung([128, 8, 8, 192, 16]),
    rung([224, 16, 24, 192, 16]),
];
const SEGMENTERS: [Rung; 4] = [
    rung([64, 8, 4, 64, 8]),
    rung([128, 8, 4, 96, 8]),
    rung([256, 16, 8, 128, 8]),
    rung([512, 16, 24, 192, 16]),
];
const DETECTORS: [Rung; 4] = [
    rung([64, 8, 3, 48, 4]),
    rung([128, 8, 4, 64, 8]),
    rung([256, 16, 8, 128, 8]),
    rung([512, 16, 24, 192, 16]),
];

/// The models for the images of `survey` from the smallest on: none sees more than the images have.
pub fn rungs(survey: &Survey, start: &Start) -> Vec<Rung> {
    if let Start::Weights { patch, size, depth, .. } = *start {
        // Positions are resized: half of the size is a quarter of the tokens.
        let sizes = [size / 2, size * 7 / 10, size].map(|size| size.next_multiple_of(patch));
        return sizes.map(|size| Rung { size, patch, depth, width: 0, state: 0 }).to_vec();
    }
    let all = match survey.task {
        TaskKind::Classification => &CLASSIFIERS[..],
        TaskKind::Segmentation => &SEGMENTERS,
        TaskKind::Detection => &DETECTORS,
    };
    let fits = |(number, rung): (usize, &Rung)| match survey.is_fixed {
        true => rung.size == survey.side,
        false => number == 0 || rung.size <= survey.side,
    };
    let fitting = all.iter().enumerate().filter(|&(number, rung)| fits((number, rung)));
    fitting.map(|(_, rung)| *rung).collect()
}

/// Images that training should see, over all passes: few images often, many at least once.
pub fn wanted(survey: &Survey, start: &Start) -> f64 {
    let images = survey.images[0] as f64;
    let (passes, enough, least) = match (start, survey.task) {
        (Start::Weights { .. }, _) => (30.0, 20_000.0, 1.0),
        (Start::Scratch, TaskKind::Classification) => (150.0, 40_000.0, 3.0),
        (Start::Scratch, TaskKind::Segmentation | TaskKind::Detection) => (60.0, 20_000.0, 1.0),
    };
    f64::min(passes * images, enough).max(least * images)
}

/// How long to train at `speed`, in images a second, for it to end within `limit`; by
/// [`wanted`] where the speed is not known.
pub fn plan(
    survey: &Survey,
    start: &Start,
    is_cpu: bool,
    speed: Option<f64>,
    limit: Duration,
) -> Plan {
    let images = survey.images[0];
    let most = match (survey.task, is_cpu) {
        (TaskKind::Classification, true) => 32,
        (TaskKind::Classification, false) => 128,
        (TaskKind::Segmentation | TaskKind::Detection, true) => 8,
        (TaskKind::Segmentation | TaskKind::Detection, false) => 16,
    };
    // Some steps in each epoch, as the last, partial batch is left out.
    let mut batches = (1..8).rev().map(|power| 1 << power);
    let batch = batches.find(|&batch| batch <= most && 4 * batch <= images);
    let batch = batch.unwrap_or(images.clamp(1, 2));
    let views = speed.map(|speed| speed * limit.as_secs_f64() * FOR_STEPS);
    let views = views.unwrap_or_else(|| wanted(survey, start));
    let most_epochs = match start {
        Start::Scratch => 300.0,
        Start::Weights { .. } => 60.0,
    };
    let epochs = (views / images.max(1) as f64).min(most_epochs) as u64;
    let steps = match epochs {
        0 => (views / batch as f64).max(10.0) as u64,
        _ => epochs * (images / batch) as u64,
    };
    let takes = speed
        .map(|speed| Duration::from_secs_f64((steps * batch as u64) as f64 / speed / FOR_STEPS));
    Plan { batch, epochs: (epochs > 0).then_some(epochs), steps, takes }
}

/// The configuration without comments: it is checked.
pub fn configuration(
    survey: &Survey,
    start: &Start,
    rung: Rung,
    plan: Plan,
    name: &str,
) -> Result<String, ConfigError> {
    let text = sections(survey, start, rung, plan, name);
    Config::from_toml(&text).map(|_| text)
}

fn sections(survey: &Survey, start: &Start, rung: Rung, plan: Plan, name: &str) -> String {
    let mut text = Sections(String::new());
    let task = match survey.task {
        TaskKind::Classification => None,
        TaskKind::Segmentation => Some(("task", quoted("segmentation"))),
        TaskKind::Detection => Some(("task", quoted("detection"))),
    };
    // Of a later vim-train its keys mean what they mean now.
    let version = ("version", VERSION.to_string());
    text.add("", &std::iter::once(version).chain(task).collect::<Vec<_>>());
    text.add("run", &[("name", quoted(&format!("{name}-s{{run.seed}}")))]);
    text.add_model(start, rung, survey.task != TaskKind::Classification);
    text.add_data(&survey.data);
    text.add_task(survey, rung);
    text.add_training(start, plan);
    text.add_optimizer(survey.task, start, rung, plan);
    text.0.trim_end().to_owned() + "\n"
}

fn quoted(text: &str) -> String {
    in_toml(&Value::from(text))
}

/// The sections of a configuration so far.
struct Sections(String);

impl Sections {
    fn add(&mut self, name: &str, keys: &[(&str, String)]) {
        let head = if name.is_empty() { String::new() } else { format!("[{name}]\n") };
        let keys: String = keys.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        // Memory takes all that is written.
        let _ = writeln!(self.0, "{head}{keys}");
    }

    /// The model, on which there are dense heads if `is_dense`.
    fn add_model(&mut self, start: &Start, rung: Rung, is_dense: bool) {
        let Rung { size, patch, depth, width, state } = rung;
        let mut model = vec![("image_size", size.to_string())];
        // A backbone of dense heads has no class token, whatever the classifier had.
        let is_kept = |key: &str| !is_dense || key != "class_token";
        let given = |table: &Table| -> Vec<(String, String)> {
            let kept = table.iter().filter(|(key, _)| is_kept(key));
            kept.map(|(key, value)| (key.clone(), in_toml(value))).collect()
        };
        let [of_model, of_ssm] = match start {
            Start::Scratch => {
                let keys = [
                    ("patch_size", patch),
                    ("depth", depth),
                    ("d_model", width),
                    ("d_state", state),
                ];
                model.extend(keys.map(|(key, value)| (key, value.to_string())));
                model.push(("drop_path", "0.0".to_owned()));
                [Vec::new(), Vec::new()]
            }
            Start::Weights { sections, .. } => [given(&sections[0]), given(&sections[1])],
        };
        model.extend(of_model.iter().map(|(key, value)| (key.as_str(), value.clone())));
        if is_dense {
            model.push(("class_token", quoted("none")));
        }
        self.add("model", &model);
        if !of_ssm.is_empty() {
            let keys: Vec<_> =
                of_ssm.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
            self.add("ssm", &keys);
        }
    }

    fn add_data(&mut self, data: &DataConfig) {
        let kind: &str = data.dataset.into();
        let path = data.path.as_deref().unwrap_or(Path::new("")).to_string_lossy();
        let mut keys = vec![("dataset", quoted(kind)), ("path", quoted(&path))];
        if data.val_fraction > 0.0 {
            keys.push(("val_fraction", data.val_fraction.to_string()));
        }
        self.add("data", &keys);
    }

    /// The augmentation, and the heads where there are some.
    fn add_task(&mut self, survey: &Survey, Rung { size, depth, .. }: Rung) {
        match survey.task {
            TaskKind::Classification if survey.data.dataset == DatasetKind::Folder => self.add(
                "augment",
                &[
                    ("preset", quoted("none")),
                    ("crop", quoted("resized")),
                    ("scale", "[0.35, 1.0]".to_owned()),
                    ("hflip", "0.5".to_owned()),
                    ("color_jitter", "0.3".to_owned()),
                ],
            ),
            TaskKind::Classification => {}
            TaskKind::Segmentation => {
                let quarter = |part: usize| (depth * part).div_ceil(4).max(1) - 1;
                let blocks = [1, 2, 3, 4].map(|part| quarter(part).to_string()).join(", ");
                let channels = if size < 512 { 64 } else { 256 };
                let aux = ("aux_channels", channels.to_string());
                self.add("segmentation", &[("out_indices", format!("[{blocks}]")), aux]);
                self.add("pairs", &[("scale", format!("[{}, {size}]", 4 * size))]);
            }
            TaskKind::Detection => {
                let mut keys = vec![("box_side", format!("{:.1}", 0.875 * size as f64))];
                if survey.has_boxes_alone {
                    keys.push(("masks", "false".to_owned()));
                }
                if size < 512 {
                    let small = [
                        ("channels", 32),
                        ("box_features", 128),
                        ("anchor_samples", 64),
                        ("proposals_per_level", 100),
                        ("proposals", 100),
                        ("test_proposals_per_level", 100),
                        ("test_proposals", 50),
                        ("box_samples", 32),
                    ];
                    keys.extend(small.map(|(key, value)| (key, value.to_string())));
                }
                self.add("detection", &keys);
                self.add("objects", &[("scale", "[0.75, 1.25]".to_owned())]);
            }
        }
    }

    fn add_training(&mut self, start: &Start, plan: Plan) {
        let length = match plan.epochs {
            Some(epochs) => ("epochs", epochs.to_string()),
            None => ("steps", plan.steps.to_string()),
        };
        let every = evaluated_every(plan);
        let mut train = vec![length, ("batch_size", plan.batch.to_string()), ("eval_every", every)];
        train.push(("clip_grad", "1.0".to_owned()));
        if let Start::Weights { init, .. } = start {
            train.push(("init", quoted(init)));
            train.push(("layer_decay", "0.75".to_owned()));
        }
        self.add("train", &train);
    }

    /// The optimizer, and when the run saves and records.
    fn add_optimizer(&mut self, task: TaskKind, start: &Start, rung: Rung, plan: Plan) {
        let lr = match (start, task) {
            (Start::Weights { .. }, _) => "3e-4",
            (Start::Scratch, TaskKind::Classification) if rung.width < 96 => "2e-3",
            (Start::Scratch, TaskKind::Segmentation) => "2e-3",
            (Start::Scratch, TaskKind::Classification | TaskKind::Detection) => "1e-3",
        };
        let steps = plan.steps;
        let warmup = quoted(&format!("{}st", steps.div_ceil(20)));
        let decay = ("weight_decay", "0.05".to_owned());
        self.add("optim", &[("lr", lr.to_owned()), decay, ("warmup", warmup)]);
        self.add("checkpoint", &[("every", evaluated_every(plan))]);
        self.add("log", &[("every", quoted(&format!("{}st", steps.div_ceil(50))))]);
    }
}

/// How often the run is evaluated and saved.
fn evaluated_every(plan: Plan) -> String {
    quoted(&match plan.epochs {
        Some(epochs) => format!("{}ep", epochs.div_ceil(20)),
        None => format!("{}st", plan.steps.div_ceil(5)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey(task: TaskKind, images: usize, side: usize) -> Survey {
        let dataset = match task {
            TaskKind::Classification => DatasetKind::Folder,
            TaskKind::Segmentation => DatasetKind::Pairs,
            TaskKind::Detection => DatasetKind::Coco,
        };
        let path = Some("/photos of \"mine\"".into());
        Survey {
            data: DataConfig { dataset, path, val_fraction: 0.15, ..DataConfig::default() },
            task,
            images: [images, 10, 10],
            classes: vec!["a".into(), "b".into()],
            per_class: None,
            side,
            is_fixed: false,
            has_boxes_alone: false,
            notes: Vec::new(),
        }
    }

    const TEN: Duration = Duration::from_secs(600);

    #[test]
    fn every_recipe_is_a_configuration() {
        let sections = Box::new([Table::new(), "series = \"taylor\"".parse().unwrap()]);
        let weights =
            Start::Weights { init: "x.pth".into(), sections, patch: 16, size: 224, depth: 24 };
        for task in [TaskKind::Classification, TaskKind::Segmentation, TaskKind::Detection] {
            for (images, speed) in [(5, 1.0), (150, 20.0), (10_000, 300.0), (1_281_167, 50.0)] {
                let survey = survey(task, images, 4000);
                for start in [&Start::Scratch, &weights] {
                    let rungs = rungs(&survey, start);
                    assert!(rungs.len() >= 3, "{rungs:?}");
                    for (rung, is_cpu) in rungs.into_iter().zip([true, false].into_iter().cycle()) {
                        let plan = plan(&survey, start, is_cpu, Some(speed), TEN);
                        let takes = plan.takes.unwrap().as_secs_f64();
                        let text = configuration(&survey, start, rung, plan, "photos");
                        let text = text.unwrap_or_else(|error| panic!("{error}: {rung:?}"));
                        assert!(takes < 1000.0, "{takes} s: {text}");
                        assert!(text.contains("[data]") && text.contains("clip_grad"), "{text}");
                    }
                }
            }
        }
    }

    #[test]
    fn few_images_are_seen_often_and_many_once_or_less() {
        let of = |images, speed| {
            plan(&survey(TaskKind::Classification, images, 200), &Start::Scratch, true, speed, TEN)
        };
        assert_eq!((of(144, Some(1e3)).epochs, of(144, Some(1e3)).batch), (Some(300), 32));
        assert_eq!(of(144, Some(32.0)).epochs, Some(100));
        assert_eq!(of(1_281_167, Some(400.0)).epochs, None);
        assert_eq!(of(144, None), Plan { takes: None, ..of(144, Some(144.0 * 150.0 / 450.0)) });
        assert_eq!(of(9, Some(1.0)).batch, 2);
    }

    #[test]
    fn no_model_sees_more_than_there_is() {
        let sizes = |side, is_fixed| -> Vec<usize> {
            let survey = Survey { is_fixed, ..survey(TaskKind::Classification, 100, side) };
            rungs(&survey, &Start::Scratch).iter().map(|rung| rung.size).collect()
        };
        assert_eq!(sizes(8, false), [32]);
        assert_eq!(sizes(100, false), [32, 64, 96]);
        assert_eq!(sizes(32, true), [32]);
        assert_eq!(sizes(3000, false), [32, 64, 96, 128, 224]);
    }
}
