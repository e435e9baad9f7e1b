//! Scripts in the original's form, written for these tests.

use std::collections::BTreeMap;

use super::*;

pub(crate) fn model(name: &str) -> Result<Model, String> {
    match name {
        "vim_tiny_patch16_224_bimambav2_rk4" => {
            Ok(Model { preset: "tiny".into(), discretization: "rk4".into() })
        }
        "vim_tiny_patch16_224_zoh" => {
            Ok(Model { preset: "tiny".into(), discretization: "zoh".into() })
        }
        "vim_tiny_patch16_224_bimambav2_foh" => {
            Ok(Model { preset: "tiny".into(), discretization: "foh".into() })
        }
        _ => Err(format!("unknown model `{name}`")),
    }
}

pub(crate) fn read(
    text: &str,
    arguments: &[&str],
    line: Option<usize>,
) -> Result<Migration, MigrateError> {
    let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    let called = |_: &str| None;
    let (name, called) = ("old.sh", &called);
    migrate(Script { name, text, arguments: &arguments, line, called, model: &model })
}

/// The keys with their values, as TOML has them.
pub(crate) fn keys(migrated: &Migration) -> BTreeMap<String, String> {
    let table: toml::Table = migrated.toml.parse().unwrap_or_else(|e| panic!("{e}\n{migrated:?}"));
    let mut keys = BTreeMap::new();
    for (section, value) in &table {
        for (key, value) in value.as_table().into_iter().flatten() {
            keys.insert(format!("{section}.{key}"), value.to_string());
        }
    }
    keys
}

pub(crate) fn dropped(migrated: &Migration) -> Vec<String> {
    migrated.not_carried.iter().map(|not| format!("{}: {}", not.line, not.what)).collect()
}

const CLUSTER: &str = r#"#!/bin/bash
# Trains one method with a seed.
SEED=$1
METHOD=rk4
OUT="${SCRATCH}/logs/tiny_${METHOD}_seed${SEED}"
export OMP_NUM_THREADS=4
MASTER_PORT=$((29500 + SLURM_JOB_ID % 500))
RESUME_ARG=""
if [ -f "$OUT/checkpoint.pth" ]; then
    RESUME_ARG="--resume $OUT/checkpoint.pth"
fi
cd $HOME/vim
CUDA_VISIBLE_DEVICES=0,1 torchrun --standalone --nproc_per_node=2 --master_port=$MASTER_PORT \
    main.py \
    --model vim_tiny_patch16_224_bimambav2_${METHOD} \
    --batch-size 128 --lr 0.001 --weight-decay 0.05 \
    --drop-path 0.0 \
    --num_workers 2 \
    --data-set CIFAR --data-path "$SCRATCH/dataset/cifar100" \
    --input-size 32 \
    --seed $SEED \
    --output_dir $OUT ${RESUME_ARG} \
    --colour-jitter 0.4 --pin-mem
"#;

