//! The report of a sweep: one HTML file without scripts or network requests.

mod bars;
mod classes;
mod curves;
mod differences;
mod figure;
mod results;
mod scatter;
mod sections;
mod warnings;

use figure::Figure;
use vim_chart::{SeriesStyle, escape};

use crate::classes::ClassDifferences;
use crate::differences::Differences;
use crate::grid::has;
use crate::metric::Metric;
use crate::outcome::{RunOutcome, RunState};
use crate::statistics::{LEVEL, sample};
use crate::summary::{Group, Summary};
use crate::table::{baseline, legend, verdict};

pub use differences::SHOWN;
pub use results::{ClassScore, Gallery, Results};
pub use warnings::warnings;

/// The content of a report.
pub struct Page<'a> {
    /// The sweep's name.
    pub name: &'a str,
    /// Its summary.
    pub summary: &'a Summary,
    /// Its runs.
    pub outcomes: &'a [RunOutcome],
    /// The images that they differ on.
    pub differences: &'a Differences,
    /// Pictures of the first [`SHOWN`] of these as data URIs, where there are any.
    pub thumbnails: &'a [Option<String>],
    /// The classes that they differ on, in place of images, in segmentation and detection.
    pub classes: Option<&'a ClassDifferences>,
    /// The command that writes a run's predictions, or scores of classes.
    pub predict: &'a str,
    /// The key whose values have fixed colours.
    pub coloured: &'a str,
    /// Its values, in the order of the colours.
    pub colours: &'a [String],
    /// Keys that must be equal in all runs.
    pub must_match: &'a [String],
    /// Whether a key has no influence on results.
    pub is_free: &'a dyn Fn(&str) -> bool,
    /// Formats seconds.
    pub duration: &'a dyn Fn(f64) -> String,
    /// Its origin.
    pub provenance: Provenance,
}

/// The origin of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The sweep's folder.
    pub folder: String,
    /// The planned configuration file.
    pub source: String,
    /// The command that planned it.
    pub command: String,
    /// The time of planning.
    pub planned: String,
    /// The time of the report.
    pub made: String,
    /// The machine of the report.
    pub host: String,
    /// The program's version and commit.
    pub version: String,
}

/// Forbids all network requests, whatever the page contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// The report's figures as SVG files that need nothing else, each with its name without extension.
pub fn figures(page: &Page<'_>) -> Vec<(&'static str, String)> {
    View::new(page).documents()
}

/// Renders the report.
pub fn html(page: &Page<'_>) -> String {
    let view = View::new(page);
    let parts = [
        view.header(),
        view.tiles(),
        view.warnings(),
        view.result(),
        page.classes.map_or_else(|| view.differences(), |found| view.classes(found)),
        view.curves(),
        view.cost(),
        view.configuration(),
        view.runs(),
        view.footer(),
    ];
    document(page.name, &parts.join("\n"))
}

/// A page that needs nothing from elsewhere, in the reports' style; `body` is HTML.
pub fn document(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <link rel=\"icon\" href=\"data:,\"><title>{title}</title>\n<style>\n{}</style></head>\n\
         <body><main>\n{body}\n</main></body></html>\n",
        include_str!("style.css")
    )
}

/// A number worth a tile, as HTML, and what it is.
fn tile(value: &str, what: &str) -> String {
    format!("<div class=\"tile\"><b>{value}</b><span>{}</span></div>", escape(what))
}

/// A list of names and values.
fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let fact =
        |(name, value)| format!("<dt>{}</dt><dd><code>{}</code></dd>", escape(name), escape(value));
    let facts: String = facts.into_iter().map(fact).collect();
    format!("<dl class=\"facts\">{facts}</dl>")
}

/// A picture, a data URI, called `name`, and `inside` as HTML below it; many make a `gallery`.
pub fn card(name: &str, picture: &str, inside: &str) -> String {
    let name = escape(name);
    format!(
        "<figure><img alt=\"{name}\" src=\"{}\"><figcaption><code>{name}</code>{inside}\
         </figcaption></figure>\n",
        escape(picture)
    )
}

/// A report with its metric and the styles of its groups.
struct View<'a> {
    page: &'a Page<'a>,
    metric: Metric,
    styles: Vec<SeriesStyle>,
}

impl<'a> View<'a> {
    fn new(page: &'a Page<'a>) -> Self {
        View { page, metric: page.summary.metric, styles: styles(page) }
    }

    fn groups(&self) -> impl Iterator<Item = (&'a Group, SeriesStyle)> {
        self.page.summary.groups.iter().zip(self.styles.iter().copied())
    }

