//! The closed form of the cost against a count of what is done.

use burn::tensor::Device;
use vim_kernels::Discretization;
use vim_model::{ModelError, Preset, SsmConfig, StateMatrix, VimConfig};

use crate::naive::Naive;
use crate::support::{batch, numbers, small, values};
use crate::variants::{methods, shaken, variants};

fn agrees(name: &str, config: &VimConfig) {
    let cost = config.cost().unwrap();
    assert_eq!(cost.parameters(), config.num_parameters() as u64, "{name}: parameters");
    // The network in counted operations.
    let parameters = &values(&shaken(config, &Device::flex()));
    let image = numbers(batch(1, config.image_size));
    let (_, counts) = Naive { config, parameters }.logits(&image, false);
    let total = counts.values().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
    for component in &cost.components {
        let (macs, flops) = counts.get(component.name).copied().unwrap_or_default();
        assert_eq!((component.macs, component.flops), (macs, flops), "{name}: {}", component.name);
    }
    assert_eq!((cost.macs(), cost.flops()), total, "{name}: total");
}

#[test]
fn every_variant_costs_what_it_does() {
    for (name, config) in variants() {
        agrees(name, &config);
    }
}

#[test]
fn every_method_costs_what_it_does() {
    for (name, config) in methods() {
        agrees(&name, &config);
    }
}

/// Linear maps and convolutions of Vim-Ti at 224 px: 52.65 million multiply-adds a block, 1.26
/// billion in all.
#[test]
fn the_published_figure_for_vim_ti() {
    let cost = VimConfig::preset(Preset::Tiny).cost().unwrap();
    let maps = ["in_proj", "conv1d", "x_proj", "dt_proj", "out_proj"];
    let macs: u64 = cost.components.iter().filter(|c| maps.contains(&c.name)).map(|c| c.macs).sum();
    assert_eq!(format!("{:.2}", macs as f64 / 24e6), "52.65");
    assert_eq!(format!("{:.2}", macs as f64 / 1e9), "1.26");
}

/// What is left of the model without its head, and without the norm before it, whose parameters it
/// keeps.
#[test]
fn a_backbone_costs_what_comes_before_the_head() {
    let config = VimConfig { num_classes: 0, ..small() };
    let (whole, backbone) = (small().cost().unwrap(), config.backbone_cost().unwrap());
    let head = small().d_model as u64 * 5 + 5;
    assert_eq!(backbone.parameters() + head, whole.parameters());
    assert!(backbone.components.iter().all(|component| component.name != "head"));
    for component in &backbone.components {
        let same = whole.components.iter().find(|other| other.name == component.name).unwrap();
        if component.name == "norm" {
            // A sum, and the norm of one token.
            assert_eq!(same.flops - component.flops, 5 * small().d_model as u64 + 4);
        } else {
            assert_eq!(component, same);
        }
    }
    assert!(config.cost().is_err() && backbone == small().backbone_cost().unwrap());
}

#[test]
fn a_full_a_is_not_counted() {
    let ssm = SsmConfig { a: StateMatrix::Full, ..SsmConfig::default() };
    let config = VimConfig { discretization: Discretization::Bilinear, ssm, ..small() };
    assert!(matches!(config.cost(), Err(ModelError::Conflict { key: "ssm.a", .. })));
}
