//! Suggestions for misspelt names.

/// The name in `known` that `word` is probably a misspelling of.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A third of the letters, but always two: a swap in a short word counts as one.
    let most = (word.chars().count() / 3).max(2);
    let (word, letters) = (word.to_lowercase(), word.chars().count());
    // A name of which too many letters would remain is not compared: a word may have a million.
    let is_near = |name: &&str| letters < 2 * name.chars().count() + 2;
    known
        .into_iter()
        .filter(is_near)
        .map(|name| (strsim::damerau_levenshtein(&word, &name.to_lowercase()), name))
        .filter(|&(distance, name)| distance <= most && distance < name.chars().count())
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, name)| name)
}

/// What an error says after "unknown `word`": the nearest name, then all known ones.
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let nearest = nearest(word, known.iter().copied());
    let nearest = nearest.map_or_else(String::new, |name| format!(", did you mean `{name}`?"));
    if known.is_empty() {
        return nearest;
    }
    format!("{nearest} (known: {})", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_is_near() {
        let known = ["zoh", "foh", "bilinear", "rk4", "workers"];
        for (word, expected) in [
            ("wrokers", Some("workers")),
            ("num_workers", None),
            ("ZOH", Some("zoh")),
            ("rk5", Some("rk4")),
            ("bilnear", Some("bilinear")),
            ("tustin", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
        let start = std::time::Instant::now();
        assert_eq!(nearest(&"workers".repeat(200_000), known), None);
        assert!(start.elapsed().as_secs_f64() < 1.0, "{:?}", start.elapsed());
        assert_eq!(hint("rk5", ["rk4"]), ", did you mean `rk4`? (known: rk4)");
        assert_eq!(hint("tustin", []), "");
    }
}
