//! The commands that need no data: `config`, `methods`, `models`, `flops`, help.

use clap::CommandFactory;
use serde_json::Value;
use strum::VariantArray;
use vim_kernels::{Discretization, KERNEL_VARIABLE};
use vim_model::{Preset, REGISTERED};
use vim_train::config::Config;

use crate::support::{
    assert_code, assert_lines, assert_parts, assert_says, folder, parsed, run, stderr, stdout,
    vim_train,
};

#[test]
fn config_prints_a_configuration() {
    let files = folder(&[("x.toml", "[run]\nseed = 5\n")]);
    let path = files.path().join("x.toml");
    let output = run(&["config", path.to_str().unwrap(), "--set", "model.discretization=foh"]);
    assert_code(&output, 0);
    assert_eq!(stderr(&output), "");
    let config = Config::from_toml(&stdout(&output)).unwrap();
    assert_eq!((config.run.seed, config.model.depth), (5, 24));
    assert_eq!(config.model.discretization, Discretization::Foh);

    let json = run(&["config", path.to_str().unwrap(), "--json"]);
    assert_eq!(parsed(&json)["run"]["seed"], 5);
}

#[test]
fn a_configuration_that_is_missing_or_wrong_is_78() {
    for args in [&["config", "no-such.toml"][..], &["config", "--set", "run.seed=-1"]] {
        assert_code(&run(args), 78);
    }
}

/// `ssm.scan` from a file, the environment variable and `--set`, each where given.
fn scan(file: Option<&str>, variable: Option<&str>, set: Option<&str>) -> String {
    let text = file.map_or_else(String::new, |scan| format!("ssm.scan = \"{scan}\"\n"));
    let files = folder(&[("x.toml", &text)]);
    let path = files.path().join("x.toml");
    let mut command = vim_train(&["config", path.to_str().unwrap(), "--json"]);
    if let Some(value) = variable {
        command.env(KERNEL_VARIABLE, value);
    }
    if let Some(value) = set {
        command.args(["--set", &format!("ssm.scan={value}")]);
    }
    parsed(&command.output().unwrap())["ssm"]["scan"].as_str().unwrap().to_owned()
}

#[test]
fn the_environment_variable_stands_between_file_and_set() {
    for (file, variable, set, expected) in [
        (None, None, None, "auto"),
        (Some("kernel"), None, None, "kernel"),
        (None, Some("1"), None, "kernel"),
        (Some("kernel"), Some("0"), None, "reference"),
        (Some("reference"), Some("1"), None, "kernel"),
        (Some("kernel"), Some("0"), Some("auto"), "auto"),
        (None, Some("1"), Some("reference"), "reference"),
    ] {
        assert_eq!(scan(file, variable, set), expected, "{file:?} {variable:?} {set:?}");
    }
}

#[test]
fn the_schema_is_one() {
    let output = run(&["config", "--schema"]);
    assert_code(&output, 0);
    let schema = parsed(&output);
    assert!(schema["$schema"].as_str().unwrap().contains("draft-07"));
    assert!(schema["properties"]["checkpoint"].is_object());
}

#[test]
fn methods_lists_them_all() {
    let output = run(&["methods"]);
    assert_code(&output, 0);
    let json = run(&["methods", "--json"]);
    let rows = parsed(&json);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), Discretization::VARIANTS.len());
    for (row, method) in rows.iter().zip(Discretization::VARIANTS) {
        let name = method.to_string();
        assert_eq!(row["method"], name);
        assert_eq!(row["causal"], !method.form().two_way);
        let table = stdout(&output);
        let line = table.lines().find(|line| line.starts_with(&name)).unwrap();
        assert!(line.ends_with(method.form().formula), "{line}");
    }
}

#[test]
fn a_bad_command_line_is_2() {
    for args in [
        &[][..],
        &["trian"],
        &["train"],
        &["methods", "--jsno"],
        &["config", "--schema", "--json"],
        &["train", "x.toml", "--resume", "maybe"],
        &["train", "x.toml", "--resume", "auto", "--fresh"],
        &["eval", "x.toml", "--split", "train"],
        &["eval", "x.toml", "--batch", "0"],
        &["eval", "x.toml", "--batch", "-1"],
        &["eval", "x.toml", "--batch", "x"],
        &["verify", "--methods", "euler"],
        &["verify", "--shard", "3/2"],
        &["verify", "--implementations", "fast"],
        &["verify", "--tolerance", "0"],
        &["verify", "--dtype", "f64"],
        &["verify", "--device", "tpu"],
        &["profile"],
        &["profile", "scan", "--shape", "1x2"],
        &["profile", "scan", "--shape", "1x2x3", "--batch", "4"],
        &["profile", "scan", "--series", "padé"],
        &["profile", "scan", "--implementations", "fast"],
        &["profile", "ops", "--batch", "0"],
        &["config", "--set"],
    ] {
        assert_code(&run(args), 2);
    }
}

