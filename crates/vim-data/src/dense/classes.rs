//! Lists of the classes of label maps, and their colours in pictures.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::path::Path;

use super::label_map::IGNORED;
use crate::error::{DataError, SourceError};
use crate::input::{InputKind, read_text};

/// ADE20K's 150 classes in the order of their numbers, and the colours that they are shown in.
///
/// # Source
/// `ADE20KDataset` of mmsegmentation 0.29.1: `CLASSES` and `PALETTE`.
const ADE20K: &str = include_str!("../../classes/ade20k.txt");

/// COCO's 80 classes in the order of their numbers, and the colours that they are shown in.
///
/// # Source
/// `COCO_CATEGORIES` of detectron2, the things alone.
const COCO: &str = include_str!("../../classes/coco.txt");

/// PASCAL VOC's 21 classes in the order of their numbers, and their colours in its palette.
///
/// # Source
/// `VOClabelcolormap.m` of its development kit; the same as `VOCDataset` of mmsegmentation 0.29.1.
const VOC: &str = include_str!("../../classes/voc.txt");

/// The colour of VOC's borders, which are ignored, and of what its palette has at 255.
const VOID: [u8; 3] = [224, 224, 192];

/// Most classes: a label is a byte, and 255 is ignored.
const MOST: usize = 255;

/// Classes by label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassList {
    /// Name of each class.
    pub names: Vec<String>,
    /// Colour of each class, red, green and blue.
    pub colours: Vec<[u8; 3]>,
    /// Whether the list gives each class a colour of its own.
    is_coloured: bool,
}

impl ClassList {
    /// ADE20K's.
    pub fn ade20k() -> Self {
        Self::parse(ADE20K).expect("invariant: a test reads the list")
    }

    /// COCO's.
    pub fn coco() -> Self {
        Self::parse(COCO).expect("invariant: a test reads the list")
    }

    /// PASCAL VOC's.
    pub fn voc() -> Self {
        Self::parse(VOC).expect("invariant: a test reads the list")
    }

    /// Classes of these names, in colours far from each other; `background` is black.
    pub fn of_names(names: Vec<String>) -> Self {
        let colours = names.iter().enumerate().map(|(number, name)| colour_of(number, name));
        Self { colours: colours.collect(), names, is_coloured: false }
    }

    /// Reads a list: a class a line, and behind a tab its colour as `#rrggbb`, if it has one; or a
    /// class a line as `name:red,green,blue:parts:actions`, as CVAT writes `labelmap.txt`.
    ///
    /// # Errors
    /// If the file cannot be read, is empty, or names a class twice or in no known form.
    pub(crate) fn read(path: &Path) -> Result<Self, DataError> {
        let text = read_text(path, InputKind::Classes).map_err(DataError::io(path))?;
        let wrong = |why| SourceError::ClassList { path: path.to_owned(), why }.into();
        Self::parse(&text).map_err(wrong)
    }

    /// The values that colours stand for in maps of colours, if the list gives each class one of
    /// its own, where `first` is the value of class 0; and VOC's colour for what is ignored.
    pub(crate) fn by_colour(&self, first: u8) -> BTreeMap<[u8; 3], u8> {
        if !self.is_coloured {
            return BTreeMap::new();
        }
        let values = usize::from(first)..=usize::from(u8::MAX);
        let of_classes = self.colours.iter().copied().zip(values.map(|value| value as u8));
        iter::once((VOID, IGNORED)).chain(of_classes).collect()
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut list = Self { names: Vec::new(), colours: Vec::new(), is_coloured: false };
        let mut given = BTreeSet::new();
        let fields = |line| str::split(line, ':').collect::<Vec<_>>();
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let is_cvats = !text.trim().is_empty() && lines.all(|line| fields(line).len() == 4);
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_end();
            if line.is_empty() || (is_cvats && line.starts_with('#')) {
                continue;
            }
            let number = at + 1;
            let (name, colour) = match (line.split_once('\t'), fields(line).as_slice()) {
                (_, [name, "", _, _]) if is_cvats => (name.trim(), None),
                (_, [name, text, _, _]) if is_cvats => {
                    let why = || format!("line {number}: expected a colour such as `120,170,0`");
                    (name.trim(), Some(parse_numbers(text).ok_or_else(why)?))
                }
                (Some((name, text)), _) => {
                    let parsed = parse_colour(text.trim());
                    let why = || format!("line {number}: expected a colour such as `#78aa00`");
                    (name.trim(), Some(parsed.ok_or_else(why)?))
                }
                (None, _) => (line.trim(), None),
            };
            given.extend(colour);
            let colour = colour.unwrap_or_else(|| colour_of(list.names.len(), name));
            if name.is_empty() || list.names.iter().any(|known| known == name) {
                return Err(format!("line {number}: `{name}` is empty or named before"));
            }
            list.names.push(name.to_owned());
            list.colours.push(colour);
        }
        list.is_coloured = given.len() == list.names.len();
        match list.names.len() {
            0 => Err("it names none; give one a line".to_owned()),
            1..=MOST => Ok(list),
            count => Err(format!("it names {count}; a label map has at most {MOST}")),
        }
    }
}