#[test]
fn a_cluster_script() {
    let migrated = read(CLUSTER, &[], None).unwrap();
    let keys = keys(&migrated);
    for (key, value) in [
        ("run.name", "\"tiny_rk4_seed{run.seed}\""),
        ("run.root", "\"${SCRATCH}/logs\""),
        ("run.seed", "0"),
        ("model.preset", "\"tiny\""),
        ("model.discretization", "\"rk4\""),
        ("model.image_size", "32"),
        ("model.drop_path", "0.0"),
        ("ssm.dt_b_init", "\"upstream_zero\""),
        ("ssm.series", "\"taylor\""),
        ("data.dataset", "\"cifar100\""),
        ("data.path", "\"${SCRATCH}/dataset/cifar100\""),
        ("data.workers", "4"),
        ("augment.preset", "\"deit\""),
        ("augment.order", "\"reference\""),
        ("train.epochs", "300"),
        ("train.batch_size", "256"),
        ("train.shards", "2"),
        ("train.precision", "\"f32\""),
        ("train.label_smoothing", "0.1"),
        ("train.ema", "0.99996"),
        ("optim.lr", "0.0005"),
        ("optim.weight_decay", "0.05"),
        ("optim.warmup", "\"5ep\""),
        ("optim.min_lr", "0.00001"),
        ("optim.warmup_lr", "0.000001"),
    ] {
        assert_eq!(keys.get(key).map(String::as_str), Some(value), "{key}\n{}", migrated.toml);
    }
    assert!(!keys.contains_key("augment.repeats"), "torchrun repeats images");
    assert_eq!(
        dropped(&migrated),
        [
            "6: export OMP_NUM_THREADS=4",
            "12: cd ${HOME}/vim",
            "13: CUDA_VISIBLE_DEVICES=0,1",
            "13: --standalone",
            "13: --master_port $((29500 + SLURM_JOB_ID % 500))",
            "21: --seed $1",
            "22: --resume ${SCRATCH}/logs/tiny_rk4_seed$1/checkpoint.pth",
            "23: --colour-jitter 0.4",
        ]
    );
    let why = &migrated.not_carried.last().unwrap().why;
    assert_eq!(why, "main.py has no such option; is it --color-jitter?");
    for line in [
        "#   line 23: --colour-jitter 0.4: main.py has no such option; is it --color-jitter?",
        "lr = 5e-4  # --lr 0.001, times 256 / 512",
        "batch_size = 256  # --batch-size 128 for each of 2 GPUs",
    ] {
        assert!(migrated.toml.lines().any(|other| other == line), "{line}\n{}", migrated.toml);
    }
    assert!(migrated.notes.iter().any(|note| note.starts_with("line 10: RESUME_ARG is set under")));
}

#[test]
fn arguments_fill_in_what_the_script_takes() {
    let migrated = read(CLUSTER, &["3"], None).unwrap();
    let keys = keys(&migrated);
    assert_eq!(keys["run.seed"], "3");
    assert_eq!(keys["run.name"], "\"tiny_rk4_seed3\"");
    assert!(dropped(&migrated).iter().all(|what| !what.contains("--seed")));
}

pub(crate) const PLAIN: &str =
    "python main.py --model vim_tiny_patch16_224_bimambav2_rk4 --data-path /x ";

#[test]
fn every_option_has_its_key() {
    for (options, expected) in [
        ("--batch-size 512", &[("train.batch_size", "512"), ("optim.lr", "0.0005")][..]),
        ("--batch-size=1024 --lr=5e-4", &[("optim.lr", "0.001")]),
        ("--lr 1e-3 --unscale-lr", &[("optim.lr", "0.001"), ("train.batch_size", "64")]),
        (
            "--bce-loss --smoothing 0",
            &[
                ("train.loss", "\"bce\""),
                ("train.bce_threshold", "0.0"),
                ("train.label_smoothing", "0.0"),
            ],
        ),
        ("--drop 0.1", &[("model.dropout", "0.1")]),
        ("--model-ema-decay 0.9999", &[("train.ema", "0.9999")]),
        ("--opt-betas 0.9 0.95", &[("optim.betas", "[0.9, 0.95]")]),
        ("--opt-eps 1e-6 --clip-grad 1", &[("optim.eps", "0.000001"), ("train.clip_grad", "1.0")]),
        ("--warmup-epochs 20", &[("optim.warmup", "\"20ep\"")]),
        (
            "--ThreeAugment --src",
            &[("augment.preset", "\"three\""), ("augment.crop", "\"simple\"")],
        ),
        ("--aa rand-m7", &[("augment.auto_augment", "\"rand-m7\"")]),
        ("--aa ''", &[("augment.auto_augment", "\"\"")]),
        ("--reprob 0.1 --remode const", &[("augment.erase_mode", "\"const\"")]),
        ("--recount 2", &[("augment.erase_count", "2")]),
        ("--mixup 0 --cutmix 0.5", &[("augment.mixup", "0.0"), ("augment.cutmix", "0.5")]),
        ("--cutmix-minmax 0.2 0.8", &[("augment.cutmix_minmax", "[0.2, 0.8]")]),
        ("--smoothing 0", &[("train.label_smoothing", "0.0")]),
        ("--finetune ./w.pth", &[("train.init", "\"./w.pth\"")]),
        (
            "--no_amp --num_workers 0",
            &[("train.precision", "\"f32\""), ("data.workers", "\"auto\"")],
        ),
        ("--if_continue_inf", &[("train.non_finite", "\"skip\"")]),
        ("--device cpu --data-set IMNET", &[("devices.backend", "\"cpu\"")]),
        ("--epochs 30 --seed 4", &[("train.epochs", "30"), ("run.seed", "4")]),
        ("--epochs 30 --epochs 40", &[("train.epochs", "40")]),
        ("--lr 5e-6 --min-lr 1e-7 --warmup-lr 1e-7", &[("optim.min_lr", "0.0000001")]),
    ] {
        let migrated = read(&format!("{PLAIN}{options}"), &[], None).unwrap();
        let keys = keys(&migrated);
        for (key, value) in expected {
            assert_eq!(keys.get(*key).map(String::as_str), Some(*value), "{options}: {key}");
        }
        assert_eq!(keys["augment.repeats"], "1", "no torchrun: {options}");
        assert_eq!(keys["augment.order"], "\"keyed\"", "no torchrun: {options}");
        assert_eq!(keys["train.shards"], "1", "one process: {options}");
        assert_eq!(dropped(&migrated), [""; 0], "{options}");
    }
    let without = read(&format!("{PLAIN}--no-model-ema"), &[], None).unwrap();
    assert!(!keys(&without).contains_key("train.ema"));
}

