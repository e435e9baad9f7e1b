//! 1 and 4: every method receives the same inputs, changes none, and agrees with loops in f64.

use burn::tensor::{Tensor, TensorData};
use serde_json::json;
use strum::VariantArray;
use vim_kernels::{Discretization, Series};
use vim_verify::smoke::{Smoke, mixers};

use super::super::Finding;
use super::Bench;
use crate::error::Error;
use crate::fatal::explain;
use crate::work::profile::scan::Inputs;

/// Hexadecimal digits of a checksum that are shown.
const SHOWN: usize = 12;

#[derive(Clone, Debug, PartialEq, Eq)]
struct ScanInput {
    name: &'static str,
    shape: Vec<usize>,
    dtype: String,
    blake3: String,
}

impl ScanInput {
    fn new(name: &'static str, data: &TensorData) -> Self {
        Self {
            name,
            shape: data.shape().to_vec(),
            dtype: data.dtype().name().to_owned(),
            blake3: blake3::hash(data.as_bytes()).to_hex()[..SHOWN].to_owned(),
        }
    }
}

/// The inputs of a method before and after its run.
struct Ran {
    method: Discretization,
    before: Vec<ScanInput>,
    after: Vec<ScanInput>,
}

/// Makes each method's inputs as the comparison does and compares their bytes before and after a
/// run.
pub(super) fn same(bench: &Bench) -> Result<Vec<Finding>, Error> {
    let mut runs = Vec::new();
    for &method in Discretization::VARIANTS {
        let inputs = bench.inputs(true);
        let before = given(&inputs);
        let options = bench.options(method, Series::Exact);
        inputs.clone().scan(options)?.y.backward();
        runs.push(Ran { method, before, after: given(&inputs) });
    }
    let inputs = bench.inputs(false);
    let mut findings = compared(&runs);
    for (name, x) in [("b", inputs.b), ("c", inputs.c)] {
        findings.push(in_time(name, x));
    }
    Ok(findings)
}

fn given(inputs: &Inputs) -> Vec<ScanInput> {
    let Inputs { u, delta, z, a, b, c, d, delta_bias } = inputs.clone();
    let three = [("u", u), ("delta", delta), ("z", z), ("b", b), ("c", c)];
    let one = [("d", d), ("delta_bias", delta_bias)];
    let mut all = three.map(|(name, x)| ScanInput::new(name, &x.into_data())).to_vec();
    all.push(ScanInput::new("a", &a.into_data()));
    all.extend(one.map(|(name, x)| ScanInput::new(name, &x.into_data())));
    all
}

/// One finding per tensor: all methods received the same bytes and left them unchanged.
fn compared(runs: &[Ran]) -> Vec<Finding> {
    let Some(Ran { before: first, .. }) = runs.first() else { return Vec::new() };
    let line = |(at, given): (usize, &ScanInput)| {
        let what = format!("1 input {}", given.name);
        let ScanInput { shape, dtype, blake3, .. } = given;
        let detail = format!("{shape:?} {dtype} blake3 {blake3}");
        let others = |which: fn(&Ran) -> &Vec<ScanInput>| {
            let other = runs.iter().filter(|run| which(run).get(at) != Some(given));
            other.map(|run| run.method.to_string()).collect::<Vec<_>>()
        };
        let (differ, changed) = (others(|run| &run.before), others(|run| &run.after));
        let amiss = match (&differ[..], &changed[..]) {
            ([], []) => None,
            ([], _) => Some(format!("changed by {}", changed.join(", "))),
            (_, _) => Some(format!("but not for {}", differ.join(", "))),
        };
        let finding = match (amiss, runs.len()) {
            (None, methods) => {
                let same = format!("{detail}, the same for {methods} methods, before and after");
                Finding::pass(what, same)
            }
            (Some(amiss), _) => {
                let advice = "the methods cannot be compared here: please report it";
                Finding::fail(what, format!("{detail}, {amiss}"), advice)
            }
        };
        finding.with([("shape", json!(shape)), ("dtype", json!(dtype)), ("blake3", json!(blake3))])
    };
    first.iter().enumerate().map(line).collect()
}

/// Checks that a projection varies over the tokens, as in a model; a constant one makes a scan
/// easier.
fn in_time(name: &str, x: Tensor<3>) -> Finding {
    let what = format!("1 input {name}[t]");
    let [batch, len, width] = x.dims();
    if len < 2 {
        return Finding::warn(what, "one token", "choose --seqlen above 1");
    }
    let from = |first: usize| x.clone().slice([0..batch, first..first + len - 1, 0..width]);
    let steps = from(1) - from(0);
    let least = steps.abs().max_dim(2).min().into_data().iter().next();
    let least: f32 = least.unwrap_or(0.0);
    if least > 0.0 {
        return Finding::pass(what, "differs between any two neighbouring tokens, as in a model");
    }
    Finding::fail(what, "the same for some neighbouring tokens", "please report it")
}

