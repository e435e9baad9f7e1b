//! Pictures within a page.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use vim_data::{Pixels, Resizer, encode_png};

use crate::error::Error;

/// An image as a data URI, its longest side `side` pixels; small ones in whole squares of pixels.
pub(crate) fn thumbnail(whole: &Pixels, side: usize) -> Result<String, Error> {
    let longest = whole.height.max(whole.width);
    let shown = if longest <= side {
        // A browser would blur them.
        whole.enlarged(side / longest)
    } else {
        let [height, width] = [whole.height, whole.width].map(|own| (own * side / longest).max(1));
        let mut small = Pixels::black(height, width);
        Resizer::new().resize(whole, whole.region(), [height, width], &mut small.data);
        small
    };
    data_uri(&shown)
}

/// The largest [`thumbnail`] of at most `most` bytes; `None` where even a small one has more.
pub(crate) fn fitted(whole: &Pixels, most: usize) -> Result<Option<String>, Error> {
    for side in [224, 160, 128, 96, 64, 32] {
        let picture = thumbnail(whole, side)?;
        if picture.len() <= most {
            return Ok(Some(picture));
        }
    }
    Ok(None)
}

/// An image as a data URI.
pub(crate) fn data_uri(image: &Pixels) -> Result<String, Error> {
    let bytes =
        encode_png(image).map_err(|error| Error::internal(format!("a picture: {error}")))?;
    Ok(format!("data:image/png;base64,{}", STANDARD.encode(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thumbnails_are_of_one_size_and_keep_their_proportions() {
        // Behind 18 bytes, the lower half of the PNG's width and its height.
        let size = [&64_u16.to_be_bytes()[..], &128_u32.to_be_bytes()].concat();
        for [height, width] in [[448, 224], [32, 16]] {
            let whole = Pixels { height, width, data: vec![128; 3 * height * width] };
            let uri = thumbnail(&whole, 128).unwrap();
            let letters = uri.strip_prefix("data:image/png;base64,").unwrap();
            assert_eq!(letters[24..32], STANDARD.encode(&size));
        }
    }
}
