//! A table of counts whose cells are shaded, such as a confusion matrix.

use std::fmt::Write;

use crate::svg::{document, figure, text};

/// Counts by row and column, shaded by their share of the row: the diagonal in one colour, the rest
/// in another.
#[derive(Clone, Debug)]
pub struct Matrix<'a> {
    /// What the figure shows.
    pub title: &'a str,
    /// What the rows are.
    pub row_title: &'a str,
    /// What the columns are.
    pub column_title: &'a str,
    /// Names of the rows.
    pub rows: &'a [String],
    /// Names of the columns.
    pub columns: &'a [String],
    /// The counts that are not 0, with their row and column.
    pub cells: &'a [(usize, usize, u64)],
}

/// With more rows or columns than this, cells are small and have neither names nor counts.
const NAMED: usize = 60;
/// Pixels of the side of a cell with its count, and of one without.
const SIDE: [f64; 2] = [34.0, 6.0];
/// Pixels for each character of a name.
const LETTER: f64 = 8.0;
/// Longest name, in characters.
const LONGEST: usize = 24;
/// Above this share a cell is so dark that its count is white.
const DARK: f64 = 0.55;

impl Matrix<'_> {
    /// The figure as a file of its own.
    pub fn draw(&self) -> String {
        let (width, height, body) = self.elements();
        document(width, height, self.title, &body)
    }

    /// The figure for a page of HTML, no wider than it is in a file.
    pub fn figure(&self) -> String {
        let (width, height, body) = self.elements();
        let drawing = figure(width, height, self.title, &body);
        format!(r#"<figure style="width:{width:.0}px">{drawing}</figure>"#)
    }

    /// Width, height and elements of the figure.
    fn elements(&self) -> (f64, f64, String) {
        let Self { title, row_title, column_title, rows, columns, cells } = self;
        let is_named = rows.len().max(columns.len()) <= NAMED;
        let side = SIDE[usize::from(!is_named)];
        let longest = |names: &[String]| {
            let letters = names.iter().map(|name| cut(name).chars().count()).max().unwrap_or(0);
            if is_named { LETTER * letters as f64 } else { 0.0 }
        };
        let (left, top) = (longest(rows) + 48.0, longest(columns) + 76.0);
        let (width, height) = (side * columns.len() as f64, side * rows.len() as f64);
        let mut body = text("name", (12.0, 24.0), "start", title);
        body += &text("", (left, 48.0), "start", &format!("{column_title} →"));
        body += &turned((24.0, top), -90.0, "end", &format!("← {row_title}"));

        let mut sums = vec![0; rows.len()];
        for &(row, _, count) in *cells {
            sums[row] += count;
        }
        for &(row, column, count) in *cells {
            let (x, y) = (left + side * column as f64, top + side * row as f64);
            let share = count as f64 / sums[row] as f64;
            let class = if row == column { "cell" } else { "wrong" };
            // The count and the names, which a browser shows at the cell.
            let tip = crate::escape(&format!("{} → {}: {count}", rows[row], columns[column]));
            let _ = write!(
                body,
                r#"<rect class="{class}" fill-opacity="{:.2}" x="{x:.1}" y="{y:.1}" width="{side}" height="{side}"><title>{tip}</title></rect>"#,
                0.08 + 0.92 * share
            );
            if is_named {
                let class = if share > DARK { "value inverse" } else { "value" };
                let at = (x + side / 2.0, y + side / 2.0 + 4.5);
                body += &text(class, at, "middle", &count.to_string());
            }
        }
        let _ = write!(
            body,
            r#"<rect class="axis" fill="none" x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}"/>"#
        );
        if is_named {
            for (number, name) in rows.iter().enumerate() {
                let y = top + side * (number as f64 + 0.5) + 4.5;
                body += &text("value", (left - 8.0, y), "end", &cut(name));
            }
            for (number, name) in columns.iter().enumerate() {
                let x = left + side * (number as f64 + 0.5) + 4.5;
                body += &turned((x, top - 8.0), -90.0, "start", &cut(name));
            }
        }
        let least = LETTER * title.chars().count() as f64 + 24.0;
        ((left + width + 24.0).max(least), top + height + 24.0, body)
    }
}

/// A name of at most [`LONGEST`] characters.
fn cut(name: &str) -> String {
    match name.chars().nth(LONGEST) {
        None => name.to_owned(),
        Some(_) => name.chars().take(LONGEST - 1).chain(['…']).collect(),
    }
}

/// A line of text turned about its anchor by `degrees`.
fn turned((x, y): (f64, f64), degrees: f64, anchor: &str, words: &str) -> String {
    let text = text("value", (0.0, 0.0), anchor, words);
    format!(r#"<g transform="translate({x:.1} {y:.1}) rotate({degrees})">{text}</g>"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(classes: usize, cells: &[(usize, usize, u64)]) -> String {
        let names: Vec<String> = (0..classes).map(|class| format!("<{class}>")).collect();
        Matrix {
            title: "confusion",
            row_title: "true",
            column_title: "predicted",
            rows: &names,
            columns: &names,
            cells,
        }
        .draw()
    }

    #[test]
    fn a_cell_is_shaded_by_its_share_of_the_row() {
        let drawn = draw(2, &[(0, 0, 3), (0, 1, 1), (1, 1, 2)]);
        for part in [
            r#"<rect class="cell" fill-opacity="0.77""#,
            r#"<rect class="wrong" fill-opacity="0.31""#,
            r#"<rect class="cell" fill-opacity="1.00""#,
            "<title>&lt;0&gt; → &lt;1&gt;: 1</title>",
            r#"text-anchor="end">&lt;1&gt;</text>"#,
        ] {
            assert!(drawn.contains(part), "{part} is not in {drawn}");
        }
        assert_eq!(drawn.matches("<title>").count(), 3);
    }

    #[test]
    fn many_classes_have_cells_alone() {
        let drawn = draw(NAMED + 1, &[(3, 7, 5)]);
        assert!(!drawn.contains("&lt;0&gt;</text>") && drawn.contains("→ &lt;7&gt;: 5</title>"));
        assert_eq!(cut(&"x".repeat(30)).chars().count(), LONGEST);
    }
}
