//! JPEGs with damaged headers: what they leave behind, and that the libraries agree on them.

use vim_data::{DecodeError, DecodeLimits, Decoded, Decoder, JpegLibrary, Pixels};

use crate::golden;

const LIBRARIES: &[JpegLibrary] = &[
    #[cfg(feature = "turbo")]
    JpegLibrary::LibjpegTurbo,
    JpegLibrary::ZuneJpeg,
];

fn decoder(library: JpegLibrary) -> Decoder {
    Decoder::with(library, DecodeLimits::default()).unwrap()
}

/// What a decoder makes of a file.
fn outcome(decoder: &mut Decoder, file: &[u8]) -> Result<(Decoded, Pixels), DecodeError> {
    outcome_over(0, decoder, file)
}

/// What it makes of a file in the place of an image of this shade.
fn outcome_over(
    shade: u8,
    decoder: &mut Decoder,
    file: &[u8],
) -> Result<(Decoded, Pixels), DecodeError> {
    let mut pixels = Pixels { data: vec![shade; 1 << 15], ..Pixels::default() };
    decoder.decode(file, &mut pixels).map(|decoded| (decoded, pixels))
}

/// Where the marker `code` of a file's header is.
fn marker(file: &[u8], code: u8) -> usize {
    let mut at = 2;
    while file[at + 1] != code {
        at += 2 + usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
    }
    at
}

/// Where the segment of the marker at `at` ends.
fn end(file: &[u8], at: usize) -> usize {
    at + 2 + usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]))
}

const A_SCAN: &str = "a second scan";
const AN_END: &str = "an end in the scan";

/// `file` with markers that break off its first scan.
fn broken_off(file: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let [dht, sos] = [0xc4, 0xda].map(|code| marker(file, code));
    let start = end(file, sos);
    let mut at = start + (file.len() - start) / 4;
    while file[at - 1] == 0xff {
        at += 1;
    }
    let with = |bytes: &[u8], rest: &[u8]| [&file[..at], bytes, rest].concat();
    vec![
        (A_SCAN, with(&file[sos..start], &file[at..])),
        ("a Huffman table in the scan", with(&file[dht..end(file, dht)], &[0xff, 0xd9])),
        ("a comment in the scan", with(&[0xff, 0xfe, 0, 4, b'a', b'b'], &[0xff, 0xd9])),
        ("a restart interval in the scan", with(&[0xff, 0xdd, 0, 4, 0, 1], &[0xff, 0xd9])),
        (AN_END, with(&[0xff, 0xd9], &file[at..])),
    ]
}

