//! The options of `main.py` to keys of a configuration.

use crate::error::{MigrateError, Trouble};
use crate::launch::{Given, Launch};
use crate::maker::{DEFAULT, Entry, Maker, float, integer, known, number, said};
use crate::paths::{place, run_name};
use crate::{Model, NotCarried};

/// Loader threads that a GPU's share of a node may still have cores for; more are carried over with a note.
const MOST_WORKERS: u64 = 32;

/// All that a configuration says, in its order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) line: usize,
    pub(crate) entries: Vec<Entry>,
    pub(crate) not_carried: Vec<NotCarried>,
    pub(crate) notes: Vec<String>,
}

impl Settings {
    /// The keys for `launch`.
    pub(crate) fn of(
        launch: Launch,
        model: &dyn Fn(&str) -> Result<Model, String>,
    ) -> Result<Self, MigrateError> {
        let mut maker = Maker { launch, entries: Vec::new() };
        maker.run()?;
        maker.model(model)?;
        maker.data()?;
        maker.augment()?;
        maker.train()?;
        maker.optim()?;
        maker.device()?;
        let Launch { line, not_carried, notes, .. } = maker.launch;
        Ok(Self { line, entries: maker.entries, not_carried, notes })
    }
}

impl Maker {
    fn run(&mut self) -> Result<(), MigrateError> {
        let seed = self.get("seed");
        if let Some(output) = self.get("output-dir") {
            let seed_hole = seed.as_ref().and_then(|seed| {
                let holes = seed.values[0].holes();
                holes.first().map(|&hole| hole.to_owned())
            });
            match run_name(&output.values[0], seed_hole.as_deref()) {
                Some((root, name)) => {
                    let written = said(&output);
                    self.text("run.name", &name, &written);
                    if let Some(root) = root {
                        self.text("run.root", &root, &written);
                    }
                }
                None => {
                    self.drop(&output, "only a shell knows that name: set run.root and run.name")
                }
            }
        }
        match seed {
            None => self.add("run.seed", "0", DEFAULT),
            Some(seed) if seed.values[0].known().is_none() => {
                self.add("run.seed", "0", "the script takes it from outside");
                self.drop(&seed, "the script takes it from outside: --set run.seed=N");
            }
            Some(seed) => {
                let number = integer(&seed, 0)?;
                self.add("run.seed", number.to_string(), said(&seed));
            }
        }
        Ok(())
    }

    fn model(&mut self, model: &dyn Fn(&str) -> Result<Model, String>) -> Result<(), MigrateError> {
        let Some(given) = self.get("model") else {
            let why = "main.py's own default is no Vim: name a model in the script".to_owned();
            return Err(MigrateError::at(self.launch.line, Trouble::Model { why }));
        };
        let name = known(&given)?;
        let found =
            model(&name).map_err(|why| MigrateError::at(given.line, Trouble::Model { why }))?;
        self.text("model.preset", &found.preset, &said(&given));
        self.text("model.discretization", &found.discretization, "as the model's name says");
        self.whole("input-size", "model.image_size", 224)?;
        self.number("drop-path", "model.drop_path", Some(0.1))?;
        self.number("drop", "model.dropout", None)
    }

    fn data(&mut self) -> Result<(), MigrateError> {
        let (set, comment) = match self.get("data-set") {
            Some(given) => (known(&given)?, said(&given)),
            None => ("IMNET".to_owned(), DEFAULT.to_owned()),
        };
        match set.as_str() {
            "IMNET" => self.text("data.dataset", "imagenet", &comment),
            "CIFAR" => self.text("data.dataset", "cifar100", &comment),
            _ => {
                self.text("data.dataset", "folder", &comment);
                let why = "there is no such reader: data.dataset = \"folder\" reads images in folders of classes";
                if let Some(given) = self.get("data-set") {
                    self.drop(&given, why);
                }
            }
        }
        match self.get("data-path") {
            Some(given) => match place(&given.values[0]) {
                Some(path) => self.text("data.path", &path, &said(&given)),
                None => self.drop(&given, "only a shell knows that path: set data.path"),
            },
            None => self.launch.notes.push("the script names no images: set data.path".to_owned()),
        }
        self.text("data.normalize", "imagenet", "on every dataset");
        if let Some(given) = self.get("num-workers") {
            match integer(&given, 0)? * self.launch.processes {
                0 => self.text("data.workers", "auto", &said(&given)),
                count => {
                    self.add("data.workers", count.to_string(), self.for_each_gpu(&given));
                    if count > MOST_WORKERS {
                        self.launch.notes.push(format!(
                            "data.workers = {count} is far more than the cores that a job has for a GPU (some 8 to 24): data.workers = \"auto\" takes those of the allocation, at most 16"
                        ));
                    }
                }
            }
        }
        self.launch.notes.push(
            "the original chooses its best checkpoint by the test images; here the last weights are the result unless data.val_fraction holds images out".to_owned(),
        );
        Ok(())
    }

