//! Drawing colour jitter, and DeiT III's choice of one of three operations.

use rand_chacha::ChaCha8Rng;

use crate::rng;
use crate::transforms::ops::Op;

/// Brightness, contrast and saturation changed by up to `most`, as a share, in any order.
///
/// # Source
/// torchvision's `ColorJitter(most, most, most)`: three factors, uniform around 1, in a random order.
pub(super) fn color_jitter(rng: &mut ChaCha8Rng, most: f64) -> [Op; 3] {
    let mut factor = || rng::between(rng, [1.0 - most, 1.0 + most]);
    let mut ops = [
        Op::Brightness { factor: factor() },
        Op::Contrast { factor: factor() },
        Op::Color { factor: factor() },
    ];
    rng::shuffle(rng, &mut ops);
    ops
}

/// One of grayscale, solarize and blur, as likely.
///
/// # Source
/// Touvron et al. 2022, "DeiT III", §3; the original's `augment.py`: solarize from 128 on, Pillow's
/// `GaussianBlur` of radius 0.1 to 2.
pub(super) fn one_of_three(rng: &mut ChaCha8Rng) -> Op {
    match rng::below(rng, 3) {
        0 => Op::Grayscale,
        1 => Op::Solarize { threshold: 128 },
        _ => Op::Blur { radius: rng::between(rng, [0.1, 2.0]) },
    }
}