/// Every target above 0 becomes 1, and smoothing leaves none at 0.
#[test]
fn binary_cross_entropy_is_migrated_without_smoothing() {
    for (options, what) in [
        ("--bce-loss", "1: --smoothing 0.1, main.py's default"),
        ("--bce-loss --smoothing 0.2", "1: --smoothing 0.2"),
    ] {
        let migrated = read(&format!("{PLAIN}{options}"), &[], None).unwrap();
        assert_eq!(dropped(&migrated), [what]);
        let why = &migrated.not_carried[0].why;
        assert!(why.starts_with("--bce-loss makes every class above 0 a target of 1"), "{why}");
        let keys = keys(&migrated);
        let [loss, threshold, smoothing] =
            ["loss", "bce_threshold", "label_smoothing"].map(|key| &keys[&format!("train.{key}")]);
        assert_eq!([loss, threshold, smoothing], ["\"bce\"", "0.0", "0.0"]);
    }
}

/// The start, the series, the order and the shards of the original are keys with their reason.
#[test]
fn what_the_originals_code_does_whatever_its_options_say() {
    let distributed =
        format!("python -m torch.distributed.launch --nproc_per_node=8 {}", &PLAIN[7..]);
    let migrated = read(&distributed, &[], None).unwrap();
    for line in [
        "dt_b_init = \"upstream_zero\"  # the original zeroes the reverse branch's dt bias",
        "series = \"taylor\"  # the original's truncations of foh, poly and highorder; others have none",
        "order = \"reference\"  # the original's samplers, by the epoch alone: one order for all seeds",
        "shards = 8  # the script's GPUs: each mixes its part of the batch by a draw of its own",
    ] {
        assert!(migrated.toml.lines().any(|other| other == line), "{line}\n{}", migrated.toml);
    }
    let on_eight = "one GPU computes its 8 shards one after the other";
    assert!(migrated.notes.iter().any(|note| note.contains(on_eight)), "{:?}", migrated.notes);
    let of_kernels = |text: &str| {
        let notes = read(text, &[], None).unwrap().notes;
        notes.iter().filter(|note| note.starts_with("the original's kernels train every")).count()
    };
    assert_eq!(of_kernels(PLAIN), 1, "rk4");
    assert_eq!(of_kernels(&PLAIN.replace("_bimambav2_rk4", "_zoh")), 0);
}

