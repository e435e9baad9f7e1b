//! The command line: parse, run, map the result to an exit code.

use std::panic::catch_unwind;
use std::process::ExitCode;

use clap::Parser;
use vim_train::Error;
use vim_train::cli::{Cli, Command};
use vim_train::commands::{
    bench, completions, config as config_command, data, doctor, eval, eval_golden, export, flops,
    import, methods, models, predict, profile, runs, slurm, sweep, train, verify,
};
use vim_train::fatal;

/// What the thread of a step allocates, the one that launches frees: with glibc's allocator the loop of training waits for its
/// locks (docs/benchmarks.md, *The loop*).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    #[cfg(feature = "cuda")]
    point_to_cuda();
    let cli = Cli::parse();
    let work = || fatal::install().and_then(|()| run(&cli.command));
    match catch_unwind(work).unwrap_or_else(|panic| Err(Error::from_panic(&*panic))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            for detail in error.details() {
                eprintln!("{detail}");
            }
            eprintln!("error: {error}");
            if let Error::Config(config) = &error
                && let Some(caret) = &config.caret
            {
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

fn run(command: &Command) -> Result<(), Error> {
    match command {
        Command::Train(args) => train::run(args),
        Command::Warmup(args) => train::warmup(args),
        Command::Sweep(args) => sweep::run(args),
        Command::Eval(args) => eval::run(args),
        Command::Import(args) => import::run(args),
        Command::Export(args) => export::run(args),
        Command::Predict(args) => predict::run(args),
        Command::Config(args) => config_command::run(args),
        Command::Data(args) => data::run(args),
        Command::EvalGolden(args) => eval_golden::run(args),
        Command::Runs(args) => runs::run(args),
        Command::Slurm(args) => slurm::run(args),
        Command::Methods(args) => methods::run(args),
        Command::Models(args) => models::run(args),
        Command::Flops(args) => flops::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Completions(args) => completions::completions(args),
        Command::Man(args) => completions::man(args),
    }
}
