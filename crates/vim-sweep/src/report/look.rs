//! How a group is told from the others: by a colour, and by a shape for who does not see colours.

use crate::config::Assignments;
use crate::outcome::Outcome;
use crate::summary::Group;

/// Colours of the style sheet.
const COLOURS: usize = 8;

/// A colour and a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    colour: usize,
    /// Once the colours are used up.
    pub(super) dashed: bool,
}

impl Look {
    fn number(number: usize) -> Self {
        Self { colour: number % COLOURS, dashed: number >= COLOURS }
    }

    /// The style sheet's class.
    pub(super) fn class(self) -> String {
        format!("c{}", self.colour)
    }

    /// A square of the colour, for text.
    pub(super) fn swatch(self) -> String {
        let second = if self.dashed { " second" } else { "" };
        format!(r#"<i class="swatch{second} {}"></i>"#, self.class())
    }

    /// A mark of its own shape with the radius `r`.
    pub(super) fn marker(self, (x, y): (f64, f64), r: f64) -> String {
        let corners: &[(f64, f64)] = match self.colour % 4 {
            0 => return format!(r#"<circle class="dot" cx="{x:.1}" cy="{y:.1}" r="{r:.1}"/>"#),
            1 => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
            2 => &[(0.0, -1.2), (1.1, 0.9), (-1.1, 0.9)],
            _ => &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
        };
        let places: Vec<String> =
            corners.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx * r, y + dy * r)).collect();
        format!(r#"<polygon class="dot" points="{}"/>"#, places.join(" "))
    }
}

/// The looks of `groups`: a value of `key` has the colour of its place in `order` wherever it tells the groups apart,
/// so that a method looks the same in every report.
pub(super) fn looks(
    groups: &[Group],
    outcomes: &[Outcome],
    key: &str,
    order: &[String],
) -> Vec<Look> {
    let place = |group: &Group| {
        let run = outcomes.iter().find(|run| is_of(run, &group.assignments))?;
        let value = run.assignments.get(key).or_else(|| run.values.get(key))?;
        order.iter().position(|name| Some(name.as_str()) == value.as_str())
    };
    let places: Option<Vec<usize>> = groups.iter().map(place).collect();
    let are_distinct = |places: &Vec<usize>| {
        places.iter().enumerate().all(|(number, place)| !places[..number].contains(place))
    };
    let places = places.filter(are_distinct).unwrap_or_else(|| (0..groups.len()).collect());
    places.into_iter().map(Look::number).collect()
}

/// Whether `run` is one of the group with `assignments`.
pub(super) fn is_of(run: &Outcome, assignments: &Assignments) -> bool {
    assignments.iter().all(|(key, value)| run.assignments.get(key) == Some(value))
}