fn parse_colour(text: &str) -> Option<[u8; 3]> {
    let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6 && digits.is_ascii())?;
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    Some([byte(0)?, byte(2)?, byte(4)?])
}

/// A colour as `red,green,blue`.
fn parse_numbers(text: &str) -> Option<[u8; 3]> {
    let numbers: Option<Vec<u8>> = text.split(',').map(|one| one.trim().parse().ok()).collect();
    numbers?.try_into().ok()
}

/// The colour of a class where a list has none.
fn colour_of(number: usize, name: &str) -> [u8; 3] {
    if name == "background" { [0; 3] } else { colour(number) }
}

/// The colour of class `number`.
///
/// # Source
/// The colour map of PASCAL VOC, from its second entry on: the bits of the number, dealt to red,
/// green and blue from the highest bit down.
fn colour(number: usize) -> [u8; 3] {
    let bits = |channel: usize| {
        let triples = iter::successors(Some(number + 1), |rest| Some(rest >> 3));
        let dealt = triples.take(8).enumerate();
        dealt.fold(0, |sum, (place, rest)| sum | ((rest >> channel & 1) << (7 - place)) as u8)
    };
    [bits(0), bits(1), bits(2)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ade20k_has_its_150_classes() {
        let ClassList { names, colours, .. } = ClassList::ade20k();
        assert_eq!((names.len(), colours.len()), (150, 150));
        assert_eq!((names[0].as_str(), colours[0]), ("wall", [120, 120, 120]));
        assert_eq!((names[149].as_str(), colours[149]), ("flag", [92, 0, 255]));
    }

    #[test]
    fn coco_has_its_80_classes() {
        let ClassList { names, colours, .. } = ClassList::coco();
        assert_eq!((names.len(), colours.len()), (80, 80));
        assert_eq!((names[0].as_str(), colours[0]), ("person", [220, 20, 60]));
        assert_eq!(names[79], "toothbrush");
    }

    #[test]
    fn voc_has_its_palette() {
        let ClassList { names, colours, .. } = ClassList::voc();
        assert_eq!((names.len(), names[20].as_str()), (21, "tvmonitor"));
        assert_eq!(colours[0], [0; 3]);
        (1..21).for_each(|class| assert_eq!(colours[class], colour(class - 1), "{class}"));
    }

    #[test]
    fn a_label_map_of_cvat_is_a_list_with_colours() {
        let text = "# label:color_rgb:parts:actions\nbackground:0,0,0::\nla route:128, 0,7::\n";
        let list = ClassList::parse(text).unwrap();
        assert_eq!(list.names, ["background", "la route"]);
        let values = [([0, 0, 0], 0), ([128, 0, 7], 1), ([224, 224, 192], IGNORED)];
        assert_eq!(list.by_colour(0), BTreeMap::from(values));
        assert_eq!(list.by_colour(1)[&[128, 0, 7]], 2);
        assert!(ClassList::parse("a:1,2:x:y\n").unwrap_err().contains("line 1"));
        // Without a colour for each class of its own, maps cannot have colours.
        for text in ["a:::\nb:1,2,3::\n", "a:1,2,3::\nb:1,2,3::\n", "a\t#010203\nb\n"] {
            assert!(ClassList::parse(text).unwrap().by_colour(0).is_empty(), "{text}");
        }
    }

    #[test]
    fn colours_are_optional_and_differ() {
        let list = ClassList::parse("sky\t#0a0B0c\n\ngrass\n").unwrap();
        assert_eq!(list.names, ["sky", "grass"]);
        assert_eq!(list.colours, [[10, 11, 12], [0, 128, 0]]);
        let many = ClassList::of_names((0..255).map(|name| name.to_string()).collect());
        let mut colours = many.colours.clone();
        colours.sort_unstable();
        colours.dedup();
        assert_eq!(colours.len(), 255);
        assert_eq!(many.colours[..3], [[128, 0, 0], [0, 128, 0], [128, 128, 0]]);
        let list = ClassList::of_names(["background", "disk"].map(str::to_owned).to_vec());
        assert_eq!(list.colours, [[0, 0, 0], [0, 128, 0]]);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "\u{feff}background\r\nred\r\n").unwrap();
        let list = ClassList::read(file.path()).unwrap();
        assert_eq!(
            (list.names, list.colours[0]),
            (vec!["background".into(), "red".into()], [0; 3])
        );
        std::fs::write(file.path(), b"background\nr\xe9d\n").unwrap();
        let error = ClassList::read(file.path()).unwrap_err();
        assert!(error.to_string().contains("it is not UTF-8 from byte 12 on") && !error.is_io());
    }

    #[test]
    fn a_list_that_is_none_says_why() {
        for (text, why) in [
            ("", "none"),
            ("a\na\n", "line 2"),
            ("a\tred\n", "line 1: expected a colour"),
            ("\t#000000\n", "line 1"),
        ] {
            assert!(ClassList::parse(text).unwrap_err().contains(why), "{text:?}");
        }
        let many: Vec<String> = (0..256).map(|name| name.to_string()).collect();
        assert!(ClassList::parse(&many.join("\n")).unwrap_err().contains("at most 255"));
    }
}
