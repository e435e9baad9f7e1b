//! Numbers on their way to the host.

use burn::tensor::{FloatDType, Tensor};

/// The numbers of tensors on the host, in f32, row by row, and the result of `meanwhile`.
///
/// A device copies them behind what is queued; `meanwhile` runs before the host waits, and what it
/// queues keeps a GPU at work while the host goes on with the numbers.
///
/// # Panics
///
/// As `Tensor::into_data`, if the device fails.
#[must_use]
pub fn read_while<const D: usize, const N: usize, T>(
    tensors: [Tensor<D>; N],
    meanwhile: impl FnOnce() -> T,
) -> ([Vec<f32>; N], T) {
    let tensors = tensors.map(|x| x.cast(FloatDType::F32));
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    if let Some(there) = on_cubecl(&tensors) {
        return there.read_while(meanwhile);
    }
    let data = tensors.map(Tensor::into_data);
    let numbers = data.map(|data| data.try_into_vec().expect("invariant: the numbers are f32"));
    (numbers, meanwhile())
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use cube::on_cubecl;

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube {
    use burn::tensor::Tensor;
    use burn_cubecl::CubeBackend;
    use burn_cubecl::tensor::CubeTensor;
    use cubecl::future::reader::read_sync;
    use cubecl::server::CopyDescriptor;

    use crate::cube::dense;

    /// The tensors, if all are where kernels in CubeCL run.
    pub(super) fn on_cubecl<const D: usize, const N: usize>(
        tensors: &[Tensor<D>; N],
    ) -> Option<There<N>> {
        let of = |x: &Tensor<D>| x.clone().inner().try_into_primitive::<CubeBackend>().ok();
        let all: Option<Vec<_>> = tensors.iter().map(|x| of(x).map(dense)).collect();
        Some(There(all?.try_into().ok()?))
    }

    pub(super) struct There<const N: usize>([CubeTensor; N]);

    impl<const N: usize> There<N> {
        pub(super) fn read_while<T>(self, meanwhile: impl FnOnce() -> T) -> ([Vec<f32>; N], T) {
            let Some(client) = self.0.first().map(|x| x.client.clone()) else {
                return ([(); N].map(|()| Vec::new()), meanwhile());
            };
            let copies = self.0.iter().map(|x| {
                let (shape, strides) = (x.meta.shape().clone(), x.meta.strides().clone());
                CopyDescriptor::new(x.handle.clone().binding(), shape, strides, x.dtype.size())
            });
            let copied = client.read_tensor_async(copies.collect());
            let result = meanwhile();
            let mut bytes = read_sync(copied).expect("a device that runs").into_iter();
            let number = |bytes: &[u8; 4]| f32::from_ne_bytes(*bytes);
            let numbers = self.0.map(|_| {
                let bytes = bytes.next().expect("invariant: a copy of each");
                bytes.as_chunks().0.iter().map(number).collect()
            });
            (numbers, result)
        }
    }
}
