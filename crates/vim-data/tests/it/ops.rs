//! Operations on pixels: equal to Pillow's bit for bit, so compared by hash.

use std::collections::BTreeSet;

use vim_data::Pixels;
use vim_data::ops::{self, Op, Scratch};

use crate::golden::{self, Manifest, More};

/// `round(255 · mean)` of ImageNet: what the original fills with.
const FILL: [u8; 3] = [124, 116, 104];

#[test]
fn every_operation_equals_the_original_s_and_pillow_s() {
    let (manifest, more): (Manifest, More) =
        (golden::json("manifest.json"), golden::json("more.json"));
    let mut scratch = Scratch::default();
    for (cases, operations, count) in [(manifest.ops, 15, 116), (more.ops, 18, 136)] {
        let mut seen = BTreeSet::new();
        let mut wrong = Vec::new();
        assert_eq!(cases.len(), count);
        for case in cases {
            let mut image = golden::bytes(&case.input);
            let side = (image.len() / 3).isqrt();
            if case.op == "affine" {
                let map = case.args.clone().try_into().unwrap();
                ops::affine(&mut image, [side, side], map, FILL, &mut scratch);
            } else {
                let op = Op::named(&case.op, &case.args, [side, side]).unwrap();
                op.apply(&mut image, [side, side], FILL, &mut scratch);
            }
            seen.insert(case.op.clone());
            if golden::sha256(&image) != case.sha256 {
                wrong.push(case);
            }
        }
        assert_eq!(seen.len(), operations);
        assert!(wrong.is_empty(), "{} of {count}: {wrong:#?}", wrong.len());
    }
}

#[test]
fn rectangles_are_not_transposed() {
    // A square in the corner of black: what is on its row and column moves the same way at every
    // size.
    for (height, width) in [(5, 9), (9, 5), (1, 7), (7, 1), (2, 2), (1, 1)] {
        let source: Vec<u8> = (0..3 * height * width).map(|at| (at * 7 % 251) as u8).collect();
        for (down, right) in [(1, 0), (0, 1), (2, 0), (0, 2), (-1, 0), (0, -1)] {
            let op = match (down, right) {
                (_, 0) => Op::TranslateY { pixels: f64::from(-down) },
                _ => Op::TranslateX { pixels: f64::from(-right) },
            };
            let mut image = source.clone();
            op.apply(&mut image, [height, width], FILL, &mut Scratch::default());
            for y in 0..height {
                for x in 0..width {
                    let (from_y, from_x) = (y as i32 - down, x as i32 - right);
                    let inside =
                        (0..height as i32).contains(&from_y) && (0..width as i32).contains(&from_x);
                    let at = 3 * (from_y * width as i32 + from_x);
                    let expected =
                        if inside { &source[at as usize..at as usize + 3] } else { &FILL[..] };
                    let got = &image[3 * (y * width + x)..][..3];
                    assert_eq!(got, expected, "{op:?} of [{height}, {width}] at ({y}, {x})");
                }
            }
        }
    }
}

#[test]
fn small_images_survive_every_operation() {
    let factor = 1.7;
    let all = [
        Op::AutoContrast,
        Op::Equalize,
        Op::Invert,
        Op::Rotate { degrees: 29.0 },
        Op::Posterize { bits: 3 },
        Op::Solarize { threshold: 256 },
        Op::SolarizeAdd { add: 110 },
        Op::Color { factor },
        Op::Contrast { factor },
        Op::Brightness { factor },
        Op::Sharpness { factor },
        Op::ShearX { factor: 0.3 },
        Op::ShearY { factor: -0.3 },
        Op::TranslateX { pixels: 1e9 },
        Op::TranslateY { pixels: -0.3 },
        Op::Grayscale,
        Op::Blur { radius: 2.0 },
    ];
    let mut scratch = Scratch::default();
    for (height, width) in [(0, 0), (0, 3), (1, 1), (1, 2), (2, 1), (3, 3), (2, 40)] {
        for op in all {
            let mut image = vec![200; 3 * height * width];
            op.apply(&mut image, [height, width], FILL, &mut scratch);
        }
    }
}

#[test]
fn flipping_mirrors_each_row() {
    for (height, width) in [(3, 4), (2, 5), (1, 1), (4, 1), (0, 0)] {
        let source: Vec<u8> = (0..3 * height * width).map(|at| at as u8).collect();
        let mut image = source.clone();
        ops::flip(&mut image, [height, width]);
        for y in 0..height {
            for x in 0..width {
                let at = |x: usize| 3 * (y * width + x);
                assert_eq!(image[at(x)..][..3], source[at(width - 1 - x)..][..3]);
            }
        }
    }
}

#[test]
fn crops_with_a_border_equal_the_definition() {
    let inside = |at: isize, side: usize| usize::try_from(at).ok().filter(|&at| at < side);
    let mirrored = |at: isize, side: usize| {
        let last = side as isize - 1;
        Some((last - (last - at.abs()).abs()) as usize)
    };
    // Source, padding and crop; the crop need not be of the source's size.
    for (height, width, padding, size) in [
        (32, 32, [4, 4], [32, 32]),
        (5, 9, [4, 4], [5, 9]),
        (3, 1, [4, 7], [9, 3]),
        (6, 7, [0, 0], [6, 7]),
        (2, 2, [9, 9], [2, 2]),
        (40, 8, [4, 4], [32, 6]),
    ] {
        let data = (0..3 * height * width).map(|at| (at % 255) as u8 + 1).collect();
        let source = Pixels { height, width, data };
        for top in 0..=height + 2 * padding[0] - size[0] {
            for left in 0..=width + 2 * padding[1] - size[1] {
                let mut black = vec![77; 3 * size[0] * size[1]];
                ops::pad_crop(&source, padding, [top, left], size, &mut black);
                let reflects = padding[0] == padding[1] && padding[0] < height.min(width);
                let mut mirror = vec![77; black.len()];
                if reflects {
                    ops::reflect_crop(&source, padding[0], [top, left], size, &mut mirror);
                }
                for (at, &got) in black.iter().enumerate() {
                    let (y, x, channel) = (at / 3 / size[1], at / 3 % size[1], at % 3);
                    let at_axis = |place: usize, corner: usize, padding: usize| {
                        (place + corner) as isize - padding as isize
                    };
                    let place = [at_axis(y, top, padding[0]), at_axis(x, left, padding[1])];
                    let pixel = |rule: &dyn Fn(isize, usize) -> Option<usize>| match (
                        rule(place[0], height),
                        rule(place[1], width),
                    ) {
                        (Some(y), Some(x)) => source.data[3 * (y * width + x) + channel],
                        _ => 0,
                    };
                    assert_eq!(got, pixel(&inside), "[{height}, {width}] ({top}, {left}) {at}");
                    if reflects {
                        assert_eq!(mirror[at], pixel(&mirrored), "[{height}, {width}] {at}");
                    }
                }
            }
        }
    }
}
