//! Addition to the residual stream and normalization of the sum, in one pass: arguments, checks,
//! reference, and the differentiable operation with two outputs.
//!
//! A node of Burn's autodiff has one output, and a backward pass that took the gradients of the two
//! results one after the other would pass over memory once more to add them. So there are three
//! nodes: one for the operation, and one above it for each result. The nodes of the results only
//! store the gradient that reaches them. Burn runs a node after all nodes that depend on it, so the
//! operation's node finds both gradients, or the one that the loss depends on, and a single kernel
//! takes them. (An operation with one differentiable output is declared with
//! [`vim_kernels_core::op::fused_op`].)

#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) mod cube;
mod native;
pub(crate) mod oracle;

use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{
    Autodiff, AutodiffBackend, Backend, Dispatch, TensorMetadata, backend_extension,
    tensor::FloatTensor,
};
use burn::tensor::{DType, FloatDType, Shape, Slice, Tensor};

use vim_kernels_core::check::{check_dtypes, expect};
use vim_kernels_core::op::{Tensors, tensors};
use vim_kernels_core::{Implementation, KernelChoice, KernelError, record_run};

/// The checked call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NormSpec {
    pub(crate) epsilon: f32,
    pub(crate) has_residual: bool,
    /// The row of factors that images are multiplied by.
    pub(crate) row: Option<usize>,
}

/// What the images of a batch are multiplied by, as drop path does.
#[derive(Clone, Debug)]
pub struct ImageFactors {
    /// `[P, B]`, f32: a factor for each image at each of P places. No gradient reaches it.
    pub factors: Tensor<2>,
    /// The place.
    pub row: usize,
}

impl ImageFactors {
    /// `x [B, ..]` with each image multiplied by its factor, rounded to the type of x; `x` itself
    /// if there are none.
    #[must_use]
    pub fn apply<const R: usize>(factors: Option<Self>, x: Tensor<R>) -> Tensor<R> {
        let Some(Self { factors, row }) = factors else { return x };
        let mut shape = [1; R];
        shape[0] = x.dims()[0];
        let factors = factors.narrow(0, row, 1).reshape(shape).cast(FloatDType::from(x.dtype()));
        x * factors
    }
}

/// Adds `x` to the residual stream and normalizes the sum: `(normed, sum)` with
/// `sum = x + residual` and `normed = sum / sqrt(mean(sum²) + epsilon) · weight`, the mean over
/// `D`.
///
/// Differentiable in `x`, `residual` and `weight` through both results, and one pass over memory
/// each way: the backward kernel adds the gradient that reaches the sum directly.
///
/// # Shapes
///
/// - `x`, `residual`, and both results: `[.., D]`
/// - `weight`: `[D]`
///
/// `x` is f32, or bf16 where the device has it, and `normed` is as `x`; the residual stream
/// (`residual` and `sum`), `weight` and every statistic are f32.
///
/// # Errors
///
/// [`KernelError::Shape`] names the argument whose shape disagrees, [`KernelError::Dtype`] one of
/// another type; [`KernelError::NoKernel`] if `choice` forces a kernel that the device does not
/// have.
///
/// # Source
///
/// Zhang and Sennrich 2019, eq. 4, weight only; `rms_norm_fn` of the original with `prenorm` and
/// `residual_in_fp32`, which its blocks call `fused_add_norm`.
pub fn add_rms_norm<const R: usize>(
    x: Tensor<R>,
    residual: Option<Tensor<R>>,
    weight: Tensor<1>,
    epsilon: f64,
    choice: KernelChoice,
) -> Result<(Tensor<R>, Tensor<R>), KernelError> {
    add_scaled_rms_norm(x, None, residual, weight, epsilon, choice)
}

