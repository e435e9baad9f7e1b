#!/usr/bin/env python3
"""Write classes of drawings, or scenes composed of them, from the files that Debian's packages have.

`classes` picks 15 classes of things, 1 051 drawings of many authors, from openclipart-png. Each is cut to its figure and
padded to a square on white: OUT/train/<class>/<key>.png and OUT/test/…, with --val also OUT/val/…; the key is a hash of what
is drawn, and OUT/list.csv has the source of each. Copies, near copies and an author's series are one group, and a group is in
one part: of five folds, level in each class, --fold is the test, and with --val the next one is for choosing settings.

`scenes` composes the figures on photographs: one to four on a crop of one, none hidden by more than 40 %. **No camera saw
them**: light and size do not fit, and nine tenths of the pixels are background. Class, box and mask are those of what is
visible, by the figure's alpha. Figures and photographs of the test are none of training's. OUT serves as `data.dataset =
"pairs"` (16 classes with the background) and as `"coco"` (15); OUT/SOURCES.txt says whose photographs are in it.

What is drawn depends on sources, options and Pillow's version alone: two runs write the same bytes. Nothing is downloaded.

Sources, as `apt-get install openclipart-png lomiri-wallpapers-16.04` puts them:
  the drawings: public domain ("Public Domain Dedication" of their authors; /usr/share/doc/openclipart-png/copyright)
  the photographs: CC BY 4.0, CC BY-SA 4.0, by file (…/lomiri-wallpapers-16.04/copyright). Scenes that show those of CC BY-SA
  are under it too: pass this script on rather than its pictures.
--photos names other folders. Of the pictures of lomiri-wallpapers-16.04, plasma-workspace-wallpapers and mate-backgrounds
those are taken that show none of the classes; of a folder without any of these, all.

Needs Python 3.9, NumPy and Pillow (tried with 2.4 and 13.0): python3 -m pip install numpy pillow. A minute.

Examples:
  make_openclipart.py classes --out data/openclipart
  make_openclipart.py scenes --out data/openclipart-scenes
  make_openclipart.py scenes ~/oc/usr/share/openclipart/png --photos ~/Pictures --train 10000 --out data/scenes
"""

import argparse
import collections
import csv
import hashlib
import json
import math
import os
import pathlib
import random
import re
import sys

DRAWINGS = pathlib.Path("/usr/share/openclipart/png")
PHOTOGRAPHS = pathlib.Path("/usr/share/backgrounds")
# Topics of each class; with a "." the topic's own drawings, without those of its subtopics. Left out are flags, cards, icons,
# signs and stars, which are no things, and smilies and stickmen, which are one author's series.
CLASSES = {
    "bird": ["animals/birds"],
    "bug": ["animals/bugs"],
    "building": ["buildings/.", "buildings/homes"],
    "clothing": ["people/clothing"],
    "dessert": ["food/desserts"],
    "device": ["computer/hardware", "electronics"],
    "drink": ["food/beverages"],
    "fruit": ["food/fruit"],
    "mammal": ["animals/mammals"],
    "music": ["recreation/music"],
    "person": ["people/."],
    "plant": ["plants"],
    "sport": ["recreation/sports"],
    "tool": ["tools/."],
    "vehicle": ["transportation/.", "transportation/vehicles"],
}
# Files that show another thing than their topic says: signs by their names, the others looked at one by one.
UNFIT = re.compile(
    r"sign|flag|text|label|stop|arrow|logo|icon|map|symbol|transport_|diagram|set_of|collection|^(?:no_entry|crossroads|"
    r"old_folks|bus_lane|crosswind|cycle_lane|grounded|buses_and_bikes|drawbridge|no_cycles|horse|bus_opposite|cattle|"
    r"cycle_route|curve_ahead|lorry_length|pass_either|end_daul|Motorway_on|Evel_Knievel|kaboom|airplane|road_runner|"
    r"little_tan_suitcase.*|anchor.*|lighthouse_01|stylized_yoga_person.*|safety_pin.*|treble_clef.*|spaclu.*|"
    r"turkey_on_platter.*|flower-pot_01)\.png$",
    re.IGNORECASE,
)
# Photographs that show none of the classes (leaves and grass but as a texture), looked at one by one. A name is a file's or,
# where a package has a picture in several sizes, its folder's.
KNOWN = set(
    # lomiri-wallpapers-16.04
    "Bridge_by_Sander_Klootwijk aitzgorri_by_Aitzol_Berasategi analogpattern_by_Peter_Nerlich life_by_Aitzol_Berasategi "
    "picosdeeuropa_by_Aitzol_Berasategi sunset_by_Aitzol_Berasategi "
    # plasma-workspace-wallpapers
    "BytheWater ColdRipple DarkestHour EveningGlow FallenLeaf Grey Kite OneStandsOut Path summer_1am "
    # mate-backgrounds
    "Aqua Blinds Dune GreenMeadow RainDrops Storm Wood".split()
)
FOLDS = 5
FIGURE_SIDE, LEAST_SIDE, LONGEST = 256, 16, 8
# Pixels that a header may promise; the package has drawings of 623 million, which take 5 GB to decode.
DRAWING_PIXELS, PHOTOGRAPH_PIXELS = 10_000_000, 64_000_000
# Photographs that are taken, the shorter side that they are shrunk to, and the side of a crop: all of them are in memory.
PHOTOGRAPHS_MOST, PHOTOGRAPH_SIDE, CROP = 60, 2048, (512, 1024)
OPAQUE = 127

