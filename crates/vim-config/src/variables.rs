//! `~`, `$VAR`, `${VAR}` and `${VAR:-default}` in a text.

/// Why the variables of a text cannot be replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// A variable is not set and has no default.
    #[error(
        "the environment variable `{name}` is not set: export it, or write a default, as in \
         ${{{name}:-/some/folder}}; a `$` itself is written `$$`"
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
    /// A home folder by the name of a user.
    #[error(
        "`{home}` is no folder here, as `~` alone is a home folder: write the whole path, or \
         `./{home}` for a folder of this name"
    )]
    OtherHome {
        /// What was written.
        home: String,
    },
}

/// Replaces the variables in `text` by their values from `lookup`, and a leading `~` by that of
/// `HOME`. An empty value counts as not set, and what stands in a default is replaced likewise.
///
/// `$$` is a `$`; one that begins no name and no brace is plain text.
///
/// # Errors
///
/// The first variable that is malformed, or has neither a value nor a default; the home folder of
/// somebody else.
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<String, ExpandError> {
    expand_by(text, &|name| lookup(name).filter(|value| !value.is_empty()))
}

fn expand_by(text: &str, value: &dyn Fn(&str) -> Option<String>) -> Result<String, ExpandError> {
    let unset = |name: &str| ExpandError::Unset { name: name.to_owned() };
    let (mut expanded, mut rest) = (String::new(), text);
    if let Some(after) = text.strip_prefix('~') {
        if !after.is_empty() && !after.starts_with('/') {
            let home = text.split('/').next().unwrap_or(text).to_owned();
            return Err(ExpandError::OtherHome { home });
        }
        expanded = value("HOME").ok_or_else(|| unset("HOME"))?;
        rest = after;
    }
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let letters = after.chars().take_while(|&letter| is_of_name(letter)).count();
        let name = &after[..letters];
        if let Some(inside) = after.strip_prefix('{') {
            let malformed =
                |end: usize| ExpandError::Malformed { text: format!("${{{}", &inside[..end]) };
            let end = inside.find('}').ok_or_else(|| malformed(inside.len()))?;
            let (name, default) = match inside[..end].split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (&inside[..end], None),
            };
            if !is_variable_name(name) {
                return Err(malformed(end + 1));
            }
            let put_in = match (value(name), default) {
                (Some(value), _) => value,
                (None, Some(default)) => expand_by(default, value)?,
                (None, None) => return Err(unset(name)),
            };
            expanded.push_str(&put_in);
            rest = &inside[end + 1..];
        } else if is_variable_name(name) {
            expanded.push_str(&value(name).ok_or_else(|| unset(name))?);
            rest = &after[letters..];
        } else {
            expanded.push('$');
            rest = after.strip_prefix('$').unwrap_or(after);
        }
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// The text that [`expand`] makes `text` of.
pub fn escape(text: &str) -> String {
    let here = if text.starts_with('~') { "./" } else { "" };
    format!("{here}{}", text.replace('$', "$$"))
}

/// Whether a shell variable can have this name.
pub fn is_variable_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(is_of_name)
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> Result<String, ExpandError> {
        expand(text, |name| match name {
            "SCRATCH" => Some("/scratch/me".into()),
            "EMPTY" => Some(String::new()),
            "HOME" => Some("/home/me".into()),
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
            ("${NOWHERE:-~}/x", "/home/me/x"),
            ("${NOWHERE:-$SCRATCH}/x", "/scratch/me/x"),
            ("${NOWHERE:-a$$b}", "a$b"),
            ("$SCRATCH/vim$", "/scratch/me/vim$"),
            ("$SCRATCH$SCRATCH-x", "/scratch/me/scratch/me-x"),
            ("a/$$SCRATCH/$/$1", "a/$SCRATCH/$/$1"),
            ("~", "/home/me"),
            ("~/runs/~", "/home/me/runs/~"),
            ("./~/x", "./~/x"),
            ("plain", "plain"),
        ] {
            assert_eq!(filled(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, name) in [
            ("${NOWHERE}/x", "NOWHERE"),
            ("${EMPTY}", "EMPTY"),
            ("/a/$NOWHERE.d/x", "NOWHERE"),
            ("${EMPTY:-$NOWHERE}/x", "NOWHERE"),
        ] {
            assert_eq!(filled(text), Err(ExpandError::Unset { name: name.to_owned() }));
        }
        let name = "HOME".to_owned();
        assert_eq!(expand("~/x", |_| None), Err(ExpandError::Unset { name }));
        assert_eq!(filled("~you/x"), Err(ExpandError::OtherHome { home: "~you".to_owned() }));
        for (text, shown) in [
            ("x${SCRATCH", "${SCRATCH"),
            ("${}", "${}"),
            ("${A B}/c", "${A B}"),
            ("${1}", "${1}"),
            ("${NOWHERE:-${SCRATCH}}", "${SCRATCH"),
        ] {
            assert_eq!(filled(text), Err(ExpandError::Malformed { text: shown.into() }));
        }
        assert_eq!(
            filled("${HOST_DIR}").unwrap_err().to_string(),
            "the environment variable `HOST_DIR` is not set: export it, or write a default, as in \
             ${HOST_DIR:-/some/folder}; a `$` itself is written `$$`"
        );
    }

    #[test]
    fn what_is_escaped_stays() {
        for text in ["/a/$SCRATCH", "$$", "${", "~/x", "~you", "plain$"] {
            let back = filled(&escape(text)).unwrap();
            assert_eq!(back.strip_prefix("./").unwrap_or(&back), text);
        }
    }
}
