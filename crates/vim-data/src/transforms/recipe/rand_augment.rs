//! `augment.auto_augment`: RandAugment in timm's notation; which operations, and how strong.

use std::{borrow::Cow, fmt, str::FromStr};

use rand_chacha::ChaCha8Rng;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::{rng, transforms::Op};

/// The value of `augment.auto_augment`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum AutoAugment {
    /// `""`.
    #[default]
    Off,
    /// `"rand-…"`.
    Rand(RandAugment),
}

/// RandAugment: some operations chosen at random, each applied with probability ½, all of one
/// magnitude.
///
/// # Source
/// Cubuk et al. 2019, "RandAugment", as timm 0.4.12 has it (`rand_augment_transform`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandAugment {
    /// Mean of the magnitude, of 10; a larger one counts as 10.
    pub magnitude: u32,
    /// Standard deviation of the magnitude, drawn for each operation; magnitudes stay in 0..=10.
    pub deviation: f64,
    /// Operations chosen per image; on average half of them are applied.
    pub operations: u32,
    /// Whether posterize, solarize and the blends grow stronger with the magnitude, as the others
    /// do.
    pub increasing: bool,
    /// Whether operations are chosen by timm's weights `w0`, without repetition, instead of evenly
    /// with it.
    pub weighted: bool,
}

/// Operations with a weight above 0: the most that can be chosen without repetition.
const WEIGHTED: u32 = 13;

/// The error text for a value that cannot be parsed.
const KNOWN: &str = "expected \"\", or \"rand\" followed by any of -mN (magnitude of 10), -mstdX \
     (its deviation), -nN (operations, 1 to 100), -inc1 (stronger with magnitude) and -w0 \
     (weighted; then n is at most 13), each once, as in \"rand-m9-mstd0.5-inc1\"";

impl FromStr for AutoAugment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::Off);
        }
        RandAugment::parse(text)
            .map(Self::Rand)
            .map_err(|part| format!("`{part}` of `{text}` is not known: {KNOWN}"))
    }
}

impl RandAugment {
    /// `rand-m9-mstd0.5-inc1`, the original's.
    pub const DEIT: Self =
        Self { magnitude: 9, deviation: 0.5, operations: 2, increasing: true, weighted: false };

    /// Reads timm's notation; the error is the part that cannot be read.
    ///
    /// timm ignores a part without a digit, which is refused here, and takes `inc0` for `inc1`,
    /// which is kept.
    fn parse(text: &str) -> Result<Self, &str> {
        let mut parts = text.split('-');
        let mut rand = Self {
            magnitude: 10,
            deviation: 0.0,
            operations: 2,
            increasing: false,
            weighted: false,
        };
        match parts.next() {
            Some("rand") => {}
            first => return Err(first.unwrap_or(text)),
        }
        let mut seen = Vec::new();
        for part in parts {
            let digits = part.find(|letter: char| letter.is_ascii_digit()).ok_or(part)?;
            let (key, value) = part.split_at(digits);
            if seen.contains(&key) {
                return Err(part);
            }
            seen.push(key);
            let whole = || value.parse::<u32>().map_err(|_| part);
            match key {
                "m" => rand.magnitude = whole()?,
                "n" => rand.operations = whole()?,
                "mstd" => rand.deviation = value.parse().map_err(|_| part)?,
                "inc" => rand.increasing = whole().map(|_| true)?,
                "w" if whole()? == 0 => rand.weighted = true,
                _ => return Err(part),
            }
            if !((1..=100).contains(&rand.operations) && rand.deviation.is_finite()) {
                return Err(part);
            }
        }
        if rand.weighted && rand.operations > WEIGHTED {
            return Err(text);
        }
        Ok(rand)
    }
}

impl fmt::Display for RandAugment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "rand-m{}", self.magnitude)?;
        if self.operations != 2 {
            write!(formatter, "-n{}", self.operations)?;
        }
        if self.deviation > 0.0 {
            write!(formatter, "-mstd{}", self.deviation)?;
        }
        if self.increasing {
            formatter.write_str("-inc1")?;
        }
        if self.weighted {
            formatter.write_str("-w0")?;
        }
        Ok(())
    }
}

impl fmt::Display for AutoAugment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => Ok(()),
            Self::Rand(rand) => rand.fmt(formatter),
        }
    }
}

impl Serialize for AutoAugment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AutoAugment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(Error::custom)
    }
}

impl JsonSchema for AutoAugment {
    fn schema_name() -> Cow<'static, str> {
        "AutoAugment".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let description = "RandAugment in timm's notation, or nothing.";
        json_schema!({ "type": "string", "description": description })
    }
}

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

    #[test]
    fn weights_are_whole_and_as_many_as_said() {
        assert_eq!(KINDS.iter().map(|(_, weight)| weight).sum::<u32>(), 1000);
        assert_eq!(KINDS.iter().filter(|(_, weight)| *weight > 0).count() as u32, WEIGHTED);
    }
}
