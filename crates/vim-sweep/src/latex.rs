//! A summary as a table for LaTeX.

use crate::summary::{Comparison, Summary};
use crate::table::{head, legend, rows, verdict};

/// The table by the commands of LaTeX's package booktabs, with differences in bold that are shown;
/// what its columns mean, as a comment.
pub fn latex(summary: &Summary, title: &str) -> String {
    let columns = head(summary);
    let line = |cells: &[String]| cells.join(" & ") + " \\\\\n";
    let escaped = |cells: &[String]| -> Vec<String> { cells.iter().map(|c| escape(c)).collect() };
    let comments = [format!("{title}; {}: {}.", summary.metric, summary.choice)];
    let comments = comments.into_iter().chain(verdict(summary)).chain([legend(summary)]);
    let mut text: String = comments.map(|comment| format!("% {}\n", one_line(&comment))).collect();
    text += "% needs \\usepackage{booktabs}\n";
    text += &format!("\\begin{{tabular}}{{l{}}}\n\\toprule\n", "r".repeat(columns.len() - 1));
    text += &(line(&escaped(&columns)) + "\\midrule\n");
    for (cells, group) in rows(summary).iter().zip(&summary.groups) {
        let mut cells = escaped(cells);
        if group.comparison.as_ref().is_some_and(Comparison::is_shown) {
            // Behind run, n, the metric, min and max.
            cells[5] = format!("\\textbf{{{}}}", cells[5]);
        }
        text += &line(&cells);
    }
    text + "\\bottomrule\n\\end{tabular}\n"
}

/// Text without line ends, which would end a comment.
fn one_line(text: &str) -> String {
    text.split(char::is_control).collect::<Vec<_>>().join(" ")
}

/// Text as LaTeX's commands for it; letters beyond ASCII stay.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for letter in one_line(text).chars() {
        match letter {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => escaped.extend(['\\', letter]),
            '\\' => escaped += "\\textbackslash{}",
            '~' => escaped += "\\textasciitilde{}",
            '^' => escaped += "\\textasciicircum{}",
            '<' | '>' | '|' | '−' | '±' | '·' | 'Δ' => {
                let command = match letter {
                    '−' => "-",
                    '±' => "\\pm",
                    '·' => "\\cdot",
                    'Δ' => "\\Delta",
                    '<' => "<",
                    '>' => ">",
                    _ => "|",
                };
                escaped += &format!("${command}$");
            }
            '–' => escaped += "--",
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{SCORES, study};
    use crate::{Assignments, ReportConfig, RunOutcome, summarize};

    fn of(runs: &[RunOutcome]) -> String {
        let baseline = Assignments::from([("model.discretization".to_owned(), "zoh".into())]);
        let report = ReportConfig { baseline, ..ReportConfig::default() };
        latex(&summarize(runs, &report, SCORES).unwrap(), "a\nstudy")
    }

    #[test]
    fn a_table_for_booktabs() {
        let mut runs = study(&[("zoh", &[0.70, 0.72, 0.71]), ("foh_linear", &[0.63, 0.65, 0.66])]);
        runs[0].scores[1].values.insert("largest_delta_a".into(), 1.25);
        let text = of(&runs);
        let expected = r"% needs \usepackage{booktabs}
\begin{tabular}{lrrrrrrrrrrr}
\toprule
run & n & val top-1, \% & min & max & minus zoh & 95 \% interval & p & p (Holm) & detectable & minutes & largest $|$$\Delta$A$|$ \\
\midrule
zoh & 3/3 & 71.00 $\pm$ 1.00 & 70.00 & 72.00 & baseline & -- & -- & -- & -- & 0.2 & 1.25 \\
foh\_linear & 3/3 & 64.67 $\pm$ 1.53 & 63.00 & 66.00 & \textbf{$-$6.33} & $-$9.20 to $-$3.46 & 0.011 & 0.011 & 3.77 & 0.2 & -- \\
\bottomrule
\end{tabular}
";
        assert!(text.ends_with(expected), "{text}");
        assert!(
            text.starts_with("% a study; val/top1: last evaluation, nothing selected.\n% 1 of 1")
        );
        assert_eq!(text, of(&runs), "the same each time");
        assert!(text.lines().all(|line| line.starts_with('%') || !line.contains('±')));
    }

    #[test]
    fn no_name_is_a_command() {
        let name = "a\\b{c}~^_&%$#\n|<>";
        let expected =
            r"a\textbackslash{}b\{c\}\textasciitilde{}\textasciicircum{}\_\&\%\$\# $|$$<$$>$";
        assert_eq!(escape(name), expected);
        let row = of(&study(&[("zoh", &[0.5]), (name, &[0.5])]));
        assert!(row.contains(&format!("{expected} & 1/1 & ")), "{row}");
    }
}
