//! The sum of all elements, against f64, and bit by bit against itself; its gradient is 1.

use vim_kernels::sum_in_order;

use crate::support::{devices, tensor, values};

// One block of Burn's `sum` has 1024 elements; with three and more, the order is a GPU's. From
// 2²² on it is that of threads.
#[test]
fn the_sum_of_all_elements_has_the_same_bits_every_time() {
    for device in devices() {
        let empty = tensor(&[], [0, 3], &device);
        assert_eq!(values(sum_in_order(empty)), [0.0]);
        for [rows, columns] in
            [[1, 1], [5, 1], [205, 5], [2051, 4], [8192, 1], [300, 77], [2100, 2000]]
        {
            let numbers: Vec<f64> =
                (0..rows * columns).map(|at| f64::from((at as f32 * 0.731).sin())).collect();
            let x = tensor(&numbers, [columns, rows], &device).swap_dims(0, 1);
            let times = if rows * columns < 1 << 20 { 50 } else { 5 };
            let sums: Vec<f64> = (0..times).flat_map(|_| values(sum_in_order(x.clone()))).collect();
            let expected: f64 = numbers.iter().sum();
            let size: f64 = numbers.iter().map(|number| number.abs()).sum();
            // Of as many additions each rounds by 2⁻²⁴; one after the other is the worst order.
            let tolerance = size * (rows * columns) as f64 * 2.0_f64.powi(-24);
            assert!((sums[0] - expected).abs() <= tolerance, "{rows} × {columns}: {sums:?}");
            assert!(sums.iter().all(|sum| sum.to_bits() == sums[0].to_bits()), "{sums:?}");
            let x = tensor(&numbers, [columns, rows], &device.clone().autodiff()).require_grad();
            let gradients = (sum_in_order(x.clone().swap_dims(0, 1)) * 3.0).backward();
            let gradient = values(x.grad(&gradients).unwrap());
            assert_eq!(gradient, vec![3.0; rows * columns], "{rows} × {columns}");
        }
    }
}
