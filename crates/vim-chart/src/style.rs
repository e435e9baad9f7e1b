//! The style of a series: a colour and, for colour-blind readers, a marker shape.

/// The colours of a [`document`](crate::document); a page's style sheet has its own for `.c0` to
/// `.c9`.
///
/// Okabe and Ito's palette, without its yellow, which is too light for a line; then grey, lavender,
/// violet and brown.
pub(crate) const COLOURS: [&str; 10] = [
    "#0072b2", "#d55e00", "#009e73", "#c2649a", "#e69f00", "#56b4e9", "#4d4d4d", "#7b5ea7",
    "#a014f0", "#642800",
];

/// The same where the page is dark.
pub(crate) const ON_DARK: [&str; 10] = [
    "#4096dc", "#f0783a", "#22bf92", "#dd8fbd", "#f2b632", "#8fd3f7", "#b5bac1", "#a98bdb",
    "#9a3cf0", "#f0f0a0",
];

/// A colour and a marker shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesStyle {
    colour: usize,
    /// Whether the line is dashed: true once all colours are in use.
    pub dashed: bool,
}

impl SeriesStyle {
    /// The style of series `number`, from 0.
    pub fn new(number: usize) -> Self {
        Self { colour: number % COLOURS.len(), dashed: number >= COLOURS.len() }
    }

    /// The CSS class of the colour.
    pub fn class(self) -> String {
        format!("c{}", self.colour)
    }

    /// The CSS class of the line.
    pub fn line_class(self) -> &'static str {
        if self.dashed { "line dashed" } else { "line" }
    }

    /// A square of the colour, as HTML.
    pub fn swatch(self) -> String {
        let second = if self.dashed { " second" } else { "" };
        format!(r#"<i class="swatch{second} {}"></i>"#, self.class())
    }

    /// The marker at `(x, y)` with radius `r`.
    pub fn marker(self, (x, y): (f64, f64), r: f64) -> String {
        let corners: &[(f64, f64)] = match self.colour {
            8 => &[(0.0, 1.2), (1.1, -0.9), (-1.1, -0.9)],
            9 => &[(-1.1, -1.1), (1.1, -1.1), (-1.1, 1.1), (1.1, 1.1)],
            0 | 4 => return format!(r#"<circle class="dot" cx="{x:.1}" cy="{y:.1}" r="{r:.1}"/>"#),
            1 | 5 => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
            2 | 6 => &[(0.0, -1.2), (1.1, 0.9), (-1.1, 0.9)],
            _ => &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
        };
        let points: Vec<String> =
            corners.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx * r, y + dy * r)).collect();
        format!(r#"<polygon class="dot" points="{}"/>"#, points.join(" "))
    }
}

/// Colours of 0 to 254, the largest number the brightest: Viridis, which the colour-blind can read
/// and a grey printer keeps in order.
///
/// # Source
/// Smith and van der Walt 2015, matplotlib's `viridis` at nine places, and lines between them.
pub fn heat() -> Vec<[u8; 3]> {
    const PLACES: [[u8; 3]; 9] = [
        [68, 1, 84],
        [71, 44, 122],
        [59, 81, 139],
        [44, 113, 142],
        [33, 144, 141],
        [39, 173, 129],
        [92, 200, 99],
        [170, 220, 50],
        [253, 231, 37],
    ];
    let colour = |level: usize| {
        let at = level as f64 / 254.0 * 8.0;
        let from = (at as usize).min(7);
        std::array::from_fn(|part| {
            let [low, high] = [PLACES[from][part], PLACES[from + 1][part]].map(f64::from);
            (low + (high - low) * (at - from as f64)).round() as u8
        })
    };
    (0..255).map(colour).collect()
}
