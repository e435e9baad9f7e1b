//! Any bytes at all end in arrays or in an error of one line.

use std::io::Cursor;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use vim_torch::{Section, read_checkpoint, write_pytorch, write_safetensors};
use zip::CompressionMethod;

use crate::forge::{archive, fixture, one, read, state_dict, tensor};

/// Files to start from, all small so that a mutation hits something that matters.
fn seeds() -> Vec<Vec<u8>> {
    let names = ["whole.pth", "module.pth", "legacy.pth", "object.pth", "script.pt"];
    let mut seeds: Vec<Vec<u8>> = names.map(fixture).into();
    seeds.push(one(&tensor(4, 0, &[2, 2], &[1, 2])));
    let pickle = state_dict(&tensor(4, 0, &[4], &[1]));
    let files = [("data.pkl", &pickle[..]), ("data/0", &[0; 16])];
    seeds.push(archive(&files, CompressionMethod::Deflated));
    let state = read(&fixture("module.pth")).unwrap().state;
    let arrays = || state.iter().map(|(key, _)| (key, state.array(key).unwrap().into()));
    let (mut pth, mut safetensors) = (Cursor::new(Vec::new()), Vec::new());
    write_pytorch(&mut pth, arrays(), &[("a", "b")]).unwrap();
    write_safetensors(&mut safetensors, arrays(), &[("a", "b")]).unwrap();
    seeds.extend([pth.into_inner(), safetensors]);
    seeds
}

/// Changes some bytes: flips, interesting numbers, pieces removed, doubled or taken from another
/// seed.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], rng: &mut ChaCha8Rng) {
    let mut below = |limit: usize| rng.next_u64() as usize % limit.max(1);
    for _ in 0..1 + below(6) {
        if bytes.is_empty() {
            return;
        }
        let at = below(bytes.len());
        let length = below(40).min(bytes.len() - at);
        match below(7) {
            0 => bytes[at] ^= 1 << below(8),
            1 => bytes[at] = below(256) as u8,
            2 => {
                let numbers = [0, 1, 0x7f, 0x80, 0xff, u32::MAX, i32::MAX as u32, 1 << 31, 1 << 16];
                let number = numbers[below(numbers.len())].to_le_bytes();
                let width = [1, 2, 4][below(3)].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
            3 => drop(bytes.drain(at..at + length)),
            4 => {
                let piece = bytes[at..at + length].to_vec();
                bytes.splice(at..at, piece);
            }
            5 if !other.is_empty() => {
                let from = below(other.len());
                let piece = other[from..(from + length).min(other.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => bytes.truncate(at),
        }
    }
}

/// A pickle of random operations, in an archive that is whole: damage to the zip hides the machine.
fn forged(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut pickle = state_dict(&tensor(4, 0, &[2, 2], &[1, 2]));
    let other = pickle.clone();
    mutate(&mut pickle, &other, rng);
    let files = [("data.pkl", &pickle[..]), ("data/0", &[7; 16])];
    archive(&files, CompressionMethod::Stored)
}

fn survive(time: Duration, at_least: u64) {
    let seeds = seeds();
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let (start, mut tries, mut good) = (Instant::now(), 0_u64, 0_u64);
    while tries < at_least || start.elapsed() < time {
        let bytes = if tries % 3 == 0 {
            forged(&mut rng)
        } else {
            let mut bytes = seeds[tries as usize % seeds.len()].clone();
            let other = &seeds[rng.next_u64() as usize % seeds.len()];
            mutate(&mut bytes, other, &mut rng);
            bytes
        };
        for section in [Section::Model, Section::Ema] {
            let before = Instant::now();
            match read_checkpoint(Cursor::new(&bytes), section) {
                Ok(checkpoint) => {
                    good += 1;
                    // What is made is bounded by what was given.
                    let limit = bytes.len() * 2 + (4 << 20);
                    assert!(checkpoint.state.num_elements() <= limit, "{}", bytes.len());
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(!text.contains('\n') && text.len() < 4000, "{text}");
                }
            }
            assert!(before.elapsed() < Duration::from_secs(5), "slow: {bytes:?}");
        }
        tries += 1;
    }
    println!("{tries} files in {:?}, {good} readings of them good", start.elapsed());
    assert!(good > tries / 100, "the mutations leave nothing to read");
}

#[test]
fn mutated_files_are_read_or_refused() {
    survive(Duration::ZERO, 20_000);
}

/// `VIM_FUZZ_SECONDS=600 cargo test -p vim-torch --test it -- --ignored for_long --nocapture`
#[test]
#[ignore = "as long as VIM_FUZZ_SECONDS says, 60 by default"]
fn mutated_files_are_read_or_refused_for_long() {
    let seconds = std::env::var("VIM_FUZZ_SECONDS").ok();
    let seconds = seconds.map_or(60, |seconds| seconds.parse().unwrap());
    survive(Duration::from_secs(seconds), 1);
}
