//! Makes an index from images found in any order.

use std::path::PathBuf;

use super::{Extent, Index, IndexEntry, base_name};
use crate::error::{DataError, Location, SourceError};

/// One image, as found.
#[derive(Clone, Debug)]
pub(crate) struct FoundImage {
    pub(crate) container: u32,
    pub(crate) label: u32,
    pub(crate) extent: Option<Extent>,
    /// Path inside the container.
    pub(crate) name: String,
}

impl FoundImage {
    /// The sort key.
    fn key(&self) -> (u32, &str, u32, &str) {
        (self.label, base_name(&self.name), self.container, &self.name)
    }
}

/// Collects images.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    pub(crate) classes: Vec<String>,
    pub(crate) containers: Vec<PathBuf>,
    pub(crate) found: Vec<FoundImage>,
    pub(crate) notes: Vec<String>,
}

impl Builder {
    /// Sorts the images by class, file name and container: the order depends neither on how they
    /// were found nor on whether they are in folders or archives.
    ///
    /// # Errors
    /// If a container has two images of one name, which could not be told apart.
    pub(crate) fn finish(self) -> Result<Index, DataError> {
        let Self { classes, containers, mut found, notes } = self;
        found.sort_unstable_by(|a, b| a.key().cmp(&b.key()));
        let twice = found.windows(2).find(|pair| pair[0].key() == pair[1].key());
        if let Some([one, _]) = twice {
            let (path, member) = (&containers[one.container as usize], Some(one.name.clone()));
            let file = Location { path: path.clone(), member };
            return Err(SourceError::Twice(file).into());
        }
        let mut names = String::with_capacity(found.iter().map(|one| one.name.len()).sum());
        let entries = found
            .into_iter()
            .map(|FoundImage { container, label, extent, name }| {
                names.push_str(&name);
                let name_end = names.len() as u64;
                IndexEntry { container, label, extent, name_end, crc32c: None, facts: None }
            })
            .collect();
        Ok(Index { classes, containers, entries, notes, names })
    }
}