/// `file` with damage of every kind in its header, and with markers in its scan.
fn damaged(file: &[u8]) -> Vec<(String, Vec<u8>)> {
    let frame = if file[marker_of_frame(file) + 1] == 0xc2 { 0xc2 } else { 0xc0 };
    let [dqt, sof, dht, sos] = [0xdb, frame, 0xc4, 0xda].map(|code| marker(file, code));
    let set = |at: usize, value: u8| {
        let mut file = file.to_vec();
        file[at] = value;
        file
    };
    let insert = |at: usize, bytes: &[u8]| [&file[..at], bytes, &file[at..]].concat();
    let without = |at: usize| [&file[..at], &file[end(file, at)..]].concat();
    let again = |at: usize| insert(at, &file[at..end(file, at)]);
    let mut all: Vec<(String, Vec<u8>)> = [
        ("two starts", insert(2, &[0xff, 0xd8])),
        ("two frames", again(sof)),
        ("a table of quotients too many", set(dqt + 4, 0x09)),
        ("a short table of quotients", set(dqt + 3, 20)),
        ("a Huffman table too many", set(dht + 4, 0x0f)),
        ("Huffman counts beyond the codes", set(dht + 5, 255)),
        ("Huffman counts beyond the segment", set(dht + 20, 250)),
        ("a frame of another length", set(sof + 3, 18)),
        ("9 channels", set(sof + 9, 9)),
        ("no channels", set(sof + 9, 0)),
        ("9 bits", set(sof + 4, 9)),
        ("factors of 0", set(sof + 11, 0)),
        ("no table of quotients", without(dqt)),
        ("no Huffman table", without(dht)),
        ("no frame", without(sof)),
        ("no scan", without(sos)),
        ("a scan of a channel that is none", set(sos + 5, 77)),
        ("an unknown marker", insert(dqt, &[0xff, 0x05, 0, 2])),
        ("an end", insert(sof, &[0xff, 0xd9])),
        ("a restart", insert(sof, &[0xff, 0xd3])),
        ("a bad restart interval", insert(sof, &[0xff, 0xdd, 0, 3, 1])),
        ("arithmetic coding", set(sof + 1, 0xc9)),
        ("lossless", set(sof + 1, 0xc3)),
        ("a hierarchy", set(sof + 1, 0xc5)),
        ("Adobe's segment, short", insert(2, b"\xff\xee\0\x08Adobe\0")),
        ("Adobe's code 9", insert(2, b"\xff\xee\0\x0eAdobe\0d\0\0\0\0\x09")),
    ]
    .map(|(what, file)| (what.to_owned(), file))
    .into();
    all.extend(broken_off(file).into_iter().map(|(what, file)| (what.to_owned(), file)));
    for cut in (2..end(file, sos) + 40).step_by(7) {
        all.push((format!("cut at {cut}"), file[..cut].to_vec()));
        let ended = [&file[..cut], &[0xff, 0xd9]].concat();
        all.push((format!("ended at {cut}"), ended));
    }
    for at in (0..end(file, sos)).step_by(3) {
        all.push((format!("bit {} of byte {at}", at % 8), set(at, file[at] ^ (1 << (at % 8)))));
    }
    all
}

fn marker_of_frame(file: &[u8]) -> usize {
    let mut at = 2;
    while !matches!(file[at + 1], 0xc0..=0xc2) {
        at = end(file, at);
    }
    at
}

#[test]
fn no_file_changes_what_becomes_of_the_next() {
    let files = ["odd/420.jpg", "odd/progressive.jpg", "odd/gray.jpg", "odd/cmyk.jpg"];
    let files = files.map(golden::bytes);
    for &library in LIBRARIES {
        let goods: Vec<_> =
            files.iter().map(|file| outcome(&mut decoder(library), file).unwrap()).collect();
        // One for all files.
        let mut used = decoder(library);
        for (kind, file) in files.iter().enumerate() {
            for (what, file) in damaged(file) {
                let got = outcome_over(255, &mut used, &file);
                let fresh = outcome(&mut decoder(library), &file);
                assert_eq!(got.is_ok(), fresh.is_ok(), "{what} in {kind} by {library}: {got:?}");
                assert!(got == fresh, "{what} in {kind} by {library}");
                for (file, good) in files.iter().zip(&goods) {
                    let next = outcome(&mut used, file);
                    assert!(next.as_ref() == Ok(good), "after {what} in {kind} by {library}");
                }
            }
        }
    }
}

#[test]
fn what_is_missing_of_a_scan_is_grey_and_told() {
    for name in ["odd/420.jpg", "odd/gray.jpg", "odd/cmyk.jpg"] {
        let all = broken_off(&golden::bytes(name)).into_iter();
        // What zune-jpeg makes of an end is its own matter, and a second scan is refused.
        for (what, file) in all.filter(|(what, _)| !matches!(*what, AN_END | A_SCAN)) {
            for &library in LIBRARIES {
                let got = outcome_over(255, &mut decoder(library), &file);
                let what = format!("{what} in {name} by {library}");
                let (decoded, pixels) = got.unwrap_or_else(|error| panic!("{what}: {error}"));
                let text = "Corrupt JPEG data: premature end of data segment";
                assert_eq!(decoded.warning.as_deref(), Some(text), "{what}");
                let last = pixels.data.last_chunk::<3>().unwrap();
                let expected = if name.contains("cmyk") { 64 } else { 128 };
                assert_eq!(last, &[expected; 3], "{what}");
            }
        }
    }
}

