//! From the text of a file of annotations or detections to what is used of it.
//!
//! Other keys are skipped whatever their value is, and numbers may be written as Python's programs
//! write them: as text, as `3.0`, as `NaN`. An error names the key and the entry.

use hotcoco::{Annotation, Category, Dataset, Image};
use memchr::memmem::find;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, SeqAccess};
use serde::{Deserialize, de};

use super::scalars::{Flag, NON_FINITE, Number, Text, Whole};
use super::segmentation::{Polygon, Shape};
use crate::input::without_mark;

/// The number of an annotation that has none; no file has it as a number.
pub(super) const UNNUMBERED: u64 = u64::MAX;

/// The annotations in the text `bytes`.
pub(super) fn annotations(bytes: Vec<u8>) -> Result<Dataset, String> {
    if first(&bytes) == Some(b'[') {
        let expected = "expected an object with `images`, `categories` and `annotations`";
        return Err(format!("it is a list, as of detections; {expected}"));
    }
    let AnnotationFile { images, annotations, categories } = parse(bytes)?;
    Ok(Dataset { images, annotations, categories, ..Dataset::default() })
}

/// The detections in the text `bytes`: a list, or an object with one.
pub(super) fn detections(bytes: Vec<u8>) -> Result<Vec<Annotation>, String> {
    match first(&bytes) == Some(b'{') {
        true => parse(bytes).map(|DetectionFile { annotations }| annotations),
        false => parse(bytes).map(|DetectionList(annotations)| annotations),
    }
}

/// The first character that is no space.
fn first(bytes: &[u8]) -> Option<u8> {
    without_mark(bytes).iter().find(|byte| !byte.is_ascii_whitespace()).copied()
}

#[derive(Deserialize)]
struct AnnotationFile {
    #[serde(default, deserialize_with = "each::<ImageEntry, _, _>")]
    images: Vec<Image>,
    #[serde(deserialize_with = "each::<AnnotationEntry, _, _>")]
    annotations: Vec<Annotation>,
    #[serde(default, deserialize_with = "each::<CategoryEntry, _, _>")]
    categories: Vec<Category>,
}

#[derive(Deserialize)]
struct DetectionFile {
    #[serde(deserialize_with = "each::<AnnotationEntry, _, _>")]
    annotations: Vec<Annotation>,
}

