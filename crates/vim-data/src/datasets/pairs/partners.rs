//! Which label map is whose image's: by the names of their files.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::DataConfig;
use super::halves::ImageList;
use crate::classes::nfc;
use crate::dataset::Dataset;
use crate::error::{DataError, SourceError};
use crate::storage::images::Images;

/// The places of images and of their label maps among the files of their halves.
pub(super) type Places = Vec<[usize; 2]>;

/// The files of a half by their names without the suffix and the extension: the folder of each,
/// below that of the half, and its place.
struct Named<'a> {
    images: &'a Images,
    by_stem: BTreeMap<String, Vec<(String, usize)>>,
    /// Files without the suffix.
    others: Vec<usize>,
    /// Files that are passed over for another of the same name.
    twins: Vec<usize>,
}

/// The endings of files that count where several have one name: as they were before others were
/// read, so that data which have both are read as before.
const BEFORE: [&str; 5] = ["bmp", "jpeg", "jpg", "png", "webp"];

impl<'a> Named<'a> {
    /// Those of `images` whose names end in `suffix`, and not in `unlike` if that is not empty;
    /// with or without twins.
    fn new(images: &'a Images, suffix: &str, unlike: &str, twins: bool) -> Self {
        let by_stem = BTreeMap::new();
        let mut named = Self { images, by_stem, others: Vec::new(), twins: Vec::new() };
        for place in 0..images.len() {
            // Unicode's forms of a name are one name, as for classes.
            let (folder, stem) = folder_and_stem(&nfc(&images.inside(place)));
            let is_other = !unlike.is_empty() && stem.ends_with(unlike);
            match stem.strip_suffix(suffix).filter(|_| !is_other) {
                Some(stem) => {
                    named.by_stem.entry(stem.to_owned()).or_default().push((folder, place));
                }
                None => named.others.push(place),
            }
        }
        let is_of_before = |place: usize| {
            let ending = images.file_name(place).rsplit_once('.').map_or("", |(_, ending)| ending);
            BEFORE.iter().any(|known| ending.eq_ignore_ascii_case(known))
        };
        for files in named.by_stem.values_mut().filter(|files| twins && files.len() > 1) {
            let kept = files.iter().filter(|(_, place)| is_of_before(*place));
            let folders: HashSet<String> = kept.map(|(folder, _)| folder.clone()).collect();
            let passed = |(folder, place): &mut (String, usize)| {
                folders.contains(folder) && !is_of_before(*place)
            };
            named.twins.extend(files.extract_if(.., passed).map(|(_, place)| place));
        }
        named.twins.sort_unstable();
        named
    }

    /// The one file of this name, or of those the one in this folder; an error if that is not one.
    fn one(&self, folder: &str, stem: &str) -> Result<Option<usize>, DataError> {
        let all = self.by_stem.get(stem).map_or(&[][..], Vec::as_slice);
        if let [(_, only)] = all {
            return Ok(Some(*only));
        }
        let mut here = all.iter().filter(|(of, _)| of == folder);
        match (here.next(), here.next(), all.first()) {
            (Some((_, one)), None, _) => Ok(Some(*one)),
            (_, _, Some((_, first))) => {
                let file = self.images.location(*first);
                Err(SourceError::PairedTwice { file }.into())
            }
            (_, _, None) => Ok(None),
        }
    }
}

/// The folder of a path, and its file's name without the extension.
fn folder_and_stem(path: &str) -> (String, String) {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    (folder.to_owned(), stem.to_owned())
}

/// The images of a part and their label maps.
pub(super) struct Partners<'a> {
    images: Named<'a>,
    maps: Named<'a>,
    /// Whether both lie in one folder, where what is of one half is not of the other.
    is_one_folder: bool,
}

impl<'a> Partners<'a> {
    /// The files of both halves by their names.
    pub(super) fn new([images, maps]: &'a [Images; 2], config: &DataConfig) -> Self {
        let suffix = |key: &Option<String>| nfc(key.as_deref().unwrap_or_default());
        let [of_images, of_maps] = [&config.image_suffix, &config.label_suffix].map(suffix);
        let is_one_folder = images.root() == maps.root()
            && (images.root().is_dir()
                || (config.images.is_some() && config.images == config.label_maps));
        let unlike = if is_one_folder { &of_maps } else { "" };
        // Two of one name may be an image and its label map.
        let twins = !is_one_folder || of_images != of_maps;
        let images = Named::new(images, &of_images, unlike, twins);
        let maps = Named::new(maps, &of_maps, "", twins);
        Self { images, maps, is_one_folder }
    }

