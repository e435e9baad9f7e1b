//! The worst mistakes of a classifier, as pictures.

use std::io::ErrorKind;
use std::path::Path;

use vim_data::{InputKind, LoaderConfig, Split, read_input};
use vim_sweep::predictions::{Image, Predictions};

use crate::error::Error;
use crate::task::classes::readable;
use crate::task::{Pictures, drawing};

/// Most mistakes of a page.
const SHOWN: usize = 24;

/// The images of `split` that the model is wrong about and surest of, by the predictions in the
/// file `path`: none where there is no such file. `plain` is how evaluation loads images.
pub(super) fn mistakes(split: &Split, path: &Path, plain: LoaderConfig) -> Result<Pictures, Error> {
    let said = match read_input(path, InputKind::Record) {
        Ok(bytes) => Predictions::parse(&bytes).map_err(|why| {
            Error::data(format!("{} holds no predictions: {why}", path.display()))
        })?,
        Err(error) if error.kind() == ErrorKind::NotFound => Predictions::default(),
        Err(error) => return Err(Error::io("read", path)(error)),
    };
    let (mistakes, all) = surest(&said);
    let dataset = split.dataset();
    let index = |image: &Image| usize::try_from(image.index).unwrap_or(usize::MAX);
    let known =
        |image: &Image| index(image) < dataset.len() && dataset.name(index(image)) == image.name;
    let mistakes: Vec<_> = mistakes.into_iter().filter(|(image, _, _)| known(image)).collect();
    let indices = mistakes.iter().map(|(image, _, _)| index(image)).collect();
    if mistakes.is_empty() {
        return Ok(Pictures::default());
    }
    let pixels = drawing::evaluated(split, indices, plain)?;
    let names = readable(split.class_names());
    let name = |class: u64| {
        let known = usize::try_from(class).ok().and_then(|class| names.get(class));
        known.cloned().unwrap_or_else(|| format!("class {class}"))
    };
    let image = |((image, predicted, probability), pixels): ((&Image, u64, f64), _)| {
        let said = format!("{:.1} % {}", 100.0 * probability, name(predicted));
        (image.name.clone(), pixels, vec![said, format!("is {}", name(image.label))])
    };
    let shown = pixels.len();
    Ok(Pictures {
        title: "The worst mistakes",
        note: format!(
            "Of {all} of {} test images that are taken for another class, the {shown} that the \
             model is surest of, as it sees them. Some may be labelled wrong.",
            said.images.len()
        ),
        images: mistakes.into_iter().zip(pixels).map(image).collect(),
        ..Pictures::default()
    })
}

/// The wrong answers of the largest probability, those first, each with its image; and how many
/// are wrong in all.
fn surest(said: &Predictions) -> (Vec<(&Image, u64, f64)>, usize) {
    let rows = said.images.iter().zip(&said.predicted).zip(&said.probabilities);
    let wrong = rows.filter_map(|((image, predicted), probability)| {
        let predicted = predicted.filter(|&predicted| predicted != image.label)?;
        Some((image, predicted, (*probability)?))
    });
    let mut wrong: Vec<(&Image, u64, f64)> = wrong.collect();
    wrong.sort_by(|a, b| b.2.total_cmp(&a.2));
    let all = wrong.len();
    wrong.truncate(SHOWN);
    (wrong, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_surest_mistakes_come_first() {
        let text = "index,image,label,predicted,probability\n0,a,1,1,0.99\n1,b,1,0,0.40\n\
                    2,c,0,,\n3,d,0,2,0.90\n";
        let said = Predictions::parse(text.as_bytes()).unwrap();
        let (mistakes, all) = surest(&said);
        let found: Vec<_> = mistakes.iter().map(|(i, said, p)| (&*i.name, *said, *p)).collect();
        assert_eq!((found, all), (vec![("d", 2, 0.9), ("b", 0, 0.4)], 2));
    }
}
