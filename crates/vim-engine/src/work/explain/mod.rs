//! Pictures of what trained models look at.

mod look;
mod page;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use burn::module::Module as _;
use strum::{EnumString, IntoStaticStr, VariantArray};
use vim_data::{Exif, read_whole_picture};
use vim_model::{Recorder, Vim};
use vim_run::printable;

use super::features::blocks;
use super::images::{ModelOptions, images};
use crate::error::Error;
use crate::output::{check_distinct, check_free, print};
use crate::task::backends::{self, Work};
use crate::task::explained::{Aim, Explained};
use crate::task::kinds::with_task;
use crate::task::named::NamedTask;
use crate::task::trained::Subject;
use look::{Looked, look, receptive_field};
use page::Page;

/// What is explained, of which models, and where it goes.
#[derive(Debug)]
pub struct Explain {
    /// Images, and folders of images.
    pub images: Vec<PathBuf>,
    /// The models that look at them.
    pub models: Vec<ModelOptions>,
    /// The folder.
    pub output: PathBuf,
    /// What of an image is explained.
    pub aim: Aim,
    /// The class, by name or number; `None`: the likeliest.
    pub class: Option<String>,
    /// What is drawn; all if nothing is named.
    pub draw: Vec<Map>,
    /// Blocks whose attention is meant, counted from 0, or from -1 backwards; all if none is named.
    pub layers: Vec<i64>,
    /// Images, and folders of images, of whose gradients the effective receptive field is the mean.
    pub erf: Vec<PathBuf>,
    /// Write over files that are there.
    pub force: bool,
}

/// A kind of map.
#[derive(Clone, Copy, Debug, EnumString, IntoStaticStr, VariantArray, PartialEq, Eq)]
#[strum(serialize_all = "lowercase")]
pub enum Map {
    /// The hidden attention of each layer and direction.
    Attention,
    /// That of all layers, one after the other.
    Rollout,
    /// Grad-CAM of a class.
    Cam,
}

impl Explain {
    fn draws(&self, map: Map) -> bool {
        self.draw.is_empty() || self.draw.contains(&map)
    }
}

/// The page in the folder.
const PAGE: &str = "explain.html";

/// Looks at the images, and writes the pictures, the arrays and the page.
pub fn run(asked: &Explain) -> Result<(), Error> {
    let (paths, erf) = (images(&asked.images)?, images(&asked.erf)?);
    // A file that is none is told before the work.
    for path in paths.iter().chain(&erf) {
        read_whole_picture(path, Exif::Ignore)?;
    }
    let subjects: Result<Vec<Subject>, Error> =
        asked.models.iter().map(ModelOptions::find).collect();
    let subjects = subjects?;
    fs::create_dir_all(&asked.output).map_err(Error::io("make", &asked.output))?;
    let file = asked.output.join(PAGE);
    check_free(&file, asked.force)?;
    let mut page = Page::new(&asked.output, &paths);
    let labels = labels(asked.models.iter().map(|model| &*model.checkpoint));
    for ((options, subject), label) in asked.models.iter().zip(&subjects).zip(&labels) {
        with_task!(subject.task, T => {
            explain::<T>(asked, options, subject, label, [&paths, &erf], &mut page)?;
        });
    }
    page.write(&file)?;
    print(&format!("wrote {}", file.display()))
}