    /// The runs of a group.
    fn runs_of(&self, group: &Group) -> impl Iterator<Item = &RunOutcome> {
        self.page.outcomes.iter().filter(|run| has(&run.assignments, &group.assignments))
    }

    fn header(&self) -> String {
        let Provenance { made, source, .. } = &self.page.provenance;
        format!(
            "<header><p class=\"kicker\">Sweep of {}</p><h1>{}</h1><p class=\"lead\">{}: {}. Made \
             {}.</p></header>",
            escape(source),
            escape(self.page.name),
            escape(&self.metric.title()),
            escape(&self.page.summary.choice),
            escape(made)
        )
    }

    fn tiles(&self) -> String {
        let (all, groups) = (self.page.outcomes.len(), &self.page.summary.groups);
        let finished =
            self.page.outcomes.iter().filter(|run| run.state == RunState::Finished).count();
        let seeds = groups.iter().map(|group| group.planned).max().unwrap_or(0);
        let seconds: f64 = self.page.outcomes.iter().map(|run| run.seconds).sum();
        let plural = |count: usize, word: &str| {
            format!("{count} {word}{}", if count == 1 { "" } else { "s" })
        };
        let mut tiles = tile(
            &format!("{finished} <small>of {all}</small>"),
            &format!(
                "runs finished: {} × {}",
                plural(groups.len(), "setting"),
                plural(seeds, "seed")
            ),
        );
        if let Some(baseline) = baseline(self.page.summary)
            && self.page.summary.has_pairs()
        {
            let comparisons = groups.iter().filter_map(|group| group.comparison.as_ref());
            let shown = comparisons.filter(|comparison| comparison.is_shown()).count();
            tiles.push_str(&tile(
                &format!("{shown} <small>of {}</small>", self.page.summary.comparisons),
                &format!(
                    "comparisons with {baseline} that show a difference, by a p (Holm) below \
                     {LEVEL}"
                ),
            ));
        }
        tiles.push_str(&tile(
            &escape(&(self.page.duration)(seconds)),
            "of training, all runs together",
        ));
        format!("<div class=\"tiles\">{tiles}</div>")
    }

    fn warnings(&self) -> String {
        let warnings = warnings(self.page.outcomes, self.page.must_match, self.page.is_free);
        if warnings.is_empty() {
            return "<p class=\"fine\">All runs are finished, on the same resources and from one \
                    build; the keys of <code>sweep.must_match</code> are equal.</p>"
                .to_owned();
        }
        let items: Vec<String> =
            warnings.iter().map(|warning| format!("<li>{}</li>", escape(warning))).collect();
        format!("<div class=\"warn\"><h3>Read with care</h3><ul>{}</ul></div>", items.concat())
    }

    fn bars(&self) -> Figure {
        let summary = self.page.summary;
        bars::draw(&summary.groups, &self.styles, self.metric, baseline(summary).as_deref())
    }

    fn result(&self) -> String {
        let summary = self.page.summary;
        let figure = self.bars().on_page();
        let verdict = verdict(summary)
            .map_or_else(String::new, |verdict| format!("<p>{}</p>", escape(&verdict)));
        format!(
            "<section><h2>Result</h2>{verdict}<p class=\"note\">Bars: mean over seeds, or a mark \
             where the axis does not begin at 0; black: ± one sample standard deviation; open \
             circles: every seed. Differences are paired by seed; bold are those that are \
             shown.</p><div class=\"wide\">{figure}</div><div class=\"wide\">{}</div><p \
             class=\"note\">{}</p></section>",
            self.result_table(),
            escape(&legend(summary))
        )
    }

    fn curves(&self) -> String {
        let legend = self
            .groups()
            .map(|(group, style)| format!("<li>{}{}</li>", style.swatch(), escape(&group.label)));
        let figure = |(_, title, figure): (&str, String, Figure)| {
            format!("<figure><h3>{}</h3>{}</figure>", escape(&title), figure.on_page())
        };
        let (courses, without) = self.courses();
        let figures: String = courses.into_iter().map(figure).collect();
        let without = without.map_or_else(String::new, |title| {
            format!("<p class=\"note\">No run has records of {}.</p>", escape(&title))
        });
        format!(
            "<section><h2>Curves</h2><p class=\"note\">Mean over finished runs, or over all where \
             none is finished, and a band of one sample standard deviation; a single run has no \
             band. A curve ends where its shortest run does.</p>\
             <ul class=\"legend\">{}</ul><div class=\"pair\">{figures}</div>{without}</section>",
            legend.collect::<String>()
        )
    }

