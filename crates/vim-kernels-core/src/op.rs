//! From kernels on backends to a differentiable operation of Burn.
//!
//! An operation has a checked call (its specification), a struct of input tensors ([`tensors!`])
//! and kernels ([`FusedOp`], once for each backend). [`fused_op!`] makes of them an extension of
//! Burn's dispatch, and one node of the autodiff graph.

use std::fmt::Debug;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, Backend, tensor::FloatTensor};

/// The kernels of an operation on backend `B`, with `N` inputs and, beside its result, `K` outputs
/// that have no gradient. `Self` is a checked call.
pub trait FusedOp<B: Backend, const N: usize, const K: usize>:
    Copy + Debug + Send + 'static
{
    /// The inputs.
    type Inputs: Tensors<B, N>;
    /// What the backward pass needs.
    type Saved: Clone + Debug + Send + 'static;

    /// Runs the operation; returns something for the backward pass if `save`.
    fn forward(self, inputs: Self::Inputs, save: bool) -> Forward<B, Self::Saved, K>;

    /// The gradients of the inputs in their order, shaped as they are; those that are not `wanted`
    /// may be left out.
    fn backward(
        self,
        grad: FloatTensor<B>,
        saved: Self::Saved,
        wanted: [bool; N],
    ) -> [Option<FloatTensor<B>>; N];
}

/// What a forward pass returns: the result, the outputs without a gradient, and what it saved.
pub type Forward<B, S, const K: usize> = (FloatTensor<B>, [FloatTensor<B>; K], Option<S>);

/// A struct of tensors as an array.
pub trait Tensors<B: Backend, const N: usize>: Sized {
    fn from_array(tensors: [FloatTensor<B>; N]) -> Self;

    fn into_array(self) -> [FloatTensor<B>; N];

    /// The same struct of other tensors.
    fn map(self, f: impl FnMut(FloatTensor<B>) -> FloatTensor<B>) -> Self {
        Self::from_array(self.into_array().map(f))
    }
}

/// Runs the operation as one node of the autodiff graph. Only where an input needs a gradient does
/// the forward pass save anything.
pub fn differentiable<B, C, S, const N: usize, const K: usize>(
    spec: S,
    inputs: [FloatTensor<Autodiff<B, C>>; N],
) -> (FloatTensor<Autodiff<B, C>>, [FloatTensor<B>; K])
where
    B: Backend,
    C: CheckpointStrategy,
    S: FusedOp<B, N, K>,
{
    let nodes = inputs.each_ref().map(|t| t.node());
    let prep = Node::<S, K>(spec).prepare::<C>(nodes).compute_bound().stateful();
    let inputs = S::Inputs::from_array(inputs.map(|t| t.into_primitive()));
    match prep {
        OpsKind::Tracked(prep) => {
            let (y, detached, saved) = spec.forward(inputs, true);
            let saved = saved.expect("invariant: a forward pass that saves returns what it saved");
            (prep.finish(saved, y), detached)
        }
        OpsKind::UnTracked(prep) => {
            let (y, detached, _) = spec.forward(inputs, false);
            (prep.finish(y), detached)
        }
    }
}

/// The operation's node in the graph.
#[derive(Debug)]
struct Node<S, const K: usize>(S);

impl<B, S, const N: usize, const K: usize> Backward<B, N> for Node<S, K>
where
    B: Backend,
    S: FusedOp<B, N, K>,
{
    type State = S::Saved;

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node);
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let inputs = self.0.backward(grad, ops.state, wanted);
        for (parent, grad) in ops.parents.into_iter().zip(inputs) {
            if let (Some(node), Some(grad)) = (parent, grad) {
                grads.register::<B>(node.id, grad);
            }
        }
    }
}

