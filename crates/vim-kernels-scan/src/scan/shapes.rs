//! Checks of a scan's arguments, for any kind of A.

use burn::tensor::Device;

use super::ScanSpec;
use vim_kernels_core::KernelError;
use vim_kernels_core::check::{
    MAX_ROWS, ShapeAndType, check_buffers, check_dtypes, check_limit, expect,
};

/// Channels that a GPU's scan has in a cube, if its group has them: at least.
const LEAST_CHANNELS: usize = 32;

/// Shapes and types of a scan's arguments.
pub struct ScanShapes<const A: usize> {
    /// The operation called.
    pub operation: &'static str,
    pub u: ShapeAndType<3>,
    pub delta: ShapeAndType<3>,
    pub a: ShapeAndType<A>,
    pub b: ShapeAndType<4>,
    pub c: ShapeAndType<4>,
    pub d: Option<ShapeAndType<1>>,
    pub z: Option<ShapeAndType<3>>,
    pub delta_bias: Option<ShapeAndType<1>>,
    pub b_constant: bool,
    pub c_constant: bool,
}

impl<const A: usize> ScanShapes<A> {
    /// Checks every shape against `u` and `a`. For D channels, `check_a` returns whether the shape
    /// of `a` is right, and what it should be.
    ///
    /// # Errors
    ///
    /// [`KernelError::Shape`] names the argument.
    pub(crate) fn check_shapes(
        &self,
        check_a: impl FnOnce(usize) -> (bool, String),
    ) -> Result<(), KernelError> {
        let [batch, len, d_inner] = self.u.0;
        let d_state = self.a.0[1];
        let like_u = |tensor, dims: [usize; 3]| {
            let expected = format!("[B, L, D] = [{batch}, {len}, {d_inner}] as `u`");
            self.expect(tensor, &dims, dims == [batch, len, d_inner], expected)
        };
        let of_channels = |tensor, dims: [usize; 1]| {
            self.expect(tensor, &dims, dims == [d_inner], format!("[D] = [{d_inner}]"))
        };
        let nonempty = batch > 0 && len > 0 && d_inner > 0;
        self.expect("u", &self.u.0, nonempty, "[B, L, D], none of them 0".to_string())?;
        like_u("delta", self.delta.0)?;
        let (good, expected) = check_a(d_inner);
        self.expect("a", &self.a.0, good, expected)?;
        for (name, argument, constant) in
            [("b", &self.b, self.b_constant), ("c", &self.c, self.c_constant)]
        {
            let dims @ [lead_batch, lead_len, groups, states] = argument.0;
            if constant {
                let expected = format!("[D, N] = [{d_inner}, {d_state}]");
                self.expect(name, &dims[2..], [groups, states] == [d_inner, d_state], expected)?;
            } else {
                let good = [lead_batch, lead_len, states] == [batch, len, d_state]
                    && groups > 0
                    && d_inner % groups == 0;
                let expected = format!(
                    "[B, L, G, N] = [{batch}, {len}, G, {d_state}] with G dividing {d_inner}"
                );
                self.expect(name, &dims, good, expected)?;
            }
        }
        if !self.b_constant && !self.c_constant {
            let (groups, dims) = (self.b.0[2], self.c.0);
            self.expect("c", &dims, dims[2] == groups, format!("the {groups} groups of `b`"))?;
        }
        self.d.map_or(Ok(()), |(d, _)| of_channels("d", d))?;
        self.z.map_or(Ok(()), |(z, _)| like_u("z", z))?;
        self.delta_bias.map_or(Ok(()), |(bias, _)| of_channels("delta_bias", bias))
    }

    /// Groups of channels with B and C of their own.
    pub(crate) fn groups(&self) -> usize {
        let groups = [(&self.b, self.b_constant), (&self.c, self.c_constant)]
            .map(|(shapes, constant)| if constant { 1 } else { shapes.0[2] });
        groups[0].max(groups[1])
    }

    /// Elements of an array per (batch element, token, channel), and per (batch element, state,
    /// channel).
    pub(crate) fn elements(&self) -> [usize; 2] {
        let ([batch, len, d_inner], d_state) = (self.u.0, self.a.0[1]);
        [batch * len * d_inner, batch * d_state * d_inner]
    }

    /// Cubes of at most `channels` of one group for all channels.
    fn cubes(&self, channels: usize) -> usize {
        let groups = self.groups();
        groups * (self.u.0[2] / groups).div_ceil(channels)
    }

    /// Elements of the sums of the gradients of B and C in a GPU's cubes of `channels`: one for
    /// each cube, token and state, or, where it is constant, each batch element, state and channel.
    pub(crate) fn projection_sums(&self, channels: usize) -> [usize; 2] {
        let ([_, states], varying) = (self.elements(), self.varying_sums(channels));
        [self.b_constant, self.c_constant].map(|constant| if constant { states } else { varying })
    }

    /// Those of B or C where it varies.
    pub(crate) fn varying_sums(&self, channels: usize) -> usize {
        let ([batch, len, _], d_state) = (self.u.0, self.a.0[1]);
        self.cubes(channels) * batch * len * d_state
    }

