//! What a model says of each image, as `eval --predictions` writes it, and who gets which right.

use serde::Serialize;

use crate::statistics::mcnemar;

/// A file of predictions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predictions {
    /// The images, in the file's order.
    pub images: Vec<Image>,
    /// The likeliest class of each; `None` without a prediction.
    pub predicted: Vec<Option<u64>>,
    /// How likely that class is, 0 to 1; `None` where the file does not say.
    pub probabilities: Vec<Option<f64>>,
}

/// An image, and what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Its number in its dataset.
    pub index: u64,
    /// Its file, or its name in its dataset.
    pub name: String,
    /// Its class.
    pub label: u64,
    /// The name of its class; empty if it is unknown.
    pub label_name: String,
}

impl Predictions {
    /// Reads a CSV file; columns are found by their names.
    ///
    /// # Errors
    ///
    /// What is missing or wrong, in words.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = csv::Reader::from_reader(bytes);
        let head = reader.headers().map_err(|error| error.to_string())?.clone();
        let place = |name: &str| head.iter().position(|column| column == name);
        let needed = |name: &str| place(name).ok_or_else(|| format!("it has no column `{name}`"));
        let (index, image) = (needed("index")?, needed("image")?);
        let (label, predicted) = (needed("label")?, needed("predicted")?);
        let (name, probability) = (place("label_name"), place("probability"));
        let mut read = Self::default();
        for record in reader.records() {
            let record = record.map_err(|error| error.to_string())?;
            let field = |column: usize| record.get(column).unwrap_or_default();
            let number = |text: &str, of: &str| {
                text.parse::<u64>().map_err(|_| format!("{text:?} is no number of {of}"))
            };
            read.images.push(Image {
                index: number(field(index), "an image")?,
                name: field(image).to_owned(),
                label: number(field(label), "a class")?,
                label_name: name.map(|column| field(column).to_owned()).unwrap_or_default(),
            });
            read.probabilities.push(probability.and_then(|column| field(column).parse().ok()));
            read.predicted.push(match field(predicted) {
                "" => None,
                text => Some(number(text, "a class")?),
            });
        }
        Ok(read)
    }

    /// Which images are right. One without a prediction is not.
    pub fn right(&self) -> impl Iterator<Item = bool> {
        self.images.iter().zip(&self.predicted).map(|(image, said)| *said == Some(image.label))
    }
}

/// Predictions that are not for the same images.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unlike {
    /// Not as many.
    #[error("they are of {0} and {1} images")]
    Count(usize, usize),
    /// Others.
    #[error(
        "row {row} is image {} of class {} in one, image {} of class {} in the other",
        .first.0, .first.1, .second.0, .second.1
    )]
    Row {
        /// Its number, from 1.
        row: usize,
        /// Index and label in the first.
        first: (u64, u64),
        /// Index and label in the second.
        second: (u64, u64),
    },
}

/// Checks that two files are of the same images in the same order.
///
/// # Errors
///
/// The first difference.
pub fn check_alike(first: &[Image], second: &[Image]) -> Result<(), Unlike> {
    if first.len() != second.len() {
        return Err(Unlike::Count(first.len(), second.len()));
    }
    let key = |image: &Image| (image.index, image.label);
    let mut pairs = first.iter().zip(second).map(|(a, b)| (key(a), key(b)));
    match pairs.position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => {
            Err(Unlike::Row { row: at + 1, first: key(&first[at]), second: key(&second[at]) })
        }
    }
}

/// Images by which of two models get them right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// All.
    pub images: u64,
    /// Right by both.
    pub both: u64,
    /// By the first alone.
    pub only_first: u64,
    /// By the second alone.
    pub only_second: u64,
    /// By none.
    pub neither: u64,
}

impl Counts {
    /// Adds an image that the models get right or not.
    pub fn add(&mut self, first: bool, second: bool) {
        self.images += 1;
        *match (first, second) {
            (true, true) => &mut self.both,
            (true, false) => &mut self.only_first,
            (false, true) => &mut self.only_second,
            (false, false) => &mut self.neither,
        } += 1;
    }

    /// The p of McNemar's exact test.
    pub fn p(&self) -> f64 {
        mcnemar(self.only_first, self.only_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_by_its_columns() {
        let text = "label,index,image,label_name,predicted,other\n1,7,a.png,dog,1,x\n0,9,b,,,x\n";
        let read = Predictions::parse(text.as_bytes()).unwrap();
        let image = |index, name: &str, label, label_name: &str| Image {
            index,
            name: name.into(),
            label,
            label_name: label_name.into(),
        };
        assert_eq!(read.images, [image(7, "a.png", 1, "dog"), image(9, "b", 0, "")]);
        assert_eq!(read.predicted, [Some(1), None]);
        assert_eq!(read.right().collect::<Vec<_>>(), [true, false]);
        for (text, words) in [
            ("index,image,label\n", "no column `predicted`"),
            ("index,image,label,predicted\nx,a,1,1\n", "\"x\" is no number of an image"),
            ("index,image,label,predicted\n1,a,1,dog\n", "\"dog\" is no number of a class"),
            ("index,image,label,predicted\n1,a\n", "record"),
        ] {
            let error = Predictions::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn other_images_are_told() {
        let images = |rows: &[(u64, u64)]| -> Vec<Image> {
            let image = |&(index, label): &(u64, u64)| Image { index, label, ..Image::default() };
            rows.iter().map(image).collect()
        };
        let ours = images(&[(0, 0), (1, 1)]);
        assert_eq!(check_alike(&ours, &ours), Ok(()));
        assert_eq!(check_alike(&ours, &images(&[(0, 0)])), Err(Unlike::Count(2, 1)));
        let error = check_alike(&ours, &images(&[(0, 0), (2, 1)])).unwrap_err();
        let text = "row 2 is image 1 of class 1 in one, image 2 of class 1 in the other";
        assert_eq!(error.to_string(), text);
    }
}
