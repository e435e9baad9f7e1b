//! A bidirectional mixer between its outer projections, as one operation.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
mod native;

use burn::backend::Dispatch;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Device, Tensor};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use burn_cubecl::{CubeBackend, tensor::CubeTensor};

use vim_kernels_core::check::{check_dtypes, check_rows, expect};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use vim_kernels_core::cube::primitive;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use vim_kernels_core::op::FusedOp;
use vim_kernels_core::op::{Single, Tensors, fused_op, tensors};
use vim_kernels_core::{
    Implementation, KernelError, Precision, device_name, record_run, runs_cubecl, runs_cuda,
    runs_native,
};
use vim_kernels_scan::ScanOptions;
use vim_kernels_scan::for_mixer::{ScanShapes, ScanSpec};

const OPERATION: &str = "mixer_inner";

/// Whether [`mixer_inner`] runs on `device`: on a CPU and on CUDA. On GPUs it passes views with
/// arbitrary offsets, which WebGPU does not bind.
#[must_use]
pub fn has_fused_mixer(device: &Device) -> bool {
    runs_native(device) || runs_cuda(device)
}

/// Weights of one direction of the mixer, f32.
#[derive(Clone, Debug)]
pub struct DirectionWeights {
    /// Taps of the convolution, `[D, 1, W]`.
    pub conv_weight: Tensor<3>,
    /// `[D]`.
    pub conv_bias: Tensor<1>,
    /// `[D, R + 2N]`: the low-rank step, B and C of a token.
    pub x_proj: Tensor<2>,
    /// `[R, D]`.
    pub dt_proj: Tensor<2>,
    /// `[D]`, added to the step under the softplus.
    pub delta_bias: Tensor<1>,
    /// `A = −exp(a_log)`, `[D, N]`.
    pub a_log: Tensor<2>,
    /// Gain of the skip connection, `[D]`.
    pub d: Tensor<1>,
}

/// What the backward pass of a mixer computes again instead of keeping it; its numbers are the same
/// to the bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recompute {
    /// Nothing, on a GPU; on a CPU as [`Self::Inputs`], which are computed in the cache of a core.
    Nothing,
    /// What the scans read: the convolutions and the step sizes.
    #[default]
    Inputs,
    /// These and the chunk states, most of what is saved.
    States,
}

/// The checked call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MixerSpec {
    /// The scans of both directions.
    pub(crate) scan: ScanSpec,
    pub(crate) dt_rank: usize,
    pub(crate) precision: Precision,
    pub(crate) recompute: Recompute,
}

/// Both scans as `options` say.
fn scan(options: ScanOptions) -> ScanSpec {
    ScanSpec {
        options,
        bidirectional: true,
        has_d: true,
        has_z: true,
        has_delta_bias: true,
        b_constant: false,
        c_constant: false,
        compact_states: true,
    }
}

tensors! {
    /// `xz`, then the weights of both directions, shapes as in [`DirectionWeights`]; by name
    /// [`OfInputs`].
    MixerArguments, 15: {
        xz,
        conv_weight_fwd, conv_bias_fwd, x_proj_fwd, dt_proj_fwd, delta_bias_fwd, a_log_fwd, d_fwd,
        conv_weight_rev, conv_bias_rev, x_proj_rev, dt_proj_rev, delta_bias_rev, a_log_rev, d_rev,
    }
}

/// Weights of a direction.
const WEIGHTS: usize = 7;
/// Inputs of the operation: `xz`, and the weights of both directions.
pub(crate) const INPUTS: usize = 1 + 2 * WEIGHTS;

/// What belongs to each weight of a direction; see [`DirectionWeights`].
#[derive(Clone, Debug)]
pub(crate) struct OfWeights<T> {
    pub(crate) conv_weight: T,
    pub(crate) conv_bias: T,
    pub(crate) x_proj: T,
    pub(crate) dt_proj: T,
    pub(crate) delta_bias: T,
    pub(crate) a_log: T,
    pub(crate) d: T,
}

/// What belongs to each input.
#[derive(Clone, Debug)]
pub(crate) struct OfInputs<T> {
    pub(crate) xz: T,
    pub(crate) directions: [OfWeights<T>; 2],
}

impl<T> OfWeights<T> {
    fn from_array(all: [T; WEIGHTS]) -> Self {
        let [conv_weight, conv_bias, x_proj, dt_proj, delta_bias, a_log, d] = all;
        Self { conv_weight, conv_bias, x_proj, dt_proj, delta_bias, a_log, d }
    }

    fn into_array(self) -> [T; WEIGHTS] {
        let Self { conv_weight, conv_bias, x_proj, dt_proj, delta_bias, a_log, d } = self;
        [conv_weight, conv_bias, x_proj, dt_proj, delta_bias, a_log, d]
    }
}

