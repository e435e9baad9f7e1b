//! Classifies images or their pixels, or finds objects.

use std::path::PathBuf;

use serde::Serialize;
use vim_run::printable;
use vim_run::storage::{Disk, replace};

use super::images::{ModelOptions, Walk, images};
use crate::error::Error;
use crate::output::{check_free, check_no_input, print, print_json};
use crate::task::backends::{self, Work};
use crate::task::kinds::with_task;
use crate::task::named::{NamedTask, PredictOptions, check_flags};
use crate::task::trained::Subject;
use crate::weights::provenance::Remarks;

/// What is looked at, by what, and how it is told.
#[derive(Debug)]
pub struct Predict {
    /// Images, and folders of images.
    pub images: Vec<PathBuf>,
    /// The model that looks at them.
    pub model: ModelOptions,
    /// A file with the names of the classes, one a line.
    pub classes: Option<PathBuf>,
    /// What is printed and written.
    pub options: PredictOptions,
}

/// Looks at the images, prints the answers and writes the files asked for.
pub fn run(asked: &Predict) -> Result<(), Error> {
    asked.options.format()?;
    if let Some(path) = &asked.options.output {
        check_free(path, asked.options.force)?;
    }
    let paths = images(&asked.images)?;
    let subject = asked.model.find()?;
    if let Some(path) = &asked.options.output {
        let read = asked.model.inputs(&subject);
        let read = read.iter().chain(&paths).chain(&asked.classes);
        check_no_input(path, read.map(PathBuf::as_path))?;
    }
    with_task!(subject.task, T => predict::<T>(asked, &paths, &subject))
}

fn predict<T: NamedTask>(
    asked: &Predict,
    paths: &[PathBuf],
    subject: &Subject,
) -> Result<(), Error> {
    let options = &asked.options;
    check_flags::<T>(&options.given())?;
    let (described, mut remarks) = asked.model.describe::<T>(subject)?;
    let classes = subject.class_names::<T>(asked.classes.as_deref(), &described, &mut remarks)?;
    let chosen = asked.model.device(subject.given.as_ref())?;
    backends::check(subject.task, Work::Predict, &chosen)?;
    let trained = asked.model.load::<T>(subject, &described, classes, &chosen.device)?;
    // Last, as it makes folders.
    T::check_files(options, paths)?;
    let mut predict = T::predictor(trained, options)?;
    let is_text = options.output.is_none() && !options.json;
    let suffix = remarks.suffix();
    if is_text && !suffix.is_empty() {
        print(&format!("weights {}{suffix}", subject.source.name))?;
    }
    // Lines of text show the progress themselves.
    let mut walk = Walk::new(paths.len(), !is_text);
    let mut answers = Vec::new();
    for paths in paths.chunks(asked.model.batch.unwrap_or(T::PREDICTED_AT_A_TIME)) {
        for (path, answer) in paths.iter().zip(predict(paths)?) {
            match answer {
                Ok(answer) if is_text => {
                    print(&format!("{}\n{answer}", printable(&path.display().to_string())))?;
                }
                Ok(answer) => answers.push(answer),
                Err(why) => walk.leave_out(&why),
            }
        }
        walk.advance(paths.len());
    }
    walk.hide();
    if let (Some(path), Some(format)) = (&options.output, options.format()?) {
        let weights = subject.source.summary() + &suffix;
        let bytes = T::table(format, &answers, &weights)?;
        replace(&Disk, path, &bytes).map_err(Error::io("write", path))?;
        if !options.json {
            print(&format!("wrote {}, images {}", path.display(), answers.len()))?;
        }
    }
    if options.json {
        #[derive(Serialize)]
        struct Remarked<'a, A> {
            #[serde(flatten)]
            answer: &'a A,
            #[serde(flatten)]
            remarks: &'a Remarks,
        }
        let remarked =
            answers.iter().map(|answer| Remarked { answer, remarks: &remarks }).collect::<Vec<_>>();
        print_json(&remarked)?;
    }
    walk.end()
}
