#!/usr/bin/env python3
"""Write Fashion-MNIST as folders of classes, from the files that Debian's package has.

70 000 grey pictures of clothes, 28 x 28: 60 000 for training and 10 000 for the test, as many of each of ten classes
(H. Xiao, K. Rasul, R. Vollgraf: "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
arXiv 1708.07747; (c) 2017 Zalando SE, MIT). OUT gets train/<class>/<number>.png and test/<class>/<number>.png, losslessly;
the number is the place in the published file. Nothing is downloaded. The validation images are held out of train/ by
`data.val_fraction`.

A script, not a reader of IDX in vim-data: that were longer, one format more, and no pictures of single files in a report. On a
local disk folders are read as fast as a pack of them.

SOURCE is a folder with the four files, gzipped or not, or left out: that of `apt-get install dataset-fashion-mnist`. Magic
numbers, counts, sizes and labels are checked. Needs Python 3.9 and nothing else; some 20 seconds.

Examples:
  make_fashion_mnist.py --out data/fashion-mnist
  make_fashion_mnist.py ~/Downloads/fashion --out data/fashion-mnist
"""

import argparse
import gzip
import math
import pathlib
import struct
import sys
import zlib

DEBIAN = pathlib.Path("/usr/share/datasets/fashion-mnist")
CLASSES = ["t-shirt_top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle_boot"]
PARTS = {"train": ("train", 60_000), "test": ("t10k", 10_000)}
SIDE = 28


class Bad(Exception):
    """What is wrong, with which file, and what to do, in one line."""


def numbers(source, stem, magic, shape):
    """The bytes of an IDX file after its header, which must say `shape`."""
    paths = [path for path in (source / stem, source / (stem + ".gz")) if path.is_file()]
    if not paths:
        install = ": apt-get install dataset-fashion-mnist, or name the folder that has it" if source == DEBIAN else ""
        raise Bad(f"{source} has neither {stem} nor {stem}.gz{install}")
    path, length, size = paths[0], 4 + 4 * len(shape), math.prod(shape)
    with open(path, "rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    try:
        # No more is read than the file should have, and a byte to see that it ends.
        with (gzip.open if zipped else open)(path, "rb") as file:
            data = file.read(length + size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise Bad(f"{path}: {error or 'it breaks off'}: get it again") from None
    header = struct.pack(f">{1 + len(shape)}I", magic, *shape)
    if data[:length] != header:
        found = data[:length].hex(" ", 4) or "nothing"
        raise Bad(f"{path}: its header is {found}, not {header.hex(' ', 4)} ({magic}: {shape}): it is another file")
    if len(data) != length + size:
        what = "more" if len(data) > length + size else f"only {len(data)}"
        raise Bad(f"{path}: {length + size} bytes are to be there, and {what} are: get it again")
    return data[length:]


def png(pixels):
    """A grey picture of SIDE x SIDE bytes as a PNG."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + pixels[start : start + SIDE] for start in range(0, SIDE * SIDE, SIDE))
    header = struct.pack(">2I5B", SIDE, SIDE, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default=DEBIAN, type=pathlib.Path, help=f"default: {DEBIAN}")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write; must not exist yet")
    arguments = parser.parse_args()
    parts = {}
    # All is read and checked before anything is written.
    for part, (stem, count) in PARTS.items():
        pixels = numbers(arguments.source, f"{stem}-images-idx3-ubyte", 2051, (count, SIDE, SIDE))
        labels = numbers(arguments.source, f"{stem}-labels-idx1-ubyte", 2049, (count,))
        counts = [labels.count(label) for label in range(len(CLASSES))]
        if counts != [count // len(CLASSES)] * len(CLASSES):
            raise Bad(f"{stem}-labels-idx1-ubyte: {counts} pictures of each label, not {count // len(CLASSES)}: it is another file")
        parts[part] = pixels, labels
    if arguments.out.exists():
        raise Bad(f"{arguments.out} exists already: remove it, or name another folder")
    # What a killed process leaves has another name: it would be read as smaller data.
    partial = arguments.out.with_name(arguments.out.name + ".partial")
    if partial.exists():
        raise Bad(f"{partial} is what another process writes, or left behind: wait, or remove it")
    for part, (pixels, labels) in parts.items():
        for name in CLASSES:
            (partial / part / name).mkdir(parents=True)
        for number, label in enumerate(labels):
            start = number * SIDE * SIDE
            path = partial / part / CLASSES[label] / f"{number:05}.png"
            path.write_bytes(png(pixels[start : start + SIDE * SIDE]))
    partial.rename(arguments.out)
    for part, (_, labels) in parts.items():
        print(f"{arguments.out / part}: {len(labels)} pictures of {len(CLASSES)} classes")


if __name__ == "__main__":
    try:
        main()
    except (Bad, OSError) as error:
        sys.exit(f"error: {error}")
