//! What is written: pictures, arrays, and the page that has the models side by side.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vim_chart::{escape, heat};
use vim_data::dense_ops::{coloured, overlay};
use vim_data::{Pixels, encode_png};
use vim_model::VimConfig;
use vim_run::storage::{Disk, replace};
use vim_sweep::report::{Gallery, document};

use super::look::Looked;
use super::{Explain, Map};
use crate::error::Error;
use crate::output::picture::thumbnail;
use crate::work::features::npz::{Numbers, write_arrays};

/// Least and longest side of a picture, about.
const SIDE: usize = 224;
const WAYS: [&str; 2] = ["forward", "backward"];
/// The largest label of a pixel with a colour; those that nothing covers have none.
const MOST: f64 = 254.0;
const UNCOVERED: u8 = 255;

/// The page so far, and the folder of its pictures.
pub(super) struct Page {
    folder: PathBuf,
    images: Vec<String>,
    /// By image and kind, with a card for each model.
    galleries: BTreeMap<(usize, usize), Gallery>,
}

/// What is drawn of an image.
struct Drawing<'a> {
    /// Its place among the others, on the page.
    kind: usize,
    title: String,
    note: &'static str,
    /// What its file is called behind the image and the model.
    end: String,
    /// A number for each patch.
    values: &'a [f64],
    on_page: bool,
}

/// The names of what is written of an image.
pub(super) fn files(
    asked: &Explain,
    image: &Path,
    label: &str,
    layers: &[usize],
    ways: usize,
) -> Vec<String> {
    let mut ends = vec![".npz".to_owned()];
    ends.extend(asked.draws(Map::Cam).then(|| "-cam.png".to_owned()));
    ends.extend(asked.draws(Map::Rollout).then(|| "-rollout.png".to_owned()));
    if asked.draws(Map::Attention) {
        let of = |&layer: &usize| WAYS[..ways].iter().map(move |way| of_layer(layer, way));
        ends.extend(layers.iter().flat_map(of));
    }
    ends.iter().map(|end| stem(image, label) + end).collect()
}

fn stem(image: &Path, label: &str) -> String {
    format!("{}-{label}", image.file_stem().unwrap_or_default().to_string_lossy())
}

fn of_layer(layer: usize, way: &str) -> String {
    format!("-layer{layer:02}-{way}.png")
}

/// The names of what is written of a receptive field: arrays and a picture.
pub(super) fn erf_files(label: &str) -> [String; 2] {
    [format!("erf-{label}.npz"), format!("erf-{label}.png")]
}

impl Page {
    pub(super) fn new(folder: &Path, images: &[PathBuf]) -> Self {
        let images = images.iter().map(|path| path.display().to_string()).collect();
        Self { folder: folder.to_owned(), images, galleries: BTreeMap::new() }
    }

    /// Writes what the model `label` of `method` makes of an image, and puts it on the page.
    pub(super) fn add(
        &mut self,
        asked: &Explain,
        (number, image): (usize, &Path),
        [label, method]: [&str; 2],
        looked: &Looked,
    ) -> Result<(), Error> {
        let stem = stem(image, label);
        let arrays = arrays(looked);
        write_arrays(&self.folder.join(format!("{stem}.npz")), &arrays)?;
        let (class, name) = &looked.class;
        let said = [method.to_owned(), format!("{name} ({class}), logit {:.2}", looked.score)];
        let seen = outlined(enlarged(&looked.view.pixels), looked);
        let note = "The image as the model sees it, and what it is asked about.";
        let title = "What is looked at".to_owned();
        self.put((number, 0), &title, note, (label, &said), &seen)?;
        let rollout = looked.rollout.as_ref().map(|rollout| looked.grid.patches(rollout));
        let layers: Vec<(usize, Vec<Vec<f64>>)> = looked
            .attention
            .iter()
            .map(|(layer, ways)| {
                (*layer, ways.iter().map(|way| looked.grid.patches(way)).collect())
            })
            .collect();
        let mut drawings = Vec::new();
        drawings.extend(looked.cam.as_ref().map(|values| Drawing {
            kind: 1,
            title: "Grad-CAM of the class".to_owned(),
            note: "On the tokens before the last block that is read.",
            end: "-cam.png".to_owned(),
            values,
            on_page: true,
        }));
        drawings.extend(rollout.as_ref().map(|values| Drawing {
            kind: 2,
            title: "Roll-out over all layers".to_owned(),
            note: "Attention layer by layer, half of it along the residual stream.",
            end: "-rollout.png".to_owned(),
            values,
            on_page: true,
        }));
        for (place, (layer, ways)) in layers.iter().enumerate() {
            for (way, values) in ways.iter().enumerate() {
                drawings.push(Drawing {
                    kind: 3 + 2 * layer + way,
                    title: format!("Hidden attention of layer {layer}, {}", WAYS[way]),
                    note: "The mean of |α| over the channels, of the rows that are read.",
                    end: of_layer(*layer, WAYS[way]),
                    values,
                    on_page: !asked.layers.is_empty() || place + 1 == layers.len(),
                });
            }
        }
        for drawing in &drawings {
            let Drawing { kind, title, note, end, values, on_page } = drawing;
            let drawn = outlined(drawn(looked, values), looked);
            self.write_picture(&format!("{stem}{end}"), &drawn)?;
            if *on_page {
                self.put((number, *kind), title, note, (label, &said), &drawn)?;
            }
        }
        Ok(())
    }

