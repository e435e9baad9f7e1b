//! Classes by name: which class of the data is which class of a record.

use std::collections::HashMap;

use unicode_normalization::{UnicodeNormalization, is_nfc};

use crate::dataset::Class;
use crate::error::{ClassError, ClassSide};

/// Which recorded class each class of the data is; see [`match_classes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassMatch {
    /// The recorded label of each class of the data, by its label there; `None` if it was not
    /// recorded.
    pub labels: Vec<Option<Class>>,
    /// Recorded names that the data lack, in the order of their labels.
    pub missing: Vec<String>,
    /// Names of the data that were not recorded, in the order of their labels.
    pub unknown: Vec<String>,
    /// Whether classes that are numbers were matched by those, and not by name.
    pub by_number: bool,
}

impl ClassMatch {
    /// Whether the classes are the recorded ones in the recorded order.
    ///
    /// Their names may still differ: in their Unicode form, or as [`by_number`](Self::by_number)
    /// says.
    pub fn is_identity(&self) -> bool {
        let mut labels = self.labels.iter().zip(0..);
        self.missing.is_empty() && labels.all(|(&label, class)| label == Some(class))
    }

    /// Number of recorded classes.
    pub(crate) fn recorded(&self) -> usize {
        self.labels.iter().flatten().count() + self.missing.len()
    }
}

/// Matches the names of the data's classes with recorded ones, in Unicode's form NFC: on some
/// systems `é` is one character, on others two.
///
/// Where names are no more than numbers, they are matched by number: if the names of one side are
/// the numbers `0` to `K − 1` or `1` to `K`, also as `007` or `class 7`, and the other side has
/// `K` classes of other names, then the class of the least number is the other's first, and so on.
/// If the other's are such numbers too, its classes are taken in their order.
///
/// # Errors
/// If two classes of one side have the same name, and the sides are not the same.
pub fn match_classes(recorded: &[String], data: &[String]) -> Result<ClassMatch, ClassError> {
    if recorded == data {
        let labels = (0..).take(data.len()).map(Some).collect();
        return Ok(ClassMatch { labels, ..ClassMatch::default() });
    }
    let by_name = match_names(recorded, data)?;
    if by_name.unknown.is_empty() || recorded.len() != data.len() {
        return Ok(by_name);
    }
    let (of_recorded, of_data) = (places(recorded), places(data));
    if of_recorded.is_none() && of_data.is_none() {
        return Ok(by_name);
    }
    // The label of the recorded class in each place; where names are no numbers, that is its place.
    let mut label_at: Vec<Class> = (0..).take(recorded.len()).collect();
    for (&place, label) in of_recorded.iter().flatten().zip(0..) {
        label_at[place] = label;
    }
    let of_data = of_data.unwrap_or_else(|| (0..data.len()).collect());
    let labels = of_data.into_iter().map(|place| Some(label_at[place])).collect();
    Ok(ClassMatch { labels, by_number: true, ..ClassMatch::default() })
}

/// Matches by name alone.
///
/// # Errors
/// If two classes of one side have the same name.
pub(crate) fn match_names(recorded: &[String], data: &[String]) -> Result<ClassMatch, ClassError> {
    let known = by_name(recorded, ClassSide::Recorded)?;
    let found = by_name(data, ClassSide::Data)?;
    let label = |name: &String| known.get(&nfc(name)).copied();
    let labels: Vec<Option<Class>> = data.iter().map(label).collect();
    let unknown = data.iter().zip(&labels).filter(|(_, label)| label.is_none());
    let missing = recorded.iter().filter(|name| !found.contains_key(&nfc(name)));
    Ok(ClassMatch {
        unknown: unknown.map(|(name, _)| name.clone()).collect(),
        missing: missing.cloned().collect(),
        labels,
        by_number: false,
    })
}

/// Labels by name.
fn by_name(names: &[String], side: ClassSide) -> Result<HashMap<String, Class>, ClassError> {
    let mut labels = HashMap::with_capacity(names.len());
    for (name, label) in names.iter().zip(0..) {
        if labels.insert(nfc(name), label).is_some() {
            return Err(ClassError::Twice { name: name.clone(), side });
        }
    }
    Ok(labels)
}

/// A name in the form in which names are compared.
pub(crate) fn nfc(name: &str) -> String {
    // Nearly all names are in it already.
    if is_nfc(name) { name.to_owned() } else { name.nfc().collect() }
}

/// The place of each class in the order of the numbers that are their names; `None` unless those
/// are all numbers from 0 or from 1 on.
fn places(names: &[String]) -> Option<Vec<usize>> {
    let numbers = names.iter().map(|name| number(name)).collect::<Option<Vec<usize>>>()?;
    let first = numbers.iter().copied().min().filter(|&least| least <= 1)?;
    let mut seen = vec![false; names.len()];
    for number in &numbers {
        let place = seen.get_mut(number - first)?;
        if std::mem::replace(place, true) {
            return None;
        }
    }
    Some(numbers.into_iter().map(|number| number - first).collect())
}

