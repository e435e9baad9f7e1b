//! Entries about orders, mixing, targets and losses.

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{EQUAL, GoldenReport, Measured, folder::Folder, largest_difference, listed, read};
use crate::loader::{Order, OrderKey};
use crate::transforms::recipe::{
    OrderKind, cutmix_box, label_smoothing_loss, mixed_targets, soft_target_loss,
};

/// Tolerance for numbers of order 1 that the original computed in f32.
const F32: f64 = 1e-6;

#[derive(Deserialize)]
struct SamplerEntry {
    kind: String,
    n: usize,
    world: usize,
    rank: usize,
    epoch: u64,
    len: usize,
    head: Vec<usize>,
    sha256: String,
}

/// The indices of one device in one epoch: their number, the first of them, and the SHA-256 of all
/// as little-endian i32.
pub(super) fn sampler(entry: &Value) -> Result<Measured, String> {
    let entry: SamplerEntry = read(entry)?;
    let repeats = match entry.kind.as_str() {
        "RASampler" => 3,
        "DistributedSampler" => 1,
        other => return Err(format!("the sampler `{other}` is not known")),
    };
    if entry.world == 0 || entry.rank >= entry.world {
        return Err(format!("there is no device {} of {}", entry.rank, entry.world));
    }
    let (kind, epoch, world) = (OrderKind::Reference, entry.epoch, entry.world);
    let key = OrderKey { kind, repeats, seed: 0, epoch, world };
    let order = Order::new(entry.n, key).map_err(|error| error.to_string())?;
    let draws = order.draws_per_rank();
    if draws != entry.len {
        return Err(format!("{draws} draws, the original makes {}", entry.len));
    }
    let indices: Vec<usize> = (0..draws)
        .map(|at| order.draw(order.position(0, draws, entry.rank, at)).position)
        .collect();
    if !indices.starts_with(&entry.head) {
        let ours = &indices[..entry.head.len().min(draws)];
        return Err(format!("begins with {ours:?}, the original with {:?}", entry.head));
    }
    let mut hash = Sha256::new();
    indices.iter().for_each(|&index| hash.update((index as i32).to_le_bytes()));
    let sha256 = format!("{:x}", hash.finalize());
    if sha256 != entry.sha256 {
        return Err(format!("the indices have SHA-256 {sha256}, the original's {}", entry.sha256));
    }
    Ok(EQUAL)
}

#[derive(Deserialize)]
struct TargetEntry {
    labels: Vec<u32>,
    num_classes: usize,
    lam: Lambdas,
    smoothing: f64,
    out: Vec<Vec<f64>>,
}

/// One for all images, or one each.
#[derive(Deserialize)]
#[serde(untagged)]
enum Lambdas {
    All(f64),
    Each(Vec<f64>),
}

/// The targets of mixed images.
fn target(entry: &Value) -> Result<Measured, String> {
    let TargetEntry { labels, num_classes, lam, smoothing, out } = read(entry)?;
    check_labels(&labels, num_classes)?;
    let lambdas = match lam {
        Lambdas::All(lambda) => vec![lambda; labels.len()],
        Lambdas::Each(lambdas) if lambdas.len() == labels.len() => lambdas,
        Lambdas::Each(lambdas) => return Err(format!("{} lambdas", lambdas.len())),
    };
    let ours = mixed_targets(&labels, num_classes, &lambdas, smoothing);
    let max_difference = largest_difference(&ours.concat(), &out.concat());
    Ok(Measured { max_difference, tolerance: F32 })
}

fn check_labels(labels: &[u32], classes: usize) -> Result<(), String> {
    match labels.iter().find(|&&label| label as usize >= classes) {
        Some(label) => Err(format!("label {label} of {classes} classes")),
        None => Ok(()),
    }
}

#[derive(Deserialize)]
struct BoxEntry {
    lam: f64,
    cy: usize,
    cx: usize,
    yl: f64,
    yh: f64,
    xl: f64,
    xh: f64,
    lam_corrected: f64,
    #[serde(alias = "h", default = "default_side")]
    height: usize,
    #[serde(alias = "w", default = "default_side")]
    width: usize,
}

/// Images are of this side unless an entry says otherwise.
fn default_side() -> usize {
    224
}

