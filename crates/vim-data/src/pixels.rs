//! Pixels in memory, and parts of them.

/// An RGB image, `[height, width, 3]`, 0..=255.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pixels {
    /// In pixels.
    pub height: usize,
    /// In pixels.
    pub width: usize,
    /// Rows of red, green and blue; `3 · height · width` bytes.
    pub data: Vec<u8>,
}

impl Pixels {
    /// A black image.
    pub fn black(height: usize, width: usize) -> Self {
        Self { height, width, data: vec![0; 3 * height * width] }
    }

    /// Changes the size to `[height, width]`; the content is arbitrary afterwards.
    pub fn reshape(&mut self, [height, width]: [usize; 2]) {
        (self.height, self.width) = (height, width);
        self.data.resize(3 * height * width, 0);
    }

    /// Every pixel as a square of `factor` by `factor`.
    #[must_use]
    pub fn enlarged(&self, factor: usize) -> Self {
        let mut data = Vec::with_capacity(self.data.len() * factor * factor);
        for row in self.data.chunks_exact(3 * self.width) {
            let wide: Vec<u8> =
                row.chunks_exact(3).flat_map(|pixel| pixel.repeat(factor)).collect();
            data.extend(wide.repeat(factor));
        }
        Self { height: self.height * factor, width: self.width * factor, data }
    }

    /// The whole image as a region.
    pub fn region(&self) -> Region {
        Region { top: 0, left: 0, height: self.height, width: self.width }
    }
}

/// A rectangle of an image, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Region {
    /// First row.
    pub top: usize,
    /// First column.
    pub left: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Region {
    /// The smallest rectangle around both.
    pub fn union(self, other: Self) -> Self {
        let (top, left) = (self.top.min(other.top), self.left.min(other.left));
        let bottom = (self.top + self.height).max(other.top + other.height);
        let right = (self.left + self.width).max(other.left + other.width);
        Self { top, left, height: bottom - top, width: right - left }
    }

    /// Whether the region is not empty and lies inside an image of `size`, `[height, width]`.
    pub fn is_inside(&self, size: [usize; 2]) -> bool {
        let inside = |start: usize, length: usize, side: usize| {
            length > 0 && start.checked_add(length).is_some_and(|end| end <= side)
        };
        inside(self.top, self.height, size[0]) && inside(self.left, self.width, size[1])
    }
}
