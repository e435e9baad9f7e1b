//! What the arguments of a scan must be, whatever its A is.

use burn::tensor::{DType, Tensor};

use crate::error::KernelError;

/// Rows of cubes that every GPU can launch.
const MOST_ROWS: usize = 65_535;

/// Elements that an index of 32 bits can tell apart.
const MOST_ELEMENTS: usize = u32::MAX as usize;

/// The shape of an argument, and its type.
pub(crate) type Shaped<const R: usize> = ([usize; R], DType);

pub(crate) fn shape_of<const R: usize>(tensor: &Tensor<R>) -> Shaped<R> {
    (tensor.dims(), tensor.dtype())
}

/// The arguments of a scan, as far as they are checked.
pub(crate) struct Given<const A: usize> {
    /// What is called.
    pub(crate) operation: &'static str,
    pub(crate) u: Shaped<3>,
    pub(crate) delta: Shaped<3>,
    pub(crate) a: Shaped<A>,
    pub(crate) b: Shaped<4>,
    pub(crate) c: Shaped<4>,
    pub(crate) d: Option<Shaped<1>>,
    pub(crate) z: Option<Shaped<3>>,
    pub(crate) delta_bias: Option<Shaped<1>>,
    pub(crate) b_constant: bool,
    pub(crate) c_constant: bool,
}

impl<const A: usize> Given<A> {
    /// Holds every shape against `u` and `a`. `a_is_good` says whether that of `a` is, and what it should be, for D channels.
    ///
    /// # Errors
    ///
    /// [`KernelError::Shape`] names the argument.
    pub(crate) fn check_shapes(
        &self,
        a_is_good: impl FnOnce(usize) -> (bool, String),
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
        let (good, expected) = a_is_good(d_inner);
        self.expect("a", &self.a.0, good, expected)?;
        for (name, given, constant) in
            [("b", &self.b, self.b_constant), ("c", &self.c, self.c_constant)]
        {
            let dims @ [lead_batch, lead_len, groups, states] = given.0;
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

    /// That a GPU's kernel can count the elements of its buffers in 32 bits, and launch a row of cubes for each
    /// batch element: of `directions` that run at once, or `ways` that do not.
    ///
    /// # Errors
    ///
    /// [`KernelError::TooLarge`] says what is.
    pub(crate) fn check_size(&self, directions: usize, ways: usize) -> Result<(), KernelError> {
        let ([batch, len, d_inner], d_state) = (self.u.0, self.a.0[1]);
        let batch = batch * directions;
        let groups = [(&self.b, self.b_constant), (&self.c, self.c_constant)]
            .map(|(given, constant)| if constant { 1 } else { given.0[2] });
        let groups = groups[0].max(groups[1]);
        // Cubes have at least 32 channels.
        let strips = (d_inner / groups).div_ceil(32);
        let starts = ways * len.div_ceil(8) * batch * d_state * d_inner;
        let sums = ways * strips * batch * len * groups * d_state;
        let largest = (batch * len * d_inner).max(starts).max(sums);
        within(self.operation, "a batch", batch, MOST_ROWS)?;
        within(self.operation, "a buffer", largest, MOST_ELEMENTS)
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

/// Rows of a product that a cube takes at the least where there are many, and a strip of a sum over rows.
const ROWS_OF_A_CUBE: usize = 64;

/// That a GPU's products can count and launch `tokens` rows of which the widest has `width` numbers.
///
/// # Errors
///
/// [`KernelError::TooLarge`] says what is.
pub(crate) fn check_rows(
    operation: &'static str,
    tokens: usize,
    width: usize,
) -> Result<(), KernelError> {
    within(operation, "a number of tokens", tokens, MOST_ROWS * ROWS_OF_A_CUBE)?;
    within(operation, "a buffer", tokens * width, MOST_ELEMENTS)
}

fn within(
    operation: &'static str,
    what: &'static str,
    got: usize,
    limit: usize,
) -> Result<(), KernelError> {
    let error = KernelError::TooLarge { operation, what, got, limit };
    if got <= limit { Ok(()) } else { Err(error) }
}

/// An error about `tensor` unless it is `good`.
pub(crate) fn expect(
    operation: &'static str,
    tensor: &'static str,
    got: &[usize],
    good: bool,
    expected: String,
) -> Result<(), KernelError> {
    let got = got.to_vec();
    if good { Ok(()) } else { Err(KernelError::Shape { operation, tensor, got, expected }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_beyond_a_launch_are_named() {
        let rows = |tokens, width| match check_rows("linear", tokens, width) {
            Err(KernelError::TooLarge { what, .. }) => what,
            Ok(()) | Err(_) => "nothing",
        };
        assert_eq!(rows(512 * 197, 1536), "nothing");
        assert_eq!(rows(65_535 * 64 + 1, 16), "a number of tokens");
        assert_eq!(rows(4_000_000, 1536), "a buffer");
    }

    // Nothing of these sizes is allocated.
    #[test]
    fn what_a_kernel_cannot_count_is_named() {
        let sized = |batch: usize, len: usize| {
            let f32 = DType::F32;
            let given = Given {
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
            [given.check_size(1, 1), given.check_size(2, 1)].map(|result| match result {
                Err(KernelError::TooLarge { what, .. }) => what,
                Ok(()) | Err(_) => "nothing",
            })
        };
        assert_eq!(sized(128, 197), ["nothing", "nothing"]);
        assert_eq!(sized(40_000, 1), ["nothing", "a batch"]);
        // The starts of the chunks, 25 · 20 000 · 16 · 384, are under 2³², and twice that is over it.
        assert_eq!(sized(20_000, 197), ["nothing", "a buffer"]);
        assert_eq!(sized(60_000, 257), ["a buffer", "a batch"]);
    }
}
