//! `results.html`: what a run came to, on a page that needs no network.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, SystemTime};

use vim_data::{InputKind, read_input};
use vim_run::checkpoint::Weights;
use vim_run::storage::replace;
use vim_run::{ExitReason, PER_CLASS, PREDICTIONS, RESULTS, rfc3339};
use vim_sweep::PLAN;
use vim_sweep::classes::ClassScores;
use vim_sweep::predictions::Predictions;
use vim_sweep::report::{ClassScore, Gallery, Results};

use super::Trainer;
use super::environment::Environment;
use super::history::History;
use super::recorder::Lead;
use crate::config::{Config, ResultsPage, dotted_values, in_toml};
use crate::device::threads;
use crate::error::Error;
use crate::fatal;
use crate::output::picture::fitted;
use crate::output::summary::{duration, rate};
use crate::task::classes::readable;
use crate::task::{Pictures, Task};

/// Most pictures of a page.
const PICTURES: usize = 40;
/// Most bytes of a page.
const BYTES: usize = 1_900_000;

/// Whether a run of `config` that ended by `reason`, after `limit` steps at most, has a page.
pub(super) fn is_wanted(config: &Config, limit: Option<u64>, reason: ExitReason) -> bool {
    // The runs of a sweep lie in its folder, and its report shows them together.
    let is_of_sweep = || config.run.root.join(PLAN).is_file();
    match (config.run.page, reason) {
        (ResultsPage::Auto, ExitReason::Finished) => limit.is_none() && !is_of_sweep(),
        (ResultsPage::Always, ExitReason::Finished | ExitReason::Paused) => true,
        (ResultsPage::Auto | ResultsPage::Always | ResultsPage::Never, _) => false,
    }
}

impl<T: Task> Trainer<'_, T> {
    /// Makes the page. A run has its result: a failure is a warning.
    pub(super) fn write_page(&self) {
        let Some(lead) = &self.lead else { return };
        let path = lead.run.path().join(RESULTS);
        let make = || -> Result<(), Error> {
            let page = self.page(lead)?;
            lead.run.check()?;
            let written = replace(&*lead.run.storage(), &path, page.as_bytes());
            written.map_err(Error::io("write", &path))
        };
        let made = catch_unwind(AssertUnwindSafe(make));
        match made.unwrap_or_else(|panic| Err(fatal::error_of(&*panic))) {
            Ok(()) => self.log.line(format!("results {}", path.display())),
            Err(error) => self.log.line(format!("warning: no {RESULTS} is made: {error}")),
        }
    }

    fn page(&self, lead: &Lead<'_, T>) -> Result<String, Error> {
        let folder = lead.run.path();
        let mut results = self.results(folder)?;
        let own = lead.tested.is_none().then(|| self.train.weights(Weights::Model));
        let model = lead.tested.as_ref().map(|(model, _)| model).or(own.as_ref());
        let model = model.ok_or_else(|| Error::internal("a page without a model"))?;
        let galleries = self.task.galleries(model, &self.device.clone().inner(), folder)?;
        results.galleries = in_bytes(galleries, BYTES.saturating_sub(results.html().len()))?;
        Ok(results.html())
    }

    /// All but the pictures.
    fn results(&self, folder: &Path) -> Result<Results, Error> {
        let (config, primary) = (self.config, T::PRIMARY);
        let history = History::read(folder, &mut Vec::new());
        let shown = |value: Option<f64>| value.map(|score| primary.show(score));
        let best = self.train.counters.best;
        let seconds = Duration::try_from_secs_f64(history.seconds).unwrap_or_default();
        let tested = self.lead.as_ref().and_then(|lead| lead.tested.as_ref());
        let tested = tested.map_or_else(String::new, |(_, images)| format!("{images} "));
        let numbers = [
            (shown(self.test_score), format!("{} of the {tested}test images", primary.label)),
            (
                shown(best.map(|best| best.metric)),
                format!("best {} of the validation images", primary.label),
            ),
            (self.last_loss.map(|loss| format!("{loss:.4}")), "training loss, last".to_owned()),
            (history.median_speed.map(rate), "images a second, median".to_owned()),
            (Some(duration(seconds)), "of training".to_owned()),
        ];
        let (factor, unit) = if primary.is_share { (100.0, ", %") } else { (1.0, "") };
        let score = history.score_curve().into_iter().map(|(step, score)| (step, factor * score));
        let title = format!("{} {}{unit}", history.split().name(), primary.label);
        let values = dotted_values(config);
        let dataset = values.get("data.dataset").and_then(toml::Value::as_str);
        let environment = Environment::of_this_process("", threads::count(), self.total_steps);
        let commit = environment.commit.unwrap_or("not known");
        let fact = |name: &str, value: String| (name.to_owned(), value);
        let mut results = Results {
            name: config.run_name()?,
            lead: format!(
                "{} on {}, {} of {} steps",
                config.model.method_label(),
                dataset.unwrap_or("images"),
                self.step(),
                self.total_steps
            ),
            numbers: numbers.into_iter().filter_map(|(value, what)| Some((value?, what))).collect(),
            curves: vec![
                ("training loss".to_owned(), history.loss.points()),
                (title, score.collect()),
            ],
            facts: vec![
                fact("folder", folder.display().to_string()),
                fact("command", environment.command.join(" ")),
                fact("page made", rfc3339(SystemTime::now())),
                fact("on", environment.host),
                fact("vim-train", format!("{} ({commit})", environment.version)),
            ],
            configuration: values
                .iter()
                .map(|(key, value)| (key.clone(), in_toml(value)))
                .collect(),
            ..Results::default()
        };
        let read = |name: &str| match read_input(&folder.join(name), InputKind::Record) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("read", folder.join(name))(error)),
        };
        let damaged = |why: String| Error::data(format!("a table of the run is damaged: {why}"));
        if let Some(bytes) = read(PREDICTIONS)? {
            let predictions = Predictions::parse(&bytes).map_err(damaged)?;
            add_predictions(&mut results, readable(self.task.class_names()), &predictions);
        }
        if let Some(bytes) = read(PER_CLASS)? {
            let ClassScores { measure, names, scores } =
                ClassScores::parse(&bytes).map_err(damaged)?;
            let scored = names.into_iter().zip(scores);
            results.measure = measure.name().to_owned();
            results.classes = scored.map(|(name, score)| ClassScore { name, score }).collect();
        }
        Ok(results)
    }
}

