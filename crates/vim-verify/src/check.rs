//! A check: a name, an operation, and a run that returns rows.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::Device;
use serde::Serialize;
use strum::Display;
use vim_kernels::{
    Discretization, Implementation, KernelChoice, KernelError, Series, has_fused_mixer, has_kernel,
};

use crate::compare::Dtype;
use crate::offered::{lacking, on_gpu};
pub(crate) use crate::row::worst;
pub use crate::row::{Array, Row, Verdict, rows_of};

/// Methods whose kernels under Taylor's series are checked where kernels are to be few.
pub const FEW_TAYLOR: usize = 2;

/// Puts a panic, as of a kernel that does not compile, into words.
pub type ExplainPanic = fn(&(dyn Any + Send)) -> String;

/// What checks are made for.
#[derive(Clone, Debug)]
pub struct Context {
    /// Without autodiff.
    pub device: Device,
    /// The methods to check.
    pub methods: Vec<Discretization>,
    /// The types of activations to check.
    pub dtypes: &'static [Dtype],
    /// Fewer and smaller shapes.
    pub quick: bool,
    /// Whether a kernel is compiled when it first runs, a second or two each, as on a GPU.
    pub compiles: bool,
    /// What a check that panics reports.
    pub explain_panic: ExplainPanic,
}

impl Context {
    /// What this build has for the device.
    pub fn implementations(&self) -> Vec<Implementation> {
        let kernel = has_kernel(&self.device).then_some(Implementation::Kernel);
        kernel.into_iter().chain([Implementation::Reference]).collect()
    }

    /// Every implementation with every type.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (Implementation, Dtype)> + use<> {
        let dtypes = self.dtypes;
        let of = move |one| dtypes.iter().map(move |&dtype| (one, dtype));
        self.implementations().into_iter().flat_map(of)
    }

    /// Whether to run as few distinct kernels as still touch every method and both ways.
    pub fn few_kernels(&self, implementation: Implementation) -> bool {
        self.quick && self.compiles && implementation == Implementation::Kernel
    }

    /// Whether tiles and the way of a product are chosen by its sizes, as on CUDA: there are then
    /// sizes that reach the kernels of training.
    pub(crate) fn sizes_decide(&self) -> bool {
        self.compiles && on_gpu(&self.device) && has_fused_mixer(&self.device)
    }

    /// The series to check `method` under: all that it has, or where kernels are to be few,
    /// Taylor's for the first two of the methods that it changes.
    pub fn series(&self, method: Discretization, implementation: Implementation) -> Vec<Series> {
        let changed = |method: &&Discretization| {
            let series = method.series();
            series.len() > 1 && method.bounded(Series::Exact) && !method.bounded(Series::Taylor)
        };
        let mut chosen = self.methods.iter().filter(changed).take(FEW_TAYLOR);
        if self.few_kernels(implementation) && !chosen.any(|&one| one == method) {
            return vec![Series::Exact];
        }
        method.series().to_vec()
    }

    /// Whether the device computes in `dtype`.
    pub fn supports(&self, dtype: Dtype) -> bool {
        self.device.supports_dtype(dtype.float())
    }
}

/// The choice that runs `implementation` and nothing else.
pub fn choice(implementation: Implementation) -> KernelChoice {
    match implementation {
        Implementation::Kernel => KernelChoice::Kernel,
        Implementation::Reference => KernelChoice::Reference,
    }
}

/// What a check is about; the table has a part for each.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Subject {
    /// An implementation against the f64 loops.
    Oracle,
    /// The f64 gradients against finite differences.
    Adjoint,
    /// The order of a method that is measured, against the one that it claims.
    Order,
    /// The methods against each other.
    Methods,
    /// The same bits each time, however the inputs lie in memory.
    Bits,
    /// Finite and bounded over a range of |delta·A|.
    Stability,
}

impl Subject {
    /// Whether its rows hold errors rather than differences or ratios.
    #[must_use]
    pub fn has_errors(self) -> bool {
        matches!(self, Self::Oracle | Self::Adjoint | Self::Order)
    }
}

/// What a check does, given the factor on tolerances.
pub type Run = Box<dyn Fn(&Context, f64) -> Result<Vec<Row>, KernelError>>;