impl<T> OfInputs<T> {
    /// From the order of [`MixerArguments`].
    pub(crate) fn from_array(all: [T; INPUTS]) -> Self {
        let [xz, a, b, c, d, e, f, g, h, i, j, k, l, m, n] = all;
        let directions = [[a, b, c, d, e, f, g], [h, i, j, k, l, m, n]];
        Self { xz, directions: directions.map(OfWeights::from_array) }
    }

    /// In the order of [`MixerArguments`].
    pub(crate) fn into_array(self) -> [T; INPUTS] {
        let [[a, b, c, d, e, f, g], [h, i, j, k, l, m, n]] =
            self.directions.map(OfWeights::into_array);
        [self.xz, a, b, c, d, e, f, g, h, i, j, k, l, m, n]
    }

    /// The gradients where those of the weights are not wanted.
    pub(crate) fn xz_alone(xz: T) -> [Option<T>; INPUTS] {
        let mut xz = Some(xz);
        std::array::from_fn(|_| xz.take())
    }
}

fused_op! {
    Flex and Cube:
    MixerBackend::mixer_inner(MixerSpec, MixerArguments, 15) -> Single { y }
}

/// Convolutions, projections and scans of both directions over `xz`, and the sum of their outputs.
///
/// `causal_conv1d_bidirectional` with silu on the first half of `xz`, the projections `x_proj` and
/// `dt_proj`, then `selective_scan_bidirectional`, gated by the second half. One node of the graph,
/// which saves `xz`, the projections and the prepared weights, in the type of `xz`, on a GPU its
/// result, and what the backward pass does not [`Recompute`]. Nothing is concatenated. On a CPU
/// each image goes through all of it in the cache of a core.
///
/// # Shapes
///
/// - `xz`: `[B, L, 2D]`, of the activations' type of `precision`
/// - result: `[B, L, D]`, of the same
///
/// # Errors
///
/// [`KernelError::Shape`] and [`KernelError::Dtype`] name the argument whose shape disagrees with
/// `xz` and A, or whose type is wrong; [`KernelError::NoPrecision`] if the device does not multiply
/// in `precision`; [`KernelError::NoKernel`] where it does not run; [`KernelError::TooLarge`].
///
/// # Source
///
/// Zhu et al. 2024, algorithm 1; `mamba_inner_fn_no_out_proj` of the original, once for each
/// direction.
pub fn mixer_inner(
    xz: Tensor<3>,
    fwd: DirectionWeights,
    rev: DirectionWeights,
    options: ScanOptions,
    precision: Precision,
    recompute: Recompute,
) -> Result<Tensor<3>, KernelError> {
    let spec = MixerSpec { recompute, ..checked(&xz, [&fwd, &rev], options, precision)? };
    for operation in ["causal_conv1d", "selective_scan", OPERATION] {
        record_run(operation, Implementation::Kernel);
    }
    let directions = [fwd, rev].map(DirectionWeights::into_dispatch);
    let inputs = OfInputs { xz: xz.into_dispatch(), directions };
    let arguments = MixerArguments::from_array(inputs.into_array());
    Ok(Tensor::from_dispatch(Dispatch::mixer_inner(arguments, spec).y))
}

/// The call, whose backward pass computes as much again as it does by default.
fn checked(
    xz: &Tensor<3>,
    directions: [&DirectionWeights; 2],
    options: ScanOptions,
    precision: Precision,
) -> Result<MixerSpec, KernelError> {
    let device = xz.device();
    precision.check(&device)?;
    options.check_series(OPERATION)?;
    if !has_fused_mixer(&device) || options.choice.resolve(&device)? == Implementation::Reference {
        return Err(KernelError::NoKernel { device: device_name(&device) });
    }
    let [batch, len, width] = xz.dims();
    let (d_inner, dt_rank) = (width / 2, directions[0].dt_proj.dims()[0]);
    let recompute = Recompute::default();
    let spec = MixerSpec { scan: scan(options), dt_rank, precision, recompute };
    let [_, d_state] = directions[0].a_log.dims();
    for weights in directions {
        weights.check(d_inner, d_state, dt_rank)?;
        check_dtypes(OPERATION, &device, &[], &weights.dtypes())?;
    }
    expect(
        OPERATION,
        "xz",
        &xz.dims(),
        !xz.dims().contains(&0) && width == 2 * d_inner && xz.dtype() == precision.activations(),
        format!("[B, L, 2D] in {}, none of them 0", precision.activations().name()),
    )?;
    if runs_cubecl(&device) {
        check_size(batch, len, d_inner, d_state, spec)?;
    }
    Ok(spec)
}