    /// What files are passed over, for a user to know of.
    pub(super) fn notes(&self) -> Vec<String> {
        let Self { images, maps, is_one_folder } = self;
        let halves = [(images, "image_suffix", "images"), (maps, "label_suffix", "label maps")];
        let note = |(named, key, what): (&Named<'_>, _, _)| {
            let first = named.images.location(*named.others.first()?);
            let (count, all) = (named.others.len(), named.images.len());
            Some(format!("no {what} by data.{key}: {count} of {all} files, the first {first}"))
        };
        halves.into_iter().filter(|_| !is_one_folder).filter_map(note).collect()
    }

    /// What files are passed over for others of the same name, likewise.
    pub(super) fn twins(&self) -> Vec<String> {
        let halves = [(&self.images, "images"), (&self.maps, "label maps")];
        let note = |(named, what): (&Named<'_>, _)| {
            let first = named.images.location(*named.twins.first()?);
            let (count, endings) = (named.twins.len(), BEFORE.join(", "));
            Some(format!(
                "{count} {what} are not read, the first {first}: others have the same name but for \
                 the ending, which is one of {endings}"
            ))
        };
        halves.into_iter().filter_map(note).collect()
    }

    /// The places of all images and of their label maps, in the order of the images.
    pub(super) fn all(&self) -> Result<Places, DataError> {
        let mut pairs = Vec::new();
        for (stem, files) in &self.images.by_stem {
            for (folder, place) in files {
                // Of images, too, one alone may have the name.
                self.images.one(folder, stem)?;
                pairs.push([*place, self.map_of(folder, stem, *place)?]);
            }
        }
        let mut used = vec![false; self.maps.images.len()];
        pairs.iter().for_each(|&[_, map]| used[map] = true);
        let all_maps = self.maps.by_stem.values().flatten();
        if let Some((_, alone)) = all_maps.filter(|&&(_, map)| !used[map]).min_by_key(|one| one.1) {
            return Err(self.alone(*alone));
        }
        self.in_order(pairs)
    }

    /// As [`Self::all`], of the images of a list.
    pub(super) fn listed(&self, list: &ImageList) -> Result<Places, DataError> {
        let mut by_path = HashMap::new();
        for (stem, files) in &self.images.by_stem {
            for (folder, place) in files {
                let path =
                    if folder.is_empty() { stem.clone() } else { format!("{folder}/{stem}") };
                by_path.insert(path, (folder, stem, *place));
            }
        }
        let mut pairs = Vec::new();
        for name in &list.names {
            let path = nfc(name);
            let without = || by_path.get(path.rsplit_once('.').map_or(&*path, |(stem, _)| stem));
            let Some(&(folder, stem, place)) = by_path.get(&path).or_else(without) else {
                let root = self.images.images.root().display();
                let why = format!("it names `{name}`, and no image in `{root}` has that name");
                return Err(SourceError::ImageList { file: list.file.clone(), why }.into());
            };
            self.images.one(folder, stem)?;
            pairs.push([place, self.map_of(folder, stem, place)?]);
        }
        self.in_order(pairs)
    }

    /// The pairs in the order of the images, each of which has a label map of its own.
    fn in_order(&self, mut pairs: Places) -> Result<Places, DataError> {
        pairs.sort_unstable();
        pairs.dedup();
        let mut used = vec![false; self.maps.images.len()];
        for &[image, map] in &pairs {
            if std::mem::replace(&mut used[map], true) {
                let file = self.images.images.location(image);
                return Err(SourceError::PairedTwice { file }.into());
            }
        }
        Ok(pairs)
    }

    /// The label map of an image.
    fn map_of(&self, folder: &str, stem: &str, place: usize) -> Result<usize, DataError> {
        let found = self.maps.one(folder, stem)?;
        found.ok_or_else(|| {
            let (file, path) = (self.images.images.location(place), self.maps.images.root());
            let (missing, path) = ("label map", path.to_owned());
            SourceError::Unpaired { file, missing, path, advice: self.advice(stem) }.into()
        })
    }

    /// A label map without an image.
    fn alone(&self, place: usize) -> DataError {
        let (file, path) = (self.maps.images.location(place), self.images.images.root());
        let (missing, path, advice) = ("image", path.to_owned(), AGAIN.to_owned());
        SourceError::Unpaired { file, missing, path, advice }.into()
    }

    /// What to do about an image without a label map: if label maps of all images are called as
    /// they are and something more, that is their suffix.
    fn advice(&self, stem: &str) -> String {
        let (images, maps) = (&self.images.by_stem, &self.maps.by_stem);
        let longer = maps.range(stem.to_owned()..).map(|(other, _)| other);
        let mut suffixes = longer.map_while(|other| other.strip_prefix(stem));
        let fits = |suffix: &&str| {
            images.keys().all(|image| maps.contains_key(&format!("{image}{suffix}")))
        };
        match suffixes.find(fits) {
            Some(suffix) => format!("set `data.label_suffix = \"{suffix}\"`, which all have more"),
            None => AGAIN.to_owned(),
        }
    }
}

/// What to do about a file that is alone.
const AGAIN: &str = "unpack or download the data again, or remove the file";