/// [`add_rms_norm`] of images that are multiplied by their `factors` before, in one pass; bits are
/// those of [`ImageFactors::apply`] and the norm (but in f32 on WGPU, which may round a product and
/// a sum once).
///
/// # Shapes
///
/// - `x`, `residual`, and both results: `[B, .., D]`
/// - `weight`: `[D]`
///
/// # Errors
///
/// As [`add_rms_norm`].
pub fn add_scaled_rms_norm<const R: usize>(
    x: Tensor<R>,
    factors: Option<ImageFactors>,
    residual: Option<Tensor<R>>,
    weight: Tensor<1>,
    epsilon: f64,
    choice: KernelChoice,
) -> Result<(Tensor<R>, Tensor<R>), KernelError> {
    check(&x, factors.as_ref(), residual.as_ref(), &weight)?;
    let device = x.device();
    let implementation = choice.resolve(&device)?;
    record_run("add_rms_norm", implementation);
    if implementation == Implementation::Reference {
        return Ok(reference(ImageFactors::apply(factors, x), residual, weight, epsilon));
    }
    let spec = NormSpec {
        epsilon: epsilon as f32,
        has_residual: residual.is_some(),
        row: factors.as_ref().map(|of| of.row),
    };
    // A backend extension has no optional tensors: what is absent is passed as the weight, without
    // a gradient.
    let absent = || weight.clone().set_require_grad(false).into_dispatch();
    let residual = residual.map_or_else(absent, Tensor::into_dispatch);
    let factors = factors.map_or_else(absent, |of| of.factors.detach().into_dispatch());
    let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
    let NormResults { normed, sum } =
        Dispatch::add_rms_norm(NormArguments { x, residual, weight, factors }, spec);
    Ok((Tensor::from_dispatch(normed), Tensor::from_dispatch(sum)))
}

fn check<const R: usize>(
    x: &Tensor<R>,
    factors: Option<&ImageFactors>,
    residual: Option<&Tensor<R>>,
    weight: &Tensor<1>,
) -> Result<(), KernelError> {
    const OPERATION: &str = "add_rms_norm";
    let float32 = [
        ("residual", residual.map(Tensor::dtype)),
        ("weight", Some(weight.dtype())),
        ("factors", factors.map(|of| of.factors.dtype())),
    ];
    check_dtypes(OPERATION, &x.device(), &[("x", x.dtype())], &float32)?;
    let dims = x.dims();
    let d_model = dims[R - 1];
    expect(OPERATION, "x", &dims, !dims.contains(&0), "[.., D], none of them 0".to_string())?;
    let good = weight.dims() == [d_model];
    expect(OPERATION, "weight", &weight.dims(), good, format!("[D] = [{d_model}]"))?;
    if let Some(ImageFactors { factors, row }) = factors {
        let (shape, batch) = (factors.dims(), dims[0]);
        let good = R > 1 && shape[1] == batch && *row < shape[0];
        expect(OPERATION, "factors", &shape, good, format!("[P, B] = [> {row}, {batch}]"))?;
    }
    let Some(residual) = residual else { return Ok(()) };
    let (good, expected) = (residual.dims() == dims, format!("that of x, {dims:?}"));
    expect(OPERATION, "residual", &residual.dims(), good, expected)
}

/// The addition and the norm in tensor operations, in f32.
fn reference<const R: usize>(
    x: Tensor<R>,
    residual: Option<Tensor<R>>,
    weight: Tensor<1>,
    epsilon: f64,
) -> (Tensor<R>, Tensor<R>) {
    let dtype = FloatDType::from(x.dtype());
    let x = x.cast(FloatDType::F32);
    let sum = match residual {
        Some(residual) => residual + x,
        None => x,
    };
    let scale = (sum.clone().square().mean_dim(R - 1) + epsilon).sqrt(); // [.., 1]
    let normed = sum.clone() / scale * weight.unsqueeze();
    (normed.cast(dtype), sum)
}

tensors! {
    /// The arguments on a backend, shapes as in [`add_rms_norm`].
    NormArguments, 4: { x, residual, weight, factors }
}

tensors! {
    /// The results, both `[.., D]`.
    NormResults, 2: { normed, sum }
}

/// The operation as dispatched: on a backend, or on autodiff over one.
#[backend_extension(Flex, Cube: cfg(any(feature = "cuda", feature = "wgpu")), Autodiff)]
pub(crate) trait NormBackend: Backend {
    /// See the function of this name.
    fn add_rms_norm(
        #[extension_type] inputs: NormArguments<Self>,
        spec: NormSpec,
    ) -> NormResults<Self>;
}

/// Backends with the adjoint of the operation.
pub(crate) trait NormAdjoint: NormBackend {
    /// The gradients of x in its type, of the sum (and so of the residual) in f32, and, if it is
    /// wanted, of the weight, from that of `normed`, and that of `sum` if there is one.
    fn adjoint(
        saved: Saved<Self>,
        grad_normed: FloatTensor<Self>,
        grad_sum: Option<FloatTensor<Self>>,
        wants_weight: bool,
    ) -> [Option<FloatTensor<Self>>; 3];
}

