//! Cyan, magenta, yellow and black to red, green and blue.

/// Converts `[pixels, 4]` as stored in a JPEG to `[pixels, 3]`.
///
/// # Source
/// Pillow: JPEGs hold CMYK inverted, as Adobe writes it; then `convert("RGB")`, where products of
/// bytes are divided by 255 by shifts.
pub(super) fn to_rgb(stored: &[u8], rgb: &mut [u8]) {
    let (stored, rgb) = (stored.as_chunks::<4>().0, rgb.as_chunks_mut::<3>().0);
    for (&[cyan, magenta, yellow, light], rgb) in stored.iter().zip(rgb) {
        *rgb = [cyan, magenta, yellow].map(|stored| {
            let ink = u32::from(255 - stored) * u32::from(light) + 128;
            light.saturating_sub(((ink + (ink >> 8)) >> 8) as u8)
        });
    }
}
