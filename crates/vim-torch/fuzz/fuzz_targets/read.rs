//! Any bytes end in arrays or in an error of one line, in bounded time and memory.
//!
//! `cargo +nightly fuzz run read -- -max_total_time=600 -rss_limit_mb=512` in `crates/vim-torch`;
//! the files in `tests/fixtures` are good seeds: `cp tests/fixtures/* fuzz/corpus/read/`.

#![no_main]

use std::io::{Cursor, Write};

use libfuzzer_sys::fuzz_target;
use vim_torch::{Section, read_checkpoint};
use zip::write::{SimpleFileOptions, ZipWriter};

fn read(bytes: &[u8]) {
    for section in [Section::Model, Section::Ema] {
        match read_checkpoint(Cursor::new(bytes), section) {
            Ok(checkpoint) => assert!(checkpoint.state.num_elements() <= bytes.len() * 2 + (4 << 20)),
            Err(error) => assert!(!error.to_string().contains('\n')),
        }
    }
}

/// An archive whose pickle is `bytes`: the fuzzer cannot guess a zip's checksums.
fn archive(bytes: &[u8]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, content) in [("a/data.pkl", bytes), ("a/data/0", &[7; 16])] {
        zip.start_file(name, options).expect("a new name");
        zip.write_all(content).expect("memory");
    }
    zip.finish().expect("memory").into_inner()
}

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    read(&archive(bytes));
});
