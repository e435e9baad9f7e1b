//! Two scans in opposite directions at once, for a bidirectional mixer.

use burn::backend::Dispatch;
use burn::tensor::{Device, Tensor};

use super::shapes::ScanShapes;
use super::{ScanBackend, ScanCall, ScanOptions, ScanSpec, selective_scan};
use vim_kernels_core::check::{ShapeAndType, expect, shape_of};
use vim_kernels_core::{Implementation, KernelError, record_run, runs_cubecl};

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
    let two = |name, dims: &[usize]| {
        let expected = "[2, …]: one part for each direction".to_string();
        expect("selective_scan", name, dims, dims[0] == 2, expected)
    };
    two("u", &u.dims())?;
    two("delta", &delta.dims())?;
    two("a", &a.dims())?;
    two("b", &b.dims())?;
    two("c", &c.dims())?;
    d.as_ref().map_or(Ok(()), |d| two("d", &d.dims()))?;
    delta_bias.as_ref().map_or(Ok(()), |bias| two("delta_bias", &bias.dims()))?;
    let device = u.device();
    options.check_series("selective_scan")?;
    let implementation = options.choice.resolve(&device)?;
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
    let rows = |t: Tensor<4>| t.flatten::<3>(0, 1); // [2·B, L, …]
    let inputs = ScanCall {
        u: rows(u),
        delta: rows(delta),
        a: a.flatten::<2>(0, 1),
        b: rows(b).unsqueeze_dim(2),
        c: rows(c).unsqueeze_dim(2),
        d: d.map(|d| d.flatten(0, 1)),
        z,
        delta_bias: delta_bias.map(|bias| bias.flatten(0, 1)),
    };
    let spec = ScanSpec { bidirectional: true, ..ScanSpec::new(options, &inputs, false, false) };
    shapes.check_scan_size(spec, 2)?;
    record_run("selective_scan", implementation);
    let arguments = inputs.into_arguments();
    Ok(Tensor::from_dispatch(Dispatch::selective_scan(arguments, spec).y))
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
