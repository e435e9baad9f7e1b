//! A check: a name, an operation, and a run that returns rows.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::Device;
use serde::Serialize;
use strum::VariantArray;
use vim_kernels::{Discretization, Implementation, KernelChoice, KernelError, Series, has_kernel};

use super::args::Dtype;
use super::compare::Figures;
use crate::error::Error;

/// What checks are made for.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// Without autodiff.
    pub(crate) device: Device,
    pub(crate) methods: Vec<Discretization>,
    pub(crate) dtypes: &'static [Dtype],
    pub(crate) quick: bool,
    /// Whether a kernel is compiled when it first runs, a second or two each, as on a GPU.
    pub(crate) compiles: bool,
}

impl Context {
    /// What this build has for the device.
    pub(crate) fn implementations(&self) -> Vec<Implementation> {
        let kernel = has_kernel(&self.device).then_some(Implementation::Kernel);
        kernel.into_iter().chain([Implementation::Reference]).collect()
    }

    /// Whether to run as few distinct kernels as still touch every method and both ways.
    pub(crate) fn few_kernels(&self, implementation: Implementation) -> bool {
        self.quick && self.compiles && implementation == Implementation::Kernel
    }

    /// The series to check `method` under: both, or where kernels are to be few, Taylor's for the
    /// first two of the methods that it changes.
    pub(crate) fn series(
        &self,
        method: Discretization,
        implementation: Implementation,
    ) -> Vec<Series> {
        let changed = |method: &&Discretization| {
            method.bounded(Series::Exact) && !method.bounded(Series::Taylor)
        };
        let mut chosen = self.methods.iter().filter(changed).take(2);
        if self.few_kernels(implementation) && !chosen.any(|&one| one == method) {
            return vec![Series::Exact];
        }
        Series::VARIANTS.to_vec()
    }

    pub(crate) fn supports(&self, dtype: Dtype) -> bool {
        self.device.supports_dtype(dtype.float())
    }
}

/// The choice that runs `implementation` and nothing else.
pub(crate) fn choice(implementation: Implementation) -> KernelChoice {
    match implementation {
        Implementation::Kernel => KernelChoice::Kernel,
        Implementation::Reference => KernelChoice::Reference,
    }
}

/// What a check is about; the table has a part for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Subject {
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

/// What was found for an array, a pair of methods or a magnitude.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Which.
    pub(crate) array: String,
    /// The largest error.
    pub(crate) max: f64,
    /// The mean error.
    pub(crate) mean: f64,
    /// What the largest may be.
    pub(crate) tolerance: f64,
    /// What it comes to.
    pub(crate) verdict: Verdict,
    /// Where the largest error was, or what the figures say.
    pub(crate) note: String,
}

/// What a row comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Pass,
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
    pub(crate) fn ratio(&self) -> f64 {
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
pub(crate) type Run = Box<dyn Fn(&Context, f64) -> Result<Vec<Row>, KernelError>>;

/// One check. A further operation is a function that returns some of these, and an entry in
/// `OPERATIONS`.
pub(crate) struct Check {
    pub(crate) subject: Subject,
    pub(crate) operation: &'static str,
    pub(crate) method: Option<Discretization>,
    pub(crate) series: Option<Series>,
    /// `kernel`, `reference` or `oracle`.
    pub(crate) implementation: String,
    /// `f32`, `bf16` or `f64`.
    pub(crate) dtype: String,
    pub(crate) run: Run,
}

impl Check {
    /// A name that no other check has, such as `oracle/selective_scan/zoh/exact/kernel/f32`.
    pub(crate) fn name(&self) -> String {
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
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) subject: Subject,
    pub(crate) operation: &'static str,
    pub(crate) method: Option<Discretization>,
    pub(crate) series: Option<Series>,
    pub(crate) implementation: String,
    pub(crate) dtype: String,
    pub(crate) passed: bool,
    /// Why it did not run here; it then counts neither as passed nor as failed.
    pub(crate) skipped: Option<String>,
    /// Why it could not be run to its end.
    pub(crate) error: Option<String>,
    pub(crate) seconds: f64,
    pub(crate) rows: Vec<Row>,
}

impl Outcome {
    /// Runs `check`. A panic, as of a kernel that does not compile, is a failure of this check alone.
    pub(crate) fn of(check: &Check, context: &Context, factor: f64) -> Self {
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
                Err(panic) => Err(Error::from_panic(&*panic).to_string()),
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

    pub(crate) fn failed(&self) -> bool {
        !self.passed && self.skipped.is_none()
    }

    /// The judged row that is closest to its tolerance, or farthest beyond it.
    pub(crate) fn worst(&self) -> Option<&Row> {
        let judged = self.rows.iter().filter(|row| row.verdict != Verdict::Reported);
        judged.max_by(|one, two| one.ratio().total_cmp(&two.ratio()))
    }
}

/// Whether the device, rather than the call, is what an operation failed for.
fn not_here(error: &KernelError) -> bool {
    matches!(error, KernelError::Dtype { .. } | KernelError::NoKernel { .. })
}
