//! What `data scan` prints of label maps.

use vim_data::LabelCounts;
use vim_run::printable;

/// A table of the classes in label maps, a line each.
pub(super) fn labels_text(labels: &LabelCounts) -> Vec<String> {
    let share = |pixels: u64| match pixels {
        0 => "never".to_owned(),
        // At most the fewest digits that do not make it 0.
        _ => match 100.0 * pixels as f64 / labels.pixels.max(1) as f64 {
            percent @ ..0.01 => format!("{percent:.0e} %"),
            percent => format!("{percent:.2} %"),
        },
    };
    let names: Vec<String> =
        labels.classes.iter().map(|one| printable(&one.class).into_owned()).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("class".len());
    let mut lines = vec![
        format!(
            "  pixels       {} in {} label maps, {:.1} % ignored",
            labels.pixels,
            labels.maps,
            labels.ignored_percent()
        ),
        format!("    {:<width$}  {:>14}  {:>8}  {:>8}", "class", "pixels", "share", "images"),
    ];
    for (one, name) in labels.classes.iter().zip(&names) {
        let (pixels, images, share) = (one.pixels, one.images, share(one.pixels));
        lines.push(format!("    {name:<width$}  {pixels:>14}  {share:>8}  {images:>8}"));
    }
    lines
}
