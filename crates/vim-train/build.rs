//! Tells the program what it was built from, as a run's `env.json` records it.

use std::env;
use std::process::Command;

/// Set by whoever builds from an archive without a repository.
const COMMIT: &str = "VIM_TRAIN_COMMIT";

fn main() {
    println!("cargo::rerun-if-env-changed={COMMIT}");
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(commit) = env::var(COMMIT).ok().or_else(repository_commit) {
        println!("cargo::rustc-env={COMMIT}={commit}");
    }
}

/// The commit that is checked out; `None` where there is no repository, or no git.
fn repository_commit() -> Option<String> {
    // The log of HEAD changes with every commit and checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--verify", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
