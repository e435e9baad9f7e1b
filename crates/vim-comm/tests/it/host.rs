//! Ranks on CPUs: sums, bytes, and what happens when one is gone or does something else.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use burn::tensor::{DType, Device, Tensor};
use vim_comm::{Comm, CommError, abort, check};

use crate::support::{
    as_process, bits, connected, numbers, process, ranks, rendezvous, tensor, tree,
};

#[test]
fn sums_have_the_bits_of_the_tree_on_every_rank() {
    for world in [1, 2, 3, 4, 8] {
        let counts = [0, 1, 511, 20_000];
        let got = connected(world, |comm| {
            assert_eq!(comm.size(), world);
            let sum = |count| bits(comm.sum(tensor(&numbers(comm.rank(), count))).unwrap());
            counts.map(sum)
        });
        for (rank, got) in got.iter().enumerate() {
            for (got, count) in got.iter().zip(counts) {
                let want: Vec<u32> = tree(world, count).into_iter().map(f32::to_bits).collect();
                assert!(*got == want, "{count} numbers at rank {rank} of {world}");
            }
        }
    }
}

#[test]
fn large_sums_are_not_slow() {
    let count = 1_000_000;
    let want: Vec<u32> = tree(4, count).into_iter().map(f32::to_bits).collect();
    connected(4, |comm| {
        let own = tensor(&numbers(comm.rank(), count));
        let begin = Instant::now();
        for _ in 0..5 {
            assert!(bits(comm.sum(own.clone()).unwrap()) == want);
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    });
}

#[test]
fn other_kinds_of_numbers_are_summed_too() {
    let device = Device::flex();
    connected(3, |comm| {
        let one = |dtype| {
            let own = Tensor::<1>::from_data([1.0 + comm.rank() as f64], (&device, dtype));
            let sum = comm.sum(own)?;
            assert_eq!(sum.dtype(), dtype);
            Ok(sum.into_data().iter::<f64>().collect::<Vec<_>>())
        };
        assert_eq!(one(DType::F64).unwrap(), [6.0]);
        assert_eq!(one(DType::BF16).unwrap(), [6.0]);
        let other: Result<_, CommError> = one(DType::F16);
        assert!(matches!(other, Err(CommError::Unsupported { .. })), "{other:?}");
        assert_eq!(one(DType::F64).unwrap(), [6.0], "nobody has called for the other");
    });
}

#[test]
fn bytes_go_to_every_rank() {
    for world in [1, 2, 3, 4, 8] {
        connected(world, |comm| {
            let own = vec![comm.rank() as u8; comm.rank() * 100_000];
            for _ in 0..3 {
                let all = comm.gather(&own).unwrap();
                let want: Vec<_> =
                    (0..world).map(|rank| vec![rank as u8; rank * 100_000]).collect();
                assert!(all == want);
            }
            let of_zero = comm.broadcast(vec![7 + comm.rank() as u8; 1 + comm.rank()]).unwrap();
            assert_eq!(of_zero, [7]);
            assert_eq!(comm.broadcast(Vec::new()).unwrap(), [0; 0]);
            assert_eq!(comm.gather(&[]).unwrap(), vec![Vec::<u8>::new(); world]);
            assert_eq!(comm.fault(), None);
        });
    }
}

#[test]
fn handles_are_of_one_communicator() {
    connected(2, |comm| {
        let sent = |comm: Comm| std::thread::spawn(move || comm.gather(&[comm.rank() as u8]));
        for _ in 0..3 {
            assert_eq!(sent(comm.clone()).join().unwrap().unwrap(), [[0], [1]]);
        }
        assert!(format!("{comm:?}").contains("call: 3"), "{comm:?}");
    });
}

#[test]
fn a_rank_that_is_gone_is_named_on_every_other() {
    for gone in 0..3 {
        let errors = connected(3, |comm| {
            comm.gather(&[]).unwrap();
            if comm.rank() == gone {
                return None;
            }
            let begin = Instant::now();
            let error = comm.sum(tensor(&numbers(0, 500_000))).unwrap_err();
            assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
            let again = comm.broadcast(Vec::new()).unwrap_err();
            assert_eq!(again.to_string(), error.to_string(), "the end is for ever");
            Some(error)
        });
        for error in errors.into_iter().flatten() {
            assert!(matches!(error, CommError::Lost { rank } if rank == gone), "{gone}: {error}");
        }
    }
}

#[test]
fn a_rank_that_does_something_else_is_named_on_every_rank() {
    // Large, so that the one that parts is still sending when rank 0 knows.
    let many = vec![0; 4_000_000];
    for parting in 0..3 {
        let errors = connected(3, |comm| {
            let (own, other) = (comm.rank(), parting);
            let result = if own == other {
                comm.gather(&many).map(|_| ())
            } else {
                comm.sum(tensor(&numbers(own, 1000))).map(|_| ())
            };
            result.unwrap_err()
        });
        for error in errors {
            let CommError::Parted { why } = &error else { panic!("{parting}: {error}") };
            assert!(why.contains("sums f32 in 4000 bytes in its call 0"), "{why}");
            assert!(why.contains("gathers in its call 0"), "{why}");
        }
    }
}

#[test]
fn sums_of_different_lengths_part() {
    let errors = connected(2, |comm| {
        comm.sum(tensor(&numbers(0, 5 + comm.rank()))).unwrap_err().to_string()
    });
    let text = "the ranks part: rank 0 sums f32 in 20 bytes in its call 0, rank 1 sums f32 in 24 bytes in its call 0";
    assert_eq!(errors, [text; 2]);
}

#[test]
fn long_names_of_folders_do_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join("x".repeat(120));
    let sums = ranks(2, |rank| {
        let comm = Comm::host(&rendezvous(&long, rank, &[2])).unwrap();
        bits(comm.sum(tensor(&[1.0 + rank as f32])).unwrap())
    });
    assert_eq!(sums, [[3.0_f32.to_bits()]; 2]);
    let address = fs::read_to_string(long.join("socket.json")).unwrap();
    let address: serde_json::Value = serde_json::from_str(&address).unwrap();
    let socket = std::path::Path::new(address["path"].as_str().unwrap());
    assert!(!socket.parent().unwrap().exists(), "nothing stays in {}", socket.display());
}

