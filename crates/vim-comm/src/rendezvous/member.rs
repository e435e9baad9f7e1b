//! What a rank says of itself, and whether ranks fit together.

use std::env;

use serde::{Deserialize, Serialize};

use super::{Party, Rendezvous, There};
use crate::error::CommError;
use crate::place::Place;

/// Variable that lets several ranks share a GPU when it is `1`. NCCL does not promise that it
/// works; tests use it.
pub const SHARE_GPU: &str = "VIM_TRAIN_SHARE_GPU";

/// Whether [`SHARE_GPU`] is set.
pub fn shares_gpu() -> bool {
    env::var_os(SHARE_GPU).is_some_and(|value| value == "1")
}

/// What a rank says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Which rank it is.
    pub place: Place,
    /// The machine's name.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// The kind of its device, such as `NVIDIA H200`.
    pub device: String,
    /// What tells its device from all others, such as a GPU's UUID; `None` if devices may be
    /// shared.
    #[serde(default)]
    pub device_id: Option<String>,
    /// The program's version and source.
    pub build: String,
    /// The version of the library that exchanges, such as NCCL's.
    #[serde(default)]
    pub library: Option<String>,
    /// A hash of the configuration.
    pub configuration: String,
}

impl Member {
    /// `rank 3 (gpu07, process 4711)`.
    pub fn name(&self) -> String {
        format!("rank {} ({}, process {})", self.place.rank(), self.host, self.pid)
    }
}

impl Party for Member {
    const KIND: &'static str = "rank";

    fn number(&self) -> usize {
        self.place.rank()
    }

    fn name(&self) -> String {
        self.name()
    }

    fn problem(members: &[Self]) -> Option<String> {
        let share = shares_gpu();
        let (new, others) = members.split_last()?;
        let of_two = || others.iter().find_map(|other| problem_of_two(other, new, share));
        let why = problem_of_one(new, share).or_else(of_two)?;
        Some(format!("the ranks do not fit together: {why}"))
    }

    fn missing(rendezvous: &Rendezvous, there: There<'_>) -> CommError {
        rendezvous.missing(there)
    }
}

/// Why `member` cannot be one of several ranks.
fn problem_of_one(member: &Member, share: bool) -> Option<String> {
    // The driver names a slice after its GPU, as `NVIDIA H200 MIG 1g.18gb`.
    let is_slice = member.device.contains(" MIG ") && member.place.world() > 1 && !share;
    is_slice.then(|| {
        let (name, device) = (member.name(), &member.device);
        format!("{name} has a MIG slice ({device}), which trains alone: set devices.gpus=1")
    })
}

fn problem_of_two(a: &Member, b: &Member, share: bool) -> Option<String> {
    let differ = |what: &str, of_a: &str, of_b: &str| {
        let text = format!("{} has {what} {of_a}, {} {of_b}", a.name(), b.name());
        (of_a != of_b).then_some(text)
    };
    let nodes = |of: &Member| format!("{:?}", of.place.ranks_of_nodes());
    let library = |of: &Member| of.library.clone().unwrap_or_else(|| "none".into());
    let double = a.device_id.is_some() && a.device_id == b.device_id && !share;
    let spread = a.place.node() == b.place.node() && a.host != b.host;
    differ("the build", &a.build, &b.build)
        .or_else(|| differ("ranks on its nodes", &nodes(a), &nodes(b)))
        .or_else(|| differ("the configuration", &a.configuration, &b.configuration))
        .or_else(|| differ("the library", &library(a), &library(b)))
        .or_else(|| double.then(|| format!("{} and {} have the same GPU", a.name(), b.name())))
        .or_else(|| {
            let node = a.place.node();
            spread.then(|| format!("{} and {} are both of node {node}", a.name(), b.name()))
        })
}

/// What is unusual about ranks that fit together.
pub(super) fn warnings(members: &[Member]) -> Vec<String> {
    let Some(first) = members.first() else { return Vec::new() };
    let other = members.iter().find(|member| member.device != first.device);
    let text = |other: &Member| {
        format!(
            "the ranks have GPUs of several kinds ({} at {}, {} at {}): the slowest one sets the pace, and other numbers of ranks may round otherwise",
            first.device,
            first.name(),
            other.device,
            other.name()
        )
    };
    other.map(text).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(rank: usize) -> Member {
        Member {
            place: Place::new(rank, vec![2, 2]).unwrap(),
            host: format!("gpu{}", rank / 2),
            pid: 4711,
            device: "NVIDIA H200".into(),
            device_id: Some(format!("GPU-{rank}")),
            build: "0.1.0 (abc)".into(),
            library: Some("2.28.9".into()),
            configuration: "1234".into(),
        }
    }

    #[test]
    fn ranks_fit_together_or_it_is_said_why_not() {
        let fitting: Vec<Member> = (0..4).map(member).collect();
        assert!((1..=4).all(|count| Member::problem(&fitting[..count]).is_none()));
        assert!(warnings(&fitting).is_empty());
        let with = |change: &dyn Fn(&mut Member)| {
            let mut members = fitting.clone();
            change(&mut members[3]);
            Member::problem(&members).unwrap_or_default()
        };
        let text = with(&|m| m.build = "0.2.0".into());
        assert_eq!(
            text,
            "the ranks do not fit together: rank 0 (gpu0, process 4711) has the build 0.1.0 (abc), rank 3 (gpu1, process 4711) 0.2.0"
        );
        assert!(with(&|m| m.configuration = "5".into()).contains("has the configuration 1234"));
        assert!(with(&|m| m.library = None).contains("has the library 2.28.9"));
        assert!(with(&|m| m.device_id = Some("GPU-1".into())).ends_with("have the same GPU"));
        assert_eq!(with(&|m| m.device_id = None), "");
        assert!(with(&|m| m.host = "gpu2".into()).ends_with("are both of node 1"));
        let other = Place::new(3, vec![3, 1]).unwrap();
        assert!(with(&|m| m.place = other.clone()).contains("ranks on its nodes [2, 2]"));
    }

    #[test]
    fn several_kinds_of_gpu_are_told() {
        let mut members: Vec<Member> = (0..4).map(member).collect();
        members[2].device = "NVIDIA A100".into();
        assert!(Member::problem(&members).is_none());
        let warnings = warnings(&members);
        assert!(warnings[0].contains("NVIDIA H200 at rank 0"), "{warnings:?}");
        assert!(warnings[0].contains("NVIDIA A100 at rank 2"), "{warnings:?}");
    }

    #[test]
    fn a_slice_of_a_gpu_trains_alone() {
        let mut slice = member(1);
        slice.device = "cuda, NVIDIA H200 MIG 1g.18gb".into();
        let text = Member::problem(&[member(0), slice.clone()]).unwrap();
        let wanted = "the ranks do not fit together: rank 1 (gpu0, process 4711) has a MIG slice (cuda, NVIDIA H200 MIG 1g.18gb), which trains alone: set devices.gpus=1";
        assert_eq!(text, wanted);
        assert!(problem_of_one(&slice, true).is_none(), "tests may");
        slice.place = Place::single();
        assert!(Member::problem(&[slice]).is_none());
    }

    #[test]
    fn tests_may_share_a_gpu() {
        let (a, mut b) = (member(0), member(1));
        b.device_id = a.device_id.clone();
        assert!(problem_of_two(&a, &b, false).is_some());
        assert!(problem_of_two(&a, &b, true).is_none());
    }
}
