//! The native module of `vim_scan`: the selective scan on the memory of PyTorch's tensors.
//!
//! On a CPU inputs come and results go by DLPack, without copies; on a GPU PyTorch's tensors are
//! read and written where they are. The interpreter is free meanwhile. Every
//! error is an exception: what a caller got wrong is a `ValueError` or a `TypeError`, a panic is a
//! `RuntimeError`.

mod arrays;
mod call;
#[cfg(feature = "cuda")]
mod cuda;
mod mixer;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use vim_kernels::raw::RawSizes;
use vim_kernels::{Discretization, ScanOptions, Series, VariantArray};

use arrays::Borrowed;
use call::Inputs;
use mixer::Mixer;

/// The threads of this process: its number, and how many they are. A child of `fork` has none.
static STARTED: OnceLock<(u32, usize)> = OnceLock::new();

/// Starts the threads of a CPU, once in a process; returns how many there are.
#[pyfunction]
fn start(threads: usize) -> PyResult<usize> {
    let (process, threads) = *STARTED.get_or_init(|| {
        // Another library's pool, if there is one, is as good.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
        (std::process::id(), rayon::current_num_threads())
    });
    if process == std::process::id() {
        return Ok(threads);
    }
    Err(PyRuntimeError::new_err(
        "vim_scan: this process was forked from one that used vim_scan, and has none of its \
         threads: start it by \"spawn\" or \"forkserver\" (multiprocessing.set_start_method)",
    ))
}

/// The names of the discretizations.
#[pyfunction]
fn discretizations() -> Vec<String> {
    Discretization::VARIANTS.iter().map(ToString::to_string).collect()
}

/// The names of the series.
#[pyfunction]
fn series() -> Vec<String> {
    Series::VARIANTS.iter().map(ToString::to_string).collect()
}

/// Numbers that a forward pass on a CPU saves, of a scan of `[B, L, D]`, N states and G groups.
#[pyfunction]
fn saved_len(sizes: [usize; 5], discretization: &str, series: &str) -> PyResult<usize> {
    Ok(sizes_of(sizes).on_cpu(options(discretization, series, false, false)?))
}

/// `(y, last_state, saved)` as capsules of DLPack; `saved` is `None` unless `save`, and for f64.
#[pyfunction]
fn forward<'py>(
    py: Python<'py>,
    tensors: Vec<Option<Bound<'py, PyAny>>>,
    discretization: &str,
    series: &str,
    delta_softplus: bool,
    reverse: bool,
    save: bool,
) -> PyResult<Vec<Option<Bound<'py, PyAny>>>> {
    let options = options(discretization, series, delta_softplus, reverse)?;
    let inputs = Inputs::take(&tensors, options)?;
    let out = run(py, || inputs.forward(save))?;
    out.into_iter().map(|array| array.map(|array| array.into_capsule(py)).transpose()).collect()
}

/// The gradients that are wanted, in the order of the inputs, as capsules of DLPack.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the operation's")]
fn backward<'py>(
    py: Python<'py>,
    tensors: Vec<Option<Bound<'py, PyAny>>>,
    grad_y: Bound<'py, PyAny>,
    saved: Bound<'py, PyAny>,
    discretization: &str,
    series: &str,
    delta_softplus: bool,
    reverse: bool,
    wanted: [bool; 8],
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let options = options(discretization, series, delta_softplus, reverse)?;
    let inputs = Inputs::take(&tensors, options)?;
    let grad_y = Borrowed::take("grad_y", &grad_y)?;
    let saved = Borrowed::take("saved", &saved)?;
    let grads = run(py, || inputs.backward(&grad_y, &saved, wanted))?;
    grads.into_iter().map(|array| array.into_capsule(py)).collect()
}

/// y of Vim's mixer, a capsule of DLPack.
#[pyfunction]
fn mixer_forward<'py>(
    py: Python<'py>,
    tensors: [Bound<'py, PyAny>; mixer::INPUTS],
    discretization: &str,
    series: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let options = options(discretization, series, true, false)?;
    let inputs = borrowed(&tensors)?;
    run(py, || Mixer::new(&inputs, options)?.forward())?.into_capsule(py)
}

/// The gradients that are wanted, in the order of the inputs, as capsules of DLPack.
#[pyfunction]
fn mixer_backward<'py>(
    py: Python<'py>,
    tensors: [Bound<'py, PyAny>; mixer::INPUTS],
    grad_y: Bound<'py, PyAny>,
    discretization: &str,
    series: &str,
    wanted: [bool; mixer::INPUTS],
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let options = options(discretization, series, true, false)?;
    let inputs = borrowed(&tensors)?;
    let grad_y = Borrowed::take("grad_y", &grad_y)?;
    let compute = || Mixer::new(&inputs, options)?.backward(&grad_y, wanted);
    run(py, compute)?.into_iter().map(|array| array.into_capsule(py)).collect()
}

