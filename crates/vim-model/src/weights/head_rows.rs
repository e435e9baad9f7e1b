//! Arrays with a number for each class, taken class by class.

use vim_torch::Array;

/// Classes of a head that was taken row by row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadRows {
    /// Classes in the file.
    pub file: usize,
    /// Classes of the model.
    pub model: usize,
    /// Classes of the model whose numbers are the file's; the others keep their initial values.
    pub taken: usize,
}

/// Which part of an array has the numbers of a class.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassAxis<'a> {
    /// Its shape in the model, as the file stores it.
    pub(super) expected: &'a [usize],
    /// The dimension of classes: the last of a linear layer's weight under our names, else the
    /// first.
    pub(super) axis: usize,
    /// Of each class of the model the class of the file.
    pub(super) rows: &'a [Option<usize>],
}

/// Numbers of the file among the model's own.
#[derive(Debug)]
pub(super) struct Taken {
    /// All numbers, in the file's layout.
    pub(super) values: Vec<f32>,
    /// How many are the file's.
    pub(super) count: usize,
    /// Whether all of those are finite.
    pub(super) is_finite: bool,
    /// How many classes each side has, and how many were taken.
    pub(super) classes: HeadRows,
}

/// Why rows cannot be taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The arrays differ in more than the number of classes.
    Shape,
    /// Rows that do not fit, in words.
    Rows(String),
}

impl ClassAxis<'_> {
    /// The shape that the file's array must have, with `length` along the dimension of classes.
    pub(super) fn shape_of(&self, length: usize) -> Vec<usize> {
        let mut shape = self.expected.to_vec();
        if let Some(classes) = shape.get_mut(self.axis) {
            *classes = length;
        }
        shape
    }

    /// Numbers along the dimension of classes that are of none: a detector's background, the last.
    /// `None` where there are more rows than that dimension is long.
    pub(super) fn others(&self) -> Option<usize> {
        self.expected.get(self.axis)?.checked_sub(self.rows.len())
    }

    /// Says that there is not one row for each class of the model.
    pub(super) fn count_differs(&self) -> String {
        let length = self.expected.get(self.axis).copied().unwrap_or_default();
        format!("rows of {} classes were asked for, and the model has {length}", self.rows.len())
    }

    /// The rows of `array` among those of `own`, which is in the file's layout. What is of no class
    /// is always the file's.
    pub(super) fn take(&self, array: &Array, own: Vec<f32>) -> Result<Taken, Refusal> {
        let others = self.others().ok_or_else(|| Refusal::Rows(self.count_differs()))?;
        let length = *array.shape.get(self.axis).ok_or(Refusal::Shape)?;
        let file = length.checked_sub(others).ok_or(Refusal::Shape)?;
        let inner: usize = self.expected[self.axis + 1..].iter().product();
        let outer: usize = self.expected[..self.axis].iter().product();
        let is_whole = array.values.len() == outer * length * inner;
        if array.shape != self.shape_of(length) || !is_whole {
            return Err(Refusal::Shape);
        }
        let rows: Vec<Option<usize>> =
            self.rows.iter().copied().chain((file..length).map(Some)).collect();
        if let Some((class, row)) = out_of(self.rows, file) {
            return Err(Refusal::Rows(format!(
                "class {class} of the model is to be class {row}, and the file has {file} classes"
            )));
        }
        let (mut values, mut count, mut is_finite) = (own, 0, true);
        if values.len() != outer * rows.len() * inner {
            return Err(Refusal::Shape);
        }
        for block in 0..outer {
            for (to, from) in rows.iter().enumerate() {
                let Some(from) = from else { continue };
                let (to, from) =
                    ((block * rows.len() + to) * inner, (block * length + from) * inner);
                let row = &array.values[from..from + inner];
                is_finite &= row.iter().all(|value| value.is_finite());
                values[to..to + inner].copy_from_slice(row);
                count += inner;
            }
        }
        let taken = self.rows.iter().flatten().count();
        let classes = HeadRows { file, model: self.rows.len(), taken };
        Ok(Taken { values, count, is_finite, classes })
    }
}

/// The first class with a row that is none of `file` classes.
fn out_of(rows: &[Option<usize>], file: usize) -> Option<(usize, usize)> {
    let numbered = rows.iter().enumerate();
    numbered.filter_map(|(class, row)| Some((class, (*row)?))).find(|(_, row)| *row >= file)
}

#[cfg(test)]
mod tests {
    use vim_torch::Element;

    use super::*;

    fn array(shape: &[usize], values: &[f32]) -> Array {
        Array { shape: shape.to_vec(), values: values.to_vec(), stored: Element::F32 }
    }

    #[test]
    fn rows_are_taken_along_either_dimension_and_what_is_of_no_class_stays_last() {
        let rows = [Some(1), None];
        // Three rows of two numbers: two classes and the background.
        let file = array(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let first = ClassAxis { expected: &[3, 2], axis: 0, rows: &rows };
        let taken = first.take(&file, vec![0.0; 6]).unwrap();
        assert_eq!(taken.values, [3.0, 4.0, 0.0, 0.0, 5.0, 6.0]);
        assert_eq!((taken.count, taken.is_finite), (4, true));
        assert_eq!(taken.classes, HeadRows { file: 2, model: 2, taken: 1 });
        // The same as two rows of three columns.
        let file = array(&[2, 3], &[1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
        let last = ClassAxis { expected: &[2, 3], axis: 1, rows: &rows };
        let taken = last.take(&file, vec![0.0; 6]).unwrap();
        assert_eq!(taken.values, [3.0, 0.0, 5.0, 4.0, 0.0, 6.0]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let bias = ClassAxis { expected: &[2], axis: 0, rows: &[Some(0), Some(3)] };
        let file = array(&[3], &[0.0; 3]);
        let words = "class 1 of the model is to be class 3, and the file has 3 classes";
        assert_eq!(bias.take(&file, vec![0.0; 2]).unwrap_err(), Refusal::Rows(words.into()));
        let rows = [Some(0), None, None];
        let more = ClassAxis { expected: &[2], axis: 0, rows: &rows };
        let words = "rows of 3 classes were asked for, and the model has 2";
        assert_eq!(more.take(&file, vec![0.0; 2]).unwrap_err(), Refusal::Rows(words.into()));
        // A background that the file lacks, other channels, another rank.
        let scores = ClassAxis { expected: &[2, 4], axis: 0, rows: &[Some(0)] };
        for shape in [&[0, 4][..], &[2, 5], &[8], &[]] {
            let file = array(shape, &vec![0.0; shape.iter().product()]);
            let refusal = scores.take(&file, vec![0.0; 8]).unwrap_err();
            assert_eq!(refusal, Refusal::Shape, "{shape:?}");
        }
    }

    #[test]
    fn only_numbers_that_are_taken_must_be_finite() {
        let file = array(&[2], &[f32::NAN, 1.0]);
        let of = |rows| ClassAxis { expected: &[1], axis: 0, rows }.take(&file, vec![0.0]).unwrap();
        assert!(of(&[Some(1)]).is_finite);
        assert!(!of(&[Some(0)]).is_finite);
    }
}
