//! Weights under the original's names, and from a classifier.

use std::io::Cursor;

use vim_model::{NamedArrays, Names, pytorch_key};
use vim_torch::{ArrayView, Value, WriteError, write_mmcv};

use crate::batch_norm::is_running_statistic;
use crate::naming::{DenseNaming, weights_by_name};
use crate::segmenter::Segmenter;

/// Our names inside the pyramid, and the original's, where it is a part of the backbone.
const PYRAMID: [(&str, &str); 4] = [
    ("pyramid.fpn1.first.", "backbone.fpn1.0."),
    ("pyramid.fpn1.second.norm.", "backbone.fpn1.1."),
    ("pyramid.fpn1.second.up.", "backbone.fpn1.3."),
    ("pyramid.fpn2.", "backbone.fpn2.0."),
];
/// Beside it stands a number in the original's names of a module of the pyramid pooling.
const POOLING: &str = "decode_head.psp_modules.";
/// A statistic of every batch normalization, beside which the original counts batches.
const VARIANCE: &str = ".running_var";
/// The key of that count.
const COUNT: &str = ".num_batches_tracked";
/// mmsegmentation's names.
const NAMING: DenseNaming = DenseNaming {
    ours: "pyramid.",
    backbone: "backbone.",
    key: mmseg_key,
    is_count: |key| key.ends_with(COUNT),
    is_absent: |_| false,
    is_head: |path| path.contains("_head.conv_seg."),
    classes: ("decode_head.conv_seg.bias", 0),
    is_unused: |_| false,
};

/// The original's name of the parameter or statistic at `path` of a [`Segmenter`].
#[must_use]
pub fn mmseg_key(path: &str) -> String {
    for (ours, theirs) in PYRAMID {
        if let Some(rest) = path.strip_prefix(ours) {
            return format!("{theirs}{rest}");
        }
    }
    if let Some((number, rest)) = path.strip_prefix(POOLING).and_then(|path| path.split_once('.')) {
        return format!("{POOLING}{number}.1.{rest}");
    }
    pytorch_key(path)
}

fn naming(_: &Segmenter) -> DenseNaming {
    NAMING
}

weights_by_name!(Segmenter, naming);

impl Segmenter {
    /// The bytes of a checkpoint as mmcv saves it, `{"meta": …, "state_dict": …}`, under the
    /// original's names, with `texts` beside them. Every batch normalization says that it has seen
    /// `batches`.
    ///
    /// # Errors
    ///
    /// As [`Segmenter::state`]; [`WriteError`] in words.
    pub fn to_mmcv(
        &self,
        meta: &[(&str, &str)],
        texts: &[(&str, &str)],
        batches: u64,
    ) -> Result<Vec<u8>, String> {
        let arrays = self.state(Names::Pytorch)?;
        let counts: Vec<Option<String>> = arrays
            .iter()
            .map(|(key, _)| key.strip_suffix(VARIANCE).map(|norm| format!("{norm}{COUNT}")))
            .collect();
        let count = i64::try_from(batches).unwrap_or(i64::MAX);
        let values = arrays.iter().zip(&counts).flat_map(|((key, data), counted)| {
            let view = ArrayView { shape: data.shape(), bytes: data.as_bytes() };
            let counted = counted.as_deref().map(|key| (key, Value::Integer(count)));
            [Some((key, Value::Floats(view))), counted].into_iter().flatten()
        });
        let mut bytes = Cursor::new(Vec::new());
        write_mmcv(&mut bytes, meta, values, texts)
            .map_err(|error: WriteError| error.to_string())?;
        Ok(bytes.into_inner())
    }

    /// Numbers in all parameters, without running statistics.
    #[must_use]
    pub fn num_parameters(&self) -> usize {
        let arrays = NamedArrays::of(self);
        arrays
            .iter()
            .filter(|(path, _)| !is_running_statistic(path))
            .map(|(_, data)| data.num_elements())
            .sum()
    }
}
