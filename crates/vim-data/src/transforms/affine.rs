//! Rotation, shear and translation: affine maps with bicubic interpolation.
//!
//! # Source
//! `Image.transform(AFFINE, BICUBIC)`. All in double precision and in one fixed order, because the
//! results are truncated: a difference in the last bit may become a difference of one level. The
//! interpolation has `a = −1`; that of resizing has −0.5.

use crate::simd::{byte_of_f64, floor, widest};

/// `(x, y)` of the output to `(a·x + b·y + c, d·x + e·y + f)` of the input, pixels' centres at
/// halves.
pub(super) type Map = [f64; 6];

/// Edge pixels repeated on every side, so that no tap needs a check.
const BORDER: usize = 2;

/// Turns by `degrees` counter-clockwise about the centre.
///
/// # Source
/// `Image.rotate`: sine and cosine rounded to 15 decimals.
pub(super) fn rotation(degrees: f64, [height, width]: [usize; 2]) -> Map {
    let angle = -degrees.rem_euclid(360.0).to_radians();
    let (sin, cos) = (to_15_decimals(angle.sin()), to_15_decimals(angle.cos()));
    let (x, y) = (width as f64 / 2.0, height as f64 / 2.0);
    [cos, sin, cos * -x + sin * -y + x, -sin, cos, -sin * -x + cos * -y + y]
}

/// Python's `round(value, 15)`: the nearest decimal, by way of its text.
fn to_15_decimals(value: f64) -> f64 {
    format!("{value:.15}").parse().expect("invariant: a printed number parses")
}

/// Buffers of [`transform`].
#[derive(Clone, Debug, Default)]
pub(super) struct Lines {
    /// The image with a border, and a spare byte for the last pixel's fourth lane.
    bordered: Vec<u8>,
    /// For one row of the output: the position of each pixel in the input.
    places: Vec<[f64; 2]>,
    /// For one row of the output: the offset of each pixel's upper left tap in `bordered`, and the
    /// fractions between its middle taps.
    taps: Vec<(usize, [f64; 2])>,
    /// For one row of the output: values before the conversion to bytes.
    values: Vec<Lanes>,
}

/// Replaces each pixel by the one that `map` finds, or by `fill` if that is outside.
pub(super) fn transform(
    image: &mut [u8],
    size: [usize; 2],
    map: Map,
    fill: [u8; 3],
    lines: &mut Lines,
) {
    lines.add_border(image, size);
    let stride = 3 * (size[1] + 2 * BORDER);
    // Where a coordinate does not change, interpolation returns the middle tap exactly.
    let keeps_rows = map[3..] == [0.0, 1.0, 0.0];
    let keeps_columns = map[..3] == [1.0, 0.0, 0.0];
    widest(
        #[inline(always)]
        move || match (keeps_rows, keeps_columns) {
            (true, _) => lines.each_row(
                image,
                size,
                map,
                fill,
                #[inline(always)]
                move |source, [dx, _]| cubic_of_bytes(load_4(&source[stride..], 3), dx),
            ),
            (_, true) => lines.each_row(
                image,
                size,
                map,
                fill,
                #[inline(always)]
                move |source, [_, dy]| cubic_of_bytes(load_4(&source[3..], stride), dy),
            ),
            _ => lines.each_row(
                image,
                size,
                map,
                fill,
                #[inline(always)]
                move |source, [dx, dy]| {
                    let mut rows = [Lanes::default(); 4];
                    for (row, value) in rows.iter_mut().enumerate() {
                        *value = cubic_of_bytes(load_4(&source[row * stride..], 3), dx);
                    }
                    cubic(rows, dy)
                },
            ),
        },
    );
}