    /// Writes a receptive field of `count` images, and puts it on the page.
    pub(super) fn add_erf(
        &mut self,
        [label, method]: [&str; 2],
        count: usize,
        field: &[f64],
        config: &VimConfig,
    ) -> Result<(), Error> {
        let size = [config.image_size.height, config.image_size.width];
        let [arrays, picture] = erf_files(label);
        let erf = vec![("erf", size.to_vec(), Numbers::Floats(field.to_vec()))];
        write_arrays(&self.folder.join(arrays), &erf)?;
        // Its tail is what is looked for: a line of the middle would leave the rest dark.
        let roots: Vec<f64> = field.iter().map(|value| value.sqrt()).collect();
        let labels = labels(&roots);
        let drawn = enlarged(&coloured(&labels, size, &heat()));
        self.write_picture(&picture, &drawn)?;
        let said = [method.to_owned(), format!("{count} images")];
        let note = "The gradient of the middle patch's token by each pixel, its square root drawn.";
        let key = (self.images.len(), 0);
        self.put(key, "Effective receptive field", note, (label, &said), &drawn)
    }

    fn write_picture(&self, name: &str, pixels: &Pixels) -> Result<(), Error> {
        let path = self.folder.join(name);
        let written = encode_png(pixels).and_then(|bytes| replace(&Disk, &path, &bytes));
        written.map_err(Error::io("write", path))
    }

    fn put(
        &mut self,
        key: (usize, usize),
        title: &str,
        note: &str,
        (label, said): (&str, &[String]),
        pixels: &Pixels,
    ) -> Result<(), Error> {
        let gallery = self.galleries.entry(key).or_insert_with(|| {
            let colours = heat();
            let colour = |name: &str, at: usize| (name.to_owned(), colours[at]);
            let legend = match title {
                "What is looked at" => Vec::new(),
                _ => vec![colour("nothing", 0), colour("half", 127), colour("most", 254)],
            };
            let (title, note) = (title.to_owned(), note.to_owned());
            Gallery { title, note, legend, pictures: Vec::new() }
        });
        gallery.pictures.push((label.to_owned(), thumbnail(pixels, SIDE)?, said.to_vec()));
        Ok(())
    }

    /// Writes the page.
    pub(super) fn write(&self, file: &Path) -> Result<(), Error> {
        let mut body = "<header><p class=\"kicker\">What models look at</p><h1>Maps</h1><p class=\
                        \"lead\">Where a model's numbers come from, not why they are what they are: \
                        docs/explain.md</p></header>"
            .to_owned();
        let mut before = None;
        for (&(image, _), gallery) in &self.galleries {
            if let (true, Some(name)) = (before != Some(image), self.images.get(image)) {
                body += &format!("<h2>{}</h2>", escape(name));
            }
            before = Some(image);
            body += &gallery.section();
        }
        let page = document("What models look at", &body);
        replace(&Disk, file, page.as_bytes()).map_err(Error::io("write", file))
    }
}

/// The arrays of an image.
fn arrays(looked: &Looked) -> Vec<(&'static str, Vec<usize>, Numbers)> {
    let Looked { class, score, read, attention, rollout, cam, grid, .. } = looked;
    let tokens = read.len();
    let integers = |numbers: &[usize]| {
        Numbers::Integers(numbers.iter().map(|&number| number as i64).collect())
    };
    let mut arrays = vec![
        ("class", vec![], integers(&[class.0])),
        ("logit", vec![], Numbers::Floats(vec![*score])),
        ("grid", vec![2], integers(&grid.size)),
        ("class_tokens", vec![grid.class.len()], integers(&grid.class)),
        ("read", vec![tokens], Numbers::Floats(read.clone())),
    ];
    if let Some((_, first)) = attention.first() {
        let (layers, ways) = (attention.len(), first.len());
        let numbers: Vec<usize> = attention.iter().map(|(layer, _)| *layer).collect();
        let values = attention.iter().flat_map(|(_, ways)| ways.iter().flatten().copied());
        arrays.push(("layers", vec![layers], integers(&numbers)));
        let values = Numbers::Floats(values.collect());
        arrays.push(("attention", vec![layers, ways, tokens], values));
    }
    let floats = |numbers: &Vec<f64>| Numbers::Floats(numbers.clone());
    arrays.extend(rollout.as_ref().map(|rollout| ("rollout", vec![tokens], floats(rollout))));
    arrays.extend(cam.as_ref().map(|cam| ("cam", grid.size.to_vec(), floats(cam))));
    arrays
}

