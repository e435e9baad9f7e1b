//! Wrong configurations, and all that is said of them, word for word.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use vim_engine::task::Task;
use vim_engine::task::classification::Classification;

use crate::layers::vim_train;
use crate::support::{folder, path_from, repository, stderr, stdout};

/// Files, arguments behind `vim-train`, and all that stderr says. Those in `bin` are programs that
/// are found first. `{data.*}` stands for the keys of a section, `{*}` for those above all, and
/// `{scores}` for the scores of all tasks.
type Row = (&'static [(&'static str, &'static str)], &'static [&'static str], &'static str);

const SHOW: &[&str] = &["config", "show", "x.toml"];
const PLAN: &[&str] = &["sweep", "plan", "x.toml"];
const SUBMIT: &[&str] = &["slurm", "submit", "x.toml"];

/// SLURM's commands on a cluster with two partitions.
const SBATCH: (&str, &str) = ("bin/sbatch", "#!/bin/sh\necho slurm 22.05.8\n");
const SCONTROL: (&str, &str) = ("bin/scontrol", "#!/bin/sh\necho 'MaxArraySize = 1001'\n");
const SINFO: (&str, &str) = (
    "bin/sinfo",
    "#!/bin/sh\necho 'gpu*|up|1-00:00:00|16|64000|gpu:h100:4'\necho 'cpu|up|infinite|40|192000|(null)'\n",
);

const WRONG: &[Row] = &[
    (
        &[("x.toml", "[model]\ndiscretization = \"tustin4\"\n")],
        SHOW,
        "error: x.toml:2:18: model.discretization: unknown value `tustin4`, did you mean `tustin`? (known: zoh, foh, bilinear, poly, highorder, rk4, zoh_exact, exp_trapezoidal, foh_linear, tustin)
  |
2 | discretization = \"tustin4\"
  |                  ^^^^^^^^^
",
    ),
    (
        &[("x.toml", "trian = 1\n")],
        SHOW,
        "error: x.toml:1:1: trian: unknown key, did you mean `train`? (known: {*})
  |
1 | trian = 1
  | ^^^^^
",
    ),
    (
        &[("x.toml", "[log]\nevry = \"1ep\"\n")],
        SHOW,
        "error: x.toml:2:1: log.evry: unknown key, did you mean `every`? (known: {log.*})
  |
2 | evry = \"1ep\"
  | ^^^^
",
    ),
    (
        &[("x.toml", "[data.shapes]\nsede = 1\n")],
        SHOW,
        "error: x.toml:2:1: data.shapes.sede: unknown key, did you mean `seed`? (known: {data.shapes.*})
  |
2 | sede = 1
  | ^^^^
",
    ),
    (
        &[
            ("x.toml", "extends = \"a/one.toml\"\n"),
            ("a/one.toml", "extends = [\"two.toml\"]\n"),
            ("a/two.toml", "[run]\nseed = 1\n"),
            ("y.toml", ""),
        ],
        &["config", "show", "x.toml", "--set", "extends=y.toml"],
        "error: from --set extends=y.toml: extends: only a file can extend others\n",
    ),
    (
        &[
            ("x.toml", "extends = \"a/one.toml\"\n"),
            ("a/one.toml", "extends = [\"two.toml\"]\n"),
            ("a/two.toml", "extends = \"one.toml\"\n"),
        ],
        SHOW,
        "error: a/two.toml:1:11: extends: a cycle: a/one.toml → a/two.toml → a/one.toml
  |
1 | extends = \"one.toml\"
  |           ^^^^^^^^^^
",
    ),
    (
        &[("x.toml", "extends = [\n  \"bsae.toml\",\n]\n")],
        SHOW,
        "error: x.toml:2:3: extends: bsae.toml cannot be read: No such file or directory (os error 2)
  |
2 |   \"bsae.toml\",
  |   ^^^^^^^^^^^
",
    ),
    (
        &[("x.toml", "extends = 3\n")],
        SHOW,
        "error: x.toml:1:11: extends: expected the name of a file, or a list of names, relative to this file
  |
1 | extends = 3
  |           ^
",
    ),
    (
        &[("x.toml", "[data]\npath = \"${NOWHERE}/cifar\"\n")],
        SHOW,
        "error: x.toml:2:8: data.path: the environment variable `NOWHERE` is not set: export it, or write a default, as in ${NOWHERE:-/some/folder}; a `$` itself is written `$$`
  |
2 | path = \"${NOWHERE}/cifar\"
  |        ^^^^^^^^^^^^^^^^^^
",
    ),
    (
        &[("x.toml", "")],
        &["config", "show", "x.toml", "--set", "run.root=${NOWHERE"],
        "error: from --set run.root=${NOWHERE: run.root: `${NOWHERE` is no variable: write ${NAME} or ${NAME:-default}\n",
    ),
    (
        &[("x.toml", "[train]\nbatch_size = 128\naccumulate = 3\n")],
        SHOW,
        "error: x.toml:3:14: train.accumulate: 3 is out of range: expected 1 or more, and a divisor of train.batch_size = 128
  |
3 | accumulate = 3
  |              ^
",
    ),
    (
        &[("x.toml", "version = 4\n[new_section]\nkey = 1\n")],
        SHOW,
        "error: x.toml:1:11: version: 4 is unknown, this vim-train reads versions 1 to 3: use the vim-train that the file was written for, or correct the number
  |
1 | version = 4
  |           ^
",
    ),
    (
        &[("x.toml", "version = \"1\"\n")],
        SHOW,
        "error: x.toml:1:11: version: invalid type: string \"1\", expected an integer, 0 or more
  |
1 | version = \"1\"
  |           ^^^
",
    ),
    (
        &[
            ("x.toml", "extends = \"base.toml\"\n[optim]\nlr = 0.1\n"),
            ("base.toml", "[train]\n\nepochs = 0\n"),
        ],
        SHOW,
        "error: base.toml:3:10: train.epochs: 0 is out of range: expected 1 or more
  |
3 | epochs = 0
  |          ^
",
    ),
    (
        &[
            ("x.toml", "extends = \"base.toml\"\n[train]\nepochs = 3\n"),
            ("base.toml", "[train]\nepochs = \"many\"\n"),
        ],
        SHOW,
        "error: base.toml:2:10: train.epochs: invalid type: string \"many\", expected an integer, 0 or more
  |
2 | epochs = \"many\"
  |          ^^^^^^
",
    ),
    (
        &[("x.toml", "extends = \"base.toml\"\n"), ("base.toml", "[train\n")],
        SHOW,
        "error: base.toml:1:7: not valid TOML: unclosed table, expected `]`
  |
1 | [train
  |       ^
",
    ),
    // A grid over what is missing, and the section's other mistakes.
    (
        &[("x.toml", "[sweep]\ngrid = { \"log.evry\" = [\"1st\", \"2st\"] }\n")],
        PLAN,
        "error: x.toml:2:23: sweep.grid.log.evry: unknown key, did you mean `every`? (known: {log.*})
  |
2 | grid = { \"log.evry\" = [\"1st\", \"2st\"] }
  |                       ^^^^^^^^^^^^^^
",
    ),
    (
        &[("x.toml", "[sweep.grid]\nlgo.every = [\"1st\", \"2st\"]\n")],
        PLAN,
        "error: x.toml:2:13: sweep.grid.lgo.every: unknown key, did you mean `log`? (known: {*})
  |
2 | lgo.every = [\"1st\", \"2st\"]
  |             ^^^^^^^^^^^^^^
",
    ),
    (
        &[
            ("x.toml", "extends = \"base.toml\"\n[sweep]\nseeds = [0, 1]\n"),
            ("base.toml", "[sweep.grid]\n\"data.wrokers\" = [1, 2]\n"),
        ],
        PLAN,
        "error: base.toml:2:18: sweep.grid.data.wrokers: unknown key, did you mean `workers`? (known: {data.*})
  |
2 | \"data.wrokers\" = [1, 2]
  |                  ^^^^^^
",
    ),
    (
        &[(
            "x.toml",
            "[model]\nimage_size = 32\npatch_size = 8\n[sweep]\ngrid = { \"model.discretization\" = [\"zoh\", \"rk5\"] }\n",
        )],
        PLAN,
        "x.toml:5:35: sweep.grid: model.discretization=\"rk5\": unknown value `rk5`, did you mean `rk4`? (known: zoh, foh, bilinear, poly, highorder, rk4, zoh_exact, exp_trapezoidal, foh_linear, tustin) (the run { model.discretization = \"rk5\" })
error: 1 of 2 runs of x.toml cannot be trained (listed above): nothing was planned
",
    ),
    (
        &[("x.toml", "[sweep]\nseeds = [3, 3]\n")],
        PLAN,
        "error: x.toml:2:9: sweep.grid: run.seed has the value 3 twice
  |
2 | seeds = [3, 3]
  |         ^^^^^^
",
    ),
    (
        &[("x.toml", "[sweep]\ngrid = { \"optim.lr\" = [1e-3, 1e-4] }\n")],
        PLAN,
        "error: x.toml:2:23: optim.lr is in sweep.grid and in sweep.must_match (optim.lr): take it out of the grid, or, if it is what is studied, out of must_match
  |
2 | grid = { \"optim.lr\" = [1e-3, 1e-4] }
  |                       ^^^^^^^^^^^^
",
    ),
    (
        &[("x.toml", "[model]\nimage_size = 32\npatch_size = 8\n[sweep]\nseeds = [0, 1]\nmust_match = [\"train.batchsize\"]\n")],
        PLAN,
        "error: x.toml:6:14: sweep.must_match: unknown key `train.batchsize`, did you mean `train.batch_size`?
  |
6 | must_match = [\"train.batchsize\"]
  |              ^^^^^^^^^^^^^^^^^^^
",
    ),
    (
        &[("x.toml", "[sweep]\nseeds = [0, 1]\n[sweep.report]\nmetric = \"val/topp1\"\n")],
        PLAN,
        "error: x.toml:4:10: sweep.report.metric: no run has the metric `val/topp1`, did you mean `val/top1`? (there are: {scores})
  |
4 | metric = \"val/topp1\"
  |          ^^^^^^^^^^^
",
    ),
    (
        &[("x.toml", "[model]\nimage_size = 32\npatch_size = 8\n[sweep]\nseeds = [0, 1]\n")],
        &["sweep", "plan", "x.toml", "--set", "sweep.report.metric=val/ema/top1"],
        "error: from --set sweep.report.metric=val/ema/top1: sweep.report.metric: val/ema/top1 does not go with train.ema, which no run sets: set it, or report what the weights themselves reach\n",
    ),
    // A batch that the images do not fill.
    (
        &[("x.toml", "[model]\nimage_size = 32\npatch_size = 8\n[data.shapes]\ntrain = 100\n[train]\nbatch_size = 128\n")],
        SUBMIT,
        "error: x.toml:7:14: train.batch_size: failed to cut 100 training images into batches of 128 without a partial one: an epoch would hold none; lower the batch size
  |
7 | batch_size = 128
  |              ^^^
",
    ),
    (
        &[(
            "x.toml",
            "[model]\nimage_size = 32\npatch_size = 8\n[data.shapes]\ntrain = 100\n[train]\nbatch_size = 128\n[sweep]\nseeds = [0, 1]\n",
        )],
        PLAN,
        "x.toml:7:14: train.batch_size: failed to cut 100 training images into batches of 128 without a partial one: an epoch would hold none; lower the batch size
error: 2 of 2 runs of x.toml cannot be trained (listed above): nothing was planned
",
    ),
    // A site without the partition.
    (
        &[
            ("x.toml", "[model]\nimage_size = 32\npatch_size = 8\n[slurm]\nsite = \"site.toml\"\ntime = \"1:00:00\"\ncpus_per_task = 4\ngpus_per_node = 0\n"),
            ("site.toml", "partition = \"gpu-long\"\ncpus_per_gpu = 4\n"),
            SBATCH,
            SCONTROL,
            SINFO,
        ],
        SUBMIT,
        "error: site.toml: slurm.partition: unknown partition `gpu-long` (known: gpu, cpu)\n",
    ),
    (
        &[
            (
                "x.toml",
                "[model]\nimage_size = 32\npatch_size = 8\n[slurm]\nsite = \"site.toml\"\ntime = \"1:00:00\"\npartition = \"gup\"\ncpus_per_task = 4\ngpus_per_node = 0\n",
            ),
            ("site.toml", "cpus_per_gpu = 4\n[partitions.gpu]\nmax_gpus = 1\n"),
            SBATCH,
            SCONTROL,
            SINFO,
        ],
        SUBMIT,
        "warning: site `site` says nothing of the partition `gup`, did you mean `gpu`? (known: gpu): its limits are the cluster's to say
error: x.toml:7:13: slurm.partition: unknown partition `gup`, did you mean `gpu`? (known: gpu, cpu)
  |
7 | partition = \"gup\"
  |             ^^^^^
",
    ),
];

/// The keys behind `prefix` that docs/config-reference.md has, and the sections below it.
fn known(prefix: &str) -> String {
    let page = fs::read_to_string(repository("docs/config-reference.md")).unwrap();
    let (mut section, mut keys) = (String::new(), BTreeSet::new());
    for line in page.lines() {
        let path = if let Some(title) = line.strip_prefix("## `[") {
            section = title.replace("]`", ".");
            section.trim_end_matches('.').to_owned()
        } else if let Some(row) = line.strip_prefix("| `") {
            format!("{section}{}", row.split('`').next().unwrap())
        } else {
            continue;
        };
        keys.extend(path.strip_prefix(prefix).filter(|key| !key.contains('.')).map(str::to_owned));
    }
    Vec::from_iter(keys).join(", ")
}

/// The scores of the runs' task, in every place that they are recorded in, the loss behind them.
fn scores() -> String {
    let own = Classification::SCORES.iter().map(|kind| kind.name).filter(|name| *name != "loss");
    let names: Vec<&str> = own.chain(["loss"]).collect();
    let of = |place: &str| Vec::from_iter(names.iter().map(|name| format!("{place}/{name}")));
    let mut places: Vec<String> = ["val", "val/ema", "test"].map(of).concat();
    places.push("train/loss".to_owned());
    places.join(", ")
}

/// `expected` with the names in place of `{data.*}` and `{scores}`.
fn filled(expected: &str) -> String {
    let sections = ["", "log.", "data.", "data.shapes."];
    let filled = expected.replace("{scores}", &scores());
    sections
        .iter()
        .fold(filled, |text, prefix| text.replace(&format!("{{{prefix}*}}"), &known(prefix)))
}

#[test]
fn wrong_configurations_and_all_that_is_said_of_them() {
    let mut differences = String::new();
    for (files, args, expected) in WRONG {
        let folder = folder(files);
        let bin = folder.path().join("bin");
        for (name, _) in files.iter().filter(|(name, _)| name.starts_with("bin/")) {
            let program = fs::Permissions::from_mode(0o755);
            fs::set_permissions(folder.path().join(name), program).unwrap();
        }
        let mut command = vim_train(folder.path(), args);
        let output = command.env("PATH", path_from(&bin)).output().unwrap();
        // Nothing was planned or submitted, and no folder made.
        let made = folder.path().join("data").exists();
        let found = (output.status.code(), stdout(&output), made, stderr(&output));
        let expected = (Some(78), String::new(), false, filled(expected));
        if found != expected {
            differences +=
                &format!("{args:?} of {files:?}\nexpected {expected:#?}\nfound {found:#?}\n");
        }
    }
    assert!(differences.is_empty(), "{differences}");
}
