//! Skips batches that are too large: on a CPU they would end the process, not just the row.

use super::record::Mode;

/// Memory history of the batches of one method and mode, in ascending order.
#[derive(Clone, Debug, Default)]
pub(super) struct Guard {
    failed: Option<usize>,
    /// Batch size and peak bytes of the last successful batch.
    last: Option<(usize, u64)>,
}

/// Largest jump in batch size that is extrapolated.
const LARGEST_JUMP: usize = 4;

impl Guard {
    /// Records that `batch` ran, with its host bytes.
    pub(super) fn ran(&mut self, batch: usize, host_bytes: Option<u64>) {
        self.last = host_bytes.map(|bytes| (batch, bytes));
    }

    /// Records that `batch` failed.
    pub(super) fn failed(&mut self, batch: usize) {
        self.failed.get_or_insert(batch);
    }

    /// Why to skip `batch`, if so, in a process that holds `held` benchmark bytes with `available`
    /// bytes free.
    pub(super) fn refuses(
        &self,
        batch: usize,
        mode: Mode,
        parameters: u64,
        held: u64,
        available: Option<u64>,
    ) -> Option<String> {
        if let Some(failed) = self.failed {
            return Some(format!("not tried: a batch of {failed} did not run"));
        }
        let ((last, peak), available) = (self.last?, available?);
        if batch > LARGEST_JUMP * last {
            return None;
        }
        // Weights; in training also gradients, two moments and the update's temporaries.
        let copies = match mode {
            Mode::Infer => 1,
            Mode::Train => 5,
        };
        let fixed = (4 * copies * parameters).min(peak);
        let needed = fixed + (peak - fixed) * batch as u64 / last as u64;
        let mib = |bytes: u64| bytes >> 20;
        (needed.saturating_sub(held) > available).then(|| {
            format!(
                "not tried: would need about {} MiB by what a batch of {last} took, {} are left",
                mib(needed),
                mib(available)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_would_not_fit_is_not_tried() {
        let mut guard = Guard::default();
        let refuses = |guard: &Guard, batch, left| {
            guard.refuses(batch, Mode::Infer, 10 * MIB / 4, 0, Some(left * MIB))
        };
        assert_eq!(refuses(&guard, 8, 1), None, "nothing is known yet");
        guard.ran(8, Some(90 * MIB)); // 10 MiB of weights, 10 for each image
        assert_eq!(refuses(&guard, 16, 170), None);
        let reason = refuses(&guard, 16, 169).unwrap_or_default();
        assert!(reason.contains("about 170 MiB") && reason.contains("169 are left"), "{reason}");
        assert_eq!(refuses(&guard, 64, 1), None, "too far away to tell");
        assert_eq!(guard.refuses(16, Mode::Infer, 0, 0, None), None);
        guard.failed(16);
        guard.failed(32);
        let reason = refuses(&guard, 64, 1 << 20).unwrap_or_default();
        assert_eq!(reason, "not tried: a batch of 16 did not run");
    }
}
