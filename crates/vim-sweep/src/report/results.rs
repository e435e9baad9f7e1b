//! The page of one run: what it came to, in the style of a sweep's report.

use vim_chart::{Matrix, SeriesStyle, escape};

use super::sections::table;
use super::{card, curves, document, facts, tile};

/// The content of a run's page.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The run's name.
    pub name: String,
    /// What was trained, on what, and how it ended.
    pub lead: String,
    /// The numbers that matter most, and what each is.
    pub numbers: Vec<(String, String)>,
    /// Curves by step, and what each is.
    pub curves: Vec<(String, Vec<(f64, f64)>)>,
    /// What the classes are scored by.
    pub measure: String,
    /// The score of each class.
    pub classes: Vec<ClassScore>,
    /// Images by true and predicted class, where there are any, that are not 0.
    pub confusion: Vec<(usize, usize, u64)>,
    /// The names of the classes in it.
    pub names: Vec<String>,
    /// Pictures.
    pub galleries: Vec<Gallery>,
    /// How the run was made.
    pub facts: Vec<(String, String)>,
    /// Every key of its configuration.
    pub configuration: Vec<(String, String)>,
}

/// How well a class is known.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassScore {
    /// Its name.
    pub name: String,
    /// 0 to 1; `None` of a class that has none.
    pub score: Option<f64>,
}

/// Pictures of a kind.
#[derive(Clone, Debug, Default)]
pub struct Gallery {
    /// What they are.
    pub title: String,
    /// What to know of them.
    pub note: String,
    /// Classes and their colours, red, green and blue, where these say what is what.
    pub legend: Vec<(String, [u8; 3])>,
    /// Of each its name, the picture as a data URI, and what is to be said of it, line by line.
    pub pictures: Vec<(String, String, Vec<String>)>,
}

/// Most classes of a table of classes; of more, the least known ones.
const CLASSES: usize = 60;
/// Most classes of a table of confusions; of more, the pairs that are taken for each other most.
const CONFUSED: usize = 40;
/// Most such pairs.
const PAIRS: usize = 20;

impl Results {
    /// The page.
    pub fn html(&self) -> String {
        let tiles: String =
            self.numbers.iter().map(|(value, what)| tile(&escape(value), what)).collect();
        let facts = |of: &[(String, String)]| {
            facts(of.iter().map(|(name, value)| (name.as_str(), value.as_str())))
        };
        let parts = [
            format!(
                "<header><p class=\"kicker\">Results of a run</p><h1>{}</h1><p class=\"lead\">{}\
                 </p></header><div class=\"tiles\">{tiles}</div>",
                escape(&self.name),
                escape(&self.lead)
            ),
            self.curves(),
            self.classes(),
            self.confusion(),
            self.galleries.iter().map(Gallery::section).collect(),
            format!(
                "<footer><h3>Where this is from</h3>{}<details><summary>Configuration</summary>{}\
                 </details></footer>",
                facts(&self.facts),
                facts(&self.configuration)
            ),
        ];
        document(&self.name, &parts.join("\n"))
    }

    fn curves(&self) -> String {
        let mut figures = String::new();
        let drawn = self.curves.iter().filter(|(_, points)| !points.is_empty());
        for (number, (title, points)) in drawn.enumerate() {
            let points = curves::mean(std::slice::from_ref(points));
            let curve = curves::Curve { style: SeriesStyle::new(number), points };
            let drawing = curves::draw(&[curve], title, 1.0, 0.0).on_page();
            figures += &format!("<figure><h3>{}</h3>{drawing}</figure>", escape(title));
        }
        if figures.is_empty() {
            return figures;
        }
        format!("<section><h2>Curves</h2><div class=\"pair\">{figures}</div></section>")
    }

    /// The classes, the least known ones first.
    fn classes(&self) -> String {
        if self.classes.is_empty() {
            return String::new();
        }
        let mut classes: Vec<&ClassScore> = self.classes.iter().collect();
        let rank = |class: &ClassScore| class.score.unwrap_or(f64::INFINITY);
        classes.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
        let row = |class: &&ClassScore| {
            let score = class.score.map_or_else(
                || "–".to_owned(),
                |score| {
                    let percent = 100.0 * score;
                    let width = percent.clamp(0.0, 100.0);
                    format!(
                        "{percent:.2}<span class=\"share\"><i style=\"width:{width:.1}%\"></i></span>"
                    )
                },
            );
            format!("<tr><td class=\"long\">{}</td><td>{score}</td></tr>", escape(&class.name))
        };
        let rows: Vec<String> = classes.iter().take(CLASSES).map(row).collect();
        let head = format!("<th>class</th><th>{}, %</th>", escape(&self.measure));
        // Two tables side by side.
        let halves = rows.chunks(rows.len().div_ceil(2).max(8));
        let tables: String =
            halves.map(|rows| format!("<div>{}</div>", table(&head, &rows.concat()))).collect();
        let (all, shown) = (classes.len(), rows.len());
        let which = if all > shown { format!(", {shown} of {all}") } else { String::new() };
        format!(
            "<section><h2>Classes</h2><p class=\"note\">On the test images, the least known \
             first{which}.</p><div class=\"pair\">{tables}</div></section>"
        )
    }

