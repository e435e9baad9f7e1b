//! The suite itself: names, order, and that all of it passes where the tests run.

use std::any::Any;
use std::collections::HashSet;

use burn::tensor::Device;
use strum::VariantArray;
use vim_kernels::{Discretization, KernelError, Precision};
use vim_verify::{Check, Context, Dtype, FEW_TAYLOR, Outcome, Subject, all_checks};

fn text(panic: &(dyn Any + Send)) -> String {
    panic.downcast_ref::<&str>().copied().unwrap_or("a panic").to_owned()
}

fn context() -> Context {
    Context {
        device: Device::flex(),
        methods: Discretization::VARIANTS.to_vec(),
        dtypes: Dtype::VARIANTS,
        quick: true,
        compiles: false,
        explain_panic: text,
    }
}

#[test]
fn names_are_unique_and_the_order_is_fixed() {
    let names = || all_checks(&context()).iter().map(Check::name).collect::<Vec<_>>();
    let set: HashSet<String> = names().into_iter().collect();
    assert_eq!(set.len(), names().len());
    assert_eq!(names(), names());
    assert!(names().contains(&"oracle/selective_scan/rk4/taylor/kernel/f32".to_owned()));
}

#[test]
fn a_panic_fails_its_check_alone() {
    let mut checks = all_checks(&context());
    let mut check = checks.swap_remove(0);
    check.run = Box::new(|_, _| panic!("the kernel does not compile"));
    let outcome = Outcome::of(&check, &context(), 1.0);
    assert!(outcome.failed());
    assert!(outcome.error.is_some_and(|text| text.contains("does not compile")));
}

/// Whatever a device refuses on the way, it was not known to lack.
#[test]
fn a_refusal_fails_its_check() {
    let refusals = [
        KernelError::Dtype { operation: "linear", tensor: "x", got: "bf16".into() },
        KernelError::NoKernel { device: "this one".into() },
        KernelError::NoPrecision { device: "this one".into(), precision: Precision::Bf16 },
    ];
    for refusal in refusals {
        let mut check = all_checks(&context()).swap_remove(0);
        let text = refusal.to_string();
        check.run = Box::new(move |_, _| Err(refusal.clone()));
        let outcome = Outcome::of(&check, &context(), 1.0);
        assert!(outcome.failed() && outcome.skipped.is_none(), "{text}");
        assert_eq!(outcome.error, Some(text));
    }
}

#[test]
fn a_check_that_compares_nothing_fails() {
    let mut check = all_checks(&context()).swap_remove(0);
    check.run = Box::new(|_, _| Ok(Vec::new()));
    let outcome = Outcome::of(&check, &context(), 1.0);
    assert!(outcome.failed() && outcome.error.is_some());
}

/// On a GPU, `--quick` still has every operation, every method and both ways, and passes.
#[test]
fn few_kernels_are_of_every_method() {
    let context = Context { compiles: true, ..context() };
    let kernels: Vec<Check> = all_checks(&context)
        .into_iter()
        .filter(|check| check.implementation == "kernel" && check.dtype == "f32")
        .collect();
    let names: Vec<String> = kernels.iter().map(Check::name).collect();
    let of = |part: &str| names.iter().filter(|name| name.starts_with(part)).count();
    let methods = Discretization::VARIANTS.len();
    assert_eq!(of("oracle/selective_scan/"), methods + FEW_TAYLOR, "{names:?}");
    let published = Discretization::VARIANTS.iter().filter(|method| method.form().published);
    let complex = published.count() + FEW_TAYLOR;
    assert_eq!(of("oracle/selective_scan_complex/"), complex, "{names:?}");
    for operation in ["full_scan", "causal_conv1d", "add_rms_norm"] {
        assert_eq!(of(&format!("oracle/{operation}/")), 1, "{names:?}");
    }
    assert_eq!(of("oracle/selective_scan_bidirectional/"), methods, "{names:?}");
    assert_eq!(of("bits/"), 1, "{names:?}");
    assert_eq!(of("stability/"), methods, "{names:?}");
    for check in kernels {
        let outcome = Outcome::of(&check, &context, 1.0);
        // The CPU has no kernel for complex A.
        let absent = check.operation == "selective_scan_complex";
        assert_eq!(outcome.skipped.is_some(), absent, "{}", outcome.name);
        assert!(!outcome.failed(), "{}: {:?}", outcome.name, outcome.worst());
    }
}

#[test]
fn the_suite_passes_on_the_cpu() {
    let context = context();
    for check in all_checks(&context) {
        let outcome = Outcome::of(&check, &context, 1.0);
        assert!(!outcome.failed(), "{}: {:?} {:?}", outcome.name, outcome.worst(), outcome.error);
    }
}

#[test]
fn the_gradients_of_the_loops_match_finite_differences_in_every_form() {
    let context = Context { quick: false, ..context() };
    let adjoint = |check: &Check| check.subject == Subject::Adjoint;
    for check in all_checks(&context).into_iter().filter(adjoint) {
        let outcome = Outcome::of(&check, &context, 1.0);
        assert!(outcome.passed, "{}: {:?} {:?}", outcome.name, outcome.worst(), outcome.error);
    }
}
