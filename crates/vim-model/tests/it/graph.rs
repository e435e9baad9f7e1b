//! A model's forward pass as a graph, on a GPU or a software rasterizer.

use burn::tensor::{Device, Tensor};
use strum::VariantArray;
use vim_kernels::{Discretization, Graph};
use vim_model::{Bimamba, VimConfig};

use crate::support::{images, numbers, small};

fn check(config: &VimConfig, case: &str) {
    let device = Device::default();
    let model = config.init(&device, 4).unwrap();
    let of = |batch: usize, gain: f32| Tensor::<4>::from_data(images(batch, 16), &device) * gain;
    for batch in [1, 3] {
        let graph = Graph::capture(of(batch, 1.0), |images| model.forward(images)).unwrap();
        for gain in [1.0, 0.3, -2.0] {
            let replayed = graph.replay(of(batch, gain)).unwrap();
            let launched = model.forward(of(batch, gain)).unwrap();
            let [replayed, launched] = [replayed, launched].map(numbers);
            assert!(launched.iter().all(|x| x.is_finite()), "{case}");
            let bits = |all: &[f32]| all.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&replayed), bits(&launched), "{case}, {batch} images times {gain}");
        }
    }
}

#[test]
fn every_method_has_the_bits_of_its_launches() {
    for &discretization in Discretization::VARIANTS {
        check(&VimConfig { discretization, ..small() }, &discretization.to_string());
    }
}

#[test]
fn so_have_other_models() {
    let one_way = VimConfig { bimamba: Bimamba::None, ..small() };
    check(&one_way, "one way");
    let pairs = VimConfig { layer_pairs: true, bimamba: Bimamba::None, ..small() };
    check(&pairs, "pairs of layers");
}
