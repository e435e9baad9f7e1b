//! Scripts of several trainings.

use crate::tests::{PLAIN, dropped, failure, keys, model, read};
use crate::{MigrateError, Migration, Script, migrate};

#[test]
fn several_trainings_are_a_sweep_and_one_is_named() {
    let text = format!("{PLAIN}--seed 1\n\n{PLAIN}\\\n --seed 2\n");
    assert_eq!(keys(&read(&text, &[], None).unwrap())["sweep.seeds"], "[1, 2]");
    assert_eq!(keys(&read(&text, &[], Some(4)).unwrap())["run.seed"], "2");
    let error = read(&text, &[], Some(2)).unwrap_err();
    assert_eq!(error.to_string(), "no command in this line starts main.py; the lines 1, 3 do");
    let text = format!("{PLAIN}--lr 1 --drop 0\n{PLAIN}--lr 2 --drop 0\n{PLAIN}--lr 1 --drop 1\n");
    let (line, message) = failure(&text);
    assert_eq!(line, None);
    let start = "main.py is started in the lines 1, 2, 3, which differ in model.dropout, optim.lr;";
    assert!(message.starts_with(start), "{message}");
}

#[test]
fn a_loop_is_a_sweep() {
    let text = format!("for S in 5 6 7; do\n  {PLAIN}--seed $S --output_dir out/s$S\ndone\n");
    let keys = keys(&read(&text, &[], None).unwrap());
    assert_eq!(keys["sweep.seeds"], "[5, 6, 7]");
    assert_eq!(keys["sweep.name"], "\"old\"");
    assert_eq!([&keys["run.name"], &keys["run.root"]], ["\"s{run.seed}\"", "\"out\""]);
    assert!(!keys.contains_key("run.seed"));
}

/// One method's script, called with a seed.
fn of_method(method: &str, more: &str) -> String {
    format!(
        "SEED=${{1:-0}}\npython main.py --model vim_tiny_patch16_224_bimambav2_{method} --data-path \
         /x --seed $SEED --output_dir out/{method}_s$SEED {more}"
    )
}

/// A driver, with scripts of two methods beside it.
fn driven(text: &str, arguments: &[&str], more: &str) -> Result<Migration, MigrateError> {
    let called = |path: &str| match path {
        "rk4.sh" | "./scripts/rk4.sh" => Some(of_method("rk4", "")),
        "foh.sh" | "./scripts/foh.sh" => Some(of_method("foh", more)),
        _ => None,
    };
    let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    let (name, called) = ("all methods.sh", &called);
    migrate(Script { name, text, arguments: &arguments, line: None, called, model: &model })
}

const METHODS: &str = "{ \"model.discretization\" = [\"rk4\", \"foh\"] }";

/// The grid of a sweep as an inline table.
fn grid(migrated: &Migration) -> String {
    let grid = migrated.toml.lines().find_map(|line| line.strip_prefix("grid = "));
    grid.unwrap_or_default().to_owned()
}

#[test]
fn a_driver_is_a_sweep_over_methods_and_seeds() {
    let list = "echo start\nbash ./scripts/rk4.sh\nbash ./scripts/foh.sh\n";
    let function = r#"DIR="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
SEEDS=(3 4)  # of each
train() {
    local METHOD=$1
    local SCRIPT=$2
    for SEED in "${SEEDS[@]}"; do
        bash "$SCRIPT" $SEED
        if [ $? -eq 0 ]; then
            echo "$METHOD done"
        fi
    done
}
train "RK4" "$DIR/rk4.sh"
train "FOH" "$DIR/foh.sh"
"#;
    let chosen = r#"DIR="$(pwd)"
if [ $# -lt 1 ]; then exit 1; fi
METHOD=$1
TEXT=${2:-"3,4"}
IFS=',' read -ra SEEDS <<< "$TEXT"
case $METHOD in
    rk4)
        SCRIPT="$DIR/rk4.sh"
        ;;
    foh)
        SCRIPT="$DIR/foh.sh"
        ;;
    *)
        exit 1
        ;;
esac
for SEED in "${SEEDS[@]}"; do
    bash "$SCRIPT" $SEED
done
"#;
    let nested = "for M in rk4 foh; do for S in 3 4; do bash $M.sh $S; done; done";
    for (text, seeds) in [
        (list, None),
        (function, Some("[3, 4]")),
        (chosen, Some("[3, 4]")),
        (nested, Some("[3, 4]")),
    ] {
        let migrated = driven(text, &[], "").unwrap();
        let keys = keys(&migrated);
        assert_eq!(grid(&migrated), METHODS, "{text}\n{}", migrated.toml);
        assert_eq!(keys.get("sweep.seeds").map(String::as_str), seeds, "{text}");
        assert_eq!(keys["sweep.name"], "\"all-methods\"");
        assert_eq!(keys["run.root"], "\"out\"");
        assert_eq!(keys["ssm.series"], "\"taylor\"", "the same for every method");
        let name = seeds.map_or("", |_| "-s{run.seed}");
        assert_eq!(keys["run.name"], format!("\"{{model.discretization}}{name}\""));
        assert!(migrated.not_carried.is_empty(), "{:?}", migrated.not_carried);
    }
    let choice = "an argument of the script chooses one of rk4, foh; here are all of them";
    let notes = driven(chosen, &[], "").unwrap().notes;
    assert!(notes.iter().any(|note| note.ends_with(choice)), "{notes:?}");
}

#[test]
fn what_a_driver_loses_is_named() {
    let list = "bash ./scripts/rk4.sh 1\nbash ./scripts/foh.sh 1\n";
    // Another recipe for one method is no part of a comparison.
    let migrated = driven(list, &[], "--epochs 30 --use-wandb").unwrap();
    assert_eq!(keys(&migrated)["train.epochs"], "300");
    assert_eq!(dropped(&migrated), ["2: foh.sh: --use-wandb", "2: foh.sh: train.epochs = 30"]);
    let why = &migrated.not_carried[1].why;
    assert_eq!(why, "the first training's 300 is for all: one recipe is compared");
    // An option with another value for each seed is one line.
    let seeds = "for s in 1 2 3; do bash foh.sh $s; done";
    let migrated = driven(seeds, &[], "--resume out/$1.pth").unwrap();
    assert_eq!(dropped(&migrated), ["2: --resume out/1.pth"]);
    // A script that is not there.
    let migrated = driven("bash foh.sh\nbash zoh.sh\n", &[], "").unwrap();
    assert_eq!(dropped(&migrated), ["2: zoh.sh"]);
    let error = driven("echo\nbash zoh.sh\n", &[], "").unwrap_err();
    assert_eq!(error.line, Some(2));
    assert!(error.to_string().starts_with("`zoh.sh` is called here, and is neither beside"));
    let error = driven("bash foh.sh\n", &[], "--epochs many").unwrap_err();
    let expected = "in `foh.sh`, line 2: --epochs is `many`, expected a whole number, 1 or more";
    assert_eq!((error.line, error.to_string().as_str()), (Some(1), expected));
    let loops: String = ('a'..='e').map(|name| format!("for {name} in 1 2 3 4 5; do ")).collect();
    let error = driven(&format!("{loops}{PLAIN}"), &[], "").unwrap_err();
    assert!(error.to_string().starts_with("its loops start more than 1000 trainings"));
}
