//! The parts of a factor on a device, and the sums of tensor cores in f64, since no processor has
//! them.

use burn_cubecl::CubeDevice;
use burn_cubecl::tensor::CubeTensor;

use super::super::tests::{device, numbers, on_device, values};
use super::*;
use vim_kernels_core::cube::cubes;

/// Most of an error of Σ a·b, in units of Σ |a·b|.
const TOLERANCE: f64 = 2e-6;

#[cube(launch_unchecked)]
fn parts_kernel(from: &[f32], high: &mut [f32], low: &mut [f32], #[comptime] splits: bool) {
    let at = ABSOLUTE_POS;
    if at < from.len() {
        let bits = high_of(from[at], splits);
        high[at] = f32::reinterpret(bits);
        low[at] = f32::reinterpret(low_of(from[at], bits));
    }
}

/// The parts of each number, as the kernels split it.
fn parts(of: &[f32], device: &CubeDevice) -> Vec<[f32; 2]> {
    parts_of(of, true, device)
}

/// The parts of each number, or the nearest of TF32 and what is left.
fn parts_of(of: &[f32], splits: bool, device: &CubeDevice) -> Vec<[f32; 2]> {
    let from = on_device(of, device);
    let [high, low] = [(); 2].map(|()| on_device(&vec![0.0; of.len()], device));
    let client = from.client.clone();
    let buffer = |tensor: &CubeTensor| tensor.clone().into_buffer_arg();
    // SAFETY: the buffers are equally long, and units beyond do nothing.
    unsafe {
        parts_kernel::launch_unchecked(
            &client,
            cubes(&client, of.len().div_ceil(64)),
            CubeDim::new_1d(64),
            buffer(&from),
            buffer(&high),
            buffer(&low),
            splits,
        );
    }
    values(high).into_iter().zip(values(low)).map(|(high, low)| [high, low]).collect()
}

/// Numbers of any exponent that a seed determines.
fn of_any_size(count: usize, seed: u32) -> Vec<f32> {
    let exponents = numbers(count, seed + 1).into_iter().map(|x| (x * 126.0) as i32);
    numbers(count, seed).into_iter().zip(exponents).map(|(x, e)| x * 2f32.powi(e)).collect()
}

#[test]
fn parts_add_up() {
    let mut all = of_any_size(4000, 1);
    all.extend(numbers(4000, 3));
    all.extend([0.0, 1.0, -1.0, 1.5, 0.1, 3.4e38, f32::from_bits(0x7f7f_efff)]);
    // Half a unit of TF32, and its neighbours: rounded away from zero, down, up.
    all.extend([0x3f80_1000, 0x3f80_0fff, 0x3f80_1001, 0x3f80_3000].map(f32::from_bits));
    // Subnormal numbers.
    all.extend([1u32, 0x1fff, 0x1000, 0x007f_ffff, 0x8000_0001].map(f32::from_bits));
    for (&x, [high, low]) in all.iter().zip(parts(&all, &device())) {
        for part in [high, low] {
            assert_eq!(part.to_bits() & !KEPT, 0, "{x:e}: {part:e} has more than 11 bits");
        }
        let [of_x, high, low] = [x, high, low].map(f64::from);
        // Half a unit in the last place of TF32, of which the low part has all but a bit. Below
        // 2⁻¹¹⁵ it may be subnormal, which a device may take for 0.
        let most = (of_x.abs() * 2f64.powi(-23)).max(2f64.powi(-126));
        assert!(low.abs() <= of_x.abs() * 2f64.powi(-11) + 2f64.powi(-126), "{x:e}: {low:e}");
        assert!((high + low - of_x).abs() <= most, "{x:e}: {high:e} + {low:e}");
    }
}

