//! The selective scan, of real states and of complex ones: inputs, cases, and its checks against
//! the f64 loops.

use burn::tensor::Device;
use vim_kernels::oracle::OracleScan;
use vim_kernels::{Discretization, Implementation, Series, has_kernel};

use crate::check::{Check, Context, Subject, worst};
use crate::compare::{Dtype, Numbers};
use crate::run::{Results, StateNumber, judged};

/// Which form B and C take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// Both per token.
    Variable,
    /// Both per token, for this number of groups of channels.
    Grouped(usize),
    /// Both constant, per channel.
    Constant,
    /// B constant, C variable.
    Mixed,
}

impl Form {
    /// All forms.
    pub const ALL: [Self; 4] = [Self::Variable, Self::Grouped(2), Self::Constant, Self::Mixed];

    fn name(self) -> &'static str {
        match self {
            Self::Variable => "",
            Self::Grouped(_) => " grouped",
            Self::Constant => " constant",
            Self::Mixed => " B constant",
        }
    }
}

/// A scan with every optional input; delta·a reaches about `reach` in magnitude.
#[must_use]
pub fn inputs(sizes: [usize; 4], form: Form, reach: f64, dtype: Dtype) -> OracleScan {
    inputs_of(3, sizes, form, reach, dtype)
}

/// [`inputs`] with the numbers of another seed.
#[must_use]
pub fn inputs_of(
    seed: u64,
    [batch, len, d_inner, d_state]: [usize; 4],
    form: Form,
    reach: f64,
    dtype: Dtype,
) -> OracleScan {
    let mut x = Numbers::new(seed);
    let groups = if let Form::Grouped(groups) = form { groups } else { 1 };
    let tokens = batch * len * d_inner;
    let variable = batch * len * groups * d_state;
    let b_constant = matches!(form, Form::Constant | Form::Mixed);
    let c_constant = matches!(form, Form::Constant);
    let weight = Dtype::F32;
    let mut projection = |constant| {
        let (n, dtype) = if constant { (d_inner * d_state, weight) } else { (variable, dtype) };
        x.vec(n, -1.0, 1.0, dtype)
    };
    let (b, c) = (projection(b_constant), projection(c_constant));
    // softplus(−3.5 … 1) is 0.03 … 1.3, the range that trained models reach; a does the rest.
    OracleScan {
        batch,
        len,
        d_inner,
        d_state,
        groups,
        delta_softplus: true,
        b_constant,
        c_constant,
        b,
        c,
        u: x.vec(tokens, -1.5, 1.5, dtype),
        delta: x.vec(tokens, -3.0, 0.5, dtype),
        a: x.vec(d_inner * d_state, -reach, -0.01 * reach, weight),
        d: Some(x.vec(d_inner, -1.0, 1.0, weight)),
        z: Some(x.vec(tokens, -2.0, 2.0, dtype)),
        delta_bias: Some(x.vec(d_inner, -0.5, 0.5, weight)),
        ..OracleScan::default()
    }
}

/// `real` with imaginary parts where its states have any: delta·a turns by up to about `turn`
/// radians a token.
#[must_use]
pub fn with_parts<T: StateNumber>(real: OracleScan, turn: f64, dtype: Dtype) -> OracleScan<T> {
    let mut x = Numbers::new(1003);
    let mut number = |re: f64, limit: f64, dtype| {
        let count = T::default().parts().len();
        T::of_parts(re, if count == 2 { x.vec(1, -limit, limit, dtype)[0] } else { 0.0 })
    };
    let of = |constant| if constant { Dtype::F32 } else { dtype };
    let (of_b, of_c) = (of(real.b_constant), of(real.c_constant));
    OracleScan {
        batch: real.batch,
        len: real.len,
        d_inner: real.d_inner,
        d_state: real.d_state,
        groups: real.groups,
        method: real.method,
        series: real.series,
        delta_softplus: real.delta_softplus,
        reverse: real.reverse,
        b_constant: real.b_constant,
        c_constant: real.c_constant,
        a: real.a.into_iter().map(|re| number(re, turn, Dtype::F32)).collect(),
        b: real.b.into_iter().map(|re| number(re, 1.0, of_b)).collect(),
        c: real.c.into_iter().map(|re| number(re, 1.0, of_c)).collect(),
        u: real.u,
        delta: real.delta,
        d: real.d,
        z: real.z,
        delta_bias: real.delta_bias,
    }
}