    /// The curves of the metric and of the training loss, whole and their second halves, where they
    /// are close together: each with the name of its file and its title. And the metric's title if
    /// no run has any, as of runs that evaluate nothing while they train.
    fn courses(&self) -> (Vec<(&'static str, String, Figure)>, Option<String>) {
        let metric = self.metric.course(self.page.outcomes);
        let of_metric = self.means(&|run| metric.curve(run));
        let title = format!("{}{}", metric.title(), metric.unit());
        let is_missing = of_metric.iter().all(|curve| curve.points.is_empty());
        let without = is_missing.then(|| metric.title());
        let of_metric = (["curves", "curves-second-half"], title, metric.factor(), of_metric);
        let mut all = if is_missing { vec![] } else { vec![of_metric] };
        if metric.to_string() != "train/loss" {
            let names = ["loss", "loss-second-half"];
            let losses = self.means(&|run| run.losses.clone());
            all.push((names, "training loss".to_owned(), 1.0, losses));
        }
        let both = |([whole, half], title, factor, means): ([_; 2], String, f64, Vec<_>)| {
            let mut letters = title.chars();
            let first = letters.next().into_iter().flat_map(char::to_uppercase);
            let capital: String = first.chain(letters).collect();
            let second = curves::draw(&means, &format!("{title}, second half"), factor, 0.5);
            [
                (whole, capital.clone(), curves::draw(&means, &title, factor, 0.0)),
                (half, format!("{capital}: the second half"), second),
            ]
        };
        (all.into_iter().flat_map(both).collect(), without)
    }

    /// A curve for every group.
    fn means(&self, curve: &dyn Fn(&RunOutcome) -> Vec<(f64, f64)>) -> Vec<curves::Curve> {
        let mean = self.groups().map(|(group, style)| {
            let (finished, others): (Vec<&RunOutcome>, Vec<&RunOutcome>) =
                self.runs_of(group).partition(|run| run.state == RunState::Finished);
            let runs = if finished.is_empty() { others } else { finished };
            let points = curves::mean(&runs.into_iter().map(curve).collect::<Vec<_>>());
            curves::Curve { style, points }
        });
        mean.collect()
    }

    /// The result over the speed.
    fn speed(&self) -> Figure {
        let point = |(group, style): (&'a Group, SeriesStyle)| {
            let finished = self.runs_of(group).filter(|run| run.state == RunState::Finished);
            let speeds: Vec<f64> = finished.filter_map(|run| run.images_per_second).collect();
            let (speed, result) = (sample(&speeds)?, group.sample?);
            Some(scatter::Point { label: &group.label, style, speed, result })
        };
        scatter::draw(&self.groups().filter_map(point).collect::<Vec<_>>(), self.metric)
    }

    fn cost(&self) -> String {
        format!(
            "<section><h2>Cost</h2><div class=\"pair\"><figure><h3>{}{} over training \
             speed</h3>{}</figure><div><h3>Computed with</h3>{}<p class=\"note\">Speed is a run's \
             median over its records, without evaluations; lines are ± one sample standard \
             deviation over seeds. Speeds of runs that shared a machine, or ran on different ones, \
             do not compare.</p></div></div></section>",
            escape(&self.metric.title()),
            self.metric.unit(),
            self.speed().on_page(),
            self.machines()
        )
    }

    fn footer(&self) -> String {
        let from = &self.page.provenance;
        let facts = facts([
            ("folder", from.folder.as_str()),
            ("planned from", &from.source),
            ("planned by", &from.command),
            ("planned", &from.planned),
            ("page made", &from.made),
            ("on", &from.host),
            ("vim-train", &from.version),
        ]);
        format!("<footer><h3>Where this is from</h3>{facts}</footer>")
    }
}

/// The styles of the groups. Where the coloured key distinguishes them, its value's index in the
/// list chooses the style, so that a method has the same colour in every report.
fn styles(page: &Page<'_>) -> Vec<SeriesStyle> {
    let groups = &page.summary.groups;
    let place = |group: &Group| {
        let run = page.outcomes.iter().find(|run| has(&run.assignments, &group.assignments))?;
        let value = run.assignments.get(page.coloured).or_else(|| run.values.get(page.coloured))?;
        page.colours.iter().position(|name| Some(name.as_str()) == value.as_str())
    };
    let places: Option<Vec<usize>> = groups.iter().map(place).collect();
    let are_distinct = |places: &Vec<usize>| {
        places.iter().enumerate().all(|(number, place)| !places[..number].contains(place))
    };
    let places = places.filter(are_distinct).unwrap_or_else(|| (0..groups.len()).collect());
    places.into_iter().map(SeriesStyle::new).collect()
}

#[cfg(test)]
mod tests;
