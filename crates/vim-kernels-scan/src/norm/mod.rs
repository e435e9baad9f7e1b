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
use burn::tensor::{DType, FloatDType, Tensor};

use vim_kernels_core::check::{check_dtypes, expect};
use vim_kernels_core::op::{Tensors, tensors};
use vim_kernels_core::{Implementation, KernelChoice, KernelError, record_run};

/// The checked call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NormSpec {
    pub(crate) epsilon: f32,
    pub(crate) has_residual: bool,
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
    check(&x, residual.as_ref(), &weight)?;
    let device = x.device();
    let implementation = choice.resolve(&device)?;
    record_run("add_rms_norm", implementation);
    if implementation == Implementation::Reference {
        return Ok(reference(x, residual, weight, epsilon));
    }
    let spec = NormSpec { epsilon: epsilon as f32, has_residual: residual.is_some() };
    // A backend extension has no optional tensors: an absent residual is passed as one zero.
    let residual = match residual {
        Some(residual) => residual.into_dispatch(),
        None => Tensor::<1>::zeros([1], (&device, DType::F32)).into_dispatch(),
    };
    let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
    let NormResults { normed, sum } =
        Dispatch::add_rms_norm(NormArguments { x, residual, weight }, spec);
    Ok((Tensor::from_dispatch(normed), Tensor::from_dispatch(sum)))
}

fn check<const R: usize>(
    x: &Tensor<R>,
    residual: Option<&Tensor<R>>,
    weight: &Tensor<1>,
) -> Result<(), KernelError> {
    const OPERATION: &str = "add_rms_norm";
    let float32 = [("residual", residual.map(Tensor::dtype)), ("weight", Some(weight.dtype()))];
    check_dtypes(OPERATION, &x.device(), &[("x", x.dtype())], &float32)?;
    let dims = x.dims();
    let d_model = dims[R - 1];
    expect(OPERATION, "x", &dims, !dims.contains(&0), "[.., D], none of them 0".to_string())?;
    let good = weight.dims() == [d_model];
    expect(OPERATION, "weight", &weight.dims(), good, format!("[D] = [{d_model}]"))?;
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
    NormArguments, 3: { x, residual, weight }
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
    spec: NormSpec,
    /// Type of x.
    dtype: DType,
}

/// The gradients that have reached `normed` and `sum`, shared by the three nodes of a call.
type Arrived<B> = Arc<Mutex<[Option<FloatTensor<B>>; 2]>>;

/// The node of the operation.
#[derive(Debug)]
struct Operation;

impl<B: NormAdjoint> Backward<B, 3> for Operation {
    type State = (Saved<B>, Arrived<B>);

    fn backward(
        self,
        ops: Ops<Self::State, 3>,
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
        let weight = inputs.weight.clone();
        let NormResults { normed, sum } = B::add_rms_norm(inputs, spec);
        let prep = match Operation.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep,
            OpsKind::UnTracked(prep) => {
                return NormResults { normed: Self::from_inner(normed), sum: prep.finish(sum) };
            }
        };
        let arrived = Arrived::<B>::default();
        let saved = Saved { sum: sum.clone(), weight, spec, dtype };
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
