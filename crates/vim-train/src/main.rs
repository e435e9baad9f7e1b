//! `vim-train`: see [`vim_train::cli`].

use std::process::ExitCode;

use vim_train::cli::{Cli, main_of};

/// The step thread allocates and the launch thread frees; glibc's malloc contends on that
/// (docs/benchmarks.md, *The loop*), mimalloc does not.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    main_of(Cli::run)
}
