//! What the kernels of [`vim-kernels`](https://docs.rs/vim-kernels) share: which implementation
//! runs ([`KernelChoice`]), errors, precision, the arithmetic that formulas are written in
//! ([`Real`]), recorded launches ([`Graph`]), and, hidden, how kernels become one differentiable
//! operation (`op`) and the helpers of native (`native`) and CubeCL (`cube`) kernels.
//!
//! Use `vim-kernels`, which has all of it and the operations; what is hidden here changes with
//! them.

mod dispatch;
mod error;
mod graph;
mod precision;
mod reading;
mod real;
mod sum;
mod tensor_cores;

#[doc(hidden)]
pub mod check;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
#[doc(hidden)]
pub mod cube;
#[doc(hidden)]
pub mod native;
#[doc(hidden)]
pub mod op;
#[doc(hidden)]
pub mod oracle_math;

pub use dispatch::{
    Implementation, KERNEL_VARIABLE, KernelChoice, has_kernel, implementations_run,
};
pub use error::KernelError;
pub use graph::{
    Draws, Graph, Launches, WarmUp, drawn, in_own_buffer, in_own_buffer_int, overwrite,
    overwrite_int,
};
pub use precision::Precision;
pub use reading::read_while;
pub use real::Real;
pub use sum::sum_in_order;

#[doc(hidden)]
pub use dispatch::{cuda_number, device_name, record_run, runs_cubecl, runs_cuda, runs_native};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
#[doc(hidden)]
pub use graph::{PreparedByAddress, buffer, constant_by_address};
#[doc(hidden)]
pub use real::{Term, horner};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
#[doc(hidden)]
pub use real::{Traced, exp2, reciprocal};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
#[doc(hidden)]
pub use tensor_cores::has_mma;
