//! Environment variables that ranks need when they start.

use std::env;

/// The variables to give the ranks of a run on `nodes` nodes, without those that are set already.
///
/// NCCL's service RAS listens at a fixed port, which several runs of a machine would share. On one
/// node, its first contact goes through the loopback interface, which no firewall closes.
pub fn environment(nodes: usize) -> Vec<(&'static str, &'static str)> {
    let loopback = (nodes == 1).then_some(("NCCL_SOCKET_IFNAME", "lo"));
    let all = [("NCCL_RAS_ENABLE", "0")].into_iter().chain(loopback);
    all.filter(|(name, _)| env::var_os(name).is_none()).collect()
}
