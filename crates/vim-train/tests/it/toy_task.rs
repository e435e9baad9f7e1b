//! A task of another kind through the real loop: which pixels of an image are bright.
//!
//! One label per pixel, a batch normalization whose running statistics are saved and not optimized,
//! and a score of its own. The loop, the run's folder and the reports know nothing of it.

use std::fs;
use std::ops::Range;
use std::path::Path;

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, PaddingConfig2d};
use burn::tensor::activation::{log_sigmoid, relu};
use burn::tensor::{Device, Tensor, TensorData};
use serde_json::Value;
use vim_comm::Comm;
use vim_data::{Batch, Loader, LoaderConfig, Splits};
use vim_engine::Error;
use vim_engine::config::{Config, ConfigError};
use vim_engine::task::{
    Description, Draw, EvalSplit, Evaluation, InitFor, InitWeights, Objective, Placement, Task,
    batches,
};
use vim_engine::train::{self, TrainOptions};
use vim_run::Resume;
use vim_run::metrics::ScoreKind;
use vim_run::signals::StopRequest;

use crate::support::{assert_parts, json_lines, repository, without_largest};

/// A convolution, and a logit for each pixel: `[B, 3, H, W]` to `[B, 1, H, W]`.
#[derive(Module, Debug)]
struct PixelModel {
    conv: Conv2d,
    norm: BatchNorm,
    head: Conv2d,
}

impl PixelModel {
    fn forward(&self, images: Tensor<4>) -> Tensor<4> {
        self.head.forward(relu(self.norm.forward(self.conv.forward(images))))
    }
}

/// Whether each pixel is brighter than mid-grey.
fn masks(batch: &Batch) -> Vec<f32> {
    let bright = |pixel: &[u8]| pixel.iter().map(|&byte| u32::from(byte)).sum::<u32>() > 3 * 127;
    batch.images.chunks_exact(3).map(|pixel| f32::from(u8::from(bright(pixel)))).collect()
}

#[derive(Clone, Debug)]
struct Masked {
    images: Tensor<4>,
    masks: Tensor<4>,
}

struct PixelLoss {
    seed: u64,
}

fn pixel_loss(logits: Tensor<4>, masks: Tensor<4>) -> Tensor<1> {
    (logits.clone() * (-masks + 1.0) - log_sigmoid(logits)).mean()
}

impl Objective for PixelLoss {
    type Model = PixelModel;
    type Inputs = Masked;

    fn init(&self, device: &Device) -> Result<PixelModel, Error> {
        device.seed(self.seed);
        let padding = PaddingConfig2d::Same;
        Ok(PixelModel {
            conv: Conv2dConfig::new([3, 4], [3, 3]).with_padding(padding).init(device),
            norm: BatchNormConfig::new(4).init(device),
            head: Conv2dConfig::new([4, 1], [1, 1]).init(device),
        })
    }

    fn load_init(&self, _: &Device, _: &InitFor) -> Result<Option<InitWeights<PixelModel>>, Error> {
        Ok(None)
    }

    fn placement(&self, path: &str, rank: usize) -> Placement {
        Placement { decays: rank > 1, layers_above: usize::from(!path.starts_with("head")) }
    }

    fn count(inputs: &Masked) -> usize {
        inputs.images.dims()[0]
    }

    fn loss(
        &self,
        model: &PixelModel,
        Masked { images, masks }: Masked,
        range: Range<usize>,
        _draw: Draw,
    ) -> Result<Tensor<1>, Error> {
        let part = |all: Tensor<4>| all.narrow(0, range.start, range.len());
        Ok(pixel_loss(model.forward(part(images)), part(masks)))
    }
}

struct Toy {
    objective: PixelLoss,
    config: Config,
    splits: Splits,
    loader: Loader,
    evaluation: LoaderConfig,
}

impl Toy {
    fn masked(&self, batch: &Batch, device: &Device) -> Result<Masked, Error> {
        let statistics = self.splits.train.statistics(self.config.data.normalize);
        let images = batches::images(batch, statistics, device)?;
        let shape = [batch.len(), 1, batch.height, batch.width];
        Ok(Masked {
            images,
            masks: Tensor::from_data(TensorData::new(masks(batch), shape), device),
        })
    }
}

impl Task for Toy {
    type Objective = PixelLoss;
    type Batch = Batch;
    type Batches = vim_data::Batches;

    const SCORES: &'static [ScoreKind] = &[ScoreKind::LOSS, Self::PRIMARY];
    const PRIMARY: ScoreKind = ScoreKind::share("pixel_accuracy", "pixel accuracy");

    fn open(config: &Config, _: &Device, comm: &Comm, _: &[String]) -> Result<Self, Error> {
        let splits = vim_data::open::<vim_data::Class>(&config.data)?;
        let size = 32.into();
        let evaluation = batches::evaluation(config, size, comm);
        let training = batches::training(config, size, comm);
        let loader = Loader::new(splits.train.clone(), training)?;
        let objective = PixelLoss { seed: config.run.seed };
        Ok(Self { objective, config: config.clone(), splits, loader, evaluation })
    }

    fn preflight(_: &Config) -> Result<(Option<Self>, Vec<String>), ConfigError> {
        Ok((None, Vec::new()))
    }

    fn objective(&self) -> &PixelLoss {
        &self.objective
    }

    fn describe(&self) -> Result<Description, Error> {
        Ok(Description {
            model: "a logit for each pixel".into(),
            parameters: 125,
            image_bytes: 3 * 32 * 32,
            data: format!("data {} train images", self.splits.train.len()),
            notes: Vec::new(),
        })
    }

