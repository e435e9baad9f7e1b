//! Arrays made by the original programs on a GPU: see tests/fixtures/README.md.

use std::collections::HashMap;
use std::fs::File;

use burn::tensor::Device;
use npyz::NpyFile;
use vim_kernels::oracle::OracleScan;
use vim_kernels::{Discretization, Series};
use vim_verify::Dtype;
use zip::ZipArchive;

use crate::support::{BOTH, Results, error, named};

const SIZES: [usize; 4] = [2, 8, 37, 16];

/// Every array of an `.npz` of this type, flat.
fn load<T: npyz::Deserialize + Into<f64>>(name: &str) -> HashMap<String, Vec<f64>> {
    let path = format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut file = ZipArchive::new(File::open(path).unwrap()).unwrap();
    let mut arrays = HashMap::new();
    for place in 0..file.len() {
        let entry = file.by_index(place).unwrap();
        let name = entry.name().unwrap().strip_suffix(".npy").unwrap().to_owned();
        let values: Vec<T> = NpyFile::new(entry).unwrap().into_vec().unwrap();
        arrays.insert(name, values.into_iter().map(Into::into).collect());
    }
    arrays
}

/// `[B, rows, L]` → `[B, L, rows]`.
fn channel_last(values: &[f64], rows: usize) -> Vec<f64> {
    let [batch, _, len, _] = SIZES;
    let mut out = Vec::with_capacity(values.len());
    for b in 0..batch {
        for l in 0..len {
            out.extend((0..rows).map(|r| values[(b * rows + r) * len + l]));
        }
    }
    out
}

fn check(file: &str, method: Discretization, series: Series, prefix: &str) {
    let arrays = load::<f32>(file);
    let [batch, d_inner, len, d_state] = SIZES;
    let tokens = |name: &str| channel_last(&arrays[name], d_inner);
    let scan = OracleScan {
        batch,
        len,
        d_inner,
        d_state,
        groups: 1,
        method,
        series,
        delta_softplus: true,
        u: tokens("u"),
        delta: tokens("delta"),
        a: arrays["A"].clone(),
        b: channel_last(&arrays["B"], d_state),
        c: channel_last(&arrays["C"], d_state),
        d: Some(arrays["D"].clone()),
        z: Some(tokens("z")),
        delta_bias: Some(arrays["delta_bias"].clone()),
        ..OracleScan::default()
    };
    let grad_y = tokens("grad_out");
    // The original's arrays are f32 themselves: 1e-5 forward, 5e-5 for sums of gradients.
    let verify = |who: &str, y: &[f64], grads: &vim_kernels::oracle::OracleScanGrads| {
        let off = error(y, &tokens(&format!("{prefix}.out")));
        assert!(off <= 1e-5, "{who} {method}: out is off by {off:.1e}");
        let names = ["du", "ddelta", "dA", "dB", "dC", "dD", "dz", "ddelta_bias"];
        for (name, (_, got)) in names.into_iter().zip(named(grads)) {
            let raw = &arrays[&format!("{prefix}.{name}")];
            let want = match name {
                "du" | "ddelta" | "dz" => channel_last(raw, d_inner),
                "dB" | "dC" => channel_last(raw, d_state),
                _ => raw.clone(),
            };
            let off = error(got, &want);
            assert!(off <= 5e-5, "{who} {method}: {name} is off by {off:.1e}");
        }
    };
    verify("oracle", &scan.forward().0, &scan.backward(&grad_y));
    for implementation in BOTH {
        let device = Device::flex();
        let out = Results::on_device(&scan, &grad_y, implementation, Dtype::F32, &device).unwrap();
        verify(&implementation.to_string(), &out.y, &out.grads);
    }
}

#[test]
fn zoh_equals_the_released_cuda_kernel() {
    check("scan_s1.npz", Discretization::Zoh, Series::Exact, "zoh");
}

#[test]
fn methods_equal_the_published_python() {
    // Not rk4: its published Python mixes the states of a channel (docs/discretizations.md).
    for (method, series) in [
        (Discretization::Zoh, Series::Exact),
        (Discretization::Bilinear, Series::Exact),
        (Discretization::Foh, Series::Taylor),
        (Discretization::Poly, Series::Taylor),
        (Discretization::HighOrder, Series::Taylor),
    ] {
        check("scan_fork_methods.npz", method, series, &method.to_string());
    }
}

/// By NumPy, from the paper: scripts/make_mamba3.py.
#[test]
fn the_exponential_trapezoid_is_mamba_3s() {
    let arrays = load::<f64>("mamba3.npz");
    let array = |name: &str| arrays[name].clone();
    let (len, d_inner, d_state) = (23, 3, 4);
    let scan = OracleScan {
        batch: 1,
        len,
        d_inner,
        d_state,
        groups: 1,
        method: Discretization::ExpTrapezoidal,
        u: array("x"),
        delta: array("delta"),
        a: array("A"),
        b: array("B"),
        c: array("C"),
        ..OracleScan::default()
    };
    let (y, last_state) = scan.forward();
    assert!(error(&y, &arrays["y"]) <= 1e-12, "{:.1e}", error(&y, &arrays["y"]));
    assert!(error(&last_state, &arrays["last_state"]) <= 1e-12);
}
