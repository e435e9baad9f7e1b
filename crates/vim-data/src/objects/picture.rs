//! Pictures of objects: boxes, masks and names over an image.

use font8x8::{BASIC_FONTS, UnicodeFonts};

use super::mask::Mask;
use crate::pixels::Pixels;

/// An object as a picture shows it.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// x0, y0, x1 and y1 of its box in pixels.
    pub corners: [f32; 4],
    /// Its colour, red, green and blue.
    pub colour: [u8; 3],
    /// What is written at its box.
    pub label: &'a str,
    /// Its pixels, seen through.
    pub mask: Option<&'a Mask>,
}

/// Side of a letter, before it is enlarged.
const LETTER: usize = 8;
/// Pixels of an image's shorter side for each pixel of a line or a letter's stroke.
const SIDE_OF_STROKE: usize = 480;
/// What the shorter side of a picture has at least, in pixels: below it names fill the picture.
const LEAST: usize = 256;
/// What the longer side of an enlarged picture has at most, in pixels.
const MOST: usize = 4 * LEAST;

/// `image` with `objects` drawn over it, the first one on top. A small image is enlarged by a whole
/// number first, so that lines and names are fine beside it.
///
/// # Panics
/// If a mask of runs is of another image's size.
pub fn draw_objects(image: &Pixels, objects: &[Shown<'_>]) -> Pixels {
    let mut drawn = image.clone();
    for shown in objects.iter().rev() {
        if let Some(mask) = shown.mask {
            let covered = mask.pixels([image.height, image.width]);
            let pixels = drawn.data.as_chunks_mut::<3>().0.iter_mut().zip(covered);
            for (pixel, _) in pixels.filter(|(_, covered)| *covered == 1) {
                for (value, own) in pixel.iter_mut().zip(shown.colour) {
                    *value = u16::midpoint(u16::from(*value), u16::from(own)) as u8;
                }
            }
        }
    }
    let (shorter, longer) = (image.height.min(image.width), image.height.max(image.width));
    let factor = LEAST.div_ceil(shorter.max(1)).min(MOST / longer.max(1)).max(1);
    if factor > 1 {
        drawn = drawn.enlarged(factor);
    }
    let stroke = (factor * shorter / SIDE_OF_STROKE).max(1);
    for &shown in objects.iter().rev() {
        let shown = Shown { corners: shown.corners.map(|at| factor as f32 * at), ..shown };
        outline(&mut drawn, &shown, stroke);
        write(&mut drawn, &shown, stroke);
    }
    drawn
}

/// Fills rows and columns of an image, as far as they are inside.
fn fill(image: &mut Pixels, rows: [isize; 2], columns: [isize; 2], colour: [u8; 3]) {
    let within = |[start, end]: [isize; 2], most: usize| {
        start.clamp(0, most as isize) as usize..end.clamp(0, most as isize) as usize
    };
    let columns = within(columns, image.width);
    for row in within(rows, image.height) {
        let line = &mut image.data[3 * row * image.width..][..3 * image.width];
        let pixels = line.as_chunks_mut::<3>().0.get_mut(columns.clone());
        pixels.unwrap_or_default().fill(colour);
    }
}

fn outline(image: &mut Pixels, shown: &Shown<'_>, stroke: usize) {
    let [x0, y0, x1, y1] = shown.corners.map(|at| at.round() as isize);
    let (stroke, colour) = (stroke as isize, shown.colour);
    fill(image, [y0, y0 + stroke], [x0, x1], colour);
    fill(image, [y1 - stroke, y1], [x0, x1], colour);
    fill(image, [y0, y1], [x0, x0 + stroke], colour);
    fill(image, [y0, y1], [x1 - stroke, x1], colour);
}

/// Writes the label on a strip of the object's colour above its box, or inside where there is no
/// room, and further left where it would leave the image. Letters that the font lacks are shown as
/// `?`.
fn write(image: &mut Pixels, shown: &Shown<'_>, stroke: usize) {
    if shown.label.is_empty() {
        return;
    }
    let side = (LETTER * stroke) as isize;
    let [x0, y0, ..] = shown.corners.map(|at| at.round() as isize);
    let width = side * shown.label.chars().count() as isize;
    let left = x0.min(image.width as isize - width).max(0);
    let above = y0.saturating_sub(side + 1);
    let top = if above >= 0 { above } else { y0.max(0) };
    fill(image, [top, top + side + 1], [left, left + width], shown.colour);
    let brightness: u32 = shown.colour.iter().map(|&value| u32::from(value)).sum();
    let ink = if brightness > 3 * 128 { [0; 3] } else { [255; 3] };
    for (place, letter) in (0..).zip(shown.label.chars()) {
        let rows = BASIC_FONTS.get(letter).or_else(|| BASIC_FONTS.get('?')).unwrap_or_default();
        for (row, bits) in (0..).zip(rows) {
            for column in (0..LETTER as isize).filter(|column| bits >> column & 1 == 1) {
                let step = stroke as isize;
                let (y, x) = (top + step * row + 1, left + side * place + step * column);
                fill(image, [y, y + step], [x, x + step], ink);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(image: &Pixels, y: usize, x: usize) -> [u8; 3] {
        let start = 3 * (y * image.width + x);
        [image.data[start], image.data[start + 1], image.data[start + 2]]
    }

    #[test]
    fn boxes_masks_and_names_are_where_they_belong() {
        let mask = Mask::Polygons(vec![vec![10.0, 20.0, 30.0, 20.0, 30.0, 40.0, 10.0, 40.0]]);
        let shown = Shown {
            corners: [10.0, 20.0, 30.0, 40.0],
            colour: [200, 0, 0],
            label: "I",
            mask: Some(&mask),
        };
        let drawn = draw_objects(&Pixels::black(256, 300), &[shown]);
        for (y, x) in [(20, 10), (20, 29), (39, 10), (39, 29), (30, 10), (30, 29)] {
            assert_eq!(at(&drawn, y, x), [200, 0, 0], "the outline at {y}, {x}");
        }
        assert_eq!(at(&drawn, 30, 20), [100, 0, 0], "seen through");
        assert_eq!([at(&drawn, 41, 20), at(&drawn, 30, 31)], [[0; 3]; 2]);
        // The stem of the letter, and the strip beside it.
        assert_eq!([at(&drawn, 15, 12), at(&drawn, 15, 10)], [[255; 3], [200, 0, 0]]);
        assert_eq!(at(&drawn, 15, 18), [0; 3]);
    }

    #[test]
    fn small_images_are_enlarged() {
        for (size, drawn) in [
            ([64, 80], [256, 320]),
            ([100, 90], [300, 270]),
            ([256, 300], [256, 300]),
            ([8, 300], [24, 900]),
            ([1, 2000], [1, 2000]),
        ] {
            let image = draw_objects(&Pixels::black(size[0], size[1]), &[]);
            assert_eq!([image.height, image.width], drawn, "{size:?}");
        }
        let mask = Mask::Polygons(vec![vec![10.0, 20.0, 20.0, 20.0, 20.0, 30.0, 10.0, 30.0]]);
        let (corners, colour) = ([10.0, 20.0, 20.0, 30.0], [200, 0, 0]);
        let shown = Shown { corners, colour, label: "", mask: Some(&mask) };
        let drawn = draw_objects(&Pixels::black(64, 64), &[shown]);
        let across = [39, 40, 41, 78, 79, 80].map(|x| at(&drawn, 100, x)[0]);
        assert_eq!(across, [0, 200, 100, 100, 200, 0], "a line of one pixel around a mask of 40");
    }

    #[test]
    fn what_is_beyond_the_image_is_not_drawn() {
        let outside = [-1e9, f32::NAN, 1e9, f32::INFINITY];
        for corners in [[-5.0, -5.0, 3.0, 3.0], [90.0, 90.0, 99.0, 99.0], outside] {
            let shown = Shown { corners, colour: [9; 3], label: "käse \u{1F9C0}", mask: None };
            draw_objects(&Pixels::black(8, 8), &[shown]);
        }
    }
}