#[test]
fn help_teaches() {
    let output = run(&["--help"]);
    assert_code(&output, 0);
    let commands = ["train", "eval", "config", "runs", "methods"];
    let codes = ["  75  interrupted", "  78  bad configuration"];
    assert_parts(&stdout(&output), &[&commands[..], &codes].concat());
    for command in ["train", "eval", "config", "import", "export", "predict"] {
        assert_parts(&stdout(&run(&[command, "--help"])), &["Examples:", "--set"]);
    }
    assert_code(&run(&["--version"]), 0);
}

#[test]
fn every_command_has_examples_of_itself() {
    fn check(command: &clap::Command, path: &str) -> usize {
        let examples = command.get_after_help().or(command.get_after_long_help());
        let examples = examples.map(ToString::to_string).unwrap_or_default();
        let shown = examples.contains("Examples:") && examples.contains(path);
        assert!(shown, "{path}: {examples}");
        let below = command.get_subcommands().filter(|below| !below.is_hide_set());
        1 + below.map(|below| check(below, &format!("{path} {}", below.get_name()))).sum::<usize>()
    }
    let program = vim_train::cli::Cli::command();
    let shown = program.get_subcommands().filter(|command| !command.is_hide_set());
    let all = shown.map(|c| check(c, &format!("vim-train {}", c.get_name())));
    assert!(all.sum::<usize>() > 40);
}

#[test]
fn a_cpu_is_not_warmed_up() {
    let output = run(&["warmup", "../../configs/debug.toml", "--set", "devices.backend=cpu"]);
    let message =
        "error: a CPU has nothing to warm up: kernels are compiled for GPUs; set devices.backend\n";
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(1), message));
}

fn printed(args: &[&str]) -> String {
    let output = run(args);
    assert_code(&output, 0);
    stdout(&output)
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&printed(args)).unwrap()
}

#[test]
fn models_are_listed_with_their_registered_names() {
    let text = printed(&["models"]);
    let names = Preset::names().chain(REGISTERED.iter().map(|model| model.name));
    assert_parts(&text, &names.collect::<Vec<_>>());
    let rows = json(&["models", "--json"]);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), Preset::VARIANTS.len());
    assert_eq!(rows[0]["name"], "tiny");
    assert_eq!(rows[0]["parameters"], 7_148_008);
    assert_eq!((&rows[0]["image_size"], &rows[0]["tokens"]), (&224.into(), &197.into()));
    let names: usize = rows.iter().map(|row| row["registered"].as_array().unwrap().len()).sum();
    assert_eq!(names, REGISTERED.len());
}

#[test]
fn a_registered_name_is_a_preset() {
    let name = "vim_base_patch16_224_bimambav2_poly";
    let text = printed(&["config", "--set", &format!("model.preset={name}")]);
    let lines = ["preset = \"base_depth12\"", "discretization = \"poly\"", "depth = 12"];
    assert_lines(&text, &lines);
    let output = run(&["config", "--set", "model.preset=vim_base_patch16_224_bimambav2_polly"]);
    assert_says(&output, 78, &[&format!("did you mean `{name}`")]);
}

#[test]
fn flops_are_those_of_the_components() {
    let tiny = json(&["flops", "--preset", "tiny", "--json"]);
    let components = tiny["components"].as_array().unwrap();
    for key in ["parameters", "macs", "flops"] {
        let sum: u64 = components.iter().map(|c| c[key].as_u64().unwrap()).sum();
        assert_eq!(tiny[key].as_u64(), Some(sum), "{key}");
    }
    assert_eq!(tiny["parameters"], 7_148_008);
    let text = printed(&["flops"]);
    assert_parts(&text, &["224 px, 197 tokens, 1000 classes, zoh"]);
    for component in ["patch_embed", "in_proj", "scan", "total"] {
        assert!(text.lines().any(|line| line.starts_with(component)), "{component} in {text}");
    }
    // The method changes the scan and nothing else.
    for &method in Discretization::VARIANTS {
        let set = format!("model.discretization={method}");
        let other = json(&["flops", "--set", &set, "--json"]);
        for (a, b) in components.iter().zip(other["components"].as_array().unwrap()) {
            assert_eq!(a["name"], b["name"]);
            let same = a["name"] != "scan" || method == Discretization::Zoh;
            assert_eq!(a == b, same, "{method}: {}", a["name"]);
        }
    }
}

