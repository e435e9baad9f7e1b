//! JPEGs by zune-jpeg: their headers are read here as libjpeg reads them, and handed over without
//! what zune-jpeg does not take.

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::jpeg::{self, Marker, Markers};
use super::{DecodeError, Header, ImageKind};
use crate::pixels::Pixels;

/// A segment that marks a frame of a film: zune-jpeg then knows the usual Huffman tables, as
/// libjpeg
/// always does.
const FILM: [u8; 9] = [0xff, 0xe0, 0, 7, b'A', b'V', b'I', b'1', 0];
/// Shortest segments of JFIF and of Adobe that libjpeg takes for such.
const JFIF: usize = 14;
const ADOBE: usize = 12;

/// What libjpeg leaves where a scan breaks off, in every channel, and its warning; zune-jpeg leaves
/// there what was there before, and says nothing.
const GREY: u8 = 128;
const CUT: &str = "Corrupt JPEG data: premature end of data segment";

/// What the channels of a JPEG are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Colors {
    Grey,
    Ycc,
    Rgb,
    /// Inverted, as Adobe writes it.
    Cmyk,
    /// The first three as luma and chroma.
    Ycck,
}

impl Colors {
    /// Those of channels with these ids, with what the warning is if the file says nonsense.
    ///
    /// # Source
    /// The decompressor's defaults in libjpeg-turbo's jdapimin.c.
    fn of(ids: &[u8], is_jfif: bool, adobe: Option<u8>) -> Option<(Self, Option<String>)> {
        let strange = |code| Some(format!("Unknown Adobe color transform code {code}"));
        let colors = match (ids, adobe) {
            ([_], _) => (Self::Grey, None),
            ([_, _, _], _) if is_jfif => (Self::Ycc, None),
            ([_, _, _], Some(0)) => (Self::Rgb, None),
            ([_, _, _], Some(1)) => (Self::Ycc, None),
            ([_, _, _], Some(code)) => (Self::Ycc, strange(code)),
            ([b'R', b'G', b'B'], None) => (Self::Rgb, None),
            ([_, _, _], None) => (Self::Ycc, None),
            ([_, _, _, _], None | Some(0)) => (Self::Cmyk, None),
            ([_, _, _, _], Some(2)) => (Self::Ycck, None),
            ([_, _, _, _], Some(code)) => (Self::Ycck, strange(code)),
            _ => return None,
        };
        Some(colors)
    }
}

/// Decodes the whole file; returns what libjpeg would warn of in its header.
///
/// In strict mode, since the lenient one accepts half a file. Strict mode still accepts a missing
/// end, which is checked first.
pub(super) fn decode(
    file: &[u8],
    header: &Header,
    (clean, raw): (&mut Vec<u8>, &mut Vec<u8>),
    into: &mut Pixels,
) -> Result<Option<String>, DecodeError> {
    let kind = ImageKind::Jpeg;
    if !jpeg::has_end(file) {
        return Err(DecodeError::Truncated { kind });
    }
    let (colors, mut warning, is_broken) = cleaned(file, clean)?;
    let mut options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let corrupt = |error| DecodeError::corrupt(kind, error);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(clean.as_slice()), options);
    decoder.decode_headers().map_err(corrupt)?;
    let stored = decoder.input_colorspace().unwrap_or(ColorSpace::Unknown);
    // Left to zune-jpeg is what it takes the channels for, too; all else is left as stored.
    let converts = matches!(
        (colors, stored),
        (Colors::Grey, ColorSpace::Luma) | (Colors::Ycc, ColorSpace::YCbCr)
    );
    if !converts {
        options = options.jpeg_set_out_colorspace(stored);
        decoder.set_options(options);
    }
    into.reshape([header.height, header.width]);
    let is_four = matches!(colors, Colors::Cmyk | Colors::Ycck);
    let out = if is_four {
        raw.resize(4 * header.height * header.width, GREY);
        &mut *raw
    } else {
        &mut into.data
    };
    out.fill(GREY);
    decoder.decode_into(out).map_err(corrupt)?;
    if is_broken && warning.is_none() {
        // What it does not write shows in another colour.
        let mut other = vec![!GREY; out.len()];
        let mut again = JpegDecoder::new_with_options(ZCursor::new(clean.as_slice()), options);
        again.decode_into(&mut other).map_err(corrupt)?;
        warning = (*out != other).then(|| CUT.to_owned());
    }
    match colors {
        Colors::Grey | Colors::Rgb => {}
        Colors::Ycc if converts => {}
        Colors::Ycc => out.as_chunks_mut::<3>().0.iter_mut().for_each(|pixel| *pixel = rgb(*pixel)),
        Colors::Ycck => {
            for [y, cb, cr, _] in out.as_chunks_mut::<4>().0 {
                [*y, *cb, *cr] = rgb([*y, *cb, *cr]).map(|value| 255 - value);
            }
        }
        Colors::Cmyk => {}
    }
    if is_four {
        jpeg::cmyk_to_rgb(raw, &mut into.data);
    }
    Ok(warning)
}