try:
    import numpy as np
    from PIL import Image
except ModuleNotFoundError as error:
    sys.exit(f"error: {error.name} is missing: python3 -m pip install numpy pillow")
# Headers are looked at here, before anything is decoded.
Image.MAX_IMAGE_PIXELS = None


class Bad(Exception):
    """What is wrong, where, and what to do, in one line."""


class Unfit(Exception):
    """Why a picture is left out."""


def opened(path, most):
    """A picture whose header was read and which is not larger than `most`."""
    try:
        image = Image.open(path)
    except (OSError, ValueError, SyntaxError) as error:
        raise Unfit(f"unreadable ({error})") from None
    if image.width * image.height > most:
        raise Unfit(f"{image.width} x {image.height} pixels, more than {most // 1_000_000} million")
    return image


def decoded(image, mode):
    """Its pixels in `mode`."""
    try:
        return image.convert(mode)
    except (OSError, ValueError, SyntaxError) as error:
        raise Unfit(f"unreadable ({error})") from None


# Drawings.


def figure(path):
    """What a drawing shows: cut to where it is not transparent, at most FIGURE_SIDE long, as RGBA."""
    image = decoded(opened(path, DRAWING_PIXELS), "RGBA")
    box = image.getchannel("A").point(lambda alpha: 255 * (alpha > 25)).getbbox()
    if box is None:
        raise Unfit("blank")
    image = image.crop(box)
    if min(image.size) < LEAST_SIDE or max(image.size) > LONGEST * min(image.size):
        raise Unfit(f"under {LEAST_SIDE} px, or longer than {LONGEST} : 1")
    longest = max(image.size)
    return resized(image, FIGURE_SIDE / longest, Image.BOX) if longest > FIGURE_SIDE else image


def resized(image, factor, how, least=1):
    """An RGBA picture in another size. What is under alpha 0 has no colour: it is premultiplied for that."""
    size = [max(least, round(side * factor)) for side in image.size]
    return image.convert("RGBa").resize(size, how).convert("RGBA")


def on_white(image, size=None, place=(0, 0)):
    """An RGBA picture on a white ground."""
    ground = Image.new("RGBA", size or image.size, (255,) * 4)
    ground.alpha_composite(image, place)
    return ground


