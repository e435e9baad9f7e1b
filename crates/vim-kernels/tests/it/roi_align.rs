//! Features of boxes, kernel and reference, against the oracle.

use burn::tensor::{Device, Tensor};
use vim_kernels::{
    Implementation, KernelChoice, KernelError, Roi, RoiSampling, roi_align, roi_axis,
};
use vim_verify::roi_align::{SAMPLINGS, SIZES, inputs, run};
use vim_verify::rows_of;

use crate::support::{BOTH, Dtype, at_fault, bf16_devices, devices, pass};

fn check_all(dtype: Dtype, device: &Device) {
    for (from, bins, scale) in SIZES {
        for sampling in SAMPLINGS {
            for one in BOTH {
                let case = format!("{device:?} {one} {dtype} {from:?} to {bins}, {sampling:?}");
                let boxes = inputs(from, bins, scale, sampling, dtype);
                pass(rows_of(run(&boxes, one, dtype, device).unwrap(), 1e-30, 1.0, &case));
            }
        }
    }
}

#[test]
fn kernel_and_reference_match_the_oracle() {
    devices().iter().for_each(|device| check_all(Dtype::F32, device));
}

#[test]
fn bf16_matches_the_oracle() {
    bf16_devices().iter().for_each(|device| check_all(Dtype::Bf16, device));
}

#[test]
fn the_same_bits_twice() {
    let boxes = inputs([2, 19, 21, 12], 7, 0.25, RoiSampling::default(), Dtype::F32);
    for device in devices() {
        let run = || run(&boxes, Implementation::Kernel, Dtype::F32, &device).unwrap();
        assert_eq!(run(), run(), "{device:?}");
    }
}

// Of constant features, every box with area inside the image is that constant.
#[test]
fn a_constant_stays() {
    let x = Tensor::<4>::full([1, 6, 5, 2], 3.0, &Device::flex());
    let rois = [[0.0, 0.0, 5.0, 6.0], [1.25, 2.0, 1.26, 2.5], [-0.5, 0.0, 2.0, 6.5]];
    let rois = rois.map(|corners| Roi { image: 0, corners });
    let y = roi_align(x, &rois, 1.0, 3, RoiSampling::default(), KernelChoice::Auto).unwrap();
    assert!(y.into_data().iter::<f32>().all(|value| (value - 3.0).abs() < 1e-5));
}

#[test]
fn wrong_arguments_are_named() {
    let x = Tensor::<4>::zeros([2, 4, 4, 3], &Device::flex());
    let run = |rois: &[Roi], bins| {
        roi_align(x.clone(), rois, 0.25, bins, RoiSampling::default(), KernelChoice::Auto)
    };
    let roi = |image, right| Roi { image, corners: [0.0, 0.0, right, 8.0] };
    assert_eq!(run(&[roi(1, 8.0)], 2).unwrap().dims(), [1, 2, 2, 3]);
    assert_eq!(at_fault(run(&[], 2)), "rois");
    assert_eq!(at_fault(run(&[roi(2, 8.0)], 2)), "rois");
    assert_eq!(at_fault(run(&[roi(0, 8.0)], 0)), "bins");
    for edge in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let error = run(&[roi(0, 8.0), roi(1, edge)], 2).unwrap_err();
        assert!(matches!(error, KernelError::NotFinite { at: 1, .. }), "{error}");
    }
    let error = run(&[roi(0, 1e9)], 2).unwrap_err();
    assert!(matches!(error, KernelError::Beyond { .. }), "{error}");
    assert!(roi_axis([f32::NAN, 1.0], 2, 4).is_err() && roi_axis([0.0, 1.0], 2, 0).is_err());
}