#[derive(Deserialize)]
#[serde(transparent)]
struct DetectionList(#[serde(deserialize_with = "each::<AnnotationEntry, _, _>")] Vec<Annotation>);

#[derive(Deserialize)]
struct ImageEntry {
    id: Whole<u64>,
    #[serde(default)]
    file_name: Text,
    #[serde(default)]
    coco_url: Perhaps<Text>,
    #[serde(default)]
    neg_category_ids: Perhaps<Vec<Whole<u64>>>,
    #[serde(default)]
    not_exhaustive_category_ids: Perhaps<Vec<Whole<u64>>>,
    #[serde(default)]
    height: Whole<u32>,
    #[serde(default)]
    width: Whole<u32>,
}

impl From<ImageEntry> for Image {
    fn from(entry: ImageEntry) -> Self {
        let numbers = |list: Perhaps<Vec<Whole<u64>>>| -> Vec<u64> {
            list.0.into_iter().map(|id| id.0).collect()
        };
        // LVIS names the files by their addresses alone: a folder of COCO's and a file in it.
        let of_url = |url: &str| {
            let mut slashes = url.rmatch_indices('/').map(|(at, _)| at + 1);
            let start = slashes.nth(1).unwrap_or_default();
            url[start..].to_owned()
        };
        Self {
            id: entry.id.0,
            file_name: match entry.file_name.0.is_empty() {
                true => of_url(&entry.coco_url.0.0),
                false => entry.file_name.0,
            },
            height: entry.height.0,
            width: entry.width.0,
            neg_category_ids: numbers(entry.neg_category_ids),
            not_exhaustive_category_ids: numbers(entry.not_exhaustive_category_ids),
            ..Self::default()
        }
    }
}

#[derive(Deserialize)]
struct CategoryEntry {
    id: Whole<u64>,
    #[serde(default)]
    name: Text,
    #[serde(default)]
    supercategory: Perhaps<Text>,
}

impl From<CategoryEntry> for Category {
    fn from(CategoryEntry { id, name, supercategory }: CategoryEntry) -> Self {
        let supercategory = Some(supercategory.0.0).filter(|name| !name.is_empty());
        Self { id: id.0, name: name.0, supercategory, ..Self::default() }
    }
}

#[derive(Deserialize)]
struct AnnotationEntry {
    #[serde(default)]
    id: Option<Whole<u64>>,
    image_id: Whole<u64>,
    category_id: Whole<u64>,
    #[serde(default)]
    bbox: Sides,
    #[serde(default)]
    area: Option<Number>,
    #[serde(default)]
    segmentation: Shape,
    #[serde(default)]
    iscrowd: Flag,
    #[serde(default)]
    score: Option<Number>,
}

impl From<AnnotationEntry> for Annotation {
    fn from(entry: AnnotationEntry) -> Self {
        let AnnotationEntry { id, image_id, category_id, bbox, area, .. } = entry;
        Self {
            id: id.map_or(UNNUMBERED, |id| id.0),
            image_id: image_id.0,
            category_id: category_id.0,
            bbox: bbox.0,
            area: area.map(|area| area.0),
            segmentation: entry.segmentation.0,
            iscrowd: entry.iscrowd.0,
            score: entry.score.map(|score| score.0),
            ..Self::default()
        }
    }
}

/// What few files have; where it is of another form it is as if left out.
#[derive(Default)]
struct Perhaps<T>(T);

impl<'de, T: DeserializeOwned + Default> Deserialize<'de> for Perhaps<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Ok(Self(serde_json::from_value(value).unwrap_or_default()))
    }
}

/// A box; an empty list is none. What is no box becomes one of NaN, so that it costs its object and
/// not the file.
#[derive(Default)]
struct Sides(Option<[f64; 4]>);

impl<'de> Deserialize<'de> for Sides {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Polygon(numbers) = Polygon::deserialize(deserializer)?;
        let sides = || <[f64; 4]>::try_from(&numbers[..]).unwrap_or([f64::NAN; 4]);
        Ok(Self((!numbers.is_empty()).then(sides)))
    }
}

/// A list of entries, each of which becomes what is kept of it before the next one is read.
fn each<'de, E, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    E: Deserialize<'de> + Into<T>,
    D: Deserializer<'de>,
{
    struct List<E, T>(std::marker::PhantomData<(E, T)>);

    impl<'de, E: Deserialize<'de> + Into<T>, T> de::Visitor<'de> for List<E, T> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut kept = Vec::new();
            while let Some(entry) = list.next_element::<E>()? {
                kept.push(entry.into());
            }
            Ok(kept)
        }

        /// An empty object stands for an empty list, as one of PHP's does.
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<T>, A::Error> {
            match map.next_entry::<IgnoredAny, IgnoredAny>()? {
                None => Ok(Vec::new()),
                Some(_) => Err(de::Error::invalid_type(de::Unexpected::Map, &self)),
            }
        }
    }

    deserializer.deserialize_any(List::<E, T>(std::marker::PhantomData))
}

/// What `bytes` hold. They are read a second time to say where an error is.
fn parse<T: DeserializeOwned>(mut bytes: Vec<u8>) -> Result<T, String> {
    quote_non_finite(&mut bytes);
    let text = without_mark(&bytes);
    serde_json::from_slice(text).map_err(|plain| {
        let mut reader = serde_json::Deserializer::from_slice(text);
        let named = serde_path_to_error::deserialize::<_, T>(&mut reader);
        named.err().map_or_else(
            || described(&plain, None),
            |error| described(error.inner(), Some(&error.path().to_string())),
        )
    })
}

