//! Pictures within a page.

use vim_data::{Pixels, Resizer, encode_png};

use crate::error::Error;

/// An image as a data URI, its longest side `side` pixels; small ones in whole squares of pixels.
pub(crate) fn thumbnail(whole: &Pixels, side: usize) -> Result<String, Error> {
    let longest = whole.height.max(whole.width);
    let shown = if longest <= side {
        enlarged(whole, side / longest)
    } else {
        let [height, width] = [whole.height, whole.width].map(|own| (own * side / longest).max(1));
        let mut small = Pixels::black(height, width);
        Resizer::new().resize(whole, whole.region(), [height, width], &mut small.data);
        small
    };
    data_uri(&shown)
}

/// An image as a data URI.
pub(crate) fn data_uri(image: &Pixels) -> Result<String, Error> {
    let bytes =
        encode_png(image).map_err(|error| Error::internal(format!("a picture: {error}")))?;
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
        let texts = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (length, text) in texts.into_iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..length]), text);
        }
        assert_eq!(base64(&[0xff, 0xef, 0xbe]), "/+++");
    }

    #[test]
    fn thumbnails_are_of_one_size_and_keep_their_proportions() {
        // Behind 18 bytes, the lower half of the PNG's width and its height.
        let size = [&64_u16.to_be_bytes()[..], &128_u32.to_be_bytes()].concat();
        for [height, width] in [[448, 224], [32, 16]] {
            let whole = Pixels { height, width, data: vec![128; 3 * height * width] };
            let uri = thumbnail(&whole, 128).unwrap();
            let letters = uri.strip_prefix("data:image/png;base64,").unwrap();
            assert_eq!(letters[24..32], base64(&size));
        }
        let pixels = Pixels { height: 1, width: 2, data: vec![1, 2, 3, 4, 5, 6] };
        let line = [1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6];
        assert_eq!(enlarged(&pixels, 2).data, [line, line].concat());
    }
}
