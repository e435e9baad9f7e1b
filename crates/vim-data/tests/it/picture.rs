//! One image as evaluation sees it, against Pillow 12's `resize` (bicubic) and `crop`.
//!
//! The files in tests/fixtures are a 64 × 50 pattern, made and measured by:
//!
//! ```python
//! pattern = lambda y, x, k: (x*5 + y*3 + k*40 + ((x*y) % 17)*6) % 256
//! image = Image.fromarray(np.fromfunction(pattern, (50, 64, 3)).astype(np.uint8))
//! # saved as pattern.png, pattern.jpg (quality=90), palette.png (convert("P"), 16 colours)
//! short = int(side / 0.875) if side > 32 else side
//! image = image.convert("RGB").resize((int(short * 64 / 50), short), Image.BICUBIC)
//! left, top = round((image.width - side) / 2), round((image.height - side) / 2)
//! pixels = np.asarray(image.crop((left, top, left + side, top + side)))
//! ```

use std::path::PathBuf;

use vim_data::{Exif, PictureError, read_picture};

fn fixture(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "fixtures", name].iter().collect()
}

fn means(pixels: &[u8]) -> [f64; 3] {
    let count = (pixels.len() / 3) as f64;
    [0, 1, 2].map(|channel| {
        pixels.iter().skip(channel).step_by(3).map(|&value| f64::from(value)).sum::<f64>() / count
    })
}

/// Reads a file at a size and compares some of its pixels.
fn check(name: &str, size: [usize; 2], pixels: &[((usize, usize), [u8; 3])]) -> Vec<u8> {
    let got = read_picture(&fixture(name), size, Exif::Ignore).unwrap();
    assert_eq!(got.len(), 3 * size[0] * size[1]);
    for &((y, x), expected) in pixels {
        let at = 3 * (y * size[1] + x);
        assert_eq!(got[at..at + 3], expected, "{name} {size:?} ({y}, {x})");
    }
    got
}

#[test]
fn pixels_are_pillow_s() {
    for (name, side, mean, [first, early, centre, last, lower]) in [
        (
            "pattern.png",
            40,
            [124.1375, 122.0544, 123.05],
            [[76, 116, 156], [71, 111, 151], [167, 53, 93], [191, 236, 85], [154, 21, 56]],
        ),
        (
            "pattern.png",
            32,
            [127.0322, 126.9639, 126.3340],
            [[49, 89, 129], [42, 84, 124], [118, 67, 107], [170, 213, 35], [129, 169, 49]],
        ),
        (
            "palette.png",
            40,
            [124.7025, 122.5763, 123.5613],
            [[74, 114, 154], [71, 111, 151], [170, 55, 95], [188, 233, 82], [160, 28, 62]],
        ),
    ] {
        let (half, end) = (side / 2, side - 1);
        let pixels = [
            ((0, 0), first),
            ((7, side - 9), early),
            ((half, half), centre),
            ((end, end), last),
            ((end, 0), lower),
        ];
        let got = check(name, [side, side], &pixels);
        for (got, expected) in means(&got).into_iter().zip(mean) {
            // The means are given to four decimals.
            assert!((got - expected).abs() < 1e-4, "{name} {side}: {got} {expected}");
        }
    }
}

#[test]
fn rectangles_are_covered() {
    // The module's own lines with `image.resize` to the smallest size that covers both sides.
    for ([height, width], [first, centre, last]) in [
        ([16, 32], [[56, 96, 136], [136, 56, 96], [142, 86, 48]]),
        ([48, 20], [[197, 237, 33], [140, 50, 90], [109, 149, 207]]),
        ([100, 40], [[158, 198, 122], [155, 50, 90], [107, 147, 202]]),
    ] {
        let pixels =
            [((0, 0), first), ((height / 2, width / 2), centre), ((height - 1, width - 1), last)];
        check("pattern.png", [height, width], &pixels);
    }
}

#[test]
fn jpegs_are_read() {
    // Decoders differ in how they spread colour over pixels; the means hardly do.
    let got = means(&read_picture(&fixture("pattern.jpg"), [40, 40], Exif::Ignore).unwrap());
    for (got, expected) in got.into_iter().zip([124.2525, 121.9619, 124.2244]) {
        assert!((got - expected).abs() < 2.0, "{got} {expected}");
    }
}

#[test]
fn what_is_no_picture_is_refused() {
    let path = std::env::temp_dir().join(format!("vim-data-picture-{}.png", std::process::id()));
    let whole = std::fs::read(fixture("pattern.png")).unwrap();
    for bytes in [&b""[..], b"hello", &whole[..20], &whole[..whole.len() / 2]] {
        std::fs::write(&path, bytes).unwrap();
        let error = read_picture(&path, [32, 32], Exif::Ignore).unwrap_err();
        assert!(matches!(error, PictureError::Decode { .. }), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(read_picture(&path, [32, 32], Exif::Ignore), Err(PictureError::Read { .. })));
}