/// Declares a struct of tensors that crosses Burn's dispatch.
#[doc(hidden)]
#[macro_export]
macro_rules! tensors {
    ($(#[$meta:meta])* $name:ident, $count:literal: { $($field:ident),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, burn::backend::ExtensionType)]
        pub struct $name<B: burn::backend::Backend> {
            $(pub $field: burn::backend::tensor::FloatTensor<B>,)+
        }

        impl<B: burn::backend::Backend> $crate::op::Tensors<B, $count> for $name<B> {
            fn from_array(
                [$($field),+]: [burn::backend::tensor::FloatTensor<B>; $count],
            ) -> Self {
                Self { $($field),+ }
            }

            fn into_array(self) -> [burn::backend::tensor::FloatTensor<B>; $count] {
                [$(self.$field),+]
            }
        }
    };
}

/// Declares an operation on `Flex and Cube`, or on `Cube` alone:
/// `Cube: Trait::operation(Spec, Inputs, N) -> Outputs { result, detached, … }`.
#[doc(hidden)]
#[macro_export]
macro_rules! fused_op {
    (Flex and Cube: $($op:tt)*) => {
        $crate::fused_op!(@trait
            [Flex, Cube: cfg(any(feature = "cuda", feature = "wgpu")), Autodiff] $($op)*);
        $crate::fused_op!(@backend burn::backend::Flex, $($op)*);
        #[cfg(any(feature = "cuda", feature = "wgpu"))]
        $crate::fused_op!(@backend burn_cubecl::CubeBackend, $($op)*);
    };
    (Cube: $($op:tt)*) => {
        $crate::fused_op!(@trait [Cube, Autodiff] $($op)*);
        $crate::fused_op!(@backend burn_cubecl::CubeBackend, $($op)*);
    };
    (@trait [$($backends:tt)*]
        $trait:ident::$name:ident($spec:ty, $inputs:ident, $n:literal)
        -> $outputs:ident { $result:ident $(, $detached:ident)* }) => {
        /// The operation as dispatched: on a backend, or on autodiff over one.
        #[burn::backend::backend_extension($($backends)*)]
        pub(crate) trait $trait: burn::backend::Backend {
            /// See the function of this name.
            fn $name(#[extension_type] inputs: $inputs<Self>, spec: $spec) -> $outputs<Self>;
        }

        impl<B, C> $trait for burn::backend::Autodiff<B, C>
        where
            B: $trait,
            C: burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy,
            $spec: $crate::op::FusedOp<
                    B,
                    $n,
                    { <[&str]>::len(&[$(stringify!($detached)),*]) },
                    Inputs = $inputs<B>,
                >,
        {
            fn $name(inputs: $inputs<Self>, spec: $spec) -> $outputs<Self> {
                let inputs = $crate::op::Tensors::into_array(inputs);
                let (y, detached) = $crate::op::differentiable::<B, C, _, $n, _>(spec, inputs);
                let [$($detached),*] =
                    detached.map(<Self as burn::backend::AutodiffBackend>::from_inner);
                $outputs { $result: y $(, $detached)* }
            }
        }
    };
    (@backend $backend:ty,
        $trait:ident::$name:ident($spec:ty, $inputs:ident, $n:literal)
        -> $outputs:ident { $result:ident $(, $detached:ident)* }) => {
        impl $trait for $backend {
            fn $name(inputs: $inputs<Self>, spec: $spec) -> $outputs<Self> {
                let (y, [$($detached),*], _) =
                    $crate::op::FusedOp::<Self, $n, _>::forward(spec, inputs, false);
                $outputs { $result: y $(, $detached)* }
            }
        }
    };
}

pub use {fused_op, tensors};

tensors! {
    /// The result of an operation that has no other outputs.
    Single, 1: { y }
}

/// Which gradients an operation computes where that of its first input alone is wanted: for tests.
pub fn computed_for_the_first<B, S, const N: usize, const K: usize>(
    spec: S,
    inputs: [FloatTensor<B>; N],
) -> [bool; N]
where
    B: Backend,
    S: FusedOp<B, N, K>,
{
    let (y, _, saved) = spec.forward(S::Inputs::from_array(inputs), true);
    let wanted = std::array::from_fn(|i| i == 0);
    let saved = saved.expect("a forward pass that saves");
    spec.backward(y, saved, wanted).map(|grad| grad.is_some())
}

/// Ones on the GPU of the tests.
#[cfg(feature = "wgpu")]
pub fn ones<const R: usize>(shape: [usize; R]) -> burn_cubecl::tensor::CubeTensor {
    use burn::tensor::{Device, Tensor};
    let ones = Tensor::<R>::ones(shape, &Device::default());
    ones.try_into_primitive::<burn_cubecl::CubeBackend>().expect("a GPU's")
}
