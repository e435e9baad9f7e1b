//! Resizing and the evaluation transform: equal to Pillow's bit for bit, so compared by hash.

use vim_data::{DecodeLimits, Decoder, EvalTransform, Filter, Pixels, Region, Resizer};

use crate::golden::{self, Manifest, More};

/// The source of every case, `[375, 500]`: a PNG, so that no JPEG decoder matters.
fn source() -> Pixels {
    let mut pixels = Pixels::default();
    let mut decoder = Decoder::new(DecodeLimits::default()).unwrap();
    let _ = decoder.decode(&golden::bytes("src0_png.JPEG"), &mut pixels).unwrap();
    pixels
}

#[test]
fn crops_equal_the_original_s_and_pillow_s() {
    let (manifest, more): (Manifest, More) =
        (golden::json("manifest.json"), golden::json("more.json"));
    assert_eq!((manifest.resize.len(), more.resize.len()), (5, 21));
    let source = source();
    let mut resizer = Resizer::new();
    let mut wrong = Vec::new();
    for case in manifest.resize.into_iter().chain(more.resize) {
        let [top, left, height, width] = case.crop;
        let mut out = vec![0; 3 * case.size[0] * case.size[1]];
        resizer.resize(&source, Region { top, left, height, width }, case.size, &mut out);
        if golden::sha256(&out) != case.sha256 {
            wrong.push(case);
        }
    }
    assert!(wrong.is_empty(), "{}: {wrong:#?}", wrong.len());
}

/// By Pillow 13.0.
#[test]
fn the_bilinear_filter_equals_pillow_s() {
    let source = source();
    let mut resizer = Resizer::with_filter(Filter::Bilinear);
    for (size, expected) in [
        ([64, 96], "0875c4572551198e45d7b297ce9e603610d370f0a3968097f11fa825aeb4edc7"),
        ([38, 51], "d5b58866640970d2e2485665e0a329f3af51374d4f4a3739f8e1d3bdaf77d71f"),
        ([700, 513], "4ffb88afbc95f4ab1bdac307e5b53450e46669e23054eba2128e0e4e8c3b138d"),
        ([375, 1000], "a63598c1667c450250f4844355157f5533cb579714e579b36da47d1349413c6a"),
        // Along the columns first; of the last two, one is just so and one just not.
        ([50, 480], "1849f7a1c157180253be9aa500d04677b296d727d4650075a176cc2c6495280d"),
        ([149, 388], "5d55e26cea2ce8390e61d0d7c00987ba64cfb4b955154e793fc99a8aa2aa0bc5"),
        ([151, 388], "60c003056e0ac21d1b83a689a786aabcb5249811edb483dcea23c3c61bc81cf0"),
        ([1, 1], "c5b5ad01ece3b08cd863f866306ab8a5a0c65e7948903b88711fe1eeff20ece0"),
    ] {
        let mut out = vec![0; 3 * size[0] * size[1]];
        resizer.resize(&source, source.region(), size, &mut out);
        assert_eq!(golden::sha256(&out), expected, "{size:?}");
    }
}

#[test]
fn a_window_is_cut_out_of_the_whole() {
    let source = source();
    let crop = Region { top: 17, left: 40, height: 301, width: 222 };
    let mut resizer = Resizer::new();
    for [height, width] in [[97, 64], [400, 390], [12, 500]] {
        let mut whole = vec![0; 3 * height * width];
        resizer.resize(&source, crop, [height, width], &mut whole);
        for window in [
            Region { top: 0, left: 0, height: 1, width: 1 },
            Region { top: height - 1, left: width - 3, height: 1, width: 3 },
            Region { top: height / 3, left: width / 4, height: height / 2, width: width / 2 },
            Region { top: 5, left: 0, height: 7, width },
        ] {
            let mut part = vec![0; 3 * window.height * window.width];
            resizer.resize_window(&source, crop, [height, width], window, &mut part);
            for (y, row) in part.chunks_exact(3 * window.width).enumerate() {
                let start = 3 * ((window.top + y) * width + window.left);
                assert_eq!(row, &whole[start..start + row.len()], "{window:?} row {y}");
            }
        }
    }
}

#[test]
fn evaluation_equals_the_original_s() {
    // Every 16th row and column of [3, 224, 224], after `(v / 255 − mean) / std` in single
    // precision.
    let expected: Vec<f32> = golden::bytes("eval_0.f32")
        .as_chunks()
        .0
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes))
        .collect();
    assert_eq!(expected.len(), 3 * 14 * 14);
    let mut seen = vec![0; 3 * 224 * 224];
    EvalTransform::default().apply(&source(), [224, 224], &mut seen);
    let (mean, std) = ([0.485_f32, 0.456, 0.406], [0.229_f32, 0.224, 0.225]);
    for (at, expected) in expected.into_iter().enumerate() {
        let (channel, y, x) = (at / 196, 16 * (at / 14 % 14), 16 * (at % 14));
        let value = f32::from(seen[3 * (224 * y + x) + channel]) / 255.0;
        let got = (value - mean[channel]) / std[channel];
        assert_eq!(got.to_bits(), expected.to_bits(), "channel {channel} ({y}, {x})");
    }
}

#[test]
fn small_sizes_are_taken_whole() {
    let source = Pixels { height: 32, width: 32, data: golden::bytes("in2.rgb") };
    let mut seen = vec![0; source.data.len()];
    EvalTransform::default().apply(&source, [32, 32], &mut seen);
    assert_eq!(seen, source.data);
}

#[test]
fn extreme_proportions_cost_no_memory() {
    // Resized to cover 256 pixels, the long side would have 2²⁸ of them.
    for (height, width) in [(1, 1 << 20), (1 << 20, 1)] {
        let source = Pixels { height, width, data: vec![9; 3 << 20] };
        let mut seen = vec![0; 3 * 224 * 224];
        EvalTransform::default().apply(&source, [224, 224], &mut seen);
        assert!(seen.iter().all(|&value| value == 9));
    }
}
