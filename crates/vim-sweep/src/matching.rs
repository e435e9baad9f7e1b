//! Whether runs are comparable: equal in all keys under `must_match`.

use std::collections::BTreeMap;

use vim_config::nearest;

use crate::config::Assignments;
use crate::error::SweepError;

/// Whether `key` falls under `rule`, an entry of `must_match`: that key, or a key of that section.
pub(crate) fn is_under(key: &str, rule: &str) -> bool {
    key.strip_prefix(rule).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Checks that every key under `must_match`, except `free` ones, has the same effective value in
/// all
/// `runs` (name and configuration). `known`: all existing keys.
///
/// # Errors
///
/// The first unknown entry, or the first differing key with its values and their runs.
pub fn check_matching(
    must_match: &[String],
    runs: &[(String, Assignments)],
    known: &[String],
    free: impl Fn(&str) -> bool,
) -> Result<(), SweepError> {
    for rule in must_match {
        if !known.iter().any(|key| is_under(key, rule)) {
            let names = known.iter().map(String::as_str);
            let nearest = nearest(rule, names).map(str::to_owned);
            return Err(SweepError::UnknownMustMatch { key: rule.clone(), nearest });
        }
        let keys = runs.iter().flat_map(|(_, values)| values.keys());
        let mut keys: Vec<&String> = keys.filter(|key| is_under(key, rule) && !free(key)).collect();
        keys.sort();
        keys.dedup();
        for key in keys {
            let mut by_value: BTreeMap<String, Vec<&str>> = BTreeMap::new();
            for (name, values) in runs {
                let value = values.get(key).map_or("not set".to_owned(), ToString::to_string);
                by_value.entry(value).or_default().push(name);
            }
            if by_value.len() > 1 {
                let values: Vec<String> = by_value
                    .into_iter()
                    .map(|(value, names)| format!("{value} in {}", some(&names)))
                    .collect();
                return Err(SweepError::Unlike { key: key.clone(), values: values.join(" and ") });
            }
        }
    }
    Ok(())
}

/// The first few `names`.
fn some(names: &[&str]) -> String {
    const SHOWN: usize = 3;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, batch: i64, threads: i64) -> (String, Assignments) {
        let values = [
            ("train.batch_size".to_owned(), batch.into()),
            ("devices.threads".to_owned(), threads.into()),
            ("devices.backend".to_owned(), "cpu".into()),
        ];
        (name.to_owned(), Assignments::from(values))
    }

    fn check(rules: &[&str], runs: &[(String, Assignments)]) -> Result<(), SweepError> {
        let rules: Vec<String> = rules.iter().map(|rule| (*rule).to_owned()).collect();
        let known = ["train.batch_size", "devices.threads", "devices.backend"].map(str::to_owned);
        check_matching(&rules, runs, &known, |key| key == "devices.threads")
    }

    #[test]
    fn a_difference_names_the_values_and_the_runs() {
        let mut runs: Vec<_> = (0..4).map(|seed| run(&format!("zoh-s{seed}"), 128, 1)).collect();
        check(&["train.batch_size"], &runs).unwrap();
        runs.push(run("rk4-s0", 64, 1));
        let error = check(&["train.batch_size"], &runs).unwrap_err().to_string();
        let expected =
            "train.batch_size is 128 in zoh-s0, zoh-s1, zoh-s2 and 1 more and 64 in rk4-s0";
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn sections_leave_out_what_no_result_depends_on() {
        check(&["devices"], &[run("a", 1, 1), run("b", 1, 2)]).unwrap();
    }

    #[test]
    fn entries_are_keys() {
        let error = check(&["train.batchsize"], &[run("a", 1, 1)]).unwrap_err().to_string();
        assert!(error.contains("did you mean `train.batch_size`"), "{error}");
        assert!(check(&["train.batch"], &[run("a", 1, 1)]).is_err());
    }
}
