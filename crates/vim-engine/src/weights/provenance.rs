//! Whether weights are used as they were trained: the one comparison of what they record with what
//! is asked of them.
//!
//! What changes a number is refused, unless the user allows that [`Part`]; what the forward pass
//! cannot see is no difference. `config/compared.rs` has the part of every key.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use vim_kernels::{Discretization, Series, discretize};

use super::WeightsError;
use super::record::{Recorded, RecordedData};
use super::source::WeightsSource;
use crate::config::{Config, Part, dotted, is_of_backbone, part};

/// What weights are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Scores, of held-out images if `held_out`.
    Evaluate {
        /// Whether images of the training part are evaluated.
        held_out: bool,
    },
    /// Answers about images that no dataset knows.
    Predict,
    /// Another file of the same weights.
    Write,
    /// The start of a training.
    Init {
        /// Whether the backbone alone is taken.
        backbone: bool,
        /// Whether the training holds images out.
        held_out: bool,
    },
}

/// A key that is not as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The key.
    pub key: String,
    /// As recorded.
    pub recorded: String,
    /// As asked.
    pub now: String,
    /// What must be allowed for it.
    pub part: Part,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, recorded, now, .. } = self;
        write!(formatter, "{key} (recorded {recorded}, now {now})")
    }
}

impl Use {
    /// Whether a difference of `part` at `key` matters.
    fn sees(self, part: Part, key: &str) -> bool {
        match (self, part) {
            (Self::Init { backbone: true, .. }, Part::Model) => is_of_backbone(key),
            // Evaluation is as the new run says, and positions are resized, which is said.
            (Self::Init { .. }, Part::View | Part::Size) => false,
            (Self::Evaluate { held_out } | Self::Init { held_out, .. }, Part::Split) => held_out,
            (Self::Predict | Self::Write, Part::Split) => false,
            // A file keeps what the weights record of images.
            (Self::Write, Part::Normalization | Part::View) => false,
            (_, _) => true,
        }
    }
}

impl Recorded {
    /// Every key by which `now` would use the weights otherwise than they record. What they do not
    /// record is no difference; [`WeightsSource::check_use`] says it.
    pub fn differences(&self, now: &Self, what: Use) -> Vec<Difference> {
        let tables = [self, now].map(|record| {
            let record = Self { classes: Vec::new(), ..record.clone() };
            dotted(toml::Table::try_from(record).expect("invariant: a section has a TOML form"))
        });
        let [recorded, now_values] = &tables;
        let sections: BTreeSet<&str> =
            recorded.keys().filter_map(|key| Some(key.split_once('.')?.0)).collect();
        let keys: BTreeSet<&String> = recorded.keys().chain(now_values.keys()).collect();
        let mut found = Vec::new();
        for key in keys {
            let (old, new) = (recorded.get(key), now_values.get(key));
            let known = key.split_once('.').is_some_and(|(section, _)| sections.contains(section));
            let Some(part) = part(key).filter(|part| what.sees(*part, key)) else { continue };
            if old == new || !known || self.looks_past(key, now) {
                continue;
            }
            if part == Part::Split && !self.is_on_the_same_images(now) {
                continue;
            }
            let show = |value: Option<&toml::Value>| {
                value.map_or_else(|| "not set".to_owned(), toml::Value::to_string)
            };
            found.push(Difference {
                key: configured(key),
                recorded: show(old),
                now: show(new),
                part,
            });
        }
        found
    }

    /// Whether the values of `key` have the same effect here and in `now`, although they differ.
    fn looks_past(&self, key: &str, now: &Self) -> bool {
        match key {
            // Tokens are reversed in evaluation at 1 only.
            "model.flip_ratio" => [self, now].iter().all(|record| record.model.flip_ratio < 1.0),
            "ssm.series" => [self, now]
                .iter()
                .all(|record| record.vim().methods().iter().all(|method| !has_series(*method))),
            // A method may be written for both directions or for each.
            "model.discretization" | "ssm.method_fwd" | "ssm.method_bwd" => {
                self.vim().methods() == now.vim().methods()
            }
            "model.dt_rank" => self.vim().dt_rank() == now.vim().dt_rank(),
            _ => false,
        }
    }

