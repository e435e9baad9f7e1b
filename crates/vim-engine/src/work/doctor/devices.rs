//! The program, the devices, and whether their results are correct; NVIDIA's driver and libraries.

use std::fs;

use vim_verify::smoke;

use super::{Context, Finding};
use crate::config::Backend;
use crate::device::cuda_libraries::{
    self, CudaVersion, Libraries, driver_version, newest_of_driver, remedy,
};
use crate::device::machine::Machine;
use crate::device::{self, DeviceName, backends};
use crate::fatal::explain;
use crate::program;

pub(super) fn program(_: &Context) -> Vec<Finding> {
    let backends: Vec<String> = backends().iter().map(ToString::to_string).collect();
    let turbo = if cfg!(feature = "turbo") { "libjpeg-turbo" } else { "JPEG decoder in Rust" };
    let commit = program::commit()
        .and_then(|commit| commit.get(..12))
        .map_or_else(String::new, |commit| format!(" ({commit})"));
    let target = program::TARGET.unwrap_or(std::env::consts::ARCH);
    let detail = format!(
        "vim-train {}{commit} for {target}; backends {}; {turbo}",
        program::VERSION,
        backends.join(", ")
    );
    let unoptimised = cfg!(debug_assertions);
    let detail = if unoptimised { format!("{detail}; unoptimised") } else { detail };
    let advice = "build with --release: this one is for development, and slow";
    vec![Finding::pass("program", detail).warn_if(unoptimised, advice)]
}

/// Lists the backends of this build and whether each works here.
pub(super) fn list(_: &Context) -> Vec<Finding> {
    let finding = |backend: Backend| {
        let what = format!("backend {backend}");
        match device::choose_named(&DeviceName { backend, number: None }) {
            Ok(chosen) => {
                let name = device::hardware(&chosen.device).unwrap_or_else(|| "present".into());
                Finding::pass(what, name)
            }
            // A backend without hardware on this machine is not a fault.
            Err(error) => Finding::pass(what, format!("not here: {error}")),
        }
    };
    device::backends().into_iter().map(finding).collect()
}

pub(super) fn chosen(context: &Context) -> Vec<Finding> {
    match &context.chosen {
        Ok(chosen) => vec![Finding::pass("device", &chosen.name)],
        Err(error) => vec![Finding::fail("device", error.to_string(), "see docs/install.md")],
    }
}

/// Compares every method's scan on the device with loops in f64, on small inputs.
pub(super) fn kernels(context: &Context) -> Vec<Finding> {
    let Ok(chosen) = &context.chosen else { return Vec::new() };
    let finding = |check: smoke::Smoke| {
        let what = format!("scan {}", check.method);
        let detail = format!("{} on {}, {:.1} s", check.implementation, chosen.name, check.seconds);
        match check.failure {
            None => Finding::pass(what, detail),
            Some(failure) => Finding::fail(
                what,
                format!("{detail}: {failure}"),
                format!("see what `vim-train verify --device {}` says", chosen.name),
            ),
        }
    };
    smoke::scans(&chosen.device, !chosen.is_cpu(), explain).map(finding).collect()
}

/// Whether this machine or this build has anything to do with NVIDIA; otherwise nothing is missing.
fn concerns(machine: &Machine) -> bool {
    backends().contains(&Backend::Cuda) || nodes(machine) > 0
}

/// GPUs with device files.
fn nodes(machine: &Machine) -> usize {
    let entries = fs::read_dir(machine.root.join("dev"));
    entries
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("nvidia"));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        })
        .count()
}

/// Checks the kernel driver, its library, and the visible GPUs.
pub(super) fn driver(context: &Context) -> Vec<Finding> {
    let (what, machine) = ("nvidia driver", &context.machine);
    let (version, library, gpus) =
        (driver_version(machine), cuda_libraries::driver(machine), nodes(machine));
    if version.is_none() && library.is_none() {
        return vec![Finding::pass(what, "none: no GPU of NVIDIA here")];
    }
    let library_text = library
        .as_ref()
        .map_or_else(|| "libcuda.so.1 not found".into(), |path| path.display().to_string());
    let version_text = version.clone().unwrap_or_else(|| "not loaded".into());
    let newest =
        newest_of_driver(machine).map_or_else(String::new, |cuda| format!(" (CUDA {cuda})"));
    let visible = machine.text("CUDA_VISIBLE_DEVICES");
    let visible_text =
        visible.map_or_else(String::new, |list| format!(", CUDA_VISIBLE_DEVICES={list}"));
    let detail = format!("{version_text}{newest}, {gpus} GPUs{visible_text}, {library_text}");
    let advice = match (version, library, gpus) {
        (Some(_), None, _) => {
            "the driver's library is missing: start Apptainer with --nv, Docker with --gpus all, or install the driver's user part"
        }
        (None, Some(_), _) => "the driver is not loaded: this is no GPU node, or ask its support",
        (Some(_), Some(_), 0) => "the job has no GPU: ask SLURM for one by --gpus=1",
        _ if !backends().contains(&Backend::Cuda) => {
            "this build does not use them: build it with --features cuda"
        }
        _ => return vec![Finding::pass(what, detail)],
    };
    vec![Finding::warn(what, detail, advice)]
}

