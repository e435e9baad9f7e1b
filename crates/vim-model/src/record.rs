//! What a pass computes on the way, for pictures of what a model looks at.

use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::Tensor;
use vim_kernels::ScanOptions;
use vim_kernels::oracle::OracleScan;

/// Keeps what the passes of a model compute on the way; see
/// [`Vim::with_recorder`](crate::Vim::with_recorder). Its clones keep the same.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    /// The block whose input becomes a tensor of its own.
    cut: Option<usize>,
    kept: Arc<Mutex<Recording>>,
}

/// What was kept of a pass.
#[derive(Debug, Default)]
pub struct Recording {
    /// The scans, block by block, of each the forward direction first.
    pub scans: Vec<RecordedScan>,
    /// The residual stream before the block that [`Recorder::cut_before`] names, `[B, L, M]`.
    pub stream: Option<Tensor<3>>,
}

/// The arguments of a scan in a mixer, as the mixer computed them, and what came out.
#[derive(Clone, Debug)]
pub struct RecordedScan {
    /// Its block, from 0.
    pub block: usize,
    /// Whether the block sees the tokens from the last one of the image to the first one.
    pub flipped: bool,
    /// How it scans.
    pub options: ScanOptions,
    /// `[B, L, D]`.
    pub u: Tensor<3>,
    /// Before its bias and the softplus, `[B, L, D]`.
    pub delta: Tensor<3>,
    /// `[D, N]`.
    pub a: Tensor<2>,
    /// `[B, L, N]`.
    pub b: Tensor<3>,
    /// `[B, L, N]`.
    pub c: Tensor<3>,
    /// `[D]`.
    pub d: Tensor<1>,
    /// `[D]`.
    pub delta_bias: Tensor<1>,
    /// The gate, `[B, L, D]`.
    pub z: Tensor<3>,
    /// What came out, behind the gate, `[B, L, D]`.
    pub y: Tensor<3>,
}

impl Recorder {
    /// One that also makes the residual stream before `block` a tensor that requires a gradient,
    /// and what is before it part of no graph. Of blocks that come in pairs it is a first one.
    #[must_use]
    pub fn cut_before(block: usize) -> Self {
        Self { cut: Some(block), ..Self::default() }
    }

    /// What the passes since the last call have left.
    #[must_use]
    pub fn take(&self) -> Recording {
        self.with(take)
    }

    fn with<T>(&self, what: impl FnOnce(&mut Recording) -> T) -> T {
        // What a thread that panicked leaves is whole tensors all the same.
        what(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The stream before `block` as a tensor of its own, if it is the one to be cut.
    pub(crate) fn cut(
        &self,
        block: usize,
        hidden: &Tensor<3>,
        residual: Option<&Tensor<3>>,
    ) -> Option<Tensor<3>> {
        if self.cut != Some(block) {
            return None;
        }
        let stream = match residual {
            Some(residual) => hidden.clone().cast(residual.dtype()) + residual.clone(),
            None => hidden.clone(),
        };
        let stream = stream.detach().require_grad();
        self.with(|kept| kept.stream = Some(stream.clone()));
        Some(stream)
    }

    /// Keeps a scan.
    pub(crate) fn keep(&self, scan: RecordedScan) {
        self.with(|kept| kept.scans.push(scan));
    }
}

/// A block's place in a recording.
#[derive(Clone, Debug)]
pub(crate) struct BlockRecorder {
    pub(crate) recorder: Recorder,
    /// As in [`RecordedScan`].
    pub(crate) block: usize,
    /// As in [`RecordedScan`].
    pub(crate) flipped: bool,
}

impl RecordedScan {
    /// The scan of an image in f64, with its gate.
    #[must_use]
    pub fn oracle(&self, image: usize) -> OracleScan {
        let [_, len, d_inner] = self.u.dims();
        let [_, d_state] = self.a.dims();
        let of = |t: &Tensor<3>| numbers(t.clone().narrow(0, image, 1));
        let ScanOptions { method, series, delta_softplus, reverse, .. } = self.options;
        OracleScan {
            batch: 1,
            len,
            d_inner,
            d_state,
            groups: 1,
            method,
            series,
            delta_softplus,
            reverse,
            u: of(&self.u),
            delta: of(&self.delta),
            a: numbers(self.a.clone()),
            b: of(&self.b),
            c: of(&self.c),
            d: Some(numbers(self.d.clone())),
            z: Some(of(&self.z)),
            delta_bias: Some(numbers(self.delta_bias.clone())),
            ..OracleScan::default()
        }
    }
}

fn numbers<const R: usize>(tensor: Tensor<R>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}
