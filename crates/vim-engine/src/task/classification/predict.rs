//! What `predict` says of an image: its likeliest classes.

use std::fmt;

use burn::tensor::Tensor;
use serde::Serialize;

/// The likeliest classes of an image, the likeliest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Guesses(Vec<Guess>);

/// A class, and how likely it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Guess {
    /// Its number.
    pub class: usize,
    /// Its name.
    pub name: String,
    /// 0 to 1; not a number where the model's output is none.
    pub probability: f64,
}

impl Guesses {
    /// At most `count` of them, the likeliest first.
    pub fn likeliest(&self, count: usize) -> &[Guess] {
        &self.0[..count.min(self.0.len())]
    }

    /// Keeps the `count` likeliest.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.0.truncate(count);
    }
}

impl fmt::Display for Guesses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, Guess { class, name, probability }) in self.0.iter().enumerate() {
            let newline = if place == 0 { "" } else { "\n" };
            write!(formatter, "{newline}  {:6.2} %  {name} ({class})", 100.0 * probability)?;
        }
        Ok(())
    }
}

/// The `top` likeliest classes by each row of `logits`, `[B, K]`.
pub(super) fn guesses(logits: Tensor<2>, names: &[String], top: usize) -> Vec<Guesses> {
    let [_, classes] = logits.dims();
    let logits: Vec<f32> = logits.into_data().iter().collect();
    let guesses = logits.chunks_exact(classes).map(|row| {
        let probabilities = softmax(row);
        let guess = |class: usize| Guess {
            class,
            name: names.get(class).cloned().unwrap_or_else(|| format!("class {class}")),
            probability: probabilities[class],
        };
        Guesses(largest(&probabilities, top).into_iter().map(guess).collect())
    });
    guesses.collect()
}

/// Logits to probabilities.
pub(crate) fn softmax(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = logits.iter().map(|&x| f64::from(x - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

/// Indices of the `count` largest values, descending; ties keep their order.
pub(crate) fn largest(numbers: &[f64], count: usize) -> Vec<usize> {
    let mut classes: Vec<usize> = (0..numbers.len()).collect();
    classes.sort_by(|&a, &b| numbers[b].total_cmp(&numbers[a]).then(a.cmp(&b)));
    classes.truncate(count);
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_come_first_and_ties_in_order() {
        assert_eq!(largest(&[0.1, 0.4, 0.4, 0.1], 3), [1, 2, 0]);
        assert_eq!(largest(&[1.0], 5), [0]);
    }
}
