//! What was drawn for an image, in words.

use vim_data::{CropPlan, Described, EraseBox, EraseFill, MixPlan, Op, SamplePlan};

use crate::output::summary::counted;

/// What is done to one draw of an image; `partner` is the class of the image mixed in.
pub(super) fn done(one: &Described, partner: &str) -> String {
    let plan = one.plan.iter().flat_map(|plan| of_plan(plan, one.source));
    let mixed = one.mixed.iter().filter_map(|mixed| of_mix(mixed, partner));
    let words: Vec<String> = plan.chain(mixed).collect();
    words.join(", ")
}

fn of_plan(plan: &SamplePlan, source: [usize; 2]) -> Vec<String> {
    let flip = plan.flip.then(|| "mirrored".to_owned());
    let mut words = vec![of_crop(plan.crop, source)];
    words.extend(flip.into_iter().chain(plan.ops.iter().map(of_op)));
    words.extend(plan.erase.iter().map(of_box));
    words
}

fn of_crop(crop: CropPlan, [rows, columns]: [usize; 2]) -> String {
    match crop {
        CropPlan::Evaluation => "as in evaluation".to_owned(),
        CropPlan::Padded { padding: [above, beside], top, left } => {
            format!("padded by {above}x{beside} px, a piece at row {top}, column {left}")
        }
        CropPlan::Resized { region } => {
            let share = (region.height * region.width) as f64 / (rows * columns) as f64;
            format!(
                "resized from {:.0} % of the area, {}x{} px at row {}, column {}",
                100.0 * share,
                region.height,
                region.width,
                region.top,
                region.left
            )
        }
        CropPlan::Simple { resized: [height, width], padding, top, left } => format!(
            "resized to {height}x{width} px, {padding} px reflected at each edge, a piece at row \
             {top}, column {left}"
        ),
    }
}

fn of_op(op: &Op) -> String {
    match *op {
        Op::AutoContrast => "auto contrast".to_owned(),
        Op::Equalize => "equalized".to_owned(),
        Op::Invert => "inverted".to_owned(),
        Op::Rotate { degrees } => format!("rotated by {degrees:.1}°"),
        Op::Posterize { bits } => format!("posterized to {}", counted(bits.into(), "bit")),
        Op::Solarize { threshold } => format!("solarized from {threshold}"),
        Op::SolarizeAdd { add } => format!("dark values raised by {add}"),
        Op::Color { factor } => format!("saturation × {factor:.2}"),
        Op::Contrast { factor } => format!("contrast × {factor:.2}"),
        Op::Brightness { factor } => format!("brightness × {factor:.2}"),
        Op::Sharpness { factor } => format!("sharpness × {factor:.2}"),
        Op::ShearX { factor } => format!("sheared along x by {factor:.2}"),
        Op::ShearY { factor } => format!("sheared along y by {factor:.2}"),
        Op::TranslateX { pixels } => moved(pixels, ["left", "right"]),
        Op::TranslateY { pixels } => moved(pixels, ["up", "down"]),
        Op::Grayscale => "grey".to_owned(),
        Op::Blur { radius } => format!("blurred by {radius:.1} px"),
    }
}

fn moved(pixels: f64, [forward, backward]: [&str; 2]) -> String {
    let direction = if pixels < 0.0 { backward } else { forward };
    format!("moved {direction} by {:.1} px", pixels.abs())
}

fn of_box(erased: &EraseBox) -> String {
    let region = erased.region;
    let fill = match erased.fill {
        EraseFill::Constant => "the mean",
        EraseFill::Colour(_) => "a colour",
        EraseFill::Pixels { .. } => "noise",
    };
    format!("a box of {}x{} px erased by {fill}", region.height, region.width)
}

fn of_mix(mixed: &MixPlan, partner: &str) -> Option<String> {
    let how = match mixed {
        MixPlan::None => return None,
        MixPlan::Mixup { .. } => "mixup",
        MixPlan::Cutmix { .. } => "cutmix",
    };
    let share = 100.0 * (1.0 - mixed.lambda());
    Some(format!("{how} with {share:.0} % of another image ({partner})"))
}

#[cfg(test)]
mod tests {
    use vim_data::Region;

    use super::*;

    #[test]
    fn a_plan_is_told_in_words() {
        let region = Region { top: 3, left: 5, height: 20, width: 30 };
        let plan = SamplePlan {
            crop: CropPlan::Resized { region },
            flip: true,
            ops: vec![Op::Rotate { degrees: -7.25 }, Op::TranslateX { pixels: -12.64 }],
            erase: vec![EraseBox { region, fill: EraseFill::Pixels { seed: 9 } }],
        };
        assert_eq!(
            of_plan(&plan, [40, 50]).join(", "),
            "resized from 30 % of the area, 20x30 px at row 3, column 5, mirrored, rotated by \
             -7.2°, moved right by 12.6 px, a box of 20x30 px erased by noise"
        );
        let mixed = of_mix(&MixPlan::Mixup { lambda: 0.25 }, "dog");
        assert_eq!(mixed.unwrap(), "mixup with 75 % of another image (dog)");
        assert_eq!(of_mix(&MixPlan::None, "dog"), None);
    }
}
