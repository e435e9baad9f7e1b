//! The operations of [`vim-kernels`](https://docs.rs/vim-kernels) beside the scan: products,
//! convolutions, resizing, features of boxes, batch norm, images, and the optimizer's kernels.
//!
//! Use `vim-kernels`, which has them and the scan.

mod batch_norm;
mod conv;
mod conv3x3;
mod image_batch;
mod matmul;
mod multi_tensor;
mod resize;
mod resize_nll;
mod roi_align;
mod rotate_pairs;

pub use batch_norm::{channel_sums, scale_shift};
pub use conv::{ConvOptions, causal_conv1d, causal_conv1d_bidirectional};
pub use conv3x3::conv3x3;
pub use image_batch::{EraseBox, EraseFill, ImageBatch, MixPlan, Region, image_batch};
pub use matmul::{halved_linear, linear};
pub use multi_tensor::{
    AdamWHyper, FlatParams, ParamStep, moving_average, sum_of_squares, supports_multi_tensor,
};
pub use resize::axis::LONGEST_SIDE;
pub use resize::resize;
pub use resize_nll::{IGNORED_LABEL, ResizeNll, resize_nll};
pub use roi_align::{Roi, RoiSampling, roi_align, roi_axis};
pub use rotate_pairs::rotate_pairs;

/// The operations in f64, as plain loops over plain vectors.
pub mod oracle {
    pub use crate::batch_norm::oracle::{OracleScaleShift, OracleScaleShiftGrads};
    pub use crate::conv::oracle::{OracleConv, OracleConvGrads};
    pub use crate::conv3x3::oracle::{OracleConv3x3, OracleConv3x3Grads};
    pub use crate::image_batch::oracle::image_batch;
    pub use crate::resize::oracle::OracleResize;
    pub use crate::resize_nll::oracle::{OracleResizeNll, OracleResizeNllResult};
    pub use crate::roi_align::oracle::OracleRoiAlign;
    pub use crate::rotate_pairs::oracle::OracleRotation;
}

/// What the fused mixer of `vim-kernels` runs.
#[doc(hidden)]
pub mod for_mixer {
    /// The short convolution.
    pub mod conv {
        pub use crate::conv::ConvSpec;
        #[cfg(any(feature = "cuda", feature = "wgpu"))]
        pub use crate::conv::{
            TapParts, Taps, conv_bidirectional, conv_bidirectional_backward, tap_gradients,
        };

        /// On a CPU.
        pub mod native {
            pub use crate::conv::native::{ConvInputs, ConvSums};
        }
    }

    /// Products of matrices on a GPU.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub mod matmul {
        pub use crate::matmul::cube::{
            GradientParts, Matrix, Output, PARTS_CUBE, ROUNDED, activations, add_parts,
            add_parts_in, gather_weights, halved, multiply, scaled, weight_gradient_parts,
        };
    }
}
