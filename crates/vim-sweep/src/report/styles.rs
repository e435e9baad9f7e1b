//! The style of each group.

use vim_chart::SeriesStyle;

use crate::config::Assignments;
use crate::outcome::RunOutcome;
use crate::summary::Group;

/// The styles of `groups`. Where `key` distinguishes the groups, its value's index in `order`
/// chooses the style, so that a method has the same colour in every report.
pub(super) fn styles(
    groups: &[Group],
    outcomes: &[RunOutcome],
    key: &str,
    order: &[String],
) -> Vec<SeriesStyle> {
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
    places.into_iter().map(SeriesStyle::new).collect()
}

/// Whether `run` is one of the group with `assignments`.
pub(super) fn is_of(run: &RunOutcome, assignments: &Assignments) -> bool {
    assignments.iter().all(|(key, value)| run.assignments.get(key) == Some(value))
}
