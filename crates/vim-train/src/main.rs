//! The command line: parse, run, map the result to an exit code.

use std::panic::catch_unwind;
use std::process::ExitCode;

use clap::Parser;
use vim_train::cli::Cli;
use vim_train::fatal;

/// What the thread of a step allocates, the one that launches frees: with glibc's allocator the loop of training waits for its
/// locks (docs/benchmarks.md, *The loop*).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    #[cfg(feature = "cuda")]
    point_to_cuda();
    let cli = Cli::parse();
    let work = || fatal::install().and_then(|()| cli.command.run());
    match catch_unwind(work).unwrap_or_else(|panic| Err(fatal::error_of(&*panic))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            for detail in error.details() {
                eprintln!("{detail}");
            }
            eprintln!("error: {error}");
            if let Some(caret) = error.caret() {
                eprintln!("{caret}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}

/// CubeCL looks for the CUDA headers where `CUDA_PATH` says, and nowhere else where it is set.
#[cfg(feature = "cuda")]
#[expect(unsafe_code, reason = "CubeCL takes the headers' place from the environment alone")]
fn point_to_cuda() {
    // What is missing is an error once a GPU is asked for.
    if let Ok(libraries) = vim_train::device::cuda_libraries::found() {
        // SAFETY: this is the start of main, and there is no other thread that could read the environment.
        unsafe { std::env::set_var("CUDA_PATH", &libraries.root) };
    }
}