/// One check. A further operation is a function that returns some of these, and an entry in
/// `OPERATIONS`.
pub struct Check {
    /// The kind of check.
    pub subject: Subject,
    /// The operation, such as `selective_scan`.
    pub operation: &'static str,
    /// The method, where the check is of one.
    pub method: Option<Discretization>,
    /// The series, where the check is of one.
    pub series: Option<Series>,
    /// `kernel`, `reference` or `oracle`.
    pub implementation: String,
    /// `f32`, `bf16` or `f64`.
    pub dtype: String,
    /// Runs the check.
    pub run: Run,
}

impl Check {
    /// A check of no method or series in particular.
    pub(crate) fn new(
        subject: Subject,
        operation: &'static str,
        implementation: impl ToString,
        dtype: impl ToString,
        run: impl Fn(&Context, f64) -> Result<Vec<Row>, KernelError> + 'static,
    ) -> Self {
        let (implementation, dtype) = (implementation.to_string(), dtype.to_string());
        let run = Box::new(run);
        Self { subject, operation, method: None, series: None, implementation, dtype, run }
    }

    /// The check as one of `method` under `series`.
    pub(crate) fn of(self, method: Discretization, series: Series) -> Self {
        Self { method: Some(method), series: Some(series), ..self }
    }

    /// A name that no other check has, such as `oracle/selective_scan/zoh/exact/kernel/f32`.
    pub fn name(&self) -> String {
        let subject = self.subject.to_string();
        let method = self.method.map(|method| method.to_string());
        let series = self.series.map(|series| series.to_string());
        let parts = [
            Some(subject.as_str()),
            Some(self.operation),
            method.as_deref(),
            series.as_deref(),
            Some(&self.implementation),
            Some(&self.dtype),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("/")
    }
}

/// What a check came to.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// [`Check::name`].
    pub name: String,
    /// The kind of check.
    pub subject: Subject,
    /// The operation.
    pub operation: &'static str,
    /// The method, where the check is of one.
    pub method: Option<Discretization>,
    /// The series, where the check is of one.
    pub series: Option<Series>,
    /// `kernel`, `reference` or `oracle`.
    pub implementation: String,
    /// `f32`, `bf16` or `f64`.
    pub dtype: String,
    /// Whether every judged row is within its tolerance.
    pub passed: bool,
    /// Why it did not run here; it then counts neither as passed nor as failed.
    pub skipped: Option<String>,
    /// Why it could not be run to its end.
    pub error: Option<String>,
    /// Time of the check, in seconds.
    pub seconds: f64,
    /// What the check measured.
    pub rows: Vec<Row>,
}

impl Outcome {
    /// Runs `check`, unless the device lacks what it is of, which is known beforehand: a refusal on
    /// the way is a failure. So is a panic, as of a kernel that does not compile, of this check
    /// alone, and a check that compared nothing.
    pub fn of(check: &Check, context: &Context, factor: f64) -> Self {
        let start = std::time::Instant::now();
        let skipped = lacking(check, &context.device).map(str::to_owned);
        let run = || catch_unwind(AssertUnwindSafe(|| (check.run)(context, factor)));
        let (rows, error) = match skipped.is_none().then(run) {
            None => (Vec::new(), None),
            Some(Ok(Ok(rows))) if rows.is_empty() => {
                (rows, Some("the check compared nothing".to_owned()))
            }
            Some(Ok(Ok(rows))) => (rows, None),
            Some(Ok(Err(error))) => (Vec::new(), Some(error.to_string())),
            Some(Err(panic)) => (Vec::new(), Some((context.explain_panic)(&*panic))),
        };
        let good = rows.iter().all(|row| row.verdict != Verdict::Fail);
        Self {
            name: check.name(),
            subject: check.subject,
            operation: check.operation,
            method: check.method,
            series: check.series,
            implementation: check.implementation.clone(),
            dtype: check.dtype.clone(),
            passed: good && error.is_none() && skipped.is_none(),
            skipped,
            error,
            seconds: start.elapsed().as_secs_f64(),
            rows,
        }
    }

    /// Whether the check ran and did not pass.
    pub fn failed(&self) -> bool {
        !self.passed && self.skipped.is_none()
    }

    /// The judged row that is closest to its tolerance, or farthest beyond it.
    pub fn worst(&self) -> Option<&Row> {
        let judged = self.rows.iter().filter(|row| row.verdict != Verdict::Reported);
        judged.max_by(|one, two| one.compared(two))
    }
}
