//! Names that were probably meant.

/// The one of `known` that is nearest to `word`, if one is near.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A third of the letters, but always two: a swap in a short word counts as one.
    let most = (word.chars().count() / 3).max(2);
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&word.to_lowercase(), &name.to_lowercase()), name))
        .filter(|&(distance, name)| distance <= most && distance < name.chars().count())
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, name)| name)
}

/// What stands after "unknown": the nearest name, and all that are known.
pub(crate) fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let nearest = nearest(word, known.iter().copied());
    let nearest = nearest.map_or_else(String::new, |name| format!(", is it `{name}`?"));
    if known.is_empty() {
        return nearest;
    }
    format!("{nearest} (known: {})", known.join(", "))
}