/// A weighting of the outputs, so that gradients of different outputs do not cancel or hide.
#[must_use]
pub fn grad_of<T>(scan: &OracleScan<T>, dtype: Dtype) -> Vec<f64> {
    Numbers::new(99).vec(scan.u.len(), -1.0, 1.0, dtype)
}

/// A case of a check: sizes `[B, L, D, N]`, form, how far delta·a reaches, and the direction.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// `[B, L, D, N]`.
    pub sizes: [usize; 4],
    /// That of B and C.
    pub form: Form,
    /// How far delta·a reaches.
    pub reach: f64,
    /// Whether the scan runs from the last token to the first.
    pub reverse: bool,
}

impl Case {
    pub(crate) fn new(sizes: [usize; 4], form: Form, reach: f64) -> Self {
        Self { sizes, form, reach, reverse: false }
    }

    /// The scan of this case, with the numbers of a seed.
    #[must_use]
    pub fn inputs(&self, seed: u64, dtype: Dtype) -> OracleScan {
        let scan = inputs_of(seed, self.sizes, self.form, self.reach, dtype);
        OracleScan { reverse: self.reverse, ..scan }
    }

    /// Each of `cases` forward and reverse.
    pub(crate) fn both_ways(cases: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let ways = |case| [false, true].map(|reverse| Self { reverse, ..case });
        cases.into_iter().flat_map(ways).collect()
    }

    pub(crate) fn name(&self) -> String {
        let [batch, len, d_inner, d_state] = self.sizes;
        let way = if self.reverse { " reverse" } else { "" };
        let far =
            if self.reach > 4.0 { format!(" |delta a| to {}", self.reach) } else { String::new() };
        format!("B={batch} L={len} D={d_inner} N={d_state}{}{way}{far}", self.form.name())
    }
}

/// The cases for one method and series.
fn cases<T: StateNumber>(
    context: &Context,
    method: Discretization,
    series: Series,
    implementation: Implementation,
) -> Vec<Case> {
    if context.few_kernels(implementation) {
        // One kernel: sizes and numbers that it is not compiled for.
        return match series {
            Series::Exact => {
                // The last has rows of whole sixteen bytes, which a kernel may copy, and tokens for
                // two segments.
                let sizes = [[1, 1, 3, 16], [1, 2, 5, 16], USUAL, [2, 67, 40, 16]];
                let mut cases = sizes.map(|sizes| Case::new(sizes, Form::Variable, 4.0)).to_vec();
                cases.push(Case::new(USUAL, Form::Variable, 1000.0));
                if method == Discretization::Zoh {
                    // Passes that hold one state more than there is, and just those that are: of no
                    // formula's concern.
                    for d_state in [31, 32] {
                        cases.push(Case::new([1, 67, 5, d_state], Form::Variable, 4.0));
                    }
                }
                if method == Discretization::Foh {
                    // Two strips of channels, of the widest cubes that there are.
                    cases.push(Case::new([1, 40, 768, 16], Form::Variable, 4.0));
                }
                cases
            }
            Series::Taylor => {
                vec![Case { reverse: true, ..Case::new(USUAL, Form::Grouped(2), 4.0) }]
            }
        };
    }
    every_case(context.quick, T::default().parts().len() == 2, implementation)
}

/// The usual sizes of a case.
const USUAL: [usize; 4] = [2, 21, 6, 16];

/// The cases of real states, or of `complex` ones, where a case costs no kernel of its own.
#[must_use]
pub fn every_case(quick: bool, complex: bool, implementation: Implementation) -> Vec<Case> {
    let mut cases: Vec<_> = Form::ALL.map(|form| Case::new(USUAL, form, 4.0)).into();
    // One token more than chunks have, and one less, among them.
    let mut sizes = vec![[1, 1, 1, 1], [1, 2, 5, 17], [2, 5, 3, 1], [1, 15, 5, 3], [1, 17, 5, 3]];
    if !quick && complex {
        // Several chunks; wider than a block of channels.
        sizes.extend([[1, 197, 5, 16], [1, 37, 130, 3]]);
    } else if !quick {
        sizes.extend([[1, 5, 64, 16], [1, 197, 5, 16], [2, 37, 33, 17]]);
        // Longer than what one unit scans alone; wider than a block of channels.
        sizes.push(match implementation {
            Implementation::Kernel => [1, 1025, 5, 16],
            Implementation::Reference => [1, 1025, 2, 2],
        });
        if implementation == Implementation::Kernel {
            // And with rows of whole sixteen bytes.
            sizes.extend([[1, 67, 130, 16], [1, 67, 136, 16]]);
        }
    }
    cases.extend(sizes.into_iter().map(|sizes| Case::new(sizes, Form::Variable, 4.0)));
    // delta reaches 1.3, so delta·a reaches −1000 and beyond: every decay underflows.
    cases.push(Case::new([1, 21, 6, 3], Form::Variable, 1000.0));
    Case::both_ways(cases)
}