    /// Whether both are of the same images, as far as that is known.
    fn is_on_the_same_images(&self, now: &Self) -> bool {
        let print = |record: &Self| record.data.as_ref()?.train_fingerprint.clone();
        match (print(self), print(now)) {
            (Some(old), Some(new)) => old == new,
            (_, _) => true,
        }
    }

    /// Says so if the part that is evaluated is no longer that of the run, with which scores would
    /// be compared.
    fn other_images(&self, now: &Self, what: Use) -> Option<String> {
        let Use::Evaluate { held_out } = what else { return None };
        let part = if held_out { "validation" } else { "test" };
        self.data.as_ref()?.change(now.data.as_ref()?, part)
    }

    /// Says so if the weights were trained on other images than those that `now` holds out, so that
    /// nothing tells whether they saw them.
    fn unknown_split(&self, now: &Self, what: Use) -> Option<String> {
        let held_out =
            matches!(what, Use::Evaluate { held_out: true } | Use::Init { held_out: true, .. });
        let is_recorded = self.data.is_some();
        (held_out && is_recorded && !self.is_on_the_same_images(now)).then(|| {
            "trained on another set of images: whether held-out images are among them is not known"
                .to_owned()
        })
    }
}

/// The key of a configuration that `key` of a record comes from.
fn configured(key: &str) -> String {
    match key.split_once('.') {
        Some(("images", "mean" | "std")) => format!("data.normalize: {key}"),
        Some(("images", "eval_crop_ratio")) => "augment.eval_crop_ratio".to_owned(),
        Some(("images", "dataset" | "normalize" | "exif")) => key.replacen("images", "data", 1),
        Some(("images", rest)) => rest.to_owned(),
        Some(("split", rest)) => format!("data.{rest}"),
        Some(_) | None => key.to_owned(),
    }
}

/// Whether a method is evaluated otherwise by another series.
fn has_series(method: Discretization) -> bool {
    let by = |series| discretize(method, series, 1.0_f64, -3.0);
    method.series().len() > 1 && by(Series::Exact) != by(Series::Taylor)
}

/// What stands in a result's own line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Remarks {
    /// How the weights are used otherwise than they were trained, as allowed.
    #[serde(rename = "not_as_trained", skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
    /// What had to be assumed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<String>,
    /// Classes of the weights that the images have none of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes_without_images: Vec<String>,
}

impl Remarks {
    /// In words, for the end of a line; empty if there is nothing to say.
    pub fn suffix(&self) -> String {
        let part = |name: &str, texts: &[String]| match texts {
            [] => String::new(),
            texts => format!("; {name}: {}", texts.join(", ")),
        };
        part("not as trained", &self.differences)
            + &part("assumed", &self.assumed)
            + &part("classes without images", &self.classes_without_images)
    }
}

impl WeightsSource {
    /// Compares what these weights record with what `now` asks of them. `allowed` parts may differ;
    /// what then does is in the result.
    ///
    /// # Errors
    ///
    /// [`WeightsError::NotAsTrained`] lists every difference that is not allowed.
    pub fn check_use(
        &self,
        now: &Recorded,
        what: Use,
        allowed: &[Part],
    ) -> Result<Remarks, WeightsError> {
        let Some(recorded) = &self.recorded else {
            let found: Vec<Difference> = self.other_rope(now).into_iter().collect();
            return self.judge(found, what, allowed, self.assumptions(now));
        };
        let mut remarks = self.judge(recorded.differences(now, what), what, allowed, Vec::new())?;
        remarks.differences.extend(recorded.other_images(now, what));
        remarks.assumed.extend(recorded.unknown_split(now, what));
        if recorded.images.is_none() && matches!(what, Use::Evaluate { .. } | Use::Predict) {
            remarks.assumed.push(format!("{}, as none is recorded", normalization(now)));
        }
        Ok(remarks)
    }

