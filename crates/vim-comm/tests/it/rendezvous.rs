//! Ranks that come late, twice, not at all, or from elsewhere.

use std::collections::BTreeSet;
use std::fs;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use vim_comm::{CommError, Member, Rendezvous, Roster, aborted};

use crate::support::{member, ranks, rendezvous};

const NODES: [usize; 2] = [2, 2];

/// All ranks meet; `change` makes records that do not fit.
fn meeting(change: impl Fn(&mut Member) + Sync) -> Vec<Result<Roster, CommError>> {
    let folder = tempfile::tempdir().unwrap();
    ranks(4, |rank| {
        let rendezvous = rendezvous(folder.path(), rank, &NODES);
        let mut member = member(&rendezvous);
        change(&mut member);
        rendezvous.meet(&member)
    })
}

/// The one text that all ranks end with.
fn refused(results: Vec<Result<Roster, CommError>>) -> String {
    let text = |result: Result<Roster, CommError>| {
        let error = result.unwrap_err();
        assert!(matches!(error, CommError::Refused { .. }), "{error}");
        error.to_string()
    };
    let texts: BTreeSet<String> = results.into_iter().map(text).collect();
    assert_eq!(texts.len(), 1, "{texts:?}");
    texts.into_iter().next().unwrap()
}

#[test]
fn all_ranks_know_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("ranks").join("4711.0");
    let rosters = ranks(4, |rank| {
        // The last one comes late.
        sleep(Duration::from_millis(if rank == 3 { 400 } else { 0 }));
        let rendezvous = rendezvous(&below, rank, &NODES);
        rendezvous.meet(&member(&rendezvous)).unwrap()
    });
    for roster in &rosters {
        let got: Vec<usize> = roster.members.iter().map(|member| member.place.rank()).collect();
        assert_eq!(got, [0, 1, 2, 3]);
        assert_eq!(roster, &rosters[0]);
        assert!(roster.warnings.is_empty());
    }
    let names = fs::read_dir(&below).unwrap().map(|entry| entry.unwrap().file_name());
    let names: BTreeSet<String> = names.map(|name| name.into_string().unwrap()).collect();
    let wanted = ["0000.json", "0001.json", "0002.json", "0003.json", "roster.json"];
    assert_eq!(names, wanted.map(String::from).into(), "nothing temporary stays");
}

#[test]
fn unequal_devices_are_told_to_every_rank() {
    for roster in meeting(|m| m.device = format!("GPU of node {}", m.place.node())) {
        assert!(roster.unwrap().warnings[0].contains("several kinds"));
    }
}

#[test]
fn a_missing_rank_is_named_with_its_node() {
    let folder = tempfile::tempdir().unwrap();
    let errors = ranks(3, |rank| {
        let mut rendezvous = rendezvous(folder.path(), rank, &NODES);
        // Rank 0 says it first.
        rendezvous.timeout = Duration::from_millis(if rank == 0 { 300 } else { 5000 });
        rendezvous.meet(&member(&rendezvous)).unwrap_err()
    });
    let CommError::Missing { ranks, .. } = &errors[0] else { panic!("{}", errors[0]) };
    assert_eq!(ranks, &[3]);
    let text = errors[0].to_string();
    assert!(text.contains("1 of 4 ranks are missing"), "{text}");
    assert!(text.ends_with("node 1: rank 3"), "{text}");
    assert!(errors.iter().all(|error| error.to_string() == text), "{errors:?}");
}

#[test]
fn without_rank_0_the_others_name_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut alone = rendezvous(folder.path(), 2, &NODES);
    alone.timeout = Duration::from_millis(100);
    let error = alone.meet(&member(&alone)).unwrap_err().to_string();
    assert!(error.ends_with("node 0: ranks 0, 1; node 1: rank 3"), "{error}");
}

#[test]
fn a_rank_that_says_nothing_is_told_from_one_that_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let errors = ranks(2, |rank| {
        let mut rendezvous = rendezvous(folder.path(), rank, &[2]);
        rendezvous.meet(&member(&rendezvous)).unwrap();
        rendezvous.timeout = Duration::from_millis(100);
        rendezvous.receive("id").unwrap_err()
    });
    for error in errors {
        assert!(matches!(&error, CommError::Silent { what, .. } if what == "id"), "{error}");
    }
}

