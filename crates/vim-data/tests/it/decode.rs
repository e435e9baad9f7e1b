//! Decoding: what Pillow accepts and what it refuses, and its pixels.

use vim_data::{DecodeError, DecodeLimits, Decoder, ImageKind, JpegLibrary, Pixels, Region};

use crate::golden::{self, FileCase, Manifest, More};

fn decoder(library: JpegLibrary) -> Decoder {
    Decoder::with(library, DecodeLimits::default()).unwrap()
}

fn decoders() -> Vec<(JpegLibrary, Decoder)> {
    let libraries = [
        #[cfg(feature = "turbo")]
        JpegLibrary::LibjpegTurbo,
        JpegLibrary::ZuneJpeg,
    ];
    libraries.map(|library| (library, decoder(library))).into()
}

/// Checks outcome and pixels of every case.
fn run(cases: &[FileCase], folder: &str) {
    let mut wrong = Vec::new();
    for (library, mut decoder) in decoders() {
        for case in cases {
            let file = golden::bytes(&format!("{folder}{}", case.file));
            let mut pixels = Pixels::default();
            let outcome = decoder.decode(&file, &mut pixels);
            let is_jpeg = ImageKind::of(&file) == Some(ImageKind::Jpeg);
            let right = match (&outcome, &case.sha256) {
                // Only zune-jpeg's pixels are not Pillow's to the last bit.
                (Ok(_), Some(_)) if library == JpegLibrary::ZuneJpeg && is_jpeg => true,
                (Ok(_), Some(expected)) => golden::sha256(&pixels.data) == *expected,
                (Err(error), None) => !error.to_string().contains('\n'),
                _ => false,
            };
            if !right {
                wrong.push(format!("{} by {library}: {outcome:?}", case.file));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), cases.len());
}

#[test]
fn pixels_equal_the_original_s() {
    let manifest: Manifest = golden::json("manifest.json");
    assert_eq!(manifest.decode.len(), 3);
    run(&manifest.decode, "");
}

#[test]
fn odd_files_end_as_with_pillow() {
    let more: More = golden::json("more.json");
    assert_eq!(more.odd.len(), 34);
    assert_eq!(more.odd.iter().filter(|case| case.sha256.is_none()).count(), 9);
    run(&more.odd, "odd/");
}

#[test]
fn zune_s_pixels_are_close() {
    // The same picture as a JPEG and, as Pillow decodes that JPEG, as a PNG.
    let mut decoder = decoder(JpegLibrary::ZuneJpeg);
    let (mut jpeg, mut png) = (Pixels::default(), Pixels::default());
    let _ = decoder.decode(&golden::bytes("src0.jpg"), &mut jpeg).unwrap();
    let _ = decoder.decode(&golden::bytes("src0_png.JPEG"), &mut png).unwrap();
    let differences = || jpeg.data.iter().zip(&png.data).map(|(a, b)| a.abs_diff(*b));
    assert!(differences().max().unwrap() <= 3);
}

#[test]
fn the_header_tells_size_and_kind() {
    let decoder = decoder(JpegLibrary::default());
    for (file, kind, components, progressive) in [
        ("444.jpg", ImageKind::Jpeg, 3, false),
        ("progressive.jpg", ImageKind::Jpeg, 3, true),
        ("gray.jpg", ImageKind::Jpeg, 1, false),
        ("cmyk.jpg", ImageKind::Jpeg, 4, false),
        ("exif6.jpg", ImageKind::Jpeg, 3, false),
        ("png.JPEG", ImageKind::Png, 3, false),
        ("la.png", ImageKind::Png, 2, false),
        ("lossless.webp", ImageKind::WebP, 3, false),
    ] {
        let header = decoder.header(&golden::bytes(&format!("odd/{file}"))).unwrap();
        assert_eq!((header.height, header.width), (75, 101), "{file}");
        assert_eq!(header.kind, kind, "{file}");
        assert_eq!((header.components, header.progressive), (components, progressive), "{file}");
    }
}

#[test]
fn errors_say_what_the_file_is() {
    for (library, mut decoder) in decoders() {
        let mut outcome = |name: &str| {
            let file = golden::bytes(&format!("odd/{name}"));
            decoder.decode(&file, &mut Pixels::default()).unwrap_err()
        };
        let kind = ImageKind::Jpeg;
        assert_eq!(outcome("empty.jpg"), DecodeError::Empty);
        assert_eq!(outcome("text.jpg"), DecodeError::Unknown { start: "<html>40".to_owned() });
        for name in ["half.jpg", "99.jpg", "no_eoi.jpg", "no_eoi_progressive.jpg", "header.jpg"] {
            assert_eq!(outcome(name), DecodeError::Truncated { kind }, "{name} by {library}");
        }
        assert_eq!(outcome("half.png"), DecodeError::Truncated { kind: ImageKind::Png });
    }
}

#[test]
fn what_is_too_large_is_refused_before_it_is_decoded() {
    for name in ["444.jpg", "png.JPEG", "lossless.webp"] {
        let file = golden::bytes(&format!("odd/{name}"));
        let limits = DecodeLimits { pixels: 75 * 101 - 1, bytes: file.len() };
        let outcome = Decoder::new(limits).unwrap().decode(&file, &mut Pixels::default());
        assert!(matches!(outcome, Err(DecodeError::ImageTooLarge { .. })), "{outcome:?}");
        let limits = DecodeLimits { pixels: 75 * 101, bytes: file.len() - 1 };
        let outcome = Decoder::new(limits).unwrap().decode(&file, &mut Pixels::default());
        assert!(matches!(outcome, Err(DecodeError::FileTooLarge { .. })), "{outcome:?}");
    }
}

#[test]
fn no_cut_and_no_flipped_byte_panics() {
    let more: More = golden::json("more.json");
    for (_, mut decoder) in decoders() {
        let mut pixels = Pixels::default();
        for case in &more.odd {
            let file = golden::bytes(&format!("odd/{}", case.file));
            for cut in (0..file.len()).step_by(file.len() / 60 + 1) {
                if let Ok(header) = decoder.header(&file[..cut]) {
                    assert!(header.height * header.width <= 75 * 101, "{} {cut}", case.file);
                    let _ = decoder.decode(&file[..cut], &mut pixels);
                }
                let mut flipped = file.clone();
                flipped[cut] ^= 0x55;
                let _ = decoder.decode(&flipped, &mut pixels);
            }
        }
        // The decoder is as good as new after all that.
        run(&more.odd[..4], "odd/");
    }
}

/// Parts of every kind: corners, single pixels, stripes, and some in between.
fn parts(height: usize, width: usize) -> Vec<Region> {
    let mut parts = vec![
        Region { top: 0, left: 0, height, width },
        Region { top: 0, left: 0, height: 1, width: 1 },
        Region { top: height - 1, left: width - 1, height: 1, width: 1 },
        Region { top: height / 2, left: 0, height: 1, width },
        Region { top: 0, left: width / 2, height, width: 1 },
    ];
    let mut state = 12345_usize;
    let mut below = |bound: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    for _ in 0..60 {
        let (part_height, part_width) = (1 + below(height), 1 + below(width));
        let (top, left) = (below(height - part_height + 1), below(width - part_width + 1));
        parts.push(Region { top, left, height: part_height, width: part_width });
    }
    parts
}

#[test]
fn a_part_s_pixels_are_those_of_the_whole() {
    for (library, mut decoder) in decoders() {
        for name in [
            "src0.jpg",
            "src0_420.jpg",
            "odd/422.jpg",
            "odd/420.jpg",
            "odd/progressive.jpg",
            "odd/gray.jpg",
            "odd/cmyk.jpg",
            "odd/ycck_420.jpg",
            "odd/zeroed.jpg",
            "odd/palette.png",
        ] {
            let file = golden::bytes(name);
            let (mut whole, mut part) = (Pixels::default(), Pixels::default());
            let _ = decoder.decode(&file, &mut whole).unwrap();
            for wanted in parts(whole.height, whole.width) {
                let (got, _) = decoder.decode_part(&file, wanted, &mut part).unwrap();
                assert!(got.is_inside([whole.height, whole.width]));
                assert!(got.top <= wanted.top && got.left <= wanted.left);
                assert!(got.top + got.height >= wanted.top + wanted.height);
                assert!(got.left + got.width >= wanted.left + wanted.width);
                assert_eq!((part.height, part.width), (got.height, got.width));
                for y in wanted.top..wanted.top + wanted.height {
                    let row = |image: &Pixels, top: usize, left: usize| {
                        let start = 3 * ((y - top) * image.width + wanted.left - left);
                        image.data[start..start + 3 * wanted.width].to_vec()
                    };
                    let (got, expected) = (row(&part, got.top, got.left), row(&whole, 0, 0));
                    assert_eq!(got, expected, "{name} by {library}: {wanted:?} row {y}");
                }
            }
        }
    }
}

#[test]
fn a_part_of_a_file_cut_short_is_refused() {
    let wanted = Region { top: 0, left: 0, height: 3, width: 3 };
    for (_, mut decoder) in decoders() {
        for name in ["odd/half.jpg", "odd/99.jpg", "odd/no_eoi.jpg", "odd/half.png"] {
            let outcome = decoder.decode_part(&golden::bytes(name), wanted, &mut Pixels::default());
            assert!(matches!(outcome, Err(DecodeError::Truncated { .. })), "{name}: {outcome:?}");
        }
    }
}

#[cfg(feature = "turbo")]
#[test]
fn the_libraries_agree_on_every_jpeg() {
    let more: More = golden::json("more.json");
    let mut decoders = decoders();
    let names = more.odd.iter().filter(|case| case.sha256.is_some());
    let names = names.map(|case| format!("odd/{}", case.file)).chain(["src0_420.jpg".to_owned()]);
    for name in names.filter(|name| name.ends_with(".jpg") && !name.ends_with("zeroed.jpg")) {
        let file = golden::bytes(&name);
        let mut images = [Pixels::default(), Pixels::default()];
        for ((_, decoder), image) in decoders.iter_mut().zip(&mut images) {
            let _ = decoder.decode(&file, image).unwrap();
        }
        let pairs = images[0].data.iter().zip(&images[1].data);
        let most = pairs.map(|(a, b)| a.abs_diff(*b)).max().unwrap();
        // 3 from other roundings where colour is stored in full, more where it is subsampled and
        // spread over the pixels in another way.
        assert!(most <= 9, "{name}: {most}");
    }
}

#[cfg(feature = "turbo")]
#[test]
fn accepted_damage_is_told() {
    let mut decoder = decoder(JpegLibrary::LibjpegTurbo);
    let mut warning =
        |name: &str| decoder.decode(&golden::bytes(name), &mut Pixels::default()).unwrap().warning;
    assert_eq!(warning("odd/444.jpg"), None);
    assert!(warning("odd/zeroed.jpg").unwrap().starts_with("Corrupt JPEG data"));
}

/// An image of 3 × 2 pixels, as the `image` crate writes it.
fn written<P: image::PixelWithColorType>(
    format: image::ImageFormat,
    samples: &[P::Subpixel],
) -> Vec<u8>
where
    [P::Subpixel]: image::EncodableLayout,
{
    let of = image::ImageBuffer::<P, _>::from_raw(3, 2, samples.to_vec()).unwrap();
    let mut file = std::io::Cursor::new(Vec::new());
    of.write_to(&mut file, format).unwrap();
    file.into_inner()
}

#[test]
fn tiff_and_pnm_are_decoded() {
    use image::ImageFormat::{Pnm, Tiff};
    let colours: Vec<u8> = (0..18).map(|at| at * 14).collect();
    let greys: Vec<u8> = (0..6).map(|at| at * 51).collect();
    let deep: Vec<u16> = greys.iter().map(|&grey| u16::from(grey) * 257).collect();
    let three: Vec<u8> = greys.iter().flat_map(|&grey| [grey; 3]).collect();
    let wide: Vec<u16> = colours.iter().map(|&level| u16::from(level) * 257).collect();
    let alpha: Vec<u8> = colours.chunks(3).flat_map(|rgb| [rgb, &[9]].concat()).collect();
    let text = |text: &str| text.as_bytes().to_vec();
    let bits: Vec<u8> = [0, 1, 0, 1, 1, 0].iter().flat_map(|bit| [255 * (1 - bit); 3]).collect();
    let mut decoder = decoder(JpegLibrary::default());
    for (kind, file, expected, channels) in [
        (ImageKind::Tiff, written::<image::Rgb<u8>>(Tiff, &colours), &colours, 3),
        (ImageKind::Tiff, written::<image::Rgba<u8>>(Tiff, &alpha), &colours, 4),
        (ImageKind::Tiff, written::<image::Rgb<u16>>(Tiff, &wide), &colours, 3),
        (ImageKind::Tiff, written::<image::Luma<u8>>(Tiff, &greys), &three, 1),
        (ImageKind::Tiff, written::<image::Luma<u16>>(Tiff, &deep), &three, 1),
        (ImageKind::Pnm, written::<image::Rgb<u8>>(Pnm, &colours), &colours, 3),
        (ImageKind::Pnm, written::<image::Luma<u8>>(Pnm, &greys), &three, 1),
        (ImageKind::Pnm, text("P1\n# a comment\n3 2\n0 1 0\n1 1 0\n"), &bits, 1),
        (ImageKind::Pnm, text("P2 3 2 255\n0 51 102 153 204 255\n"), &three, 1),
    ] {
        let mut pixels = Pixels::default();
        let _ = decoder.decode(&file, &mut pixels).unwrap();
        assert_eq!((pixels.height, pixels.width, &pixels.data), (2, 3, expected), "{kind}");
        let header = decoder.header(&file).unwrap();
        assert_eq!((header.kind, header.components), (kind, channels));
        for cut in 0..file.len() - 1 {
            let _ = decoder.decode(&file[..cut], &mut pixels);
        }
        let outcome = decoder.decode(&file[..file.len() / 2], &mut pixels);
        assert!(outcome.is_err(), "{kind} in half: {outcome:?}");
    }
}

#[test]
fn kinds_that_are_not_read_are_named() {
    let floats: Vec<f32> = (0..18u8).map(f32::from).collect();
    let floats = written::<image::Rgb<f32>>(image::ImageFormat::Tiff, &floats);
    let heic = b"\0\0\0\x24ftypheic\0\0\0\0mif1heic".to_vec();
    let mut decoder = decoder(JpegLibrary::default());
    let mut outcome =
        |file: &[u8]| decoder.decode(file, &mut Pixels::default()).unwrap_err().to_string();
    let of_floats = outcome(&floats);
    assert!(of_floats.contains("floating-point") && of_floats.contains("save it"), "{of_floats}");
    let of_heic = outcome(&heic);
    assert!(of_heic.contains("HEIC") && of_heic.contains("convert it to JPEG"), "{of_heic}");
}