    /// [`Self::check_use`] of what the configuration `given` says, if there is one: without, the
    /// record itself counts, or what shapes tell.
    pub(crate) fn check_described(
        &self,
        given: Option<&Config>,
        what: Use,
        allowed: &[Part],
    ) -> Result<Remarks, WeightsError> {
        let Some(given) = given else { return Ok(Remarks::default()) };
        let data = RecordedData::of_config(&given.data);
        self.check_use(&Recorded::of_run(given, &[], data), what, allowed)
    }

    fn judge(
        &self,
        found: Vec<Difference>,
        what: Use,
        allowed: &[Part],
        assumed: Vec<String>,
    ) -> Result<Remarks, WeightsError> {
        let refused: Vec<&Difference> =
            found.iter().filter(|difference| !allowed.contains(&difference.part)).collect();
        if refused.is_empty() {
            let differences = found.iter().map(ToString::to_string).collect();
            return Ok(Remarks { differences, assumed, ..Remarks::default() });
        }
        let parts: BTreeSet<Part> = refused.iter().map(|difference| difference.part).collect();
        let names: Vec<String> = parts.into_iter().map(Part::name).collect();
        let differences = refused.iter().map(ToString::to_string).collect();
        let allow = match what {
            Use::Init { .. } => format!("train.init_allow = {names:?}"),
            Use::Evaluate { .. } | Use::Predict | Use::Write => {
                names.iter().map(|name| format!("--allow {name}")).collect::<Vec<_>>().join(" ")
            }
        };
        Err(WeightsError::NotAsTrained { checkpoint: self.name.clone(), differences, allow })
    }

    /// What nothing tells of weights without a record, so that `now` is believed.
    fn assumptions(&self, now: &Recorded) -> Vec<String> {
        let model = now.vim();
        vec![
            format!("method {} (ssm.series = {})", model.method_label(), model.ssm.series),
            normalization(now),
            "classes in the order of their numbers".to_owned(),
        ]
    }

    /// The original saves tables of rotary positions with the weights that were trained with them.
    fn other_rope(&self, now: &Recorded) -> Option<Difference> {
        let state = &self.arrays.state;
        let has_key = |has: fn(&str) -> bool| state.iter().any(|(key, _)| has(key));
        // The names of the original's.
        let is_original = has_key(|key| key.ends_with(".mixer.A_log"));
        let has_table = has_key(|key| key.contains("rope.freqs_"));
        let wants_table = now.model.rope != vim_model::Rope::None;
        (is_original && has_table != wants_table).then(|| Difference {
            key: "model.rope".into(),
            recorded: if has_table { "tables in the file" } else { "no table in the file" }.into(),
            now: toml::Value::try_from(now.model.rope)
                .map_or_else(|_| String::new(), |value| value.to_string()),
            part: Part::Model,
        })
    }
}

/// The normalisation of a record in words.
fn normalization(record: &Recorded) -> String {
    match record.images {
        Some(images) => format!(
            "normalization {} (mean {:?})",
            toml::Value::try_from(images.normalize)
                .map_or_else(|_| String::new(), |value| value.to_string()),
            images.mean
        ),
        None => "normalization by ImageNet's statistics".to_owned(),
    }
}

/// The images of a run that goes on: an error with what changed; where `allowed`, what changed.
///
/// # Errors
///
/// [`WeightsError::OtherImages`].
pub fn check_images(
    checkpoint: &str,
    recorded: &RecordedData,
    now: &RecordedData,
    allowed: bool,
) -> Result<Vec<String>, WeightsError> {
    let changes = recorded.changes(now);
    if changes.is_empty() || allowed {
        return Ok(changes);
    }
    Err(WeightsError::OtherImages { checkpoint: checkpoint.to_owned(), changes })
}

#[cfg(test)]
mod tests;
