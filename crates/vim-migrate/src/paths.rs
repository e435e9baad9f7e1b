//! Folders and files that a script names.

use vim_config::is_variable_name;

use crate::scope::{Part, Value};

/// A path as a configuration writes it: variables of the environment stay variables.
///
/// `None` if a shell has to compute a part of it, or an argument of the script is missing.
pub(crate) fn place(value: &Value) -> Option<String> {
    if value.is_computed() || !value.holes().into_iter().all(is_variable_name) {
        return None;
    }
    let text = value.with_holes(|name, default| match default {
        Some(default) => format!("${{{name}:-{default}}}"),
        None => format!("${{{name}}}"),
    });
    // The shell's name of the home folder.
    Some(match text.strip_prefix("~/") {
        Some(inside) => format!("${{HOME}}/{inside}"),
        None => text,
    })
}

/// The folder of a run as `run.root`, where there is one, and `run.name`. The variable that is the seed
/// becomes `{run.seed}`.
pub(crate) fn run_name(output: &Value, seed: Option<&str>) -> Option<(Option<String>, String)> {
    const SEED: &str = "{run.seed}";
    let mut output = output.clone();
    for part in &mut output.parts {
        if let Part::Hole { name, .. } = part
            && Some(name.as_str()) == seed
        {
            *part = Part::Text(SEED.to_owned());
        }
    }
    let text = place(&output)?;
    let text = text.trim_end_matches('/');
    let (root, name) = match text.rsplit_once('/') {
        Some((root, name)) => (Some(root.to_owned()).filter(|root| !root.is_empty()), name),
        None => (None, text),
    };
    // A name has no variables of the environment, a root no keys.
    let is_good = !name.is_empty()
        && !name.contains("${")
        && root.as_ref().is_none_or(|root| !root.contains(SEED));
    is_good.then(|| (root, name.to_owned()))
}
