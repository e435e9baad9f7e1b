//! One module for each command: its arguments, and what it does with them.

mod bench;
mod completions;
mod config;
mod data;
mod doctor;
mod eval;
mod explain;
mod export;
mod features;
mod flops;
mod images;
mod import;
mod methods;
mod models;
mod new;
mod predict;
mod profile;
mod runs;
mod slurm;
mod sweep;
mod train;
mod verify;

use clap::Subcommand;
use vim_engine::Error;

/// A command. Its help is the documentation of its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(alias = "init")]
    New(new::NewArgs),
    /// Train a model, or go on with a run that was interrupted.
    #[command(alias = "fit")]
    Train(train::TrainArgs),
    /// Compile beforehand all that a run on a GPU compiles at its first step.
    Warmup(train::WarmupArgs),
    #[command(subcommand)]
    Sweep(sweep::SweepCommand),
    #[command(aliases = ["test", "evaluate", "validate"])]
    Eval(eval::EvalCommandArgs),
    #[command(alias = "infer")]
    Predict(predict::PredictArgs),
    Features(features::FeaturesArgs),
    Explain(explain::ExplainArgs),
    Import(import::ImportArgs),
    Export(export::ExportArgs),
    Config(config::ConfigArgs),
    #[command(subcommand)]
    Data(data::DataCommand),
    #[command(subcommand)]
    Runs(runs::RunsCommand),
    #[command(subcommand)]
    Slurm(slurm::SlurmCommand),
    Methods(methods::MethodsArgs),
    Models(models::ModelsArgs),
    Flops(flops::FlopsArgs),
    Verify(verify::VerifyArgs),
    Doctor(doctor::DoctorArgs),
    Profile(profile::ProfileArgs),
    Bench(bench::BenchArgs),
    Completions(completions::CompletionsArgs),
    Man(completions::ManArgs),
    // What other programs call things, without a line of help.
    #[command(hide = true)]
    Resume(train::TrainArgs),
    #[command(hide = true, alias = "plot")]
    Compare(runs::CompareArgs),
    #[command(hide = true)]
    List(runs::ListArgs),
}

impl Command {
    /// Runs the command; `program` is the definition of the command line.
    pub(crate) fn run(&self, program: clap::Command) -> Result<(), Error> {
        match self {
            Self::New(args) => new::run(args),
            Self::Train(args) => train::run(args),
            Self::Warmup(args) => train::warmup(args),
            Self::Sweep(command) => sweep::run(command),
            Self::Eval(args) => eval::run(args),
            Self::Predict(args) => predict::run(args),
            Self::Features(args) => features::run(args),
            Self::Explain(args) => explain::run(args),
            Self::Import(args) => import::run(args),
            Self::Export(args) => export::run(args),
            Self::Config(args) => config::run(args),
            Self::Data(command) => data::run(command),
            Self::Runs(command) => runs::run(command),
            Self::Slurm(command) => slurm::run(command),
            Self::Methods(args) => methods::run(args),
            Self::Models(args) => models::run(args),
            Self::Flops(args) => flops::run(args),
            Self::Verify(args) => verify::run(args),
            Self::Doctor(args) => doctor::run(args),
            Self::Profile(args) => profile::run(args),
            Self::Bench(args) => bench::run(args),
            Self::Completions(args) => completions::completions(args, program),
            Self::Man(args) => completions::man(args, program),
            Self::Resume(args) => train::resume(args),
            Self::Compare(args) => runs::compare(args),
            Self::List(args) => runs::list(args),
        }
    }
}
