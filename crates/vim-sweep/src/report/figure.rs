//! A figure of a page, which is also a file of its own.

use vim_chart::{SeriesStyle, document, figure, legend_of, text};

use super::View;

/// A figure.
pub(super) struct Figure {
    pub(super) width: f64,
    pub(super) height: f64,
    /// What it shows, for screen readers.
    pub(super) label: String,
    /// Its elements.
    pub(super) body: String,
}

impl Figure {
    /// For the page, whose style it has.
    pub(super) fn on_page(&self) -> String {
        figure(self.width, self.height, &self.label, &self.body)
    }

    /// As a file, below `title` and the names of its series.
    fn document(&self, title: &str, series: &[(SeriesStyle, String)]) -> String {
        const LEFT: f64 = 46.0;
        let (names, height) = match series {
            [] => (String::new(), 0.0),
            _ => legend_of(series, LEFT, self.width - LEFT),
        };
        let title = text("name", (LEFT, height + 20.0), "start", title);
        let top = height + 30.0;
        let body =
            format!("{names}{title}<g transform=\"translate(0 {top:.0})\">{}</g>", self.body);
        document(self.width, self.height + top, &self.label, &body)
    }
}

impl View<'_> {
    /// The figures as files of their own, by their names without extension.
    pub(super) fn documents(&self) -> Vec<(&'static str, String)> {
        let series: Vec<(SeriesStyle, String)> =
            self.groups().map(|(group, style)| (style, group.label.clone())).collect();
        let summary = self.page.summary;
        let title = format!("{}: {}: {}", self.page.name, summary.metric.title(), summary.choice);
        let mut all = vec![("result", self.bars().document(&title, &[]))];
        let courses = self.courses().0.into_iter();
        all.extend(courses.map(|(name, title, figure)| (name, figure.document(&title, &series))));
        let speed = self.speed();
        all.push(("speed", speed.document(&speed.label, &[])));
        all
    }
}