    /// Checks that 32 bits index a GPU kernel's `buffers`, of these lengths, and that a row of
    /// cubes of `channels` fits the grid for each of `batch` elements.
    ///
    /// # Errors
    ///
    /// [`KernelError::TooLarge`] names what is too large.
    pub(crate) fn check_size(
        &self,
        [batch, channels]: [usize; 2],
        buffers: impl IntoIterator<Item = usize>,
    ) -> Result<(), KernelError> {
        check_limit(self.operation, "a batch", batch, MAX_ROWS)?;
        let cubes = self.cubes(channels);
        check_limit(self.operation, "a number of blocks of channels", cubes, MAX_ROWS)?;
        check_buffers(self.operation, buffers)
    }

    fn expect(
        &self,
        tensor: &'static str,
        got: &[usize],
        good: bool,
        expected: String,
    ) -> Result<(), KernelError> {
        expect(self.operation, tensor, got, good, expected)
    }
}

impl ScanShapes<2> {
    /// Checks every argument against `u` and `a`.
    ///
    /// # Errors
    ///
    /// [`KernelError::Shape`] or [`KernelError::Dtype`], which name the argument.
    pub(crate) fn check(&self, device: &Device) -> Result<(), KernelError> {
        self.check_types(device)?;
        self.check_dims()
    }

    /// Checks every shape against `u` and `a`.
    ///
    /// # Errors
    ///
    /// [`KernelError::Shape`] names the argument.
    pub(crate) fn check_dims(&self) -> Result<(), KernelError> {
        let [channels, d_state] = self.a.0;
        self.check_shapes(|d_inner| {
            let expected = format!("[D, N] with D = {d_inner} and N ≥ 1");
            (channels == d_inner && d_state > 0, expected)
        })
    }

    /// Checks that a GPU's kernels can run a scan of `spec` with `directions` at once.
    ///
    /// # Errors
    ///
    /// [`KernelError::TooLarge`] names what is too large.
    pub fn check_scan_size(&self, spec: ScanSpec, directions: usize) -> Result<(), KernelError> {
        let [tokens, states] = self.elements();
        let sweeps = spec.sweeps();
        // States are saved for every eighth token, or, for each way of two, every fourth. Sums of
        // constants and of A, and states between segments, have a row for each segment: fewer.
        let saved = sweeps * self.u.0[1].div_ceil(8) * states;
        let [b, c] = self.projection_sums(LEAST_CHANNELS);
        let buffers = [tokens, saved, b, c].map(|length| directions * length);
        self.check_size([directions * self.u.0[0], LEAST_CHANNELS], buffers)
    }

    pub(crate) fn check_types(&self, device: &Device) -> Result<(), KernelError> {
        let mut activations = vec![("u", self.u.1), ("delta", self.delta.1)];
        let mut weights = vec![
            ("a", Some(self.a.1)),
            ("d", self.d.map(|(_, dtype)| dtype)),
            ("delta_bias", self.delta_bias.map(|(_, dtype)| dtype)),
        ];
        for (name, (_, dtype), constant) in
            [("b", self.b, self.b_constant), ("c", self.c, self.c_constant)]
        {
            if constant {
                weights.push((name, Some(dtype)));
            } else {
                activations.push((name, dtype));
            }
        }
        activations.extend(self.z.map(|(_, dtype)| ("z", dtype)));
        check_dtypes(self.operation, device, &activations, &weights)
    }
}

/// What a check of sizes found too large.
#[cfg(test)]
pub(crate) fn named(result: Result<(), KernelError>) -> &'static str {
    match result {
        Err(KernelError::TooLarge { what, .. }) => what,
        Ok(()) | Err(_) => "nothing",
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::DType;

    use super::*;
    use crate::scan::ScanOptions;

    // Nothing of these sizes is allocated.
    #[test]
    fn what_a_kernel_cannot_count_is_named() {
        let sized = |batch: usize, len: usize| {
            let f32 = DType::F32;
            let shapes = ScanShapes {
                operation: "a scan",
                u: ([batch, len, 384], f32),
                delta: ([batch, len, 384], f32),
                a: ([384, 16], f32),
                b: ([batch, len, 1, 16], f32),
                c: ([batch, len, 1, 16], f32),
                d: None,
                z: None,
                delta_bias: None,
                b_constant: false,
                c_constant: false,
            };
            let spec = ScanSpec::plain(ScanOptions::default());
            [1, 2].map(|directions| named(shapes.check_scan_size(spec, directions)))
        };
        assert_eq!(sized(128, 197), ["nothing", "nothing"]);
        assert_eq!(sized(40_000, 1), ["nothing", "a batch"]);
        // The chunk states, 25 · 20 000 · 16 · 384, are under 2³², and twice that is over it.
        assert_eq!(sized(20_000, 197), ["nothing", "a buffer"]);
        assert_eq!(sized(60_000, 257), ["a buffer", "a batch"]);
    }
}
