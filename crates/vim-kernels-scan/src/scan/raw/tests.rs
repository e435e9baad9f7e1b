use strum::VariantArray;

use super::*;
use crate::{Discretization, oracle::OracleScan};

/// Numbers in [-1, 1) that repeat after 101.
fn numbers(count: usize, salt: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + salt * 53) % 101) as f32 / 50.5 - 1.0).collect()
}

/// The inputs of a scan of `[B, L, D, N, G]`, in the order of the arguments, with their shapes.
fn arrays([batch, len, d_inner, d_state, groups]: [usize; 5]) -> [(Vec<f32>, Vec<usize>); 8] {
    let shapes = [
        vec![batch, len, d_inner],
        vec![batch, len, d_inner],
        vec![d_inner, d_state],
        vec![batch, len, groups, d_state],
        vec![batch, len, groups, d_state],
        vec![d_inner],
        vec![batch, len, d_inner],
        vec![d_inner],
    ];
    let mut arrays = shapes.map(|shape| (numbers(shape.iter().product(), shape.len()), shape));
    arrays[2].0.iter_mut().for_each(|a| *a = -0.1 - a.abs());
    arrays
}

fn scan(arrays: &[(Vec<f32>, Vec<usize>); 8], method: Discretization) -> RawScan<Slice<'_>> {
    let options = ScanOptions { method, delta_softplus: true, ..ScanOptions::default() };
    let [u, delta, a, b, c, d, z, delta_bias] =
        arrays.each_ref().map(|(values, shape)| Slice { values, shape });
    let (d, z, delta_bias) = (Some(d), Some(z), Some(delta_bias));
    RawScan { options, u, delta, a, b, c, d, z, delta_bias }
}

const SIZES: [[usize; 5]; 3] = [[2, 37, 24, 5, 2], [1, 1, 1, 1, 1], [1, 17, 80, 16, 1]];

#[test]
fn what_is_wanted_alone_has_the_same_bits_and_nothing_else_is_there() {
    for sizes in SIZES {
        let arrays = arrays(sizes);
        for method in Discretization::VARIANTS {
            let scan = scan(&arrays, *method);
            let out = scan.forward(true).unwrap();
            let saved = out.saved.unwrap();
            let [batch, len, d_inner, d_state, groups] = sizes;
            let of = RawSizes { batch, len, d_inner, d_state, groups };
            assert_eq!(saved.len(), of.on_cpu(scan.options));
            let grad_y = numbers(out.y.len(), 9);
            let all = scan.backward(&grad_y, &saved, [true; 8]).unwrap();
            for input in 0..8 {
                let wanted = std::array::from_fn(|i| i == input);
                let one = scan.backward(&grad_y, &saved, wanted).unwrap();
                for (i, (one, all)) in one.iter().zip(&all).enumerate() {
                    let expected = if i == input { all } else { &None };
                    assert!(one == expected, "{method} {sizes:?} {input} {i}");
                }
            }
            let none = scan.backward(&grad_y, &saved, [false; 8]).unwrap();
            assert_eq!(none, [const { None }; 8]);
        }
    }
}

#[test]
fn it_is_the_oracle_s_scan() {
    for sizes @ [batch, len, d_inner, d_state, groups] in SIZES {
        let arrays = arrays(sizes);
        for method in Discretization::VARIANTS {
            let scan = scan(&arrays, *method);
            let wide = |i: usize| -> Vec<f64> { arrays[i].0.iter().map(|&x| x.into()).collect() };
            let oracle = OracleScan {
                batch,
                len,
                d_inner,
                d_state,
                groups,
                method: *method,
                delta_softplus: true,
                u: wide(0),
                delta: wide(1),
                a: wide(2),
                b: wide(3),
                c: wide(4),
                d: Some(wide(5)),
                z: Some(wide(6)),
                delta_bias: Some(wide(7)),
                ..OracleScan::default()
            };
            let near = |got: &[f32], expected: &[f64], what: &str| {
                let scale = expected.iter().fold(1.0f64, |most, x| most.max(x.abs()));
                assert_eq!(got.len(), expected.len(), "{method} {what}");
                for (got, expected) in got.iter().zip(expected) {
                    // Rounding of f32 over 37 tokens and 24 channels.
                    let far = (f64::from(*got) - expected).abs();
                    assert!(far < 2e-5 * scale, "{method} {sizes:?} {what}: {got} {expected}");
                }
            };
            let out = scan.forward(true).unwrap();
            let (y, last_state) = oracle.forward();
            near(&out.y, &y, "y");
            near(&out.last_state, &last_state, "last state");
            let grad_y = numbers(y.len(), 9);
            let grads = scan.backward(&grad_y, &out.saved.unwrap(), [true; 8]).unwrap();
            let wide: Vec<f64> = grad_y.iter().map(|&x| x.into()).collect();
            let expected = oracle.backward(&wide);
            let expected = [
                expected.u,
                expected.delta,
                expected.a,
                expected.b,
                expected.c,
                expected.d,
                expected.z,
                expected.delta_bias,
            ];
            for (i, (got, expected)) in grads.iter().zip(&expected).enumerate() {
                near(got.as_ref().unwrap(), expected, &format!("gradient {i}"));
            }
        }
    }
}

