//! The search for CUDA's libraries over made-up trees.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use vim_engine::device::cuda_libraries::{CudaError, CudaVersion, driver, driver_version, search};
use vim_engine::device::machine::Machine;

use crate::support::{assert_parts, repository, write};

const HEADERS: [&str; 7] = [
    "cuda_fp16.h",
    "cuda_bf16.h",
    "mma.h",
    "crt/mma.h",
    "cooperative_groups.h",
    "cuda_runtime.h",
    "nv/target",
];

/// A machine of files and variables, below a folder of its own.
struct Tree {
    folder: TempDir,
    machine: Machine,
}

impl Tree {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine {
            root: folder.path().into(),
            cache: Some(folder.path().join("cache")),
            ..Machine::default()
        };
        Self { folder, machine }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn file(&self, path: &str, text: &str) {
        write(&self.at(path), text);
    }

    fn set(&mut self, name: &str, path: &str) {
        let path = self.at(path);
        self.machine.variables.insert(name.into(), path.into());
    }

    /// A toolkit as NVIDIA installs it.
    fn toolkit(&self, folder: &str, version: &str) {
        self.library(&format!("{folder}/lib64"), version);
        self.headers(&format!("{folder}/include"), version);
    }

    fn library(&self, folder: &str, version: &str) {
        let major = version.split('.').next().unwrap();
        let real = format!("libnvrtc.so.{version}.86");
        self.file(&format!("{folder}/{real}"), "");
        std::os::unix::fs::symlink(real, self.at(&format!("{folder}/libnvrtc.so.{major}")))
            .unwrap();
    }

    fn headers(&self, folder: &str, version: &str) {
        for header in HEADERS {
            self.file(&format!("{folder}/{header}"), "");
        }
        let (major, minor) = version.split_once('.').unwrap();
        let define = format!("#define CUDA_VERSION {major}0{minor}0\n");
        self.file(&format!("{folder}/cuda.h"), &format!("/* */\n{define}"));
    }

    /// The wheels of CUDA 12, which have a folder each.
    fn wheels(&self, site: &str) {
        let of = |wheel: &str| format!("{site}/nvidia/{wheel}");
        self.file(&of("cuda_nvrtc/lib/libnvrtc.so.12"), "");
        self.file(&of("cuda_nvrtc/lib/libnvrtc-builtins.so.12.9"), "");
        for header in HEADERS.iter().filter(|header| !header.contains('/')) {
            self.file(&of(&format!("cuda_runtime/include/{header}")), "");
        }
        self.file(&of("cuda_runtime/include/cuda.h"), "#define CUDA_VERSION 12090\n");
        self.file(&of("cuda_nvcc/include/crt/mma.h"), "");
        self.file(&of("cuda_cccl/include/nv/target"), "");
    }
}

#[test]
fn a_variable_comes_before_the_usual_folder_and_that_before_wheels() {
    let mut tree = Tree::new();
    tree.wheels("venv/lib/python3.11/site-packages");
    tree.set("VIRTUAL_ENV", "venv");
    let wheels = search(&tree.machine).unwrap();
    assert_eq!(wheels.origin, "VIRTUAL_ENV");

    tree.toolkit("usr/local/cuda-11.8", "11.8");
    tree.toolkit("usr/local/cuda-12.6", "12.6");
    let newest = search(&tree.machine).unwrap();
    assert_eq!(newest.root, tree.at("usr/local/cuda-12.6"));
    assert_eq!(newest.nvrtc, tree.at("usr/local/cuda-12.6/lib64/libnvrtc.so.12"));
    assert_eq!(newest.nvrtc_version, "12.6.86");
    assert_eq!(newest.headers_version.as_deref(), Some("12.6"));

    // As an environment module of EasyBuild sets it.
    tree.toolkit("apps/cuda", "13.0");
    tree.set("EBROOTCUDA", "apps/cuda");
    let module = search(&tree.machine).unwrap();
    assert_eq!((module.root, module.origin.as_str()), (tree.at("apps/cuda"), "EBROOTCUDA"));

    tree.toolkit("own/cuda", "12.4");
    tree.set("CUDA_HOME", "own/cuda");
    assert_eq!(search(&tree.machine).unwrap().root, tree.at("own/cuda"));

    // What names wheels for this program is meant.
    tree.set("VIM_CUDA_WHEELS", "venv");
    assert_eq!(search(&tree.machine).unwrap().origin, "VIM_CUDA_WHEELS");
}

