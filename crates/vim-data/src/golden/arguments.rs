//! Operations by the names and arguments that manifests give them.

use crate::transforms::ops::Op;

/// The operation of a timm name, for an image of `size` (height, width).
pub(super) fn operation(name: &str, args: &[f64], size: [usize; 2]) -> Result<Op, String> {
    let [height, width] = size.map(|side| side as f64);
    let op = match (name, args) {
        ("auto_contrast", []) => Op::AutoContrast,
        ("equalize", []) => Op::Equalize,
        ("invert", []) => Op::Invert,
        ("grayscale" | "gray_scale" | "gray", []) => Op::Grayscale,
        ("rotate", &[degrees]) => Op::Rotate { degrees },
        ("posterize", &[bits]) => Op::Posterize { bits: whole(bits)? },
        ("solarize", []) => Op::Solarize { threshold: 128 },
        ("solarize", &[threshold]) => Op::Solarize { threshold: whole(threshold)? },
        ("solarize_add", &[add] | &[add, 128.0]) => Op::SolarizeAdd { add: whole(add)? },
        ("color", &[factor]) => Op::Color { factor },
        ("contrast", &[factor]) => Op::Contrast { factor },
        ("brightness", &[factor]) => Op::Brightness { factor },
        ("sharpness", &[factor]) => Op::Sharpness { factor },
        ("shear_x", &[factor]) => Op::ShearX { factor },
        ("shear_y", &[factor]) => Op::ShearY { factor },
        ("translate_x_rel", &[share]) => Op::TranslateX { pixels: share * width },
        ("translate_y_rel", &[share]) => Op::TranslateY { pixels: share * height },
        ("translate_x" | "translate_x_abs", &[pixels]) => Op::TranslateX { pixels },
        ("translate_y" | "translate_y_abs", &[pixels]) => Op::TranslateY { pixels },
        ("blur" | "gaussian_blur", &[radius]) => Op::Blur { radius },
        _ => return Err(format!("the operation `{name}` with arguments {args:?} is not known")),
    };
    Ok(op)
}

/// A number that is whole and fits.
fn whole<T: TryFrom<u64>>(number: f64) -> Result<T, String> {
    let fits = (number.fract() == 0.0 && (0.0..1e6).contains(&number))
        .then(|| T::try_from(number as u64).ok())
        .flatten();
    fits.ok_or_else(|| format!("{number} is not a whole number in range"))
}
