//! `vim-train data scan`, `verify` and `pack`: the commands that go through image files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use vim_data::{
    Coco, DataConfig, DataError, EnvPaths, Images, OnProgress, PackOptions, PackReport, Pairs,
    ScanReport, Sides, SourceError, Sources, Stage, VerifyOptions, VerifyReport, open_coco,
    open_images, open_pairs, remove_abandoned,
};
use vim_run::printable;
use vim_run::signals::{Interrupted, StopRequest};

use super::labels::labels_text;
use crate::args::Overrides;
use crate::config::{Config, ConfigError};
use crate::error::Error;
use crate::output::bar::ImageBar;
use crate::output::{check_apart, print, print_json};

/// Count images and classes, and list odd files, by reading the header of every file.
#[derive(Debug, Args)]
#[command(after_help = SCAN_EXAMPLES)]
pub(crate) struct ImageArgs {
    /// Configuration file; without one, the defaults.
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// Which images.
    #[arg(long, value_enum, default_value_t)]
    part: PartChoice,
    /// Threads; left out: `data.workers`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    workers: Option<u16>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// The images that a command is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum PartChoice {
    /// All of them.
    #[default]
    #[value(alias = "both")]
    All,
    /// The training images.
    Train,
    /// The validation images.
    Val,
    /// The test images.
    Test,
}

impl PartChoice {
    /// The parts chosen, by their names; warnings go to stderr.
    ///
    /// Errors if there are no such images.
    fn of<D>(self, sources: Sources<D>) -> Result<Named<D>, Error> {
        for note in &sources.notes {
            eprintln!("note: {}", printable(note));
        }
        let wanted = match self {
            Self::All => None,
            Self::Train => Some("train"),
            Self::Val => Some("val"),
            Self::Test => Some("test"),
        };
        let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted == name);
        let parts: Named<D> = sources.parts().filter(|(name, _)| is_wanted(name)).collect();
        match (parts.is_empty(), wanted) {
            (true, Some(name)) => Err(Error::data(format!(
                "there are no {name} images of their own (data.parts): leave out --part {name}"
            ))),
            (_, _) => Ok(parts),
        }
    }
}

