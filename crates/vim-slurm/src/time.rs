//! Time limits in SLURM's notation.

use std::fmt;
use std::str::FromStr;

use crate::text_form::{TextForm, as_text};

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
        text.parse().ok()
    }
}

impl TextForm for TimeLimit {
    const EXPECTED: &'static str =
        "a time such as \"12:00:00\" (hours), \"1-00:00:00\" (days) or \"30\" (minutes)";
}

impl FromStr for TimeLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not {}", Self::EXPECTED);
        let number = |part: &str| -> Result<u64, String> {
            let is_number = !part.is_empty() && part.len() <= 9;
            let is_number = is_number && part.bytes().all(|byte| byte.is_ascii_digit());
            if is_number { part.parse().map_err(|_| wrong()) } else { Err(wrong()) }
        };
        let (days, clock) = match text.split_once('-') {
            Some((days, clock)) => (Some(number(days)?), clock),
            None => (None, text),
        };
        let parts: Vec<u64> = clock.split(':').map(number).collect::<Result<_, _>>()?;
        // The first number is hours after a day; otherwise it depends on how many there are.
        let (hours, minutes, seconds) = match (days, parts.as_slice()) {
            (None, [minutes]) => (0, *minutes, 0),
            (None, [minutes, seconds]) => (0, *minutes, *seconds),
            (Some(_), [hours]) => (*hours, 0, 0),
            (Some(_), [hours, minutes]) => (*hours, *minutes, 0),
            (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
            _ => return Err(wrong()),
        };
        let seconds = days.unwrap_or(0) * 86_400 + hours * 3600 + minutes * 60 + seconds;
        if seconds == 0 { Err(wrong()) } else { Ok(Self { seconds }) }
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
