//! `predict` of a detection: objects with boxes and masks, and pictures of them.

use std::path::{Path, PathBuf};

use serde::Serialize;
use vim_data::mask_ops::{Rle, rle_to_string};
use vim_data::{Pixels, encode_png, read_whole_picture};
use vim_run::printable;
use vim_run::storage::{Disk, replace};

use super::PredictArgs;
use super::output::prepare;
use crate::commands::images::{Subject, Walk};
use crate::error::Error;
use crate::output::{print, print_json};
use crate::task::Objective;
use crate::task::detection::inference::{Seen, Viewer};
use crate::task::detection::{FoundObject, FoundObjects, ObjectDetector, SHOWN};

/// What is found in an image.
#[derive(Serialize)]
struct Answer {
    /// Its file.
    image: String,
    /// Its height and width.
    size: [usize; 2],
    /// The surest first.
    objects: Vec<Object>,
}

/// An object with its mask as COCO's files have it.
#[derive(Serialize)]
struct Object {
    #[serde(flatten)]
    found: FoundObject,
    segmentation: Segmentation,
}

/// Run lengths as text.
#[derive(Serialize)]
struct Segmentation {
    size: [usize; 2],
    counts: String,
}

pub(super) fn run(args: &PredictArgs, paths: &[PathBuf], subject: &Subject) -> Result<(), Error> {
    if args.output.is_some() {
        return Err(Error::failed(
            "--output has a class for each image, and this is a detection: use --drawn FOLDER for \
             pictures, or --json for boxes and masks",
        ));
    }
    let Some(config) = subject.around() else {
        return Err(Error::internal("a detection without a configuration"));
    };
    let names = subject.dense_names(args.classes.as_deref())?;
    let colours = config.data.class_colours(&names);
    if let Some(folder) = &args.drawn {
        let file = |path: &Path| vec![drawn_file(folder, path)];
        prepare([folder.as_path()].into_iter(), paths, args.force, file)?;
    }
    let chosen = args.model.device(subject.given.as_ref())?;
    let objective = ObjectDetector::new(config, names.len())?;
    let (model, _) = subject.source.load_detector(objective.init(&chosen.device)?)?;
    if let Some(note) = &subject.source.note {
        eprintln!("note: {note}");
    }
    let viewer = Viewer { statistics: config.data.statistics() };
    let mut walk = Walk::new(paths.len(), args.json);
    let mut answers = Vec::new();
    for paths in paths.chunks(args.model.batch) {
        let read: Vec<_> = paths.iter().map(|path| read_whole_picture(path)).collect();
        let images: Vec<&Pixels> = read.iter().flatten().collect();
        let seen = match images.is_empty() {
            true => Vec::new(),
            false => viewer.seen(&model, &images, &chosen.device)?,
        };
        let mut seen = seen.iter();
        for (path, image) in paths.iter().zip(&read) {
            let image = match image {
                Ok(image) => image,
                Err(why) => {
                    walk.leave_out(&why.to_string());
                    continue;
                }
            };
            let seen = seen.next().ok_or_else(|| Error::internal("an image was lost"))?;
            if let Some(folder) = &args.drawn {
                let file = drawn_file(folder, path);
                let drawn = seen.drawn(image, &names, &colours, args.least.unwrap_or(SHOWN));
                let written = encode_png(&drawn).and_then(|bytes| replace(&Disk, &file, &bytes));
                written.map_err(Error::io("write", &file))?;
            }
            let least = args.least.unwrap_or(if args.json { 0.0 } else { SHOWN });
            let found = found(seen, &names, least);
            let name = path.display().to_string();
            if args.json {
                answers.push(answer(name, seen, found));
            } else {
                let shown = FoundObjects::from(found);
                print(&format!("{}\n{shown}", printable(&name)))?;
            }
        }
        walk.advance(paths.len());
    }
    walk.hide();
    if args.json {
        print_json(&answers)?;
    }
    walk.end()
}

/// The picture of the image at `path`.
fn drawn_file(folder: &Path, path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    folder.join(format!("{stem}_objects.png"))
}

/// The objects whose score is at least `least`.
fn found(seen: &Seen, names: &[String], least: f32) -> Vec<FoundObject> {
    let chosen = (0..seen.len()).take_while(|&at| seen.scores[at] >= least);
    let object = |at: usize| {
        let (class, score, corners) = (seen.classes[at], seen.scores[at], seen.boxes[at]);
        FoundObject::new(class, names, score, corners, Some(seen.area(at)))
    };
    chosen.map(object).collect()
}

fn answer(image: String, seen: &Seen, found: Vec<FoundObject>) -> Answer {
    let [h, w] = seen.size.map(|side| side as u32);
    let object = |(at, found): (usize, FoundObject)| {
        let counts = rle_to_string(&Rle { h, w, counts: seen.runs[at].clone() });
        Object { found, segmentation: Segmentation { size: seen.size, counts } }
    };
    let objects = found.into_iter().enumerate().map(object).collect();
    Answer { image, size: seen.size, objects }
}
