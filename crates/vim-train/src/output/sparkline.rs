//! A curve in a line of text.

/// Characters of a curve, which fits 80 columns with its ends.
const CURVE: usize = 44;

/// A curve with its first and last value; one point is none.
pub(crate) fn drawn(
    curve: &[(f64, f64)],
    ends: Option<[(f64, f64); 2]>,
    show: impl Fn(f64) -> String,
) -> Option<String> {
    let [(_, first), (_, last)] = ends.filter(|_| curve.len() > 1)?;
    Some(format!("{}  {} to {}", sparkline(curve, CURVE), show(first), show(last)))
}

/// At most `most` points, each a mean of neighbours; `curve` unchanged if it has no more.
pub(crate) fn thinned(curve: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    if curve.len() <= most {
        return curve.to_vec();
    }
    let mean = |of: &[(f64, f64)]| {
        let sum = of.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / of.len() as f64, sum.1 / of.len() as f64)
    };
    curve.chunks(curve.len().div_ceil(most)).map(mean).collect()
}

/// The curve as at most `width` block characters, scaled from minimum to maximum.
fn sparkline(curve: &[(f64, f64)], width: usize) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let curve = thinned(curve, width);
    let values = || curve.iter().map(|point| point.1);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::MIN, f64::max));
    let block = |value: f64| {
        let share = if high > low { (value - low) / (high - low) } else { 0.0 };
        BLOCKS[((share * 8.0) as usize).min(7)]
    };
    values().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(values: &[f64]) -> Vec<(f64, f64)> {
        values.iter().enumerate().map(|(step, &value)| (step as f64, value)).collect()
    }

    #[test]
    fn thinning_takes_means_and_keeps_short_curves() {
        let points = curve(&[1.0, 3.0, 5.0, 7.0, 10.0]);
        assert_eq!(thinned(&points, 5), points);
        assert_eq!(thinned(&points, 3), [(0.5, 2.0), (2.5, 6.0), (4.0, 10.0)]);
        assert_eq!(thinned(&[], 3), []);
    }

    #[test]
    fn one_point_is_no_curve() {
        let ends = |points: &[(f64, f64)]| Some([points[0], points[points.len() - 1]]);
        let text = |points: &[(f64, f64)]| drawn(points, ends(points), |value| value.to_string());
        assert_eq!(text(&curve(&[2.0])), None);
        assert_eq!(text(&curve(&[2.0, 1.0])).as_deref(), Some("█▁  2 to 1"));
    }

    #[test]
    fn sparklines_span_the_blocks() {
        let rising = curve(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        assert_eq!(sparkline(&rising, 8), "▁▂▃▄▅▆▇█");
        assert_eq!(sparkline(&curve(&[2.0, 2.0]), 8), "▁▁");
        assert_eq!(sparkline(&[], 8), "");
        assert_eq!(sparkline(&curve(&[1.0; 100]), 40).chars().count(), 34);
    }
}
