//! Resources that a job can request, as values of a configuration.

use std::fmt;
use std::str::FromStr;

use crate::text_form::{TextForm, as_text};

/// GPUs of a node: `"h100:4"`, or `4` of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuRequest {
    /// The kind, as the cluster calls it.
    pub kind: Option<String>,
    /// How many.
    pub count: u32,
}

impl TextForm for GpuRequest {
    const EXPECTED: &'static str = "GPUs such as \"h100:4\" or 4";
}

impl FromStr for GpuRequest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not {}", Self::EXPECTED);
        let (kind, count) = match text.rsplit_once(':') {
            Some((kind, count)) => (Some(kind), count),
            None => (None, text),
        };
        if kind.is_some_and(|kind| kind.is_empty() || !kind.chars().all(is_name)) {
            return Err(wrong());
        }
        let count = count.parse().map_err(|_| wrong())?;
        Ok(Self { kind: kind.map(str::to_owned), count })
    }
}

/// Characters in the names of GPU kinds.
fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_.".contains(character)
}

impl fmt::Display for GpuRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(kind) = &self.kind {
            write!(formatter, "{kind}:")?;
        }
        write!(formatter, "{}", self.count)
    }
}

as_text!(GpuRequest, { "oneOf": [{ "type": "string" }, { "type": "integer", "minimum": 0 }] });

/// CPU cores of the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cpus {
    /// The site's cores per GPU, times the GPUs.
    #[default]
    Auto,
    /// This many.
    Count(u32),
}

impl TextForm for Cpus {
    const EXPECTED: &'static str = "\"auto\" or a number of cores, 1 or more";
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "auto" => Ok(Self::Auto),
            Ok(count) if count > 0 => Ok(Self::Count(count)),
            Ok(_) | Err(_) => Err(format!("`{text}` is not {}", Self::EXPECTED)),
        }
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => formatter.write_str("auto"),
            Self::Count(count) => write!(formatter, "{count}"),
        }
    }
}

as_text!(Cpus, { "oneOf": [{ "const": "auto" }, { "type": "integer", "minimum": 1 }] });

/// An amount of memory: `"64G"`, `"500M"`; a bare number is in MiB, and `"0"` is all of the node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    number: u64,
    unit: char,
}

impl Memory {
    /// The amount in MiB, rounded up; 0 is all of the node's.
    pub fn mib(self) -> u64 {
        match self.unit {
            'K' => self.number.div_ceil(1024),
            'G' => self.number * 1024,
            'T' => self.number * 1024 * 1024,
            _ => self.number,
        }
    }
}

impl TextForm for Memory {
    const EXPECTED: &'static str = "an amount of memory such as \"64G\" or \"500M\"";
}

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not {}", Self::EXPECTED);
        let letter = text.chars().last().filter(char::is_ascii_alphabetic);
        let digits = letter.map_or(text, |_| &text[..text.len() - 1]);
        let unit = letter.map_or('M', |letter| letter.to_ascii_uppercase());
        let is_number =
            (1..=9).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
        if !is_number || !"KMGT".contains(unit) {
            return Err(wrong());
        }
        Ok(Self { number: digits.parse().map_err(|_| wrong())?, unit })
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => formatter.write_str("0"),
            number => write!(formatter, "{number}{}", self.unit),
        }
    }
}

as_text!(Memory, { "oneOf": [{ "type": "string" }, { "type": "integer", "minimum": 0 }] });

/// The unit that an amount of memory is for. A site accepts only one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPer {
    /// `--mem`.
    Node,
    /// `--mem-per-cpu`.
    Cpu,
    /// `--mem-per-gpu`.
    Gpu,
}

impl MemoryPer {
    /// The key of `[slurm]`.
    pub fn key(self) -> &'static str {
        match self {
            Self::Node => "mem",
            Self::Cpu => "mem_per_cpu",
            Self::Gpu => "mem_per_gpu",
        }
    }

    /// sbatch's option.
    pub fn option(self) -> &'static str {
        match self {
            Self::Node => "--mem",
            Self::Cpu => "--mem-per-cpu",
            Self::Gpu => "--mem-per-gpu",
        }
    }
}

/// A signal ahead of the time limit: `"USR2@240"`, 240 seconds before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarningSignal {
    signal: &'static str,
    /// Seconds before the limit; SLURM may be a minute early.
    pub seconds: u32,
}

/// Signals at which the trainer saves its state.
const SIGNALS: [&str; 3] = ["USR2", "USR1", "TERM"];

impl Default for WarningSignal {
    fn default() -> Self {
        Self { signal: "USR2", seconds: 240 }
    }
}

impl TextForm for WarningSignal {
    const EXPECTED: &'static str = "a signal and seconds such as \"USR2@240\" (USR2, USR1 or TERM)";
}

impl FromStr for WarningSignal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not {}", Self::EXPECTED);
        let (name, seconds) = text.split_once('@').ok_or_else(wrong)?;
        let name = name.strip_prefix("SIG").unwrap_or(name);
        let signal = SIGNALS.into_iter().find(|known| *known == name).ok_or_else(wrong)?;
        // SLURM accepts at most 65535.
        let seconds = seconds.parse::<u16>().ok().filter(|seconds| *seconds > 0);
        Ok(Self { signal, seconds: seconds.ok_or_else(wrong)?.into() })
    }
}

impl fmt::Display for WarningSignal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}", self.signal, self.seconds)
    }
}

as_text!(WarningSignal, { "type": "string" });

#[cfg(test)]
mod tests {
    use super::*;

    fn kept<T: FromStr<Err = String> + fmt::Display>(texts: &[(&str, &str)]) {
        for (text, printed) in texts {
            let value: T = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(value.to_string(), *printed);
        }
    }

    fn refused<T: TextForm + FromStr<Err = String>>(texts: &[&str]) {
        for text in texts {
            let error = text.parse::<T>().err().unwrap_or_else(|| panic!("{text} was taken"));
            assert_eq!(error, format!("`{text}` is not {}", T::EXPECTED));
        }
    }

    #[test]
    fn gpus() {
        kept::<GpuRequest>(&[
            ("h100:4", "h100:4"),
            ("2", "2"),
            ("0", "0"),
            ("a100_1g.5gb:1", "a100_1g.5gb:1"),
        ]);
        refused::<GpuRequest>(&["h100", ":2", "h100:", "h100:-1", "h 100:2", "gpu:h100:2"]);
    }

    #[test]
    fn cpus() {
        kept::<Cpus>(&[("auto", "auto"), ("12", "12")]);
        refused::<Cpus>(&["0", "all", "-1", ""]);
    }

    #[test]
    fn memory() {
        kept::<Memory>(&[
            ("64G", "64G"),
            ("64g", "64G"),
            ("500", "500M"),
            ("0", "0"),
            ("1T", "1T"),
        ]);
        refused::<Memory>(&["", "G", "64GB", "1.5G", "-1", "64 G", "64X"]);
        for (text, mib) in [("64G", 65_536), ("500", 500), ("1025K", 2), ("2T", 2_097_152)] {
            assert_eq!(text.parse::<Memory>().unwrap().mib(), mib);
        }
    }

    #[test]
    fn warnings() {
        kept::<WarningSignal>(&[("USR2@240", "USR2@240"), ("SIGTERM@60", "TERM@60")]);
        refused::<WarningSignal>(&["USR2", "KILL@60", "USR2@0", "USR2@70000", "B:USR2@60", "@60"]);
    }
}
