use std::path::Path;

use rustix::process::Signal;

use crate::helpers::Helper;

#[test]
fn every_signal_sets_the_flag_and_none_ends_the_process() {
    let mut helper = Helper::start("reports_stop_requests", Path::new("-"));
    for (signal, name) in [
        (Signal::USR1, "SIGUSR1"),
        (Signal::TERM, "SIGTERM"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::INT, "SIGINT"),
    ] {
        helper.signal(signal);
        assert!(helper.wait_for("stop: ").contains(name));
    }
}

#[test]
fn a_second_interrupt_ends_the_process_at_once() {
    let mut helper = Helper::start("reports_stop_requests", Path::new("-"));
    helper.signal(Signal::INT);
    helper.wait_for("SIGINT");
    helper.signal(Signal::INT);
    assert_eq!(helper.exit_code(), Some(130));
}