    fn confusion(&self) -> String {
        if self.confusion.is_empty() {
            return String::new();
        }
        let (names, cells) = (&self.names, &self.confusion);
        let body = if names.len() <= CONFUSED {
            let drawing = Matrix {
                title: "test images by true and predicted class",
                row_title: "true class",
                column_title: "predicted class",
                rows: names,
                columns: names,
                cells,
            };
            format!("<div class=\"wide\">{}</div>", drawing.figure())
        } else {
            let mut wrong: Vec<_> = cells.iter().filter(|(row, column, _)| row != column).collect();
            wrong.sort_by_key(|&&(row, column, count)| (std::cmp::Reverse(count), row, column));
            let row = |&&(row, column, count): &&(usize, usize, u64)| {
                let [row, column] = [row, column].map(|class| escape(&names[class]));
                format!(
                    "<tr><td class=\"long\">{row}</td><td class=\"long\">{column}</td>\
                     <td>{count}</td></tr>"
                )
            };
            let rows: String = wrong.iter().take(PAIRS).map(row).collect();
            let head = "<th>true class</th><th class=\"text\">taken for</th><th>images</th>";
            format!("<div class=\"wide\">{}</div>", table(head, &rows))
        };
        format!("<section><h2>Confusions</h2>{body}</section>")
    }
}

impl Gallery {
    /// The pictures as a section of a page; nothing where there are none and nothing is said.
    pub fn section(&self) -> String {
        if self.pictures.is_empty() && self.note.is_empty() {
            return String::new();
        }
        let card = |(name, picture, lines): &(String, String, Vec<String>)| {
            let lines: String = lines
                .iter()
                .map(|line| format!("<li><span>{}</span></li>", escape(line)))
                .collect();
            card(name, picture, &format!("<ul>{lines}</ul>"))
        };
        let entry = |(name, [red, green, blue]): &(String, [u8; 3])| {
            format!(
                "<li><i class=\"swatch\" style=\"--c:rgb({red},{green},{blue})\"></i>{}</li>",
                escape(name)
            )
        };
        let legend: String = self.legend.iter().map(entry).collect();
        format!(
            "<section><h2>{}</h2><p class=\"note\">{}</p><ul class=\"legend\">{legend}</ul>\
             <div class=\"gallery\">{}</div></section>",
            escape(&self.title),
            escape(&self.note),
            self.pictures.iter().map(card).collect::<String>()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(classes: usize) -> Results {
        let names: Vec<String> = (0..classes).map(|class| format!("<{class}>")).collect();
        let score = |class: usize| (class > 0).then(|| class as f64 / classes as f64);
        let scored = |(class, name): (usize, &String)| ClassScore {
            name: name.clone(),
            score: score(class),
        };
        Results {
            name: "a <b>run</b>".into(),
            lead: "tiny & small".into(),
            numbers: vec![("87.50 %".into(), "test top-1".into())],
            curves: vec![("loss".into(), vec![(1.0, 2.0), (2.0, 1.0)]), ("none".into(), vec![])],
            measure: "accuracy".into(),
            classes: names.iter().enumerate().map(scored).collect(),
            confusion: vec![(0, 0, 5), (0, 1, 2), (1, 0, 7)],
            names,
            galleries: vec![Gallery {
                title: "Worst".into(),
                note: "wrong".into(),
                legend: vec![("sky".into(), [1, 2, 3])],
                pictures: vec![(
                    "x\".png".into(),
                    "data:image/png;base64,AA==".into(),
                    vec!["<cat>, 91 %".into()],
                )],
            }],
            facts: vec![("folder".into(), "runs/<x>".into())],
            configuration: vec![("optim.lr".into(), "1e-3".into())],
        }
    }

    #[test]
    fn a_run_is_shown_by_all_that_it_has() {
        let page = results(3).html();
        for part in [
            "<h1>a &lt;b&gt;run&lt;/b&gt;</h1>",
            "<b>87.50 %</b><span>test top-1</span>",
            "aria-label=\"loss\"",
            "<td class=\"long\">&lt;2&gt;</td><td>66.67<span class=\"share\">",
            "→ &lt;0&gt;: 7</title>",
            "alt=\"x&quot;.png\" src=\"data:image/png;base64,AA==\"",
            "<li><span>&lt;cat&gt;, 91 %</span></li>",
            "style=\"--c:rgb(1,2,3)\"></i>sky</li>",
            "<dt>folder</dt><dd><code>runs/&lt;x&gt;</code></dd>",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        assert!(!page.contains("<script") && !page.contains("aria-label=\"none\""));
        // A class without a score comes last.
        assert!(page.find("&lt;1&gt;</td>").unwrap() < page.find("&lt;0&gt;</td>").unwrap());
    }

    #[test]
    fn of_many_classes_those_that_matter_are_shown() {
        let page = results(1000).html();
        let row = "<td class=\"long\">&lt;1&gt;</td><td class=\"long\">&lt;0&gt;</td><td>7</td>";
        assert!(page.contains(row) && page.contains("60 of 1000"), "{page}");
        assert!(page.find(row).unwrap() < page.find("&lt;1&gt;</td><td>2</td>").unwrap());
        assert!(page.len() < 60_000, "{}", page.len());
    }

    #[test]
    fn what_there_is_not_leaves_no_trace() {
        let page = Results { name: "bare".into(), ..Results::default() }.html();
        for part in ["Curves", "Classes", "Confusions", "gallery\""] {
            assert!(!page.contains(&format!("<h2>{part}")), "{page}");
        }
    }
}