/// NVRTC and the headers.
pub(super) fn libraries(context: &Context) -> Vec<Finding> {
    let what = "cuda libraries";
    if !concerns(&context.machine) {
        return vec![Finding::pass(what, "not needed by this build")];
    }
    let asked = asks_for_cuda(context);
    match cuda_libraries::found() {
        Ok(found) => vec![with_driver(found, newest_of_driver(&context.machine))],
        // The error covers both, with the advice.
        Err(error) if asked => vec![Finding::fail(what, error.to_string(), "see docs/install.md")],
        Err(error) => vec![Finding::warn(what, error.to_string(), "see docs/install.md")],
    }
}

/// Whether a run uses CUDA or is configured to.
fn asks_for_cuda(context: &Context) -> bool {
    context.chosen.as_ref().map_or_else(
        |_| backends().contains(&Backend::Cuda),
        |chosen| chosen.name.starts_with("cuda"),
    )
}

/// The libraries found, and whether a driver that runs CUDA `newest` loads what they compile.
fn with_driver(found: &Libraries, newest: Option<CudaVersion>) -> Finding {
    let what = "cuda libraries";
    let headers = found.headers_version.as_deref().unwrap_or("of unknown version");
    let detail = format!(
        "NVRTC {} {}, headers {headers} {}/include, by {}",
        found.nvrtc_version,
        found.nvrtc.display(),
        found.root.display(),
        found.origin
    );
    let nvrtc = CudaVersion::of(&found.nvrtc_version);
    match (nvrtc, newest, found.headers_version.as_deref().and_then(CudaVersion::of)) {
        (Some(nvrtc), Some(newest), _) if !newest.loads(nvrtc) => {
            let advice = format!(
                "this driver runs CUDA {newest}, and loads no kernel that NVRTC {nvrtc} compiles: {}",
                remedy(Some(newest))
            );
            Finding::fail(what, detail, advice)
        }
        (Some(nvrtc), _, Some(headers)) if nvrtc.major != headers.major => Finding::warn(
            what,
            detail,
            "library and headers are of different versions: point CUDA_HOME to a toolkit that has both",
        ),
        _ => Finding::pass(what, detail),
    }
}

/// Checks that NVRTC compiles a kernel with these headers; no GPU is needed.
#[cfg(feature = "cuda")]
pub(super) fn compiler(_: &Context) -> Vec<Finding> {
    let what = "cuda compiler";
    // A missing library is already reported.
    let Ok(libraries) = cuda_libraries::open() else { return Vec::new() };
    let start = std::time::Instant::now();
    if let Err(error) = cuda_libraries::compile_a_kernel(libraries) {
        return vec![Finding::fail(what, error.to_string(), "see docs/install.md")];
    }
    let used = cuda_libraries::mapped();
    let detail = format!("compiled a kernel in {:.1} s", start.elapsed().as_secs_f64());
    let canonical = fs::canonicalize(&libraries.nvrtc).unwrap_or_else(|_| libraries.nvrtc.clone());
    if let Some(other) = used.iter().find(|path| **path != canonical) {
        let detail = format!("{detail}, by {}", other.display());
        let advice = "LD_LIBRARY_PATH puts another library before the one found: unload one of the two modules";
        return vec![Finding::warn(what, detail, advice)];
    }
    vec![Finding::pass(what, detail)]
}

/// Nothing is compiled for CUDA in this build.
#[cfg(not(feature = "cuda"))]
pub(super) fn compiler(_: &Context) -> Vec<Finding> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use crate::device::cuda_libraries::newest_cuda;

    #[test]
    fn a_compiler_newer_than_the_driver_fails() {
        let found = |nvrtc: &str, headers: Option<&str>| Libraries {
            nvrtc: "/x/libnvrtc.so".into(),
            nvrtc_version: nvrtc.into(),
            root: "/x".into(),
            headers_version: headers.map(str::to_owned),
            origin: "CUDA_HOME".into(),
        };
        for (nvrtc, headers, driver, verdict) in [
            ("13.0", Some("13.0"), Some("580.65.06"), Verdict::Pass),
            ("13.0", Some("13.0"), Some("570.124.06"), Verdict::Fail),
            ("13.5.37", Some("13.5"), Some("580.159"), Verdict::Fail),
            ("13.5.37", Some("13.5"), Some("610.1"), Verdict::Pass),
            ("12.9", Some("12.9"), Some("570.124.06"), Verdict::Fail),
            ("12.9", Some("12.9"), Some("575.51.03"), Verdict::Pass),
            ("12.9", Some("12.9"), Some("525.60.13"), Verdict::Fail),
            ("12.4.127", Some("12.4"), Some("550.54.15"), Verdict::Pass),
            ("12.9", Some("11.8"), Some("580.65.06"), Verdict::Warn),
            ("12.9", None, None, Verdict::Pass),
        ] {
            let finding = with_driver(&found(nvrtc, headers), driver.and_then(newest_cuda));
            assert_eq!(finding.verdict, verdict, "{finding:?}");
        }
        // What to install, for this driver.
        let finding = with_driver(&found("13.5.37", None), newest_cuda("580.159"));
        let advice = finding.advice.unwrap();
        assert!(advice.contains("this driver runs CUDA 13.0"), "{advice}");
        assert!(advice.contains("'nvidia-cuda-nvrtc==13.0.*'"), "{advice}");
    }
}
