//! Resources that a job can request, as values of a configuration.

use std::fmt;

use crate::text_form::{TextForm, as_text, number};

/// GPUs of a node: `"h100:4"`, or `4` of any kind. The `gpu:` that `--gres` has before either is
/// left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuRequest {
    /// The kind, as the cluster calls it.
    pub kind: Option<String>,
    /// How many.
    pub count: u32,
}

impl TextForm for GpuRequest {
    const EXPECTED: &'static str = "GPUs such as \"h100:4\" or 4";

    fn of_text(text: &str) -> Option<Self> {
        let text = text.strip_prefix("gpu:").unwrap_or(text);
        let Some((kind, count)) = text.rsplit_once(':') else {
            return Some(Self { kind: None, count: text.parse().ok()? });
        };
        let count = count.parse().ok()?;
        is_gpu_kind(kind).then_some(Self { kind: Some(kind.to_owned()), count })
    }
}

/// Whether `word` can be a kind of GPU. `gpu` is the resource itself, and no kind of it.
pub(crate) fn is_gpu_kind(word: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !word.is_empty() && word.chars().all(is_name) && !word.eq_ignore_ascii_case("gpu")
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

    fn of_text(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            count => count.parse().ok().filter(|count| *count > 0).map(Self::Count),
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

    fn of_text(text: &str) -> Option<Self> {
        let letter = text.chars().last().filter(char::is_ascii_alphabetic);
        let digits = letter.map_or(text, |_| &text[..text.len() - 1]);
        let unit = letter.map_or('M', |letter| letter.to_ascii_uppercase());
        "KMGT".contains(unit).then_some(Self { number: number(digits)?, unit })
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

    fn of_text(text: &str) -> Option<Self> {
        let (name, seconds) = text.split_once('@')?;
        let name = name.strip_prefix("SIG").unwrap_or(name);
        let signal = SIGNALS.into_iter().find(|known| *known == name)?;
        // SLURM accepts at most 65535.
        let seconds = seconds.parse::<u16>().ok().filter(|seconds| *seconds > 0)?;
        Some(Self { signal, seconds: seconds.into() })
    }
}

impl fmt::Display for WarningSignal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}", self.signal, self.seconds)
    }
}

as_text!(WarningSignal, { "type": "string" });

/// A time limit, in seconds: `"30"` (minutes), `"30:00"`, `"12:00:00"`, `"1-12"` or `"1-00:00:00"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeLimit {
    /// The limit in seconds.
    pub seconds: u64,
}

impl TimeLimit {
    /// Parses a limit as `sinfo` and `scontrol` print it; `None` if there is none.
    pub fn of_slurm(text: &str) -> Option<Self> {
        // "infinite", "UNLIMITED", "n/a" and "Partition_Limit" do not parse.
        Self::of_text(text)
    }
}

impl TextForm for TimeLimit {
    const EXPECTED: &'static str =
        "a time such as \"12:00:00\" (hours), \"1-00:00:00\" (days) or \"30\" (minutes)";

    fn of_text(text: &str) -> Option<Self> {
        let (days, clock) = match text.split_once('-') {
            Some((days, clock)) => (Some(number(days)?), clock),
            None => (None, text),
        };
        let parts: Vec<u64> = clock.split(':').map(number).collect::<Option<_>>()?;
        // The first number is hours after a day; otherwise it depends on how many there are.
        let (hours, minutes, seconds) = match (days, parts.as_slice()) {
            (None, [minutes]) => (0, *minutes, 0),
            (None, [minutes, seconds]) => (0, *minutes, *seconds),
            (Some(_), [hours]) => (*hours, 0, 0),
            (Some(_), [hours, minutes]) => (*hours, *minutes, 0),
            (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
            _ => return None,
        };
        let seconds = days.unwrap_or(0) * 86_400 + hours * 3600 + minutes * 60 + seconds;
        (seconds > 0).then_some(Self { seconds })
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, hours) = (self.seconds / 86_400, self.seconds / 3600 % 24);
        let (minutes, seconds) = (self.seconds / 60 % 60, self.seconds % 60);
        if days > 0 {
            write!(formatter, "{days}-")?;
        }
        write!(formatter, "{hours:02}:{minutes:02}:{seconds:02}")
    }
}

as_text!(TimeLimit, { "type": "string" });

#[cfg(test)]
mod tests {
    use super::*;

    fn kept<T: TextForm + fmt::Display>(texts: &[(&str, &str)]) {
        for (text, printed) in texts {
            let value = T::parse(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(value.to_string(), *printed);
        }
    }

    fn refused<T: TextForm>(texts: &[&str]) {
        for text in texts {
            let error = T::parse(text).err().unwrap_or_else(|| panic!("{text} was taken"));
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
            ("gpu:2", "2"),
            ("gpu:h100:2", "h100:2"),
        ]);
        for text in ["h100", ":2", "h100:", "h100:-1", "h 100:2", "gpu", "gpu:h100", "gpu:gpu:2"] {
            refused::<GpuRequest>(&[text]);
        }
        refused::<GpuRequest>(&["GPU:2", "gres:gpu:2", "gpu::2"]);
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

    #[test]
    fn the_forms_of_sbatch() {
        for (text, seconds, printed) in [
            ("30", 1800, "00:30:00"),
            ("90:30", 5430, "01:30:30"),
            ("12:00:00", 43_200, "12:00:00"),
            ("1-12", 129_600, "1-12:00:00"),
            ("2-01:30", 178_200, "2-01:30:00"),
            ("1-00:00:00", 86_400, "1-00:00:00"),
            ("36:00:00", 129_600, "1-12:00:00"),
        ] {
            let time: TimeLimit = text.parse().unwrap();
            assert_eq!((time.seconds, time.to_string().as_str()), (seconds, printed), "{text}");
            assert_eq!(printed.parse::<TimeLimit>().unwrap(), time);
        }
    }

    #[test]
    fn everything_else_is_told_the_forms() {
        for text in ["", "0", "12h", "1:2:3:4", "-1", "1-", "1.5", "infinite", "9999999999"] {
            let message = text.parse::<TimeLimit>().unwrap_err();
            assert!(message.contains("12:00:00"), "{message}");
        }
        assert_eq!(TimeLimit::of_slurm("infinite"), None);
        assert_eq!(TimeLimit::of_slurm("10:00").unwrap().seconds, 600);
    }

    #[test]
    fn toml_may_leave_the_quotes_out() {
        #[derive(serde::Deserialize, serde::Serialize)]
        struct Section {
            time: TimeLimit,
        }
        for written in ["12:00:00", "\"12:00:00\"", "720"] {
            let section: Section = toml::from_str(&format!("time = {written}")).unwrap();
            assert_eq!(section.time.seconds, 43_200, "{written}");
            assert_eq!(toml::to_string(&section).unwrap(), "time = \"12:00:00\"\n");
        }
        let error = toml::from_str::<Section>("time = true").err().unwrap().to_string();
        assert!(error.contains("expected a time such as"), "{error}");
    }
}
