//! Heads taken class by class: rows in another order, of some classes, and rows that are not there.

use vim_model::{HeadRows, LoadOptions, LoadReport, Names, Vim, VimConfig};
use vim_torch::Item;

use crate::support::{arrays, batch, build, dict, logits, small, values};

const BOTH: [Names; 2] = [Names::Ours, Names::Pytorch];

fn of_classes(classes: usize) -> VimConfig {
    VimConfig { num_classes: classes, ..small() }
}

/// A model of `classes` with the rows `rows` of a file of five.
fn taken(names: Names, classes: usize, rows: &[Option<usize>]) -> (Vim, LoadReport) {
    let state = dict(arrays(&build(&small(), 1), names));
    let options = LoadOptions { rows: Some(rows), ..LoadOptions::default() };
    build(&of_classes(classes), 9).load(&state, options).unwrap()
}

#[test]
fn permuted_rows_give_permuted_logits() {
    let order = [3, 0, 4, 1, 2];
    let given = logits(&build(&small(), 1), batch(2, 16));
    for names in BOTH {
        let (model, report) = taken(names, 5, &order.map(Some));
        assert_eq!(report.head_rows, Some(HeadRows { file: 5, model: 5, taken: 5 }));
        assert_eq!((report.head, report.tensors), (None, values(&model).len()));
        let numbers = values(&model).values().map(|(_, numbers)| numbers.len()).sum::<usize>();
        assert_eq!(report.parameters, numbers);
        let got = logits(&model, batch(2, 16));
        for (image, got) in got.chunks(5).enumerate() {
            let expected = order.map(|row| given[5 * image + row]);
            assert_eq!(got, expected, "{names:?}, image {image}");
        }
    }
}

#[test]
fn common_rows_are_taken_and_others_keep_their_initial_values() {
    let rows = [None, Some(4), Some(1)];
    let (given, fresh) = (values(&build(&small(), 1)), values(&build(&of_classes(3), 9)));
    // `[K, 16]`, as `values` gives the weights of linear layers.
    let column = |of: &[f32], classes: usize, class: usize| -> Vec<f32> {
        of.chunks(of.len() / classes).nth(class).unwrap().to_vec()
    };
    for names in BOTH {
        let (model, report) = taken(names, 3, &rows);
        assert_eq!(report.head_rows, Some(HeadRows { file: 5, model: 3, taken: 2 }));
        let got = values(&model);
        for (class, row) in rows.iter().enumerate() {
            for path in ["head.weight", "head.bias"] {
                let expected = match row {
                    Some(row) => column(&given[path].1, 5, *row),
                    None => column(&fresh[path].1, 3, class),
                };
                assert_eq!(column(&got[path].1, 3, class), expected, "{names:?}, {path}, {class}");
            }
        }
        let others = got.iter().filter(|(path, _)| !path.starts_with("head."));
        for (path, value) in others {
            assert_eq!(value, &given[path], "{path}");
        }
        // The file's numbers without those of three rows, of which a new one stands in the model.
        let numbers = given.values().map(|(_, numbers)| numbers.len()).sum::<usize>();
        assert_eq!(report.parameters, numbers - 3 * 17);
    }
}

#[test]
fn no_row_at_all_leaves_the_head_as_it_is() {
    let (model, report) = taken(Names::Pytorch, 5, &[None; 5]);
    assert_eq!(report.head_rows, Some(HeadRows { file: 5, model: 5, taken: 0 }));
    let (got, fresh) = (values(&model), values(&build(&small(), 9)));
    assert_eq!(got["head.weight"], fresh["head.weight"]);
    assert_eq!(report.tensors, got.len() - 2);
}

#[test]
fn rows_that_do_not_fit_are_named() {
    let state = dict(arrays(&build(&small(), 1), Names::Pytorch));
    let lines = |classes, rows: &[Option<usize>]| {
        let options = LoadOptions { rows: Some(rows), ..LoadOptions::default() };
        build(&of_classes(classes), 9).load(&state, options).unwrap_err().lines()
    };
    let both = |words: &str| {
        ["head.weight", "head.bias"].map(|key| format!("of other classes: {key} ({words})"))
    };
    let words = "class 1 of the model is to be class 5, and the file has 5 classes";
    assert_eq!(lines(2, &[Some(0), Some(5)]), both(words));
    let words = "rows of 3 classes were asked for, and the model has 2";
    assert_eq!(lines(2, &[Some(0), None, None]), both(words));
    // With a row less the last one would be of no class, which a classifier has not.
    let words = "rows of 1 classes were asked for, and the model has 2";
    let too_few = format!("of other classes: head.bias ({words})");
    assert!(lines(2, &[Some(0)]).contains(&too_few));
}

#[test]
fn arrays_of_different_numbers_of_classes_are_a_mismatch() {
    let mut arrays = arrays(&build(&small(), 1), Names::Pytorch);
    let bias = arrays.iter_mut().find(|(key, _)| key == "head.bias").unwrap();
    (bias.1.shape, bias.1.values) = (vec![4], vec![0.0; 4]);
    let options = LoadOptions { rows: Some(&[Some(0), Some(1)]), ..LoadOptions::default() };
    let mismatch = build(&of_classes(2), 9).load(&dict(arrays), options).unwrap_err();
    assert_eq!(mismatch.lines(), ["of another shape: head.bias (expected [5], got [4])"]);
}

#[test]
fn a_row_that_is_not_taken_need_not_be_finite() {
    let mut arrays = arrays(&build(&small(), 1), Names::Pytorch);
    arrays.iter_mut().find(|(key, _)| key == "head.bias").unwrap().1.values[2] = f32::NAN;
    let state = dict(arrays);
    for (rows, named) in [([Some(1), Some(3)], false), ([Some(1), Some(2)], true)] {
        let options = LoadOptions { rows: Some(&rows), ..LoadOptions::default() };
        let (_, report) = build(&of_classes(2), 9).load(&state, options).unwrap();
        assert_eq!(!report.not_finite.is_empty(), named, "{rows:?}");
    }
}

#[test]
fn a_file_without_a_head_is_as_without_rows() {
    let mut state = vim_torch::StateDict::default();
    for (key, array) in arrays(&build(&small(), 1), Names::Pytorch) {
        if !key.starts_with("head.") {
            state.insert(key, Item::Array(array));
        }
    }
    let rows = [Some(0); 5];
    let options = LoadOptions { rows: Some(&rows), ..LoadOptions::default() };
    let mismatch = build(&small(), 9).load(&state, options).unwrap_err();
    assert_eq!(mismatch.lines(), ["missing: head.weight [5, 16]", "missing: head.bias [5]"]);
    let allowed = LoadOptions { head: true, ..options };
    let (_, report) = build(&small(), 9).load(&state, allowed).unwrap();
    assert_eq!((report.head, report.head_rows), (Some((0, 5)), None));
}
