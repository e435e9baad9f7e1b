//! JPEGs: their markers (ITU-T T.81, annex B), which processes are read, and their four-channel
//! colours.

use super::{DecodeError, Header, ImageKind, JpegLibrary};

/// Start of image, end of image, start of scan, and what follows `0xff` inside a scan.
pub(super) const SOI: u8 = 0xd8;
pub(super) const EOI: u8 = 0xd9;
pub(super) const SOS: u8 = 0xda;
const STUFFED: u8 = 0x00;
/// Markers without a segment: temporary, and the eight restarts.
pub(super) const TEM: u8 = 0x01;
pub(super) const RST0: u8 = 0xd0;
pub(super) const RST7: u8 = 0xd7;

/// The markers of a file with their segments; scans are skipped.
pub(super) struct Markers<'a> {
    file: &'a [u8],
    at: usize,
}

/// A marker of a file.
pub(super) struct Marker<'a> {
    /// What follows `0xff`.
    pub(super) code: u8,
    /// Its segment, without the length.
    pub(super) segment: &'a [u8],
    /// Bytes before it that belong to nothing; behind a scan's header, the scan.
    pub(super) before: usize,
}

impl<'a> Markers<'a> {
    /// Those of a whole file, its start of image among them.
    pub(super) fn of(file: &'a [u8]) -> Self {
        Self { file, at: 0 }
    }

    /// What follows the last marker given, and its segment.
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.file[self.at..]
    }
}

impl<'a> Iterator for Markers<'a> {
    type Item = Marker<'a>;

    fn next(&mut self) -> Option<Marker<'a>> {
        let mut before = 0;
        loop {
            let skipped = memchr::memchr(0xff, self.file.get(self.at..)?)?;
            self.at += skipped;
            before += skipped;
            // Any number of 0xff may come before the code.
            self.at += self.file[self.at..].iter().position(|&byte| byte != 0xff)?;
            let code = self.file[self.at];
            self.at += 1;
            let segment = match code {
                STUFFED => {
                    before += 2;
                    continue;
                }
                TEM | RST0..=RST7 | SOI | EOI => &[],
                _ => {
                    let length: [u8; 2] = self.file.get(self.at..self.at + 2)?.try_into().ok()?;
                    let length = usize::from(u16::from_be_bytes(length)).max(2);
                    let segment = self.file.get(self.at + 2..self.at + length)?;
                    self.at += length;
                    segment
                }
            };
            return Some(Marker { code, segment, before });
        }
    }
}

/// Who reads a JPEG that zune-jpeg does not.
pub(super) const TURBO_READS: &str = "which only a program built with the feature `turbo` reads";

/// What JPEGs are whose frame header has this code, and who reads them; `None` if `library` does.
fn unread(code: u8, library: JpegLibrary) -> Option<DecodeError> {
    let (what, turbo_reads) = match code {
        0xc3 => ("a lossless", true),
        0xc9 | 0xca => ("an arithmetic-coded", true),
        0xc5..=0xc7 => ("a hierarchical", false),
        0xcb => ("an arithmetic-coded lossless", false),
        0xcd..=0xcf => ("an arithmetic-coded hierarchical", false),
        _ => return None,
    };
    let reads = match library {
        #[cfg(feature = "turbo")]
        JpegLibrary::LibjpegTurbo => turbo_reads,
        JpegLibrary::ZuneJpeg => false,
    };
    let reader = if turbo_reads { TURBO_READS } else { "which is not read" };
    (!reads).then_some(DecodeError::Process { what, reader })
}

/// Size and kind of the image, from the first frame header.
///
/// # Errors
/// If there is none, or `library` reads no such frames.
pub(super) fn header(file: &[u8], library: JpegLibrary) -> Result<Header, DecodeError> {
    let kind = ImageKind::Jpeg;
    let markers = Markers::of(file).take_while(|marker| marker.code != EOI);
    for Marker { code, segment, .. } in markers {
        // Every SOFn; DHT, JPG and DAC are in the same range.
        let frame = matches!(code, 0xc0..=0xcf) && !matches!(code, 0xc4 | 0xc8 | 0xcc);
        if !frame {
            continue;
        }
        let &[_precision, high, low, left, right, components, ..] = segment else {
            return Err(DecodeError::corrupt(kind, "its frame header is too short"));
        };
        if let Some(error) = unread(code, library) {
            return Err(error);
        }
        return Ok(Header {
            kind,
            height: u16::from_be_bytes([high, low]).into(),
            width: u16::from_be_bytes([left, right]).into(),
            components: components.into(),
            progressive: matches!(code, 0xc2 | 0xc6 | 0xca | 0xce),
        });
    }
    Err(DecodeError::Truncated { kind })
}

