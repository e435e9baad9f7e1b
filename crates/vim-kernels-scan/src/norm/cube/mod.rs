//! The CubeCL kernels of the addition and the norm: launch geometry and launches.

#![expect(unsafe_code, reason = "launching kernels without bounds checks")]

pub(crate) mod kernel;

use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::{TensorMetadata, tensor::FloatTensor};
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::CubeDim;

use super::{NormAdjoint, NormArguments, NormBackend, NormResults, NormSpec, Saved};
use kernel::{CUBE, ImagesLaunch, NormConfig, norm_backward, norm_forward};
use vim_kernels_core::cube::sum::sum_rows;
use vim_kernels_core::cube::{cubes, dense, elem, empty, has_planes, has_ptx, lanes};
use vim_kernels_core::op::Tensors;

/// Threads of a plane.
const PLANE: usize = 32;
/// Channels per thread up to which a plane takes a row; wider rows take a whole cube.
const HELD: usize = 32;
/// Cubes of a backward pass, each of which writes a row of partial sums: four for every
/// multiprocessor of the largest GPUs. Constant, so that the order of a sum does not depend on the
/// GPU.
pub(crate) const CUBES: usize = 528;

/// How `[rows, D]` is cut.
pub(crate) struct Cut {
    pub(crate) rows: usize,
    pub(crate) d_model: usize,
    /// Channels of a vector.
    pub(crate) lanes: usize,
    /// Vectors of a row.
    pub(crate) width: usize,
    pub(crate) config: NormConfig,
}

impl Cut {
    pub(crate) fn new(x: &CubeTensor) -> Self {
        let shape = x.shape();
        let elements = shape.num_elements();
        let d_model = *shape.last().expect("invariant: the rank is at least 1");
        let wide = d_model > PLANE * HELD;
        let line = if wide { CUBE } else { PLANE };
        // The widest vectors that leave no thread of a line idle, else the widest.
        let full = [4, 2, 1].into_iter().find(|lanes| d_model.is_multiple_of(lanes * line));
        let lanes = full.unwrap_or_else(|| lanes(d_model, 4));
        let width = d_model / lanes;
        let planes = !wide && has_planes(&x.client);
        let config = NormConfig { line, owned: width.div_ceil(line), planes };
        Self { rows: elements / d_model, d_model, lanes, width, config }
    }

    pub(crate) fn dim(&self) -> CubeDim {
        CubeDim::new_2d(self.config.line as u32, self.config.rows() as u32)
    }
}

/// Where the factors of the images of `x` are.
fn images(x: &CubeTensor, rows: usize, spec: NormSpec) -> ImagesLaunch {
    let batch = x.shape()[0];
    ImagesLaunch::new(spec.row.unwrap_or(0) * batch, rows / batch)
}

impl NormBackend for CubeBackend {
    fn add_rms_norm(inputs: NormArguments<Self>, spec: NormSpec) -> NormResults<Self> {
        let NormArguments { x, residual, weight, factors } = inputs.map(dense);
        let client = x.client.clone();
        let cut = Cut::new(&x);
        let normed = empty(&x, x.shape(), x.dtype);
        // Without a residual and factors, x in f32 is already the sum.
        let has_factors = spec.row.is_some();
        let write_sum = spec.has_residual || has_factors || x.dtype != DType::F32;
        let sum = if write_sum { empty(&x, x.shape(), DType::F32) } else { x.clone() };
        // A binding of the right type that the kernel does not read.
        let unused = || empty(&x, [cut.lanes], DType::F32);
        let residual = if spec.has_residual { residual } else { unused() };
        let written = if write_sum { sum.clone() } else { unused() };
        let (address, elem) = (sum.required_address_type(), elem(&x));
        let (images, ptx) = (images(&x, cut.rows, spec), has_ptx(&x));
        // SAFETY: all tensors are contiguous with rows of `width` vectors; a thread stays within
        // its row and `rows`, and there is a factor for each image.
        unsafe {
            norm_forward::launch_unchecked(
                &client,
                cubes(&client, cut.rows.div_ceil(cut.config.rows())),
                cut.dim(),
                address,
                cut.lanes,
                x.into_buffer_arg(),
                residual.into_buffer_arg(),
                weight.into_buffer_arg(),
                factors.into_buffer_arg(),
                normed.clone().into_buffer_arg(),
                written.into_buffer_arg(),
                cut.rows,
                cut.width,
                spec.epsilon,
                images,
                cut.config,
                spec.has_residual,
                has_factors,
                write_sum,
                ptx,
                elem,
            );
        }
        NormResults { normed, sum }
    }
}

impl NormAdjoint for CubeBackend {
    fn adjoint(
        Saved { sum, weight, factors, spec, dtype }: Saved<Self>,
        grad_normed: FloatTensor<Self>,
        grad_sum: Option<FloatTensor<Self>>,
        wants_weight: bool,
    ) -> [Option<FloatTensor<Self>>; 3] {
        let [grad_normed, sum, weight, factors] = [grad_normed, sum, weight, factors].map(dense);
        let grad_sum = grad_sum.map(dense);
        let client = sum.client.clone();
        let cut = Cut::new(&sum);
        let count = cut.rows.div_ceil(cut.config.rows()).min(CUBES);

        let grad = empty(&sum, sum.shape(), DType::F32);
        let has_factors = spec.row.is_some();
        let write_x = has_factors || dtype != DType::F32;
        let unused = || empty(&sum, [cut.lanes], dtype);
        let grad_x = if write_x { empty(&sum, sum.shape(), dtype) } else { unused() };
        let width = weight.shape();
        let partials = empty(&sum, [count, cut.d_model], DType::F32);
        let has_grad_sum = grad_sum.is_some();
        let grad_sum = grad_sum.unwrap_or_else(|| empty(&sum, [cut.lanes], DType::F32));
        let address = sum.required_address_type();
        let (images, ptx) = (images(&sum, cut.rows, spec), has_ptx(&sum));
        // SAFETY: as in the forward pass; a cube writes one row of the partial sums.
        unsafe {
            norm_backward::launch_unchecked(
                &client,
                cubes(&client, count),
                cut.dim(),
                address,
                cut.lanes,
                grad_normed.into_buffer_arg(),
                grad_sum.into_buffer_arg(),
                sum.clone().into_buffer_arg(),
                weight.into_buffer_arg(),
                factors.into_buffer_arg(),
                grad.clone().into_buffer_arg(),
                grad_x.clone().into_buffer_arg(),
                partials.clone().into_buffer_arg(),
                cut.rows,
                cut.width,
                count,
                spec.epsilon,
                images,
                cut.config,
                has_grad_sum,
                has_factors,
                write_x,
                ptx,
                dtype_to_storage_type(dtype),
            );
        }
        let grad_weight = wants_weight.then(|| {
            let [of_weight, nothing] =
                [width, [1].into()].map(|shape| empty(&sum, shape, DType::F32));
            sum_rows(partials, count, cut.d_model, cut.d_model, &of_weight, &nothing);
            of_weight
        });
        [Some(if write_x { grad_x } else { grad.clone() }), Some(grad), grad_weight]
    }
}
