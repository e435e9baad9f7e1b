//! How the ranks of a run, and before them the nodes, find each other: by files in a folder that
//! all of them see.
//!
//! A folder serves one attempt of a run and is never used again. Files appear complete (temporary
//! file, then rename). A rank that waits for one reads the folder: network file systems remember
//! for a while that a file was not there, but not for long what a folder holds.
//!
//! | file | content |
//! |---|---|
//! | `NNNN.json` | a rank's [`Member`], or a node's [`Node`] |
//! | `roster.json` | all of them, once they have been found to fit together |
//! | `refusal.json` | why they do not |
//! | `abort.json` | why somebody ended the attempt |

mod files;
mod party;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::CommError;
use crate::place::Place;
use files::{Waiting, list, publish_new, read_json, write_json};
pub use party::{Member, Node, SHARE_GPU, meet_nodes, shares_gpu};
use party::{Party, There, warnings};

const ROSTER: &str = "roster.json";
const REFUSAL: &str = "refusal.json";
const ABORT: &str = "abort.json";

/// Where and how long a rank looks for the others.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    /// The folder of this attempt.
    pub folder: PathBuf,
    /// This rank.
    pub place: Place,
    /// How long to wait for others.
    pub timeout: Duration,
}

/// The ranks that met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roster {
    /// All ranks in their order.
    pub members: Vec<Member>,
    /// What is unusual about them, to be logged.
    pub warnings: Vec<String>,
}

/// A text in a file.
#[derive(Serialize, Deserialize)]
struct Reason {
    reason: String,
}

/// Ends the attempt in `folder`: ranks that wait there stop with `reason`. The first one stays.
///
/// # Errors
///
/// If the folder cannot be written.
pub fn abort(folder: &Path, reason: &str) -> Result<(), CommError> {
    write_json(folder, ABORT, &Reason { reason: reason.to_owned() }, true).map(|_| ())
}

/// Why the attempt in `folder` was ended, if it was.
pub fn aborted(folder: &Path) -> Option<String> {
    list(folder).ok()?.contains(ABORT).then_some(())?;
    let reason = read_json(folder, ABORT).map(|Reason { reason }| reason);
    Some(reason.unwrap_or_else(|error| error.to_string()))
}

impl Rendezvous {
    /// Writes this rank's record, waits for the others', and returns all. Rank 0 checks that they
    /// fit together.
    ///
    /// # Errors
    ///
    /// [`CommError::Missing`] if ranks do not arrive in time, [`CommError::Refused`] with the same
    /// text on every rank if they do not fit together, [`CommError::Aborted`] if somebody
    /// [ended](abort) the attempt, or if the folder cannot be read or written.
    pub fn meet(&self, member: &Member) -> Result<Roster, CommError> {
        if member.place != self.place {
            let why = format!("rank {} calls itself {}", self.place.rank(), member.place.rank());
            return Err(CommError::Refused { why });
        }
        let members = self.meet_as(member, &|| false)?;
        Ok(Roster { warnings: warnings(&members), members })
    }

    /// [`Self::meet`] of any processes, of which this one is number `rank`; waits no longer once
    /// `is_over`.
    fn meet_as<P: Party>(&self, own: &P, is_over: &dyn Fn() -> bool) -> Result<Vec<P>, CommError> {
        if !write_json(&self.folder, &record(own.number()), own, true)? {
            let why = format!(
                "{} is the second {} {} in {}: are two nodes of the same number?",
                own.name(),
                P::KIND,
                own.number(),
                self.folder.display(),
            );
            return Err(self.refuse(why));
        }
        if own.number() == 0 {
            return self.gather_parties(is_over);
        }
        let missing = |there: There<'_>| P::missing(self, there);
        self.wait_for(ROSTER, &missing, is_over)?;
        read_json(&self.folder, ROSTER)
    }

    /// As number 0: reads records as they come, so that what does not fit is refused before the
    /// last one arrives.
    fn gather_parties<P: Party>(&self, is_over: &dyn Fn() -> bool) -> Result<Vec<P>, CommError> {
        let mut parties: Vec<P> = Vec::new();
        let mut waiting = Waiting::new(self.timeout);
        loop {
            let names = self.names(is_over)?;
            for name in names.iter().filter(|name| is_record(name)) {
                if parties.iter().any(|known| record(known.number()) == *name) {
                    continue;
                }
                let party: P = read_json(&self.folder, name).map_err(|error| {
                    self.refuse(format!("not a {} of this build: {error}", P::KIND))
                })?;
                if record(party.number()) != *name {
                    let why = format!("{} wrote {name}", party.name());
                    return Err(self.refuse(why));
                }
                parties.push(party);
                if let Some(why) = P::problem(&parties) {
                    return Err(self.refuse(why));
                }
            }
            if parties.len() == self.place.world() {
                parties.sort_by_key(P::number);
                write_json(&self.folder, ROSTER, &parties, false)?;
                return Ok(parties);
            }
            if !waiting.pause() {
                let error = P::missing(self, &|number| names.contains(&record(number)));
                // The others' time ends too, but with less to say.
                self.refuse(error.to_string());
                return Err(error);
            }
        }
    }