    fn augment(&mut self) -> Result<(), MigrateError> {
        let three = self.get("ThreeAugment");
        let is_three = three.is_some();
        match &three {
            Some(given) => self.text("augment.preset", "three", &said(given)),
            None => self.text("augment.preset", "deit", DEFAULT),
        }
        match (self.get("src"), three) {
            (Some(given), Some(_)) => self.text("augment.crop", "simple", &said(&given)),
            (Some(given), None) => self.drop(&given, "it has no effect without --ThreeAugment"),
            (None, _) => {}
        }
        if let Some(given) = self.get("aa") {
            let value = known(&given)?;
            if is_three {
                self.drop(&given, "--ThreeAugment takes its place, there and here");
            } else if value.is_empty() || value.starts_with("rand") {
                self.text("augment.auto_augment", &value, &said(&given));
            } else {
                self.drop(&given, "of timm's policies there is RandAugment alone");
            }
        }
        for (option, key) in [
            ("color-jitter", "augment.color_jitter"),
            ("reprob", "augment.erase_prob"),
            ("mixup", "augment.mixup"),
            ("mixup-prob", "augment.mix_prob"),
            ("mixup-switch-prob", "augment.mix_switch_prob"),
            ("eval-crop-ratio", "augment.eval_crop_ratio"),
        ] {
            self.number(option, key, None)?;
        }
        for (option, key) in [("remode", "augment.erase_mode"), ("mixup-mode", "augment.mix_mode")]
        {
            if let Some(given) = self.get(option) {
                self.text(key, &known(&given)?, &said(&given));
            }
        }
        if let Some(given) = self.get("recount") {
            self.add("augment.erase_count", integer(&given, 1)?.to_string(), said(&given));
        }
        self.pair("cutmix-minmax", "augment.cutmix_minmax")?;
        match self.get("cutmix") {
            Some(given) if self.get("cutmix-minmax").is_some() => {
                self.drop(&given, "--cutmix-minmax takes its place, there and here");
            }
            Some(_) | None => self.number("cutmix", "augment.cutmix", None)?,
        }
        let interpolation = self.get("train-interpolation");
        if let Some(given) = interpolation.filter(|given| given.values[0].shown() != "bicubic") {
            self.drop(&given, "training images are resized by the bicubic filter");
        }
        match self.last_of(&["repeated-aug", "no-repeated-aug"]) {
            Some(given) if given.option.name == "no-repeated-aug" => {
                self.add("augment.repeats", "1", said(&given));
            }
            Some(_) | None if !self.launch.is_distributed => {
                self.add("augment.repeats", "1", "main.py repeats images only under torchrun");
            }
            Some(_) | None => {}
        }
        Ok(())
    }

    fn train(&mut self) -> Result<(), MigrateError> {
        self.whole("epochs", "train.epochs", 300)?;
        let (batch, comment) = self.batch()?;
        self.add("train.batch_size", batch.to_string(), comment);
        if self.launch.processes > 1 {
            self.launch.notes.push(format!(
                "the script used {} GPUs; a run uses one, which takes the batch of {batch} whole: --set train.accumulate=N computes it in N parts",
                self.launch.processes
            ));
        }
        let amp = self.last_of(&["if-amp", "amp", "no-amp"]);
        match amp.filter(|given| given.option.name != "no-amp") {
            Some(given) => {
                self.text("train.precision", "f32", "see above");
                self.drop(&given, "there is no fp16: train.precision = \"bf16\" is what comes near, and is as fast");
            }
            None => self.text("train.precision", "f32", "no --if_amp"),
        }
        if let Some(given) = self.get("bce-loss") {
            self.text("train.loss", "bce", &said(&given));
            self.add("train.bce_threshold", "0.0", "the original's");
        }
        self.number("smoothing", "train.label_smoothing", Some(0.1))?;
        self.number("clip-grad", "train.clip_grad", None)?;
        let ema = self.last_of(&["model-ema", "no-model-ema"]);
        if ema.is_none_or(|given| given.option.name == "model-ema") {
            self.number("model-ema-decay", "train.ema", Some(0.99996))?;
        }
        let inf = self.last_of(&["if-continue-inf", "no-continue-inf"]);
        if let Some(given) = inf.filter(|given| given.option.name == "if-continue-inf") {
            self.text("train.non_finite", "skip", &said(&given));
        }
        let Some(given) = self.get("finetune") else { return Ok(()) };
        match place(&given.values[0]) {
            Some(path) if path.is_empty() => {}
            Some(path) => {
                self.text("train.init", &path, &said(&given));
                self.text("train.init_pos_embed", "parity", "as the original resizes positions");
            }
            None => self.drop(&given, "only a shell knows that path: set train.init"),
        }
        Ok(())
    }