#[test]
fn more_workers_than_an_allocation_has_cores_are_noted() {
    let torchrun = PLAIN.replace("python", "torchrun --nproc_per_node=4");
    for (script, count) in [
        (format!("{PLAIN}--num_workers 200"), Some(200)),
        (format!("{torchrun}--num_workers 9"), Some(36)),
        (format!("{torchrun}--num_workers 8"), None),
        (format!("{PLAIN}--num_workers 0"), None),
    ] {
        let migrated = read(&script, &[], None).unwrap();
        let found: Vec<&String> =
            migrated.notes.iter().filter(|note| note.starts_with("data.workers = ")).collect();
        let expected = count.map(|count| {
            format!(
                "data.workers = {count} is far more than the cores that a job has for a GPU (some \
                 8 to 24): data.workers = \"auto\" takes those of the allocation, at most 16"
            )
        });
        assert_eq!(found, expected.iter().collect::<Vec<_>>(), "{script}");
        // Carried over as it was, with the note at the top of the file.
        if let (Some(count), Some(note)) = (count, expected) {
            assert_eq!(keys(&migrated)["data.workers"], count.to_string());
            assert!(migrated.toml.contains(&format!("#   {note}\n")), "{}", migrated.toml);
        }
    }
}

#[test]
fn what_has_no_key_is_listed_with_its_reason() {
    for (options, why) in [
        ("--if_amp", "there is no fp16"),
        ("--amp", "there is no fp16"),
        ("--opt sgd --opt-eps 1e-8", "AdamW is the only optimizer"),
        ("--sched step", "the cosine is the only schedule"),
        ("--cooldown-epochs 10", "the original computes a cool-down and never runs it"),
        ("--src", "it has no effect without --ThreeAugment"),
        ("--aa v0", "of timm's policies there is RandAugment alone"),
        ("--data-set INAT", "there is no such reader"),
        ("--eval", "evaluation is a command of its own"),
        ("--teacher-model regnet", "there is no distillation"),
        ("stray", "it belongs to no option"),
        ("--ThreeAugment --aa rand-m9", "--ThreeAugment takes its place"),
        ("--cutmix 0.5 --cutmix-minmax 0.2 0.8", "--cutmix-minmax takes its place"),
        ("--lr 1e-6", "it is above the scaled rate 1.25e-7"),
    ] {
        let migrated = read(&format!("{PLAIN}{options}"), &[], None).unwrap();
        assert!(
            migrated.not_carried.iter().any(|not| not.why.starts_with(why)),
            "{options}: {:?}",
            migrated.not_carried
        );
    }
}

#[test]
fn the_older_launcher_and_a_misspelt_program() {
    let text = "python -m torch.distributed.launch --nproc_per_node 8 --use_env ./vim/main.pyy \
                \\\n  --model vim_tiny_patch16_224_bimambav2_rk4 --batch-size 128 --data-path ~/x";
    let migrated = read(text, &[], None).unwrap();
    assert_eq!(keys(&migrated)["train.batch_size"], "1024");
    assert_eq!(keys(&migrated)["optim.lr"], "0.001");
    assert_eq!(keys(&migrated)["data.path"], "\"${HOME}/x\"");
    assert_eq!(dropped(&migrated), ["1: --use_env"]);
    let note =
        "line 1: `./vim/main.pyy` is taken for main.py; as written the script starts nothing";
    assert!(migrated.notes.iter().any(|other| other == note), "{:?}", migrated.notes);
}

/// The line and the text of the error about `text`.
pub(crate) fn failure(text: &str) -> (Option<usize>, String) {
    let error = read(text, &[], None).expect_err(text);
    (error.line, error.to_string())
}

#[test]
fn a_missing_backslash_loses_options() {
    let text = format!("echo start\n{PLAIN}\\\n  ${{RESUME_ARG}}\n  --lr 2e-3 --options a=b\n");
    assert_eq!(
        failure(&text),
        (
            Some(3),
            "this line ends without a backslash, and the options `--lr 2e-3 --options a=b` (line \
             4) are lost: the shell takes them for a command of their own, after training. Mend \
             the line if they are wanted, or remove them for what really ran; then run this \
             again"
                .into()
        )
    );
    let (line, text) = failure(&format!("{PLAIN}\\ \n  --lr 2e-3\n"));
    assert_eq!(line, Some(1));
    assert!(text.starts_with("a space follows the backslash at the end of this line, and"));
    let other = "torchrun tools/train.py config.py\n\n# more\n  --options x=1\n";
    assert!(failure(other).1.contains("`--options x=1` (line 4) are lost"), "seg's scripts too");
}