/// Looks at the images by one of the models.
fn explain<T: NamedTask>(
    asked: &Explain,
    options: &ModelOptions,
    subject: &Subject,
    label: &str,
    [paths, erf]: [&[PathBuf]; 2],
    page: &mut Page,
) -> Result<(), Error> {
    let (described, mut remarks) = options.describe::<T>(subject)?;
    let classes = subject.class_names::<T>(None, &described, &mut remarks)?;
    let class = asked.class.as_deref().map(|class| class_of(class, &classes)).transpose()?;
    let chosen = options.device(subject.given.as_ref())?;
    backends::check(subject.task, Work::Predict, &chosen)?;
    let device = chosen.device.autodiff();
    let mut model = options.load::<T>(subject, &described, classes, &device)?;
    let plain = model.backbone().clone().no_grad();
    let depth = model.last_block() + 1;
    let every: Vec<i64> = (0..depth as i64).collect();
    let layers = blocks(depth, if asked.layers.is_empty() { &every } else { &asked.layers })?;
    // Of blocks that come in pairs the last two are one.
    let pairs = plain.config().layer_pairs;
    let recorder = Recorder::cut_before(if pairs { depth - 2 } else { depth - 1 });
    *model.backbone_mut() = plain.clone().with_recorder(&recorder)?;

    let named = |path: &Path| page::files(asked, path, label, &layers, ways(&plain));
    let folder = asked.output.as_path();
    check_distinct([folder].into_iter(), paths, asked.force, |path| {
        named(path).into_iter().map(|name| folder.join(name)).collect()
    })?;
    let erf_files = page::erf_files(label).map(|name| folder.join(name));
    if !erf.is_empty() {
        erf_files.iter().try_for_each(|file| check_free(file, asked.force))?;
    }
    let method = plain.config().method_label();
    let suffix = remarks.suffix();
    for (number, path) in paths.iter().enumerate() {
        let image = read_whole_picture(path, model.exif())?;
        let looked = look(asked, &model, &recorder, &image, class, &layers)?;
        page.add(asked, (number, path), [label, &method], &looked)?;
        print(&said(path, label, &looked, &suffix))?;
    }
    if !erf.is_empty() {
        let read = |path: &PathBuf| read_whole_picture(path, model.exif());
        let field = receptive_field(&model, &plain, erf.iter().map(read))?;
        page.add_erf([label, &method], erf.len(), &field, plain.config())?;
    }
    Ok(())
}

/// Directions of each mixer.
fn ways(model: &Vim) -> usize {
    1 + usize::from(model.layers.iter().any(|layer| layer.mixer.backward.is_some()))
}

/// A line for people.
fn said(path: &Path, label: &str, looked: &Looked, suffix: &str) -> String {
    let Looked { class: (number, name), score, .. } = looked;
    let path = printable(&path.display().to_string()).into_owned();
    format!("{path}  {label}: {name} ({number}), logit {score:.3}{suffix}")
}

/// The class called `asked`, or numbered so.
fn class_of(asked: &str, classes: &[String]) -> Result<usize, Error> {
    let number = || asked.parse().ok().filter(|&number: &usize| number < classes.len());
    let found = classes.iter().position(|name| name == asked).or_else(number);
    found.ok_or_else(|| {
        let first: Vec<&str> = classes.iter().take(5).map(String::as_str).collect();
        let more = if classes.len() > first.len() { ", …" } else { "" };
        Error::usage(format!(
            "--class {asked}: the model knows 0 to {} and {}{more}",
            classes.len().saturating_sub(1),
            first.join(", ")
        ))
    })
}

/// What the models are called in names of files: after their runs' folders or their files, each
/// once.
fn labels<'a>(paths: impl Iterator<Item = &'a Path>) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let name = |path: &Path| {
        let within = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            ["checkpoints", "best", "last"].contains(&&*name) || name.starts_with("step-")
        };
        let run = path.ancestors().find(|path| !within(path)).unwrap_or(path);
        let is_weights = |end: &str| ["pth", "pt", "safetensors"].contains(&end);
        let ends = run.extension().and_then(|end| end.to_str()).is_some_and(is_weights);
        let name = if ends { run.file_stem() } else { run.file_name() };
        name.unwrap_or_else(|| "model".as_ref()).to_string_lossy().into_owned()
    };
    let mut once = |name: String| {
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.clone()).chain(numbered);
        names.find(|name| taken.insert(name.clone())).unwrap_or(name)
    };
    paths.map(|path| once(name(path))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_called_after_their_runs_each_once() {
        let paths = ["runs/zoh-s0/checkpoints/best", "zoh-s0", "x/lr1.5", "vim.pth", "a/step-9"];
        let found = labels(paths.iter().map(Path::new));
        assert_eq!(found, ["zoh-s0", "zoh-s0-2", "lr1.5", "vim", "a"]);
    }

    #[test]
    fn a_class_has_a_name_or_a_number() {
        let classes = ["cat", "1", "dog"].map(str::to_owned);
        assert_eq!(["dog", "0", "1"].map(|of| class_of(of, &classes).unwrap()), [2, 0, 1]);
        let said = class_of("3", &classes).unwrap_err();
        assert_eq!(said.to_string(), "--class 3: the model knows 0 to 2 and cat, 1, dog");
        assert_eq!(said.exit_code(), 2);
    }
}
