//! Files that mean harm, or were harmed: each is refused in a line, quickly and in little memory.

use std::time::{Duration, Instant};

use vim_torch::Item;
use zip::CompressionMethod;

use crate::forge::{archive, fixture, one, read, refusal, state_dict, tensor, text};

#[test]
fn a_file_cut_anywhere_is_damaged() {
    let whole = fixture("whole.pth");
    for cut in 4..whole.len() {
        let text = refusal(&whole[..cut]);
        assert!(text.contains("damaged"), "{cut}: {text}");
    }
}

#[test]
fn a_flipped_byte_of_a_storage_is_found_by_its_checksum() {
    let mut bytes = one(&tensor(4, 0, &[4], &[1]));
    let storage = [0.0_f32, 1.0, 2.0, 3.0].map(f32::to_le_bytes).concat();
    let at = bytes.windows(16).position(|window| window == storage).unwrap();
    bytes[at + 5] ^= 1;
    assert!(refusal(&bytes).contains("checksum"), "{}", refusal(&bytes));
}

#[test]
fn what_is_no_checkpoint_is_named() {
    for (bytes, words) in [
        (&b""[..], "it is empty"),
        (b"\x80\x04}.", "a bare pickle"),
        (b"<!DOCTYPE html>", "a web page"),
        (b"version https://git-lfs", "git lfs pull"),
        (b"hello", "68 65 6c 6c"),
    ] {
        assert!(refusal(bytes).contains(words), "{}", refusal(bytes));
    }
    let numpy = archive(&[("x.npy", b"")], CompressionMethod::Stored);
    assert!(refusal(&numpy).contains("NumPy"));
    let big = archive(&[("data.pkl", b"}."), ("byteorder", b"big")], CompressionMethod::Stored);
    assert!(refusal(&big).contains("big-endian"));
}

#[test]
fn a_text_that_many_entries_share_is_not_copied_for_each() {
    let large = "x".repeat(1 << 20);
    let weights = [&text("model")[..], b"}", &text("w"), &tensor(4, 0, &[4], &[1]), b"ss"].concat();
    let first = [&text("0")[..], &text(&large), b"q\x00s"].concat(); // remembered as 0
    let more: Vec<u8> = (1..200)
        .flat_map(|entry: u32| [&text(&entry.to_string())[..], b"h\x00s"].concat())
        .collect();
    let pickle = [b"\x80\x02}", &weights[..], &first[..], &more[..], b"."].concat();
    let files = [("data.pkl", &pickle[..]), ("data/0", &[0; 16])];
    let file = archive(&files, CompressionMethod::Deflated);
    assert!(refusal(&file).contains("the texts beside the parameters would take"));
}

#[test]
fn a_bomb_is_not_unpacked() {
    let zeros = vec![0; 256 << 20];
    let pickle = state_dict(&tensor(64 << 20, 0, &[64 << 20], &[1]));
    let files = [("data.pkl", &pickle[..]), ("data/0", &zeros)];
    let bomb = archive(&files, CompressionMethod::Deflated);
    assert!(bomb.len() < 1 << 20);
    assert!(refusal(&bomb).contains("is refused: data/0 would take 268435456 bytes"));
    // A header that lies about the size: what comes out is more than it says, or less.
    for numbers in [2, 8] {
        let pickle = state_dict(&tensor(numbers, 0, &[numbers], &[1]));
        let files = [("data.pkl", &pickle[..]), ("data/0", &[0; 16])];
        let mut lie = archive(&files, CompressionMethod::Deflated);
        let entry = lie.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
        lie[entry + 24..entry + 28].copy_from_slice(&(4 * numbers as u32).to_le_bytes());
        assert!(refusal(&lie).contains("damaged"), "{}", refusal(&lie));
    }
}

