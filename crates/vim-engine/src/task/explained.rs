//! What `explain` asks of a model of any task.

use burn::tensor::Tensor;
use vim_data::{Exif, Pixels, Region, Statistics};
use vim_model::Vim;

use crate::error::Error;

/// What of an image is explained, in the pixels of its file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aim {
    /// What the task takes where nothing is named.
    Image,
    /// x and y.
    Pixel([usize; 2]),
    /// x0, y0, x1 and y1.
    Box([f64; 4]),
}

/// An image as a model sees it.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// In the upper left corner of what the model sees.
    pub(crate) pixels: Pixels,
    /// Height and width of the file's image.
    pub(super) stored: [usize; 2],
    /// What it is resized to as a whole.
    resized: [usize; 2],
    /// First row and column of that which are seen.
    corner: [usize; 2],
}

/// What a model says where it is asked.
pub(crate) struct Answer {
    /// A logit of each class, `[K]`.
    pub(crate) scores: Tensor<1>,
    /// x0, y0, x1 and y1 of what they are of, in pixels of the view; `None`: all of it.
    pub(crate) place: Option<[f64; 4]>,
}

/// A model that can be explained.
pub(crate) trait Explained {
    /// Its backbone.
    fn backbone(&self) -> &Vim;
    /// The same, to be replaced.
    fn backbone_mut(&mut self) -> &mut Vim;
    /// The last block that its answers depend on.
    fn last_block(&self) -> usize {
        self.backbone().layers.len() - 1
    }
    /// Names of its classes.
    fn classes(&self) -> &[String];
    /// What pixels are normalized by.
    fn statistics(&self) -> Statistics;
    /// Whether files are turned as they say.
    fn exif(&self) -> Exif;
    /// `image` as the model sees it; of one that is seen in parts that with `aim`.
    fn view(&self, image: &Pixels, aim: Aim) -> Result<View, Error>;
    /// What the model says of `images`, `[1, 3, H, W]`, which are `view`, at `aim`.
    fn answer(&self, images: Tensor<4>, view: &View, aim: Aim) -> Result<Answer, Error>;
}

impl View {
    /// The part `window` of an image of size `stored` that was `resized`, with these pixels.
    pub(super) fn new(
        pixels: Pixels,
        stored: [usize; 2],
        resized: [usize; 2],
        window: Region,
    ) -> Self {
        Self { pixels, stored, resized, corner: [window.top, window.left] }
    }

    /// Where `aim` is seen: x0, y0, x1 and y1.
    pub(super) fn place(&self, aim: Aim) -> Result<Option<[f64; 4]>, Error> {
        let (flag, [x0, y0, x1, y1]) = match aim {
            Aim::Image => return Ok(None),
            Aim::Pixel([x, y]) => {
                let [x, y] = [x, y].map(|at| at as f64 + 0.5);
                ("--pixel", [x, y, x, y])
            }
            Aim::Box(edges) => ("--box", edges),
        };
        let (shown, [height, width]) = (&self.pixels, self.stored);
        let seen = |at: f64, axis: usize| {
            at * self.resized[axis] as f64 / self.stored[axis] as f64 - self.corner[axis] as f64
        };
        let clip = |at: f64, side: usize| at.clamp(0.0, side as f64);
        let (x0, x1) = (seen(x0, 1), seen(x1, 1));
        let (y0, y1) = (seen(y0, 0), seen(y1, 0));
        let is_seen =
            |low: f64, high: f64, side: usize| low <= high && high > 0.0 && low < side as f64;
        if !(is_seen(x0, x1, shown.width) && is_seen(y0, y1, shown.height)) {
            let first = |axis: usize| {
                self.corner[axis] as f64 * self.stored[axis] as f64 / self.resized[axis] as f64
            };
            let last = |axis: usize, side: usize| {
                let end = (self.corner[axis] + side) as f64;
                (end * self.stored[axis] as f64 / self.resized[axis] as f64).floor()
            };
            return Err(Error::usage(format!(
                "{flag} is nothing that the model sees: of {width} x {height} px it sees x {:.0} to \
                 {:.0} and y {:.0} to {:.0}",
                first(1).ceil(),
                (last(1, shown.width) - 1.0).max(0.0),
                first(0).ceil(),
                (last(0, shown.height) - 1.0).max(0.0),
            )));
        }
        let [x0, x1] = [x0, x1].map(|at| clip(at, shown.width));
        let [y0, y1] = [y0, y1].map(|at| clip(at, shown.height));
        Ok(Some([x0, y0, x1, y1]))
    }
}

/// Refuses an aim of `flag`, which a `task` does not have; `instead` says what it has.
pub(super) fn refuse(flag: &str, task: &str, instead: &str) -> Error {
    Error::usage(format!("{flag} has no meaning with task = \"{task}\": {instead}"))
}
