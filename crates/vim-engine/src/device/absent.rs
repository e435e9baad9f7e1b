//! GPUs that this process was given, and why none of them is found.

use crate::config::Backend;
use crate::device::DeviceError;
use crate::device::cuda_libraries;
use crate::device::fault::foreign::NOT_READY;
use crate::device::machine::Machine;

/// What CUDA shows of a machine's GPUs. PBS, LSF and users set it as well as SLURM.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// The number of the job's GPUs on this node.
const COUNT: &str = "SLURM_GPUS_ON_NODE";

/// Variables that name or count the GPUs of this process. SLURM sets its own on the node itself:
/// `SLURM_GPUS` and others like it repeat a request, also in the shell of salloc on a login node.
/// Images of containers have `NVIDIA_VISIBLE_DEVICES`, with and without a GPU.
const GIVEN: [&str; 4] = [COUNT, "SLURM_STEP_GPUS", "SLURM_JOB_GPUS", VISIBLE];

/// Whether all GPUs are hidden from this process, as a user does who wants the processor.
///
/// # Source
///
/// CUDA Programming Guide, "CUDA Environment Variables": a list ends before its first entry that
/// is no GPU. SLURM before 21.08 writes `NoDevFiles` in jobs without GPUs.
pub(super) fn are_hidden(machine: &Machine) -> bool {
    let list = machine.variables.get(VISIBLE).map(|list| list.to_string_lossy());
    let first = list.as_deref().and_then(|list| list.split(',').next()).map(str::trim);
    first.is_some_and(|first| ["", "-1", "NoDevFiles"].contains(&first))
}

/// The first variable that says that this process was given GPUs, with its value.
fn given(machine: &Machine) -> Option<String> {
    GIVEN.into_iter().find_map(|name| {
        let value = machine.text(name)?;
        // Of the others 0 is the number of a GPU.
        let is_none = name == COUNT && value == "0";
        (!is_none).then(|| format!("{name}={value}"))
    })
}

/// Checks that the processor may stand in for the GPU that `auto` does not find; `key` chooses the
/// backend, and `cpu` is how to choose the processor.
///
/// # Errors
///
/// [`DeviceError::Unavailable`] if this process was given GPUs, or its driver has some and does not
/// start.
pub(super) fn may_be(machine: &Machine, key: &str, cpu: &str) -> Result<(), DeviceError> {
    let found = match given(machine) {
        Some(given) => format!("{given} says that there is one: {}", why(machine)),
        None => match cuda_libraries::driver_failure().filter(|failure| is_of_a_gpu(failure)) {
            Some(failure) => failure,
            None => return Ok(()),
        },
    };
    Err(DeviceError::Unavailable(format!("{key}: auto finds no GPU, and {found}; or use {cpu}")))
}

/// Whether the driver's failure to start says that there is a GPU.
fn is_of_a_gpu(failure: &str) -> bool {
    let failure = failure.to_ascii_lowercase();
    NOT_READY.iter().any(|(_, text)| failure.contains(text))
}

/// Why no GPU is found.
fn why(machine: &Machine) -> String {
    let backends = super::backends();
    let wgpu = if backends.contains(&Backend::Wgpu) { "wgpu finds none, and " } else { "" };
    let cuda = if backends.contains(&Backend::Cuda) {
        no_cuda_gpu(machine)
    } else {
        "this build has no cuda: build it with --features cuda".to_owned()
    };
    format!("{wgpu}{cuda}")
}

/// Why a build with CUDA finds no GPU of NVIDIA's.
pub(super) fn no_cuda_gpu(machine: &Machine) -> String {
    if cuda_libraries::driver(machine).is_none() {
        return "its driver's libcuda.so.1 is not found: start Apptainer with --nv, and on a cluster ask SLURM for a GPU by --gpus=1".to_owned();
    }
    let failure = cuda_libraries::driver_failure();
    failure.unwrap_or_else(|| "CUDA shows no GPU to this process".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(variables: &[(&str, &str)]) -> Machine {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        // Without files there is no driver.
        let root = "/no/such".into();
        Machine { variables: variables.collect(), root, ..Machine::default() }
    }

    #[test]
    fn which_variables_give_gpus() {
        for (variables, said) in [
            (&[][..], None),
            (
                &[("SLURM_JOB_ID", "7"), ("SLURM_GPUS", "4"), ("NVIDIA_VISIBLE_DEVICES", "all")],
                None,
            ),
            (&[("SLURM_GPUS_ON_NODE", "0")], None),
            (
                &[("SLURM_GPUS_ON_NODE", "2"), ("SLURM_JOB_GPUS", "0,1")],
                Some("SLURM_GPUS_ON_NODE=2"),
            ),
            (&[("SLURM_STEP_GPUS", "3")], Some("SLURM_STEP_GPUS=3")),
            // The first GPU.
            (&[("SLURM_GPUS_ON_NODE", "0"), ("SLURM_JOB_GPUS", "0")], Some("SLURM_JOB_GPUS=0")),
            (&[("CUDA_VISIBLE_DEVICES", "GPU-1f")], Some("CUDA_VISIBLE_DEVICES=GPU-1f")),
        ] {
            let machine = machine(variables);
            assert_eq!(given(&machine).as_deref(), said, "{variables:?}");
            let answer = may_be(&machine, "devices.backend", "devices.backend=cpu");
            assert_eq!(answer.is_err(), said.is_some(), "{variables:?}");
            assert!(!are_hidden(&machine), "{variables:?}");
        }
    }

    #[test]
    fn a_list_without_a_gpu_hides_all() {
        for list in ["", "-1", "-1,0", "NoDevFiles", " "] {
            let variables = [("CUDA_VISIBLE_DEVICES", list), ("SLURM_GPUS_ON_NODE", "1")];
            assert!(are_hidden(&machine(&variables)), "{list}");
        }
        assert!(!are_hidden(&machine(&[("CUDA_VISIBLE_DEVICES", "0,-1")])));
    }

    #[test]
    fn a_driver_whose_gpu_is_not_ready_is_no_machine_without_one() {
        let failure = |name: &str| {
            format!("NVIDIA's driver does not start: DriverError({name}, \"of the driver\")")
        };
        for (name, expected) in [
            ("CUDA_ERROR_MPS_SERVER_NOT_READY", true),
            ("CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", true),
            ("CUDA_ERROR_SYSTEM_NOT_READY", true),
            ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", true),
            // A login node with the driver's libraries, and a toolkit's stub.
            ("CUDA_ERROR_NO_DEVICE", false),
            ("CUDA_ERROR_STUB_LIBRARY", false),
        ] {
            assert_eq!(is_of_a_gpu(&failure(name)), expected, "{name}");
        }
    }

    #[test]
    fn the_variable_and_the_reason_are_said() {
        let machine = machine(&[("SLURM_GPUS_ON_NODE", "1")]);
        let error = may_be(&machine, "--device", "--device cpu").unwrap_err().to_string();
        let start =
            "--device: auto finds no GPU, and SLURM_GPUS_ON_NODE=1 says that there is one: ";
        assert!(error.starts_with(start) && error.ends_with("; or use --device cpu"), "{error}");
        let has_cuda = super::super::backends().contains(&Backend::Cuda);
        let reason = if has_cuda { "libcuda.so.1 is not found" } else { "this build has no cuda" };
        assert!(error.contains(reason), "{error}");
    }
}