/// What the adjoint needs.
#[derive(Clone, Debug)]
pub(crate) struct Saved<B: Backend> {
    sum: FloatTensor<B>,
    weight: FloatTensor<B>,
    factors: FloatTensor<B>,
    spec: NormSpec,
    /// Type of x.
    dtype: DType,
}

impl<B: Backend> Saved<B> {
    /// The gradient of x from that of what its images were multiplied to.
    fn of_x(&self, grad: FloatTensor<B>) -> FloatTensor<B> {
        scaled::<B>(grad, self.factors.clone(), self.spec)
    }
}

/// As [`ImageFactors::apply`], on a backend; `x` itself if the call has no factors.
fn scaled<B: Backend>(
    x: FloatTensor<B>,
    factors: FloatTensor<B>,
    spec: NormSpec,
) -> FloatTensor<B> {
    let Some(row) = spec.row else { return x };
    let mut shape = vec![1; x.shape().num_dims()];
    shape[0] = x.shape()[0];
    let row = B::float_slice(factors, &[Slice::from(row..row + 1), Slice::from(0..shape[0])]);
    let row = B::float_reshape(row, Shape::from(shape));
    let dtype = x.dtype();
    let row = if dtype == DType::F32 { row } else { B::float_cast(row, dtype.into()) };
    B::float_mul(x, row)
}

/// The gradients that have reached `normed` and `sum`, shared by the three nodes of a call.
type Arrived<B> = Arc<Mutex<[Option<FloatTensor<B>>; 2]>>;

/// The node of the operation.
#[derive(Debug)]
struct Operation;

impl<B: NormAdjoint> Backward<B, 4> for Operation {
    type State = (Saved<B>, Arrived<B>);

    fn backward(
        self,
        ops: Ops<Self::State, 4>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let (saved, arrived) = ops.state;
        let arrived = std::mem::take(&mut *arrived.lock().unwrap_or_else(PoisonError::into_inner));
        let wants_weight = ops.parents[2].is_some();
        let inputs = match arrived {
            [Some(normed), through] => B::adjoint(saved, normed, through, wants_weight),
            [None, Some(through)] => {
                let x = if saved.dtype == DType::F32 {
                    through.clone()
                } else {
                    B::float_cast(through.clone(), saved.dtype.into())
                };
                let x = saved.of_x(x);
                let (shape, device) = (saved.weight.shape(), saved.weight.device());
                let zeros = || B::float_zeros(shape, &device, FloatDType::F32);
                [Some(x), Some(through), wants_weight.then(zeros)]
            }
            [None, None] => return,
        };
        for (parent, grad) in ops.parents.into_iter().zip(inputs) {
            if let (Some(node), Some(grad)) = (parent, grad) {
                grads.register::<B>(node.id, grad);
            }
        }
    }
}

/// The node of a result: of `normed`, number 0, or of `sum`, number 1.
#[derive(Debug)]
struct Reached(usize);

impl<B: Backend> Backward<B, 1> for Reached {
    type State = Arrived<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node);
        ops.state.lock().unwrap_or_else(PoisonError::into_inner)[self.0] = Some(grad);
    }
}

impl<B: NormAdjoint, C: CheckpointStrategy> NormBackend for Autodiff<B, C> {
    fn add_rms_norm(inputs: NormArguments<Self>, spec: NormSpec) -> NormResults<Self> {
        let dtype = inputs.x.dtype();
        let inputs = inputs.into_array();
        let nodes = inputs.each_ref().map(|t| t.node());
        let inputs = NormArguments::<B>::from_array(inputs.map(|t| t.into_primitive()));
        let (weight, factors) = (inputs.weight.clone(), inputs.factors.clone());
        let NormResults { normed, sum } = B::add_rms_norm(inputs, spec);
        let prep = match Operation.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep,
            OpsKind::UnTracked(prep) => {
                return NormResults { normed: Self::from_inner(normed), sum: prep.finish(sum) };
            }
        };
        let arrived = Arrived::<B>::default();
        let saved = Saved { sum: sum.clone(), weight, factors, spec, dtype };
        // Nobody reads this output: it is the operation's node below the results.
        let operation = prep.finish((saved, arrived.clone()), sum.clone());
        let result = |number: usize, of: FloatTensor<B>| {
            let node = Backward::<B, 1>::prepare::<C>(Reached(number), [operation.node()]);
            match node.compute_bound().stateful() {
                OpsKind::Tracked(prep) => prep.finish(arrived.clone(), of),
                OpsKind::UnTracked(prep) => prep.finish(of),
            }
        };
        NormResults { normed: result(0, normed), sum: result(1, sum) }
    }
}
