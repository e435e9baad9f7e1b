//! The tables of a page.

use std::collections::{BTreeMap, BTreeSet};

use vim_chart::{SeriesStyle, escape};

use super::View;
use crate::config::Pick;
use crate::grid::{has, is_under};
use crate::outcome::{Machine, RunOutcome};
use crate::summary::{Comparison, Group};
use crate::table::{head, rows};

/// Placeholder for an unknown value.
const NONE: &str = "–";

pub(super) fn table(head: &str, body: &str) -> String {
    format!("<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
}

fn or_none(value: Option<&String>) -> String {
    escape(value.map_or(NONE, String::as_str))
}

impl View<'_> {
    /// The summary, with the differences in bold that are shown.
    pub(super) fn result_table(&self) -> String {
        let summary = self.page.summary;
        let head: String =
            head(summary).iter().map(|name| format!("<th>{}</th>", escape(name))).collect();
        let row = |(cells, (group, style)): (Vec<String>, (&Group, SeriesStyle))| {
            let is_shown = group.comparison.as_ref().is_some_and(Comparison::is_shown);
            let class = if is_shown { " class=\"shown\"" } else { "" };
            let cells = cells.iter().enumerate().map(|(column, cell)| match column {
                0 => format!("<td>{}{}</td>", style.swatch(), escape(cell)),
                _ => format!("<td>{}</td>", escape(cell)),
            });
            format!("<tr{class}>{}</tr>", cells.collect::<String>())
        };
        let body: String = rows(summary).into_iter().zip(self.groups()).map(row).collect();
        table(&head, &body)
    }

    /// The machines of the runs.
    pub(super) fn machines(&self) -> String {
        let mut machines: BTreeMap<Machine, usize> = BTreeMap::new();
        for run in self.page.outcomes.iter().filter(|run| run.machine != Machine::default()) {
            // Every run has its own job.
            let machine = Machine { job: None, ..run.machine.clone() };
            *machines.entry(machine).or_default() += 1;
        }
        if machines.is_empty() {
            return "<p class=\"note\">Of no run is the machine on record.</p>".to_owned();
        }
        let row = |(machine, count): (&Machine, &usize)| {
            let commit: Option<String> =
                machine.commit.as_ref().map(|commit| commit.chars().take(9).collect());
            format!(
                "<tr><td class=\"text\">{}</td><td class=\"long\">{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{count}</td></tr>",
                or_none(machine.host.as_ref()),
                or_none(machine.backend.as_ref()),
                or_none(machine.cpus.as_ref()),
                or_none(machine.threads.as_ref()),
                or_none(commit.as_ref())
            )
        };
        let head = "<th>machine</th><th class=\"text\">device</th><th>cores</th><th>threads</th>\
                <th>commit</th><th>runs</th>";
        let body: String = machines.iter().map(row).collect();
        format!("<div class=\"wide\">{}</div>", table(head, &body))
    }

    /// Differing keys, keys under `must_match`, and all other keys of the configurations.
    pub(super) fn configuration(&self) -> String {
        let outcomes = self.page.outcomes;
        let keys: BTreeSet<&String> = outcomes.iter().flat_map(|run| run.values.keys()).collect();
        let values = |key: &str| -> Vec<String> {
            let mut seen = Vec::new();
            for run in outcomes {
                let value = run.values.get(key).map_or("not set".to_owned(), ToString::to_string);
                if !seen.contains(&value) {
                    seen.push(value);
                }
            }
            seen
        };
        let (mut differing, mut held, mut shared) = (String::new(), Vec::new(), String::new());
        for key in keys.into_iter().filter(|key| !(self.page.is_free)(key)) {
            let values = values(key);
            if let [value] = &values[..] {
                let fact =
                    format!("<dt>{}</dt><dd><code>{}</code></dd>", escape(key), escape(value));
                if self.page.must_match.iter().any(|rule| is_under(key, rule)) {
                    held.push(fact.clone());
                }
                shared.push_str(&fact);
            } else {
                differing.push_str(&format!(
                    "<tr><td>{}</td><td>{}</td><td class=\"long\"><code>{}</code></td></tr>",
                    escape(key),
                    values.len(),
                    escape(&values.join(", "))
                ));
            }
        }
        let differing = match differing.as_str() {
            "" => "<p class=\"note\">Nothing.</p>".to_owned(),
            rows => table("<th>key</th><th>values</th><th class=\"text\">which</th>", rows),
        };
        format!(
            "<section><h2>Configuration</h2>\
         <div class=\"pair\"><div><h3>What differs</h3>{differing}</div>\
         <div><h3>Held equal in all runs</h3><dl class=\"facts\">{}</dl></div></div>\
         <details><summary>Everything that is the same in all runs</summary>\
         <dl class=\"facts\">{shared}</dl></details></section>",
            held.concat()
        )
    }

    /// All runs.
    pub(super) fn runs(&self) -> String {
        let metric = self.metric;
        let head = format!(
            "<th>run</th><th class=\"text\">state</th><th>steps</th><th>{title}{unit}, last</th>\
         <th>best</th><th>img/s</th><th>time</th><th class=\"text\">machine</th>\
         <th class=\"text\">job</th><th>id</th>",
            title = escape(&metric.title()),
            unit = metric.unit()
        );
        let row = |run: &RunOutcome| {
            let of = self.groups().find(|(group, _)| has(&run.assignments, &group.assignments));
            let swatch = of.map_or_else(String::new, |(_, style)| style.swatch());
            let number =
                |value: Option<u64>| value.map_or(NONE.to_owned(), |value| value.to_string());
            let value =
                |pick| metric.value(run, pick).map_or(NONE.to_owned(), |value| metric.show(value));
            let speed =
                run.images_per_second.map_or(NONE.to_owned(), |speed| format!("{speed:.0}"));
            let time =
                if run.seconds > 0.0 { (self.page.duration)(run.seconds) } else { NONE.to_owned() };
            format!(
                "<tr><td>{swatch}{}</td><td class=\"text\"><span class=\"state {}\">{}</span></td>\
             <td>{}/{}</td><td>{}</td><td>{}</td><td>{speed}</td><td>{}</td>\
             <td class=\"text\">{}</td><td class=\"text\">{}</td><td><code>{}</code></td></tr>",
                escape(&run.name),
                run.state.name(),
                run.state,
                number(run.step),
                number(run.total_steps),
                value(Pick::Last),
                value(Pick::Best),
                escape(&time),
                or_none(run.machine.host.as_ref()),
                or_none(run.machine.job.as_ref()),
                escape(&run.id)
            )
        };
        let body: String = self.page.outcomes.iter().map(row).collect();
        format!("<section><h2>Runs</h2><div class=\"wide\">{}</div></section>", table(&head, &body))
    }
}
