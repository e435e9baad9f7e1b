use std::fs;
use std::path::Path;

use tempfile::TempDir;
use vim_run::checkpoint::{
    Best, Checkpoint, CheckpointError, Checkpoints, Selection, State, Weights, Window, select,
};
use vim_run::metrics::Prefix;

pub(crate) fn state(step: u64) -> State {
    let best = Some(Best { metric: 0.1 + 0.2, step: 10, weights: Weights::Ema });
    State {
        step,
        epoch: step / 10,
        batch: step % 10,
        best,
        metrics: Prefix { len: step * 100, blake3: Some("00ff".into()) },
        ..State::default()
    }
}

/// Bytes that differ from step to step.
fn model(step: u64) -> Vec<u8> {
    (0..1000_u64).map(|at| (at * 7 + step) as u8).collect()
}

pub(crate) fn save(checkpoints: &Checkpoints, step: u64) -> Result<(), CheckpointError> {
    let model = model(step);
    checkpoints.save(&[("model", &model), ("optim", b"momentum")], &state(step)).map(|_| ())
}

/// A folder with checkpoints after steps 10, 20 and 30, of which the first is the best.
fn three() -> (TempDir, Checkpoints) {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path(), 2).unwrap();
    save(&checkpoints, 10).unwrap();
    checkpoints.mark_best(10).unwrap();
    save(&checkpoints, 20).unwrap();
    save(&checkpoints, 30).unwrap();
    (folder, checkpoints)
}

