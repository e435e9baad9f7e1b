//! YOLO's files: a text beside each image with a line for each object, the class's number and a box
//! or a polygon in shares of the image's width and height.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use hotcoco::{Annotation, Segmentation};
use rayon::prelude::*;

use super::layout::PartOf;
use super::yaml::{self, DataYaml};
use super::{Labelled, open_images};
use crate::coco::object;
use crate::dataset::Dataset;
use crate::datasets::config::DataConfig;
use crate::decode::Head;
use crate::dense::ClassList;
use crate::error::{DataError, Location, SourceError};
use crate::input::{InputKind, read_text};
use crate::objects::{ImageObjects, LeftOut};
use crate::storage::EnvPaths;
use crate::storage::heads::look;
use crate::storage::images::Images;

/// How far beyond 0 and 1 a coordinate may be: programs round, and cut boxes off at the last pixel.
const SLACK: f64 = 0.01;
/// Lists of the classes' names beside the images.
const NAMES: [&str; 2] = ["classes.txt", "obj.names"];

/// All that the data at `root` say of themselves.
pub(super) struct Yolo {
    root: PathBuf,
    yaml: Option<DataYaml>,
}

/// What the lines of labels are.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    /// How many classes there are.
    pub(super) classes: usize,
    /// Whether key points follow the box, which nothing reads.
    pub(super) key_points: bool,
}

impl Yolo {
    /// Those at `root`, a folder or a `data.yaml`.
    ///
    /// # Errors
    /// If there is a `data.yaml` that cannot be read.
    pub(super) fn new(root: &Path) -> Result<Self, DataError> {
        let (root, yaml) = match root.is_file() {
            true => (root.parent().unwrap_or(root), Some(root.to_owned())),
            false => {
                let names = ["data.yaml", "data.yml", "dataset.yaml"].map(|name| root.join(name));
                (root, names.into_iter().find(|path| path.is_file()))
            }
        };
        let yaml = yaml.map(|path| yaml::read(&path)).transpose()?;
        Ok(Self { root: root.to_owned(), yaml })
    }

    /// The folder of the images of a part, if it is there.
    pub(super) fn images(
        &self,
        of: PartOf,
        config: &DataConfig,
        notes: &mut Vec<String>,
    ) -> Result<Option<PathBuf>, DataError> {
        if let [Some(path), _] = of.keys(config)? {
            return Ok(Some(path.to_owned()));
        }
        let named = self.named(of);
        if let Some(path) = named.and_then(|named| self.folder(named)) {
            return Ok(Some(path));
        }
        let root = &self.root;
        let inner = of.names().iter().flat_map(|name| {
            [root.join("images").join(name), root.join(name).join("images"), root.join(name)]
        });
        let Some(named) = named else {
            let alone = [root.join("images"), root.join("obj_train_data"), root.clone()];
            let alone = alone.into_iter().filter(|_| of == PartOf::Train);
            return Ok({ inner }.chain(alone).find(|path| path.is_dir()));
        };
        // CVAT's names a text that lists the images of such a folder.
        match { inner }.find(|path| path.is_dir()).filter(|_| named.ends_with(".txt")) {
            Some(path) => {
                notes.push(format!("the images in `{}` are read, not `{named}`", path.display()));
                Ok(Some(path))
            }
            None => {
                let key = if of == PartOf::Val { "val" } else { "train" };
                let set = match of {
                    PartOf::Test => "; correct it there".to_owned(),
                    PartOf::Train | PartOf::Val => format!("; set `data.{key}_images`"),
                };
                let why = format!("`data.yaml` names `{named}`, which is no folder there{set}");
                Err(wrong(root, why))
            }
        }
    }

    /// What `data.yaml` says of the images of a part.
    fn named(&self, of: PartOf) -> Option<&str> {
        let yaml = self.yaml.as_ref()?;
        let named = match of {
            PartOf::Train => &yaml.train,
            PartOf::Val => &yaml.val,
            PartOf::Test => &yaml.test,
        };
        named.as_deref()
    }

