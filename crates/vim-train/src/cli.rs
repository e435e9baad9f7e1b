//! The command line.

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    bench, completions, config, data, doctor, eval, eval_golden, export, flops, import, methods,
    models, predict, profile, runs, slurm, sweep, train, verify,
};
use crate::error::Error;

/// Train Vision Mamba under six discretizations, from a TOML file.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
    0  done
    1  the run failed, or a check of verify, doctor or eval-golden did; config diff found a difference
    2  bad command line
   65  data, a checkpoint or a script missing, damaged or unfit
   69  device not available, or lost; SLURM not available, or a job refused
   70  internal error
   71  the device ran out of memory
   73  the run folder is in use, or holds or awaits a run already; a file to be written is there already
   74  a file cannot be read or written
   75  interrupted and saved: the same command with --resume auto goes on
   76  training diverged
   78  bad configuration
  130  Ctrl-C, saved

Results go to stdout, everything else to stderr. An error is one line: what, where, what to do.";

/// A subcommand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a model, or go on with a run that was interrupted.
    Train(train::TrainArgs),
    /// Compile beforehand all that a run on a GPU compiles at its first step.
    Warmup(train::WarmupArgs),
    /// Train many runs from one file: every method with every seed, and a table and a page of what
    /// came of it.
    #[command(subcommand)]
    Sweep(sweep::SweepCommand),
    /// Evaluate a checkpoint of a run: loss, top-1 and top-5 accuracy.
    Eval(eval::EvalArgs),
    /// Classify images: the likeliest classes by name.
    Predict(predict::PredictArgs),
    /// Read a checkpoint of PyTorch: check it, say what it is, keep it in this program's format.
    Import(import::ImportArgs),
    /// Write weights as PyTorch's, under the original's names.
    Export(export::ExportArgs),
    /// Check, show and compare configurations, and make them of the original's scripts.
    Config(config::ConfigArgs),
    /// Look after the images: scan, check, pack, time and show them.
    #[command(subcommand)]
    Data(data::DataCommand),
    /// Look at runs: list them, show one, compare several.
    #[command(subcommand)]
    Runs(runs::RunsCommand),
    /// Submit runs to SLURM, and look after their jobs.
    #[command(subcommand)]
    Slurm(slurm::SlurmCommand),
    /// List the discretizations.
    Methods(methods::MethodsArgs),
    /// List the named models: parameters, multiply-adds, input size, and the original's names for
    /// them.
    Models(models::ModelsArgs),
    /// Count parameters, multiply-adds and operations of a model, by component.
    Flops(flops::FlopsArgs),
    /// Compare a checkpoint of the original with arrays that the original computed with it.
    EvalGolden(eval_golden::EvalGoldenArgs),
    /// Check every method and implementation on a device against loops in f64.
    Verify(verify::VerifyArgs),
    /// Check this machine: CPU, GPU, libraries, kernels, disks, SLURM; each line says what to do.
    Doctor(doctor::DoctorArgs),
    /// Time the scan, the operations that a layer is made of, or a step of training by its phases.
    Profile(profile::ProfileArgs),
    /// Time whole models: inference and training steps over batch sizes, for each method.
    Bench(bench::BenchArgs),
    /// Print completions for a shell.
    Completions(completions::CompletionsArgs),
    /// Write manual pages, one for each command.
    Man(completions::ManArgs),
}

impl Command {
    /// Runs the command.
    pub fn run(&self) -> Result<(), Error> {
        match self {
            Self::Train(args) => train::run(args),
            Self::Warmup(args) => train::warmup(args),
            Self::Sweep(args) => sweep::run(args),
            Self::Eval(args) => eval::run(args),
            Self::Import(args) => import::run(args),
            Self::Export(args) => export::run(args),
            Self::Predict(args) => predict::run(args),
            Self::Config(args) => config::run(args),
            Self::Data(args) => data::run(args),
            Self::EvalGolden(args) => eval_golden::run(args),
            Self::Runs(args) => runs::run(args),
            Self::Slurm(args) => slurm::run(args),
            Self::Methods(args) => methods::run(args),
            Self::Models(args) => models::run(args),
            Self::Flops(args) => flops::run(args),
            Self::Verify(args) => verify::run(args),
            Self::Doctor(args) => doctor::run(args),
            Self::Profile(args) => profile::run(args),
            Self::Bench(args) => bench::run(args),
            Self::Completions(args) => completions::completions(args, &mut Cli::command()),
            Self::Man(args) => completions::man(args, Cli::command()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