/// As pip, pipx and uv install both; the program is called by its path.
#[test]
fn wheels_beside_the_program_come_before_toolkits() {
    let mut tree = Tree::new();
    tree.toolkit("usr/local/cuda", "12.6");
    tree.toolkit("own/cuda", "12.4");
    tree.set("CUDA_HOME", "own/cuda");
    tree.machine.executable = Some(tree.at("venv/bin/vim-train"));
    assert_eq!(search(&tree.machine).unwrap().origin, "CUDA_HOME");

    tree.wheels("venv/lib/python3.11/site-packages");
    let own = search(&tree.machine).unwrap();
    assert_eq!(own.origin, "vim-train's own environment");
    let site = tree.at("venv/lib/python3.11/site-packages/nvidia");
    assert!(own.nvrtc.starts_with(&site), "{}", own.nvrtc.display());
    assert_eq!(own.headers_version.as_deref(), Some("12.9"));
    // The same environment, activated.
    tree.set("VIRTUAL_ENV", "venv");
    assert_eq!(search(&tree.machine).unwrap().origin, "vim-train's own environment");

    // What names wheels for this program is meant.
    tree.wheels("other/lib/python3.9/site-packages");
    tree.set("VIM_CUDA_WHEELS", "other");
    assert_eq!(search(&tree.machine).unwrap().origin, "VIM_CUDA_WHEELS");

    // `pip install --target`, of CUDA 13.
    let mut tree = Tree::new();
    tree.headers("target/nvidia/cu13/include", "13.0");
    tree.file("target/nvidia/cu13/lib/libnvrtc.so.13", "");
    tree.machine.executable = Some(tree.at("target/bin/vim-train"));
    assert_eq!(search(&tree.machine).unwrap().root, tree.at("target/nvidia/cu13"));

    // A library without headers, as beside PyTorch, is no reason to leave a toolkit.
    let mut tree = Tree::new();
    tree.file("venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13", "");
    tree.toolkit("usr/local/cuda", "12.6");
    tree.machine.executable = Some(tree.at("venv/bin/vim-train"));
    assert_eq!(search(&tree.machine).unwrap().root, tree.at("usr/local/cuda"));
}

#[test]
fn what_the_driver_does_not_load_comes_last() {
    let mut tree = Tree::new();
    tree.machine.executable = Some(tree.at("venv/bin/vim-train"));
    let site = "venv/lib/python3.11/site-packages";
    tree.headers(&format!("{site}/nvidia/cu13/include"), "13.0");
    tree.file(&format!("{site}/nvidia/cu13/lib/libnvrtc.so.13"), "");
    tree.file(&format!("{site}/nvidia/cu13/lib/libnvrtc-builtins.so.13.0"), "");
    let driver = |version: &str| {
        let text = format!("NVRM version: NVIDIA UNIX x86_64  {version}  (x)\n");
        tree.file("proc/driver/nvidia/version", &text);
    };
    let found = || search(&tree.machine).unwrap().nvrtc_version;
    // Better than nothing: `doctor` says what is wrong.
    driver("575.51.03");
    assert_eq!(found(), "13.0");

    tree.toolkit("usr/local/cuda", "12.6");
    assert_eq!(found(), "12.6.86");
    tree.wheels(site);
    assert_eq!(found(), "12.9");
    driver("570.124.06");
    assert_eq!(found(), "12.6.86");
    driver("580.65.06");
    assert_eq!(found(), "13.0");
    // What a driver of tomorrow runs is not known here.
    driver("999.1");
    assert_eq!(found(), "13.0");
}

