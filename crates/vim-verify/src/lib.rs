//! The conformance suite of [`vim_kernels`]: every operation and every method on a device, forward
//! and backward, against loops in f64.
//!
//! A [`Check`] has a name, runs on the device of a [`Context`] and returns [`Row`]s: an array, its
//! error, the tolerance with its reason beside it in the code, and the verdict. `vim-train verify`
//! prints the rows; the tests of this crate demand that they pass.

mod adjoint;
mod agreement;
pub mod batch_norm;
pub mod bidirectional;
mod bits;
mod check;
pub mod compare;
pub mod conv;
pub mod conv3x3;
pub mod full_scan;
mod images;
pub mod layer_norm;
mod linear;
mod mixer_inner;
pub mod norm;
mod offered;
mod optimizer;
mod order;
mod product;
pub mod resize;
pub mod roi_align;
pub mod rotate_pairs;
mod row;
pub mod run;
pub mod scan;
pub mod smoke;
mod stability;

pub use check::{
    Array, Check, Context, ExplainPanic, FEW_TAYLOR, Outcome, Row, Run, Subject, Verdict, choice,
    rows_of,
};
pub use compare::Dtype;
pub use scan::preferred;
use vim_kernels::Complex;

/// Every operation that is checked, and every way in which: one entry each.
const OPERATIONS: [fn(&Context) -> Vec<Check>; 21] = [
    scan::checks::<f64>,
    scan::checks::<Complex<f64>>,
    bidirectional::checks,
    mixer_inner::checks,
    linear::checks,
    full_scan::checks,
    conv::checks,
    norm::checks,
    layer_norm::checks,
    rotate_pairs::checks,
    conv3x3::checks,
    resize::checks,
    roi_align::checks,
    batch_norm::checks,
    images::checks,
    optimizer::checks,
    adjoint::checks,
    order::checks,
    agreement::checks,
    bits::checks,
    stability::checks,
];

/// All checks for what is asked for, in a fixed order.
#[must_use]
pub fn all_checks(context: &Context) -> Vec<Check> {
    OPERATIONS.iter().flat_map(|operation| operation(context)).collect()
}
