//! `vim-golden`: compares vim-train with arrays that the original programs computed. For its
//! developers: docs/testing.md says how such arrays are made.

mod check;
mod eval;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use vim_engine::Error;
use vim_engine::device::cuda_libraries::point_to_cuda;
use vim_engine::fatal::exit_code_of;

/// As vim-train has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compare vim-train with arrays that the original programs computed.
///
/// Exit codes are vim-train's; 1 means that something is off by more than its tolerance.
#[derive(Debug, Parser)]
#[command(version)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    EvalGolden(eval::EvalGoldenArgs),
    CheckGolden(check::CheckGoldenArgs),
}

fn main() -> ExitCode {
    point_to_cuda();
    let program = Program::parse();
    exit_code_of(|| run(&program))
}

fn run(program: &Program) -> Result<(), Error> {
    match &program.command {
        Command::EvalGolden(args) => eval::run(args),
        Command::CheckGolden(args) => check::run(args),
    }
}
