//! The options of the original's `main.py`.

/// An option of `main.py`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opt {
    /// The name, with `-` instead of `_`.
    pub(crate) name: &'static str,
    /// The most values that it takes.
    pub(crate) most: usize,
    /// Why it has no key in the configuration; `None` if it has one: see settings.rs.
    pub(crate) dropped: Option<&'static str>,
}

const MANY: usize = usize::MAX;

const fn value(name: &'static str) -> Opt {
    Opt { name, most: 1, dropped: None }
}

const fn values(name: &'static str) -> Opt {
    Opt { name, most: MANY, dropped: None }
}

const fn switch(name: &'static str) -> Opt {
    Opt { name, most: 0, dropped: None }
}

const fn no_value(name: &'static str, why: &'static str) -> Opt {
    Opt { name, most: 1, dropped: Some(why) }
}

const fn no_switch(name: &'static str, why: &'static str) -> Opt {
    Opt { name, most: 0, dropped: Some(why) }
}

const OTHER_SCHEDULES: &str = "it has no effect on the cosine schedule, which is the only one here";
const DISTILLATION: &str = "there is no distillation: the original's fails with Vim models, too";
const PROCESSES: &str = "one process drives the GPU: there is nothing to set up";
const CLOCKED: &str =
    "there is no tracking service: metrics.jsonl and TensorBoard events are in the run's folder";
const STABILITY: &str = "these penalties of a branch of the fork are not implemented";

/// All options, in the order of `main.py --help`.
pub(crate) const OPTIONS: &[Opt] = &[
    value("batch-size"),
    value("epochs"),
    switch("bce-loss"),
    switch("unscale-lr"),
    value("model"),
    value("input-size"),
    value("drop"),
    value("drop-path"),
    switch("model-ema"),
    switch("no-model-ema"),
    value("model-ema-decay"),
    no_switch("model-ema-force-cpu", "the moving average is kept on the device"),
    value("opt"),
    value("opt-eps"),
    values("opt-betas"),
    value("clip-grad"),
    no_value("momentum", "AdamW has no momentum: see optim.betas"),
    value("weight-decay"),
    value("sched"),
    value("lr"),
    no_value("lr-noise", "the learning rate has no noise"),
    no_value("lr-noise-pct", "the learning rate has no noise"),
    no_value("lr-noise-std", "the learning rate has no noise"),
    value("warmup-lr"),
    value("min-lr"),
    no_value("decay-epochs", OTHER_SCHEDULES),
    value("warmup-epochs"),
    no_value("cooldown-epochs", "the original computes a cool-down and never runs it"),
    no_value("patience-epochs", OTHER_SCHEDULES),
    no_value("decay-rate", OTHER_SCHEDULES),
    no_value("dr", OTHER_SCHEDULES),
    value("color-jitter"),
    value("aa"),
    value("smoothing"),
    value("train-interpolation"),
    switch("repeated-aug"),
    switch("no-repeated-aug"),
    switch("train-mode"),
    no_switch("no-train-mode", "training is always in training mode"),
    switch("ThreeAugment"),
    switch("src"),
    value("reprob"),
    value("remode"),
    value("recount"),
    no_switch("resplit", "the original never reads it"),
    value("mixup"),
    value("cutmix"),
    values("cutmix-minmax"),
    value("mixup-prob"),
    value("mixup-switch-prob"),
    value("mixup-mode"),
    no_value("teacher-model", DISTILLATION),
    no_value("teacher-path", DISTILLATION),
    no_value("distillation-type", DISTILLATION),
    no_value("distillation-alpha", DISTILLATION),
    no_value("distillation-tau", DISTILLATION),
    no_switch("cosub", "co-supervision of two copies is not implemented"),
    value("finetune"),
    no_switch("attn-only", "no part of the model can be frozen: all of it trains"),
    value("data-path"),
    value("data-set"),
    no_value(
        "inat-category",
        "there is no iNaturalist reader: sort the images into folders of classes",
    ),
    value("output-dir"),
    value("device"),
    value("seed"),
    no_value("resume", "nothing to configure: --resume auto goes on with a run where there is one"),
    no_value("start-epoch", "a run goes on where it stopped, by --resume auto"),
    no_switch("eval", "evaluation is a command of its own: vim-train eval"),
    value("eval-crop-ratio"),
    no_switch("dist-eval", "evaluation is on one device and sees every image once, either way"),
    value("num-workers"),
    switch("pin-mem"),
    no_switch(
        "no-pin-mem",
        "loader threads share memory with the trainer: there is nothing to pin",
    ),
    no_switch("distributed", PROCESSES),
    no_value("world-size", PROCESSES),
    no_value("dist-url", PROCESSES),
    switch("if-amp"),
    switch("amp"),
    switch("no-amp"),
    switch("if-continue-inf"),
    switch("no-continue-inf"),
    no_switch("if-nan2num", "a loss that is not a number is not replaced: see train.non_finite"),
    switch("no-nan2num"),
    no_switch(
        "if-random-cls-token-position",
        "it has no effect on models with the class token in the middle: see model.class_token = \
         \"random\"",
    ),
    switch("no-random-cls-token-position"),
    no_switch("if-random-token-rank", "tokens are not shuffled"),
    switch("no-random-token-rank"),
    no_value("local-rank", PROCESSES),
    no_switch("use-wandb", CLOCKED),
    no_value("wandb-project", CLOCKED),
    no_value("wandb-entity", CLOCKED),
    no_value("wandb-run-name", CLOCKED),
    Opt { name: "wandb-tags", most: MANY, dropped: Some(CLOCKED) },
    no_switch("use-spectral-normalization", STABILITY),
    no_switch("use-eigenvalue-clamping", STABILITY),
    no_switch("use-stability-penalty", STABILITY),
    no_value("stability-epsilon", STABILITY),
    no_value("stability-penalty-weight", STABILITY),
];

/// An option of the command line with `-` instead of `_` and without the leading dashes.
fn normalized(option: &str) -> String {
    option.trim_start_matches('-').replace('_', "-")
}

/// The option with the name `written`, or the only one that starts with it, as in Python's
/// argparse.
pub(crate) fn find(written: &str) -> Option<&'static Opt> {
    let name = normalized(written);
    let exact = OPTIONS.iter().find(|option| option.name == name);
    exact.or_else(|| {
        let mut beginning = OPTIONS.iter().filter(|option| option.name.starts_with(&name));
        beginning.next().filter(|_| !name.is_empty() && beginning.next().is_none())
    })
}

/// The option that `written` is probably a misspelling of.
pub(crate) fn nearest(written: &str) -> Option<&'static str> {
    vim_config::nearest(&normalized(written), OPTIONS.iter().map(|option| option.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_python_takes_them() {
        for (written, name) in [
            ("--batch-size", Some("batch-size")),
            ("--num_workers", Some("num-workers")),
            ("--output_dir", Some("output-dir")),
            ("--no_amp", Some("no-amp")),
            ("--lr", Some("lr")),
            ("--weight", Some("weight-decay")),
            ("--mix", None),
            ("--nothing", None),
            ("--", None),
        ] {
            assert_eq!(find(written).map(|option| option.name), name, "{written}");
        }
        assert_eq!(nearest("--wieght-decay"), Some("weight-decay"));
        assert_eq!(nearest("--frobnicate"), None);
    }

    #[test]
    fn every_name_is_there_once() {
        for option in OPTIONS {
            assert_eq!(OPTIONS.iter().filter(|other| other.name == option.name).count(), 1);
        }
    }
}