/// Data by the name of their part.
type Named<D> = Vec<(&'static str, D)>;

/// The data that the arguments name.
fn data_of(which: &ImageArgs) -> Result<DataConfig, Error> {
    let config = match &which.config {
        Some(path) => Config::load(path, &which.overrides.set)?,
        None => Config::from_defaults(&which.overrides.set)?,
    };
    // Ignore copies on the node-local disk.
    Ok(DataConfig { stage: Stage::Off, ..config.opened_data() })
}

/// Threads that look at the images of `data`.
fn workers(which: &ImageArgs, data: &DataConfig) -> usize {
    which.workers.map_or_else(|| data.workers.count(), usize::from)
}

/// The selected parts of a dataset of pairs.
fn pairs_of(which: &ImageArgs, data: &DataConfig) -> Result<Named<Pairs>, Error> {
    which.part.of(open_pairs(data, &EnvPaths::from_env())?)
}

/// The selected parts of a dataset with objects.
fn coco_of(which: &ImageArgs, data: &DataConfig) -> Result<Named<Coco>, Error> {
    which.part.of(open_coco(data, &EnvPaths::from_env())?)
}

/// The selected parts, and the number of threads.
fn open(which: &ImageArgs) -> Result<(Named<Images>, usize), Error> {
    let data = data_of(which)?;
    if !data.dataset.has_image_files() {
        let name: &str = data.dataset.into();
        let expected =
            "imagenet or folder: the others have no files to look at, or label maps or objects";
        return Err(ConfigError::range("data.dataset", name, expected).into());
    }
    let sources = open_images(&data, &EnvPaths::from_env())?;
    Ok((which.part.of(sources)?, workers(which, &data)))
}

const SCAN_EXAMPLES: &str = "\
Examples:
  vim-train data scan configs/vim_tiny_imagenet.toml
  vim-train data scan --set data.dataset=folder --set data.path=~/flowers --part train --json

Reads the beginning of every file, and decodes none but label maps, whose pixels are counted by class,
once, and those that have changed since. Odd are files that are no image, JPEGs of four
channels, those whose content is not what their name says, and images that do not fit their label map
or annotations; the first and the last cannot be used.";

/// `work` over every part with a bar, and the reports by the parts' names.
fn each<R>(
    command: &str,
    parts: Named<Images>,
    mut work: impl FnMut(&str, &mut Images, OnProgress<'_>) -> Result<R, DataError>,
) -> Result<BTreeMap<&'static str, R>, Error> {
    let mut reports = BTreeMap::new();
    for (name, mut images) in parts {
        let task = ImageBar::new(format!("{command} {name}"), vim_data::Dataset::len(&images));
        reports.insert(name, work(name, &mut images, &|progress| task.show(progress))?);
    }
    Ok(reports)
}

pub(super) fn scan(args: &ImageArgs) -> Result<(), Error> {
    let data = data_of(args)?;
    let reports = if data.dataset.has_objects() {
        let workers = workers(args, &data);
        let scanned = coco_of(args, &data)?.into_iter().map(|(name, coco)| {
            let task = ImageBar::new(format!("scan {name}"), vim_data::Dataset::len(coco.images()));
            Ok((name, vim_data::scan_objects(&coco, workers, &|progress| task.show(progress))?))
        });
        scanned.collect::<Result<_, Error>>()?
    } else if data.dataset.has_pairs() {
        let (workers, mut reports) = (workers(args, &data), BTreeMap::new());
        for (name, pairs) in pairs_of(args, &data)? {
            let maps = match name {
                "train" => "train label maps",
                "val" => "val label maps",
                _ => "test label maps",
            };
            let total = vim_data::Dataset::len(&pairs);
            let tasks = [name, maps].map(|name| ImageBar::new(format!("scan {name}"), total));
            let watch = tasks.each_ref().map(|task| move |progress| task.show(progress));
            let scanned = vim_data::scan_pairs(&pairs, workers, [&watch[0], &watch[1]])?;
            reports.extend([name, maps].into_iter().zip(scanned));
        }
        reports
    } else {
        let (parts, workers) = open(args)?;
        each("scan", parts, |_, images, watch| vim_data::scan(images, workers, watch))?
    };
    if args.json {
        return print_json(&reports);
    }
    reports.iter().try_for_each(|(name, report)| print(&scan_text(name, report)))
}

fn scan_text(name: &str, report: &ScanReport) -> String {
    let sides = |sides: Option<Sides>| match sides {
        Some(Sides { least, most, .. }) if least == most => format!("{least} each"),
        Some(Sides { least, mean, most }) => format!("{least} to {most}, {mean:.0} on average"),
        None => "none could be read".to_owned(),
    };
    let (fewest, most) = (&report.smallest_class, &report.largest_class);
    let mut lines = vec![
        format!("{name}  {}", report.path.display()),
        match report.classes {
            // Of label maps the images are counted.
            0 => format!("  files        {}", report.images),
            classes => format!("  images       {} of {classes} classes", report.images),
        },
    ];
    lines.extend((report.classes > 0).then(|| match (fewest.images, most.images) {
        (fewest, most) if fewest == most => format!("  per class    {fewest} each"),
        (least, greatest) => {
            format!("  per class    {least} (`{}`) to {greatest} (`{}`)", fewest.class, most.class)
        }
    }));
    lines.extend([
        format!("  bytes        {} ({})", report.bytes, decimal(report.bytes)),
        format!("  height       {}", sides(report.height)),
        format!("  width        {}", sides(report.width)),
        format!("  fingerprint  {}", report.fingerprint),
    ]);
    for (kind, count) in &report.kinds {
        lines.push(format!("  {kind:<22} {count}"));
    }
    lines.extend(report.labels.iter().flat_map(labels_text));
    for odd in &report.odd {
        lines.push(format!("  odd: {} {}", printable(&odd.name), odd.what));
    }
    lines.extend(report.notes.iter().map(|note| format!("  note: {}", printable(note))));
    lines.join("\n")
}

const VERIFY_EXAMPLES: &str = "\
Examples:
  vim-train data verify configs/vim_tiny_imagenet.toml
  vim-train data verify configs/vim_tiny_imagenet.toml --again --part val --json

Exit code 65 if an image cannot be used. Interrupted, it goes on where it was. From then on `train` and
`eval` know bad images before they begin, and the checksum of every file that is read is compared.";

/// Decode every file once, list the bad ones, and keep the verdicts and checksums with the
/// index.
#[derive(Debug, Args)]
#[command(after_help = VERIFY_EXAMPLES)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    which: ImageArgs,
    /// Look at images again that have been verified before, and take changed files as they are now.
    #[arg(long)]
    again: bool,
}

