//! Images of two parts that are the same, and classes that none is left of.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use vim_data::{DataConfig, DatasetKind, ImageObjects, LabelMap, Splits};

use crate::coco_tree::{annotations, category, config, drawn, file, scenes, write_folder};
use crate::exports::part;
use crate::{pairs, trees};

#[test]
fn an_image_of_two_parts_is_refused() {
    let Splits { train, test, .. } = drawn();
    let root = tempfile::tempdir().unwrap();
    write_folder(root.path(), &part(&train, "train", "train.json", str::to_owned));
    write_folder(root.path(), &part(&test, "val", "val.json", str::to_owned));
    let same = |images: &str, annotations: &str| {
        let at = |name: &str| Some(root.path().join(name));
        DataConfig {
            val_images: at(images),
            val_annotations: at(annotations),
            ..config(root.path())
        }
    };
    let refused =
        |config: &DataConfig| vim_data::open::<ImageObjects>(config).unwrap_err().to_string();
    let why = refused(&same("train", "train.json"));
    let count = train.len();
    let said = format!("{count} of {count} validation images are training images too, ");
    assert!(why.contains(&said) && why.contains("`data.val_fraction`"), "{why}");
    // One of them, where both lists are of one folder.
    let mut content = annotations(&test, true);
    content["images"][0]["file_name"] =
        format!("train/{}", file(scenes(&train)[0].objects.id)).into();
    for image in &mut content["images"].as_array_mut().unwrap()[1..] {
        image["file_name"] = format!("val/{}", image["file_name"].as_str().unwrap()).into();
    }
    fs::write(root.path().join("mixed.json"), content.to_string()).unwrap();
    let why = refused(&same(".", "mixed.json"));
    assert!(why.contains(&format!("1 of {} validation images", test.len())), "{why}");
    // Behind links: of the folder, of one file, and of files of both parts.
    let [of_train, of_val] = ["train", "val"].map(|name| root.path().join(name));
    fs::rename(&of_val, root.path().join("own")).unwrap();
    symlink(&of_train, &of_val).unwrap();
    fs::write(root.path().join("val.json"), annotations(&train, true).to_string()).unwrap();
    assert!(refused(&config(root.path())).contains(&said));
    fs::write(root.path().join("val.json"), annotations(&test, true).to_string()).unwrap();
    fs::remove_file(&of_val).unwrap();
    fs::rename(root.path().join("own"), &of_val).unwrap();
    assert!(vim_data::open::<ImageObjects>(&config(root.path())).is_ok());
    let [ours, theirs] = [&train, &test].map(|split| file(scenes(split)[1].objects.id));
    fs::remove_file(of_val.join(&theirs)).unwrap();
    symlink(of_train.join(&ours), of_val.join(&theirs)).unwrap();
    let one = format!("1 of {} validation images are training images too, ", test.len());
    assert!(refused(&config(root.path())).contains(&one));
    fs::rename(of_train.join(&ours), root.path().join("pool.png")).unwrap();
    symlink(root.path().join("pool.png"), of_train.join(&ours)).unwrap();
    assert!(refused(&config(root.path())).contains(&one));
}

#[test]
fn so_is_one_of_pairs_and_of_class_folders() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("tree");
    pairs::write_files(&folder, &pairs::files());
    let inner = folder.join("ADEChallengeData2016/images");
    let refused = || pairs::open(&folder).unwrap_err().to_string();
    let image = inner.join("validation/ADE_val_00000003.png");
    fs::remove_file(&image).unwrap();
    symlink(inner.join("training/ADE_train_00000007.png"), &image).unwrap();
    let says = "1 of 8 validation images are training images too, ";
    assert!(refused().contains(says) && refused().contains("ADE_val_00000003"), "{}", refused());
    // Lists of the parts' images.
    let voc = root.path().join("voc");
    let maps = [[0; 8], [1; 8], [2; 8]].map(|values| pairs::labels_png([2, 4], &values));
    pairs::write_files(&voc, &crate::label_maps::voc(&maps));
    fs::write(voc.join("ImageSets/Segmentation/val.txt"), "2007_1.png\n2007_2\n").unwrap();
    let config = DataConfig { dataset: DatasetKind::Pairs, ..config(&voc) };
    let error = vim_data::open::<LabelMap>(&config).unwrap_err().to_string();
    assert!(error.contains("1 of 2 validation images are training images too, "), "{error}");
    // A class of the validation part that is one of the training part.
    let root = trees::unpacked();
    let class = |part: &str| root.path().join(part).join("n02");
    fs::remove_dir_all(class("val")).unwrap();
    symlink(class("train"), class("val")).unwrap();
    let message = trees::refusal(&trees::config(root.path()));
    assert!(message.contains("4 of 8 validation images are training images too"), "{message}");
}

/// Annotations of the 16 scenes in which only `rare` images have objects of the first class, and
/// those of the second are crowds.
fn with_rare(root: &Path, rare: &[u64]) -> Splits {
    let Splits { train, .. } = drawn();
    let mut files = part(&train, "images", "result.json", str::to_owned);
    let mut content: Value = serde_json::from_slice(&files.pop().unwrap().1).unwrap();
    for one in content["annotations"].as_array_mut().unwrap() {
        let is_first = rare.contains(&one["image_id"].as_u64().unwrap());
        let is_second = one["iscrowd"] == json!(1);
        let class = if is_second {
            1
        } else if is_first {
            0
        } else {
            2
        };
        one["category_id"] = category(class).into();
    }
    files.push(("result.json".to_owned(), content.to_string().into_bytes()));
    write_folder(root, &files);
    drawn()
}

#[test]
fn a_class_without_a_training_object_is_told() {
    let root = tempfile::tempdir().unwrap();
    let first = scenes(&drawn().train).iter().position(|scene| !scene.objects.objects[0].crowd);
    let names = with_rare(root.path(), &[first.unwrap() as u64 + 1]);
    let names = names.train.class_names();
    let mut seen = [false; 2];
    for seed in 0..12 {
        let held = DataConfig { val_fraction: 0.2, val_seed: Some(seed), ..config(root.path()) };
        let splits = vim_data::open::<ImageObjects>(&held).unwrap();
        let mut objects = scenes(&splits.train).into_iter().flat_map(|scene| scene.objects.objects);
        let has_rare = objects.any(|object| object.class == 0 && !object.crowd);
        seen[usize::from(has_rare)] = true;
        let empty = splits.train.empty_classes();
        assert_eq!(empty.contains(&names[0]), !has_rare, "{seed}");
        assert!(empty.contains(&names[1]) && !empty.contains(&names[2]), "{empty:?}");
        assert_eq!(empty.len(), 10 + usize::from(!has_rare));
    }
    assert_eq!(seen, [true; 2]);
}