    /// The folder that `named` means. Exported files name one that is elsewhere where they are
    /// unpacked, or one of another machine: then its last parts count. They come first where the
    /// path leads out of `root`, beside which another export may lie.
    fn folder(&self, named: &str) -> Option<PathBuf> {
        let base = self.yaml.as_ref().and_then(|yaml| yaml.path.as_deref()).unwrap_or_default();
        let bases = [self.root.join(base), self.root.clone()];
        let is_out = |path: &str| Path::new(path).components().any(|c| c == Component::ParentDir);
        let within = &bases[usize::from(is_out(base))..];
        let at = |end: &Path, bases: &[PathBuf]| {
            bases.iter().map(|base| base.join(end)).find(|path| path.is_dir())
        };
        let among = |bases| ends(named).iter().find_map(|end| at(end, bases));
        let literal = || at(Path::new(named), &bases).or_else(|| among(&bases));
        if !is_out(named) && !is_out(base) {
            return literal();
        }
        // Where one part lies below, what is not there is missing, and not to be had from beside.
        let mut parts = PartOf::ALL.iter().filter_map(|&of| self.named(of));
        let is_below =
            parts.any(|part| ends(part).first().is_some_and(|end| at(end, within).is_some()));
        among(within).or_else(|| literal().filter(|_| !is_below))
    }

    /// Whether objects have key points.
    pub(super) fn has_key_points(&self) -> bool {
        self.yaml.as_ref().is_some_and(|yaml| yaml.kpt_shape.is_some())
    }

    /// The names of the classes, and where they are from.
    pub(super) fn names(&self, config: &DataConfig) -> Result<(Vec<String>, PathBuf), DataError> {
        if let Some(path) = &config.classes {
            return Ok((ClassList::read(path)?.names, path.clone()));
        }
        if let Some(yaml) = self.yaml.as_ref().filter(|yaml| !yaml.names.is_empty()) {
            return Ok((yaml.names.clone(), yaml.file.clone()));
        }
        let folders = ["", "labels", "obj_train_data"].map(|folder| self.root.join(folder));
        let lists = folders.iter().flat_map(|folder| NAMES.map(|name| folder.join(name)));
        match { lists }.find(|path| path.is_file()) {
            Some(path) => Ok((ClassList::read(&path)?.names, path)),
            None => {
                let why = "there is no `data.yaml` with `names`, no `classes.txt` and no \
                           `obj.names`; set `data.classes` to a file with a name a line";
                Err(wrong(&self.root, why.to_owned()))
            }
        }
    }
}

/// The labels at `path` cannot be used.
pub(super) fn wrong(path: &Path, why: String) -> DataError {
    let file = Location { path: path.to_owned(), member: None };
    SourceError::Coco { file, what: "labels", why }.into()
}

/// A path without its first parts, the longest first, as far as these are names.
fn ends(path: &str) -> Vec<PathBuf> {
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_));
    let parts: Vec<Component<'_>> = Path::new(path).components().filter(is_name).collect();
    (0..parts.len()).map(|from| parts[from..].iter().collect()).collect()
}

/// Where the labels of the images in `folder` are, if not beside them: where `images` is called
/// `labels`.
fn labels_of(folder: &Path) -> Option<PathBuf> {
    let parts: Vec<Component<'_>> = folder.components().collect();
    let images = parts.iter().rposition(|part| *part == Component::Normal("images".as_ref()));
    let labels = images.map(|at| -> PathBuf {
        let labels = Component::Normal("labels".as_ref());
        parts[..at].iter().chain([&labels]).chain(&parts[at + 1..]).collect()
    });
    labels.filter(|path| path.is_dir())
}

