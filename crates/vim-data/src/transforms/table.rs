//! Operations that map each byte by itself.

use crate::simd::widest;

/// New values of red, green and blue.
type Tables = [[u8; 256]; 3];

/// `255 − v`.
pub(super) fn invert(image: &mut [u8]) {
    map(image, move |value| !value);
}

/// Keeps the upper `bits`.
pub(super) fn posterize(image: &mut [u8], bits: u8) {
    let kept = match bits {
        0..8 => !(0xff_u8 >> bits),
        _ => 0xff,
    };
    map(image, move |value| value & kept);
}

/// Inverts from `threshold` on.
pub(super) fn solarize(image: &mut [u8], threshold: u16) {
    let Ok(threshold) = u8::try_from(threshold) else { return };
    map(image, move |value| if value < threshold { value } else { !value });
}

/// Raises the darker half.
pub(super) fn solarize_add(image: &mut [u8], add: u8) {
    map(image, move |value| if value < 128 { value.saturating_add(add) } else { value });
}

/// Stretches each channel to 0..=255.
///
/// # Source
/// `ImageOps.autocontrast`: scale and offset in double precision, truncated.
pub(super) fn auto_contrast(image: &mut [u8]) {
    let tables = histograms(image).map(|counts| {
        let lowest = counts.iter().position(|&count| count > 0).unwrap_or(0);
        let highest = counts.iter().rposition(|&count| count > 0).unwrap_or(0);
        if highest <= lowest {
            return identity();
        }
        let scale = 255.0 / (highest - lowest) as f64;
        let offset = -(lowest as f64) * scale;
        // The cast truncates towards zero, and keeps to 0..=255.
        std::array::from_fn(|value| (value as f64 * scale + offset) as u8)
    });
    look_up(image, &tables);
}

/// Evens out the histogram of each channel.
///
/// # Source
/// `ImageOps.equalize`, all in integers; `Image.point` clips what exceeds 255.
pub(super) fn equalize(image: &mut [u8]) {
    let pixels = (image.len() / 3) as u32;
    let tables = histograms(image).map(|counts| {
        let last = counts.iter().rev().find(|&&count| count > 0).copied().unwrap_or(0);
        // Also 0 if only one value occurs.
        let step = (pixels - last) / 255;
        if step == 0 {
            return identity();
        }
        let mut below = step / 2;
        counts.map(|count| {
            let value = (below / step).min(255) as u8;
            below += count;
            value
        })
    });
    look_up(image, &tables);
}

fn identity() -> [u8; 256] {
    std::array::from_fn(|value| value as u8)
}

/// How often each value of red, green and blue occurs.
fn histograms(image: &[u8]) -> [[u32; 256]; 3] {
    // Two sets, used alternately: neighbours are often equal, and incrementing a counter that was
    // just written is slow.
    let mut even = [[0; 256]; 3];
    let mut odd = [[0; 256]; 3];
    let (pairs, rest) = image.as_chunks::<6>();
    for pair in pairs {
        for channel in 0..3 {
            even[channel][usize::from(pair[channel])] += 1;
            odd[channel][usize::from(pair[channel + 3])] += 1;
        }
    }
    for (channel, &value) in rest.iter().enumerate() {
        even[channel][usize::from(value)] += 1;
    }
    for (total, counts) in even.as_flattened_mut().iter_mut().zip(odd.as_flattened()) {
        *total += counts;
    }
    even
}

fn look_up(image: &mut [u8], tables: &Tables) {
    for pixel in image.as_chunks_mut::<3>().0 {
        for channel in 0..3 {
            pixel[channel] = tables[channel][usize::from(pixel[channel])];
        }
    }
}

fn map(image: &mut [u8], new: impl Fn(u8) -> u8) {
    widest(
        #[inline(always)]
        move || {
            for value in image {
                *value = new(*value);
            }
        },
    );
}
