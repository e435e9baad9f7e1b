//! Reads the bytes of images, from separate files or from archives.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs::File, os::unix::fs::FileExt};

use super::{index::Extent, staging::Staged};

/// The most archives open at a time: there may be more shards than files that a process may have
/// open, often 1024.
const OPEN: usize = 256;

/// Reads from the containers of an index.
#[derive(Debug)]
pub(crate) struct Reader {
    containers: Vec<PathBuf>,
    open: Mutex<Open>,
    /// The containers' copies on the node's disk.
    staged: Vec<Option<Arc<Staged>>>,
}

#[derive(Debug)]
struct Open {
    files: Vec<Option<Arc<File>>>,
    /// Numbers of the open files, in the order of opening.
    order: VecDeque<usize>,
}

impl Reader {
    pub(crate) fn new(containers: Vec<PathBuf>) -> Self {
        let open = Open { files: vec![None; containers.len()], order: VecDeque::new() };
        let staged = vec![None; containers.len()];
        Self { containers, open: Mutex::new(open), staged }
    }

    /// Has copies of the containers read from, as far as they are made.
    pub(crate) fn use_copies(&mut self, copies: &[Arc<Staged>]) {
        let by_path: HashMap<&Path, &Arc<Staged>> =
            copies.iter().map(|copy| (copy.source_path(), copy)).collect();
        let copy = |container: &PathBuf| by_path.get(container.as_path()).copied().cloned();
        self.staged = self.containers.iter().map(copy).collect();
    }

    /// Replaces the content of `into` by a part of an archive.
    ///
    /// A positioned read: threads that share the file do not disturb each other.
    pub(crate) fn read_part(
        &self,
        container: usize,
        extent: Extent,
        into: &mut Vec<u8>,
    ) -> io::Result<()> {
        into.resize(extent.length as usize, 0);
        if self.staged[container].as_ref().is_some_and(|copy| copy.read(extent, into)) {
            return Ok(());
        }
        self.archive(container)?.read_exact_at(into, extent.offset)
    }

    /// Replaces the content of `into` by the first `most` bytes of a file in a folder; gives its
    /// length.
    pub(crate) fn read_file(
        &self,
        container: usize,
        name: &str,
        most: usize,
        into: &mut Vec<u8>,
    ) -> io::Result<u64> {
        let file = File::open(self.containers[container].join(name))?;
        into.clear();
        let read = (&file).take(most as u64).read_to_end(into)?;
        match read == most {
            true => Ok(file.metadata()?.len()),
            false => Ok(read as u64), // the end was reached
        }
    }

    /// An archive, opened when first read from.
    fn archive(&self, number: usize) -> io::Result<Arc<File>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &open.files[number] {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(File::open(&self.containers[number])?);
        if open.order.len() == OPEN
            && let Some(oldest) = open.order.pop_front()
        {
            open.files[oldest] = None; // closed once nobody reads from it any more
        }
        open.files[number] = Some(Arc::clone(&file));
        open.order.push_back(number);
        Ok(file)
    }
}