/// Adds the accuracy of each of the classes called `names`, and their confusions.
fn add_predictions(results: &mut Results, names: Vec<String>, said: &Predictions) {
    let mut counts = std::collections::BTreeMap::<(usize, usize), u64>::new();
    // Images and right answers of each class; one without an answer is wrong.
    let mut classes = vec![(0_u64, 0_u64); names.len()];
    let class = |number: u64| usize::try_from(number).ok().filter(|class| *class < names.len());
    for (image, predicted) in said.images.iter().zip(&said.predicted) {
        let Some(label) = class(image.label) else { continue };
        classes[label].0 += 1;
        if let Some(predicted) = predicted.and_then(class) {
            classes[label].1 += u64::from(predicted == label);
            *counts.entry((label, predicted)).or_default() += 1;
        }
    }
    let score = |(images, right): (u64, u64)| (images > 0).then(|| right as f64 / images as f64);
    let scored = names.iter().zip(classes);
    results.classes = scored
        .map(|(name, counts)| ClassScore { name: name.clone(), score: score(counts) })
        .collect();
    results.measure = "accuracy".to_owned();
    results.confusion = counts.into_iter().map(|((row, column), n)| (row, column, n)).collect();
    results.names = names;
}

/// The galleries with the first [`PICTURES`] pictures, which together take no more than `room`
/// bytes.
fn in_bytes(galleries: Vec<Pictures>, room: usize) -> Result<Vec<Gallery>, Error> {
    let all: usize = galleries.iter().map(|pictures| pictures.images.len()).sum();
    let mut left = all.min(PICTURES);
    let each = room / left.max(1);
    let mut shown = Vec::new();
    for Pictures { title, note, legend, images } in galleries {
        let mut pictures = Vec::new();
        for (name, pixels, lines) in images.into_iter().take(left) {
            // A name and what is said take some, too.
            let words = 200 + name.len() * 2 + lines.iter().map(String::len).sum::<usize>();
            let picture = fitted(&pixels, each.saturating_sub(words))?;
            pictures.extend(picture.map(|uri| (name, uri, lines)));
        }
        left -= pictures.len();
        shown.push(Gallery { title: title.to_owned(), note, legend, pictures });
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use vim_data::Pixels;

    use super::*;

    #[test]
    fn a_page_is_of_what_a_run_did_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.run.root = folder.path().to_owned();
        let (finished, paused) = (ExitReason::Finished, ExitReason::Paused);
        assert!(is_wanted(&config, None, finished));
        assert!(!is_wanted(&config, Some(9), finished) && !is_wanted(&config, None, paused));
        std::fs::write(folder.path().join(PLAN), "").unwrap();
        assert!(!is_wanted(&config, None, finished), "of a sweep");
        config.run.page = ResultsPage::Always;
        assert!(is_wanted(&config, Some(9), finished) && is_wanted(&config, Some(9), paused));
        assert!(!is_wanted(&config, None, ExitReason::Interrupted));
        config.run.page = ResultsPage::Never;
        assert!(!is_wanted(&config, None, finished));
    }

    #[test]
    fn many_large_pictures_fit() {
        let mut state = 1_u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let pixels =
            Pixels { height: 300, width: 400, data: (0..360_000).map(|_| noise()).collect() };
        let images = vec![("a name".to_owned(), pixels, vec!["words".to_owned()]); 50];
        let pictures = Pictures { title: "t", note: String::new(), legend: Vec::new(), images };
        let shown = in_bytes(vec![pictures.clone(), pictures], BYTES).unwrap();
        let sizes: Vec<usize> =
            shown.iter().flat_map(|one| &one.pictures).map(|picture| picture.1.len()).collect();
        assert_eq!(sizes.len(), PICTURES);
        assert!(sizes.iter().sum::<usize>() < BYTES, "{sizes:?}");
    }

    #[test]
    fn images_without_an_answer_are_wrong() {
        let text = "index,image,label,predicted\n0,a,1,1\n1,b,1,\n2,c,0,1\n";
        let said = Predictions::parse(text.as_bytes()).unwrap();
        let mut results = Results::default();
        let names = ["cat", "dog", "newt"].map(str::to_owned).to_vec();
        add_predictions(&mut results, names, &said);
        let scores: Vec<Option<f64>> = results.classes.iter().map(|class| class.score).collect();
        assert_eq!(scores, [Some(0.0), Some(0.5), None]);
        assert_eq!(results.confusion, [(0, 1, 1), (1, 1, 1)]);
    }
}
