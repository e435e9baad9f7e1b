//! The page of predictions: each image, small, with what the model says of it.

use std::collections::BTreeMap;

use vim_chart::escape;
use vim_data::{Pixels, Resizer, encode_png};
use vim_sweep::report::document;

use super::output::Answer;
use crate::error::Error;

/// The longest side of a thumbnail.
const SIDE: usize = 128;
/// Classes named in the summary.
const NAMED: usize = 12;

/// An image of `size`, `[height, width]`, as a data URI.
pub(super) fn thumbnail(pixels: Vec<u8>, size: [usize; 2]) -> Result<String, Error> {
    let whole = Pixels { height: size[0], width: size[1], data: pixels };
    let longest = size[0].max(size[1]);
    let shown = if longest <= SIDE {
        enlarged(&whole, SIDE / longest)
    } else {
        let [height, width] = size.map(|side| (side * SIDE / longest).max(1));
        let mut small = Pixels::black(height, width);
        Resizer::new().resize(&whole, whole.region(), [height, width], &mut small.data);
        small
    };
    let bytes =
        encode_png(&shown).map_err(|error| Error::internal(format!("a thumbnail: {error}")))?;
    Ok(format!("data:image/png;base64,{}", base64(&bytes)))
}

/// Each pixel as a square of `factor` × `factor`: a browser would blur them.
fn enlarged(image: &Pixels, factor: usize) -> Pixels {
    let lines = image.data.chunks_exact(3 * image.width).flat_map(|line| {
        let line: Vec<u8> = line.chunks_exact(3).flat_map(|pixel| pixel.repeat(factor)).collect();
        line.repeat(factor)
    });
    let (height, width) = (factor * image.height, factor * image.width);
    Pixels { height, width, data: lines.collect() }
}

/// The page of `answers`, each with its `top` likeliest classes.
pub(super) fn page(answers: &[Answer], top: usize, weights: &str) -> String {
    let cards: String = answers.iter().map(|answer| card(answer, top)).collect();
    let images = answers.len();
    let title = format!("{images} image{}", if images == 1 { "" } else { "s" });
    let body = format!(
        "<header><p class=\"kicker\">Predictions</p><h1>{title}</h1><p class=\"lead\">{}</p>\
         </header><p class=\"note\">{}</p><div class=\"gallery\">{cards}</div>",
        escape(weights),
        escape(&summary(answers))
    );
    document("Predictions", &body)
}

/// How often each class is the likeliest one, the most frequent first.
fn summary(answers: &[Answer]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for best in answers.iter().filter_map(|answer| answer.predictions.likeliest(1).first()) {
        *counts.entry(&best.name).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let others = counts.len().saturating_sub(NAMED);
    counts.truncate(NAMED);
    let mut words: Vec<String> =
        counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    if others > 0 {
        words.push(format!("{others} more classes"));
    }
    format!("Likeliest: {}.", words.join(", "))
}

fn card(answer: &Answer, top: usize) -> String {
    let guesses = answer.predictions.likeliest(top).iter().map(|guess| {
        let percent = 100.0 * guess.probability;
        format!(
            "<li><span>{}</span><b>{percent:.1} %</b><i style=\"width:{percent:.1}%\"></i></li>",
            escape(&guess.name)
        )
    });
    let image = escape(&answer.image);
    format!(
        "<figure><img alt=\"{image}\" src=\"{}\"><figcaption><code>{image}</code><ul>{}</ul>\
         </figcaption></figure>\n",
        answer.thumbnail.as_deref().unwrap_or_default(),
        guesses.collect::<String>()
    )
}

/// Base64 of RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xef, 0xbe]), "/+++");
    }

    #[test]
    fn thumbnails_are_of_one_size_and_keep_their_proportions() {
        // Behind 18 bytes, the lower half of the PNG's width and its height.
        let size = [&64_u16.to_be_bytes()[..], &128_u32.to_be_bytes()].concat();
        for [height, width] in [[448, 224], [32, 16]] {
            let uri = thumbnail(vec![128; 3 * height * width], [height, width]).unwrap();
            let letters = uri.strip_prefix("data:image/png;base64,").unwrap();
            assert_eq!(letters[24..32], base64(&size));
        }
        let pixels = Pixels { height: 1, width: 2, data: vec![1, 2, 3, 4, 5, 6] };
        let line = [1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6];
        assert_eq!(enlarged(&pixels, 2).data, [line, line].concat());
    }
}
