//! The command line: parse, run, map the result to an exit code.

use std::io::{self, Write as _};
use std::panic::catch_unwind;
use std::process::ExitCode;

use vim_train::cli::Cli;
use vim_train::fatal;

/// The step thread allocates and the launch thread frees; glibc's malloc contends on that
/// (docs/benchmarks.md, *The loop*), mimalloc does not.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    #[cfg(feature = "cuda")]
    point_to_cuda();
    let cli = Cli::from_command_line();
    let work = || fatal::install().and_then(|()| cli.run());
    match catch_unwind(work).unwrap_or_else(|panic| Err(fatal::error_of(&*panic))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let label = if error.is_fault() { "error: " } else { "" };
            let error_line = format!("{label}{error}");
            let lines = error.details().into_iter().chain([error_line]);
            for line in lines.chain(error.caret().map(str::to_owned)) {
                // Where stderr cannot be written, the exit code says it.
                let _ = writeln!(io::stderr(), "{line}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}

/// Sets `CUDA_PATH`, the only folder in which CubeCL then looks for the CUDA headers.
#[cfg(feature = "cuda")]
#[expect(unsafe_code, reason = "CubeCL takes the headers' place from the environment alone")]
fn point_to_cuda() {
    // Missing libraries become an error when a GPU is requested.
    if let Ok(libraries) = vim_train::device::cuda_libraries::found() {
        // SAFETY: at the start of main no other thread can read the environment.
        unsafe { std::env::set_var("CUDA_PATH", &libraries.root) };
    }
}
