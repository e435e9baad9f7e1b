use burn::tensor::{Device, Tensor, TensorData};

use super::*;
use crate::FlatParams;
use crate::mixer_inner::DirectionWeights;
use crate::mixer_inner::{OfInputs, OfWeights};

/// M, D, N and R: views begin at multiples of 256 bytes, as WebGPU asks.
const SIZES: [usize; 4] = [8, 32, 4, 2];
const MIXERS: usize = 3;

/// The weights of a mixer of `parts`, which are flat, in the order of a model's parameters.
fn mixer(mut parts: impl Iterator<Item = Tensor<1>>) -> MixerWeights {
    let [m, d, n, r] = SIZES;
    fn next<const R: usize>(
        parts: &mut impl Iterator<Item = Tensor<1>>,
        shape: [usize; R],
    ) -> Tensor<R> {
        parts.next().expect("as many parts as weights").reshape(shape)
    }
    let in_proj = next(&mut parts, [m, 2 * d]);
    let mut direction = || DirectionWeights {
        a_log: next(&mut parts, [d, n]),
        d: next(&mut parts, [d]),
        conv_weight: next(&mut parts, [d, 1, 3]),
        conv_bias: next(&mut parts, [d]),
        x_proj: next(&mut parts, [d, r + 2 * n]),
        dt_proj: next(&mut parts, [r, d]),
        delta_bias: next(&mut parts, [d]),
    };
    let directions = [direction(), direction()];
    MixerWeights { in_proj, out_proj: next(&mut parts, [d, m]), directions }
}

/// Elements of the parts.
fn sizes() -> Vec<usize> {
    let [m, d, n, r] = SIZES;
    let direction = [d * n, d, 3 * d, d, d * (r + 2 * n), r * d, d];
    [&[2 * m * d][..], &direction, &direction, &[m * d]].concat()
}

fn inputs(weights: MixerWeights) -> Inputs {
    fn on_cubecl<const R: usize>(tensor: Tensor<R>) -> CubeTensor {
        tensor.try_into_primitive::<CubeBackend>().expect("on CubeCL")
    }
    let directions = weights.directions.map(|of| OfWeights {
        conv_weight: on_cubecl(of.conv_weight),
        conv_bias: on_cubecl(of.conv_bias),
        x_proj: on_cubecl(of.x_proj),
        dt_proj: on_cubecl(of.dt_proj),
        delta_bias: on_cubecl(of.delta_bias),
        a_log: on_cubecl(of.a_log),
        d: on_cubecl(of.d),
    });
    OfInputs { xz: on_cubecl(weights.in_proj), directions }
}

fn numbers<const R: usize>(tensor: &CubeTensor) -> Vec<f32> {
    let tensor = Tensor::<R>::from_primitive::<CubeBackend>(tensor.clone());
    tensor.into_data().try_to_vec().expect("f32")
}

fn all_forms(weights: &MixerWeights) -> Vec<Vec<f32>> {
    let [x_proj, dt_proj, a, d, bias] = forms(&inputs(weights.clone()), Precision::F32);
    let out_proj = all_weights(weights.clone())[1].clone();
    let half = Matrix::halved_weight(&out_proj, Precision::F32);
    let pairs = [x_proj, dt_proj].map(|pair| numbers::<3>(&pair));
    let channels = [d, bias].map(|of| numbers::<1>(&of));
    pairs.into_iter().chain(channels).chain([numbers::<2>(&a), numbers::<2>(&half)]).collect()
}

#[test]
fn forms_of_all_mixers_are_those_of_each() {
    let device = Device::default();
    let mut seed = 0.0_f32;
    // Parameters of something else lie between the mixers.
    let flat = (0..MIXERS).flat_map(|_| [sizes(), vec![24]].concat()).map(|size| {
        let numbers = (0..size).map(|_| {
            seed += 0.37;
            seed.sin()
        });
        Tensor::<1>::from_data(TensorData::new(numbers.collect::<Vec<f32>>(), [size]), &device)
    });
    let flat: Vec<Tensor<1>> = flat.collect();
    let mixers = |parts: Vec<Tensor<1>>| -> Vec<MixerWeights> {
        parts.chunks(sizes().len() + 1).map(|own| mixer(own.iter().cloned())).collect()
    };
    let apart = mixers(flat.clone());
    let want: Vec<_> = apart.iter().map(all_forms).collect();
    assert!(prepare_mixers(apart.iter().cloned(), Precision::F32).is_none(), "not packed");

    let packing = FlatParams::of(&flat);
    let mut packed = mixers(packing.parts(&packing.pack(flat)));
    // One that lies elsewhere is not found.
    packed[2].directions[1].d = apart[2].directions[1].d.clone();
    let prepared = prepare_mixers(packed.iter().cloned(), Precision::F32);
    assert!(prepared.is_some());
    let is_found = |weights: &MixerWeights| {
        let [.., a, _, _] = forms(&inputs(weights.clone()), Precision::F32);
        let [.., again, _, _] = forms(&inputs(weights.clone()), Precision::F32);
        buffer(&a) == buffer(&again)
    };
    assert_eq!(packed.iter().map(is_found).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(packed.iter().map(all_forms).collect::<Vec<_>>(), want);
    drop(prepared);
    assert!(!is_found(&packed[0]), "what was made lives no longer");
}