#[test]
fn published_bytes_arrive_whole() {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..3_000_000).map(|i| (i % 251) as u8).collect();
    ranks(3, |rank| {
        let rendezvous = rendezvous(folder.path(), rank, &[3]);
        if rank == 0 {
            sleep(Duration::from_millis(50));
            rendezvous.publish("id", &bytes).unwrap();
        }
        assert!(rendezvous.receive("id").unwrap() == bytes);
    });
}

#[test]
fn ranks_that_do_not_fit_are_refused_on_every_rank() {
    let text = refused(meeting(|m| {
        if m.place.rank() == 2 {
            m.build = "0.2.0".into();
        }
    }));
    assert!(text.contains("has the build 0."), "{text}");
    let text = refused(meeting(|m| {
        if m.place.rank() == 3 {
            m.configuration = "5678".into();
        }
    }));
    assert!(text.contains("has the configuration "), "{text}");
    let text = refused(meeting(|m| m.device_id = Some(format!("GPU-{}", m.place.rank() / 2))));
    assert!(text.ends_with("have the same GPU"), "{text}");
}

#[test]
fn a_misfit_is_refused_before_the_last_rank_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let begin = Instant::now();
    let results = ranks(3, |rank| {
        let rendezvous = rendezvous(folder.path(), rank, &NODES);
        let build = if rank == 1 { "0.2.0" } else { "0.1.0" };
        rendezvous.meet(&Member { build: build.into(), ..member(&rendezvous) })
    });
    refused(results);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[test]
fn a_second_rank_of_a_number_is_refused_on_every_rank() {
    let folder = tempfile::tempdir().unwrap();
    // Both nodes were started as node 0.
    let results = ranks(4, |rank| {
        let rendezvous = rendezvous(folder.path(), rank % 2, &NODES);
        rendezvous.meet(&Member { pid: rank as u32, ..member(&rendezvous) })
    });
    let text = refused(results);
    assert!(text.contains("is the second rank "), "{text}");
}

#[test]
fn ranks_of_another_number_of_nodes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let results = ranks(2, |rank| {
        let nodes: &[usize] = if rank == 0 { &[2, 2] } else { &[2] };
        let rendezvous = rendezvous(folder.path(), rank, nodes);
        rendezvous.meet(&member(&rendezvous))
    });
    assert!(refused(results).contains("has ranks on its nodes [2"));
}

#[test]
fn a_record_that_cannot_be_read_is_refused() {
    for text in ["{", "{\"place\": 3}"] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("0003.json"), text).unwrap();
        let rendezvous = rendezvous(folder.path(), 0, &NODES);
        let error = rendezvous.meet(&member(&rendezvous)).unwrap_err();
        assert!(
            matches!(&error, CommError::Refused { why } if why.contains("0003.json")),
            "{error}"
        );
    }
}

#[test]
fn the_end_of_an_attempt_reaches_all_who_wait() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(aborted(folder.path()), None);
    assert_eq!(aborted(&folder.path().join("not there")), None);
    let errors = scope(|scope| {
        let waiting = scope.spawn(|| {
            ranks(3, |rank| {
                let rendezvous = rendezvous(folder.path(), rank, &NODES);
                rendezvous.meet(&member(&rendezvous)).unwrap_err().to_string()
            })
        });
        sleep(Duration::from_millis(100));
        let supervisor: Rendezvous = rendezvous(folder.path(), 3, &NODES);
        supervisor.abort("rank 3 was killed by signal 9").unwrap();
        supervisor.abort("a second reason").unwrap();
        waiting.join().unwrap()
    });
    assert_eq!(errors, ["the run was ended: rank 3 was killed by signal 9"; 3]);
    assert_eq!(aborted(folder.path()).unwrap(), "rank 3 was killed by signal 9");
}

#[test]
fn a_member_is_of_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (rendezvous(folder.path(), 0, &NODES), rendezvous(folder.path(), 1, &NODES));
    assert!(matches!(own.meet(&member(&other)), Err(CommError::Refused { .. })));
}
