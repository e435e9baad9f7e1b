//! The command line: parse, run, map the result to an exit code.

use std::panic::catch_unwind;
use std::process::ExitCode;

use clap::Parser;
use vim_train::Error;
use vim_train::cli::{Cli, Command};
use vim_train::{
    data, eval, eval_golden, export, fatal, flops, import, methods, models, predict, profile,
    show_config, train, verify,
};

fn main() -> ExitCode {
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

fn run(command: &Command) -> Result<(), Error> {
    match command {
        Command::Train(args) => train::run(args),
        Command::Eval(args) => eval::run(args),
        Command::Import(args) => import::run(args),
        Command::Export(args) => export::run(args),
        Command::Predict(args) => predict::run(args),
        Command::Config(args) => show_config::run(args),
        Command::Data(args) => data::run(args),
        Command::EvalGolden(args) => eval_golden::run(args),
        Command::Methods(args) => methods::run(args),
        Command::Models(args) => models::run(args),
        Command::Flops(args) => flops::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Profile(args) => profile::run(args),
    }
}
