//! `vim-train new`: a configuration for images that are there.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf, absolute};
use std::time::{Duration, Instant};

use clap::Args;
use toml::Table;
use vim_engine::Error;
use vim_engine::config::{Config, ConfigError, Origin, Problem};
use vim_engine::device::{self, SelectedDevice, threads};
use vim_engine::output::summary::{duration, rate};
use vim_engine::output::{check_apart, check_free, check_no_input, print, say};
use vim_engine::program;
use vim_engine::run_folder::check_nameable;
use vim_engine::task::kinds::cost;
use vim_engine::task::own::recipe::{
    FOR_STEPS, Plan, Rung, Start, configuration, plan, rungs, wanted,
};
use vim_engine::task::own::survey::Survey;
use vim_engine::train::dry_run::TIMED;
use vim_engine::train::estimate::speed;
use vim_engine::weights::place::Place;
use vim_engine::weights::source::WeightsSource;
use vim_model::{SsmConfig, VimConfig, infer};
use vim_run::printable;
use vim_run::storage::write_file;

use crate::args::DeviceArg;

const EXAMPLES: &str = "\
Examples:
  vim-train new photos                          look at photos/, and write photos.toml
  vim-train train photos.toml                   train by it: about ten minutes here
  vim-train new photos --init vim_t_midclstok_76p1acc.pth    fine-tune published weights
  vim-train new photos -o mine.toml --minutes 60 --device cuda

It looks for objects, label maps and classes, in every layout of docs/data.md, chooses a model by the sizes of the
images and the speed of this machine, which it measures for at most 20 s (on a GPU after compiling), and says what it
found in the file's first lines. docs/own-pictures.md goes on from there.";

/// Write a configuration for your own images: a recipe for their number and sizes that ends in
/// about ten minutes here.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct NewArgs {
    /// The images: a folder or an archive.
    #[arg(value_name = "FOLDER")]
    path: PathBuf,
    /// File to write; left out: the folder's name with `.toml`, where you stand.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write over the file if it is there.
    #[arg(long)]
    force: bool,
    /// Weights to fine-tune: a file, a run or a checkpoint. The model is theirs.
    #[arg(long, value_name = "WEIGHTS")]
    init: Option<PathBuf>,
    /// How many minutes training may take here, about.
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    minutes: u16,
    #[command(flatten)]
    device: DeviceArg,
}