#[test]
fn broken_scripts_are_placed() {
    let conflict = format!("A=1\n<<<<<<< HEAD\nB=1\n=======\nB=2\n>>>>>>> x\n{PLAIN}");
    let (line, text) = failure(&conflict);
    assert_eq!(line, Some(2));
    assert!(text.starts_with("`<<<<<<<` marks a merge that was never finished"), "{text}");
    for (text, line, expected) in [
        ("echo hello\n", None, "no command starts main.py"),
        ("torchrun tools/train.py x\n", Some(1), "`tools/train.py` trains segmentation"),
        ("x='\n", Some(1), "a quote is opened here and never closed"),
        ("python main.py --data-path x\n", Some(1), "--model: main.py's own default is no Vim"),
        ("python main.py --model vit\n", Some(1), "--model: unknown model `vit`"),
        ("\npython main.py --model $2\n", Some(2), "--model is $2, which the script does not set"),
        ("python main.py --model\n", Some(1), "--model has no value"),
        (
            "torchrun --nproc_per_node=gpu main.py --model x",
            Some(1),
            "--nproc_per_node is `gpu`, expected a whole number",
        ),
    ] {
        let (found, message) = failure(text);
        assert_eq!(found, line, "{text}: {message}");
        assert!(message.starts_with(expected), "{text}: {message}");
    }
    for (option, expected) in [
        ("--lr fast", "--lr is `fast`, expected a number"),
        ("--epochs 0", "--epochs is `0`, expected a whole number, 1 or more"),
        ("--batch-size $BATCH", "--batch-size is ${BATCH}, which the script does not set"),
        ("--opt-betas 0.9", "--opt-betas is `0.9`, expected two numbers"),
    ] {
        let (_, message) = failure(&format!("{PLAIN}{option}"));
        assert!(message.starts_with(expected), "{option}: {message}");
    }
}

/// The shape of the original's own scripts: placeholders where a path belongs.
const FINETUNE: &str = "#!/bin/bash
conda activate <your_env>
cd <path_to_Vim>/vim;

CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 main.py \\
    --model vim_tiny_patch16_224_bimambav2_rk4 --batch-size 64 --lr 5e-6 --min-lr 1e-6 \\
    --data-path <path_to_IN1K_dataset> \\
    --output_dir ./output/rk4 \\
    --epochs 30 \\
    --finetune <path_to_pt_ckpt> \\
    --no_amp
";

#[test]
fn a_placeholder_is_a_key_to_fill_in() {
    let migrated = read(FINETUNE, &[], None).unwrap();
    let keys = keys(&migrated);
    assert_eq!([&keys["run.name"], &keys["run.root"]], ["\"rk4\"", "\"./output\""]);
    assert_eq!(keys["train.epochs"], "30");
    for key in ["data.path", "train.init"] {
        assert!(!keys.contains_key(key), "{key}\n{}", migrated.toml);
    }
    for line in [
        "# path = \"…\"  # TODO: --data-path <path_to_IN1K_dataset>",
        "# init = \"…\"  # TODO: --finetune <path_to_pt_ckpt>",
    ] {
        assert!(migrated.toml.lines().any(|other| other == line), "{line}\n{}", migrated.toml);
    }
    let note = "data.path is to be filled in: the script has --data-path <path_to_IN1K_dataset>";
    assert!(migrated.notes.iter().any(|other| other == note), "{:?}", migrated.notes);
    assert_eq!(dropped(&migrated), ["3: cd <path_to_Vim>/vim", "5: CUDA_VISIBLE_DEVICES=0,1"]);
    let named = read(&format!("{PLAIN}--output_dir <out>"), &[], None).unwrap();
    assert!(named.toml.contains("# name = \"…\"  # TODO: --output_dir <out>"), "{}", named.toml);
}

#[test]
fn comments_stay_comments() {
    let migrated = read(&format!("{PLAIN}--wandb-run-name 'a\nb = 1'"), &[], None).unwrap();
    assert_eq!(dropped(&migrated).len(), 1);
    assert!(!keys(&migrated).contains_key("b"), "{}", migrated.toml);
}
