//! Elements of SVG. Their classes are coloured by a style sheet: a page's, or that of [`document`].

use std::fmt::Write;

use crate::scale::Scale;
use crate::style::{COLOURS, ON_DARK};

/// `text` with the characters escaped that mean something in HTML and SVG, and without those that
/// XML forbids.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other if other.is_control() && !other.is_whitespace() => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

/// A straight line.
pub fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> String {
    format!(
        r#"<line class="{class}" x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}"/>"#,
        from.0, from.1, to.0, to.1
    )
}

/// A line of text; `anchor` is `start`, `middle` or `end`.
pub fn text(class: &str, at: (f64, f64), anchor: &str, text: &str) -> String {
    format!(
        r#"<text class="{class}" x="{:.1}" y="{:.1}" text-anchor="{anchor}">{}</text>"#,
        at.0,
        at.1,
        escape(text)
    )
}

/// About the width of a line of text in the fonts of figures, whose letters are `size` high; rather
/// more than less, as labels are kept apart by it.
pub fn text_width(text: &str, size: f64) -> f64 {
    // From U+2E80 on there are letters of Chinese, Japanese and Korean, as wide as high.
    text.chars().map(|letter| if letter < '\u{2e80}' { 0.65 } else { 1.05 } * size).sum()
}

/// `text`, or as much of its beginning before an ellipsis as is no wider than `width`.
pub fn fit(text: &str, size: f64, width: f64) -> String {
    if text_width(text, size) <= width {
        return text.to_owned();
    }
    let mut short = text.to_owned();
    while !short.is_empty() && text_width(&short, size) + text_width("…", size) > width {
        short.pop();
    }
    short + "…"
}

/// A path through `points`.
pub fn path(class: &str, points: &[(f64, f64)]) -> String {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    format!(r#"<path class="{class}" d="M{}"/>"#, points.join("L"))
}

/// A horizontal error bar from `low` to `high` at height `y`, with caps of twice the height `cap`.
pub fn error_bar(class: &str, (low, high): (f64, f64), y: f64, cap: f64) -> String {
    let cap_at = |x: f64| format!("M{x:.1} {:.1}v{:.1}", y - cap, 2.0 * cap);
    let caps = cap_at(low) + &cap_at(high);
    format!(r#"<path class="{class}" d="M{low:.1} {y:.1}H{high:.1}{caps}"/>"#)
}

/// A horizontal grid line from `ends.0` to `ends.1` at each tick of `y`, labelled on the left.
pub fn grid_rows(y: &Scale, ends: (f64, f64)) -> String {
    let row = |(at, label): (f64, String)| {
        let label = text("", (ends.0 - 8.0, at + 4.0), "end", &label);
        line("grid", (ends.0, at), (ends.1, at)) + &label
    };
    y.ticks(5).into_iter().map(row).collect()
}

/// A figure for a page of HTML, whose style sheet gives the classes their colours; `label`
/// describes it for screen readers.
pub fn figure(width: f64, height: f64, label: &str, body: &str) -> String {
    format!(
        r#"<svg viewBox="0 0 {width:.0} {height:.0}" role="img" aria-label="{}">{body}</svg>"#,
        escape(label)
    )
}

/// A figure as a file of its own: on white, or, where a reader prefers it, on a dark page.
pub fn document(width: f64, height: f64, label: &str, body: &str) -> String {
    // Of plain colours: not every program that draws SVG knows variables.
    let [light, dark] = [COLOURS, ON_DARK].map(|colours| {
        colours.iter().enumerate().fold(String::new(), |mut rules, (number, colour)| {
            let _ = writeln!(
                rules,
                ".c{number} .line, .c{number} .whisker {{ stroke: {colour} }}\n\
                 .c{number} .dot, .c{number} .bar, .c{number} .band {{ fill: {colour} }}"
            );
            rules
        })
    });
    let style = format!(
        "{}{light}@media (prefers-color-scheme: dark) {{\n{}{dark}}}\n",
        include_str!("document.css"),
        include_str!("dark.css")
    );
    let label = escape(label);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{label}\">\n\
         <style>\n{style}</style>\n\
         <rect class=\"page\" width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{body}\n</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_to_its_width() {
        assert!((text_width("bilinear", 10.0) - 52.0).abs() < 1e-9);
        assert!((text_width("双线性", 10.0) - 31.5).abs() < 1e-9);
        assert_eq!(fit("bilinear", 10.0, 52.1), "bilinear");
        assert_eq!(fit("bilinear", 10.0, 39.1), "bilin…");
        assert_eq!(fit("bilinear", 10.0, 0.0), "…");
    }

    #[test]
    fn names_cannot_break_the_page() {
        assert_eq!(escape("a\u{1b}\n"), "a\u{fffd}\n");
        assert_eq!(escape("<a href='x'>&"), "&lt;a href=&#39;x&#39;&gt;&amp;");
    }
}
