//! JPEGs by libjpeg-turbo, through its C interface (TurboJPEG 3).
#![expect(unsafe_code, reason = "a C library; everything unsafe is in this file")]

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

use turbojpeg_sys as tj;

use super::{DecodeError, Decoded, Header, ImageKind, jpeg};
use crate::pixels::{Pixels, Region};

/// More scans than any encoder makes; a file of thousands would take minutes.
const SCANS: c_int = 100;
/// Rows around the wanted ones that must be decoded for equal pixels, since chroma is interpolated
/// between rows. Columns are whole blocks, plus one block on either side.
const MARGIN: usize = 2;
/// Prefixes of libjpeg's warnings about damage that Pillow accepts, each beside the crate in whose
/// source scripts/check_dependencies.py looks for it.
const ACCEPTED: [(&str, &str); 5] = [
    ("turbojpeg-sys", "Corrupt JPEG data"),
    ("turbojpeg-sys", "Inconsistent progression sequence"),
    ("turbojpeg-sys", "Invalid SOS parameters"),
    ("turbojpeg-sys", "Unknown Adobe color transform"),
    ("turbojpeg-sys", "Warning: unknown JFIF revision"),
];

/// A decompressor of libjpeg-turbo, for one image: after an error the library's handle goes on in
/// the middle of a header, and the tables of one file serve the next that lacks them.
#[derive(Debug)]
pub(super) struct Turbo {
    handle: NonNull<std::ffi::c_void>,
}

impl Drop for Turbo {
    fn drop(&mut self) {
        // SAFETY: the handle came from tj3Init and is not used again.
        unsafe { tj::tj3Destroy(self.handle.as_ptr()) }
    }
}

impl Turbo {
    /// A new decompressor: exact arithmetic and smooth chroma are the library's defaults, as
    /// Pillow's.
    pub(super) fn new() -> Result<Self, DecodeError> {
        // SAFETY: a plain call; null is checked for.
        let handle = unsafe { tj::tj3Init(tj::TJINIT_TJINIT_DECOMPRESS as c_int) };
        let handle = NonNull::new(handle)
            .ok_or_else(|| DecodeError::Start { why: "no memory for a handle".to_owned() })?;
        let mut turbo = Self { handle };
        let parameter = tj::TJPARAM_TJPARAM_SCANLIMIT as c_int;
        // SAFETY: the handle is valid, and the parameter one of decompression.
        match unsafe { tj::tj3Set(turbo.raw(), parameter, SCANS) } {
            0 => Ok(turbo),
            _ => Err(DecodeError::Start { why: turbo.message() }),
        }
    }

    /// Decodes `wanted` and some pixels around it, or everything; returns which part `into` holds.
    pub(super) fn decode(
        mut self,
        file: &[u8],
        header: &Header,
        wanted: Option<Region>,
        cmyk: &mut Vec<u8>,
        into: &mut Pixels,
    ) -> Result<(Region, Decoded), DecodeError> {
        // SAFETY: the pointer and the length are of one slice, which the library only reads.
        let read = unsafe { tj::tj3DecompressHeader(self.raw(), file.as_ptr(), file.len() as _) };
        self.verdict(read, file)?;
        let Header { kind, height, width, .. } = *header;
        let size = [tj::TJPARAM_TJPARAM_JPEGHEIGHT, tj::TJPARAM_TJPARAM_JPEGWIDTH];
        if size.map(|side| self.get(side)) != [height as c_int, width as c_int] {
            return Err(DecodeError::corrupt(kind, "it has several frame headers"));
        }
        let part = self.crop(wanted, height, width)?;
        let colorspace = self.get(tj::TJPARAM_TJPARAM_COLORSPACE) as tj::TJCS;
        let is_cmyk = matches!(colorspace, tj::TJCS_TJCS_CMYK | tj::TJCS_TJCS_YCCK);

        into.reshape([part.height, part.width]);
        let (out, format) = if is_cmyk {
            cmyk.resize(4 * part.height * part.width, 0);
            (&mut *cmyk, tj::TJPF_TJPF_CMYK)
        } else {
            (&mut into.data, tj::TJPF_TJPF_RGB)
        };
        // SAFETY: `file` as above. `out` holds `part`'s rows without gaps (pitch 0) in `format`:
        // the library writes the region set by `crop`, which is `part`, of an image whose size was
        // just checked.
        let done = unsafe {
            let (from, to) = (file.as_ptr(), out.as_mut_ptr());
            tj::tj3Decompress8(self.raw(), from, file.len() as _, to, 0, format as c_int)
        };
        let warning = self.verdict(done, file)?;
        // Nothing below a part is read, so a missing end would go unnoticed.
        if part.height < height && !jpeg::has_end(file) {
            return Err(DecodeError::Truncated { kind });
        }
        if is_cmyk {
            jpeg::cmyk_to_rgb(cmyk, &mut into.data);
        }
        Ok((part, Decoded { warning }))
    }

