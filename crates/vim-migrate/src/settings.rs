//! The keys for the options of `main.py`.

use crate::Model;
use crate::builder::{
    ConfigBuilder, DEFAULT, as_written, config_path, float, integer, known, number, run_name,
};
use crate::error::{MigrateError, MigrateProblem};
use crate::launch::{Launch, PassedOption};

/// More loader threads than this per GPU are carried over with a note: few nodes have the cores.
const MOST_WORKERS: u64 = 32;

impl ConfigBuilder {
    /// The keys for `launch`, in order.
    pub(crate) fn of(
        launch: Launch,
        model: &dyn Fn(&str) -> Result<Model, String>,
    ) -> Result<Self, MigrateError> {
        let mut builder = Self { launch, entries: Vec::new() };
        builder.run()?;
        builder.model(model)?;
        builder.data()?;
        builder.augment()?;
        builder.train()?;
        builder.optim()?;
        builder.device()?;
        Ok(builder)
    }

    fn run(&mut self) -> Result<(), MigrateError> {
        let seed = self.get("seed");
        if let Some(output) = self.get("output-dir") {
            let seed_variable = seed.as_ref().and_then(|seed| {
                let holes = seed.values[0].unset_names();
                holes.first().map(|&hole| hole.to_owned())
            });
            match run_name(&output.values[0], seed_variable.as_deref()) {
                None if self.open("run.name", &output) => {}
                Some((root, name)) => {
                    let written = as_written(&output);
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
                self.add("run.seed", number.to_string(), as_written(&seed));
            }
        }
        Ok(())
    }

    fn model(&mut self, model: &dyn Fn(&str) -> Result<Model, String>) -> Result<(), MigrateError> {
        let Some(passed) = self.get("model") else {
            let why = "main.py's own default is no Vim: name a model in the script".to_owned();
            return Err(MigrateError::at(self.launch.line, MigrateProblem::Model(why)));
        };
        let name = known(&passed)?;
        let found = model(&name)
            .map_err(|why| MigrateError::at(passed.line, MigrateProblem::Model(why)))?;
        self.text("model.preset", &found.preset, &as_written(&passed));
        self.text("model.discretization", &found.discretization, "as the model's name says");
        self.whole("input-size", "model.image_size", 224)?;
        self.number("drop-path", "model.drop_path", Some(0.1))?;
        self.number("drop", "model.dropout", None)?;
        self.ssm(&found.discretization);
        Ok(())
    }

    /// Where the original's code differs from the defaults here, whatever its options say.
    fn ssm(&mut self, method: &str) {
        let why = "the original zeroes the reverse branch's dt bias";
        self.text("ssm.dt_b_init", "upstream_zero", why);
        // Under every method: the trainings of a study then differ in the method alone.
        let why = "the original's truncations of foh, poly and highorder; others have none";
        self.text("ssm.series", "taylor", why);
        // In the same words for every method: a study has it once.
        if method != "zoh" {
            let note = "the original's kernels train every method by zoh's gradient, and by folder \
                        in both branches, in one or in none: here it is both, by the exact \
                        gradient. Its truncations of foh, poly and highorder have the wrong sign \
                        where |delta·A| is above 3, as it is in the reverse branch at the start; \
                        ssm.series = \"exact\" is the method itself (docs/original.md)";
            self.launch.notes.push(note.to_owned());
        }
    }

    fn data(&mut self) -> Result<(), MigrateError> {
        let (set, comment) = match self.get("data-set") {
            Some(passed) => (known(&passed)?, as_written(&passed)),
            None => ("IMNET".to_owned(), DEFAULT.to_owned()),
        };
        match set.as_str() {
            "IMNET" => self.text("data.dataset", "imagenet", &comment),
            "CIFAR" => self.text("data.dataset", "cifar100", &comment),
            _ => {
                self.text("data.dataset", "folder", &comment);
                let why = "there is no such reader: data.dataset = \"folder\" reads images in \
                           folders of classes";
                if let Some(passed) = self.get("data-set") {
                    self.drop(&passed, why);
                }
            }
        }
        match self.get("data-path") {
            Some(passed) if self.open("data.path", &passed) => {}
            Some(passed) => match config_path(&passed.values[0]) {
                Some(path) => self.text("data.path", &path, &as_written(&passed)),
                None => self.drop(&passed, "only a shell knows that path: set data.path"),
            },
            None => self.launch.notes.push("the script names no images: set data.path".to_owned()),
        }
        self.text("data.normalize", "imagenet", "on every dataset");
        if let Some(passed) = self.get("num-workers") {
            match integer(&passed, 0)? * self.launch.processes {
                0 => self.text("data.workers", "auto", &as_written(&passed)),
                count => {
                    self.add("data.workers", count.to_string(), self.for_each_gpu(&passed));
                    if count > MOST_WORKERS {
                        self.launch.notes.push(format!(
                            "data.workers = {count} is far more than the cores that a job has for \
                             a GPU (some 8 to 24): data.workers = \"auto\" takes those of the \
                             allocation, at most 16"
                        ));
                    }
                }
            }
        }
        self.launch.notes.push(
            "the original chooses its best checkpoint by the test images; here the last weights \
             are the result unless data.val_fraction holds images out"
                .to_owned(),
        );
        Ok(())
    }

    fn augment(&mut self) -> Result<(), MigrateError> {
        let three = self.get("ThreeAugment");
        let is_three = three.is_some();
        match &three {
            Some(passed) => self.text("augment.preset", "three", &as_written(passed)),
            None => self.text("augment.preset", "deit", DEFAULT),
        }
        match (self.get("src"), three) {
            (Some(passed), Some(_)) => self.text("augment.crop", "simple", &as_written(&passed)),
            (Some(passed), None) => self.drop(&passed, "it has no effect without --ThreeAugment"),
            (None, _) => {}
        }
        if let Some(passed) = self.get("aa") {
            let value = known(&passed)?;
            if is_three {
                self.drop(&passed, "--ThreeAugment takes its place, there and here");
            } else if value.is_empty() || value.starts_with("rand") {
                self.text("augment.auto_augment", &value, &as_written(&passed));
            } else {
                self.drop(&passed, "of timm's policies there is RandAugment alone");
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
            if let Some(passed) = self.get(option) {
                self.text(key, &known(&passed)?, &as_written(&passed));
            }
        }
        if let Some(passed) = self.get("recount") {
            self.add("augment.erase_count", integer(&passed, 1)?.to_string(), as_written(&passed));
        }
        self.pair("cutmix-minmax", "augment.cutmix_minmax")?;
        match self.get("cutmix") {
            Some(passed) if self.get("cutmix-minmax").is_some() => {
                self.drop(&passed, "--cutmix-minmax takes its place, there and here");
            }
            Some(_) | None => self.number("cutmix", "augment.cutmix", None)?,
        }
        let why = "training images are resized by the bicubic filter";
        self.only("train-interpolation", "bicubic", why);
        match self.last_of(&["repeated-aug", "no-repeated-aug"]) {
            Some(passed) if passed.spec.name == "no-repeated-aug" => {
                self.add("augment.repeats", "1", as_written(&passed));
            }
            Some(_) | None if !self.launch.is_distributed => {
                self.add("augment.repeats", "1", "main.py repeats images only under torchrun");
            }
            Some(_) | None => {}
        }
        if self.launch.is_distributed {
            let why = "the original's samplers, by the epoch alone: one order for all seeds";
            self.text("augment.order", "reference", why);
        } else {
            let why = "without torchrun main.py's order is one of PyTorch's own, by its seed";
            self.text("augment.order", "keyed", why);
        }
        Ok(())
    }

    fn train(&mut self) -> Result<(), MigrateError> {
        self.whole("epochs", "train.epochs", 300)?;
        let (batch, comment) = self.batch()?;
        self.add("train.batch_size", batch.to_string(), comment);
        let processes = self.launch.processes;
        let why = "the script's GPUs: each mixes its part of the batch by a draw of its own";
        self.add("train.shards", processes.to_string(), why);
        if processes > 1 {
            self.launch.notes.push(format!(
                "the script used {processes} GPUs: --set devices.gpus={processes} shares the batch \
                 of {batch} among as many; one GPU computes its {processes} shards one after the \
                 other, each in N parts by --set train.accumulate=N, with the same result"
            ));
        }
        let amp = self.last_of(&["if-amp", "amp", "no-amp"]);
        match amp.filter(|passed| passed.spec.name != "no-amp") {
            Some(passed) => {
                self.text("train.precision", "f32", "see above");
                self.drop(
                    &passed,
                    "there is no fp16: train.precision = \"bf16\" is what comes near, and is as \
                     fast",
                );
            }
            None => self.text("train.precision", "f32", "no --if_amp"),
        }
        self.loss()?;
        self.number("clip-grad", "train.clip_grad", None)?;
        let ema = self.last_of(&["model-ema", "no-model-ema"]);
        if ema.is_none_or(|passed| passed.spec.name == "model-ema") {
            self.number("model-ema-decay", "train.ema", Some(0.99996))?;
        }
        let inf = self.last_of(&["if-continue-inf", "no-continue-inf"]);
        if let Some(passed) = inf.filter(|passed| passed.spec.name == "if-continue-inf") {
            self.text("train.non_finite", "skip", &as_written(&passed));
        }
        let Some(passed) = self.get("finetune") else { return Ok(()) };
        if self.open("train.init", &passed) {
            self.text("train.init_pos_embed", "parity", "as the original resizes positions");
            return Ok(());
        }
        match config_path(&passed.values[0]) {
            Some(path) if path.is_empty() => {}
            Some(path) => {
                self.text("train.init", &path, &as_written(&passed));
                self.text("train.init_pos_embed", "parity", "as the original resizes positions");
            }
            None => self.drop(&passed, "only a shell knows that path: set train.init"),
        }
        Ok(())
    }

    /// The loss and its targets. `--bce-loss` makes a target of 1 of whatever is above 0, which
    /// under smoothing is every class: nothing would be learned.
    fn loss(&mut self) -> Result<(), MigrateError> {
        let Some(bce) = self.get("bce-loss") else {
            return self.number("smoothing", "train.label_smoothing", Some(0.1));
        };
        self.text("train.loss", "bce", &as_written(&bce));
        self.add("train.bce_threshold", "0.0", "the original's");
        let (smoothing, comment) = self.number_or("smoothing", 0.1)?;
        if smoothing == 0.0 {
            return self.number("smoothing", "train.label_smoothing", None);
        }
        let why = "--bce-loss makes every class above 0 a target of 1, and so all of them: main.py \
                   learns nothing by it. train.label_smoothing = 0 is what trains";
        match self.get("smoothing") {
            Some(passed) => self.drop(&passed, why),
            None => self.launch.drop(format!("--smoothing {smoothing}, {comment}"), bce.line, why),
        }
        self.add("train.label_smoothing", "0.0", "see above");
        Ok(())
    }

    fn optim(&mut self) -> Result<(), MigrateError> {
        self.only("opt", "adamw", "AdamW is the only optimizer");
        self.only("sched", "cosine", "the cosine is the only schedule");
        let (lr, written) = match self.get("lr") {
            Some(passed) => (number(&passed, &passed.values[0])?, as_written(&passed)),
            None => (5e-4, format!("{DEFAULT}, 5e-4")),
        };
        let (batch, _) = self.batch()?;
        let (lr, comment) = match self.get("unscale-lr") {
            Some(passed) => (lr, format!("{written} {}", as_written(&passed))),
            None => (lr * (batch as f64 / 512.0), format!("{written}, times {batch} / 512")),
        };
        self.add("optim.lr", float(lr), comment);
        self.number("weight-decay", "optim.weight_decay", Some(0.05))?;
        self.pair("opt-betas", "optim.betas")?;
        self.number("opt-eps", "optim.eps", Some(1e-8))?;
        self.text("optim.schedule", "reference", "a rate for each epoch, as the original has it");
        let (warmup, comment) = self.integer_or("warmup-epochs", 0, 5)?;
        self.text("optim.warmup", &format!("{warmup}ep"), &comment);
        self.rate("min-lr", "optim.min_lr", 1e-5, lr)?;
        self.rate("warmup-lr", "optim.warmup_lr", 1e-6, lr)
    }

    /// Adds a rate, at most `lr`: the original scales only `lr` with the batch size.
    fn rate(
        &mut self,
        option: &str,
        key: &'static str,
        default: f64,
        lr: f64,
    ) -> Result<(), MigrateError> {
        let (rate, comment) = self.number_or(option, default)?;
        if rate > lr {
            let why = format!(
                "it is above the scaled rate {}, to which the original's would rise: {key} is that \
                 rate",
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
        if let Some(passed) = self.get("device") {
            let name = known(&passed)?;
            let backend = name.split(':').next().unwrap_or(&name);
            self.text("devices.backend", backend, &as_written(&passed));
        }
        Ok(())
    }

    /// The batch size over all GPUs, and its origin.
    fn batch(&self) -> Result<(u64, String), MigrateError> {
        Ok(match self.get("batch-size") {
            Some(passed) => {
                (integer(&passed, 1)? * self.launch.processes, self.for_each_gpu(&passed))
            }
            None => {
                let comment = match self.launch.processes {
                    1 => DEFAULT.to_owned(),
                    count => format!("{DEFAULT}, 64 for each of {count} GPUs"),
                };
                (64 * self.launch.processes, comment)
            }
        })
    }

    fn for_each_gpu(&self, passed: &PassedOption) -> String {
        match self.launch.processes {
            1 => as_written(passed),
            count => format!("{} for each of {count} GPUs", as_written(passed)),
        }
    }
}