/// Whether the file has an end-of-image marker: without it, Pillow takes the file for cut short.
pub(super) fn has_end(file: &[u8]) -> bool {
    // Nearly every file ends with it; some have bytes after it.
    file.ends_with(&[0xff, EOI]) || Markers::of(file).any(|marker| marker.code == EOI)
}

/// Converts cyan, magenta, yellow and black `[pixels, 4]` as stored in a JPEG to `[pixels, 3]`.
///
/// # Source
/// Pillow: JPEGs hold CMYK inverted, as Adobe writes it; then `convert("RGB")`, where products of
/// bytes are divided by 255 by shifts.
pub(super) fn cmyk_to_rgb(stored: &[u8], rgb: &mut [u8]) {
    let (stored, rgb) = (stored.as_chunks::<4>().0, rgb.as_chunks_mut::<3>().0);
    for (&[cyan, magenta, yellow, light], rgb) in stored.iter().zip(rgb) {
        *rgb = [cyan, magenta, yellow].map(|stored| {
            let ink = u32::from(255 - stored) * u32::from(light) + 128;
            light.saturating_sub(((ink + (ink >> 8)) >> 8) as u8)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_inside_a_segment_is_none() {
        // A thumbnail inside APP1 has its own end of image.
        let mut file = vec![0xff, SOI, 0xff, 0xe1, 0, 6, 0xff, SOI, 0xff, EOI];
        file.extend([0xff, 0xda, 0, 2, 1, 2, 0xff, 0x00, 3, 0xff, RST0, 4]);
        assert!(!has_end(&file));
        file.extend([0xff, 0xff, EOI, 0, 0]);
        assert!(has_end(&file));
    }

    #[test]
    fn frames_that_are_not_read_are_named() {
        let file = |code| [0xff, SOI, 0xff, code, 0, 11, 8, 0, 3, 0, 5, 1, 1, 17, 0];
        let header = |code| super::header(&file(code), JpegLibrary::ZuneJpeg);
        for code in 0xc0..=0xc2 {
            assert!(header(code).is_ok());
        }
        let said = |code| header(code).unwrap_err().to_string();
        for code in [0xc9, 0xca] {
            assert_eq!(
                said(code),
                "is an arithmetic-coded JPEG, which only a program built with the feature `turbo` \
                 reads; save it as an ordinary JPEG or a PNG"
            );
        }
        for (code, what) in [
            (0xc3, "a lossless JPEG, which only"),
            (0xc5, "a hierarchical JPEG, which is not read"),
            (0xcb, "an arithmetic-coded lossless JPEG, which is not read"),
            (0xcf, "an arithmetic-coded hierarchical JPEG, which is not read"),
        ] {
            assert!(said(code).starts_with(&format!("is {what}")), "{}", said(code));
        }
    }

    #[test]
    fn bytes_between_segments_are_counted() {
        let file = [
            0xff, SOI, 1, 2, 3, 0xff, 0xe0, 0, 2, 0xff, 0xff, 0xdb, 0, 3, 7, 4, 0xff, 0, 0xff, EOI,
        ];
        let markers: Vec<_> = Markers::of(&file)
            .map(|Marker { code, segment, before }| (code, segment.len(), before))
            .collect();
        assert_eq!(markers, [(SOI, 0, 0), (0xe0, 0, 3), (0xdb, 1, 0), (EOI, 0, 3)]);
    }

    #[test]
    fn headers_that_stop_are_no_headers() {
        let whole = [0xff, SOI, 0xff, 0xc2, 0, 17, 8, 0, 3, 0, 5, 3, 1, 17, 0, 2, 17, 1, 3, 17, 1];
        let library = JpegLibrary::default();
        let header =
            |file| super::header(file, library).map(|header| (header.height, header.width));
        assert_eq!(header(&whole), Ok((3, 5)));
        for length in 0..whole.len() {
            assert!(header(&whole[..length]).is_err(), "{length}");
        }
    }
}
