//! The classes on which methods differ, in segmentation or detection.

use vim_chart::escape;

use super::View;
use super::differences::SHOWN;
use super::sections::table;
use crate::classes::{ClassCell, ClassDifference, ClassDifferences, ClassGroup};
use crate::statistics::LEVEL;

impl View<'_> {
    /// Every group's score of each class beside its baseline's.
    pub(super) fn classes(&self, found: &ClassDifferences) -> String {
        let none = "<p class=\"note\">No finished run has scores of classes.</p>";
        let (measure, body) = match found.classes.is_empty() {
            true => ("score", none.to_owned()),
            false => (found.measure.name(), self.class_table(found)),
        };
        format!(
            "<section><h2>What differs between methods</h2><p class=\"note\">Of every run the model \
             that was tested, on the test images: the {measure} of each class.</p>{body}{}</section>",
            self.absent_of(&found.without, &found.unfit, "scores of classes")
        )
    }

    fn class_table(&self, found: &ClassDifferences) -> String {
        let groups = || found.groups.iter().enumerate().filter(|(_, group)| group.runs > 0);
        let title = |(_, group): (usize, &ClassGroup)| {
            let what = match &group.baseline {
                Some(baseline) => format!("minus {}, points", escape(baseline)),
                None => format!("{}, %", found.measure.name()),
            };
            let name = self.swatch_of(&group.label) + &escape(&group.label);
            format!("<th>{name}<br><small>{what}</small></th>")
        };
        let head =
            format!("<th class=\"text\">class</th>{}", groups().map(title).collect::<String>());
        let row = |class: &ClassDifference| {
            let cells = groups().map(|(place, group)| cell(group, class.cells[place]));
            format!(
                "<tr><td class=\"long\">{}</td>{}</tr>",
                escape(&class.name),
                cells.collect::<String>()
            )
        };
        let rows: String = found.classes.iter().take(SHOWN).map(row).collect();
        let (all, shown) = (found.classes.len(), found.classes.len().min(SHOWN));
        let are_compared = found.groups.iter().any(|group| group.baseline.is_some());
        let how = match are_compared {
            true => {
                "Differences are of runs with the same seed: their mean and, behind ±, half of its \
                 95 % interval; bold where p, corrected by Holm's method for all classes and \
                 settings that were planned, is below 0.05. The classes with the largest differences come first."
            }
            false => {
                "Nothing is compared: name what the others are compared with, by \
                 <code>sweep.report.baseline</code> or <code>--baseline</code>."
            }
        };
        format!(
            "<div class=\"wide\">{}</div><p class=\"note\">{shown} of {all} classes; the file \
             <code>classes.csv</code> has all. {how}</p>",
            table(&head, &rows)
        )
    }
}

/// A group's score, or how far it is from its baseline's.
fn cell(group: &ClassGroup, cell: ClassCell) -> String {
    let points = |share: f64| format!("{:.2}", 100.0 * share);
    let text = match (&group.baseline, cell.paired) {
        (None, _) => cell.mean.map(points),
        (Some(_), None) => None,
        (Some(_), Some(paired)) => {
            let size = points(paired.mean.abs());
            let sign = match paired.mean {
                _ if size == "0.00" => "",
                mean if mean < 0.0 => "−",
                _ => "+",
            };
            let half = paired
                .half_width
                .map_or_else(String::new, |half| format!(" <small>± {}</small>", points(half)));
            let text = format!("{sign}{size}{half}");
            let is_clear = cell.p_holm.is_some_and(|p| p < LEVEL);
            Some(if is_clear { format!("<b>{text}</b>") } else { text })
        }
    };
    format!("<td>{}</td>", text.unwrap_or_else(|| "–".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::page_of_classes;
    use crate::classes::ClassScores;
    use crate::fixture::{class_scores, study};

    fn section(read: &dyn Fn(&str) -> Result<Option<ClassScores>, String>) -> String {
        let runs = study(&[("zoh", &[0.7, 0.7]), ("rk4", &[0.6, 0.6])]);
        let page = page_of_classes(&runs, read);
        let start = page.find("<h2>What differs between methods").unwrap();
        page[start..].split("</section>").next().unwrap().to_owned()
    }

    #[test]
    fn differences_are_in_points_with_their_interval() {
        let text = section(&|name| {
            let (first, second) = match name {
                "zoh-s0" => (0.5, 0.25),
                "zoh-s1" => (0.6, 0.25),
                "rk4-s0" => (0.4, 0.25),
                _ => (0.54, 0.25),
            };
            Ok(Some(class_scores(&[Some(second), Some(first), None])))
        });
        // Mean −8 points, of −10 and −6; t of one degree of freedom is 12.706 at 97.5 %.
        let row = "class 1</td><td>55.00</td><td>−8.00 <small>± 25.41</small></td>";
        for part in [row, "class 0</td><td>25.00</td><td>0.00</td>", "3 of 3 classes", "<td>–</td>"]
        {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(text.find("class 1").unwrap() < text.find("class 0").unwrap());
        assert!(!text.contains("<b>"), "two seeds make nothing clear");
    }

    #[test]
    fn runs_without_scores_are_named() {
        let text = section(&|name| match name {
            "zoh-s0" => Err("<damaged>".into()),
            _ => Ok(None),
        });
        for part in [
            "the score of each class",
            "No finished run has",
            "Without scores of classes: zoh-s1, rk4-s0, rk4-s1.",
            "&lt;damaged",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