pub(crate) fn run(args: &NewArgs) -> Result<(), Error> {
    // Links stay; behind one, `..` is not the folder above it.
    let has_up = args.path.components().any(|part| part == Component::ParentDir);
    let path = if has_up { args.path.canonicalize() } else { absolute(&args.path) };
    let path = path.map_err(Error::io("find", &args.path))?;
    check_nameable(&path)?;
    let name = name_of(&path);
    let output = args.output.clone().unwrap_or_else(|| format!("{name}.toml").into());
    check_free(&output, args.force)?;
    check_apart(&output, std::slice::from_ref(&path))?;
    let place = |weights: &PathBuf| Place::find(weights, &Config::default().run.root, None);
    let place = args.init.as_ref().map(place).transpose()?;
    let read = place.as_ref().map(Place::inputs).unwrap_or_default();
    check_no_input(&output, read.iter().map(PathBuf::as_path))?;
    let survey = Survey::of(&path)?;
    say(&survey.describe());
    survey.notes.iter().for_each(|note| say(&format!("note: {note}")));
    let devices = Config::from_defaults(&args.device.over(&[]))?.devices;
    threads::start(devices.threads)?;
    let device = device::choose(&devices)?;
    let start = match args.init.as_ref().zip(place.as_ref()) {
        Some((weights, place)) => start_of(weights, place)?,
        None => Start::Scratch,
    };
    let subject = Subject { survey: &survey, start: &start, device: &device, name: &name };
    let (rung, plan, speed) = subject.choose(Duration::from_secs(60 * u64::from(args.minutes)))?;
    let text = configuration(&survey, &start, rung, plan, &name)?;
    let on = args.device.device.as_ref().map(|device| format!(" --device {device}"));
    let command = command_line("train", [output.as_os_str()]) + &on.unwrap_or_default();
    let called: Vec<OsString> = env::args_os().skip(2).collect();
    let called = command_line("new", called.iter().map(OsString::as_os_str));
    let time = match (speed, plan.takes) {
        (Some(speed), Some(takes)) => {
            let speed = rate(speed);
            format!("about {} on {}, by {speed} img/s as measured", duration(takes), device.name)
        }
        (_, _) => format!("not known on {}: no step ended within the time for it", device.name),
    };
    let mut about = vec![
        format!("Written by vim-train {}: {}", program::VERSION, called),
        String::new(),
        format!("Found:     {}", survey.describe()),
        format!("Time:      {time}"),
        format!("Command:   {command}"),
        format!("Then:      vim-train predict IMAGE --checkpoint {name}-s0"),
    ];
    if matches!(start, Start::Scratch) && survey.is_of_classes() {
        about.push(format!(
            "Better:    from published weights, where there are few images: {} --init WEIGHTS \
             (docs/own-pictures.md)",
            command_line("new", [args.path.as_os_str()])
        ));
    }
    // One line each, whatever a folder is called.
    let about: String = about
        .iter()
        .map(|line| format!("# {}", printable(line)).trim_end().to_owned() + "\n")
        .collect();
    // Measuring takes a while.
    check_free(&output, args.force)?;
    write_file(&output, format!("{about}\n{text}").as_bytes())?;
    say(&format!("{time}:"));
    // Whole, to be copied.
    eprintln!("{command}");
    print(&output.display().to_string())
}

/// The error of a folder of images in place of a configuration: what `new` would do with it.
pub(crate) fn in_place_of(folder: &Path) -> Error {
    let (shown, name) = (folder.display(), name_of(&absolute(folder).unwrap_or_default()));
    let found = match Survey::of(folder) {
        Ok(survey) => survey.describe(),
        Err(error) => format!("a folder, in which no images to train on are found ({error})"),
    };
    let problem = Problem::Type(format!(
        "{found}; a configuration is a file: `vim-train new {shown}` writes {name}.toml, and \
         `vim-train train {name}.toml` trains by it"
    ));
    let origin = Origin::File { path: folder.to_owned(), position: None };
    ConfigError::new("", problem).at(origin).into()
}

/// A name for runs and files, of what the folder or archive is called.
fn name_of(path: &Path) -> String {
    let stem = if path.is_dir() { path.file_name() } else { path.file_stem() };
    let stem = stem.unwrap_or_default().to_string_lossy();
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
    let name: String =
        stem.chars().map(|letter| if is_plain(letter) { letter } else { '-' }).collect();
    let name = name.trim_start_matches(['.', '-']);
    if name.is_empty() { "images".to_owned() } else { name.to_owned() }
}

/// `vim-train COMMAND …`, to be copied into a shell.
fn command_line<'a>(command: &str, words: impl IntoIterator<Item = &'a OsStr>) -> String {
    let mut line = format!("vim-train {command}");
    for word in words {
        let word = word.display().to_string();
        // No argument of a process holds a NUL, the one character that cannot be quoted.
        line = format!("{line} {}", shlex::try_quote(&word).unwrap_or(word.as_str().into()));
    }
    line
}