#[test]
fn a_variable_that_leads_nowhere_is_passed_over() {
    let mut tree = Tree::new();
    tree.toolkit("opt/cuda", "12.6");
    tree.set("CUDA_PATH", "no/such/folder");
    tree.machine.variables.insert("CUDA_HOME".into(), "".into());
    assert_eq!(search(&tree.machine).unwrap().root, tree.at("opt/cuda"));
}

#[test]
fn other_layouts_of_toolkits() {
    // The HPC SDK, with a folder for each version.
    let mut tree = Tree::new();
    tree.toolkit("hpc_sdk/24.5/cuda/12.4", "12.4");
    tree.set("NVHPC_ROOT", "hpc_sdk/24.5");
    assert_eq!(search(&tree.machine).unwrap().root, tree.at("hpc_sdk/24.5/cuda/12.4"));

    // Conda: the library in lib, headers under targets.
    let mut tree = Tree::new();
    let target = if cfg!(target_arch = "aarch64") { "sbsa-linux" } else { "x86_64-linux" };
    tree.library("env/lib", "12.6");
    tree.headers(&format!("env/targets/{target}/include"), "12.6");
    tree.set("CONDA_PREFIX", "env");
    let found = search(&tree.machine).unwrap();
    assert_eq!(found.root, tree.at(&format!("env/targets/{target}")));
    assert_eq!(found.nvrtc, tree.at("env/lib/libnvrtc.so.12"));

    // A module that sets LD_LIBRARY_PATH and nothing else.
    let mut tree = Tree::new();
    tree.toolkit("apps/cuda", "12.6");
    tree.set("LD_LIBRARY_PATH", "apps/cuda/lib64");
    assert_eq!(search(&tree.machine).unwrap().root, tree.at("apps/cuda"));

    // CUDA 13 has the core libraries' headers in a folder of their own.
    let tree = Tree::new();
    tree.toolkit("usr/local/cuda", "13.0");
    fs::remove_dir_all(tree.at("usr/local/cuda/include/nv")).unwrap();
    assert!(search(&tree.machine).is_err());
    tree.file("usr/local/cuda/include/cccl/nv/target", "");
    assert_eq!(search(&tree.machine).unwrap().root, tree.at("usr/local/cuda"));
}

#[test]
fn wheels_of_cuda_13_are_a_toolkit() {
    let mut tree = Tree::new();
    tree.headers("target/nvidia/cu13/include", "13.0");
    tree.file("target/nvidia/cu13/lib/libnvrtc.so.13", "");
    tree.file("target/nvidia/cu13/lib/libnvrtc-builtins.so.13.0", "");
    tree.set("VIM_CUDA_WHEELS", "target");
    let found = search(&tree.machine).unwrap();
    assert_eq!(found.root, tree.at("target/nvidia/cu13"));
    assert_eq!(found.nvrtc_version, "13.0");
    assert!(!tree.at("cache").exists(), "nothing is to be put together");
}

#[test]
fn wheels_of_cuda_12_are_put_together_by_links() {
    let mut tree = Tree::new();
    tree.wheels("venv/lib/python3.11/site-packages");
    tree.file("venv/bin/python3", "");
    tree.set("PATH", "venv/bin");
    let found = search(&tree.machine).unwrap();
    assert_eq!(found.origin, "python3 on PATH");
    assert_eq!(found.nvrtc_version, "12.9");
    assert!(found.root.starts_with(tree.at("cache")));
    let name = found.root.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("cuda-12.9-"), "{name}");
    for header in HEADERS {
        assert!(found.root.join("include").join(header).is_file(), "{header}");
    }
    // Once: nothing else is left, and a second search takes the same.
    assert_eq!(fs::read_dir(tree.at("cache")).unwrap().count(), 1);
    assert_eq!(search(&tree.machine).unwrap(), found);

    // Damage is repaired.
    fs::remove_file(found.root.join("include/mma.h")).unwrap();
    assert_eq!(search(&tree.machine).unwrap(), found);
    assert!(found.root.join("include/mma.h").is_file());
    assert_eq!(fs::read_dir(tree.at("cache")).unwrap().count(), 1);

    // Other wheels are another folder.
    tree.file("venv/lib/python3.11/site-packages/nvidia/cuda_runtime/include/new.h", "");
    assert_ne!(search(&tree.machine).unwrap().root, found.root);

    // A cache that cannot be made is named.
    tree.file("file", "");
    tree.machine.cache = Some(tree.at("file/cache"));
    let error = search(&tree.machine).unwrap_err();
    assert!(matches!(error, CudaError::Merge { .. }));
    let line = error.to_string();
    assert!(line.contains("XDG_CACHE_HOME") && !line.contains('\n'), "{line}");
}