#[test]
#[ignore = "a rank of another test"]
fn rank_0_without_a_place_for_its_socket() {
    let Some(rendezvous) = as_process(2) else { return };
    println!("it says: {}", Comm::host(&rendezvous).unwrap_err());
}

#[test]
fn a_socket_without_a_place_names_both_ways_to_one() {
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join("x".repeat(120));
    for (temporary, failed) in [
        (folder.path().join("absent"), "cannot make "),
        (long.join("y".repeat(60)), "cannot listen at "),
    ] {
        if failed.contains("listen") {
            fs::create_dir_all(&temporary).unwrap();
        }
        let mut rank = process("host::rank_0_without_a_place_for_its_socket", &long, 0);
        let said = rank.env("TMPDIR", &temporary).output().unwrap().stdout;
        let said = String::from_utf8(said).unwrap();
        let folder = long.display().to_string();
        for part in [failed, &temporary.display().to_string(), &folder, "run.root", "TMPDIR"] {
            assert!(said.contains(part), "{part} is not in: {said}");
        }
    }
}

#[test]
fn strangers_at_the_socket_hold_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let join = |rank| Comm::host(&rendezvous(folder.path(), rank, &[2]));
    std::thread::scope(|scope| {
        let root = scope.spawn(|| join(0).unwrap());
        let address = folder.path().join("socket.json");
        while !address.exists() {
            sleep(Duration::from_millis(1));
        }
        let address: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(address).unwrap()).unwrap();
        let stranger = || UnixStream::connect(address["path"].as_str().unwrap()).unwrap();
        let _silent = stranger();
        stranger().write_all(b"GET / HTTP/1.1\r\nHost: a page\r\n\r\n").unwrap();
        drop(stranger());
        let begin = Instant::now();
        let comm = join(1).unwrap();
        let sums = scope.spawn(move || bits(comm.sum(tensor(&[2.0])).unwrap()));
        let own = bits(root.join().unwrap().sum(tensor(&[1.0])).unwrap());
        // Rank 0 waits ten seconds for what a connection has to say.
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        assert_eq!([own, sums.join().unwrap()], [[3.0_f32.to_bits()]; 2]);
    });
}

