//! What looking inside an image file has shown.

use serde::{Deserialize, Serialize};

use crate::decode::Header;

/// What is known of an image once its file has been decoded; see [`verify`](crate::verify).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Size and format; `None` if not even those can be told.
    pub header: Option<Header>,
    /// What decoding said.
    pub verdict: Verdict,
}

/// Whether an image can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Decoded.
    Good,
    /// Decoded, with a warning.
    Warned(String),
    /// Not decoded.
    Bad(String),
}
