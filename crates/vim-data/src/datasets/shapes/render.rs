//! From a scene to pixels.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

use super::scene::{Scene, Shape, Texture};

/// Draws `scene`, anti-aliased, with its noise from `rng`.
///
/// # Shapes
/// `pixels` is `[size, size, 3]`.
pub(super) fn render(scene: &Scene, rng: &mut ChaCha8Rng, size: usize, pixels: &mut [u8]) {
    assert_eq!(pixels.len(), 3 * size * size, "the target is not [{size}, {size}, 3]");
    let mut noise = vec![0; 2 * pixels.len()];
    rng.fill_bytes(&mut noise);
    // The sum of two uniform bytes has this standard deviation.
    let noise_scale = scene.noise / 104.5;

    let values = pixels.chunks_exact_mut(3).zip(noise.chunks_exact(6));
    for (at, (pixel, noise)) in values.enumerate() {
        let point = [(at % size) as f32 + 0.5, (at / size) as f32 + 0.5];
        let covered = coverage(scene, point);
        let mix = texture(scene, point);
        let shade = background_shade(scene, point, size as f32);
        for (channel, value) in pixel.iter_mut().enumerate() {
            let figure = scene.figure[channel] * (1.0 - mix) + scene.second[channel] * mix;
            let background = scene.background[channel] + shade;
            let grain = f32::from(noise[2 * channel]) + f32::from(noise[2 * channel + 1]) - 255.0;
            let exact = background * (1.0 - covered) + figure * covered + grain * noise_scale;
            *value = (exact * 255.0 + 0.5) as u8; // saturates
        }
    }
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
