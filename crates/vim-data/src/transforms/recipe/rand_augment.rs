//! RandAugment: which operations, and how strong.

use rand_chacha::ChaCha8Rng;

use super::auto_augment::RandAugment;
use crate::{rng, transforms::ops::Op};

/// The largest magnitude.
const MOST: f64 = 10.0;

/// The operations, by the part of the recipe that they are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    AutoContrast,
    Equalize,
    Invert,
    Rotate,
    Posterize,
    Solarize,
    SolarizeAdd,
    Color,
    Contrast,
    Brightness,
    Sharpness,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
}

/// Every operation with its weight in timm's set `w0`, as thousandths.
const KINDS: [(Kind, u32); 15] = [
    (Kind::AutoContrast, 25),
    (Kind::Equalize, 5),
    (Kind::Invert, 0),
    (Kind::Rotate, 300),
    (Kind::Posterize, 0),
    (Kind::Solarize, 5),
    (Kind::SolarizeAdd, 5),
    (Kind::Color, 25),
    (Kind::Contrast, 5),
    (Kind::Brightness, 5),
    (Kind::Sharpness, 25),
    (Kind::ShearX, 200),
    (Kind::ShearY, 200),
    (Kind::TranslateX, 100),
    (Kind::TranslateY, 100),
];

impl RandAugment {
    /// Draws the operations for an image of `size` (height, width), in the order that they are
    /// applied.
    pub(super) fn draw(&self, rng: &mut ChaCha8Rng, size: [usize; 2]) -> Vec<Op> {
        let chosen = self.choose(rng);
        let mut applied = Vec::with_capacity(chosen.len());
        for kind in chosen {
            if !rng::chance(rng, 0.5) {
                continue;
            }
            let mean = f64::from(self.magnitude);
            let magnitude =
                if self.deviation > 0.0 { rng::normal(rng, mean, self.deviation) } else { mean };
            let level = magnitude.clamp(0.0, MOST) / MOST;
            applied.push(self.operation(kind, level, rng, size));
        }
        applied
    }

    fn choose(&self, rng: &mut ChaCha8Rng) -> Vec<Kind> {
        let mut left = KINDS;
        let mut choose_one = |rng: &mut ChaCha8Rng| {
            if !self.weighted {
                return KINDS[rng::below(rng, KINDS.len() as u32) as usize].0;
            }
            let total = left.iter().map(|(_, weight)| weight).sum();
            let mut place = rng::below(rng, total);
            for (kind, weight) in &mut left {
                if place < *weight {
                    *weight = 0;
                    return *kind;
                }
                place -= *weight;
            }
            unreachable!("invariant: the place is below the sum of the weights")
        };
        (0..self.operations).map(|_| choose_one(rng)).collect()
    }

    /// The operation of a kind at `level`, 0 to 1.
    fn operation(
        &self,
        kind: Kind,
        level: f64,
        rng: &mut ChaCha8Rng,
        [height, width]: [usize; 2],
    ) -> Op {
        let mut either_sign = |value: f64| if rng::chance(rng, 0.5) { -value } else { value };
        let mut factor = || {
            if self.increasing { 1.0 + either_sign(level * 0.9) } else { level * 1.8 + 0.1 }
        };
        let bits = (level * 4.0) as u8;
        let threshold = (level * 256.0) as u16;
        match kind {
            Kind::AutoContrast => Op::AutoContrast,
            Kind::Equalize => Op::Equalize,
            Kind::Invert => Op::Invert,
            Kind::Posterize => {
                Op::Posterize { bits: if self.increasing { 4 - bits } else { bits } }
            }
            Kind::Solarize => Op::Solarize {
                threshold: if self.increasing { 256 - threshold } else { threshold },
            },
            Kind::SolarizeAdd => Op::SolarizeAdd { add: (level * 110.0) as u8 },
            Kind::Color => Op::Color { factor: factor() },
            Kind::Contrast => Op::Contrast { factor: factor() },
            Kind::Brightness => Op::Brightness { factor: factor() },
            Kind::Sharpness => Op::Sharpness { factor: factor() },
            Kind::Rotate => Op::Rotate { degrees: either_sign(level * 30.0) },
            Kind::ShearX => Op::ShearX { factor: either_sign(level * 0.3) },
            Kind::ShearY => Op::ShearY { factor: either_sign(level * 0.3) },
            Kind::TranslateX => Op::TranslateX { pixels: either_sign(level * 0.45) * width as f64 },
            Kind::TranslateY => {
                Op::TranslateY { pixels: either_sign(level * 0.45) * height as f64 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transforms::recipe::auto_augment::WEIGHTED;

    #[test]
    fn weights_are_whole_and_as_many_as_said() {
        assert_eq!(KINDS.iter().map(|(_, weight)| weight).sum::<u32>(), 1000);
        assert_eq!(KINDS.iter().filter(|(_, weight)| *weight > 0).count() as u32, WEIGHTED);
    }
}