pub(super) fn verify(args: &VerifyArgs) -> Result<(), Error> {
    let data = data_of(&args.which)?;
    let reports = if data.dataset.has_objects() {
        let workers = workers(&args.which, &data);
        let verified = coco_of(&args.which, &data)?.into_iter().map(|(name, coco)| {
            let task = ImageBar::new(format!("verify {name}"), vim_data::Dataset::len(&coco));
            Ok((name, vim_data::verify_objects(&coco, workers, &|progress| task.show(progress))?))
        });
        verified.collect::<Result<_, Error>>()?
    } else if data.dataset.has_pairs() {
        let workers = workers(&args.which, &data);
        let verified = pairs_of(&args.which, &data)?.into_iter().map(|(name, pairs)| {
            let task = ImageBar::new(format!("verify {name}"), vim_data::Dataset::len(&pairs));
            Ok((name, vim_data::verify_pairs(&pairs, workers, &|progress| task.show(progress))?))
        });
        verified.collect::<Result<_, Error>>()?
    } else {
        let (parts, workers) = open(&args.which)?;
        let options = VerifyOptions { workers, again: args.again };
        each("verify", parts, |_, images, watch| vim_data::verify(images, options, watch))?
    };
    if args.which.json {
        print_json(&reports)?;
    } else {
        reports.iter().try_for_each(|(name, report)| print(&verify_text(name, report)))?;
    }
    let bad: usize = reports.values().map(|report| report.bad.len()).sum();
    let images: usize = reports.values().map(|report| report.images).sum();
    if bad == 0 {
        return Ok(());
    }
    Err(Error::data(format!(
        "{bad} of {images} images cannot be used (listed above): copy them again, or replace or remove them, \
         or mend what is annotated"
    )))
}

fn verify_text(name: &str, report: &VerifyReport) -> String {
    let VerifyReport { path, images, known, good, bytes, warned, bad, notes } = report;
    let mut lines = vec![
        format!("{name}  {}", path.display()),
        format!("  images  {images}, of which {known} were known from before"),
        format!("  read    {bytes} bytes ({})", decimal(*bytes)),
        format!("  good    {good}"),
        format!("  warned  {}", warned.len()),
        format!("  bad     {}", bad.len()),
    ];
    for (what, findings) in [("warned", warned), ("bad", bad)] {
        for finding in findings {
            lines.push(format!("  {what}: {} {}", printable(&finding.name), finding.what));
        }
    }
    lines.extend(notes.iter().map(|note| format!("  note: {}", printable(note))));
    lines.join("\n")
}

const PACK_EXAMPLES: &str = "\
Examples:
  vim-train data pack configs/vim_tiny_imagenet.toml -o /scratch/imagenet-pack
  vim-train data pack --set data.dataset=folder --set data.path=flowers -o packed --shard-size 256MiB

