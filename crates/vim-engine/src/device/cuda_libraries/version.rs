//! Versions of CUDA: which of them a driver runs, and what to install for it.

use std::fmt;

/// A version of CUDA, of its first two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudaVersion {
    /// The first number.
    pub major: u32,
    /// The second one; 0 where it is not known.
    pub minor: u32,
}

impl CudaVersion {
    const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// The version in a text such as `12.4.127`.
    pub fn of(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(str::parse);
        let major = numbers.next()?.ok()?;
        let minor = numbers.next().unwrap_or(Ok(0)).ok()?;
        Some(Self { major, minor })
    }

    /// The version that `cuda.h` and the driver write as one number, such as 12040.
    pub(super) const fn of_number(number: u32) -> Self {
        Self::new(number / 1000, number % 1000 / 10)
    }

    /// Whether a driver of this version loads what `nvrtc` compiles. CubeCL passes on PTX, of
    /// which a driver loads its own version and older ones: NVIDIA's compatibility of all versions
    /// with one major number is that of machine code alone.
    ///
    /// # Source
    ///
    /// CUDA Compatibility, "Minor Version Compatibility"; PTX ISA, "Release History": 12.5 and
    /// 12.6 write the same PTX, 8.5.
    pub fn loads(self, nvrtc: Self) -> bool {
        nvrtc <= self || (self == Self::new(12, 5) && nvrtc == Self::new(12, 6))
    }