    fn optim(&mut self) -> Result<(), MigrateError> {
        let optimizer = self.get("opt").filter(|given| given.values[0].shown() != "adamw");
        if let Some(given) = optimizer {
            self.drop(&given, "AdamW is the only optimizer");
        }
        let schedule = self.get("sched").filter(|given| given.values[0].shown() != "cosine");
        if let Some(given) = schedule {
            self.drop(&given, "the cosine is the only schedule");
        }
        let (lr, written) = match self.get("lr") {
            Some(given) => (number(&given, &given.values[0])?, said(&given)),
            None => (5e-4, format!("{DEFAULT}, 5e-4")),
        };
        let (batch, _) = self.batch()?;
        let (lr, comment) = match self.get("unscale-lr") {
            Some(given) => (lr, format!("{written} {}", said(&given))),
            None => (lr * (batch as f64 / 512.0), format!("{written}, times {batch} / 512")),
        };
        self.add("optim.lr", float(lr), comment);
        self.number("weight-decay", "optim.weight_decay", Some(0.05))?;
        self.pair("opt-betas", "optim.betas")?;
        self.number("opt-eps", "optim.eps", Some(1e-8))?;
        self.text("optim.schedule", "reference", "a rate for each epoch, as the original has it");
        let warmup = match self.get("warmup-epochs") {
            Some(given) => (integer(&given, 0)?, said(&given)),
            None => (5, DEFAULT.to_owned()),
        };
        self.text("optim.warmup", &format!("{}ep", warmup.0), &warmup.1);
        self.rate("min-lr", "optim.min_lr", 1e-5, lr)?;
        self.rate("warmup-lr", "optim.warmup_lr", 1e-6, lr)
    }

    /// A rate that may not be above `lr`: the original scales that alone by the batch.
    fn rate(
        &mut self,
        option: &str,
        key: &'static str,
        default: f64,
        lr: f64,
    ) -> Result<(), MigrateError> {
        let (rate, comment) = match self.get(option) {
            Some(given) => (number(&given, &given.values[0])?, said(&given)),
            None => (default, DEFAULT.to_owned()),
        };
        if rate > lr {
            let why = format!(
                "it is above the scaled rate {}, to which the original's would rise: {key} is that rate",
                float(lr)
            );
            let what = format!("--{option} {}", float(rate));
            self.launch.drop(what, self.launch.line, why);
            self.add(key, float(lr), format!("not {}", float(rate)));
        } else {
            self.add(key, float(rate), comment);
        }
        Ok(())
    }

    fn device(&mut self) -> Result<(), MigrateError> {
        if let Some(given) = self.get("device") {
            let name = known(&given)?;
            let backend = name.split(':').next().unwrap_or(&name);
            self.text("devices.backend", backend, &said(&given));
        }
        Ok(())
    }

    /// Images of an optimizer step on all GPUs, and where that comes from.
    fn batch(&self) -> Result<(u64, String), MigrateError> {
        Ok(match self.get("batch-size") {
            Some(given) => (integer(&given, 1)? * self.launch.processes, self.for_each_gpu(&given)),
            None => {
                let comment = match self.launch.processes {
                    1 => DEFAULT.to_owned(),
                    count => format!("{DEFAULT}, 64 for each of {count} GPUs"),
                };
                (64 * self.launch.processes, comment)
            }
        })
    }

    fn for_each_gpu(&self, given: &Given) -> String {
        match self.launch.processes {
            1 => said(given),
            count => format!("{} for each of {count} GPUs", said(given)),
        }
    }
}
