//! What the arguments of a scan must be.

use burn::tensor::{DType, Device, Tensor};

use super::ScanSpec;
use crate::error::{KernelError, check_dtypes};

/// The shape of an argument, and its type.
pub(super) type Shaped<const R: usize> = ([usize; R], DType);

pub(super) fn shape_of<const R: usize>(tensor: &Tensor<R>) -> Shaped<R> {
    (tensor.dims(), tensor.dtype())
}

/// Rows of cubes that every GPU can launch.
const MOST_ROWS: usize = 65_535;

/// Elements that an index of 32 bits can tell apart.
const MOST_ELEMENTS: usize = u32::MAX as usize;

/// The arguments of a scan, as far as they are checked.
pub(super) struct Given {
    pub(super) u: Shaped<3>,
    pub(super) delta: Shaped<3>,
    pub(super) a: Shaped<2>,
    pub(super) b: Shaped<4>,
    pub(super) c: Shaped<4>,
    pub(super) d: Option<Shaped<1>>,
    pub(super) z: Option<Shaped<3>>,
    pub(super) delta_bias: Option<Shaped<1>>,
}

impl Given {
    /// Holds every argument against `u` and `a`.
    ///
    /// # Errors
    ///
    /// [`KernelError::Shape`] or [`KernelError::Dtype`], which name the argument.
    pub(super) fn check(&self, spec: ScanSpec, device: &Device) -> Result<(), KernelError> {
        self.check_types(spec, device)?;
        let [batch, len, d_inner] = self.u.0;
        let [channels, d_state] = self.a.0;
        let like_u = |tensor, dims: [usize; 3]| {
            let expected = format!("[B, L, D] = [{batch}, {len}, {d_inner}] as `u`");
            expect(tensor, &dims, dims == [batch, len, d_inner], expected)
        };
        let of_channels = |tensor, dims: [usize; 1]| {
            expect(tensor, &dims, dims == [d_inner], format!("[D] = [{d_inner}]"))
        };
        let nonempty = batch > 0 && len > 0 && d_inner > 0;
        expect("u", &self.u.0, nonempty, "[B, L, D], none of them 0".to_string())?;
        like_u("delta", self.delta.0)?;
        let expected = format!("[D, N] with D = {d_inner} and N ≥ 1");
        expect("a", &self.a.0, channels == d_inner && d_state > 0, expected)?;
        for (name, given, constant) in
            [("b", &self.b, spec.b_constant), ("c", &self.c, spec.c_constant)]
        {
            let dims @ [lead_batch, lead_len, groups, states] = given.0;
            if constant {
                let expected = format!("[D, N] = [{d_inner}, {d_state}]");
                expect(name, &dims[2..], [groups, states] == [d_inner, d_state], expected)?;
            } else {
                let good = [lead_batch, lead_len, states] == [batch, len, d_state]
                    && groups > 0
                    && d_inner % groups == 0;
                let expected = format!(
                    "[B, L, G, N] = [{batch}, {len}, G, {d_state}] with G dividing {d_inner}"
                );
                expect(name, &dims, good, expected)?;
            }
        }
        if !spec.b_constant && !spec.c_constant {
            let (groups, dims) = (self.b.0[2], self.c.0);
            expect("c", &dims, dims[2] == groups, format!("the {groups} groups of `b`"))?;
        }
        if let Some((d, _)) = self.d {
            of_channels("d", d)?;
        }
        if let Some((z, _)) = self.z {
            like_u("z", z)?;
        }
        if let Some((delta_bias, _)) = self.delta_bias {
            of_channels("delta_bias", delta_bias)?;
        }
        Ok(())
    }

    /// That a GPU's kernel can count the elements of its buffers in 32 bits, and launch a row of cubes for
    /// each batch element of `directions`.
    pub(super) fn check_size(&self, spec: ScanSpec, directions: usize) -> Result<(), KernelError> {
        let ([batch, len, d_inner], [_, d_state]) = (self.u.0, self.a.0);
        let batch = batch * directions;
        let groups = [(&self.b, spec.b_constant), (&self.c, spec.c_constant)]
            .map(|(given, constant)| if constant { 1 } else { given.0[2] });
        let groups = groups[0].max(groups[1]);
        // Cubes have at least 32 channels.
        let strips = (d_inner / groups).div_ceil(32);
        let starts = spec.ways() * len.div_ceil(8) * batch * d_state * d_inner;
        let sums = spec.ways() * strips * batch * len * groups * d_state;
        let largest = (batch * len * d_inner).max(starts).max(sums);
        let within = |what, got, limit| {
            let operation = "selective_scan";
            if got <= limit {
                Ok(())
            } else {
                Err(KernelError::TooLarge { operation, what, got, limit })
            }
        };
        within("a batch", batch, MOST_ROWS)?;
        within("a buffer", largest, MOST_ELEMENTS)
    }

    fn check_types(&self, spec: ScanSpec, device: &Device) -> Result<(), KernelError> {
        let mut activations = vec![("u", self.u.1), ("delta", self.delta.1)];
        let mut weights = vec![
            ("a", Some(self.a.1)),
            ("d", self.d.map(|(_, dtype)| dtype)),
            ("delta_bias", self.delta_bias.map(|(_, dtype)| dtype)),
        ];
        for (name, (_, dtype), constant) in
            [("b", self.b, spec.b_constant), ("c", self.c, spec.c_constant)]
        {
            if constant {
                weights.push((name, Some(dtype)));
            } else {
                activations.push((name, dtype));
            }
        }
        activations.extend(self.z.map(|(_, dtype)| ("z", dtype)));
        check_dtypes("selective_scan", device, &activations, &weights)
    }
}

/// An error about `tensor` unless it is `good`.
pub(super) fn expect(
    tensor: &'static str,
    got: &[usize],
    good: bool,
    expected: String,
) -> Result<(), KernelError> {
    let (operation, got) = ("selective_scan", got.to_vec());
    if good { Ok(()) } else { Err(KernelError::Shape { operation, tensor, got, expected }) }
}
