//! How a flag names a device.

use std::fmt;
use std::str::FromStr;

use crate::config::{Backend, Gpus};

/// A device as a flag names it: `auto`, `cpu`, `cuda`, `cuda:1`, `wgpu`, `wgpu:0`, `tch`, `tch:0`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceName {
    /// The backend.
    pub backend: Backend,
    /// The GPU's number; if absent the first GPU, or LibTorch on the processor.
    pub number: Option<usize>,
}

impl DeviceName {
    /// The value of `devices.gpus` that it stands for.
    pub fn gpus(&self) -> Gpus {
        self.number.map_or_else(Gpus::default, |number| Gpus::List(vec![number]))
    }
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is none of auto, cpu, cuda, cuda:N, wgpu, wgpu:N, tch, tch:N");
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => (name, Some(number.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let backend: Backend = name.parse().map_err(|_| wrong())?;
        let numbered = matches!(backend, Backend::Cuda | Backend::Wgpu | Backend::Tch);
        if number.is_some() && !numbered { Err(wrong()) } else { Ok(Self { backend, number }) }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            Some(number) => write!(formatter, "{}:{number}", self.backend),
            None => write!(formatter, "{}", self.backend),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices() {
        for (text, backend, number) in [
            ("auto", Backend::Auto, None),
            ("cpu", Backend::Cpu, None),
            ("cuda", Backend::Cuda, None),
            ("cuda:3", Backend::Cuda, Some(3)),
            ("wgpu:0", Backend::Wgpu, Some(0)),
            ("tch", Backend::Tch, None),
            ("tch:1", Backend::Tch, Some(1)),
        ] {
            let name: DeviceName = text.parse().unwrap_or_default();
            assert_eq!(name, DeviceName { backend, number });
            assert_eq!(name.to_string(), text);
        }
        for text in ["", "gpu", "cpu:0", "auto:1", "cuda:", "cuda:-1", "CUDA"] {
            assert!(text.parse::<DeviceName>().is_err(), "{text}");
        }
    }
}