/// What is wrong and where: the key, and of broken JSON the place in the text.
fn described(error: &serde_json::Error, path: Option<&str>) -> String {
    let (text, line, column) = (error.to_string(), error.line(), error.column());
    let place = format!(" at line {line} column {column}");
    let what = text.strip_suffix(&place).unwrap_or(&text);
    let place = match (error.is_data(), line) {
        (true, _) => String::new(),
        (false, 1) => format!(" at byte {column}"),
        (false, _) => place,
    };
    match path {
        None | Some("." | "") => format!("{what}{place}"),
        Some(path) => format!("`{path}`: {what}{place}"),
    }
}

/// Makes texts of the tokens `NaN`, `Infinity` and `-Infinity`, which Python writes and JSON does
/// not have: of the same length, with a mark that [`Number`] knows.
fn quote_non_finite(bytes: &mut [u8]) {
    const TOKENS: [&[u8]; 3] = [b"NaN", b"-Infinity", b"Infinity"];
    if find(bytes, TOKENS[0]).is_none() && find(bytes, TOKENS[2]).is_none() {
        return;
    }
    let (mut at, mut is_text) = (0, false);
    while at < bytes.len() {
        let rest = &mut bytes[at..];
        at += match rest[0] {
            b'"' => {
                is_text = !is_text;
                1
            }
            // What is escaped ends no text.
            b'\\' if is_text => 2,
            b'N' | b'I' | b'-' if !is_text => {
                let token = TOKENS.into_iter().find(|token| rest.starts_with(token));
                if let Some(token) = token {
                    let quoted = &mut rest[..token.len()];
                    let sign = quoted[0];
                    quoted.fill(b' ');
                    quoted[0] = b'"';
                    quoted[1] = NON_FINITE as u8;
                    if token.len() > TOKENS[0].len() {
                        quoted[2] = if sign == b'-' { b'-' } else { b'+' };
                    }
                    quoted[token.len() - 1] = b'"';
                }
                token.map_or(1, <[u8]>::len)
            }
            _ => 1,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coco::fault::{box_fault, mask_fault};

    const REST: &str = r#""categories": [{"id": 1, "name": "a"}]"#;

    fn read(text: &str) -> Result<Dataset, String> {
        annotations(text.as_bytes().to_vec())
    }

    fn one(annotation: &str) -> Result<Annotation, String> {
        let image = r#""images": [{"id": 1, "height": 2, "width": 3}]"#;
        let read = read(&format!(r#"{{{image}, {REST}, "annotations": [{annotation}]}}"#))?;
        Ok(read.annotations[0].clone())
    }

    #[test]
    fn what_is_not_used_may_be_anything() {
        let text = format!(
            r#"{{"info": {{"year": "2020", "version": 1.0, "x": NaN}}, "licenses": null,
            "images": [{{"id": "7", "height": 2.0, "width": "3", "license": "1", "coco_url": [],
                "date_captured": -Infinity, "file_name": "NaN \" NaN.png"}}],
            "annotations": [{{"image_id": 7.0, "category_id": "1", "bbox": ["1", 2.5, 3, "4.5"],
                "area": NaN, "keypoints": "none", "attributes": {{"deep": [[[{{}}]]]}},
                "iscrowd": "1", "segmentation": [["0", 0, 1.5, "0.5", 1, 1]]}}],
            "x": [Infinity], "keypoints": {{}}, {REST}}}"#
        );
        let read = read(&format!("\u{feff}{text}")).unwrap();
        let [image] = &read.images[..] else { panic!("{:?}", read.images) };
        assert_eq!((image.id, image.height, image.width), (7, 2, 3));
        assert_eq!(image.file_name, "NaN \" NaN.png");
        let [object] = &read.annotations[..] else { panic!("{:?}", read.annotations) };
        assert_eq!((object.id, object.image_id, object.category_id), (UNNUMBERED, 7, 1));
        assert_eq!(object.bbox, Some([1.0, 2.5, 3.0, 4.5]));
        assert!(object.iscrowd && object.area.unwrap().is_nan());
        let polygons = object.segmentation.as_ref().unwrap().polygons().unwrap().into_owned();
        assert_eq!(polygons, [[0.0, 0.0, 1.5, 0.5, 1.0, 1.0]]);
    }

    #[test]
    fn what_is_no_mask_costs_no_more_than_its_object() {
        let with = |mask: &str| {
            let text = format!(r#"{{"image_id": 1, "category_id": 1, "segmentation": {mask}}}"#);
            one(&text).unwrap().segmentation
        };
        assert!(with("null").is_none());
        for (mask, numbers) in [
            ("[]", 0),
            ("[1, 2, 3]", 3),
            ("\"none\"", 1),
            ("7", 1),
            ("{}", 1),
            (r#"{"counts": [1]}"#, 1),
            (r#"{"counts": [6], "size": null}"#, 1),
            (r#"{"counts": null, "size": [2, 3]}"#, 1),
        ] {
            let polygons = with(mask).unwrap().polygons().unwrap().into_owned();
            assert_eq!(polygons.len(), numbers, "{mask}");
            assert!(polygons.iter().all(|polygon| polygon.len() < 6), "{mask}");
        }
    }

    #[test]
    fn what_is_no_number_costs_no_more_than_its_object() {
        let with = |more: &str| one(&format!(r#"{{"image_id": 1, "category_id": 1, {more}}}"#));
        for mask in ["[[1, null, 2, 2, 3, 1]]", r#"[[1, "x", 2, 2, 3, 1]]"#] {
            let object = with(&format!(r#""segmentation": {mask}"#)).unwrap();
            let fault = mask_fault(&object, [2, 3]).unwrap();
            assert!(fault.why.contains("the number NaN"), "{fault:?}");
        }
        for (sides, why) in [
            ("[1, 2, 3]", "has the box [NaN"),
            ("[1, 2, 3, 4, 5]", "has the box [NaN"),
            (r#"[1, 2, 3, "x"]"#, "has the box [1.0, 2.0, 3.0, NaN]"),
            ("[null, 2, 3, 4]", "has the box [NaN, 2.0"),
            ("null", "has no `bbox`"),
            ("[]", "has no `bbox`"),
        ] {
            let fault = box_fault(&with(&format!(r#""bbox": {sides}"#)).unwrap()).unwrap();
            assert!(fault.why.contains(why), "{sides}: {fault:?}");
        }
    }

    #[test]
    fn errors_name_the_key_and_the_entry() {
        let with = |more: &str| format!(r#"{{"image_id": 1, "category_id": 1, {more}}}"#);
        for (bad, why) in [
            (with(r#""id": -1"#), "`annotations[0].id`: "),
            (with(r#""id": NaN"#), "`annotations[0].id`: invalid value: NaN"),
            (with(r#""id": "340282366920938463463""#), "`annotations[0].id`: "),
            (with(r#""iscrowd": "perhaps""#), "`annotations[0].iscrowd`: "),
            (with(r#""segmentation": {"size": [2, 3], "counts": [-1]}"#), "counts[0]`: "),
            (r#"{"image_id": 1}"#.to_owned(), "`annotations[0]`: missing field `category_id`"),
            (with(r#""area": }"#), "`annotations[0].area`: expected value at byte"),
        ] {
            let error = one(&bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
        for text in [format!("{{{REST}}}"), r#"{"annotation": []}"#.to_owned()] {
            assert_eq!(read(&text).unwrap_err(), "missing field `annotations`", "{text}");
        }
        for text in ["{}", r#"{"predictions": [{"image_id": 1}]}"#] {
            let error = detections(text.as_bytes().to_vec()).unwrap_err();
            assert_eq!(error, "missing field `annotations`", "{text}");
        }
        // As deep as it likes, where nobody looks; what is looked at has no depth.
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(one(&with(&format!(r#""x": {deep}"#))).is_ok());
        assert!(one(&with(&format!(r#""bbox": {deep}"#))).is_err());
        assert!(one(&with(&format!(r#""segmentation": {deep}"#))).is_err());
    }
}
