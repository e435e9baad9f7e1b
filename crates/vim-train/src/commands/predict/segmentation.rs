//! `predict` of a segmentation: label maps, overlays, and the classes that cover most.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use vim_comm::Comm;
use vim_data::dense_ops::{encode_grey, encode_palette, overlay};
use vim_data::{Pixels, encode_png, read_whole_picture};
use vim_run::printable;
use vim_run::storage::{Disk, replace};

use super::PredictArgs;
use super::output::prepare;
use crate::commands::images::{Subject, Walk};
use crate::error::Error;
use crate::output::{print, print_json};
use crate::task::Objective;
use crate::task::segmentation::inference::Viewer;
use crate::task::segmentation::{ClassShares, PixelClassifier};

/// Number of class 0 in a submission.
const FIRST: u8 = 1;

/// What the model says of an image.
#[derive(Serialize)]
struct Answer {
    /// Its file.
    image: String,
    /// The classes that cover most of it.
    classes: ClassShares,
}

pub(super) fn run(args: &PredictArgs, paths: &[PathBuf], subject: &Subject) -> Result<(), Error> {
    if args.output.is_some() {
        return Err(Error::failed(
            "--output has a class for each image, and this is a segmentation: use --maps FOLDER, \
             or --json for the classes that cover most of each image",
        ));
    }
    let Some(config) = subject.around() else {
        return Err(Error::internal("a segmentation without a configuration"));
    };
    let names = subject.dense_names(args.classes.as_deref())?;
    let colours = config.data.class_colours(&names);
    let outputs = Outputs::new(args, paths)?;
    let chosen = args.model.device(subject.given.as_ref())?;
    let objective = PixelClassifier::new(config, names.len(), &Comm::single())?;
    let (model, _) = subject.source.load_segmenter(objective.init(&chosen.device)?)?;
    if let Some(note) = &subject.source.note {
        eprintln!("note: {note}");
    }
    let statistics = config.data.statistics();
    let viewer = Viewer { recipe: config.pairs(), statistics, multi_scale: args.multi_scale };
    let mut walk = Walk::new(paths.len(), args.json);
    let mut answers = Vec::new();
    for path in paths {
        match read_whole_picture(path) {
            Ok(image) => {
                let labels = viewer.labels(&model, &image, &chosen.device)?;
                outputs.write(path, &image, &labels, &colours)?;
                let each = labels.iter().map(|&label| usize::from(label));
                let classes = ClassShares::of(each, &names, args.top as usize);
                let image = path.display().to_string();
                if !args.json {
                    print(&format!("{}\n{classes}", printable(&image)))?;
                }
                answers.push(Answer { image, classes });
            }
            Err(why) => walk.leave_out(&why.to_string()),
        }
        walk.advance(1);
    }
    walk.hide();
    if args.json {
        print_json(&answers)?;
    }
    walk.end()
}

/// The folders that label maps go to.
struct Outputs<'a> {
    maps: Option<&'a Path>,
    submission: Option<&'a Path>,
}

impl<'a> Outputs<'a> {
    /// Makes the folders, and checks that no two files would be one and none is there.
    fn new(args: &'a PredictArgs, paths: &[PathBuf]) -> Result<Self, Error> {
        let outputs = Self { maps: args.maps.as_deref(), submission: args.submission.as_deref() };
        let folders = [outputs.maps, outputs.submission];
        prepare(folders.into_iter().flatten(), paths, args.force, |path| outputs.files(path))?;
        Ok(outputs)
    }

    /// What is written of an image.
    fn files(&self, image: &Path) -> Vec<PathBuf> {
        let stem = image.file_stem().unwrap_or_default().to_string_lossy();
        let named = |folder: &Path, end: &str| folder.join(format!("{stem}{end}"));
        let maps = self.maps.map(|folder| [named(folder, ".png"), named(folder, "_overlay.png")]);
        let submission = self.submission.map(|folder| named(folder, ".png"));
        maps.into_iter().flatten().chain(submission).collect()
    }

    fn write(
        &self,
        path: &Path,
        image: &Pixels,
        labels: &[u8],
        colours: &[[u8; 3]],
    ) -> Result<(), Error> {
        let size = [image.height, image.width];
        let mut contents: Vec<io::Result<Vec<u8>>> = Vec::new();
        if self.maps.is_some() {
            contents.push(encode_palette(labels, size, colours));
            contents.push(encode_png(&overlay(image, labels, colours)));
        }
        if self.submission.is_some() {
            let numbered: Vec<u8> =
                labels.iter().map(|label| label.saturating_add(FIRST)).collect();
            contents.push(encode_grey(&numbered, size));
        }
        for (file, content) in self.files(path).into_iter().zip(contents) {
            let written = content.and_then(|bytes| replace(&Disk, &file, &bytes));
            written.map_err(Error::io("write", &file))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_after_the_image() {
        let outputs = Outputs { maps: Some(Path::new("m")), submission: Some(Path::new("s")) };
        let files = outputs.files(Path::new("a/b.c.jpg"));
        assert_eq!(files, ["m/b.c.png", "m/b.c_overlay.png", "s/b.c.png"].map(PathBuf::from));
    }
}