/// A call of [`mixer_inner`] on buffers of a GPU. For bindings, which have an autodiff of their
/// own.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
#[derive(Clone, Debug)]
pub struct RawMixer {
    spec: MixerSpec,
    inputs: [CubeTensor; INPUTS],
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
impl RawMixer {
    /// Checks the call; its tensors are on CUDA, and no autodiff follows them.
    ///
    /// # Errors
    ///
    /// As [`mixer_inner`].
    pub fn new(
        xz: Tensor<3>,
        fwd: DirectionWeights,
        rev: DirectionWeights,
        options: ScanOptions,
        precision: Precision,
    ) -> Result<Self, KernelError> {
        let spec = checked(&xz, [&fwd, &rev], options, precision)?;
        // The backward pass is the whole of it: nothing is kept from the forward pass.
        let spec = MixerSpec { recompute: Recompute::Nothing, ..spec };
        let directions = [fwd, rev].map(|of| OfWeights {
            conv_weight: primitive(of.conv_weight),
            conv_bias: primitive(of.conv_bias),
            x_proj: primitive(of.x_proj),
            dt_proj: primitive(of.dt_proj),
            delta_bias: primitive(of.delta_bias),
            a_log: primitive(of.a_log),
            d: primitive(of.d),
        });
        Ok(Self { spec, inputs: OfInputs { xz: primitive(xz), directions }.into_array() })
    }

    /// Queues the forward pass.
    #[must_use]
    pub fn forward(&self) -> CubeTensor {
        self.run(false).0
    }

    /// Queues the forward pass again, and the gradients of `Σ grad_y·y`, in the order of `xz` and
    /// of the fields of [`DirectionWeights`]; none of the weights if none of those is `wanted`.
    #[must_use]
    pub fn backward(&self, grad_y: CubeTensor, wanted: [bool; 15]) -> [Option<CubeTensor>; 15] {
        let (_, saved) = self.run(true);
        let saved = saved.expect("invariant: a forward pass that saves returns what it saved");
        FusedOp::<CubeBackend, INPUTS, 0>::backward(self.spec, grad_y, saved, wanted)
    }

    fn run(&self, save: bool) -> (CubeTensor, Option<SavedOnGpu>) {
        let inputs = MixerArguments::from_array(self.inputs.clone());
        let (y, [], saved) = FusedOp::<CubeBackend, INPUTS, 0>::forward(self.spec, inputs, save);
        (y, saved)
    }
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
type SavedOnGpu = <MixerSpec as FusedOp<CubeBackend, INPUTS, 0>>::Saved;

/// The weights of a mixer, f32.
#[derive(Clone, Debug)]
pub struct MixerWeights {
    /// `[M, 2D]`.
    pub in_proj: Tensor<2>,
    /// `[D, M]`.
    pub out_proj: Tensor<2>,
    /// Those of both directions.
    pub directions: [DirectionWeights; 2],
}

/// What [`prepare_mixers`] made. While it lives, the operations of this thread find it by the
/// addresses of the weights that they are called with: nothing is passed to them.
#[derive(Debug)]
#[must_use = "what was made is dropped with it"]
pub struct PreparedMixers {
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    _by_address: Option<vim_kernels_core::PreparedByAddress>,
}

/// Makes of the weights of all `mixers` of a model what [`mixer_inner`], [`linear`](crate::linear)
/// and [`halved_linear`](crate::halved_linear) make of those of one: rounded copies and A, with the
/// same bits, in three launches.
///
/// Where the weights lie in one buffer, as after a step of [`FlatParams`](crate::FlatParams), each
/// mixer's as far from the one before it; otherwise, and while a [`Graph`](crate::Graph) is
/// recorded, nothing is made, and each operation makes its own. Weights must not change while the
/// result lives. Only the first two of `mixers` are taken: what lies elsewhere is not found.
pub fn prepare_mixers(
    device: &Device,
    mixers: impl ExactSizeIterator<Item = MixerWeights>,
    precision: Precision,
) -> PreparedMixers {
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    let found = if runs_cuda(device) { cube::prepare_mixers(mixers, precision) } else { None };
    #[cfg(not(any(feature = "cuda", feature = "wgpu")))]
    let _ = (device, mixers, precision);
    PreparedMixers {
        #[cfg(any(feature = "cuda", feature = "wgpu"))]
        _by_address: found,
    }
}

impl DirectionWeights {
    /// Checks every shape against the mixer's sizes.
    fn check(&self, d_inner: usize, d_state: usize, dt_rank: usize) -> Result<(), KernelError> {
        let shape = |tensor, got: &[usize], want: &[usize]| {
            expect(OPERATION, tensor, got, got == want, format!("{want:?}"))
        };
        let taps = self.conv_weight.dims();
        expect(
            OPERATION,
            "conv_weight",
            &taps,
            taps[0] == d_inner && taps[1] == 1 && (2..=4).contains(&taps[2]),
            format!("[D, 1, W] = [{d_inner}, 1, 2 to 4]"),
        )?;
        shape("conv_bias", &self.conv_bias.dims(), &[d_inner])?;
        shape("x_proj", &self.x_proj.dims(), &[d_inner, dt_rank + 2 * d_state])?;
        let [of_dt_proj, of_a_log] = [self.dt_proj.dims(), self.a_log.dims()];
        let good = of_dt_proj == [dt_rank, d_inner] && dt_rank > 0;
        expect(OPERATION, "dt_proj", &of_dt_proj, good, format!("[R, {d_inner}], R above 0"))?;
        shape("delta_bias", &self.delta_bias.dims(), &[d_inner])?;
        let good = of_a_log == [d_inner, d_state] && d_state > 0;
        expect(OPERATION, "a_log", &of_a_log, good, format!("[{d_inner}, N], N above 0"))?;
        shape("d", &self.d.dims(), &[d_inner])
    }

