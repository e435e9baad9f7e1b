//! Rotation, shear and translation: affine maps with bicubic interpolation.
//!
//! # Source
//! `Image.transform(AFFINE, BICUBIC)`. Everything is in double precision in one fixed order, because the
//! results are truncated: a last bit more or less is now and then a level more or less. The interpolation
//! has `a = −1`; that of resizing has −0.5.

use crate::simd::widest;

/// `(x, y)` of the output to `(a·x + b·y + c, d·x + e·y + f)` of the input, pixels' centres at halves.
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

/// As Python's `round(value, 15)`: the nearest decimal, by way of its text.
fn to_15_decimals(value: f64) -> f64 {
    format!("{value:.15}").parse().expect("invariant: a printed number parses")
}

/// Replaces each pixel by what `map` shows there, or by `fill` where that lies outside.
pub(super) fn transform(
    image: &mut [u8],
    size: [usize; 2],
    map: Map,
    fill: [u8; 3],
    bordered: &mut Vec<u8>,
) {
    add_border(image, size, bordered);
    let stride = 3 * (size[1] + 2 * BORDER);
    // Where a coordinate stays what it is, its interpolation returns the middle tap exactly.
    let keeps_rows = map[3..] == [0.0, 1.0, 0.0];
    let keeps_columns = map[..3] == [1.0, 0.0, 0.0];
    let source = bordered.as_slice();
    widest(
        #[inline(always)]
        move || match (keeps_rows, keeps_columns) {
            (true, _) => each_pixel(
                image,
                size,
                map,
                fill,
                stride,
                #[inline(always)]
                move |offset, [dx, _]| cubic(load_4(&source[offset + stride..], 3), dx),
            ),
            (_, true) => each_pixel(
                image,
                size,
                map,
                fill,
                stride,
                #[inline(always)]
                move |offset, [_, dy]| cubic(load_4(&source[offset + 3..], stride), dy),
            ),
            _ => each_pixel(
                image,
                size,
                map,
                fill,
                stride,
                #[inline(always)]
                move |offset, [dx, dy]| {
                    let row = |row: usize| load_4(&source[offset + row * stride..], 3);
                    let rows = [row(0), row(1), row(2), row(3)];
                    cubic(
                        rows.map(
                            #[inline(always)]
                            |taps| cubic(taps, dx),
                        ),
                        dy,
                    )
                },
            ),
        },
    );
}

/// Calls `sample` for every pixel that shows one of the input: with the offset of its upper left tap in the
/// bordered image, and the fractions between the middle taps.
#[inline(always)]
fn each_pixel(
    image: &mut [u8],
    [height, width]: [usize; 2],
    [a, b, c, d, e, f]: Map,
    fill: [u8; 3],
    stride: usize,
    sample: impl Fn(usize, [f64; 2]) -> [f64; 4],
) {
    let (right, bottom) = (width as f64, height as f64);
    for (y, row) in image.chunks_exact_mut(3 * width).enumerate() {
        let y = y as f64 + 0.5;
        for (x, pixel) in row.as_chunks_mut::<3>().0.iter_mut().enumerate() {
            let x = x as f64 + 0.5;
            let (from_x, from_y) = (a * x + b * y + c, d * x + e * y + f);
            if from_x < 0.0 || from_x >= right || from_y < 0.0 || from_y >= bottom {
                *pixel = fill;
                continue;
            }
            let (from_x, from_y) = (from_x - 0.5, from_y - 0.5);
            let (column, line) = (from_x.floor(), from_y.floor());
            // Both are −1 at least; the first tap is one before, and the border two wide.
            let offset = (line as i32 + 1) as usize * stride + (column as i32 + 1) as usize * 3;
            let [red, green, blue, _] = sample(offset, [from_x - column, from_y - line]);
            // The casts truncate, and keep to 0..=255.
            *pixel = [red as u8, green as u8, blue as u8];
        }
    }
}

/// Red, green, blue, and one byte more that makes four lanes.
type Lanes = [f64; 4];

/// Four taps, `step` bytes apart.
#[inline(always)]
fn load_4(taps: &[u8], step: usize) -> [Lanes; 4] {
    let taps = &taps[..3 * step + 4];
    std::array::from_fn(
        #[inline(always)]
        |tap| {
            std::array::from_fn(
                #[inline(always)]
                |lane| f64::from(taps[tap * step + lane]),
            )
        },
    )
}

/// The cubic through four equally spaced values, at `t` between the middle two.
#[inline(always)]
fn cubic([v1, v2, v3, v4]: [Lanes; 4], t: f64) -> Lanes {
    std::array::from_fn(
        #[inline(always)]
        |lane| {
            let (v1, v2, v3, v4) = (v1[lane], v2[lane], v3[lane], v4[lane]);
            let p2 = v3 - v1;
            let p3 = 2.0 * (v1 - v2) + v3 - v4;
            let p4 = v2 - v1 - v3 + v4;
            v2 + t * (p2 + t * (p3 + t * p4))
        },
    )
}

/// Copies `image` with its edge repeated around it, and a byte to spare for the last pixel's fourth lane.
fn add_border(image: &[u8], [height, width]: [usize; 2], bordered: &mut Vec<u8>) {
    let stride = 3 * (width + 2 * BORDER);
    bordered.clear();
    bordered.reserve(stride * (height + 2 * BORDER) + 1);
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