fn step(folder: &Path, step: u64) -> std::path::PathBuf {
    folder.join(format!("step-{step:08}"))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_saved_comes_back() {
    let (folder, checkpoints) = three();
    let mut found = checkpoints.latest_valid().unwrap().checkpoint.unwrap();
    assert_eq!(found.path, step(folder.path(), 30));
    assert_eq!(found.state, state(30), "the metric too, to the last bit");
    assert_eq!(found.take("model").unwrap(), model(30));
    assert_eq!(found.take("optim").unwrap(), b"momentum");
    assert!(matches!(found.take("ema"), Err(CheckpointError::Damaged { .. })));
}

#[test]
fn floats_of_the_state_are_strings_and_may_be_infinite() {
    let mut state = state(20);
    state.window.add(0.1);
    state.window.add(0.2);
    state.parts = vec![Window::default()];
    state.parts[0].add(f64::INFINITY);
    let text = serde_json::to_string(&state).unwrap();
    for written in [
        r#""best":{"metric":"0.30000000000000004","step":10,"weights":"ema"}"#,
        r#""window":{"sum":"0.30000000000000004","count":2},"parts":[{"sum":"inf","count":1}]"#,
    ] {
        assert!(text.contains(written), "{text}");
    }
    assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
}

#[test]
fn a_metric_comes_back_to_the_last_bit() {
    for number in 1..2000 {
        let best =
            Best { metric: f64::from(number).sqrt() * 1e-3, step: 1, weights: Weights::Model };
        let text = serde_json::to_string(&best).unwrap();
        assert_eq!(serde_json::from_str::<Best>(&text).unwrap(), best, "{text}");
    }
}

#[test]
fn the_newest_and_the_best_are_kept() {
    let (folder, checkpoints) = three();
    assert_eq!(checkpoints.steps(), [10, 20, 30]);
    save(&checkpoints, 40).unwrap();
    assert_eq!(checkpoints.steps(), [10, 30, 40], "10 is the best, 20 is too old");
    checkpoints.mark_best(40).unwrap();
    save(&checkpoints, 50).unwrap();
    assert_eq!(checkpoints.steps(), [40, 50]);
    assert_eq!(names(folder.path()), ["best", "step-00000040", "step-00000050"]);
}

#[test]
fn the_archived_are_never_removed() {
    let (folder, checkpoints) = three();
    for step in [20, 40, 20] {
        checkpoints.archive(step).unwrap();
    }
    for step in [40, 50, 60, 70] {
        save(&checkpoints, step).unwrap();
    }
    assert_eq!(checkpoints.steps(), [10, 20, 40, 60, 70], "10 is the best");
    let list = fs::read_to_string(folder.path().join("archive")).unwrap();
    assert_eq!(list, "step-00000020\nstep-00000040\n");

    // A list that cannot be read is no reason to take nothing for archived.
    fs::remove_file(folder.path().join("archive")).unwrap();
    fs::create_dir(folder.path().join("archive")).unwrap();
    save(&checkpoints, 80).unwrap();
    assert_eq!(checkpoints.steps(), [10, 20, 40, 60, 70, 80]);
    assert!(matches!(checkpoints.archive(80), Err(CheckpointError::Io { .. })));
}

#[test]
fn only_what_exists_can_be_best() {
    let (_folder, checkpoints) = three();
    assert!(matches!(checkpoints.mark_best(11), Err(CheckpointError::Missing { .. })));
    assert_eq!(checkpoints.best_step(), Some(10));
}

#[test]
fn saving_a_step_again_replaces_it() {
    let (folder, checkpoints) = three();
    let again = State { metrics: Prefix::default(), ..state(30) };
    checkpoints.save(&[("model", b"new")], &again).unwrap();
    assert_eq!(checkpoints.latest_valid().unwrap().checkpoint.unwrap().state, again);
    assert_eq!(names(folder.path()).len(), 4, "{:?}", names(folder.path()));
}

/// Damages the newest checkpoint; the one before must be found, and the damaged one kept under
/// another name.
fn passes_over(damage: impl Fn(&Path)) {
    let (folder, checkpoints) = three();
    damage(&step(folder.path(), 30));
    let latest = checkpoints.latest_valid().unwrap();
    let mut found = latest.checkpoint.unwrap();
    assert_eq!(found.state.step, 20);
    assert_eq!(found.take("model").unwrap(), model(20));
    assert_eq!(latest.passed_over.len(), 1);
    assert!(latest.passed_over[0].to_string().contains("step-00000030"));
    assert!(folder.path().join(".bad-step-00000030").exists());
    assert_eq!(checkpoints.steps(), [10, 20]);
}

#[test]
fn every_flipped_byte_is_noticed() {
    for file in ["model", "optim", "state.json", "MANIFEST"] {
        for place in [0.0, 0.5, 1.0] {
            passes_over(|path| {
                let path = path.join(file);
                let mut bytes = fs::read(&path).unwrap();
                let at = ((bytes.len() - 1) as f64 * place) as usize;
                bytes[at] ^= 1;
                fs::write(path, bytes).unwrap();
            });
        }
    }
}

#[test]
fn every_missing_end_is_noticed() {
    for file in ["model", "optim", "state.json", "MANIFEST"] {
        for length in [0, 1, usize::MAX] {
            passes_over(|path| {
                let path = path.join(file);
                let bytes = fs::read(&path).unwrap();
                fs::write(path, &bytes[..length.min(bytes.len() - 1)]).unwrap();
            });
        }
    }
}

#[test]
fn every_missing_file_is_noticed() {
    for file in ["model", "optim", "state.json", "MANIFEST"] {
        passes_over(|path| fs::remove_file(path.join(file)).unwrap());
    }
    passes_over(|path| {
        fs::remove_dir_all(path).unwrap();
        fs::write(path, "a file, not a folder").unwrap();
    });
}

#[test]
fn a_copy_under_another_number_is_passed_over() {
    let (folder, checkpoints) = three();
    let copy = step(folder.path(), 9999);
    fs::create_dir(&copy).unwrap();
    for name in names(&step(folder.path(), 20)) {
        fs::copy(step(folder.path(), 20).join(&name), copy.join(&name)).unwrap();
    }
    let error = Checkpoint::read(&copy).unwrap_err();
    assert!(matches!(error, CheckpointError::Damaged { .. }));
    let says = "step-00009999 is damaged: state.json is of step 20: the folder was copied";
    assert!(error.to_string().contains(says), "{error}");
    let latest = checkpoints.latest_valid().unwrap();
    assert_eq!((latest.checkpoint.unwrap().state.step, latest.passed_over.len()), (30, 1));
    assert!(folder.path().join(".bad-step-00009999").exists());

    // A copy of another name claims no step.
    let kept = folder.path().join("keep");
    fs::rename(folder.path().join(".bad-step-00009999"), &kept).unwrap();
    assert_eq!(Checkpoint::read(&kept).unwrap().state, state(20));
}

#[test]
fn all_damaged_is_an_error_and_stays_one() {
    let (folder, checkpoints) = three();
    for at in [10, 20, 30] {
        fs::remove_file(step(folder.path(), at).join("MANIFEST")).unwrap();
    }
    for _ in 0..2 {
        let error = checkpoints.latest_valid().unwrap_err();
        assert!(matches!(error, CheckpointError::NoneWhole { count: 3, .. }), "{error}");
    }
    assert_eq!(checkpoints.best_step(), None, "best would name a checkpoint that is not there");
}

#[test]
fn a_damaged_best_is_forgotten_and_an_older_one_remembered() {
    let (folder, checkpoints) = three();
    checkpoints.mark_best(30).unwrap();
    fs::remove_file(step(folder.path(), 30).join("model")).unwrap();
    checkpoints.latest_valid().unwrap();
    assert_eq!(checkpoints.best_step(), Some(10), "as the state of step 20 says");
}

#[test]
fn a_start_removes_what_a_crash_left() {
    let (folder, checkpoints) = three();
    drop(checkpoints);
    let unfinished = folder.path().join(".tmp-step-00000040");
    fs::create_dir(&unfinished).unwrap();
    fs::write(unfinished.join("model"), "half").unwrap();
    // The crash came between taking the old folder away and putting the new one in its place.
    fs::rename(step(folder.path(), 30), folder.path().join(".replaced-step-00000030")).unwrap();

    let foreign = [".tmp-step-40", ".tmp-mine", ".replaced-mine"].map(|n| folder.path().join(n));
    foreign.iter().for_each(|path| fs::write(path, "").unwrap());

    let checkpoints = Checkpoints::open(folder.path(), 2).unwrap();
    assert_eq!(checkpoints.steps(), [10, 20, 30]);
    assert!(!unfinished.exists());
    assert!(foreign.iter().all(|path| path.exists()), "what no save makes is not ours");
    assert_eq!(checkpoints.latest_valid().unwrap().checkpoint.unwrap().state.step, 30);
}

#[test]
fn selections() {
    let (folder, _checkpoints) = three();
    let selected = |selection| select(folder.path(), selection).map(|found| found.state.step);
    assert_eq!(selected(Selection::Best).unwrap(), 10);
    assert_eq!(selected(Selection::Last).unwrap(), 30);

    fs::remove_file(step(folder.path(), 30).join("model")).unwrap();
    let before = names(folder.path());
    assert_eq!(selected(Selection::Last).unwrap(), 20);
    assert_eq!(names(folder.path()), before, "selecting changes nothing");
    assert!(Checkpoint::read(&step(folder.path(), 30)).is_err());

    let empty = tempfile::tempdir().unwrap();
    for selection in [Selection::Best, Selection::Last] {
        let error = select(empty.path(), selection).unwrap_err();
        assert!(matches!(error, CheckpointError::Missing { .. }), "{error}");
    }
}
