//! The scene of an image, drawn before any pixel: all but the noise.
//!
//! Only additions, multiplications, divisions and square roots are used, here and in `render`:
//! unlike sines they give the same results on every machine.

use rand_chacha::ChaCha8Rng;

use crate::rng::{below, uniform};

/// The least difference of brightness between any two of an image's three colours, of 1.
const CONTRAST: f32 = 0.30;

/// Outline of the figure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Disk,
    Square,
    Triangle,
    Cross,
}

/// Filling of the figure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Texture {
    Solid,
    Stripes,
    Checker,
}

/// A colour, 0..=1 per channel (somewhat beyond before clamping).
pub(super) type Colour = [f32; 3];

/// What is drawn. Lengths in pixels, origin in the upper left corner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    pub(super) shape: Shape,
    pub(super) texture: Texture,
    /// Centre of the figure, x and y.
    pub(super) centre: [f32; 2],
    /// Half of the figure's extent.
    pub(super) radius: f32,
    /// Direction of the figure's own x axis, at most about 7° from the image's.
    pub(super) tilt: [f32; 2],
    /// Direction across the stripes, any.
    pub(super) grain: [f32; 2],
    /// Length of a pair of stripes or checks.
    pub(super) period: f32,
    /// Where the texture starts, in periods, along and across `grain`.
    pub(super) phase: [f32; 2],
    pub(super) background: Colour,
    /// The figure's only colour when solid.
    pub(super) figure: Colour,
    /// The figure's second colour otherwise.
    pub(super) second: Colour,
    /// Change of the background's brightness across the image, along x and y.
    pub(super) gradient: [f32; 2],
    /// Faint waves in the background: height, and waves per pixel along x and y.
    pub(super) ripple: (f32, [f32; 2]),
    /// Standard deviation of the noise.
    pub(super) noise: f32,
}

impl Scene {
    /// Draws the scene for one class of an image `size` pixels wide.
    pub(super) fn draw(rng: &mut ChaCha8Rng, size: usize, class: u32) -> Self {
        let size = size as f32;
        let radius = size * uniform(rng, 0.36, 0.44);
        let centre = [(); 2].map(|()| uniform(rng, radius, size - radius));
        let tilt = normalised([1.0, uniform(rng, -0.12, 0.12)]);
        let grain = direction(rng);
        let period = size * uniform(rng, 0.22, 0.28);
        let phase = [(); 2].map(|()| uniform(rng, 0.0, 1.0));
        let [background, figure, second] = colours(rng);
        let gradient = [(); 2].map(|()| uniform(rng, -0.12, 0.12));
        let waves = uniform(rng, 1.0, 4.0) / size;
        let ripple = (uniform(rng, 0.0, 0.05), direction(rng).map(|along| along * waves));
        let noise = uniform(rng, 0.01, 0.04);
        Self {
            shape: [Shape::Disk, Shape::Square, Shape::Triangle, Shape::Cross][class as usize / 3],
            texture: [Texture::Solid, Texture::Stripes, Texture::Checker][class as usize % 3],
            centre,
            radius,
            tilt,
            grain,
            period,
            phase,
            background,
            figure,
            second,
            gradient,
            ripple,
            noise,
        }
    }
}

/// The background, then the figure's two colours: any two at least `CONTRAST` apart in brightness.
///
/// The background is the darkest or the brightest, so that an outline is as clear as a texture. The
/// distribution is symmetric under `x → 1 - x`, so a linear classifier learns no sign.
fn colours(rng: &mut ChaCha8Rng) -> [Colour; 3] {
    let slack = 0.9 - 2.0 * CONTRAST;
    let mut levels = [(); 3].map(|()| uniform(rng, 0.05, 0.05 + slack));
    levels.sort_by(f32::total_cmp);
    levels[1] += CONTRAST;
    levels[2] += 2.0 * CONTRAST;
    if below(rng, 2) == 1 {
        levels.swap(0, 2);
    }
    if below(rng, 2) == 1 {
        levels.swap(1, 2);
    }
    levels.map(|level| {
        let tint = [(); 3].map(|()| uniform(rng, -0.15, 0.15));
        let mean = (tint[0] + tint[1] + tint[2]) / 3.0;
        tint.map(|channel| (level + channel - mean).clamp(0.0, 1.0))
    })
}

/// A direction, every one equally likely: a point of the unit disk, pushed to its edge.
fn direction(rng: &mut ChaCha8Rng) -> [f32; 2] {
    // The grid of 2¹² points a side is symmetric, so a mirrored direction is exactly as likely.
    let coordinate = |rng: &mut ChaCha8Rng| (below(rng, 1 << 12) as f32 - 2047.5) / 2048.0;
    loop {
        let point = [coordinate(rng), coordinate(rng)];
        let square = point[0] * point[0] + point[1] * point[1];
        if (0.01..=1.0).contains(&square) {
            return normalised(point);
        }
    }
}

fn normalised([x, y]: [f32; 2]) -> [f32; 2] {
    let length = (x * x + y * y).sqrt();
    [x / length, y / length]
}
