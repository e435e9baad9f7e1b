//! The images on which methods differ.

use vim_chart::escape;

use super::View;
use super::sections::table;
use crate::differences::{DifferingImage, Pair};
use crate::predictions::Counts;

/// Images shown; the file beside the page has all.
pub const SHOWN: usize = 20;

impl View<'_> {
    /// Each run beside the baseline's, image by image.
    pub(super) fn differences(&self) -> String {
        let found = self.page.differences;
        let body = match (found.pairs.is_empty(), self.has_baseline()) {
            (_, false) => {
                "<p class=\"note\">Nothing is compared: name what the others are compared \
                           with, by <code>sweep.report.baseline</code> or \
                           <code>--baseline</code>.</p>"
                    .to_owned()
            }
            (true, true) => {
                "<p class=\"note\">No two finished runs of one seed have predictions.</p>"
                    .to_owned()
            }
            (false, true) => self.pairs() + &self.images(),
        };
        format!(
            "<section><h2>What differs between methods</h2>{}{body}{}</section>",
            "<p class=\"note\">Of every run the model that was tested, on the test images: who gets \
             which image right.</p>",
            self.absent()
        )
    }

    fn has_baseline(&self) -> bool {
        let groups = &self.page.summary.groups;
        groups.iter().any(|group| group.is_baseline || group.comparison.is_some())
    }

    /// Which runs are not in it.
    fn absent(&self) -> String {
        let found = self.page.differences;
        let without = if self.has_baseline() { &found.without[..] } else { &[] };
        self.absent_of(without, &found.unfit, "predictions")
    }

    /// Which runs are `without` something or cannot be compared, and what to do.
    pub(super) fn absent_of(&self, without: &[String], unfit: &[String], what: &str) -> String {
        let mut text = String::new();
        if !without.is_empty() {
            text += &format!(
                "<p class=\"note\">Without {what}: {}. <code>{}</code> writes them, then summarize \
                 again.</p>",
                escape(&without.join(", ")),
                escape(self.page.predict)
            );
        }
        if !unfit.is_empty() {
            let unfit = escape(&unfit.join("; "));
            text += &format!("<p class=\"note\">Not compared: {unfit}.</p>");
        }
        text
    }

    pub(super) fn swatch_of(&self, label: &str) -> String {
        let group = self.groups().find(|(group, _)| group.label == label);
        group.map_or_else(String::new, |(_, style)| style.swatch())
    }

    fn pairs(&self) -> String {
        let head: String = ["run", "beside", "images", "both right", "only run", "only beside"]
            .into_iter()
            .chain(["neither", "p (McNemar)"])
            .map(|name| format!("<th>{name}</th>"))
            .collect();
        let row = |pair: &Pair| {
            let Counts { images, both, only_first, only_second, neither } = pair.counts;
            let p = if pair.p < 0.001 { "&lt; 0.001".into() } else { format!("{:.3}", pair.p) };
            format!(
                "<tr><td>{}{}</td><td>{}{}</td><td>{images}</td><td>{both}</td>\
                 <td>{only_second}</td><td>{only_first}</td><td>{neither}</td><td>{p}</td></tr>",
                self.swatch_of(&pair.label),
                escape(&pair.run),
                self.swatch_of(&pair.baseline),
                escape(&pair.baseline_run)
            )
        };
        let body: String = self.page.differences.pairs.iter().map(row).collect();
        format!(
            "<div class=\"wide\">{}</div><p class=\"note\">p: how often images that one of two runs \
             alone gets right would be shared out as unevenly between two models that are equally \
             good (McNemar's exact test), uncorrected. It is about these two trained models; \
             whether a method is better is a question of seeds, which the result answers.</p>",
            table(&head, &body)
        )
    }

    fn images(&self) -> String {
        let found = self.page.differences;
        if found.images.is_empty() {
            return "<p class=\"note\">The runs of a pair get the same images right.</p>"
                .to_owned();
        }
        let has_pictures = self.page.thumbnails.iter().any(Option::is_some);
        let picture = if has_pictures { "<th></th>" } else { "" };
        let groups = found.groups.iter().filter(|(_, runs)| *runs > 0);
        let groups: String = groups
            .map(|(label, _)| self.swatch_of(label) + &escape(label))
            .fold(String::new(), |text, name| text + &format!("<th>{name}</th>"));
        let head = format!(
            "{picture}<th class=\"text\">image</th><th class=\"text\">class</th><th>pairs that \
             differ</th>{groups}"
        );
        let shown = found.images.iter().take(SHOWN).enumerate();
        let folder = common_folder(&found.images);
        let row = |(place, one): (usize, &DifferingImage)| {
            let picture = match self.page.thumbnails.get(place) {
                _ if !has_pictures => String::new(),
                Some(Some(uri)) => {
                    format!("<td><img class=\"thumb\" alt=\"\" src=\"{}\"></td>", escape(uri))
                }
                Some(None) | None => "<td></td>".to_owned(),
            };
            let right = found.groups.iter().zip(&one.right).filter(|((_, runs), _)| *runs > 0);
            let right: String =
                right.map(|((_, runs), right)| format!("<td>{right}/{runs}</td>")).collect();
            let class = match one.image.label_name.as_str() {
                "" => one.image.label.to_string(),
                name => name.to_owned(),
            };
            format!(
                "<tr>{picture}<td class=\"long\"><code>{}</code></td><td class=\"long\">{}</td>\
                 <td>{}/{}</td>{right}</tr>",
                escape(&one.image.name[folder.len()..]),
                escape(&class),
                one.pairs(),
                found.pairs.len()
            )
        };
        let rows: String = shown.map(row).collect();
        let all = found.images.len();
        let shown = all.min(SHOWN);
        let within = match folder {
            "" => String::new(),
            folder => format!(" within <code>{}</code>", escape(folder)),
        };
        format!(
            "<h3>The images on which most pairs differ</h3><div class=\"wide\">{}</div><p \
             class=\"note\">{shown} of {all}{within}; the file <code>differing_images.csv</code> \
             has all. Under each setting: how many of its runs get the image right. The images are chosen \
             because they differ: among many, some do by chance.</p>",
            table(&head, &rows)
        )
    }
}

