//! Ids of runs, by their configuration.

use crate::config::Assignments;

/// Digits of an id: 40 bits; among 10,000 runs, two ids collide with a probability of 1 in 20,000.
const DIGITS: usize = 10;

/// The id of a run: hexadecimal digits of the BLAKE3 hash of its effective configuration `values`,
/// without the `free` keys, on which no result depends.
pub fn run_id(values: &Assignments, free: impl Fn(&str) -> bool) -> String {
    let mut hasher = blake3::Hasher::new();
    for (key, value) in values.iter().filter(|(key, _)| !free(key)) {
        // A zero byte separates keys unambiguously: no TOML text contains one.
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
        // Ids name files in existing sweeps: they must not change between versions.
        assert_eq!(id("a", 1), "02c959e948");
    }
}
