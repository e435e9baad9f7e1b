//! The scene of an image, all but the noise, which is drawn before any pixel; then its pixels.
//!
//! Only additions, multiplications, divisions and square roots are used: unlike sines they give the
//! same results on every machine.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

use crate::rng::{below, uniform};

/// The least difference of brightness between any two of an image's three colours, of 1.
const CONTRAST: f32 = 0.30;

/// Outline of the figure.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Disk,
    Square,
    Triangle,
    Cross,
}

/// Filling of the figure.
#[derive(Clone, Copy, Debug)]
enum Texture {
    Solid,
    Stripes,
    Checker,
}

/// A colour, 0..=1 per channel (somewhat beyond before clamping).
type Colour = [f32; 3];

/// What is drawn. Lengths in pixels, origin in the upper left corner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    shape: Shape,
    texture: Texture,
    /// Centre of the figure, x and y.
    centre: [f32; 2],
    /// Half of the figure's extent.
    radius: f32,
    /// Direction of the figure's own x axis, at most about 7° from the image's.
    tilt: [f32; 2],
    /// Direction across the stripes, any.
    grain: [f32; 2],
    /// Length of a pair of stripes or checks.
    period: f32,
    /// Where the texture starts, in periods, along and across `grain`.
    phase: [f32; 2],
    background: Colour,
    /// The figure's only colour when solid.
    figure: Colour,
    /// The figure's second colour otherwise.
    second: Colour,
    /// Change of the background's brightness across the image, along x and y.
    gradient: [f32; 2],
    /// Faint waves in the background: height, and waves per pixel along x and y.
    ripple: (f32, [f32; 2]),
    /// Standard deviation of the noise.
    noise: f32,
}

impl Scene {
    /// Draws the scene for one class of an image `size` pixels wide.
    pub(super) fn draw(rng: &mut ChaCha8Rng, size: usize, class: u32) -> Self {
        Self::draw_scaled(rng, size, class, 1.0)
    }