#[test]
fn flops_of_a_file_and_of_what_cannot_be_counted() {
    let files = folder(&[("x.toml", "[model]\nimage_size = [32, 64]\n")]);
    let path = files.path().join("x.toml");
    let path = path.to_str().unwrap();
    let text = printed(&["flops", "--config", path, "--classes", "100"]);
    assert_parts(&text, &["[32, 64] px, 9 tokens, 100 classes"]);
    assert_code(&run(&["flops", "--config", path, "--preset", "tiny"]), 2);
    let full = ["flops", "--set", "ssm.a=full", "--set", "model.discretization=bilinear"];
    assert_says(&run(&full), 78, &["only a diagonal A is counted"]);
}

#[test]
fn what_a_command_reads_is_not_its_output() {
    let script = "python main.py --model vim_tiny\n";
    let files = folder(&[("x.sh", script), ("a.csv", "a"), ("b.csv", "b"), ("x.toml", "")]);
    std::fs::write(files.path().join("y.toml"), "extends = \"x.toml\"").unwrap();
    std::os::unix::fs::symlink("x.toml", files.path().join("link.json")).unwrap();
    for args in [
        &["config", "migrate", "x.sh", "-o", "x.sh", "--force"][..],
        &["config", "migrate", "x.sh", "-o", "./x.sh", "--force"],
        &["eval", "compare", "a.csv", "b.csv", "--images", "b.csv", "--force"],
        &["bench", "x.toml", "-o", "link.json", "--force"],
        &["bench", "y.toml", "-o", "link.json", "--force"],
        &["bench", "y.toml", "-o", "x.toml", "--force"],
    ] {
        let said = vim_train(args).current_dir(files.path()).output().unwrap();
        assert_says(&said, 73, &["is read by this command"]);
    }
    assert_eq!(std::fs::read_to_string(files.path().join("x.sh")).unwrap(), script);
}

#[test]
fn what_is_larger_than_its_kind_is_not_read() {
    let files = folder(&[("a.csv", "")]);
    let huge = std::fs::File::create(files.path().join("huge")).unwrap();
    huge.set_len(8 << 30).unwrap();
    for args in [
        &["config", "migrate", "huge"][..],
        &["config", "migrate", "/dev/zero"],
        &["eval", "compare", "a.csv", "huge"],
        &["eval", "compare", "huge", "a.csv"],
        &["bench", "compare", "huge", "-o", "out"],
    ] {
        let said = vim_train(args).current_dir(files.path()).output().unwrap();
        assert_code(&said, 65);
        let is_limit = stderr(&said).contains("it is larger than ");
        assert!(is_limit || args[2] == "a.csv", "{args:?}: {}", stderr(&said));
    }
}

#[test]
fn a_missing_folder_of_an_output_is_told_before_anything_else() {
    let folder = folder(&[]);
    // Nothing that they name is there: the output is looked at first.
    for (args, output) in [
        (&["predict", "x", "--checkpoint", "x", "-o"][..], "out.csv"),
        (&["features", "x", "--checkpoint", "x", "-o"], "out.npz"),
        (&["eval", "x.toml", "--predictions"], "out.csv"),
        (&["eval", "x.toml", "--per-class"], "out.csv"),
        (&["eval", "x.toml", "--confusion"], "out.csv"),
        (&["eval", "compare", "a", "b", "--images"], "out.csv"),
        (&["export", "x", "-o"], "out.pth"),
        (&["import", "x", "-o"], "out.safetensors"),
        (&["config", "migrate", "x.sh", "-o"], "out.toml"),
        (&["bench", "phases", "x.toml", "--trace"], "out.json"),
        (&["bench", "x.toml", "-o"], "out.json"),
        (&["runs", "compare", "a", "b", "--plot"], "out.svg"),
        (&["data", "show", "x.toml", "--out"], "out.png"),
    ] {
        let path = format!("missing/{output}");
        let mut command = vim_train(&[args, &[path.as_str()]].concat());
        let said = command.current_dir(folder.path()).output().unwrap();
        assert_code(&said, 74);
        let way = "there is no folder missing: make it, or name another";
        assert_eq!(stderr(&said), format!("error: cannot write {path}: {way}\n"), "{args:?}");
    }
    assert!(folder.path().read_dir().unwrap().next().is_none());
}
