//! Whether the archives of a dataset are staged.

use std::{path::PathBuf, sync::Arc};

use crate::{
    config::Stage,
    staging::{Staging, StagingError},
    surroundings::Surroundings,
};

use super::Sources;

impl Sources {
    /// Starts to copy the archives, or all of them, as `stage` says.
    pub(super) fn stage(
        &mut self,
        stage: Stage,
        surroundings: &Surroundings,
    ) -> Result<(), StagingError> {
        let is_required = match stage {
            Stage::Off => return Ok(()),
            Stage::Auto => false,
            Stage::Require => true,
        };
        let Some(disk) = &surroundings.node_disk else {
            return if is_required { Err(StagingError::NoFolder) } else { Ok(()) };
        };
        let parts = [&self.train, &self.val];
        let folder = parts.iter().find(|part| part.archives().is_empty());
        if let (Some(part), true) = (folder, is_required) {
            let path = part.root().to_owned();
            return Err(StagingError::NotArchives { path });
        }
        // Those that are on the disk already stay where they are.
        let on_disk = disk.canonicalize().unwrap_or_else(|_| disk.clone());
        let is_elsewhere = |path: &&PathBuf| !path.starts_with(&on_disk);
        let archives = parts.iter().flat_map(|part| part.archives());
        let archives: Vec<PathBuf> = archives.filter(is_elsewhere).cloned().collect();
        if archives.is_empty() {
            return Ok(());
        }
        let staging = match Staging::start(disk, &archives) {
            Ok(staging) => Arc::new(staging),
            Err(error) if is_required => return Err(error),
            Err(error) => {
                self.notes.push(format!("archives are read where they are: failed to {error}"));
                return Ok(());
            }
        };
        for part in [&mut self.train, &mut self.val] {
            part.use_copies(&staging);
        }
        if is_required {
            staging.wait()?;
        }
        self.staging = Some(staging);
        Ok(())
    }
}
