//! A run's folder and a picture in, a class name out:
//!
//! `cargo run --release -p vim-engine --example classify -- data/runs/photos cat.jpg`

use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (run, picture) =
        arguments.next().zip(arguments.next()).ok_or("name a run and a picture")?;
    let trained = vim_engine::load(run)?;
    for said in trained.notes.iter().chain(&trained.remarks.assumed) {
        eprintln!("note: {said}");
    }
    for guess in trained.classifier()?.classify(picture)?.likeliest(1) {
        println!("{} ({:.2} %)", guess.name, 100.0 * guess.probability);
    }
    Ok(())
}
