//! Paths in a script.

use vim_config::is_variable_name;

use crate::scope::{Part, Value};

/// A path for a configuration; environment variables remain variables.
///
/// `None` if only a shell can evaluate it, or an argument of the script is missing.
pub(crate) fn config_path(value: &Value) -> Option<String> {
    if value.is_computed() || !value.unset_names().into_iter().all(is_variable_name) {
        return None;
    }
    let text = value.render(|name, default| match default {
        Some(default) => format!("${{{name}:-{default}}}"),
        None => format!("${{{name}}}"),
    });
    // `~` is the shell's notation for the home folder.
    Some(match text.strip_prefix("~/") {
        Some(inside) => format!("${{HOME}}/{inside}"),
        None => text,
    })
}

/// A run's folder as `run.root`, if it has a parent, and `run.name`. The variable `seed` becomes
/// `{run.seed}`.
pub(crate) fn run_name(output: &Value, seed: Option<&str>) -> Option<(Option<String>, String)> {
    const SEED: &str = "{run.seed}";
    let mut output = output.clone();
    for part in &mut output.parts {
        if let Part::Unset { name, .. } = part
            && Some(name.as_str()) == seed
        {
            *part = Part::Text(SEED.to_owned());
        }
    }
    let text = config_path(&output)?;
    let text = text.trim_end_matches('/');
    let (root, name) = match text.rsplit_once('/') {
        Some((root, name)) => (Some(root.to_owned()).filter(|root| !root.is_empty()), name),
        None => (None, text),
    };
    // A name may not contain environment variables, a root no keys.
    let is_good = !name.is_empty()
        && !name.contains("${")
        && root.as_ref().is_none_or(|root| !root.contains(SEED));
    is_good.then(|| (root, name.to_owned()))
}