#[test]
fn a_wrong_array_is_named() {
    let arrays = arrays(SIZES[0]);
    let scan = scan(&arrays, Discretization::Zoh);
    let named = |scan: &RawScan<Slice<'_>>| {
        let error = scan.forward(false).err().unwrap();
        let KernelError::Shape { tensor, .. } = error else { panic!("{error}") };
        tensor
    };
    let short = Slice { values: &[0.0; 3], shape: scan.u.shape };
    let flat = Slice { values: scan.a.values, shape: &[120] };
    assert_eq!(named(&RawScan { u: short, ..scan.clone() }), "u");
    assert_eq!(named(&RawScan { a: flat, ..scan.clone() }), "a");
    assert_eq!(named(&RawScan { z: Some(scan.a), ..scan.clone() }), "z");
    assert_eq!(named(&RawScan { b: scan.c, c: flat, ..scan.clone() }), "c");
    let saved = scan.backward(scan.u.values, &[], [true; 8]).err().unwrap();
    assert!(saved.to_string().contains("`saved` has shape [0]"), "{saved}");
}

/// On a GPU: the CPU's numbers within the rounding of f32, what is wanted alone as well.
#[cfg(feature = "wgpu")]
#[test]
fn a_gpu_s_buffers_give_the_same() {
    use burn::tensor::{Device, Tensor, TensorData};

    let device = Device::default();
    let on = |values: &[f32], shape: &[usize]| -> CubeTensor {
        let flat = TensorData::new(values.to_vec(), [values.len()]);
        let flat = Tensor::<1>::from_data(flat, &device);
        let flat = flat.try_into_primitive::<CubeBackend>().expect("a GPU's");
        <CubeBackend as burn::backend::ops::FloatTensorOps<CubeBackend>>::float_reshape(
            flat,
            shape.to_vec().into(),
        )
    };
    let read = |tensor: CubeTensor| -> Vec<f32> {
        let count = tensor.meta.shape().num_elements();
        let flat = <CubeBackend as burn::backend::ops::FloatTensorOps<CubeBackend>>::float_reshape(
            tensor,
            [count].into(),
        );
        Tensor::<1>::from_primitive::<CubeBackend>(flat).into_data().try_to_vec::<f32>().unwrap()
    };
    for sizes in SIZES {
        let arrays = arrays(sizes);
        for method in [Discretization::Zoh, Discretization::Foh, Discretization::Bilinear] {
            let host = scan(&arrays, method);
            let of = |slice: Slice<'_>| on(slice.values, slice.shape);
            let gpu = RawScan {
                options: host.options,
                u: of(host.u),
                delta: of(host.delta),
                a: of(host.a),
                b: of(host.b),
                c: of(host.c),
                d: host.d.map(of),
                z: host.z.map(of),
                delta_bias: host.delta_bias.map(of),
            };
            let expected = host.forward(true).unwrap();
            let out = gpu.forward(true).unwrap();
            let near = |got: &[f32], expected: &[f32], what: &str| {
                let scale = expected.iter().fold(1.0f32, |most, x| most.max(x.abs()));
                for (got, expected) in got.iter().zip(expected) {
                    assert!((got - expected).abs() < 2e-5 * scale, "{method} {sizes:?} {what}");
                }
            };
            near(&read(out.y.clone()), &expected.y, "y");
            near(&read(out.last_state), &expected.last_state, "last state");
            let saved = out.saved.unwrap();
            let [batch, len, d_inner, d_state, groups] = sizes;
            let count = RawSizes { batch, len, d_inner, d_state, groups }.on_gpu(host.options);
            assert_eq!(saved.meta.shape().num_elements(), count);
            let grad_y = numbers(expected.y.len(), 9);
            let on_gpu = || on(&grad_y, host.u.shape);
            let all = host.backward(&grad_y, &expected.saved.unwrap(), [true; 8]).unwrap();
            let together = gpu
                .backward(on_gpu(), saved.clone(), [true; 8])
                .unwrap()
                .map(|grad| read(grad.expect("wanted")));
            for input in 0..8 {
                near(&together[input], all[input].as_ref().unwrap(), "a gradient");
                // Each is a kernel to compile.
                if method != Discretization::Zoh || sizes != SIZES[0] {
                    continue;
                }
                let wanted = std::array::from_fn(|i| i == input);
                let alone = gpu.backward(on_gpu(), saved.clone(), wanted).unwrap();
                for (i, grad) in alone.into_iter().enumerate() {
                    assert_eq!(grad.is_some(), i == input);
                    // Another kernel, in which a compiler may contract other operations.
                    if let Some(grad) = grad {
                        near(&read(grad), &together[i], "a gradient alone");
                    }
                }
            }
            let none = gpu.backward(on_gpu(), saved, [false; 8]).unwrap();
            assert!(none.iter().all(Option::is_none));
        }
    }
}
