//! What a run says at once, and at its end.

use std::io::{IsTerminal, stderr, stdout};
use std::thread;

use vim_run::signals::StopRequest;
use vim_run::{EXIT, ExitRecord, Log};

use super::TrainArgs;
use crate::output::{print, print_json};
use crate::task::Task;

/// Whether the score is a line on stdout, for scripts; on a terminal the summary has it.
pub(super) fn prints_score(args: &TrainArgs) -> bool {
    let is_seen = stdout().is_terminal() && stderr().is_terminal();
    !args.json && !is_seen
}

/// Says at once that a signal has arrived. Of several ranks the supervisor says it.
pub(super) fn acknowledge(stop: &StopRequest, log: &Log) {
    let (first, log) = (stop.first(), log.clone());
    let say = move || first.recv().into_iter().for_each(|stop| log.line(stop.acknowledged()));
    // Without a thread the stop itself is said.
    let _ = thread::Builder::new().name("acknowledge".into()).spawn(say);
}

/// Why the last weights are the result of a run, where they are.
pub(super) fn last_counts<T: Task>(task: &T) -> Option<&'static str> {
    if task.has_validation() {
        None
    } else if task.is_measured() {
        Some(
            "no validation images: the last weights are the result (data.val_fraction holds some \
             out)",
        )
    } else {
        Some("there are no scores of these data: the last weights are the result")
    }
}

/// Prints the result. A failure leaves the run's exit code as it is: `exit.json` has the result.
pub(super) fn print_result<T: Task>(as_json: bool, exit: &ExitRecord, score: Option<f64>) {
    let printed = match score {
        _ if as_json => print_json(exit),
        // Nothing was measured.
        Some(score) if score.is_nan() => Ok(()),
        Some(score) => print(&result_line::<T>(score)),
        None => Ok(()),
    };
    if let Err(error) = printed {
        eprintln!("warning: {error}; {EXIT} has the result");
    }
}

fn result_line<T: Task>(score: f64) -> String {
    format!("test {} {}", T::PRIMARY.label, T::PRIMARY.show(score))
}
