use std::fs;
use std::path::PathBuf;

use vim_train::config::{Config, reference};

fn page(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    fs::read_to_string(path).unwrap()
}

#[test]
fn the_page_has_the_reference() {
    assert!(
        page("config-reference.md").contains(&reference()),
        "docs/config-reference.md is out of date: paste what `vim-train config --doc` prints"
    );
}

#[test]
fn the_reference_has_every_key() {
    let schema = serde_json::to_value(vim_train::config::schema()).unwrap();
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
    let page = page("config.md");
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!examples.is_empty());
    for example in examples {
        Config::from_toml(example).unwrap();
    }
}
