//! The pages of docs/ and the files of configs/sites.

use std::fs;

use vim_engine::config::{Config, reference};
use vim_slurm::{GpuRequest, Scheduler, Site, SiteSearch, SlurmConfig};

use crate::support::{assert_parts, repository};

fn page(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap()
}

#[test]
fn the_page_has_the_reference() {
    assert!(
        page("docs/config-reference.md").contains(&reference()),
        "docs/config-reference.md is out of date: paste what `vim-train config --doc` prints"
    );
}

#[test]
fn the_page_has_the_table_of_backends() {
    let table = vim_engine::task::backends::table();
    assert!(
        page("docs/install.md").contains(&table),
        "docs/install.md is out of date: its table of tasks and backends is now\n{table}"
    );
}

#[test]
fn the_reference_has_every_key() {
    let schema = serde_json::to_value(vim_engine::config::schema()).unwrap();
    let definitions = schema["definitions"].as_object().unwrap();
    let mut keys = 0;
    for definition in definitions.values() {
        let Some(properties) = definition["properties"].as_object() else { continue };
        for key in properties.keys().filter(|key| !["shapes", "report"].contains(&key.as_str())) {
            keys += 1;
            assert!(reference().contains(&format!("| `{key}` |")), "{key}");
        }
    }
    assert!(keys > 40, "the schema has keys at all");
}

#[test]
fn the_examples_load() {
    let page = page("docs/config.md");
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!examples.is_empty());
    for example in examples {
        Config::from_toml(example).unwrap();
    }
}

#[test]
fn every_file_of_the_walks_opens() {
    let page = page("docs/architecture.md");
    let (_, walks) = page.split_once("\n## Walks\n").unwrap();
    let walks = walks.split("\n## ").next().unwrap();
    let paths = walks.split('`').skip(1).step_by(2).filter(|path| path.ends_with(".rs"));
    let mut files = 0;
    for path in paths {
        let source = fs::read_to_string(repository("crates").join(path));
        assert!(!source.unwrap_or_else(|error| panic!("{path}: {error}")).is_empty(), "{path}");
        files += 1;
    }
    assert!(files > 100, "{files}");
}

const SITES: &str = "configs/sites";

fn site(name: &str) -> Site {
    let places = SiteSearch { folders: vec![repository(SITES)], ..SiteSearch::default() };
    Site::find(name, &places).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_file_is_a_site_and_nobodys() {
    let mut names = Vec::new();
    for entry in fs::read_dir(repository(SITES)).unwrap() {
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
            let request = config.request(Some(&site), 1).unwrap();
            assert_eq!(request.cpus, Some(cores / 4 * gpus), "{name}");
            let (_, each) = request.memory.unwrap();
            let each: u64 = each.to_string().trim_end_matches('G').parse().unwrap();
            assert!(each * 4 <= memory, "{name}: four times {each} GiB of {memory}");
        }
        let nameless = SlurmConfig::default().request(Some(&site), 1);
        assert!(nameless.unwrap_err().to_string().contains("def-yourpi"));
    }
}

#[test]
fn a_workstation_has_no_queue() {
    let site = site("cvis");
    assert_eq!(site.scheduler, Scheduler::None);
    let refused = SlurmConfig::default().request(Some(&site), 1).unwrap_err();
    assert_parts(&refused.to_string(), &["cvis"]);
}