    /// Sets the region to decode: one that contains `wanted`, or everything.
    fn crop(
        &mut self,
        wanted: Option<Region>,
        height: usize,
        width: usize,
    ) -> Result<Region, DecodeError> {
        let whole = Region { top: 0, left: 0, height, width };
        let part = match (wanted, self.block_width()) {
            (Some(wanted), Some(block)) => {
                let (right, bottom) = (wanted.left + wanted.width, wanted.top + wanted.height);
                let left = (wanted.left / block).saturating_sub(1) * block;
                let right = ((right.div_ceil(block) + 1) * block).min(width);
                let top = wanted.top.saturating_sub(MARGIN);
                let bottom = (bottom + MARGIN).min(height);
                Region { top, left, height: bottom - top, width: right - left }
            }
            _ => whole,
        };
        let [x, y, w, h] = match part == whole {
            true => [0; 4], // how the library spells "everything"
            false => [part.left, part.top, part.width, part.height].map(|side| side as c_int),
        };
        // SAFETY: the handle is valid; the library checks the region.
        match unsafe { tj::tj3SetCroppingRegion(self.raw(), tj::tjregion { x, y, w, h }) } {
            0 => Ok(part),
            _ => Err(DecodeError::corrupt(ImageKind::Jpeg, self.message())),
        }
    }

    /// Columns of a block that is whole in all components, for the usual subsamplings.
    fn block_width(&mut self) -> Option<usize> {
        match self.get(tj::TJPARAM_TJPARAM_SUBSAMP) {
            tj::TJSAMP_TJSAMP_444 | tj::TJSAMP_TJSAMP_GRAY => Some(8),
            tj::TJSAMP_TJSAMP_440 | tj::TJSAMP_TJSAMP_441 => Some(8),
            tj::TJSAMP_TJSAMP_422 | tj::TJSAMP_TJSAMP_420 => Some(16),
            tj::TJSAMP_TJSAMP_411 => Some(32),
            _ => None,
        }
    }

    /// The meaning of a call's result: no error, a warning that Pillow accepts too, or an error.
    fn verdict(&mut self, result: c_int, file: &[u8]) -> Result<Option<String>, DecodeError> {
        if result == 0 {
            return Ok(None);
        }
        let kind = ImageKind::Jpeg;
        // SAFETY: the handle is valid.
        let code = unsafe { tj::tj3GetErrorCode(self.raw()) };
        let message = self.message();
        // The library reports only the first warning, and an error after a warning as a warning:
        // hence both checks.
        if !jpeg::has_end(file) {
            return Err(DecodeError::Truncated { kind });
        }
        if code == tj::TJERR_TJERR_WARNING as c_int
            && ACCEPTED.iter().any(|(_, text)| message.starts_with(text))
        {
            return Ok(Some(message));
        }
        Err(DecodeError::corrupt(kind, message))
    }

    /// The library's last error or warning.
    fn message(&mut self) -> String {
        // SAFETY: the handle is valid; the text is in it, ends in a null, and is copied at once.
        let text = unsafe { CStr::from_ptr(tj::tj3GetErrorStr(self.raw())) };
        text.to_string_lossy().into_owned()
    }

    fn get(&mut self, parameter: tj::TJPARAM) -> c_int {
        // SAFETY: the handle is valid; an unknown parameter is answered by −1.
        unsafe { tj::tj3Get(self.raw(), parameter as c_int) }
    }

    fn raw(&mut self) -> tj::tjhandle {
        self.handle.as_ptr()
    }
}
