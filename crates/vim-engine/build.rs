//! Tells the library what it was built for, as a run's `env.json` records it, and gives it the
//! configurations of `configs/`.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::{env, fmt::Write as _};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    if let Ok(target) = env::var("TARGET") {
        println!("cargo::rustc-env=VIM_TRAIN_TARGET={target}");
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
