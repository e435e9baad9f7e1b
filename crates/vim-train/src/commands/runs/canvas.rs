//! Pixels that plotters draws on.
//!
//! Its own bitmap brings an encoder of its own, and finds fonts by a library of the system. Here pixels
//! are ours, and letters are those of DejaVu Sans, which is part of the program.

use std::convert::Infallible;
use std::io;

use ab_glyph::{Font, FontRef, ScaleFont};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendTextStyle, DrawingBackend, DrawingErrorKind,
};
use vim_data::Pixels;

/// An image to draw on.
pub(super) struct Canvas<'a> {
    pixels: &'a mut Pixels,
    font: FontRef<'static>,
}

impl<'a> Canvas<'a> {
    /// Draws on `pixels`.
    pub(super) fn new(pixels: &'a mut Pixels) -> io::Result<Self> {
        let font = FontRef::try_from_slice(dejavu::sans::regular()).map_err(io::Error::other)?;
        Ok(Self { pixels, font })
    }

    /// Width of `text` in pixels, and what a line is high above and below its foot.
    fn measure(&self, text: &str, size: f64) -> (f32, f32, f32) {
        let font = self.font.as_scaled(size as f32);
        let width = text.chars().map(|letter| font.h_advance(font.glyph_id(letter))).sum();
        (width, font.ascent(), font.descent())
    }
}

impl DrawingBackend for Canvas<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        (self.pixels.width as u32, self.pixels.height as u32)
    }

    fn ensure_prepared(&mut self) -> Result<(), DrawingErrorKind<Infallible>> {
        Ok(())
    }

    fn present(&mut self) -> Result<(), DrawingErrorKind<Infallible>> {
        Ok(())
    }

    fn draw_pixel(
        &mut self,
        (x, y): BackendCoord,
        color: BackendColor,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        let inside = (0..self.pixels.width as i32).contains(&x)
            && (0..self.pixels.height as i32).contains(&y);
        if inside {
            let at = 3 * (y as usize * self.pixels.width + x as usize);
            let (red, green, blue) = color.rgb;
            for (under, over) in self.pixels.data[at..at + 3].iter_mut().zip([red, green, blue]) {
                let mixed = f64::from(*under) * (1.0 - color.alpha) + f64::from(over) * color.alpha;
                *under = mixed.round() as u8;
            }
        }
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        pos: BackendCoord,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        let (width, ascent, descent) = self.measure(text, style.size());
        let left = match style.anchor().h_pos {
            HPos::Left => 0.0,
            HPos::Center => -width / 2.0,
            HPos::Right => -width,
        };
        let foot = match style.anchor().v_pos {
            VPos::Top => ascent,
            VPos::Center => (ascent + descent) / 2.0,
            VPos::Bottom => descent,
        };
        let (font, transform, color) = (self.font.clone(), style.transform(), style.color());
        let scaled = font.as_scaled(style.size() as f32);
        let mut x = left;
        for letter in text.chars() {
            let glyph = scaled.glyph_id(letter);
            let placed = glyph.with_scale_and_position(style.size() as f32, (x, foot));
            x += scaled.h_advance(glyph);
            let Some(outline) = font.outline_glyph(placed) else { continue };
            let corner = outline.px_bounds().min;
            let mut covered = Vec::new();
            outline.draw(|x, y, share| covered.push((x, y, share)));
            for (x, y, share) in covered {
                let (x, y) = (corner.x as i32 + x as i32, corner.y as i32 + y as i32);
                let (x, y) = transform.transform(x, y);
                let share = f64::from(share.clamp(0.0, 1.0));
                self.draw_pixel(
                    (pos.0 + x, pos.1 + y),
                    BackendColor { alpha: color.alpha * share, ..color },
                )?;
            }
        }
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        let (width, ascent, descent) = self.measure(text, style.size());
        Ok((width.ceil() as u32, (ascent - descent).ceil() as u32))
    }
}

/// Half as wide and high, each pixel the mean of four: smooth edges.
pub(super) fn halved(image: &Pixels) -> Pixels {
    let mut half = Pixels::black(image.height / 2, image.width / 2);
    for y in 0..half.height {
        for x in 0..half.width {
            for channel in 0..3 {
                let at = |dy, dx| {
                    let place = (2 * y + dy) * image.width + 2 * x + dx;
                    u16::from(image.data[3 * place + channel])
                };
                let sum = at(0, 0) + at(0, 1) + at(1, 0) + at(1, 1);
                half.data[3 * (y * half.width + x) + channel] = ((sum + 2) / 4) as u8;
            }
        }
    }
    half
}
