use burn::tensor::{Device, Tensor, TensorData};
use burn_cubecl::CubeBackend;

use super::*;
use vim_kernels_core::cube::sum::sum_rows;
use vim_kernels_ops::for_mixer::matmul::add_parts;

/// D and N: results begin at multiples of 256 bytes, as WebGPU asks.
const SIZES: [usize; 2] = [32, 4];

fn numbers(count: usize, seed: f32) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * 0.37 + seed).sin()).collect()
}

pub(in crate::mixer_inner) fn on_device<const R: usize>(
    numbers: Vec<f32>,
    shape: [usize; R],
) -> CubeTensor {
    let tensor = Tensor::<R>::from_data(TensorData::new(numbers, shape), &Device::default());
    // Dense, however Burn stores it.
    vim_kernels_core::cube::dense(tensor.try_into_primitive::<CubeBackend>().expect("a GPU's"))
}

pub(in crate::mixer_inner) fn values(tensor: &CubeTensor) -> Vec<f32> {
    let tensor = Tensor::<1>::from_primitive::<CubeBackend>(tensor.clone());
    tensor.into_data().try_to_vec().expect("f32")
}

/// The sums of the columns of `rows` rows, in f64.
fn column_sums(of: &[f32], rows: usize) -> Vec<f64> {
    let width = of.len() / rows;
    (0..width).map(|i| (0..rows).map(|row| f64::from(of[row * width + i])).sum()).collect()
}

fn close(got: &[f32], want: impl IntoIterator<Item = f64>, what: &str) {
    for (i, (&got, want)) in got.iter().zip(want).enumerate() {
        // Sums of at most forty numbers up to 1.
        assert!((f64::from(got) - want).abs() < 2e-5, "{what} {i}: {got} for {want}");
    }
}

#[test]
fn sums_of_weights_are_those_of_launches_of_their_own() {
    let [d, n] = SIZES;
    // Up to sixteen rows of a scan's sums are added by one unit, more by eight.
    for (rows, parts, taps) in [(3, 1, 5), (16, 9, 33), (40, 20, 300)] {
        let products = |width: usize, seed: f32| {
            let stored = numbers(2 * parts * width, seed);
            let parts_of = on_device(stored, [2 * parts * width]);
            GradientParts { parts: parts_of, sizes: [2, parts, width] }
        };
        let (x_proj, dt_proj) = (products(d * 12, 1.0), products(d * 4, 2.0));
        let alone = [&x_proj, &dt_proj].map(|of| {
            let out = on_device(vec![0.0; 2 * of.sizes[2]], [2 * of.sizes[2]]);
            add_parts(&of.parts, of.sizes, &out);
            values(&out)
        });
        let columns = 2 * d * 4;
        let of_taps = on_device(numbers(taps * columns, 3.0), [taps * columns]);
        let taps_alone = on_device(vec![0.0; columns], [columns]);
        sum_rows(of_taps.clone(), taps, columns, columns, &taps_alone, &taps_alone);
        let scan = [2 * d * n, 2 * d, 2 * d].map(|width| numbers(rows * width, width as f32));
        let table = |i: usize, transposed: bool| {
            let width = scan[i].len() / rows;
            let stored = on_device(scan[i].clone(), [scan[i].len()]);
            (stored, (rows, width, transposed, [width, width]))
        };
        let a = numbers(2 * d * n, 7.0);
        let parts_of = WeightParts {
            x_proj,
            dt_proj,
            taps: TapParts { parts: of_taps, rows: taps, columns },
            scan: [table(0, true), table(1, false), table(2, false)],
        };
        let got = parts_of.add(&on_device(a.clone(), [2 * d, n]), SIZES);
        assert_eq!([values(&got.x_proj), values(&got.dt_proj)], alone, "{rows} {parts}");
        assert_eq!(values(&got.taps), values(&taps_alone), "{taps}");
        // Columns `[2, N, D]` become `[2, D, N]`.
        let sums = column_sums(&scan[0], rows);
        let at = |i: usize| i / (n * d) * n * d + i % n * d + i / n % d;
        let want = (0..a.len()).map(|i| sums[at(i)] * f64::from(a[i]));
        close(&values(&got.a_log), want, "a_log");
        close(&values(&got.d), column_sums(&scan[1], rows), "d");
        close(&values(&got.delta_bias), column_sums(&scan[2], rows), "bias");
    }
}

#[test]
fn sums_of_tokens_go_where_they_belong() {
    let [batch, len, n] = [2, 5, 4];
    let (strips, tokens, pitch) = (3, batch * len, 12);
    // B and C of both directions lie in rows of `pitch`, behind two other columns.
    let grad = on_device(vec![9.0; 2 * tokens * pitch], [2 * tokens * pitch]);
    let stored = [1.0, 2.0].map(|seed| numbers(strips * 2 * tokens * n, seed));
    let table = |i: usize| {
        let sizes = (strips, 2 * tokens * n, false, [n, pitch]);
        (on_device(stored[i].clone(), [stored[i].len()]), sizes)
    };
    // WebGPU binds no view that begins in the middle of a row: each has a buffer of its own.
    let into = [grad.clone(), on_device(vec![9.0; 2 * tokens * pitch], [2 * tokens * pitch])];
    add_token_parts([table(0), table(1)], into.each_ref());
    for (of, to) in stored.iter().zip(&into) {
        let (sums, got) = (column_sums(of, strips), values(to));
        let rows = got.chunks_exact(pitch).zip(sums.chunks_exact(n));
        for (got, want) in rows {
            close(&got[..n], want.iter().copied(), "B or C");
            assert!(got[n..].iter().all(|&x| x == 9.0), "the rest of a row is left");
        }
    }
}