/// The part `of` in `folder`, whose labels are `lines`, with or without `masks`; left out, as the
/// labels have them.
///
/// The headers of all images are read, as the labels are in shares of their sizes.
pub(super) fn read(
    (folder, of): (&Path, PartOf),
    lines: Lines,
    masks: Option<bool>,
    (config, env_paths): (&DataConfig, &EnvPaths),
    notes: &mut Vec<String>,
) -> Result<Labelled, DataError> {
    let given = folder;
    let folder = given.canonicalize().map_err(DataError::io(given))?;
    let labels = match of.keys(config)?[1] {
        Some(path) => path.canonicalize().map_err(DataError::io(path))?,
        // Behind a link to the images there may be none.
        None => labels_of(given).or_else(|| labels_of(&folder)).unwrap_or_else(|| folder.clone()),
    };
    let called = folder.file_name().unwrap_or_default().to_string_lossy();
    let images = open_images(&folder, &called, config, env_paths, notes)?;
    let places: Vec<usize> = (0..images.len()).collect();
    let files = files_of(&images, &folder, &labels)?;
    let (heads, more) = look(&images, &places, config.workers.count(), &|_| {})?;
    notes.extend(more);
    // What cannot be read is told as any bad image is, and has no such size.
    let size = |head: Head| config.exif().size(head.stored());
    let sizes: Vec<[usize; 2]> = heads.into_iter().map(|head| head.map_or([1, 1], size)).collect();
    let read = |(path, &size): (&PathBuf, &[usize; 2])| match read_text(path, InputKind::Classes) {
        Ok(text) => Ok(Some(lines_of(&text, lines, size))),
        // An image without objects has none.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DataError::io(path)(error)),
    };
    let all: Vec<Option<Vec<Line>>> =
        files.par_iter().zip(&sizes).map(read).collect::<Result<_, _>>()?;
    if let Some(first) = all.iter().position(Option::is_none) {
        let (without, count) = (all.iter().filter(|lines| lines.is_none()).count(), images.len());
        if without == count {
            let why = format!(
                "none of the {count} images has a file of them, the first not `{}`; set \
                 `data.{}_annotations` to their folder",
                files[0].display(),
                if of == PartOf::Train { "train" } else { "val" },
            );
            return Err(wrong(&folder, why));
        }
        notes.push(format!(
            "{without} of {count} {} images have no file of labels, the first {}: they count as \
             images without objects",
            of.noun(),
            images.location(first)
        ));
    }
    let masks = masks.unwrap_or_else(|| {
        let mut objects = all.iter().flatten().flatten().flatten();
        objects.any(|annotation| annotation.segmentation.is_some())
    });
    let numbers: HashMap<u64, u32> = (0..lines.classes as u64).zip(0..).collect();
    let (mut entries, mut id) = (Vec::with_capacity(all.len()), 0);
    for ((place, size), lines) in places.into_iter().zip(sizes).zip(all) {
        let mut of_image = ImageObjects { id: place as u64 + 1, size, ..ImageObjects::default() };
        for line in lines.into_iter().flatten() {
            id += 1;
            match line.map(|one| object(Annotation { id, ..one }, &numbers, size, masks)) {
                Ok(Ok(one)) => of_image.objects.push(one),
                Ok(Err(left_out)) => of_image.left_out.push(left_out),
                Err((kind, why)) => of_image.left_out.push(LeftOut {
                    id,
                    class: 0,
                    bbox: None,
                    area: None,
                    crowd: false,
                    kind,
                    why,
                }),
            }
        }
        entries.push((place, of_image));
    }
    let file = Location { path: labels, member: None };
    Ok(Labelled { images, entries, file, masks })
}

/// The labels of each image, which are those of no other.
fn files_of(images: &Images, folder: &Path, labels: &Path) -> Result<Vec<PathBuf>, DataError> {
    let (mut files, mut known) = (Vec::with_capacity(images.len()), HashMap::new());
    for image in (0..images.len()).map(|place| images.location(place)) {
        let inside = image.path.strip_prefix(folder).unwrap_or(&image.path);
        let file = labels.join(inside).with_extension("txt");
        files.push(file.clone());
        if let Some(other) = known.insert(file, image.clone()) {
            let why = format!("{other} and {image} have one file of them: remove or rename one");
            return Err(wrong(labels, why));
        }
    }
    Ok(files)
}