/// One finding per method, over the operations of a mixer.
pub(super) fn agree(bench: &Bench) -> Result<Vec<Finding>, Error> {
    let ran: Vec<Smoke> =
        mixers(&bench.chosen.device, !bench.chosen.is_cpu(), bench.implementation, explain)
            .collect();
    let of = |method: Discretization| ran.iter().filter(move |one| one.method == method);
    let line = |&method: &Discretization| path(method, &of(method).collect::<Vec<_>>());
    Ok(Discretization::VARIANTS.iter().map(line).collect())
}

fn path(method: Discretization, ran: &[&Smoke]) -> Finding {
    let what = format!("4 path {method}");
    let advice =
        "training and its times mean nothing here: see what `vim-train verify` says on this device";
    let Some(first) = ran.first() else {
        return Finding::fail(what, "nothing ran", advice);
    };
    let operations: Vec<&str> = ran.iter().map(|one| one.operation).collect();
    let farthest = [0, 1].map(|way| {
        let rows = ran.iter().filter_map(|one| one.closest[way].as_ref());
        rows.max_by(|one, two| one.compared(two))
    });
    let figures = farthest.map(|row| row.map_or(json!(null), |row| json!(row.max)));
    let error = |at: usize| {
        farthest[at].map_or_else(
            || "nothing".to_owned(),
            |row| format!("{} {:.1e} of {:.1e}", row.array, row.max, row.tolerance),
        )
    };
    let failure = ran.iter().find_map(|one| {
        Some(format!("{} by the {}: {}", one.operation, one.implementation, one.failure.as_ref()?))
    });
    let finding = match failure {
        Some(failure) => Finding::fail(what, failure, advice),
        None => Finding::pass(
            what,
            format!(
                "{} forward (off by {}) and backward (off by {}); {}",
                first.implementation,
                error(0),
                error(1),
                operations.join(", ")
            ),
        ),
    };
    let [forward, backward] = figures;
    finding.with([
        ("implementation", json!(first.implementation)),
        ("operations", json!(operations)),
        ("forward_error", forward),
        ("backward_error", backward),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::super::Verdict;
    use super::*;

    #[test]
    fn other_numbers_and_changed_ones_fail() {
        let given = |hash: &str| {
            let (dtype, blake3) = ("f32".to_owned(), hash.to_owned());
            vec![ScanInput { name: "u", shape: vec![1, 2, 3], dtype, blake3 }]
        };
        let verdict = |foh_before: &str, foh_after: &str| {
            let ran =
                |method, before, after| Ran { method, before: given(before), after: given(after) };
            let (zoh, foh) = (Discretization::Zoh, Discretization::Foh);
            let runs = [ran(zoh, "aa", "aa"), ran(foh, foh_before, foh_after)];
            let found = compared(&runs);
            assert_eq!(found.len(), 1);
            (found[0].verdict, found[0].detail.clone())
        };
        assert_eq!(verdict("aa", "aa").0, Verdict::Pass);
        let (failed, detail) = verdict("bb", "bb");
        assert!(failed == Verdict::Fail && detail.contains("not for foh"), "{detail}");
        let (failed, detail) = verdict("aa", "bb");
        assert!(failed == Verdict::Fail && detail.contains("changed by foh"), "{detail}");
    }

    #[test]
    fn constant_projections_fail() {
        let device = burn::tensor::Device::flex();
        let constant = Tensor::<3>::ones([2, 4, 3], &device);
        assert_eq!(in_time("b", constant).verdict, Verdict::Fail);
    }

    #[test]
    fn one_operation_that_is_off_fails_its_method() {
        let smoke = |operation, failure: Option<&str>| Smoke {
            method: Discretization::Foh,
            operation,
            implementation: "kernel".into(),
            seconds: 0.1,
            closest: [None, None],
            failure: failure.map(str::to_owned),
        };
        let good = smoke("selective_scan", None);
        let bad = smoke("selective_scan_bidirectional", Some("y is off by 1.0e0, 1.0e-5 allowed"));
        assert_eq!(path(Discretization::Foh, &[&good]).verdict, Verdict::Pass);
        let both = path(Discretization::Foh, &[&good, &bad]);
        assert_eq!(both.verdict, Verdict::Fail);
        assert!(
            both.detail.contains("selective_scan_bidirectional by the kernel: y is off"),
            "{both:?}"
        );
        assert_eq!(path(Discretization::Foh, &[]).verdict, Verdict::Fail);
    }
}
