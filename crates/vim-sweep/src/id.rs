//! What makes two runs the same one.

use crate::config::Assignments;

/// Digits of a run's id: 40 bits, so that ten thousand runs have two alike once in twenty thousand sweeps.
const DIGITS: usize = 10;

/// The id of the run with the effective configuration `values`: hexadecimal digits of the BLAKE3 of all keys that
/// are not `free`, that is, that results depend on.
#[must_use]
pub fn run_id(values: &Assignments, free: impl Fn(&str) -> bool) -> String {
    let mut hasher = blake3::Hasher::new();
    for (key, value) in values.iter().filter(|(key, _)| !free(key)) {
        // No text of TOML holds a zero byte, so none can look like two keys.
        hasher.update(format!("{key} = {value}\0").as_bytes());
    }
    hasher.finalize().to_hex()[..DIGITS].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_keys_do_not_count() {
        let values = |root: &str, seed: i64| {
            Assignments::from([
                ("run.root".to_owned(), root.into()),
                ("run.seed".to_owned(), seed.into()),
            ])
        };
        let id = |root, seed| run_id(&values(root, seed), |key| key == "run.root");
        assert_eq!(id("a", 1).len(), 10);
        assert_eq!(id("a", 1), id("b", 1));
        assert_ne!(id("a", 1), id("a", 2));
        // It names folders' configurations: it must not change from one version to the next.
        assert_eq!(id("a", 1), "02c959e948");
    }
}
