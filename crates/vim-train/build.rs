//! Tells the program what it was built from and for, as a run's `env.json` records it, and gives it
//! the configurations of `configs/`.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fmt::Write as _};

/// Set by whoever builds from an archive without a repository.
const COMMIT: &str = "VIM_TRAIN_COMMIT";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed={COMMIT}");
    println!("cargo::rerun-if-changed=build.rs");
    if let Ok(target) = env::var("TARGET") {
        println!("cargo::rustc-env=VIM_TRAIN_TARGET={target}");
    }
    if let Some(commit) = env::var(COMMIT).ok().or_else(repository_commit) {
        println!("cargo::rustc-env={COMMIT}={commit}");
    }
    let configs =
        Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../configs").canonicalize()?;
    println!("cargo::rerun-if-changed={}", configs.display());
    let mut files = Vec::new();
    collect(&configs, "", &mut files)?;
    files.sort();
    let mut table = format!("static FILES: [(&str, &str); {}] = [\n", files.len());
    for (name, path) in files {
        writeln!(table, "({name:?}, include_str!({path:?})),")?;
    }
    table.push_str("];\n");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("configs.rs"), table)?;
    Ok(())
}

/// Adds the configurations below `folder` by their names, which begin with `prefix`.
fn collect(folder: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        // Sites are no configurations; vim-slurm has them.
        if path.is_dir() && stem != "sites" {
            collect(&path, &format!("{prefix}{stem}/"), files)?;
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            files.push((format!("{prefix}{stem}"), path));
        }
    }
    Ok(())
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