    fn steps_per_epoch(&self) -> u64 {
        self.loader.batches_per_epoch() as u64
    }

    fn batches(&self, steps: Range<u64>) -> vim_data::Batches {
        self.loader.batches(steps)
    }

    fn upload(&self, batch: &Batch, device: &Device) -> Result<Masked, Error> {
        self.masked(batch, device)
    }

    fn has_validation(&self) -> bool {
        self.splits.val.is_some()
    }

    fn evaluate(
        &self,
        model: &PixelModel,
        split: EvalSplit,
        device: &Device,
        stop: &StopRequest,
    ) -> Result<Option<Evaluation>, Error> {
        let split = match split {
            EvalSplit::Val => self.splits.val.as_ref().unwrap(),
            EvalSplit::Test => &self.splits.test,
        };
        let (mut loss, mut right, mut images) = (0.0, 0.0, 0);
        for batch in Loader::new(split.clone(), self.evaluation.clone())?.epoch(0, 0) {
            if stop.get().is_some() {
                return Ok(None);
            }
            let batch = batch?;
            assert_eq!(batch.count, batch.len(), "whole batches");
            let inputs = self.masked(&batch, device)?;
            let logits = model.forward(inputs.images);
            let is_right = logits.clone().greater_elem(0.0).float().equal(inputs.masks.clone());
            let numbers = [pixel_loss(logits, inputs.masks), is_right.float().mean()];
            let [of_loss, of_right] = numbers.map(|n| f64::from(n.into_scalar::<f32>()));
            loss += of_loss * batch.count as f64;
            right += of_right * batch.count as f64;
            images += batch.count;
        }
        let mean = |sum: f64| sum / images as f64;
        let scores = [("loss", mean(loss)), ("pixel_accuracy", mean(right))].into_iter().collect();
        Ok(Some(Evaluation { scores, images }))
    }

    fn evaluation_batch(
        &self,
        device: &Device,
    ) -> Result<impl Fn(&PixelModel) -> Result<(), Error>, Error> {
        let batch = self.loader.epoch(0, 0).next().unwrap()?;
        Ok(move |model: &PixelModel| {
            let _ = model.forward(self.masked(&batch, device)?.images).into_data();
            Ok(())
        })
    }
}

/// Trains the toy as run `name`, for `steps` steps or to the end.
fn run(root: &Path, name: &str, steps: Option<u64>) {
    let mut sets = vec![format!("run.root={}", root.display()), format!("run.name={name}")];
    let keys = ["augment.preset=none", "train.ema=0.8", "train.accumulate=2", "optim.lr=2e-2"];
    sets.extend(keys.map(str::to_owned));
    let options = TrainOptions {
        config: repository("configs/debug.toml"),
        sets,
        resume: Resume::Auto,
        steps,
        ..TrainOptions::default()
    };
    train::run::<Toy>(&options).unwrap();
}

#[test]
fn a_task_of_its_own_trains_resumes_and_is_recorded_by_its_own_score() {
    let root = tempfile::tempdir().unwrap();
    let read = |name: &str, file: &str| fs::read_to_string(root.path().join(name).join(file));
    run(root.path(), "whole", None);
    for steps in [Some(7), Some(8), None] {
        run(root.path(), "paused", steps);
    }
    // It scans nothing, but tests beside it in this process may.
    let records = |name: &str| without_largest(&read(name, "metrics.jsonl").unwrap());
    assert_eq!(records("whole"), records("paused"));
    let model = |name: &str| {
        let file = root.path().join(name).join("checkpoints/step-00000024/model.safetensors");
        fs::read(file).unwrap()
    };
    assert_eq!(model("whole"), model("paused"));
    let saved = String::from_utf8_lossy(&model("whole")).into_owned();
    assert!(saved.contains("norm.running_mean") && saved.contains("norm.running_var"));

    let metrics = read("whole", "metrics.jsonl").unwrap();
    let records = json_lines(&metrics);
    let of = |weights: &str| -> Vec<f64> {
        let evaluations = records.iter().filter(|r| r["split"] == "val" && r["weights"] == weights);
        evaluations.map(|record| record["pixel_accuracy"].as_f64().unwrap()).collect()
    };
    let (own, averaged) = (of("model"), of("ema"));
    assert_eq!((own.len(), averaged.len()), (3, 3));
    let losses = records.iter().filter(|record| record["kind"] == "train");
    let losses: Vec<f64> = losses.map(|record| record["loss"].as_f64().unwrap()).collect();
    assert!(losses[11] < 0.9 * losses[0] && own[2] > 0.6, "it does not learn: {losses:?} {own:?}");
    let best = own.iter().chain(&averaged).copied().fold(0.0, f64::max);
    let exit: Value = serde_json::from_str(&read("whole", "exit.json").unwrap()).unwrap();
    assert_eq!(exit["best_pixel_accuracy"], best);
    let test = records.iter().rfind(|record| record["split"] == "test").unwrap();
    assert_eq!(exit["pixel_accuracy"], test["pixel_accuracy"]);
    assert!(root.path().join("whole/checkpoints/best").is_file());
    let table = read("whole", "metrics.csv").unwrap();
    assert_parts(table.lines().next().unwrap(), &["pixel_accuracy"]);
    let log = read("whole", "log.txt").unwrap();
    let said = ["best pixel accuracy", "test pixel accuracy", "a logit for each pixel"];
    assert_parts(&log, &said);
    assert!(!metrics.contains("top1") && !log.contains("top-1"));
}
