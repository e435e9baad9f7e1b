use std::path::Path;

use vim_run::{Opened, Resume, RunDir, RunError};

use crate::helpers::Helper;

fn open(path: &Path, fresh: bool) -> Result<Opened, RunError> {
    RunDir::open(path.to_owned(), "", Resume::Auto, fresh, |_| Ok(Vec::new()))
}

#[test]
fn a_folder_in_use_is_refused_by_name_even_for_fresh() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("zoh-s0");
    drop(open(&path, false).unwrap());
    let helper = Helper::start("holds_a_lock", &path.join("LOCK"));
    for fresh in [false, true] {
        let error = open(&path, fresh).unwrap_err();
        assert!(matches!(error, RunError::InUse { .. }));
        let text = error.to_string();
        assert!(text.contains(&format!("process {}", helper.pid())), "{text}");
        assert!(text.contains("SLURM job 4711"), "{text}");
    }
    assert!(!root.path().join("zoh-s0.old-1").exists());
}
