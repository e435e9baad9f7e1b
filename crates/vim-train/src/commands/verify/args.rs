//! The command line of `verify`.

use std::fmt;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use strum::VariantArray;
use vim_kernels::Discretization;
use vim_verify::Dtype;

use crate::device::DeviceName;

const EXAMPLES: &str = "\
Examples:
  vim-train verify                                  the first device of cuda, wgpu, cpu
  vim-train verify --device cpu --quick             a few seconds, after a build
  vim-train verify --device cuda:0 --json > verify.json
  vim-train verify --methods zoh,foh --dtype f32
  vim-train verify --shard 2/4                      the second quarter, for four jobs at once

Every operation runs on the device and is compared with loops in f64 over the same inputs. An error is
the largest (or the mean) difference over the largest magnitude in the f64 array; docs/verify.md says
what is checked, to which tolerance and why. With --json, stdout is one document and nothing else; an
error that is not a number is null there.

The first run on a GPU compiles every kernel, a second or two each: many minutes for all checks, a few
with --quick, which there takes few distinct kernels. --shard splits them over jobs.

Exit codes: 0 all checks passed, 1 a check failed, 2 bad command line, 69 no such device or the device
does not compute in --dtype.";

/// `vim-train verify`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct VerifyArgs {
    /// What to check on: auto, cpu, cuda, cuda:N, wgpu, wgpu:N, tch or tch:N.
    ///
    /// `auto` is the first present of cuda, wgpu on a real GPU, and cpu. `wgpu` by name also takes
    /// a rasterizer that runs on the processor, such as lavapipe.
    #[arg(long, value_name = "DEVICE", default_value_t)]
    pub device: DeviceName,
    /// Type of the activations; weights, sums and running states are f32 in both.
    ///
    /// `all` leaves out what the device does not compute in, and says so; a type by name is an
    /// error there.
    #[arg(long, value_enum, default_value_t)]
    pub dtype: DtypeChoice,
    /// Only these methods, as in zoh,foh; `vim-train methods` lists them.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = method)]
    pub methods: Vec<Discretization>,
    /// Fewer and smaller shapes, and on a GPU fewer distinct kernels.
    #[arg(long)]
    pub quick: bool,
    /// Run the I-th of N parts of the checks; the N parts together are all of them, each once.
    #[arg(long, value_name = "I/N", default_value_t)]
    pub shard: Shard,
    /// Factor on every tolerance: below 1 is stricter than documented.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = positive)]
    pub tolerance: f64,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Which types to check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DtypeChoice {
    /// Single precision.
    F32,
    /// The brain float.
    Bf16,
    /// All that the device computes in.
    #[default]
    All,
}

impl DtypeChoice {
    /// The selected types.
    pub fn dtypes(self) -> &'static [Dtype] {
        match self {
            Self::F32 => &[Dtype::F32],
            Self::Bf16 => &[Dtype::Bf16],
            Self::All => Dtype::VARIANTS,
        }
    }
}

/// Part `index` of `count` of a list, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: usize,
    count: usize,
}

impl Default for Shard {
    fn default() -> Self {
        Self { index: 1, count: 1 }
    }
}

impl Shard {
    /// Every `count`-th item in order: neighbours take similar time and are spread over the parts.
    pub fn of<T>(self, items: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
        items.into_iter().skip(self.index - 1).step_by(self.count)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(index, count)| {
            Some(Self { index: index.parse().ok()?, count: count.parse().ok()? })
        });
        parts
            .filter(|shard| (1..=shard.count).contains(&shard.index))
            .ok_or_else(|| format!("`{text}` is no part such as 1/4, from 1/N to N/N"))
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.index, self.count)
    }
}

/// Parses a method's name.
pub(crate) fn method(name: &str) -> Result<Discretization, String> {
    let all = Discretization::VARIANTS;
    all.iter().copied().find(|method| method.to_string() == name).ok_or_else(|| {
        let names: Vec<String> = all.iter().map(ToString::to_string).collect();
        format!("the methods are {}", names.join(", "))
    })
}

/// The selected methods in the order of definition, without duplicates; all if none is named.
pub(crate) fn methods(asked: &[Discretization]) -> Vec<Discretization> {
    let wanted = |method: &&Discretization| asked.is_empty() || asked.contains(method);
    Discretization::VARIANTS.iter().filter(wanted).copied().collect()
}

fn positive(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if factor > 0.0 && factor.is_finite() { Ok(factor) } else { Err("must be above 0".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_disjoint_and_complete() {
        for total in [0, 1, 5, 24, 61] {
            for count in 1..=7 {
                let mut seen = vec![0; total];
                for index in 1..=count {
                    for item in (Shard { index, count }).of(0..total) {
                        seen[item] += 1;
                    }
                }
                assert!(seen.iter().all(|&times| times == 1), "{total} over {count}: {seen:?}");
            }
        }
    }

    #[test]
    fn what_is_no_shard() {
        assert_eq!("2/4".parse(), Ok(Shard { index: 2, count: 4 }));
        for text in ["", "1", "0/2", "3/2", "1/0", "-1/2", "a/b", "1/2/3"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }

    #[test]
    fn methods_come_once_and_in_order() {
        use Discretization::{Rk4, Zoh};
        assert_eq!(methods(&[Rk4, Zoh, Rk4]), [Zoh, Rk4]);
        assert_eq!(methods(&[]), Discretization::VARIANTS);
        assert!(method("euler").is_err_and(|text| text.contains("zoh, foh")));
    }
}
