//! The files of configs/sites.

use std::fs;
use std::path::{Path, PathBuf};

use vim_slurm::{GpuRequest, Scheduler, Site, SiteSearch, SlurmConfig};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/sites")
}

fn site(name: &str) -> Site {
    let places = SiteSearch { folders: vec![folder()], ..SiteSearch::default() };
    Site::find(name, &places).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_file_is_a_site_and_nobodys() {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let site = Site::read(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(Some(site.name.as_str()), path.file_stem().and_then(|name| name.to_str()));
        assert!(site.description.is_some_and(|text| !text.is_empty()), "{}", path.display());
        let text = fs::read_to_string(&path).unwrap();
        // Where its figures are from, and whether anyone has tried them.
        assert!(text.contains("# Source") && text.contains("ot verified on site"), "{text}");
        for private in ["/home", "/project", "rrg-", "rpp-", "aip-", "@"] {
            assert!(!text.contains(private), "{private} in {}", path.display());
        }
        assert!(text.matches("def-").count() == text.matches("def-yourpi").count(), "{text}");
        names.push(site.name);
    }
    names.sort();
    assert_eq!(names, ["cvis", "fir", "rorqual"]);
}

#[test]
fn clusters_are_asked_for_a_share_of_a_node_with_each_gpu() {
    for (name, cores, memory) in [("fir", 48, 1125), ("rorqual", 64, 498)] {
        let site = site(name);
        for gpus in 1..=4 {
            let config = SlurmConfig {
                account: Some("def-someone".into()),
                gpus_per_node: Some(format!("h100:{gpus}").parse::<GpuRequest>().unwrap()),
                ..SlurmConfig::default()
            };
            let request = config.request(Some(&site), true).unwrap();
            assert_eq!(request.cpus, Some(cores / 4 * gpus), "{name}");
            let (_, each) = request.memory.unwrap();
            let each: u64 = each.to_string().trim_end_matches('G').parse().unwrap();
            assert!(each * 4 <= memory, "{name}: four times {each} GiB of {memory}");
        }
        let nameless = SlurmConfig::default().request(Some(&site), true);
        assert!(nameless.unwrap_err().to_string().contains("def-yourpi"));
    }
}

#[test]
fn a_workstation_has_no_queue() {
    let site = site("cvis");
    assert_eq!(site.scheduler, Scheduler::None);
    let refused = SlurmConfig::default().request(Some(&site), true).unwrap_err();
    assert!(refused.to_string().contains("cvis"), "{refused}");
}