/// Every scan of a check, with what to call it.
fn scans<T: StateNumber>(
    context: &Context,
    method: Discretization,
    series: Series,
    implementation: Implementation,
    dtype: Dtype,
) -> Vec<(OracleScan<T>, String)> {
    let of_case = |case: Case| (with_parts(case.inputs(3, dtype), case.reach, dtype), case.name());
    let mut scans: Vec<_> =
        cases::<T>(context, method, series, implementation).into_iter().map(of_case).collect();
    if !context.few_kernels(implementation) {
        for (real, absent) in without_optional_inputs(dtype) {
            let OracleScan { batch, len, d_inner, d_state, .. } = real;
            let case = format!("B={batch} L={len} D={d_inner} N={d_state} without {absent}");
            scans.push((with_parts(real, 4.0, dtype), case));
        }
    }
    scans
}

/// The methods that are checked with such states.
pub(crate) fn methods_of<T: StateNumber>(
    context: &Context,
) -> impl Iterator<Item = Discretization> + use<'_, T> {
    let real = T::default().parts().len() == 1;
    context.methods.iter().copied().filter(move |method| real || method.form().published)
}

/// Every method, series, implementation and type, with real states or complex ones: y, the last
/// state and all gradients.
pub(crate) fn checks<T: StateNumber>(context: &Context) -> Vec<Check> {
    let check = |(implementation, dtype), method, series| {
        let run = move |context: &Context, factor| {
            let scans = scans::<T>(context, method, series, implementation, dtype).into_iter();
            worst(scans.map(|(scan, case)| {
                let scan = OracleScan { method, series, ..scan };
                let grad_y = grad_of(&scan, dtype);
                let device = &context.device;
                let got = Results::on_device(&scan, &grad_y, implementation, dtype, device)?;
                let want = Results::of_oracle(&scan, &grad_y);
                Ok(judged(&scan, &got, &want, dtype, T::LOOSER, factor, &case))
            }))
        };
        Check::new(Subject::Oracle, T::OPERATION, implementation, dtype, run).of(method, series)
    };
    let mut checks = Vec::new();
    for one in context.runs() {
        for method in methods_of::<T>(context) {
            let series = context.series(method, one.0).into_iter();
            checks.extend(series.map(|series| check(one, method, series)));
        }
    }
    checks
}

/// A small scan without each of its optional inputs.
pub(crate) fn without_optional_inputs(dtype: Dtype) -> [(OracleScan, &'static str); 4] {
    without_inputs(&inputs([2, 5, 6, 4], Form::Variable, 4.0, dtype), dtype)
}

/// `scan` without D, without the gate, without the bias of delta, and without softplus and the
/// bias, with what is absent.
#[must_use]
pub fn without_inputs<T: Clone>(
    scan: &OracleScan<T>,
    dtype: Dtype,
) -> [(OracleScan<T>, &'static str); 4] {
    // Without softplus, delta is used as it is: make it a step.
    let delta = scan.delta.iter().map(|d| dtype.round(0.02 + d.abs() / 4.0)).collect();
    let plain = OracleScan { delta_bias: None, ..scan.clone() };
    [
        (OracleScan { d: None, ..scan.clone() }, "D"),
        (OracleScan { z: None, ..scan.clone() }, "gate"),
        (plain.clone(), "delta bias"),
        (OracleScan { delta_softplus: false, delta, ..plain }, "softplus"),
    ]
}

/// Whether the kernel is there, which is then what a check with one implementation takes.
#[must_use]
pub fn preferred(device: &Device) -> Implementation {
    if has_kernel(device) { Implementation::Kernel } else { Implementation::Reference }
}