def square(image, size, margin=0.06):
    """A figure in the middle of a white square, so that neither its place nor its shape tells the class."""
    side = round(max(image.size) * (1 + 2 * margin))
    ground = on_white(image, (side, side), ((side - image.width) // 2, (side - image.height) // 2))
    return ground.convert("RGB").resize((size, size), Image.BOX if side > size else Image.BICUBIC)


def hashes(image):
    """64 bits of greys above their mean, 64 of greys above their left neighbour, and 256 greys, of the figure stretched to a
    square: thin lines padded with white would all be alike."""
    grey = on_white(image).convert("L")
    mean, steps, greys = (np.asarray(grey.resize(size, Image.BOX), float) for size in ((8, 8), (9, 8), (16, 16)))
    return (mean > mean.mean()).ravel(), (steps[:, 1:] > steps[:, :-1]).ravel(), greys.ravel()


class Drawing:
    """A figure of a class, with a key of what it shows."""

    def __init__(self, name, source, image):
        self.name, self.source, self.image = name, source, image
        # In one size whatever is written, so that the folds are always the same.
        self.key = hashlib.sha256(square(image, 96).tobytes()).hexdigest()
        self.hashes = hashes(image)
        # A number, and a twin in black and white, make no other title.
        title = re.sub(r"([_-]*\d*\.png$|_?bw(?=_|\d|\.)|\d+)", "", os.path.basename(source).lower())
        self.title = name, title
        self.group = self.fold = None


def files_of(root, topic):
    """The PNGs of a topic in a fixed order; links would be a drawing twice."""
    own = topic.endswith("/.")
    for folder, folders, files in os.walk(root / topic.removesuffix("/.")):
        folders[:] = [] if own else sorted(folders)
        for name in sorted(files):
            path = os.path.join(folder, name)
            if name.endswith(".png") and not os.path.islink(path):
                yield path


def drawings(root):
    """All drawings of the classes, with their folds, and how many files were left out for what."""
    found, seen, left_out = [], set(), collections.Counter()
    for name, topics in CLASSES.items():
        for topic in topics:
            if not (root / topic.removesuffix("/.")).is_dir():
                install = ": apt-get install openclipart-png, or name the folder png/ of it" if root == DRAWINGS else ""
                raise Bad(f"{root} has no folder {topic.removesuffix('/.')}{install}")
            for path in files_of(root, topic):
                try:
                    if UNFIT.search(os.path.basename(path)):
                        raise Unfit("another thing, by name")
                    drawing = Drawing(name, os.path.relpath(path, root), figure(path))
                    if drawing.key in seen:
                        raise Unfit("the same pixels as another")
                except Unfit as unfit:
                    reason = str(unfit)
                    # What is odd about one file is said of it; the others are counted.
                    if "pixels, more" in reason or "unreadable" in reason:
                        print(f"left out: {path}: {reason}")
                        reason = reason.partition(" ")[0] if "unreadable" in reason else "too large"
                    left_out[reason] += 1
                    continue
                seen.add(drawing.key)
                found.append(drawing)
    group(found)
    fold(found)
    return found, left_out


def group(found):
    """Joins drawings of a class that are nearly the same picture, or have the same title."""
    parent = list(range(len(found)))

    def root(place):
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    means, steps, greys = (np.array(kind) for kind in zip(*(drawing.hashes for drawing in found)))
    names = np.array([drawing.name for drawing in found])
    titles = {}
    for place, drawing in enumerate(found):
        near = (
            (names[:place] == drawing.name)
            & ((means[:place] ^ means[place]).sum(1) <= 4)
            & ((steps[:place] ^ steps[place]).sum(1) <= 6)
            & (((greys[:place] - greys[place]) ** 2).mean(1) < 24**2)
        )
        for other in [*np.flatnonzero(near), titles.setdefault(drawing.title, place)]:
            parent[root(place)] = root(int(other))
    least = {}
    for place, drawing in enumerate(found):
        least[root(place)] = min(least.get(root(place), drawing.key), drawing.key)
    for place, drawing in enumerate(found):
        drawing.group = least[root(place)]


def fold(found):
    """Deals the groups of each class to the folds: the largest first, each to the fold that has least."""
    groups, load = collections.defaultdict(list), collections.Counter()
    for drawing in found:
        groups[drawing.group].append(drawing)
    for key, members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        name = members[0].name
        chosen = min(range(FOLDS), key=lambda number: (load[name, number], number))
        load[name, chosen] += len(members)
        for drawing in members:
            drawing.fold = chosen


def part_of(drawing, arguments):
    """Which part a drawing is in."""
    if drawing.fold == arguments.fold:
        return "test"
    return "val" if arguments.val and drawing.fold == (arguments.fold + 1) % FOLDS else "train"


def write_classes(arguments, out):
    found, left_out = drawings(arguments.source)
    rows = []
    for drawing in found:
        part = part_of(drawing, arguments)
        folder = out / part / drawing.name
        folder.mkdir(parents=True, exist_ok=True)
        square(drawing.image, arguments.size).save(folder / f"{drawing.key[:16]}.png")
        rows.append([part, drawing.name, drawing.key[:16], drawing.source, drawing.group[:8], drawing.fold])
    with open(out / "list.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["part", "class", "key", "source", "group", "fold"], *sorted(rows)])
    counts = collections.Counter((row[0], row[1]) for row in rows)
    parts = [part for part in ("train", "val", "test") if any(row[0] == part for row in rows)]
    for name in CLASSES:
        print(f"{name:10s}" + "".join(f"{part} {counts[part, name]:4d}  " for part in parts))
    print(f"{len(found)} drawings in {len({drawing.group for drawing in found})} groups; left out: {dict(left_out)}")


# Scenes.


def photographs(folders):
    """The paths of the photographs of each part: those that are known to show none of the classes, or all of a folder that has
    no such."""
    chosen = {}
    for folder in folders:
        known, others = {}, {}
        for path in sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp")):
            if path.is_symlink():
                continue
            try:
                size = opened(path, PHOTOGRAPH_PIXELS).size
            except Unfit as unfit:
                print(f"left out: {path}: {unfit}")
                continue
            if min(size) < CROP[0]:
                continue
            names = [name for name in (*path.relative_to(folder).parts[:-1], path.stem) if name in KNOWN]
            found, name = (known, names[0]) if names else (others, str(path.relative_to(folder)))
            # The largest of a picture's sizes.
            if math.prod(size) > found.get(name, (0,))[0]:
                found[name] = math.prod(size), path
        print(f"{folder}: {len(known)} photographs known to show none of the classes, {len(others)} other pictures")
        chosen.update({name: path for name, (_, path) in (known or others).items()})
    if len(chosen) < 2:
        install = ": apt-get install lomiri-wallpapers-16.04, or name folders by --photos" if PHOTOGRAPHS in folders else ""
        raise Bad(f"{len(chosen)} photographs of {CROP[0]} px or more in {', '.join(map(str, folders))}{install}")
    order = sorted(chosen, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    if len(order) > PHOTOGRAPHS_MOST:
        print(f"{PHOTOGRAPHS_MOST} of {len(order)} photographs are taken")
    paths = [chosen[name] for name in order[:PHOTOGRAPHS_MOST]]
    return {"val": paths[::FOLDS], "train": [path for place, path in enumerate(paths) if place % FOLDS]}


def photograph(path):
    """The pixels of a photograph."""
    try:
        image = decoded(opened(path, PHOTOGRAPH_PIXELS), "RGB")
    except Unfit as unfit:
        raise Bad(f"{path} is {unfit}: mend or remove it") from None
    shrunk = PHOTOGRAPH_SIDE / min(image.size)
    return image.resize([round(side * shrunk) for side in image.size], Image.BOX) if shrunk < 1 else image


def ground(draw, image, size):
    """A square crop of a photograph."""
    side = draw.randint(CROP[0], min(CROP[1], *image.size))
    x, y = (draw.randint(0, length - side) for length in image.size)
    return image.crop((x, y, x + side, y + side)).resize((size, size), Image.BOX).convert("RGBA")


def scene(draw, grounds, figures, size):
    """A picture, which figure is seen at each pixel (from 1, 0 for none), and the classes of the figures."""
    image = ground(draw, draw.choice(grounds), size)
    seen, classes, areas = np.zeros((size, size), np.uint8), [], []
    wanted = draw.randint(1, 4)
    for _ in range(10 * wanted):
        if len(classes) == wanted:
            break
        name = draw.choice(list(figures))
        one = draw.choice(figures[name])
        longest = size * math.exp(draw.uniform(math.log(0.15), math.log(0.6)))
        one = resized(one, longest / max(one.size), Image.BILINEAR, least=4)
        if draw.random() < 0.5:
            one = one.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        x, y = (draw.randint(0, size - side) for side in one.size)
        mask = np.zeros((size, size), bool)
        mask[y : y + one.height, x : x + one.width] = np.asarray(one)[..., 3] > OPAQUE
        after = np.where(mask, len(classes) + 1, seen)
        left = [(after == number).sum() / area for number, area in enumerate(areas, 1)]
        if mask.sum() < 64 or any(share < 0.6 for share in left):
            continue
        image.alpha_composite(one, (x, y))
        seen = after
        classes.append(name)
        areas.append(mask.sum())
    return image.convert("RGB"), seen, classes


def run_lengths(mask):
    """COCO's: down the columns, from a run of zeros on."""
    column = np.concatenate([[0], mask.T.ravel(), [0]]).astype(np.int8)
    counts = np.diff(np.concatenate([[0], np.flatnonzero(np.diff(column)), [mask.size]]))
    return [int(count) for count in (counts if not mask.T.ravel()[-1] else counts[:-1])]


def annotation(mask, image_id, category):
    """An object of COCO's annotations, without its number."""
    ys, xs = np.nonzero(mask)
    left, top = int(xs.min()), int(ys.min())
    return {
        "image_id": image_id,
        "category_id": category,
        "bbox": [left, top, int(xs.max()) - left + 1, int(ys.max()) - top + 1],
        "area": int(mask.sum()),
        "iscrowd": 0,
        "segmentation": {"size": list(mask.shape), "counts": run_lengths(mask)},
    }


def write_scenes(arguments, out):
    photos = photographs(arguments.photos)
    grounds = {part: [photograph(path) for path in paths] for part, paths in photos.items()}
    found, _ = drawings(arguments.source)
    names, size = list(CLASSES), arguments.size
    said = [f"Composed by scripts/make_openclipart.py, seed {arguments.seed}: drawings on photographs, seen by no camera.", ""]
    for part, count in (("train", arguments.train), ("val", arguments.val)):
        figures = {name: [] for name in names}
        for drawing in found:
            alpha = np.asarray(drawing.image)[..., 3] > OPAQUE
            # A figure, not a rectangle, and not a few thin lines.
            if (drawing.fold == arguments.fold) == (part == "val") and 0.1 <= alpha.mean() <= 0.95:
                figures[drawing.name].append(drawing.image)
        folders = [out / "images" / part, out / "labels" / part]
        for folder in [*folders, out / "annotations"]:
            folder.mkdir(parents=True, exist_ok=True)
        coco = {"info": {"description": said[0]}, "images": [], "annotations": []}
        coco["categories"] = [{"id": place, "name": name} for place, name in enumerate(names, 1)]
        for number in range(count):
            # A scene's draws are its own: more scenes leave the first as they are.
            draw = random.Random(f"{arguments.seed} {part} {number}")
            image, seen, classes = scene(draw, grounds[part], figures, size)
            label = np.zeros((size, size), np.uint8)
            for place, name in enumerate(classes, 1):
                label[seen == place] = names.index(name) + 1
                one = annotation(seen == place, number, names.index(name) + 1)
                coco["annotations"].append({"id": len(coco["annotations"]) + 1, **one})
            coco["images"].append({"id": number, "file_name": f"{number:06}.jpg", "width": size, "height": size})
            image.save(folders[0] / f"{number:06}.jpg", quality=92)
            Image.fromarray(label).save(folders[1] / f"{number:06}.png")
        (out / "annotations" / f"instances_{part}.json").write_text(json.dumps(coco), encoding="utf-8")
        total = sum(map(len, figures.values()))
        print(f"{part}: {count} scenes, {len(coco['annotations'])} objects of {total} figures on {len(grounds[part])} photographs")
        said += [f"{part}: {path}" for path in photos[part]]
    (out / "classes.txt").write_text("\n".join(["background", *names]) + "\n")
    said += ["", "The drawings are in the public domain (openclipart-png). The photographs have the licences that the copyright"]
    said += ["file of their package states; where one of them is CC BY-SA, so are these scenes."]
    (out / "SOURCES.txt").write_text("\n".join(said) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind, size in (("classes", 96), ("scenes", 256)):
        one = kinds.add_parser(kind)
        one.add_argument("source", nargs="?", default=DRAWINGS, type=pathlib.Path, help=f"default: {DRAWINGS}")
        one.add_argument("--out", required=True, type=pathlib.Path, help="folder to write; must not exist yet")
        one.add_argument("--size", type=int, default=size, help=f"side of a picture in pixels (default: {size})")
        one.add_argument("--fold", type=int, default=0, choices=range(FOLDS), help="which fold is the test (default: 0)")
        if kind == "classes":
            one.add_argument("--val", action="store_true", help="write the next fold as val/")
            continue
        one.add_argument("--photos", nargs="+", default=[PHOTOGRAPHS], type=pathlib.Path, help=f"default: {PHOTOGRAPHS}")
        one.add_argument("--train", type=int, default=4000, help="training scenes (default: 4000)")
        one.add_argument("--val", type=int, default=400, help="scenes to test on (default: 400)")
        one.add_argument("--seed", type=int, default=0, help="seed of the scenes (default: 0)")
    arguments = parser.parse_args()
    if not 32 <= arguments.size <= CROP[0]:
        raise Bad(f"--size {arguments.size}: 32 to {CROP[0]} pixels")
    if arguments.kind == "scenes" and min(arguments.train, arguments.val) < 1:
        raise Bad("--train and --val are at least 1")
    # What a killed process leaves has another name: it would be read as smaller data.
    partial = arguments.out.with_name(arguments.out.name + ".partial")
    for path in (arguments.out, partial):
        if path.exists():
            raise Bad(f"{path} exists already: remove it, or name another folder")
    partial.mkdir(parents=True)
    try:
        (write_classes if arguments.kind == "classes" else write_scenes)(arguments, partial)
    except Bad:
        partial.rmdir()
        raise
    partial.rename(arguments.out)


if __name__ == "__main__":
    try:
        main()
    except (Bad, OSError) as error:
        sys.exit(f"error: {error}")
