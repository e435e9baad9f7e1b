//! The labelled page beside the picture: a table with every image in it, in one file.

use std::fmt::Write;

use vim_chart::escape;
use vim_data::Pixels;

use crate::error::Error;
use crate::output::picture::data_uri;
use crate::task::drawing::Row;

const STYLE: &str = "\
:root { color-scheme: light dark }
body { font: 14px \"DejaVu Sans\", \"Segoe UI\", Helvetica, Arial, \"Noto Sans CJK SC\", \"PingFang SC\", \"Microsoft YaHei\", sans-serif; margin: 1.5em }
th { text-align: left; font-weight: 600 }
th, td { vertical-align: top; padding: 0.4em 0.8em 0.8em 0 }
td, tbody th { min-width: 9em; max-width: 18em; overflow-wrap: anywhere }
.wide { overflow-x: auto }
img { display: block; image-rendering: pixelated; margin-bottom: 0.3em }";

/// The page; an image is shown `factor` times as large as it is.
pub(super) fn page(title: &str, note: &str, rows: &[Row], factor: usize) -> Result<String, Error> {
    let draws = rows.iter().map(|row| row.draws.len()).max().unwrap_or(0);
    let (title, note) = (escape(title), escape(note));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\n\
         <style>\n{STYLE}\n</style></head>\n<body><h1>{title}</h1><p>{note}</p>\n\
         <div class=\"wide\"><table><thead><tr><th>image</th><th>evaluation</th>"
    );
    for draw in 1..=draws {
        let _ = write!(page, "<th>draw {draw}</th>");
    }
    page.push_str("</tr></thead><tbody>\n");
    for Row { label, before, draws } in rows {
        let before = image(before, factor)?;
        let _ = write!(page, "<tr><th>{}</th><td>{before}</td>", escape(label));
        for draw in draws {
            let cell = match draw {
                Some((pixels, done)) => image(pixels, factor)? + &escape(done),
                None => String::new(),
            };
            let _ = write!(page, "<td>{cell}</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div></body></html>\n");
    Ok(page)
}

fn image(pixels: &Pixels, factor: usize) -> Result<String, Error> {
    let (width, height) = (factor * pixels.width, factor * pixels.height);
    let data = data_uri(pixels)?;
    Ok(format!(r#"<img alt="" width="{width}" height="{height}" src="{data}">"#))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_missing_draws_are_empty() {
        let draws = vec![None, Some((Pixels::black(2, 3), "mirrored".to_owned()))];
        let row = Row { label: "<b>".into(), before: Pixels::black(2, 3), draws };
        let page = page("t", "n", &[row], 64).unwrap();
        for part in ["<th>&lt;b&gt;</th>", "<td></td>", "mirrored</td>", "width=\"192\"", "draw 2"]
        {
            assert!(page.contains(part), "{part} is not in {page}");
        }
    }
}
