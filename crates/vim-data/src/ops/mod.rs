//! Operations on a training image of the target size, after the crop and the flip.

/// An operation and all that it depends on but the pixels.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Stretches each channel to 0..=255.
    AutoContrast,
    /// Equalizes each channel's histogram.
    Equalize,
    /// 255 − v.
    Invert,
    /// Turns about the centre, counter-clockwise.
    Rotate {
        /// The angle.
        degrees: f64,
    },
    /// Keeps the highest bits of each value.
    Posterize {
        /// How many, 0..=8.
        bits: u8,
    },
    /// Inverts the values from the threshold on.
    Solarize {
        /// 0 (all) to 256 (none).
        threshold: u16,
    },
    /// Adds to the values below 128.
    SolarizeAdd {
        /// What is added; the sum stays at 255.
        add: u8,
    },
    /// Between grey (0), the image (1) and beyond.
    Color {
        /// Share of the image.
        factor: f64,
    },
    /// Between its mean grey (0), the image (1) and beyond.
    Contrast {
        /// Share of the image.
        factor: f64,
    },
    /// Between black (0), the image (1) and beyond.
    Brightness {
        /// Share of the image.
        factor: f64,
    },
    /// Between the smoothed image (0), the image (1) and beyond.
    Sharpness {
        /// Share of the image.
        factor: f64,
    },
    /// Moves each row by its height times the factor.
    ShearX {
        /// Columns per row.
        factor: f64,
    },
    /// Moves each column by its place times the factor.
    ShearY {
        /// Rows per column.
        factor: f64,
    },
    /// Moves the image to the left.
    TranslateX {
        /// Columns, also parts of one.
        pixels: f64,
    },
    /// Moves the image up.
    TranslateY {
        /// Rows, also parts of one.
        pixels: f64,
    },
    /// The luminance in all three channels.
    Grayscale,
    /// Gaussian blur.
    Blur {
        /// Standard deviation, in pixels.
        radius: f64,
    },
}
