//! What ranks exchange through: network interfaces, InfiniBand, and the variables that steer NCCL.

use std::fs;
use std::path::Path;

use super::Finding;
use crate::device::machine::Machine;

/// Variables of this program that ranks follow, beside those of NCCL.
const OURS: [&str; 3] = ["VIM_TRAIN_NCCL", vim_comm::SHARE_GPU, "CUDA_VISIBLE_DEVICES"];

/// The names in a folder below the root, sorted; none where it is not there.
fn names(machine: &Machine, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(machine.root.join(folder));
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn first_line(machine: &Machine, folder: &Path, file: &str) -> Option<String> {
    let text = machine.read(folder.join(file))?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// The network interfaces, with their state and speed.
pub(super) fn interfaces(machine: &Machine) -> Finding {
    let all = names(machine, "sys/class/net").into_iter().map(|name| {
        let folder = Path::new("sys/class/net").join(&name);
        let state = first_line(machine, &folder, "operstate").filter(|state| state != "unknown");
        // Virtual interfaces have no speed, or -1.
        let speed = first_line(machine, &folder, "speed")
            .and_then(|speed| speed.parse::<u64>().ok())
            .map(|speed| format!("{speed} Mb/s"));
        let about: Vec<String> = [state, speed].into_iter().flatten().collect();
        if about.is_empty() { name } else { format!("{name} ({})", about.join(", ")) }
    });
    let all: Vec<String> = all.collect();
    let detail = if all.is_empty() { "none".into() } else { all.join(", ") };
    Finding::pass("network", detail)
}

/// The ports of InfiniBand's adapters (HCAs).
pub(super) fn infiniband(machine: &Machine) -> Finding {
    let what = "infiniband";
    let mut ports = Vec::new();
    let mut is_active = true;
    for adapter in names(machine, "sys/class/infiniband") {
        let folder = Path::new("sys/class/infiniband").join(&adapter).join("ports");
        for port in names(machine, &folder.to_string_lossy()) {
            let folder = folder.join(&port);
            let read = |file| first_line(machine, &folder, file);
            // `4: ACTIVE`
            let state = read("state").unwrap_or_else(|| "in an unknown state".into());
            let state = state.rsplit(": ").next().unwrap_or_default().to_owned();
            is_active &= state == "ACTIVE";
            let about = [Some(state), read("rate"), read("link_layer")];
            let about: Vec<String> = about.into_iter().flatten().collect();
            ports.push(format!("{adapter} port {port} {}", about.join(", ")));
        }
    }
    if ports.is_empty() {
        return Finding::pass(what, "no adapter");
    }
    let advice = "a port that is not ACTIVE carries nothing: tell the cluster's support";
    Finding::pass(what, ports.join("; ")).warn_if(!is_active, advice)
}

/// The variables that steer NCCL and the choice of GPUs.
pub(super) fn variables(machine: &Machine) -> Finding {
    let what = "nccl variables";
    let steers = |name: &&String| name.starts_with("NCCL_") || OURS.contains(&name.as_str());
    let set = machine.variables.keys().filter(steers);
    let set: Vec<String> =
        set.filter_map(|name| Some(format!("{name}={}", machine.text(name)?))).collect();
    let detail = if set.is_empty() { "none is set".into() } else { set.join(" ") };
    if machine.text("NCCL_COMM_ID").is_some() {
        let advice = "NCCL_COMM_ID makes all runs of a machine meet at one port: unset it";
        return Finding::fail(what, detail, advice);
    }
    let shares = machine.text(vim_comm::SHARE_GPU).is_some_and(|value| value == "1");
    let advice = "ranks that share a GPU exchange through sockets: right, but slow";
    Finding::pass(what, detail).warn_if(shares, advice)
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let machine = Machine { root: folder.path().into(), ..Machine::default() };
        (folder, machine)
    }

    #[test]
    fn interfaces_have_a_state_and_a_speed() {
        let (_folder, machine) = machine(&[
            ("sys/class/net/lo/operstate", "unknown\n"),
            ("sys/class/net/eth0/operstate", "up\n"),
            ("sys/class/net/eth0/speed", "10000\n"),
            ("sys/class/net/eth1/operstate", "down\n"),
            ("sys/class/net/eth1/speed", "-1\n"),
        ]);
        assert_eq!(interfaces(&machine).detail, "eth0 (up, 10000 Mb/s), eth1 (down), lo");
        assert_eq!(interfaces(&Machine { root: "/none".into(), ..machine }).detail, "none");
    }

    #[test]
    fn ports_of_infiniband_are_active_or_told() {
        let port = |number: usize, state| {
            let folder = format!("sys/class/infiniband/mlx5_{number}/ports/1");
            let files = [("state", state), ("rate", "400 Gb/sec (4X NDR)")];
            files.map(|(file, text)| (format!("{folder}/{file}"), text))
        };
        let both = |state| {
            let files = [port(0, "4: ACTIVE\n"), port(1, state)].concat();
            let files: Vec<(&str, &str)> =
                files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
            let (_folder, machine) = machine(&files);
            infiniband(&machine)
        };
        let active = both("4: ACTIVE\n");
        let of = |number| format!("mlx5_{number} port 1 ACTIVE, 400 Gb/sec (4X NDR)");
        assert_eq!(active, Finding::pass("infiniband", format!("{}; {}", of(0), of(1))));
        let down = both("1: DOWN\n");
        assert_eq!(down.verdict, Verdict::Warn);
        assert!(down.detail.contains("mlx5_1 port 1 DOWN"), "{down:?}");
        assert_eq!(infiniband(&Machine::default()).detail, "no adapter");
    }

    #[test]
    fn variables_that_steer_are_shown() {
        let with = |variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            self::variables(&Machine { variables: variables.collect(), ..Machine::default() })
        };
        assert_eq!(with(&[("HOME", "/root")]).detail, "none is set");
        let some = with(&[("NCCL_DEBUG", "INFO"), ("CUDA_VISIBLE_DEVICES", "0,1")]);
        let wanted = "CUDA_VISIBLE_DEVICES=0,1 NCCL_DEBUG=INFO";
        assert_eq!(some, Finding::pass("nccl variables", wanted));
        assert_eq!(with(&[("NCCL_COMM_ID", "a:1")]).verdict, Verdict::Fail);
        assert_eq!(with(&[("VIM_TRAIN_SHARE_GPU", "1")]).verdict, Verdict::Warn);
    }
}