#[test]
fn bad_headers_are_refused_by_both() {
    let file = golden::bytes("odd/420.jpg");
    for &library in LIBRARIES {
        let bad = damaged(&file)
            .into_iter()
            .filter(|(_, file)| outcome(&mut decoder(library), file).is_err());
        let bad: Vec<String> = bad.map(|(what, _)| what).collect();
        for what in [
            "two starts",
            "two frames",
            "a table of quotients too many",
            "a Huffman table too many",
            "Huffman counts beyond the codes",
            "a frame of another length",
            "9 channels",
            "no channels",
            "9 bits",
            "factors of 0",
            "no table of quotients",
            "no frame",
            "no scan",
            "an unknown marker",
            "an end",
            "a hierarchy",
            A_SCAN,
        ] {
            assert!(bad.iter().any(|bad| bad == what), "{what} by {library}");
        }
    }
}

#[test]
fn what_libjpeg_skips_is_skipped_with_its_warning() {
    for &library in LIBRARIES {
        let mut decoder = decoder(library);
        let (decoded, _) = outcome(&mut decoder, &golden::bytes("odd/between.jpg")).unwrap();
        let text = "Corrupt JPEG data: 9 extraneous bytes before marker 0xdb";
        assert_eq!(decoded.warning.as_deref(), Some(text), "{library}");
        let file = golden::bytes("odd/444.jpg");
        let (whole, good) = outcome(&mut decoder, &file).unwrap();
        assert_eq!(whole.warning, None);
        let strange = [&file[..2], b"\xff\xee\0\x0eAdobe\0d\0\0\0\0\x09", &file[20..]].concat();
        let (decoded, pixels) = outcome(&mut decoder, &strange).unwrap();
        assert!(pixels == good, "{library}");
        let text = "Unknown Adobe color transform code 9";
        assert_eq!(decoded.warning.as_deref(), Some(text), "{library}");
        // Of films, frames have no Huffman tables but the usual ones.
        let (mut bare, mut tables) = (file.clone(), 0);
        let frame = golden::bytes("odd/420.jpg");
        let usual = outcome(&mut decoder, &frame).unwrap();
        bare.clone_from(&frame);
        while let Some(at) = (bare.windows(2).position(|two| two == [0xff, 0xc4]))
            .filter(|&at| at < marker(&bare, 0xda))
        {
            bare.drain(at..end(&bare, at));
            tables += 1;
        }
        assert!(tables > 0);
        assert!(outcome(&mut decoder, &bare).as_ref() == Ok(&usual), "{library}");
    }
}

#[test]
fn what_zune_does_not_read_is_named() {
    for (name, what) in
        [("arithmetic", "an arithmetic-coded"), ("non_interleaved", "a non-interleaved")]
    {
        unread_by_zune(&golden::bytes(&format!("odd/{name}.jpg")), what);
    }
}

/// Checks that this part of odd/444.jpg is decoded, or refused as what it is.
fn unread_by_zune(file: &[u8], what: &str) {
    for &library in LIBRARIES {
        let mut decoder = decoder(library);
        let got = outcome(&mut decoder, file);
        if library == JpegLibrary::ZuneJpeg {
            let text = format!(
                "is {what} JPEG, which only a program built with the feature `turbo` reads; save \
                 it as an ordinary JPEG or a PNG"
            );
            assert_eq!(got.unwrap_err().to_string(), text);
            continue;
        }
        let (_, whole) = outcome(&mut decoder, &golden::bytes("odd/444.jpg")).unwrap();
        let rows = (8..32).flat_map(|y| &whole.data[3 * (y * whole.width + 16)..][..3 * 40]);
        let (decoded, pixels) = got.unwrap();
        assert_eq!(decoded.warning, None);
        assert!(rows.eq(&pixels.data));
    }
}
