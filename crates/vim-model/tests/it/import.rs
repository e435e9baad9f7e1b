//! A checkpoint that does not fit is refused, with every reason.

use std::path::Path;

use burn::tensor::Device;
use vim_kernels::ScanChoice;
use vim_model::{
    ImportError, Misfit, Misshapen, ModelError, VimConfig, import_pytorch, pytorch_key,
};

use crate::golden::a_mid;
use crate::support::fixture;

fn import(config: &VimConfig) -> ImportError {
    import_pytorch(config, &fixture("a_mid.pth"), &Device::flex()).unwrap_err()
}

fn misfit(error: ImportError) -> Misfit {
    let ImportError::Mismatch { misfit, .. } = error else { panic!("{error}") };
    *misfit
}

#[test]
fn a_layer_too_many_is_missing_from_the_file() {
    let error = import(&VimConfig { depth: 5, ..a_mid(ScanChoice::Auto) });
    assert!(error.to_string().contains("missing: layers.4."), "{error}");
    let Misfit { missing, unmatched, misshapen, unreadable } = misfit(error);
    assert_eq!(missing.len(), 17, "{missing:?}");
    for (key, shape) in [
        ("layers.4.mixer.A_b_log", &[128, 16][..]),
        ("layers.4.mixer.in_proj.weight", &[256, 64]),
        ("layers.4.norm.weight", &[64]),
    ] {
        assert!(missing.contains(&(key.to_owned(), shape.to_vec())), "{key} in {missing:?}");
    }
    assert_eq!((unmatched.len(), misshapen.len(), unreadable.len()), (0, 0, 0));
}

#[test]
fn a_layer_too_few_leaves_names_unmatched() {
    let error = import(&VimConfig { depth: 3, ..a_mid(ScanChoice::Auto) });
    let Misfit { missing, unmatched, misshapen, .. } = misfit(error);
    assert_eq!((missing.len(), unmatched.len(), misshapen.len()), (0, 17, 0));
    assert!(unmatched.iter().all(|name| name.starts_with("layers.3.")), "{unmatched:?}");
    assert!(unmatched.iter().any(|name| name == "layers.3.mixer.D_b"), "{unmatched:?}");
}

#[test]
fn other_sizes_are_misshapen_in_pytorch_s_shapes() {
    let error = import(&VimConfig { num_classes: 7, ..a_mid(ScanChoice::Auto) });
    let text = error.to_string();
    assert!(text.ends_with("of another shape: head.weight (expected [7, 64], got [10, 64]), head.bias (expected [7], got [10])"), "{text}");
    let Misfit { missing, unmatched, misshapen, .. } = misfit(error);
    assert_eq!((missing.len(), unmatched.len()), (0, 0));
    let key = "head.weight".to_string();
    assert_eq!(misshapen[0], Misshapen { key, expected: vec![7, 64], got: vec![10, 64] });
}

#[test]
fn a_file_that_is_no_checkpoint_is_named() {
    let config = a_mid(ScanChoice::Auto);
    for name in ["a_mid.npz", "absent.pth"] {
        let error = import_pytorch(&config, &fixture(name), &Device::flex()).unwrap_err();
        assert!(matches!(error, ImportError::Read { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    let config = VimConfig { depth: 0, ..config };
    let error = import_pytorch(&config, Path::new("unread.pth"), &Device::flex()).unwrap_err();
    assert!(matches!(error, ImportError::Model(ModelError::Range { key: "depth", .. })), "{error}");
}

#[test]
fn a_checkpoint_cut_short_is_an_error_not_a_panic() {
    let whole = std::fs::read(fixture("a_mid.pth")).unwrap();
    let path = std::env::temp_dir().join(format!("vim-model-cut-{}.pth", std::process::id()));
    for length in [0, 10, 1000, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).unwrap();
        let result = import_pytorch(&a_mid(ScanChoice::Auto), &path, &Device::flex());
        let refused =
            matches!(result, Err(ImportError::Read { .. } | ImportError::Mismatch { .. }));
        assert!(refused, "{length} bytes of {}", whole.len());
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn names_map_to_the_original_s() {
    for (path, key) in [
        ("layers.3.mixer.forward.a_log", "layers.3.mixer.A_log"),
        ("layers.3.mixer.forward.d", "layers.3.mixer.D"),
        ("layers.3.mixer.forward.dt_proj.bias", "layers.3.mixer.dt_proj.bias"),
        ("layers.23.mixer.backward.a_log", "layers.23.mixer.A_b_log"),
        ("layers.23.mixer.backward.d", "layers.23.mixer.D_b"),
        ("layers.23.mixer.backward.dt_proj.bias", "layers.23.mixer.dt_proj_b.bias"),
        ("layers.0.mixer.in_proj.weight", "layers.0.mixer.in_proj.weight"),
        ("norm_f.weight", "norm_f.weight"),
        ("patch_embed.proj.weight", "patch_embed.proj.weight"),
    ] {
        assert_eq!(pytorch_key(path), key);
    }
}
