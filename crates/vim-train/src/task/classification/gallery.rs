//! The page of predictions: each image, small, with what the model says of it.

use std::collections::BTreeMap;

use vim_chart::escape;
use vim_sweep::report::{self, document};

use super::answers::Answer;

/// Classes named in the summary.
const NAMED: usize = 12;

/// The page of `answers`, made by `weights`.
pub(super) fn page(answers: &[Answer], weights: &str) -> String {
    let cards: String = answers.iter().map(card).collect();
    let images = answers.len();
    let title = format!("{images} image{}", if images == 1 { "" } else { "s" });
    let body = format!(
        "<header><p class=\"kicker\">Predictions</p><h1>{title}</h1><p class=\"lead\">{}</p>\
         </header><p class=\"note\">{}</p><div class=\"gallery\">{cards}</div>",
        escape(weights),
        escape(&summary(answers))
    );
    document("Predictions", &body)
}

/// How often each class is the likeliest one, the most frequent first.
fn summary(answers: &[Answer]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for best in answers.iter().filter_map(|answer| answer.shown().first()) {
        *counts.entry(&best.name).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let others = counts.len().saturating_sub(NAMED);
    counts.truncate(NAMED);
    let mut words: Vec<String> =
        counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    if others > 0 {
        words.push(format!("{others} more classes"));
    }
    format!("Likeliest: {}.", words.join(", "))
}

fn card(answer: &Answer) -> String {
    let guesses = answer.shown().iter().map(|guess| {
        let percent = 100.0 * guess.probability;
        format!(
            "<li><span>{}</span><b>{percent:.1} %</b><i style=\"width:{percent:.1}%\"></i></li>",
            escape(&guess.name)
        )
    });
    let guesses = format!("<ul>{}</ul>", guesses.collect::<String>());
    report::card(&answer.image, answer.thumbnail.as_deref().unwrap_or_default(), &guesses)
}