#[test]
fn shapes_must_lie_in_their_storage() {
    let reads = |value: &[u8]| read(&one(value)).unwrap().state.array("w").unwrap().values.clone();
    assert_eq!(reads(&tensor(4, 1, &[3], &[1])), [1.0, 2.0, 3.0]);
    assert_eq!(reads(&tensor(4, 0, &[2, 2], &[1, 2])), [0.0, 2.0, 1.0, 3.0]);
    let huge = 1_i64 << 40;
    for (value, words) in [
        (tensor(4, 0, &[5], &[1]), "past the end of its storage"),
        (tensor(4, 2, &[3], &[1]), "past the end of its storage"),
        (tensor(4, 0, &[2], &[i64::MAX]), "past the end of its storage"),
        (tensor(4, i64::MAX, &[2, 2], &[i64::MAX, i64::MAX]), "past the end of its storage"),
        (tensor(5, 0, &[4], &[1]), "has 16 bytes where the pickle says 20"),
        (tensor(3, 0, &[3], &[1]), "has 16 bytes where the pickle says 12"),
        (tensor(huge, 0, &[4], &[1]), "16 bytes where"),
        (tensor(i64::MAX, 0, &[4], &[1]), "is refused"),
        (tensor(4, 0, &[huge], &[0]), "is refused: w would take"),
        (tensor(4, 0, &[huge, huge, huge], &[0, 0, 0]), "is refused: w would take"),
    ] {
        assert!(refusal(&one(&value)).contains(words), "{words}: {}", refusal(&one(&value)));
    }
    for value in [
        tensor(4, -1, &[4], &[1]),
        tensor(4, 0, &[-4], &[1]),
        tensor(4, 0, &[4], &[1, 1]),
        tensor(4, 0, &[1; 17], &[1; 17]),
        b"(N(tR".to_vec(),
        b"}".to_vec(),
    ] {
        let bytes = one(&value);
        if let Ok(checkpoint) = read(&bytes) {
            assert!(matches!(checkpoint.state.get("w"), Some(Item::Unreadable(_))));
        } else {
            refusal(&bytes);
        }
    }
}

#[test]
fn nothing_in_a_pickle_is_called() {
    let call = [b"cposix\nsystem\n(".as_slice(), &text("touch /tmp/never"), b"tR"].concat();
    let with_call = [
        b"\x80\x02}(".as_slice(),
        &text("w"),
        &tensor(4, 0, &[4], &[1]),
        &text("evil"),
        &call,
        b"u.",
    ]
    .concat();
    let storage = [0; 16];
    let files = [("data.pkl", &with_call[..]), ("data/0", &storage)];
    let state = read(&archive(&files, CompressionMethod::Stored)).unwrap().state;
    assert_eq!(
        state.get("evil"),
        Some(&Item::Unreadable("an object of the class posix.system".into()))
    );
}

/// The pickle `operations`, in an archive, is refused or read within a second.
fn quick(operations: &[u8]) -> Option<String> {
    let start = Instant::now();
    let bytes = archive(&[("data.pkl", operations)], CompressionMethod::Stored);
    let made = start.elapsed();
    let result = read(&bytes);
    assert!(start.elapsed() - made < Duration::from_secs(5), "{:?}", start.elapsed());
    result.err().map(|error| error.to_string())
}

#[test]
fn pickles_that_nest_repeat_or_contain_themselves_are_cheap() {
    let deep = [&[b'('; 1_000_000][..], &[b't'; 1_000_000], b"."].concat();
    assert!(quick(&deep).unwrap().contains("a list in the file"));
    let itself = b"]q\x00h\x00a.";
    assert!(quick(itself).unwrap().contains("a list"));
    let own_key = b"}q\x00h\x00h\x00s.";
    assert!(quick(own_key).is_some());
    // Every list holds the last one twice: a tree of 2^1000 leaves, in a thousand nodes.
    let laughs = [&b"]q\x00"[..], &b"(h\x00h\x00tq\x00".repeat(1000), b"."].concat();
    assert!(quick(&laughs).unwrap().contains("a list"));
    let endless = [&b"]q\x00"[..], &b"h\x00".repeat(9_000_000), b"."].concat();
    assert!(quick(&endless).unwrap().contains("makes more than"));
    // One long key, again and again.
    let long =
        [&b"}"[..], &text(&"k".repeat(1 << 20)), b"q\x00Ns(", &b"h\x00N".repeat(100_000), b"u."];
    assert!(quick(&long.concat()).is_some());
    for (operations, words) in [
        (&b"\x80\x02"[..], "ends without a stop"),
        (b"X\xff\xff\xff\xffabc", "ends within an operand"),
        (b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff", "ends within an operand"),
        (b"t.", "no mark"),
        (b".", "stack is empty"),
        (b"(.", "stack is empty"),
        (b"h\x05.", "nothing is kept as 5"),
        (b"(Nd.", "a key has no value"),
        (b"I1\n.", "protocol 0"),
        (b"\x82\x01.", "not of torch.save's"),
        (b"\xff", "no operation"),
    ] {
        let text = quick(operations).unwrap();
        assert!(text.contains(words), "{text}");
    }
}