fn borrowed(tensors: &[Bound<'_, PyAny>; mixer::INPUTS]) -> PyResult<Vec<Borrowed>> {
    let all = mixer::NAMES.iter().zip(tensors);
    all.map(|(name, tensor)| Borrowed::take(name, tensor)).collect()
}

/// On a GPU: plans of calls whose inputs, in the order of the operation, have these shapes and
/// types.
#[cfg(feature = "cuda")]
#[pymodule]
mod on_cuda {
    use super::*;
    use crate::cuda::{self, Call, Kind};
    use crate::mixer::INPUTS;

    #[pymodule_export]
    use crate::cuda::Plan;

    /// Numbers that a forward pass saves.
    #[pyfunction]
    fn saved_len(sizes: [usize; 5], discretization: &str, series: &str) -> PyResult<usize> {
        Ok(cuda::saved_len(sizes_of(sizes), options(discretization, series, false, false)?))
    }

    /// `(y, last_state, saved)`, without `saved` unless `save`.
    #[pyfunction]
    #[expect(clippy::too_many_arguments, reason = "the operation's")]
    fn forward(
        py: Python<'_>,
        device: usize,
        inputs: Vec<Option<Kind>>,
        discretization: &str,
        series: &str,
        delta_softplus: bool,
        reverse: bool,
        save: bool,
    ) -> PyResult<Plan> {
        let options = options(discretization, series, delta_softplus, reverse)?;
        run(py, || Plan::record(device, Call::Forward { options, save }, &inputs))
    }

    /// The gradients that are wanted, of the gradient of y, the inputs, and what was saved.
    #[pyfunction]
    #[expect(clippy::too_many_arguments, reason = "the operation's")]
    fn backward(
        py: Python<'_>,
        device: usize,
        inputs: Vec<Option<Kind>>,
        discretization: &str,
        series: &str,
        delta_softplus: bool,
        reverse: bool,
        wanted: [bool; 8],
    ) -> PyResult<Plan> {
        let options = options(discretization, series, delta_softplus, reverse)?;
        run(py, || Plan::record(device, Call::Backward { options, wanted }, &inputs))
    }

    /// The tensors, `[B, C…, L]`, with channels last, `[B, L, C…]`.
    #[pyfunction]
    fn turned(py: Python<'_>, device: usize, inputs: Vec<Option<Kind>>) -> PyResult<Plan> {
        run(py, || Plan::record(device, Call::Turned, &inputs))
    }

    /// The most images of a tensor that is turned.
    #[pymodule_export]
    const MOST_TURNED: usize = vim_kernels::raw::MOST_TURNED;

    /// y of Vim's mixer.
    #[pyfunction]
    fn mixer(
        py: Python<'_>,
        device: usize,
        inputs: Vec<Option<Kind>>,
        discretization: &str,
        series: &str,
    ) -> PyResult<Plan> {
        let options = options(discretization, series, true, false)?;
        run(py, || Plan::record(device, Call::Mixer { options }, &inputs))
    }

    /// The gradients that are wanted, of the gradient of y, and the inputs.
    #[pyfunction]
    fn mixer_backward(
        py: Python<'_>,
        device: usize,
        inputs: Vec<Option<Kind>>,
        discretization: &str,
        series: &str,
        wanted: [bool; INPUTS],
    ) -> PyResult<Plan> {
        let options = options(discretization, series, true, false)?;
        run(py, || Plan::record(device, Call::MixerBackward { options, wanted }, &inputs))
    }
}

fn sizes_of([batch, len, d_inner, d_state, groups]: [usize; 5]) -> RawSizes {
    RawSizes { batch, len, d_inner, d_state, groups }
}

/// Computes without holding the interpreter.
fn run<T: Send>(
    py: Python<'_>,
    compute: impl FnOnce() -> Result<T, call::Error> + Send,
) -> PyResult<T> {
    if STARTED.get().is_none_or(|(process, _)| *process != std::process::id()) {
        start(0)?;
    }
    let result = py.detach(|| catch_unwind(AssertUnwindSafe(compute)));
    match result {
        Ok(result) => Ok(result?),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let text = text.unwrap_or("a panic without a text");
            Err(PyRuntimeError::new_err(format!("vim_scan: internal error: {text}")))
        }
    }
}

fn options(
    discretization: &str,
    series: &str,
    delta_softplus: bool,
    reverse: bool,
) -> PyResult<ScanOptions> {
    let method = named("discretization", Discretization::VARIANTS, discretization)?;
    let series = named("series", Series::VARIANTS, series)?;
    Ok(ScanOptions { method, series, delta_softplus, reverse, ..ScanOptions::default() })
}

/// The one of `all` that is called `name`.
fn named<T: Copy + ToString>(what: &str, all: &[T], name: &str) -> PyResult<T> {
    all.iter().copied().find(|one| one.to_string() == name).ok_or_else(|| {
        let names: Vec<String> = all.iter().map(ToString::to_string).collect();
        PyValueError::new_err(format!("{what} {name:?}: one of {}", names.join(", ")))
    })
}

/// See `vim_scan`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    #[cfg(feature = "cuda")]
    module.add_wrapped(pyo3::wrap_pymodule!(on_cuda))?;
    module.add_function(wrap_pyfunction!(start, module)?)?;
    module.add_function(wrap_pyfunction!(discretizations, module)?)?;
    module.add_function(wrap_pyfunction!(series, module)?)?;
    module.add_function(wrap_pyfunction!(saved_len, module)?)?;
    module.add_function(wrap_pyfunction!(mixer_forward, module)?)?;
    module.add_function(wrap_pyfunction!(mixer_backward, module)?)?;
    module.add_function(wrap_pyfunction!(forward, module)?)?;
    module.add_function(wrap_pyfunction!(backward, module)?)
}