#[test]
fn what_is_not_finite_stays_so() {
    let all = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN];
    // The last two carry over into a zero when they are rounded.
    let nans = [0x7f80_0001, 0x7fbf_ffff, 0x7fff_ffff, 0xffff_ffff].map(f32::from_bits);
    let numbers = [&all[..], &nans].concat();
    for (x, [high, low]) in numbers.iter().zip(parts(&numbers, &device())) {
        assert!(low.is_nan(), "{x}: {high} and {low}");
    }
    for (x, [nearest, _]) in numbers.iter().zip(parts_of(&numbers, false, &device())) {
        assert!(nearest.is_nan() == x.is_nan() && !nearest.is_finite(), "{x}: {nearest}");
    }
    // The largest numbers round to an infinity.
    let [[high, low]] = parts(&[f32::MAX], &device())[..] else { unreachable!("one number") };
    assert!(high.is_infinite() && low.is_infinite() && (high + low).is_nan());
}

/// `x` without the bits below `2^exponent`.
fn truncated(x: f64, exponent: i32) -> f64 {
    let unit = 2f64.powi(exponent);
    (x / unit).trunc() * unit
}

/// The place of the last of 24 bits of a number.
fn last_place(x: f64) -> i32 {
    if x == 0.0 { -149 } else { x.abs().log2().floor() as i32 - 23 }
}

/// What tensor cores add to `sum` in this emulation: every addend is cut to the last of the largest
/// one's 24 bits, and so is the result.
fn multiplied(left: &[f32], right: &[f32], sum: f64) -> f64 {
    let products = left.iter().zip(right).map(|(&a, &b)| f64::from(a) * f64::from(b));
    let addends: Vec<f64> = products.chain([sum]).collect();
    let last = addends.iter().copied().map(last_place).max().expect("there is a sum");
    let total: f64 = addends.into_iter().map(|x| truncated(x, last)).sum();
    truncated(total, last_place(total))
}

/// The sum of products as [`accumulate_tf32`] has it.
fn product(left: &[[f32; 2]], right: &[[f32; 2]]) -> f32 {
    let side = |of: &[[f32; 2]], low: bool| -> Vec<f32> {
        of.iter().map(|parts| parts[usize::from(low)]).collect()
    };
    let mut sum = 0.0f32;
    for (left, right) in left.chunks(16).zip(right.chunks(16)) {
        let mut part = 0.0;
        for [left_low, right_low] in [[true, false], [false, true], [false, false]] {
            let (left, right) = (side(left, left_low), side(right, right_low));
            for (left, right) in left.chunks(8).zip(right.chunks(8)) {
                part = multiplied(left, right, part);
            }
        }
        sum += part as f32;
    }
    sum
}

/// As many numbers, by a seed.
type Make = fn(usize, u32) -> Vec<f32>;

#[test]
fn sums_are_f32s() {
    let device = device();
    let positive: Make = |count, seed| numbers(count, seed).into_iter().map(f32::abs).collect();
    let spread: Make = |count, seed| {
        let exponents = numbers(count, seed + 9).into_iter().map(|x| (x * 20.0) as i32);
        numbers(count, seed).into_iter().zip(exponents).map(|(x, e)| x * 2f32.powi(e)).collect()
    };
    let kinds: [(&str, Make); 3] =
        [("of both signs", numbers), ("positive", positive), ("of many sizes", spread)];
    for (kind, make) in kinds {
        // Terms of layers, and of a weight's gradient: of all tokens, and of one of its parts.
        for (terms, sums) in [(192, 20), (384, 20), (2304, 8), (25_216, 4)] {
            let (a, b) = (make(terms * sums, 5), make(terms * sums, 6));
            let (left, right) = (parts(&a, &device), parts(&b, &device));
            for sum in 0..sums {
                let range = sum * terms..(sum + 1) * terms;
                let got = f64::from(product(&left[range.clone()], &right[range.clone()]));
                let exact = range.map(|i| f64::from(a[i]) * f64::from(b[i]));
                let (want, scale) =
                    exact.fold((0.0, 0.0), |(sum, scale), x| (sum + x, scale + x.abs()));
                let error = (got - want).abs() / scale;
                assert!(error <= TOLERANCE, "{terms} terms {kind}: {error:e}");
            }
        }
    }
}