/// Puts the file into `clean` as zune-jpeg takes it: with the segments that decoding needs alone,
/// nothing between them, and no word on colours. Returns these, what libjpeg would warn of first,
/// and whether a marker that does not belong there follows the scan or breaks it off.
fn cleaned(
    file: &[u8],
    clean: &mut Vec<u8>,
) -> Result<(Colors, Option<String>, bool), DecodeError> {
    let corrupt = |why: String| DecodeError::corrupt(ImageKind::Jpeg, why);
    clean.clear();
    let (mut warning, mut is_jfif, mut adobe) = (None, false, None);
    let (mut ids, mut is_progressive) = (Vec::new(), false);
    let mut markers = Markers::of(file);
    while let Some(Marker { code, segment, before }) = markers.next() {
        if before > 0 && warning.is_none() {
            warning = Some(format!(
                "Corrupt JPEG data: {before} extraneous bytes before marker 0x{code:02x}"
            ));
        }
        match code {
            jpeg::SOI if clean.is_empty() => clean.extend([0xff, jpeg::SOI]),
            jpeg::SOI => return Err(corrupt("it has two starts (SOI markers)".to_owned())),
            jpeg::EOI => return Err(corrupt("it has no scan".to_owned())),
            jpeg::TEM | jpeg::RST0..=jpeg::RST7 => {}
            // Frames, tables, the restart interval and the scan.
            0xc0..=0xc2 | 0xc4 | 0xdb | 0xdd | jpeg::SOS => {
                if matches!(code, 0xc0..=0xc2) {
                    let channels = segment.get(6..).unwrap_or_default();
                    ids = channels.chunks_exact(3).map(|channel| channel[0]).collect();
                    is_progressive = code == 0xc2;
                    if !is_progressive {
                        clean.extend(FILM);
                    }
                }
                clean.extend([0xff, code]);
                clean.extend((segment.len() as u16 + 2).to_be_bytes());
                clean.extend(segment);
                if code == jpeg::SOS {
                    // Of such zune-jpeg loses blocks without a word.
                    if !is_progressive
                        && segment.first().is_some_and(|&of| of as usize != ids.len())
                    {
                        let what = "a non-interleaved";
                        return Err(DecodeError::Process { what, reader: jpeg::TURBO_READS });
                    }
                    clean.extend(markers.rest());
                    let none = || corrupt(format!("it has {} channels", ids.len()));
                    let (colors, strange) = Colors::of(&ids, is_jfif, adobe).ok_or_else(none)?;
                    let next = markers.find(|next| !matches!(next.code, jpeg::RST0..=jpeg::RST7));
                    if next.as_ref().is_some_and(|next| !is_progressive && next.code == jpeg::SOS) {
                        return Err(corrupt("Didn't expect more than one scan".to_owned()));
                    }
                    let is_broken =
                        !is_progressive && next.is_none_or(|next| next.code != jpeg::EOI);
                    return Ok((colors, warning.or(strange), is_broken));
                }
            }
            0xe0 => is_jfif |= segment.len() >= JFIF && segment.starts_with(b"JFIF\0"),
            0xee if segment.len() >= ADOBE && segment.starts_with(b"Adobe") => {
                adobe = Some(segment[ADOBE - 1]);
            }
            // Of other programs, of arithmetic coding, a number of lines, comments.
            0xe1..=0xef | 0xcc | 0xdc | 0xfe => {}
            _ => return Err(corrupt(format!("Unsupported marker type 0x{code:02x}"))),
        }
    }
    Err(DecodeError::Truncated { kind: ImageKind::Jpeg })
}

/// Red, green and blue of luma and chroma.
///
/// # Source
/// jdcolor.c of libjpeg: factors in 16 bits after the point, rounded.
fn rgb([y, cb, cr]: [u8; 3]) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let [y, cb, cr] = [i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128];
    let red = y + ((91_881 * cr + HALF) >> 16);
    let green = y + ((-22_554 * cb - 46_802 * cr + HALF) >> 16);
    let blue = y + ((116_130 * cb + HALF) >> 16);
    [red, green, blue].map(|value| value.clamp(0, 255) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_what_libjpeg_takes_them_for() {
        let colors = |ids: &[u8], is_jfif, adobe| {
            Colors::of(ids, is_jfif, adobe).map(|(colors, warning)| (colors, warning.is_some()))
        };
        assert_eq!(colors(&[7], false, Some(2)), Some((Colors::Grey, false)));
        for (ids, is_jfif, adobe, expected) in [
            ([1, 2, 3], false, None, (Colors::Ycc, false)),
            ([1, 2, 3], false, Some(0), (Colors::Rgb, false)),
            ([1, 2, 3], true, Some(0), (Colors::Ycc, false)),
            (*b"RGB", false, None, (Colors::Rgb, false)),
            (*b"RGB", true, None, (Colors::Ycc, false)),
            (*b"RGB", false, Some(1), (Colors::Ycc, false)),
            ([0, 1, 2], false, Some(2), (Colors::Ycc, true)),
        ] {
            assert_eq!(colors(&ids, is_jfif, adobe), Some(expected), "{ids:?} {adobe:?}");
        }
        for (adobe, expected) in [
            (None, (Colors::Cmyk, false)),
            (Some(0), (Colors::Cmyk, false)),
            (Some(2), (Colors::Ycck, false)),
            (Some(1), (Colors::Ycck, true)),
        ] {
            assert_eq!(colors(&[1, 2, 3, 4], true, adobe), Some(expected), "{adobe:?}");
        }
        assert_eq!(colors(&[1, 2], false, None), None);
        assert_eq!(colors(&[], false, None), None);
        assert_eq!(colors(&[1, 2, 3, 4, 5], false, None), None);
    }
}