impl Lines {
    /// Fills the image; `sample` gets the bordered image from a pixel's upper left tap on, and the
    /// fractions between the middle taps.
    #[inline(always)]
    fn each_row(
        &mut self,
        image: &mut [u8],
        [height, width]: [usize; 2],
        [a, b, c, d, e, f]: Map,
        fill: [u8; 3],
        sample: impl Fn(&[u8], [f64; 2]) -> Lanes,
    ) {
        let stride = 3 * (width + 2 * BORDER);
        let (right, bottom) = (width as f64, height as f64);
        let is_inside = |&[x, y]: &[f64; 2]| x >= 0.0 && x < right && y >= 0.0 && y < bottom;
        let Self { bordered, places, taps, values } = self;
        places.resize(width, [0.0; 2]);
        taps.resize(width, (0, [0.0; 2]));
        values.resize(width, Lanes::default());
        for (y, row) in image.chunks_exact_mut(3 * width).enumerate() {
            let y = y as f64 + 0.5;
            for (x, place) in places.iter_mut().enumerate() {
                let x = x as f64 + 0.5;
                *place = [a * x + b * y + c, d * x + e * y + f];
            }
            // Both coordinates are monotonic along the row, so the pixels inside are contiguous.
            let start = places.iter().position(is_inside).unwrap_or(width);
            let end = places.iter().rposition(is_inside).map_or(start, |last| last + 1);
            // Loops, because the closures of adaptors would be compiled outside of `widest`.
            let count = end - start;
            for (tap, &[x, y]) in taps[..count].iter_mut().zip(&places[start..end]) {
                // Both are −1 at least; the first tap is one before, and the border two wide.
                let ((column, dx), (line, dy)) = (floor(x - 0.5), floor(y - 0.5));
                *tap = ((line + 1) as usize * stride + (column + 1) as usize * 3, [dx, dy]);
            }
            // All four lanes are stored here and the fourth is dropped below, so that they
            // vectorise.
            for (value, &(offset, parts)) in values.iter_mut().zip(&taps[..count]) {
                *value = sample(&bordered[offset..], parts);
            }
            let pixels = row.as_chunks_mut::<3>().0;
            pixels[..start].fill(fill);
            pixels[end..].fill(fill);
            for (pixel, value) in pixels[start..end].iter_mut().zip(&*values) {
                let [red, green, blue, _] = value.map(byte_of_f64);
                *pixel = [red, green, blue];
            }
        }
    }

    /// Copies `image` with its edge repeated around it.
    fn add_border(&mut self, image: &[u8], [height, width]: [usize; 2]) {
        let bordered = &mut self.bordered;
        bordered.clear();
        bordered.reserve(3 * (width + 2 * BORDER) * (height + 2 * BORDER) + 1);
        for y in 0..height + 2 * BORDER {
            let y = y.saturating_sub(BORDER).min(height - 1);
            let row = &image[3 * width * y..3 * width * (y + 1)];
            for _ in 0..BORDER {
                bordered.extend_from_slice(&row[..3]);
            }
            bordered.extend_from_slice(row);
            for _ in 0..BORDER {
                bordered.extend_from_slice(&row[3 * (width - 1)..]);
            }
        }
        bordered.push(0);
    }
}

/// Red, green, blue, and one byte more that makes four lanes.
type Lanes = [f64; 4];

/// Four taps, `step` bytes apart.
#[inline(always)]
fn load_4(taps: &[u8], step: usize) -> [[i32; 4]; 4] {
    let taps = &taps[..3 * step + 4];
    let mut lanes = [[0; 4]; 4];
    for (tap, lanes) in lanes.iter_mut().enumerate() {
        for (lane, value) in lanes.iter_mut().enumerate() {
            *value = i32::from(taps[tap * step + lane]);
        }
    }
    lanes
}

/// The cubic through four equally spaced bytes, at `t` between the middle two.
#[inline(always)]
fn cubic_of_bytes([v1, v2, v3, v4]: [[i32; 4]; 4], t: f64) -> Lanes {
    let mut value = Lanes::default();
    for lane in 0..4 {
        let (v1, v2, v3, v4) = (v1[lane], v2[lane], v3[lane], v4[lane]);
        // Whole numbers, so exact, and quicker than in floating point.
        let (p2, p3, p4) = (v3 - v1, 2 * (v1 - v2) + v3 - v4, v2 - v1 - v3 + v4);
        let (p1, p2, p3, p4) = (f64::from(v2), f64::from(p2), f64::from(p3), f64::from(p4));
        value[lane] = p1 + t * (p2 + t * (p3 + t * p4));
    }
    value
}

/// [`cubic_of_bytes`] of its own results.
#[inline(always)]
fn cubic([v1, v2, v3, v4]: [Lanes; 4], t: f64) -> Lanes {
    let mut value = Lanes::default();
    for lane in 0..4 {
        let (v1, v2, v3, v4) = (v1[lane], v2[lane], v3[lane], v4[lane]);
        let (p2, p3, p4) = (v3 - v1, 2.0 * (v1 - v2) + v3 - v4, v2 - v1 - v3 + v4);
        value[lane] = v2 + t * (p2 + t * (p3 + t * p4));
    }
    value
}
