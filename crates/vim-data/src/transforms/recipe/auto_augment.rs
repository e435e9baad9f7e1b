//! `augment.auto_augment`: RandAugment in timm's notation.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

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
pub(super) const WEIGHTED: u32 = 13;

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
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
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
