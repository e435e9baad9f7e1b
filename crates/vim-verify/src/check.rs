//! A check: a name, an operation, and a run that returns rows.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::Device;
use serde::Serialize;
use strum::VariantArray;
use vim_kernels::{Discretization, Implementation, KernelChoice, KernelError, Series, has_kernel};

use crate::compare::Figures;
use crate::dtype::Dtype;

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

    /// Whether to run as few distinct kernels as still touch every method and both ways.
    pub fn few_kernels(&self, implementation: Implementation) -> bool {
        self.quick && self.compiles && implementation == Implementation::Kernel
    }

    /// The series to check `method` under: both, or where kernels are to be few, Taylor's for the
    /// first two of the methods that it changes.
    pub fn series(&self, method: Discretization, implementation: Implementation) -> Vec<Series> {
        let changed = |method: &&Discretization| {
            method.bounded(Series::Exact) && !method.bounded(Series::Taylor)
        };
        let mut chosen = self.methods.iter().filter(changed).take(FEW_TAYLOR);
        if self.few_kernels(implementation) && !chosen.any(|&one| one == method) {
            return vec![Series::Exact];
        }
        Series::VARIANTS.to_vec()
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// An implementation against the f64 loops.
    Oracle,
    /// The f64 gradients against finite differences.
    Adjoint,
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
        matches!(self, Self::Oracle | Self::Adjoint)
    }
}

/// What was found for an array, a pair of methods or a magnitude.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which.
    pub array: String,
    /// The largest error.
    pub max: f64,
    /// The mean error.
    pub mean: f64,
    /// What the largest may be.
    pub tolerance: f64,
    /// What it comes to.
    pub verdict: Verdict,
    /// Where the largest error was, or what the figures say.
    pub note: String,
}

/// What a row comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Within the tolerance.
    Pass,
    /// Beyond the tolerance, or not a number.
    Fail,
    /// For information: nothing is asked of it.
    Reported,
}

impl Row {
    /// A row that passes if `figures.max` is within `tolerance`.
    pub(crate) fn judged(
        array: impl Into<String>,
        figures: Figures,
        tolerance: f64,
        note: impl Into<String>,
    ) -> Self {
        // Not `>`: what is not a number must fail.
        let verdict = if figures.max <= tolerance { Verdict::Pass } else { Verdict::Fail };
        let Figures { max, mean } = figures;
        Self { array: array.into(), max, mean, tolerance, verdict, note: note.into() }
    }

    /// The error over what it may be; infinite where it is not a number.
    pub fn ratio(&self) -> f64 {
        let ratio = self.max / self.tolerance;
        if ratio.is_nan() { f64::INFINITY } else { ratio }
    }
}

/// The worst of each array over several cases, in the order in which arrays first come.
#[derive(Default)]
pub(crate) struct Worst(Vec<Row>);

impl Worst {
    pub(crate) fn add(&mut self, row: Row) {
        match self.0.iter_mut().find(|known| known.array == row.array) {
            Some(known) => {
                let mean = known.mean.max(row.mean);
                if row.ratio() > known.ratio() {
                    *known = row;
                }
                known.mean = mean;
            }
            None => self.0.push(row),
        }
    }

    pub(crate) fn into_rows(self) -> Vec<Row> {
        self.0
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
    /// A name that no other check has, such as `oracle/selective_scan/zoh/exact/kernel/f32`.
    pub fn name(&self) -> String {
        let subject = match self.subject {
            Subject::Oracle => "oracle",
            Subject::Adjoint => "adjoint",
            Subject::Methods => "methods",
            Subject::Bits => "bits",
            Subject::Stability => "stability",
        };
        let method = self.method.map(|method| method.to_string());
        let series = self.series.map(|series| series.to_string());
        let parts = [
            Some(subject),
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
    /// Runs `check`. A panic, as of a kernel that does not compile, is a failure of this check
    /// alone.
    pub fn of(check: &Check, context: &Context, factor: f64) -> Self {
        let start = std::time::Instant::now();
        let unsupported = (check.dtype == Dtype::Bf16.to_string()
            && !context.supports(Dtype::Bf16))
        .then(|| "the device does not compute in bf16".to_owned());
        let result = match unsupported {
            Some(reason) => Ok(Err(reason)),
            None => match catch_unwind(AssertUnwindSafe(|| (check.run)(context, factor))) {
                Ok(Ok(rows)) => Ok(Ok(rows)),
                Ok(Err(error)) if not_here(&error) => Ok(Err(error.to_string())),
                Ok(Err(error)) => Err(error.to_string()),
                Err(panic) => Err((context.explain_panic)(&*panic)),
            },
        };
        let (rows, skipped, error) = match result {
            Ok(Ok(rows)) => (rows, None, None),
            Ok(Err(reason)) => (Vec::new(), Some(reason), None),
            Err(error) => (Vec::new(), None, Some(error)),
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
        judged.max_by(|one, two| one.ratio().total_cmp(&two.ratio()))
    }
}

/// Whether the device, rather than the call, is what an operation failed for.
fn not_here(error: &KernelError) -> bool {
    matches!(error, KernelError::Dtype { .. } | KernelError::NoKernel { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_number_fails() {
        let figures = Figures { max: f64::NAN, mean: 0.0 };
        let row = Row::judged("y", figures, 1.0, "");
        assert_eq!(row.verdict, Verdict::Fail);
        assert_eq!(row.ratio(), f64::INFINITY);
    }
}