#[test]
fn a_library_without_headers_is_paired_with_headers_of_its_version() {
    let mut tree = Tree::new();
    tree.library("usr/local/cuda/lib64", "12.6");
    tree.headers("old/include", "11.8");
    tree.headers("new/include", "12.9");
    tree.set("CUDA_HOME", "old");
    tree.set("CUDA_ROOT", "new");
    let found = search(&tree.machine).unwrap();
    assert_eq!(found.root, tree.at("new"));
    assert!(found.origin.ends_with(", headers: CUDA_ROOT"), "{}", found.origin);
}

#[test]
fn what_is_missing_is_named_with_the_places_and_the_remedy() {
    let mut tree = Tree::new();
    tree.set("CUDA_HOME", "apps/cuda");
    let nothing = search(&tree.machine).unwrap_err();
    assert!(matches!(nothing, CudaError::NoNvrtc { .. }));
    let line = nothing.to_string();
    let parts = [
        "libnvrtc.so.13",
        "apps/cuda (CUDA_HOME)",
        "usr/local/cuda",
        "CUDA_PATH",
        "module load cuda",
        "pip install 'nvidia-cuda-nvrtc==13.0.*' ",
        "VIM_CUDA_WHEELS",
        "docs/install.md",
    ];
    assert_parts(&line, &parts);
    assert!(!line.contains('\n'), "{line}");

    // An older driver runs older wheels only.
    tree.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64  550.54.15  (x)\n");
    let line = search(&tree.machine).unwrap_err().to_string();
    assert_parts(&line, &["CUDA 12.4 or older", "pip install 'nvidia-cuda-nvrtc-cu12==12.4.*' "]);

    // The container image for running has the library and no headers.
    tree.library("apps/cuda/lib64", "12.6");
    tree.file("apps/cuda/include/cuda_fp16.h", "");
    let headers = search(&tree.machine).unwrap_err();
    assert!(matches!(headers, CudaError::NoHeaders { .. }));
    let line = headers.to_string();
    assert_parts(&line, &["cuda_bf16.h", "crt/mma.h"]);
    assert!(!line.contains("header cuda_fp16.h"), "{line}");
}

#[test]
fn the_driver() {
    let tree = Tree::new();
    assert_eq!((driver(&tree.machine), driver_version(&tree.machine)), (None, None));
    tree.file(".singularity.d/libs/libcuda.so.1", "");
    tree.file(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (x)\nGCC version:\n",
    );
    assert_eq!(driver(&tree.machine), Some(tree.at(".singularity.d/libs/libcuda.so.1")));
    assert_eq!(driver_version(&tree.machine).as_deref(), Some("580.65.06"));
}

/// The page, the wheel's extras and the image install what an error advises.
#[test]
fn the_wheels_that_are_advised_are_those_that_are_installed_elsewhere() {
    let text = |path: &str| fs::read_to_string(repository(path)).unwrap();
    let (page, wheel, image) =
        (text("docs/install.md"), text("scripts/pack_wheel.py"), text("scripts/image.sh"));
    for (major, minor) in [(13, 0), (12, 4)] {
        let wheels = CudaVersion { major, minor }.wheels().unwrap();
        for requirement in wheels.split(' ').map(|quoted| quoted.trim_matches('\'')) {
            assert_parts(&page, &[requirement]);
            assert_parts(&wheel, &[&format!("\"{requirement}\"")]);
            assert_eq!(image.contains(requirement), major == 12, "image.sh: {requirement}");
        }
    }
}