/// The model of `weights`, found at `place`, which the configuration describes anew.
fn start_of(weights: &Path, place: &Place) -> Result<Start, Error> {
    let source = WeightsSource::open(place, None)?;
    let (model, ssm) = match &source.recorded {
        Some(recorded) => (recorded.model.effective(), recorded.ssm),
        None => {
            let found = infer(&source.arrays.state);
            let found = found.map_err(|error| Error::data(format!("{}: {error}", source.name)))?;
            found
                .assumed
                .iter()
                .for_each(|one| say(&format!("note: assumed: {} {}", one.key, one.value)));
            (found.config.effective(), SsmConfig::default())
        }
    };
    // A path as it is found from anywhere; the name of a run stays one.
    let init = if weights.exists() { absolute(weights) } else { Ok(weights.to_owned()) };
    let init = init.map_err(Error::io("find", weights))?;
    check_nameable(&init)?;
    let mut of_model = different(&model, &VimConfig::default().effective())?;
    for own in ["image_size", "preset"] {
        of_model.remove(own);
    }
    let sections = Box::new([of_model, different(&ssm, &SsmConfig::default())?]);
    let (patch, size, depth) = (model.patch_size, model.image_size.height, model.depth);
    Ok(Start::Weights { init: init.display().to_string(), sections, patch, size, depth })
}

/// The keys of `value` that are not as in `default`.
fn different<T: serde::Serialize>(value: &T, default: &T) -> Result<Table, Error> {
    let table = |value: &T| {
        let table = Table::try_from(value);
        table.map_err(|error| Error::internal(format!("a section has no TOML form: {error}")))
    };
    let (mut own, default) = (table(value)?, table(default)?);
    own.retain(|key, value| default.get(key) != Some(value));
    Ok(own)
}

/// What a recipe is chosen for.
struct Subject<'a> {
    survey: &'a Survey,
    start: &'a Start,
    device: &'a SelectedDevice,
    name: &'a str,
}

impl Subject<'_> {
    fn plan(&self, speed: Option<f64>, limit: Duration) -> Plan {
        plan(self.survey, self.start, self.device.is_cpu(), speed, limit)
    }

    fn config(&self, rung: Rung, plan: Plan) -> Result<Config, Error> {
        let text = configuration(self.survey, self.start, rung, plan, self.name)?;
        Ok(Config::from_toml(&text)?)
    }

    /// The largest model that sees enough images within `limit`, how long it trains, and its speed.
    /// That of the smallest is measured, which predicts the others, of which one is measured again.
    fn choose(&self, limit: Duration) -> Result<(Rung, Plan, Option<f64>), Error> {
        let rungs = rungs(self.survey, self.start);
        let (Some(&smallest), Some(&largest)) = (rungs.first(), rungs.last()) else {
            let side = self.survey.side;
            return Err(Error::data(format!("no recipe is for images of {side} px alone")));
        };
        let (begun, any) = (Instant::now(), self.plan(None, limit));
        let measured = |rung, limit| -> Result<Option<f64>, Error> {
            let config = self.config(rung, any)?;
            speed(&config, self.device, limit)
        };
        let macs = |rung| -> Result<f64, Error> {
            Ok(cost(&self.config(rung, any)?, self.survey.classes.len())?.macs() as f64)
        };
        let Some(slow) = measured(smallest, TIMED / 3)? else {
            // A GPU on which no step ends soon is waiting for images, not for the model.
            let rung = if self.device.is_cpu() { smallest } else { largest };
            return Ok((rung, any, None));
        };
        let seen = |speed: f64| speed * limit.as_secs_f64() * FOR_STEPS;
        let (enough, base) = (wanted(self.survey, self.start), macs(smallest)?);
        for &rung in rungs.iter().skip(1).rev() {
            let predicted = slow * base / macs(rung)?;
            let left = TIMED.saturating_sub(begun.elapsed());
            if seen(predicted) < enough || left.is_zero() {
                continue;
            }
            if let Some(speed) = measured(rung, left)?
                && seen(speed) >= enough
            {
                return Ok((rung, self.plan(Some(speed), limit), Some(speed)));
            }
        }
        Ok((smallest, self.plan(Some(slow), limit), Some(slow)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_runs_and_files() {
        for (path, expected) in [
            ("/data/photos", "photos"),
            ("/data/my photos {2}", "my-photos--2-"),
            ("/data/bilder-ä.tar", "bilder-ä"),
            ("/", "images"),
            ("/data/.hidden", "hidden"),
        ] {
            assert_eq!(name_of(Path::new(path)), expected, "{path}");
        }
    }
}
