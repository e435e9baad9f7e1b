//! Arguments that several commands share.

use clap::Args;

/// Values over those of the configuration file.
#[derive(Debug, Default, Args)]
pub struct Overrides {
    /// Set a key over the file, as in `--set optim.lr=5e-4`; may be repeated, the last one counts.
    ///
    /// VALUE is TOML; what is not TOML is taken as text, so that `--set data.path=/scratch/x` needs
    /// no quotes.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Parses an integer of at least 1.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("`{text}` is not a number from 1")),
        Ok(number) => Ok(number),
    }
}