    /// What to pass to `pip install` for a driver of this version; none for one that runs no
    /// CUDA 12.
    pub fn wheels(self) -> Option<String> {
        let release = RELEASES.into_iter().find(|release| *release <= self)?;
        let names = if release.major == 12 { WHEELS_12 } else { WHEELS_13 };
        Some(names.map(|name| format!("'{name}=={release}.*'")).join(" "))
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// The releases whose wheels are advised, the newest first: of every driver from 525 on one is old
/// enough, and knows the GPUs that are as old as that driver (12.8 is the first with Blackwell,
/// 13.0 no longer has Volta).
const RELEASES: [CudaVersion; 4] = [
    CudaVersion::new(13, 0),
    CudaVersion::new(12, 8),
    CudaVersion::new(12, 4),
    CudaVersion::new(12, 0),
];

/// The wheels of CUDA 12 with NVRTC and the headers that kernels include.
const WHEELS_12: [&str; 4] = [
    "nvidia-cuda-nvrtc-cu12",
    "nvidia-cuda-runtime-cu12",
    "nvidia-cuda-cccl-cu12",
    "nvidia-cuda-nvcc-cu12",
];

/// Those of CUDA 13.
const WHEELS_13: [&str; 4] =
    ["nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-cccl", "nvidia-cuda-crt"];

/// The first driver for each version of CUDA.
///
/// # Source
///
/// CUDA Toolkit Release Notes, "CUDA Toolkit and Corresponding Driver Versions".
const DRIVERS: [(u32, CudaVersion); 20] = [
    (580, CudaVersion::new(13, 0)),
    (575, CudaVersion::new(12, 9)),
    (570, CudaVersion::new(12, 8)),
    (565, CudaVersion::new(12, 7)),
    (560, CudaVersion::new(12, 6)),
    (555, CudaVersion::new(12, 5)),
    (550, CudaVersion::new(12, 4)),
    (545, CudaVersion::new(12, 3)),
    (535, CudaVersion::new(12, 2)),
    (530, CudaVersion::new(12, 1)),
    (525, CudaVersion::new(12, 0)),
    (520, CudaVersion::new(11, 8)),
    (515, CudaVersion::new(11, 7)),
    (510, CudaVersion::new(11, 6)),
    (495, CudaVersion::new(11, 5)),
    (470, CudaVersion::new(11, 4)),
    (465, CudaVersion::new(11, 3)),
    (460, CudaVersion::new(11, 2)),
    (455, CudaVersion::new(11, 1)),
    (450, CudaVersion::new(11, 0)),
];

/// The first driver that runs a CUDA newer than those of [`DRIVERS`].
const NEXT_DRIVER: u32 = 590;

/// The newest CUDA that a driver of this version runs; none if it is newer than the table, when
/// its library alone knows.
pub fn newest_cuda(driver: &str) -> Option<CudaVersion> {
    let branch = driver.split('.').next()?.parse::<u32>().ok();
    let driver = branch.filter(|driver| *driver < NEXT_DRIVER)?;
    DRIVERS.iter().find(|(oldest, _)| driver >= *oldest).map(|(_, cuda)| *cuda)
}

/// How to install libraries for a driver that runs `newest`; for one of 580 or newer where that is
/// not known.
pub(crate) fn remedy(newest: Option<CudaVersion>) -> String {
    let toolkit = newest.map_or_else(
        || "the toolkit".to_owned(),
        |newest| format!("a toolkit of CUDA {newest} or older"),
    );
    let wheels = newest.unwrap_or(RELEASES[0]).wheels().map_or_else(String::new, |wheels| {
        format!(", or `pip install {wheels}` and set VIM_CUDA_WHEELS to that environment")
    });
    format!("load {toolkit} (`module load cuda`){wheels} (docs/install.md)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> CudaVersion {
        CudaVersion::of(text).unwrap()
    }

    #[test]
    fn versions_are_read_and_written() {
        for (text, written) in
            [("12.4.127", "12.4"), ("13.0", "13.0"), ("13", "13.0"), ("11.2", "11.2")]
        {
            assert_eq!(version(text).to_string(), written);
        }
        assert_eq!([CudaVersion::of(""), CudaVersion::of("12.x")], [None, None]);
        assert_eq!(CudaVersion::of_number(12040), version("12.4"));
        assert!(version("12.10") > version("12.9"), "numbers, not texts");
    }

    #[test]
    fn a_driver_loads_its_own_ptx_and_older() {
        for (driver, nvrtc, loads) in [
            ("13.0", "13.0.88", true),
            ("13.0", "13.5.37", false),
            ("13.0", "12.9.86", true),
            ("12.8", "12.9.86", false),
            ("12.8", "13.0", false),
            // PTX 8.5 of both.
            ("12.5", "12.6.85", true),
            ("12.4", "12.6.85", false),
            ("12.5", "12.8.93", false),
        ] {
            assert_eq!(version(driver).loads(version(nvrtc)), loads, "{driver} {nvrtc}");
        }
    }

    #[test]
    fn what_drivers_run() {
        for (driver, cuda) in [
            ("450.80.02", Some("11.0")),
            ("525.60.13", Some("12.0")),
            ("535.183.01", Some("12.2")),
            ("570.124.06", Some("12.8")),
            ("580.159", Some("13.0")),
            ("589.1", Some("13.0")),
            ("590.44.01", None),
            ("440.33", None),
            ("", None),
        ] {
            assert_eq!(newest_cuda(driver), cuda.map(version), "{driver}");
        }
    }

    #[test]
    fn what_is_advised_is_loaded_by_the_driver_and_can_be_installed() {
        for (_, driver) in DRIVERS {
            let Some(wheels) = driver.wheels() else {
                assert!(driver < version("12.0"), "{driver}");
                continue;
            };
            let pin = wheels.split("==").nth(1).and_then(|rest| rest.split(".*").next()).unwrap();
            assert!(driver.loads(version(pin)), "{driver}: {wheels}");
            assert_eq!(wheels.matches(&format!("=={pin}.*'")).count(), 4, "{wheels}");
            assert_eq!(wheels.contains("-cu12"), pin.starts_with("12."), "{wheels}");
        }
        for (newest, pin) in
            [("13.5", "13.0"), ("12.9", "12.8"), ("12.7", "12.4"), ("12.3", "12.0")]
        {
            let wheels = version(newest).wheels().unwrap();
            assert!(wheels.contains(&format!("=={pin}.*")), "{newest}: {wheels}");
        }
    }

    #[test]
    fn an_old_driver_is_advised_a_toolkit_alone() {
        let old = remedy(newest_cuda("470.57"));
        assert_eq!(
            old,
            "load a toolkit of CUDA 11.4 or older (`module load cuda`) (docs/install.md)"
        );
        let unknown = remedy(None);
        assert!(unknown.starts_with("load the toolkit (`module load cuda`), or `pip install "));
        assert!(unknown.contains("'nvidia-cuda-nvrtc==13.0.*'"), "{unknown}");
    }
}
