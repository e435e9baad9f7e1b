//! Two scans in opposite directions at once, for a bidirectional mixer.

use burn::backend::Dispatch;
use burn::tensor::{DType, Device, Tensor};

use super::autodiff::{ScanArguments, ScanBackend};
use super::shapes::ScanShapes;
use super::{ScanOptions, ScanSpec, selective_scan};
use crate::check::{ShapeAndType, expect, shape_of};
use crate::dispatch::{Implementation, record_run, runs_cubecl};
use crate::error::KernelError;

/// Whether the kernel of `device` runs both directions in one launch: on a GPU. On other devices
/// [`selective_scan_bidirectional`] makes two calls and copies the halves of its inputs.
#[must_use]
pub fn has_bidirectional_scan(device: &Device) -> bool {
    runs_cubecl(device)
}

/// The sum of two scans over the same tokens, the second in the other direction and with inputs
/// and weights of its own.
///
/// `selective_scan(u[0], …, options) + selective_scan(u[1], …, options)`, the second with `reverse`
/// flipped, both with the same gate: one launch per pass where [`has_bidirectional_scan`], else
/// two.
///
/// # Shapes
///
/// - `u`, `delta`: `[2, B, L, D]`
/// - `a`: `[2, D, N]`
/// - `b`, `c`: `[2, B, L, N]`
/// - `d`, `delta_bias`: `[2, D]`
/// - `z`, and the result: `[B, L, D]`
///
/// # Errors
///
/// As [`selective_scan`]; shapes are named as it sees them, with both directions' batch elements
/// and channels in one.
///
/// # Source
///
/// Zhu et al. 2024, algorithm 1.
#[expect(clippy::too_many_arguments, reason = "the operation has these inputs")]
pub fn selective_scan_bidirectional(
    u: Tensor<4>,
    delta: Tensor<4>,
    a: Tensor<3>,
    b: Tensor<4>,
    c: Tensor<4>,
    d: Option<Tensor<2>>,
    z: Option<Tensor<3>>,
    delta_bias: Option<Tensor<2>>,
    options: ScanOptions,
) -> Result<Tensor<3>, KernelError> {
    check_both(&u, &delta, &a, &b, &c, d.as_ref(), delta_bias.as_ref())?;
    let device = u.device();
    let implementation = options.choice.resolve(&device)?;
    let spec = ScanSpec {
        options,
        bidirectional: true,
        has_d: d.is_some(),
        has_z: z.is_some(),
        has_delta_bias: delta_bias.is_some(),
        b_constant: false,
        c_constant: false,
        compact_states: false,
    };
    let shapes = ScanShapes {
        operation: "selective_scan",
        u: one_of(&u),
        delta: one_of(&delta),
        a: one_of(&a),
        b: grouped(one_of(&b)),
        c: grouped(one_of(&c)),
        d: d.as_ref().map(one_of),
        z: z.as_ref().map(shape_of),
        delta_bias: delta_bias.as_ref().map(one_of),
        b_constant: false,
        c_constant: false,
    };
    shapes.check(&device)?;
    if implementation == Implementation::Reference || !has_bidirectional_scan(&device) {
        let one = |direction: usize| {
            selective_scan(
                part(&u, direction),
                part(&delta, direction),
                part::<3, 2>(&a, direction),
                part::<4, 3>(&b, direction),
                part::<4, 3>(&c, direction),
                d.as_ref().map(|d| part(d, direction)),
                z.clone(),
                delta_bias.as_ref().map(|bias| part(bias, direction)),
                ScanOptions { reverse: options.reverse ^ (direction == 1), ..options },
            )
        };
        return Ok(one(0)?.y + one(1)?.y);
    }
    shapes.check_scan_size(spec, 2)?;
    record_run("selective_scan", implementation);
    let dtype = u.dtype();
    let absent = || Tensor::<1>::zeros([1], (&device, DType::F32));
    // A backend extension has no optional tensors: an absent input is passed as one zero, and the
    // spec says that it is absent.
    let d = d.map_or_else(absent, |d| d.flatten::<1>(0, 1));
    let delta_bias = delta_bias.map_or_else(absent, |bias| bias.flatten::<1>(0, 1));
    let z = z.unwrap_or_else(|| Tensor::<3>::zeros([1, 1, 1], (&device, dtype)));
    let rows = |t: Tensor<4>| t.flatten::<3>(0, 1); // [2·B, L, …]
    let arguments = ScanArguments {
        u: rows(u).into_dispatch(),
        delta: rows(delta).into_dispatch(),
        a: a.flatten::<2>(0, 1).into_dispatch(),
        b: rows(b).unsqueeze_dim::<4>(2).into_dispatch(),
        c: rows(c).unsqueeze_dim::<4>(2).into_dispatch(),
        d: d.into_dispatch(),
        z: z.into_dispatch(),
        delta_bias: delta_bias.into_dispatch(),
    };
    Ok(Tensor::from_dispatch(Dispatch::selective_scan(arguments, spec).y))
}

/// Checks that every input with a part per direction has two.
fn check_both(
    u: &Tensor<4>,
    delta: &Tensor<4>,
    a: &Tensor<3>,
    b: &Tensor<4>,
    c: &Tensor<4>,
    d: Option<&Tensor<2>>,
    delta_bias: Option<&Tensor<2>>,
) -> Result<(), KernelError> {
    let two = |name, dims: &[usize]| {
        let expected = "[2, …]: one part for each direction".to_string();
        expect("selective_scan", name, dims, dims[0] == 2, expected)
    };
    two("u", &u.dims())?;
    two("delta", &delta.dims())?;
    two("a", &a.dims())?;
    two("b", &b.dims())?;
    two("c", &c.dims())?;
    d.map_or(Ok(()), |d| two("d", &d.dims()))?;
    delta_bias.map_or(Ok(()), |bias| two("delta_bias", &bias.dims()))
}

/// The shape of one direction's part.
fn one_of<const R: usize, const S: usize>(both: &Tensor<R>) -> ShapeAndType<S> {
    let dims = both.dims();
    (std::array::from_fn(|i| dims[i + 1]), both.dtype())
}

/// B or C with one group.
fn grouped(([batch, len, d_state], dtype): ShapeAndType<3>) -> ShapeAndType<4> {
    ([batch, len, 1, d_state], dtype)
}

/// One of two along the first axis.
fn part<const R: usize, const S: usize>(both: &Tensor<R>, direction: usize) -> Tensor<S> {
    both.clone().narrow(0, direction, 1).squeeze_dim(0)
}