    /// As [`Self::draw`], with a figure and its texture `scale` times as large.
    pub(super) fn draw_scaled(rng: &mut ChaCha8Rng, size: usize, class: u32, scale: f32) -> Self {
        let size = size as f32;
        let radius = size * uniform(rng, 0.36, 0.44) * scale;
        let centre = [(); 2].map(|()| uniform(rng, radius, size - radius));
        let tilt = normalised([1.0, uniform(rng, -0.12, 0.12)]);
        let grain = direction(rng);
        let period = size * uniform(rng, 0.22, 0.28) * scale;
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

    /// `side` by `side` small figures that touch, in the place of this one.
    pub(super) fn crowd(&self, side: usize) -> Vec<Self> {
        let share = 1.0 / side as f32;
        let (radius, period) = (self.radius * share, self.period * share);
        let along = |place: usize, axis: usize| {
            self.centre[axis] - self.radius + (2 * place + 1) as f32 * radius
        };
        let small = |at: usize| {
            let centre = [along(at % side, 0), along(at / side, 1)];
            Self { centre, radius, period, ..*self }
        };
        (0..side * side).map(small).collect()
    }

    /// Draws the pixels, anti-aliased, with its noise from `rng`.
    ///
    /// # Shapes
    /// `pixels` is `[size, size, 3]`.
    pub(super) fn render(&self, rng: &mut ChaCha8Rng, size: usize, pixels: &mut [u8]) {
        Self::render_all(std::slice::from_ref(self), rng, size, pixels, |_, _| {});
    }

    /// Draws the figures of `scenes`, each over those before, on the first one's background.
    /// `covers` gets every pixel whose larger part a figure covers, and the figure's number.
    ///
    /// # Shapes
    /// `pixels` is `[size, size, 3]`.
    pub(super) fn render_all(
        scenes: &[Self],
        rng: &mut ChaCha8Rng,
        size: usize,
        pixels: &mut [u8],
        mut covers: impl FnMut(usize, usize),
    ) {
        assert_eq!(pixels.len(), 3 * size * size, "the target is not [{size}, {size}, 3]");
        let first = scenes.first().expect("invariant: a scene is drawn");
        let mut noise = vec![0; 2 * pixels.len()];
        rng.fill_bytes(&mut noise);
        // The sum of two uniform bytes has this standard deviation.
        let noise_scale = first.noise / 104.5;

        let values = pixels.chunks_exact_mut(3).zip(noise.chunks_exact(6));
        for (at, (pixel, noise)) in values.enumerate() {
            let point = [(at % size) as f32 + 0.5, (at / size) as f32 + 0.5];
            let shade = background_shade(first, point, size as f32);
            let mut exact = first.background.map(|background| background + shade);
            for (number, scene) in scenes.iter().enumerate() {
                let covered = coverage(scene, point);
                let mix = texture(scene, point);
                for (channel, value) in exact.iter_mut().enumerate() {
                    let figure = scene.figure[channel] * (1.0 - mix) + scene.second[channel] * mix;
                    *value = *value * (1.0 - covered) + figure * covered;
                }
                if covered >= 0.5 {
                    covers(at, number);
                }
            }
            for (channel, value) in pixel.iter_mut().enumerate() {
                let grain =
                    f32::from(noise[2 * channel]) + f32::from(noise[2 * channel + 1]) - 255.0;
                *value = ((exact[channel] + grain * noise_scale) * 255.0 + 0.5) as u8; // saturates
            }
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

/// How much of a pixel the figure covers, 0..=1.
fn coverage(scene: &Scene, point: [f32; 2]) -> f32 {
    let [x, y] = [point[0] - scene.centre[0], point[1] - scene.centre[1]];
    let [cos, sin] = scene.tilt;
    let distance = outside(scene.shape, [x * cos + y * sin, y * cos - x * sin], scene.radius);
    (0.5 - distance).clamp(0.0, 1.0)
}

/// Distance to the outline in pixels, negative inside; at corners, outside, a lower bound of it.
fn outside(shape: Shape, [x, y]: [f32; 2], radius: f32) -> f32 {
    let (width, height) = (x.abs(), y.abs());
    match shape {
        Shape::Disk => (x * x + y * y).sqrt() - 0.95 * radius,
        Shape::Square => width.max(height) - 0.88 * radius,
        // Equilateral, apex up: three half-planes at the distance of the inscribed circle.
        Shape::Triangle => {
            let slanted = width * 0.866_025_4 - y * 0.5;
            slanted.max(y) - 0.55 * radius
        }
        Shape::Cross => {
            let (long, short) = (width.max(height), width.min(height));
            (long - radius).max(short - 0.32 * radius)
        }
    }
}

/// The share of the figure's second colour, 0..=1.
fn texture(scene: &Scene, point: [f32; 2]) -> f32 {
    let [x, y] = point;
    let [cos, sin] = scene.grain;
    let along = || square_wave(x * cos + y * sin, scene.period, scene.phase[0]);
    let across = || square_wave(y * cos - x * sin, scene.period, scene.phase[1]);
    match scene.texture {
        Texture::Solid => 0.0,
        Texture::Stripes => along(),
        Texture::Checker => {
            let (a, b) = (along(), across());
            a * (1.0 - b) + b * (1.0 - a)
        }
    }
}

/// A wave between 0 and 1 whose edges are one pixel wide.
fn square_wave(position: f32, period: f32, phase: f32) -> f32 {
    (triangle_wave(position / period + phase) * period + 0.5).clamp(0.0, 1.0)
}

/// A wave of period 1 between -¼ and ¼ with slopes of ±1.
fn triangle_wave(position: f32) -> f32 {
    (position - position.floor() - 0.5).abs() - 0.25
}

/// What the background adds to its colour at a point.
fn background_shade(scene: &Scene, [x, y]: [f32; 2], size: f32) -> f32 {
    let (height, [waves_x, waves_y]) = scene.ripple;
    let gradient = scene.gradient[0] * (x / size - 0.5) + scene.gradient[1] * (y / size - 0.5);
    gradient + 4.0 * height * triangle_wave(x * waves_x + y * waves_y)
}