    /// Publishes a file; replaces one of this name.
    ///
    /// # Errors
    ///
    /// If the folder cannot be written.
    pub fn publish(&self, name: &str, bytes: &[u8]) -> Result<(), CommError> {
        publish_new(&self.folder, name, bytes, false).map(|_| ())
    }

    /// Waits for a file that another rank publishes.
    ///
    /// # Errors
    ///
    /// As [`Self::meet`]; [`CommError::Silent`] if all ranks are there and the file is not.
    pub fn receive(&self, name: &str) -> Result<Vec<u8>, CommError> {
        self.wait_for(name, &|there| self.missing(there), &|| false)?;
        let path = self.folder.join(name);
        std::fs::read(&path).map_err(CommError::io("read", &path))
    }

    fn wait_for(
        &self,
        name: &str,
        missing: &dyn Fn(There<'_>) -> CommError,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), CommError> {
        let mut waiting = Waiting::new(self.timeout);
        loop {
            let names = self.names(is_over)?;
            if names.contains(name) {
                return Ok(());
            }
            if !waiting.pause() {
                if (0..self.place.world()).all(|rank| names.contains(&record(rank))) {
                    let (what, folder) = (name.to_owned(), self.folder.clone());
                    return Err(CommError::Silent { what, folder, waited: self.timeout });
                }
                return Err(missing(&|number| names.contains(&record(number))));
            }
        }
    }

    /// Whether a file of this name is there.
    pub fn has(&self, name: &str) -> bool {
        list(&self.folder).is_ok_and(|names| names.contains(name))
    }

    /// Ends the attempt; see [`abort`].
    ///
    /// # Errors
    ///
    /// If the folder cannot be written.
    pub fn abort(&self, reason: &str) -> Result<(), CommError> {
        abort(&self.folder, reason)
    }

    /// Why the attempt was ended, if it was.
    pub fn aborted(&self) -> Option<String> {
        aborted(&self.folder)
    }

    /// The files in the folder.
    ///
    /// # Errors
    ///
    /// If the attempt was ended or refused, or `is_over` for this process.
    fn names(&self, is_over: &dyn Fn() -> bool) -> Result<files::Names, CommError> {
        if is_over() {
            let reason = format!("stopped at {}", self.folder.display());
            return Err(CommError::Aborted { reason });
        }
        let names = list(&self.folder)?;
        let reason = |name| read_json(&self.folder, name).map(|Reason { reason }| reason);
        if names.contains(ABORT) {
            return Err(CommError::Aborted { reason: reason(ABORT)? });
        }
        if names.contains(REFUSAL) && !names.contains(ROSTER) {
            return Err(CommError::Refused { why: reason(REFUSAL)? });
        }
        Ok(names)
    }

    /// Tells all ranks why they do not fit together; the first text stays.
    fn refuse(&self, why: String) -> CommError {
        let _ = write_json(&self.folder, REFUSAL, &Reason { reason: why.clone() }, true);
        // Where another rank was first, its text is everybody's.
        let first = read_json(&self.folder, REFUSAL).map(|Reason { reason }| reason);
        CommError::Refused { why: first.unwrap_or(why) }
    }

    /// The error of ranks that are not `there`.
    pub(crate) fn missing(&self, there: impl Fn(usize) -> bool) -> CommError {
        CommError::Missing {
            ranks: (0..self.place.world()).filter(|&rank| !there(rank)).collect(),
            place: Box::new(self.place.clone()),
            folder: self.folder.clone(),
            waited: self.timeout,
        }
    }
}

/// The file of a rank's record.
fn record(rank: usize) -> String {
    format!("{rank:04}.json")
}

fn is_record(name: &str) -> bool {
    let digits = name.strip_suffix(".json").unwrap_or_default();
    digits.len() >= 4 && digits.bytes().all(|byte| byte.is_ascii_digit())
}
