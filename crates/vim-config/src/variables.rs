//! `${VAR}` and `${VAR:-default}` in a text.

/// Why the variables of a text cannot be replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// A variable is not set and has no default.
    #[error(
        "the environment variable `{name}` is not set: export it, or write a default, as in \
         ${{{name}:-/some/folder}}"
    )]
    Unset {
        /// Its name.
        name: String,
    },
    /// Braces do not contain a variable, or are not closed.
    #[error("`{text}` is no variable: write ${{NAME}} or ${{NAME:-default}}")]
    Malformed {
        /// What was written.
        text: String,
    },
}

/// Replaces the variables in `text` by their values from `lookup`. An empty value counts as not
/// set.
///
/// A `$` without braces is plain text.
///
/// # Errors
///
/// The first variable that is malformed, or has neither a value nor a default.
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<String, ExpandError> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        expanded.push_str(before);
        let malformed =
            |end: usize| ExpandError::Malformed { text: format!("${{{}", &after[..end]) };
        let end = after.find('}').ok_or_else(|| malformed(after.len()))?;
        let inside = &after[..end];
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        if !is_variable_name(name) {
            return Err(malformed(end + 1));
        }
        let value = lookup(name).filter(|value| !value.is_empty());
        match value.as_deref().or(default) {
            Some(value) => expanded.push_str(value),
            None => return Err(ExpandError::Unset { name: name.to_owned() }),
        }
        rest = &after[end + 1..];
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Whether a shell variable can have this name.
pub fn is_variable_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> Result<String, ExpandError> {
        expand(text, |name| match name {
            "SCRATCH" => Some("/scratch/me".into()),
            "EMPTY" => Some(String::new()),
            _ => None,
        })
    }

    #[test]
    fn braces_are_filled_in() {
        for (text, expected) in [
            ("${SCRATCH}/vim", "/scratch/me/vim"),
            ("a/${SCRATCH}b${SCRATCH}", "a//scratch/meb/scratch/me"),
            ("${NOWHERE:-/tmp}/x", "/tmp/x"),
            ("${SCRATCH:-/tmp}/x", "/scratch/me/x"),
            ("${EMPTY:-/tmp}", "/tmp"),
            ("${NOWHERE:-}x", "x"),
            ("$SCRATCH/vim$", "$SCRATCH/vim$"),
            ("plain", "plain"),
        ] {
            assert_eq!(filled(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for text in ["${NOWHERE}/x", "${EMPTY}"] {
            let name = text[2..].split('}').next().unwrap().to_owned();
            assert_eq!(filled(text), Err(ExpandError::Unset { name }));
        }
        for (text, shown) in
            [("x${SCRATCH", "${SCRATCH"), ("${}", "${}"), ("${A B}/c", "${A B}"), ("${1}", "${1}")]
        {
            assert_eq!(filled(text), Err(ExpandError::Malformed { text: shown.into() }));
        }
        assert_eq!(
            filled("${HOST_DIR}").unwrap_err().to_string(),
            "the environment variable `HOST_DIR` is not set: export it, or write a default, as in \
             ${HOST_DIR:-/some/folder}"
        );
    }
}