#[test]
fn a_rank_of_another_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let errors = ranks(2, |rank| {
        let world = [2 + rank];
        Comm::host(&rendezvous(folder.path(), rank, &world)).map(|comm| comm.gather(&[])).err()
    });
    let error = errors[0].as_ref().unwrap().to_string();
    assert!(error.contains("is not of this run, but connected to"), "{error}");
}

#[test]
fn waiting_for_a_socket_ends_with_the_attempt_or_with_time() {
    for rank in [0, 1] {
        let folder = tempfile::tempdir().unwrap();
        let mut waiting = rendezvous(folder.path(), rank, &[1, 1]);
        let error = std::thread::scope(|scope| {
            let waits = scope.spawn(|| Comm::host(&waiting).unwrap_err());
            sleep(Duration::from_millis(50));
            abort(folder.path(), "the other one has no disk").unwrap();
            waits.join().unwrap()
        });
        assert_eq!(error.to_string(), "the run was ended: the other one has no disk");
        waiting.folder = folder.path().join("another");
        waiting.timeout = Duration::from_millis(300);
        let error = Comm::host(&waiting).unwrap_err().to_string();
        let wanted = if rank == 0 { "node 1: rank 1" } else { "node 0: rank 0" };
        assert!(error.contains(wanted), "{error}");
    }
}

const WORLD: usize = 3;

#[test]
#[ignore = "a rank of another test"]
fn rank_of_a_process() {
    let Some(rendezvous) = as_process(WORLD) else { return };
    let comm = Comm::host(&rendezvous).unwrap();
    let sum = bits(comm.sum(tensor(&numbers(comm.rank(), 10_000))).unwrap());
    let want: Vec<u32> = tree(WORLD, 10_000).into_iter().map(f32::to_bits).collect();
    assert!(sum == want);
    fs::write(rendezvous.folder.join(format!("ready-{}", comm.rank())), "").unwrap();
    if comm.rank() == 2 {
        sleep(Duration::from_secs(60));
    }
    let error = comm.sum(tensor(&[1.0])).unwrap_err();
    assert!(matches!(error, CommError::Lost { rank: 2 }), "{error}");
}

#[test]
fn a_process_that_is_killed_is_named_by_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let start = |rank| {
        let mut command = process("host::rank_of_a_process", folder.path(), rank);
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    let mut children = [0, 1, 2].map(start);
    let begin = Instant::now();
    while !(0..WORLD).all(|rank| folder.path().join(format!("ready-{rank}")).exists()) {
        assert!(begin.elapsed() < Duration::from_secs(60), "the processes meet");
        sleep(Duration::from_millis(5));
    }
    children[2].kill().unwrap();
    let begin = Instant::now();
    let [first, second, third] = children.each_mut().map(|child| child.wait().unwrap());
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert!(first.success() && second.success() && !third.success());
}

#[test]
fn the_check_finds_nothing_wrong() {
    for world in [1, 3] {
        let speeds = connected(world, |comm| {
            check::sums(&comm, &Device::flex(), &[1, 511, 3000]).unwrap();
            check::speed(&comm, &Device::flex(), 3000).unwrap()
        });
        for speed in speeds {
            assert_eq!(speed.bytes, 12_000);
            assert!(0.0 < speed.ms && speed.ms <= speed.slowest_ms, "{speed:?}");
            assert!((speed.gb_s * speed.ms / 12e-3 - 1.0).abs() < 1e-9, "{speed:?}");
            let ring = 2.0 * (world as f64 - 1.0) / world as f64;
            assert!((speed.bus_gb_s - ring * speed.gb_s).abs() < 1e-9, "{speed:?}");
        }
    }
}

#[test]
fn the_check_finds_wrong_numbers() {
    let found = connected(2, |comm| {
        if comm.rank() == 0 {
            return Some(check::sums(&comm, &Device::flex(), &[1]).unwrap_err().to_string());
        }
        // Until the other one has seen it, and is gone.
        while comm.sum(tensor(&[1.0])).is_ok() {}
        None
    });
    let wrong = "rank 0: sum 0 of 2·x, of 1 numbers: number 0 is -248, not -473";
    assert!(found[0].as_deref().unwrap().starts_with(wrong), "{found:?}");
}