/// `7`, `007` or `class 7`.
fn number(name: &str) -> Option<usize> {
    let digits = name.strip_prefix("class ").unwrap_or(name);
    // `parse` would take a sign too.
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|&name| name.to_owned()).collect()
    }

    fn matched(recorded: &[&str], data: &[&str]) -> ClassMatch {
        match_classes(&names(recorded), &names(data)).unwrap()
    }

    #[test]
    fn names_are_matched_in_any_order() {
        let one = matched(&["a", "b", "c"], &["c", "a", "b"]);
        assert_eq!(one.labels, [Some(2), Some(0), Some(1)]);
        assert!(one.missing.is_empty() && one.unknown.is_empty() && !one.by_number);
        assert!(!one.is_identity());
        assert!(matched(&["a", "b"], &["a", "b"]).is_identity());
    }

    #[test]
    fn what_one_side_lacks_is_listed() {
        let fewer = matched(&["a", "b", "c", "d"], &["d", "b"]);
        assert_eq!(fewer.labels, [Some(3), Some(1)]);
        assert_eq!((fewer.missing, fewer.unknown), (names(&["a", "c"]), vec![]));
        let start = matched(&["a", "b"], &["a"]);
        assert!(!start.is_identity(), "the recorded `b` is missing");
        let more = matched(&["b"], &["a", "b", "c"]);
        assert_eq!(more.labels, [None, Some(0), None]);
        assert_eq!((&more.missing, &more.unknown), (&vec![], &names(&["a", "c"])));
        assert_eq!((more.recorded(), more.is_identity()), (1, false));
        let other = matched(&["a", "b"], &["a", "x"]);
        assert_eq!(other.labels, [Some(0), None]);
        assert_eq!((other.missing, other.unknown), (names(&["b"]), names(&["x"])));
    }

    #[test]
    fn unicode_forms_of_a_name_are_one_name() {
        let (composed, decomposed) = ("ha\u{ef}ti", "hai\u{308}ti");
        // In bytes, a name in between is on different sides of the two.
        let one = matched(&["haz", composed], &[decomposed, "haz"]);
        assert_eq!(one.labels, [Some(1), Some(0)]);
        assert!(one.missing.is_empty() && one.unknown.is_empty());
        assert!(matched(&[composed], &[decomposed]).is_identity());
        let error = match_classes(&names(&["a"]), &names(&[composed, "a", decomposed]));
        let name = decomposed.to_owned();
        assert_eq!(error, Err(ClassError::Twice { name, side: ClassSide::Data }));
        let error = match_classes(&names(&["a", "a"]), &names(&["a"])).unwrap_err();
        assert_eq!(error, ClassError::Twice { name: "a".to_owned(), side: ClassSide::Recorded });
    }

    /// `0`, `1`, `10`, `11`, `2`, …
    fn sorted_numbers(range: std::ops::Range<usize>) -> Vec<String> {
        let mut all: Vec<String> = range.map(|number| number.to_string()).collect();
        all.sort();
        all
    }

    #[test]
    fn numbers_are_matched_by_number() {
        let named: Vec<String> = (0..12).map(|number| format!("c{number:02}")).collect();
        let numbers = sorted_numbers(0..12);
        let labels = [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9].map(Some);
        let of_numbers = match_classes(&named, &numbers).unwrap();
        assert_eq!((&of_numbers.labels[..], of_numbers.by_number), (&labels[..], true));
        assert!(of_numbers.missing.is_empty() && of_numbers.unknown.is_empty());
        // The other way round: c02 is the recorded `2`, whose label is 4.
        let of_names = match_classes(&numbers, &named).unwrap();
        let labels = [0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 2, 3].map(Some);
        assert_eq!((&of_names.labels[..], of_names.by_number), (&labels[..], true));
        // From 1 on.
        let from_one = match_classes(&named, &sorted_numbers(1..13)).unwrap();
        let labels = [0, 9, 10, 11, 1, 2, 3, 4, 5, 6, 7, 8].map(Some);
        assert_eq!((&from_one.labels[..], from_one.by_number), (&labels[..], true));
        // Both sides.
        let placeholders: Vec<String> = (0..12).map(|number| format!("class {number}")).collect();
        let of_both = match_classes(&placeholders, &numbers).unwrap();
        let labels = [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9].map(Some);
        assert_eq!((&of_both.labels[..], of_both.by_number), (&labels[..], true));
        assert!(match_classes(&placeholders, &named).unwrap().is_identity());
        let padded = matched(&["00", "01"], &["1", "0"]);
        assert_eq!((padded.labels, padded.by_number), (vec![Some(1), Some(0)], true));
    }

    #[test]
    fn equal_names_are_matched_by_name_even_if_they_are_numbers() {
        let one = matched(&["1", "0", "2"], &["0", "1", "2"]);
        assert_eq!((one.labels, one.by_number), (vec![Some(1), Some(0), Some(2)], false));
    }

    #[test]
    fn what_is_no_numbering_is_no_number() {
        for (recorded, data) in [
            (["a", "b"], ["0", "2"]),
            (["a", "b"], ["2", "3"]),
            (["a", "b"], ["-0", "+1"]),
            (["a", "b"], ["1", "01"]),
            (["a", "b"], ["", "1"]),
            (["a", "b"], ["0", "99999999999999999999999999"]),
            (["a", "b"], ["0", "c1"]),
        ] {
            let one = matched(&recorded, &data);
            assert_eq!((one.unknown, one.by_number), (names(&data), false), "{data:?}");
        }
        let fewer = matched(&["a", "b", "c"], &["0", "1"]);
        assert_eq!((fewer.unknown, fewer.by_number), (names(&["0", "1"]), false));
    }

    #[test]
    fn nothing_is_matched_with_nothing() {
        assert!(matched(&[], &[]).is_identity());
        assert_eq!(matched(&["a"], &[]).missing, names(&["a"]));
        assert_eq!(matched(&[], &["a"]).unknown, names(&["a"]));
    }
}
