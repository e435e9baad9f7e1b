//! What each backend does of each task: one table, from which the documentation has its own and
//! commands refuse what is not in it.

use strum::{Display, VariantArray};

use crate::config::Backend::{self, Cpu, Cuda, Tch, Wgpu};
use crate::config::TaskKind;
use crate::device::{DeviceError, DeviceName, SelectedDevice};
use crate::error::Error;

/// What a command has a device do.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Work {
    /// Training, with the evaluations in it.
    Train,
    /// Scores of a model on a dataset's images.
    Eval,
    /// What a model says of images.
    Predict,
}

/// A task, and what the backends do of it.
pub type Row = (TaskKind, [(Backend, &'static [Work]); 4]);

/// Every task on every backend. The tests try each cell on what the machine has.
pub const OFFERED: [Row; 3] = [
    (TaskKind::Classification, [(Cpu, ALL), (Cuda, ALL), (Wgpu, ALL), (Tch, ALL)]),
    (TaskKind::Segmentation, [(Cpu, ALL), (Cuda, ALL), (Wgpu, ALL), (Tch, ALL)]),
    (TaskKind::Detection, [(Cpu, ALL), (Cuda, ALL), (Wgpu, ALL), (Tch, ALL)]),
];

const ALL: &[Work] = Work::VARIANTS;

/// The table as the documentation has it, in Markdown.
pub fn table() -> String {
    let [(_, first), ..] = &OFFERED;
    let mut lines = vec![line("task", first.iter().map(|(backend, _)| format!("`{backend}`")))];
    lines.push(format!("|{}", "---|".repeat(1 + first.len())));
    for (task, cells) in &OFFERED {
        lines.push(line(&task.to_string(), cells.iter().map(|(_, works)| names(works))));
    }
    lines.join("\n")
}

fn line(first: &str, cells: impl Iterator<Item = String>) -> String {
    format!("| {first} |{}", cells.map(|cell| format!(" {cell} |")).collect::<String>())
}

fn names(works: &[Work]) -> String {
    if works.is_empty() {
        return "no".to_owned();
    }
    works.iter().map(Work::to_string).collect::<Vec<_>>().join(", ")
}

/// Checks that `chosen` does `work` of `task`.
///
/// # Errors
///
/// [`DeviceError::Unavailable`], which names the device as a flag does.
pub fn check(task: TaskKind, work: Work, chosen: &SelectedDevice) -> Result<(), Error> {
    match refusal(&OFFERED, task, work, chosen) {
        None => Ok(()),
        Some(text) => Err(DeviceError::Unavailable(text).into()),
    }
}

/// Why `chosen` does not do `work` of `task` by the table `offered`, if so.
fn refusal(offered: &[Row], task: TaskKind, work: Work, chosen: &SelectedDevice) -> Option<String> {
    let (_, cells) = offered.iter().find(|(of, _)| *of == task)?;
    let able: Vec<Backend> =
        cells.iter().filter(|(_, works)| works.contains(&work)).map(|(able, _)| *able).collect();
    let backend = chosen.name.parse().map(|name: DeviceName| name.backend).unwrap_or_default();
    if able.contains(&backend) {
        return None;
    }
    let able = able.iter().map(Backend::to_string).collect::<Vec<_>>().join(", ");
    Some(format!(
        "{}: `{work}` of {task} does not run on it: use one of {able} (--device, devices.backend)",
        chosen.name
    ))
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn named(name: &str) -> SelectedDevice {
        SelectedDevice { device: Device::flex(), name: name.to_owned() }
    }

    #[test]
    fn what_is_not_in_the_table_is_refused_by_its_name() {
        let offered: [Row; 1] = [(
            TaskKind::Segmentation,
            [(Cpu, ALL), (Cuda, ALL), (Wgpu, &[]), (Tch, &[Work::Eval, Work::Predict])],
        )];
        let refused = |work, name| refusal(&offered, TaskKind::Segmentation, work, &named(name));
        for (work, name) in [
            (Work::Train, "cpu"),
            (Work::Train, "cuda:3"),
            (Work::Eval, "tch"),
            (Work::Eval, "tch:0"),
        ] {
            assert_eq!(refused(work, name), None, "{work} {name}");
        }
        let text = "tch:0: `train` of segmentation does not run on it: use one of cpu, cuda \
                    (--device, devices.backend)";
        assert_eq!(refused(Work::Train, "tch:0").as_deref(), Some(text));
        let text = "wgpu:0: `predict` of segmentation does not run on it: use one of cpu, cuda, tch \
                    (--device, devices.backend)";
        assert_eq!(refused(Work::Predict, "wgpu:0").as_deref(), Some(text));
    }

    #[test]
    fn every_task_and_backend_is_in_the_table() {
        for &task in TaskKind::VARIANTS {
            let (_, cells) = OFFERED.iter().find(|(of, _)| *of == task).unwrap();
            let backends = Backend::VARIANTS.iter().filter(|one| **one != Backend::Auto);
            assert!(backends.clone().all(|one| cells.iter().any(|(of, _)| of == one)), "{task}");
            assert_eq!(backends.count(), cells.len());
        }
        assert!(table().starts_with("| task | `cpu` | `cuda` | `wgpu` | `tch` |\n|---|---|---|---|---|\n| classification | train, eval, predict |"));
    }
}