Writes FOLDER/train, FOLDER/val and FOLDER/test, as far as there are such parts: WebDataset shards, an index
and a summary. `data.path = FOLDER` reads them. The images are copied as they are, and their order and fingerprint stay those of the source.";

/// Copy the images into a few large tar files with an index, unchanged.
#[derive(Debug, Args)]
#[command(after_help = PACK_EXAMPLES)]
pub(crate) struct PackArgs {
    /// Where to write it.
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    #[command(flatten)]
    which: ImageArgs,
    /// Most bytes of a shard: a number, or one with KiB, MiB or GiB.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    shard_size: u64,
    /// Put the images into the shards in a random order, for programs that read them front to back.
    #[arg(long, value_name = "SEED")]
    shuffle: Option<u64>,
}

pub(super) fn pack(args: &PackArgs) -> Result<(), Error> {
    let stop = StopRequest::install().map_err(Error::io("install", "signal handlers"))?;
    let folder = &args.output;
    let (parts, _) = open(&args.which)?;
    let options = PackOptions { shard_bytes: args.shard_size, shuffle: args.shuffle };
    // A pack among the files of classes would be one more class, and beside archives what is read
    // in their place.
    let read = parts.iter().map(|(name, images)| match images.location(0).member {
        None => images.root().to_owned(),
        Some(_) => images.root().join(name),
    });
    let read: Vec<PathBuf> = read.collect();
    // Check all parts first: one takes hours.
    for (name, _) in &parts {
        let path = folder.join(name);
        check_apart(&path, &read)?;
        if path.exists() {
            return Err(DataError::from(SourceError::Exists(path)).into());
        }
    }
    for (name, _) in &parts {
        for left in remove_abandoned(&folder.join(name))? {
            let left = left.display();
            eprintln!("note: removed {left}, which a pack that was killed had left");
        }
    }
    // From here on a signal ends the copying, and what was copied is removed.
    stop.defer();
    let mut done = Vec::new();
    let packed = each("pack", parts, |name, images, watch| {
        let (path, is_stopped) = (folder.join(name), || stop.get().is_some());
        let report = vim_data::pack(images, &path, options, watch, &is_stopped)?;
        done.push(path);
        Ok(report)
    });
    if let (Err(_), Some(stop)) = (&packed, stop.get()) {
        for path in done {
            eprintln!("note: {} is complete: --part names the other", path.display());
        }
        return Err(Interrupted { stop }.into());
    }
    let reports = packed?;
    if args.which.json {
        return print_json(&reports);
    }
    reports.iter().try_for_each(|(name, report)| {
        let PackReport { images, shards, classes, fingerprint, .. } = report;
        let bytes: u64 = shards.iter().map(|shard| shard.bytes).sum();
        print(&format!(
            "{name}  {}\n  images       {images} of {} classes\n  shards       {}, {}\n  fingerprint  {fingerprint}",
            folder.join(name).display(),
            classes.len(),
            shards.len(),
            decimal(bytes),
        ))
    })
}

/// A size in decimal units, with two digits behind the point.
fn decimal(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1_000_000 => (1e3, "kB"),
        1_000_000..1_000_000_000 => (1e6, "MB"),
        1_000_000_000.. => (1e9, "GB"),
    };
    format!("{:.2} {name}", bytes as f64 / unit)
}

/// `4096`, `256MiB` and the like.
fn size(text: &str) -> Result<u64, String> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("", 1)];
    let parsed = units.iter().find_map(|&(unit, bytes): &(&str, u64)| {
        let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        number.checked_mul(bytes).filter(|&size| size > 0)
    });
    parsed.ok_or_else(|| "expected a size such as `512MiB` or `1GiB`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [("1", 1), ("2KiB", 2048), ("3 MiB", 3 << 20), ("1GiB", 1 << 30)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "0", "GiB", "-1", "1GB", "1.5GiB", "99999999999999GiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