/// An object, or the kind of what is wrong with its line, and what that is.
type Line = Result<Annotation, (&'static str, String)>;

/// The objects in the text of an image of `size`, `[height, width]`.
fn lines_of(text: &str, lines: Lines, size: [usize; 2]) -> Vec<Line> {
    let numbered = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    numbered
        .map(|(number, line)| {
            let one = object_of(line, lines, size);
            one.map_err(|(kind, why)| (kind, format!("is line {number}, `{}`: {why}", line.trim())))
        })
        .collect()
}

/// The object of a line.
fn object_of(line: &str, lines: Lines, [height, width]: [usize; 2]) -> Line {
    let Lines { classes, key_points } = lines;
    let mut words: Vec<&str> = line.split_whitespace().collect();
    if key_points {
        words.truncate(5);
    }
    let numbers: Option<Vec<f64>> = words.iter().map(|word| word.parse().ok()).collect();
    let is_one = words.len() == 5 || (words.len() >= 7 && words.len() % 2 == 1);
    let Some((&class, at)) = numbers.as_deref().filter(|_| is_one).and_then(<[f64]>::split_first)
    else {
        let expected = "expected a class, and x, y, width and height, or three points or more";
        return Err(("a line that is none", expected.to_owned()));
    };
    if class.fract() != 0.0 || !(0.0..classes as f64).contains(&class) {
        let last = classes.saturating_sub(1);
        return Err(("a class that is none", format!("the classes are 0 to {last}")));
    }
    if !at.iter().all(|share| (-SLACK..=1.0 + SLACK).contains(share)) {
        let why = "its numbers are to be shares of the image's width and height, 0 to 1";
        return Err(("numbers that are no shares", why.to_owned()));
    }
    let sides = [width as f64, height as f64];
    let (points, _) = at.as_chunks::<2>();
    let within = |[x, y]: [f64; 2]| [x.clamp(0.0, 1.0) * sides[0], y.clamp(0.0, 1.0) * sides[1]];
    let (corners, polygon): ([[f64; 2]; 2], _) = if let [middle, size] = points {
        let corner = |sign: f64| [0, 1].map(|axis| middle[axis] + sign * 0.5 * size[axis]);
        ([within(corner(-1.0)), within(corner(1.0))], None)
    } else {
        let points: Vec<[f64; 2]> = points.iter().map(|&point| within(point)).collect();
        let ends = |axis: usize| {
            let along = points.iter().map(|point| point[axis]);
            [along.clone().fold(f64::INFINITY, f64::min), along.fold(0.0, f64::max)]
        };
        let ([left, right], [top, below]) = (ends(0), ends(1));
        ([[left, top], [right, below]], Some(points.into_flattened()))
    };
    let [[left, top], [right, below]] = corners;
    Ok(Annotation {
        category_id: class as u64,
        bbox: Some([left, top, right - left, below - top]),
        segmentation: polygon.map(|polygon| Segmentation::Polygon(vec![polygon])),
        ..Annotation::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: Lines = Lines { classes: 3, key_points: false };

    #[test]
    fn key_points_are_no_polygon() {
        let lines = Lines { key_points: true, ..LINES };
        let [Ok(found)] = &lines_of("1 0.5 0.25 0.5 0.5 0.4 0.3 2 0 0 0", lines, [100, 200])[..]
        else {
            panic!("no object")
        };
        assert_eq!(found.bbox, Some([50.0, 0.0, 100.0, 50.0]));
        assert!(found.segmentation.is_none());
    }

    #[test]
    fn lines_are_boxes_and_polygons_in_shares_of_the_image() {
        let text = "1 0.5 0.25 0.5 0.5\r\n\n0 0 0 1 0 1 1.004\n2.0 1 1 0.5 1\n";
        let found: Vec<Annotation> =
            lines_of(text, LINES, [100, 200]).into_iter().map(Result::unwrap).collect();
        let [one, two, three] = &found[..] else { panic!("{found:?}") };
        assert_eq!((one.category_id, one.bbox), (1, Some([50.0, 0.0, 100.0, 50.0])));
        assert!(one.segmentation.is_none());
        assert_eq!((two.category_id, two.bbox), (0, Some([0.0, 0.0, 200.0, 100.0])));
        let polygons = two.segmentation.as_ref().unwrap().polygons().unwrap().into_owned();
        assert_eq!(polygons, [[0.0, 0.0, 200.0, 0.0, 200.0, 100.0]]);
        // Cut off at the image's border.
        assert_eq!(three.bbox, Some([150.0, 50.0, 50.0, 50.0]));
    }

    #[test]
    fn a_line_that_is_wrong_says_why() {
        for (line, kind) in [
            ("0 0.5 0.5 0.1", "a line that is none"),
            ("0 0.5 0.5 0.1 0.1 0.9", "a line that is none"),
            ("0 0.1 0.1 0.2 0.2 0.3 0.3 0.4", "a line that is none"),
            ("cat 0.5 0.5 0.1 0.1", "a line that is none"),
            ("3 0.5 0.5 0.1 0.1", "a class that is none"),
            ("-1 0.5 0.5 0.1 0.1", "a class that is none"),
            ("0.5 0.5 0.5 0.1 0.1", "a class that is none"),
            ("0 50 50 10 10", "numbers that are no shares"),
            ("0 0.5 0.5 -0.1 0.1", "numbers that are no shares"),
            ("0 nan 0.5 0.1 0.1", "numbers that are no shares"),
        ] {
            let all = lines_of(&format!("\n{line}\n"), LINES, [10, 10]);
            let [Err((found, why))] = &all[..] else { panic!("{line}: {all:?}") };
            assert_eq!(*found, kind, "{line}");
            assert!(why.starts_with(&format!("is line 2, `{line}`: ")), "{why}");
        }
    }
}
