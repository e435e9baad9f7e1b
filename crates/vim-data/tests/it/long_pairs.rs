//! Pairs with a side that no segmenter takes.

use vim_data::{EvalPairs, Loader, OnBad, Pixels, Splits, encode_png};

use crate::pairs::{files, labels_png, of_path, open, training, write_files};

#[test]
fn a_pair_too_long_for_a_segmenter_is_bad_everywhere() {
    let root = tempfile::tempdir().unwrap();
    let mut files = files();
    let long = [1, vim_data::LONGEST_SIDE + 1];
    let image = encode_png(&Pixels::black(long[0], long[1])).unwrap();
    let map = labels_png(long, &vec![1; long[1]]);
    for of in ["training/ADE_train_00000003", "validation/ADE_val_00000002"] {
        for (half, bytes) in [("images", &image), ("annotations", &map)] {
            let name = format!("ADEChallengeData2016/{half}/{of}.png");
            files.iter_mut().find(|(other, _)| *other == name).unwrap().1.clone_from(bytes);
        }
    }
    let folder = root.path().join("tree");
    write_files(&folder, &files);
    let says = "has 1 × 32769 pixels, which makes a side of 32769, and segmentation takes 32768";

    let sources = vim_data::open_pairs(&of_path(&folder), &vim_data::EnvPaths::default()).unwrap();
    let report = vim_data::verify_pairs(sources.val.as_ref().unwrap(), 2, &|_| {}).unwrap();
    assert_eq!((report.good, report.bad.len()), (7, 1));
    assert!(report.bad[0].what.contains(says), "{:?}", report.bad);
    // It is named once, as an image; of an image with a class alone such a side is nothing odd.
    let [images, maps] =
        vim_data::scan_pairs(sources.val.as_ref().unwrap(), 2, [&|_| {}, &|_| {}]).unwrap();
    assert_eq!((images.images, images.odd.len(), maps.odd.len()), (8, 1, 0));
    assert!(images.odd[0].what.contains(says), "{:?}", images.odd);
    let val = sources.val.as_ref().unwrap();
    for half in [val.images(), val.label_map_files()] {
        assert!(vim_data::scan(half, 2, &|_| {}).unwrap().odd.is_empty());
    }

    let Splits { train, test, .. } = open(&folder).unwrap();
    let loader = Loader::new(train, training(2)).unwrap();
    let mut batches = loader.epoch(1, 0);
    assert!(batches.by_ref().map(Result::unwrap).all(|batch| !batch.indices.contains(&2)));
    assert!(batches.take_bad()[0].reason.contains(says));
    let all = |on_bad| EvalPairs::new(&test, (0..8).collect(), 2, on_bad).unwrap();
    let counted: Vec<_> = all(OnBad::CountAsWrong).map(Result::unwrap).collect();
    let unread = counted[1].as_ref().unwrap_err();
    assert!(unread.reason.contains(says), "{}", unread.reason);
    // Its labels count as wrong.
    assert_eq!(unread.labels.as_deref(), Some(&vec![0; long[1]][..]));
    let failed = all(OnBad::Fail).nth(1).unwrap().unwrap_err();
    assert!(failed.to_string().contains(says), "{failed}");
}