    fn into_dispatch(self) -> OfWeights<FloatTensor<Dispatch>> {
        OfWeights {
            conv_weight: self.conv_weight.into_dispatch(),
            conv_bias: self.conv_bias.into_dispatch(),
            x_proj: self.x_proj.into_dispatch(),
            dt_proj: self.dt_proj.into_dispatch(),
            delta_bias: self.delta_bias.into_dispatch(),
            a_log: self.a_log.into_dispatch(),
            d: self.d.into_dispatch(),
        }
    }

    fn dtypes(&self) -> [(&'static str, Option<DType>); 7] {
        [
            ("conv_weight", Some(self.conv_weight.dtype())),
            ("conv_bias", Some(self.conv_bias.dtype())),
            ("x_proj", Some(self.x_proj.dtype())),
            ("dt_proj", Some(self.dt_proj.dtype())),
            ("delta_bias", Some(self.delta_bias.dtype())),
            ("a_log", Some(self.a_log.dtype())),
            ("d", Some(self.d.dtype())),
        ]
    }
}

/// Checks that 32 bits index what a GPU's scan reads and writes.
fn check_size(
    batch: usize,
    len: usize,
    d_inner: usize,
    d_state: usize,
    spec: MixerSpec,
) -> Result<(), KernelError> {
    let f32 = DType::F32;
    let tokens = ([batch, len, d_inner], f32);
    let projected = ([batch, len, 1, d_state], f32);
    let shapes = ScanShapes {
        operation: OPERATION,
        u: tokens,
        delta: tokens,
        a: ([d_inner, d_state], f32),
        b: projected,
        c: projected,
        d: None,
        z: Some(tokens),
        delta_bias: None,
        b_constant: false,
        c_constant: false,
    };
    shapes.check_scan_size(spec.scan, 2)?;
    // Both directions' steps, B and C: rows begin at multiples of eight numbers.
    let projected = (spec.dt_rank + 2 * d_state).next_multiple_of(8);
    check_rows(OPERATION, batch * len, 2 * projected.max(d_inner))
}

#[cfg(test)]
mod tests {
    use burn::backend::Flex;
    use burn::backend::ops::FloatTensorOps;
    use burn::tensor::Shape;

    use super::*;
    use vim_kernels_core::op::computed_for_the_first;

    #[test]
    fn names_are_in_the_order_of_the_arguments() {
        let all = std::array::from_fn(|i| i);
        let inputs = OfInputs::from_array(all);
        assert_eq!((inputs.xz, inputs.directions[0].d), (0, 7));
        assert_eq!(inputs.directions.each_ref().map(|of| of.x_proj), [3, 10]);
        assert_eq!(inputs.into_array(), all);
    }

    #[test]
    fn a_frozen_mixer_computes_no_gradients_of_weights() {
        let (d, n, r) = (8, 4, 2);
        let direction =
            [vec![d, 1, 4], vec![d], vec![d, r + 2 * n], vec![r, d], vec![d], vec![d, n], vec![d]];
        let of = |shape: Vec<usize>| {
            let shape = Shape::from(shape);
            let ones = Tensor::<1>::ones([shape.num_elements()], &Device::flex());
            let ones = ones.try_into_primitive::<Flex>().expect("a CPU's");
            Flex::float_reshape(ones, shape)
        };
        let mut shapes = [vec![2, 5, 2 * d]].into_iter().chain(direction.clone()).chain(direction);
        let inputs = std::array::from_fn(|_| of(shapes.next().expect("fifteen shapes")));
        let (scan, precision) = (scan(ScanOptions::default()), Precision::F32);
        let spec = MixerSpec { scan, dt_rank: r, precision, recompute: Recompute::default() };
        let computed = computed_for_the_first::<Flex, MixerSpec, 15, 0>(spec, inputs);
        assert_eq!(computed, std::array::from_fn(|i| i == 0));
    }
}