/// `values` as labels of colours, the largest the brightest.
fn labels(values: &[f64]) -> Vec<u8> {
    let most = values.iter().copied().fold(0.0, f64::max);
    let label = |value: &f64| if most > 0.0 { (value / most * MOST).round() as u8 } else { 0 };
    values.iter().map(label).collect()
}

/// What the model sees, through `values` of patches: a block is a patch, nothing is smoothed.
fn drawn(looked: &Looked, values: &[f64]) -> Pixels {
    let (pixels, grid) = (&looked.view.pixels, &looked.grid);
    let of_patches = labels(values);
    let covered = |at: usize, axis: usize| at < grid.covered(axis);
    let label = |at: usize| {
        let (row, column) = (at / pixels.width, at % pixels.width);
        if !(covered(row, 0) && covered(column, 1)) {
            return UNCOVERED;
        }
        let [row, column] =
            [(row, 0), (column, 1)].map(|(at, axis)| grid.nearest(at as f64 + 0.5, axis));
        of_patches[row * grid.size[1] + column]
    };
    let labels: Vec<u8> = (0..pixels.height * pixels.width).map(label).collect();
    enlarged(&overlay(&grey(pixels), &labels, &heat()))
}

/// Without colours, which the heat's would mix with.
fn grey(pixels: &Pixels) -> Pixels {
    let mut grey = pixels.clone();
    for pixel in grey.data.as_chunks_mut::<3>().0 {
        let [red, green, blue] = pixel.map(u32::from);
        // ITU-R BT.601, as Pillow has it.
        *pixel = [((299 * red + 587 * green + 114 * blue) / 1000) as u8; 3];
    }
    grey
}

/// An image that is shown larger where it is small.
fn enlarged(pixels: &Pixels) -> Pixels {
    pixels.enlarged((SIDE / pixels.height.max(pixels.width).max(1)).max(1))
}

/// A picture of the view, with a white line around what is explained.
fn outlined(mut drawn: Pixels, looked: &Looked) -> Pixels {
    let Some(edges) = looked.place else { return drawn };
    let factor = drawn.width as f64 / looked.view.pixels.width as f64;
    let side = |at: f64, most: usize| ((at * factor) as usize).min(most - 1);
    let [x0, y0, x1, y1] = edges;
    let (left, right) = (side(x0, drawn.width), side(x1, drawn.width));
    let (top, bottom) = (side(y0, drawn.height), side(y1, drawn.height));
    // A pixel has a square around it.
    let wide = if left == right && top == bottom { 3 } else { 0 };
    let (left, top) = (left.saturating_sub(wide), top.saturating_sub(wide));
    let right = (right + wide).min(drawn.width - 1);
    let bottom = (bottom + wide).min(drawn.height - 1);
    for y in top..=bottom {
        for x in left..=right {
            if y == top || y == bottom || x == left || x == right {
                let at = 3 * (y * drawn.width + x);
                drawn.data[at..at + 3].fill(255);
            }
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::super::look::Grid;
    use super::*;

    #[test]
    fn the_largest_number_is_the_brightest_and_none_is_dark() {
        assert_eq!(labels(&[0.0, 1.0, 2.0]), [0, 127, 254]);
        assert_eq!(labels(&[0.0; 2]), [0, 0]);
    }

    #[test]
    fn a_pixel_has_the_patch_with_the_nearest_middle() {
        let grid = Grid { size: [3, 3], patch: 4, stride: 2, class: vec![4] };
        let rows: Vec<usize> = (0..8).map(|at| grid.nearest(at as f64 + 0.5, 0)).collect();
        assert_eq!((rows, grid.covered(0)), (vec![0, 0, 0, 1, 1, 2, 2, 2], 8));
        assert_eq!(grid.patches(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]), [0, 1, 2, 3, 5, 6, 7, 8, 9]);
    }
}
