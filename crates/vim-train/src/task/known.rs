//! What is known of the images is said before the first of them is trained or evaluated on.

use vim_comm::Comm;
use vim_data::{BadRule, KnownImages, Split, Splits};
use vim_run::printable;

use crate::config::Config;
use crate::error::Error;
use crate::output::bar::ImageBar;

/// Adds what is known of the images of `splits` to their notes, for a training of `steps` steps,
/// which evaluates validation and test images.
///
/// Errors if images are known to be bad that would end it, by `data.bad_train` and `data.bad_test`.
pub(super) fn check(
    splits: &mut Splits,
    config: &Config,
    steps: u64,
    comm: &Comm,
) -> Result<(), Error> {
    let repeats = u64::from(config.augment.repeats.max(1));
    let draws = steps.saturating_mul(config.train.images() as u64) / repeats;
    let (of_train, of_test) =
        (BadRule::Train(config.data.bad_train, draws), BadRule::Test(config.data.bad_test));
    let parts = [
        (Some(&splits.train), "training images", of_train),
        (splits.val.as_ref(), "validation images", of_test),
        (Some(&splits.test), "test images", of_test),
    ];
    let mut notes = Vec::new();
    for (split, what, rule) in parts {
        if let Some(split) = split {
            notes.extend(check_split(split, what, rule, config, comm)?);
        }
    }
    splits.notes.extend(notes);
    Ok(())
}

/// What is to be said of the images of `split`, called `what`, a line each.
///
/// Errors if images are known to be bad that would end the work, by `rule`.
pub(crate) fn check_split(
    split: &Split,
    what: &str,
    rule: BadRule,
    config: &Config,
    comm: &Comm,
) -> Result<Vec<String>, Error> {
    // One rank shows it; the others read the same.
    let bar = (comm.rank() == 0).then(|| ImageBar::new(format!("look at {what}"), split.len()));
    let watch = |progress| {
        comm.beat();
        if let Some(bar) = &bar {
            bar.show(progress);
        }
    };
    let workers = config.data.workers.count();
    let notes = KnownImages::of_split(split, what, workers, &watch)?.check(rule)?;
    Ok(notes.iter().map(|note| printable(note).into_owned()).collect())
}