/// The box of cutmix, and the share of the area outside it.
fn cutmix(entry: &Value) -> Result<Measured, String> {
    let entry: BoxEntry = read(entry)?;
    let size @ [height, width] = [entry.height, entry.width];
    if entry.cy >= height || entry.cx >= width || !(0.0..=1.0).contains(&entry.lam) {
        return Err(format!("({}, {}) is not in an image of {size:?}", entry.cy, entry.cx));
    }
    let ours = cutmix_box(entry.lam, [entry.cy, entry.cx], size);
    let edges = [ours.top, ours.top + ours.height, ours.left, ours.left + ours.width];
    let [yl, yh, xl, xh] = edges.map(|edge| edge as f64);
    let lambda = 1.0 - (ours.height * ours.width) as f64 / (height * width) as f64;
    let theirs = [entry.yl, entry.yh, entry.xl, entry.xh, entry.lam_corrected];
    let max_difference = largest_difference(&[yl, yh, xl, xh, lambda], &theirs);
    // Sides are whole pixels; the last number is a quotient of them in f64.
    Ok(Measured { max_difference, tolerance: 1e-15 })
}

/// `mix`: `mixup_target` and `bbox`, each one entry or a list.
pub(super) fn mixing(report: &mut GoldenReport, name: String, entry: &Value) {
    let Some(parts) = entry.as_object() else {
        return report.add("mix", name, Err("the entry is not an object".to_owned()));
    };
    for (part, value) in parts {
        for (at, entry) in listed(value) {
            let name = format!("{name}.{part}{at}");
            match part.as_str() {
                "mixup_target" => report.add("mix", name, target(entry)),
                "bbox" => report.add("mix", name, cutmix(entry)),
                _ => report.skip("mix", name, "its kind is not known"),
            }
        }
    }
}

#[derive(Deserialize)]
struct LossEntry {
    logits: Vec<Vec<f64>>,
    labels: Vec<u32>,
    label_smoothing_0_1: Option<f64>,
    mean_ce: Option<f64>,
    soft: Option<f64>,
    /// Targets of the soft loss; by default those of the manifest's `mixup_target`.
    targets: Option<Vec<Vec<f64>>>,
}

/// `loss`: three losses of the same logits.
pub(super) fn losses(report: &mut GoldenReport, folder: &Folder, name: String, entry: &Value) {
    let entry: LossEntry = match read(entry) {
        Ok(entry) => entry,
        Err(reason) => return report.add("loss", name, Err(reason)),
    };
    if let Err(reason) = entry.check() {
        return report.add("loss", name, Err(reason));
    }
    let LossEntry { logits, labels, .. } = &entry;
    let smoothed = |smoothing| Ok(label_smoothing_loss(logits, labels, smoothing));
    let soft = || entry.soft_targets(folder).map(|targets| soft_target_loss(logits, &targets));
    let mut compare = |part: &str, theirs: Option<f64>, ours: &dyn Fn() -> Result<f64, String>| {
        if let Some(theirs) = theirs {
            let measured = ours().map(|ours| Measured {
                max_difference: largest_difference(&[ours], &[theirs]),
                tolerance: F32,
            });
            report.add("loss", format!("{name}.{part}"), measured);
        }
    };
    compare("label_smoothing_0_1", entry.label_smoothing_0_1, &|| smoothed(0.1));
    compare("mean_ce", entry.mean_ce, &|| smoothed(0.0));
    compare("soft", entry.soft, &soft);
}

impl LossEntry {
    fn check(&self) -> Result<(), String> {
        let classes = self.logits.first().map_or(0, Vec::len);
        let is_matrix = |rows: &[Vec<f64>]| {
            rows.len() == self.labels.len() && rows.iter().all(|row| row.len() == classes)
        };
        if !is_matrix(&self.logits) || self.targets.as_ref().is_some_and(|rows| !is_matrix(rows)) {
            return Err("logits or targets are not [B, K], one row for each label".to_owned());
        }
        check_labels(&self.labels, classes)
    }

    fn soft_targets(&self, folder: &Folder) -> Result<Vec<Vec<f64>>, String> {
        if let Some(targets) = &self.targets {
            return Ok(targets.clone());
        }
        let (_, first) = listed(&folder.manifest()["mix"]["mixup_target"]).swap_remove(0);
        let target: TargetEntry = read(first)?;
        if target.labels != self.labels {
            return Err("its targets are not in the manifest".to_owned());
        }
        Ok(target.out)
    }
}