/// The folder that all images are in, with the slash behind it; empty if there is none.
fn common_folder(images: &[DifferingImage]) -> &str {
    let mut names = images.iter().map(|one| one.image.name.as_str());
    let folder = |name: &'_ str| name.rfind('/').map_or(0, |at| at + 1);
    let first = names.next().map_or("", |name| &name[..folder(name)]);
    names.fold(first, |common, name| {
        let same = common.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        &common[..common.as_bytes()[..same].iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1)]
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::page_with;
    use super::{DifferingImage, SHOWN, common_folder};
    use crate::fixture::{predictions, study};
    use crate::predictions::Predictions;

    /// The section of a page.
    fn section(
        read: &dyn Fn(&str) -> Result<Option<Predictions>, String>,
        thumbnails: &[Option<String>],
    ) -> String {
        let runs = study(&[("zoh", &[0.7, 0.7]), ("rk4", &[0.6, 0.6])]);
        let page = page_with(&runs, "val/top1", read, thumbnails);
        let start = page.find("<h2>What differs between methods").unwrap();
        page[start..].split("</section>").next().unwrap().to_owned()
    }

    fn assert_has(text: &str, parts: &[&str]) {
        for part in parts {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn pairs_and_images_are_shown() {
        let of = |name: &str| {
            Ok(Some(predictions(if name.starts_with("zoh") { "11000" } else { "01000" })))
        };
        let text = section(&of, &[Some("data:image/png;base64,AA==".into())]);
        let row = "rk4-s1</td><td><i class=\"swatch c0\"></i>zoh-s1</td><td>5</td>\
                   <td>1</td><td>0</td><td>1</td><td>3</td><td>1.000</td>";
        assert_has(&text, &[row, "src=\"data:image/png;base64,AA==\"", "<code>0.png</code>"]);
        assert_has(&text, &["class 0", "<td>2/2</td><td>2/2</td><td>0/2</td>", "1 of 1;"]);
        assert!(!text.contains("Without predictions"));
        // Without pictures there is no column for them, and not all images are shown.
        let many = "1".repeat(SHOWN + 5);
        let of = |name: &str| {
            let none = many.replace('1', "0");
            Ok(Some(predictions(if name.starts_with("zoh") { &many } else { &none })))
        };
        let text = section(&of, &[]);
        assert_eq!(text.matches(".png</code>").count(), SHOWN);
        assert_has(&text, &["20 of 25;", "&lt; 0.001"]);
        assert!(!text.contains("<img"));
    }

    #[test]
    fn names_are_within_their_common_folder() {
        let of = |names: &[&str]| {
            let row = |name: &&str| format!("0,{name},0,class 0,0\n");
            let rows: String = names.iter().map(row).collect();
            let text = "index,image,label,label_name,predicted\n".to_owned() + &rows;
            let images = Predictions::parse(text.as_bytes()).unwrap().images;
            let differing =
                |image| DifferingImage { image, only_baseline: 1, only_other: 0, right: vec![] };
            common_folder(&images.into_iter().map(differing).collect::<Vec<_>>()).to_owned()
        };
        assert_eq!(of(&["/data/test/bee/1.png", "/data/test/bear/1.png"]), "/data/test/");
        assert_eq!(of(&["/data/test/bée/1.png", "/data/test/bèe/1.png"]), "/data/test/");
        assert_eq!(of(&["test/bee/1.png"]), "test/bee/");
        assert_eq!(of(&["1.png", "10.png"]), "");
        assert_eq!(of(&[]), "");
    }

    #[test]
    fn a_sweep_without_predictions_says_how_to_get_them() {
        let text = section(&|_| Ok(None), &[]);
        assert_has(&text, &["Without predictions: zoh-s0, zoh-s1, rk4-s0, rk4-s1", "write them"]);
        assert_has(&text, &["No two finished runs"]);
        let text = section(&|_| Err("<damaged>".into()), &[]);
        assert_has(&text, &["Not compared: zoh-s0: &lt;damaged&gt;"]);
        let text = section(&|_| Ok(Some(predictions("10"))), &[]);
        assert_has(&text, &["get the same images right"]);
    }
}
