#!/usr/bin/env python3
"""Make a small archive in the format of CIFAR-10 or CIFAR-100.

For trying out and testing the readers without the 160 MB download. The images are synthetic: each shows
its own label as a number, in random colours and at a random place, with a little noise, so that the class
is visible and can be learned. The bytes depend on the options alone (for one version of Python and zlib).

Needs Python 3.9 or later and nothing else. 50 000 images take some seconds.

Examples:
  make_cifar_archive.py --out cifar-100-binary.tar.gz
  make_cifar_archive.py --dataset cifar10 --format python --train 500 --test 100 --out cifar-10-python.tar.gz
"""

import argparse
import gzip
import io
import random
import struct
import sys
import tarfile

SIZE = 32
DIGITS = {  # 3 x 5 pixels, one row per item
    "0": ("###", "#.#", "#.#", "#.#", "###"),
    "1": (".#.", "##.", ".#.", ".#.", "###"),
    "2": ("###", "..#", "###", "#..", "###"),
    "3": ("###", "..#", "###", "..#", "###"),
    "4": ("#.#", "#.#", "###", "..#", "..#"),
    "5": ("###", "#..", "###", "..#", "###"),
    "6": ("###", "#..", "###", "#.#", "###"),
    "7": ("###", "..#", ".#.", ".#.", ".#."),
    "8": ("###", "#.#", "###", "#.#", "###"),
    "9": ("###", "#.#", "###", "..#", "###"),
}


class Layout:
    """Names and sizes that distinguish the two datasets."""

    def __init__(self, classes, folders, train, test):
        self.classes, self.folders, self.train, self.test = classes, folders, train, test


LAYOUTS = {
    "cifar10": Layout(
        10,
        {"binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py"},
        [f"data_batch_{i}" for i in range(1, 6)],
        "test_batch",
    ),
    "cifar100": Layout(
        100, {"binary": "cifar-100-binary", "python": "cifar-100-python"}, ["train"], "test"
    ),
}


def glyph_mask(label, digits, scale, left, top):
    """The label as SIZE x SIZE bytes, 1 where a digit is and 0 elsewhere."""
    rows = [bytearray(SIZE) for _ in range(SIZE)]
    for place, digit in enumerate(str(label).zfill(digits)):
        for y, row in enumerate(DIGITS[digit]):
            for x, mark in enumerate(row):
                if mark == "#":
                    start = left + (place * 4 + x) * scale
                    for line in rows[top + y * scale : top + (y + 1) * scale]:
                        line[start : start + scale] = b"\1" * scale
    return b"".join(rows)


def image(rng, label, classes):
    """One image: three planes (red, green, blue) of SIZE x SIZE bytes."""
    digits = len(str(classes - 1))
    scale = 4
    width, height = (digits * 4 - 1) * scale, 5 * scale
    mask = glyph_mask(
        label, digits, scale, rng.randrange(SIZE - width + 1), rng.randrange(SIZE - height + 1)
    )
    dark = [rng.randrange(0, 96) for _ in range(3)]
    light = [rng.randrange(160, 256) for _ in range(3)]
    colours = (dark, light) if rng.random() < 0.5 else (light, dark)
    planes = b"".join(
        mask.translate(bytes([colours[0][channel], colours[1][channel]]) + bytes(254))
        for channel in range(3)
    )
    # Noise: the lowest three bits of every byte are flipped at random.
    noise = int.from_bytes(rng.randbytes(len(planes)), "big")
    noise &= int.from_bytes(b"\7" * len(planes), "big")
    return (int.from_bytes(planes, "big") ^ noise).to_bytes(len(planes), "big")


def part(rng, count, classes):
    """Labels, as evenly spread over the classes as `count` allows, in random order; and images."""
    labels = [i % classes for i in range(count)]
    rng.shuffle(labels)
    return labels, [image(rng, label, classes) for label in labels]


def binary_file(dataset, labels, images):
    """Records: for CIFAR-100 a coarse label, the label, three planes."""
    record = (lambda n: bytes([n // 5, n])) if dataset == "cifar100" else (lambda n: bytes([n]))
    return b"".join(record(label) + planes for label, planes in zip(labels, images))


class Pickle:
    """Writes a pickle of protocol 2, opcode by opcode, as Python 2 did: its strings are bytes."""

    def __init__(self):
        self.out = io.BytesIO()
        self.memos = 0
        self.op(b"\x80\x02")

    def op(self, *parts):
        for part in parts:
            self.out.write(part)

    def memo(self):
        """Remembers the top of the stack, as the original does after every object."""
        n = self.memos
        self.memos += 1
        self.op(b"q" + bytes([n]) if n < 256 else b"r" + struct.pack("<I", n))

    def string(self, value):
        short = len(value) < 256
        self.op(b"U" + bytes([len(value)]) if short else b"T" + struct.pack("<i", len(value)), value)
        self.memo()

    def integer(self, value):
        if 0 <= value < 256:
            self.op(b"K" + bytes([value]))
        elif 0 <= value < 65536:
            self.op(b"M" + struct.pack("<H", value))
        else:
            self.op(b"J" + struct.pack("<i", value))

    def name(self, module, name):
        self.op(f"c{module}\n{name}\n".encode())
        self.memo()

    def list(self, items, write):
        self.op(b"]")
        self.memo()
        for start in range(0, len(items), 1000):
            self.op(b"(")
            for item in items[start : start + 1000]:
                write(item)
            self.op(b"e")

    def array(self, rows, columns, content):
        """A numpy array of bytes: an empty one is called for, then given its state."""
        self.name("numpy.core.multiarray", "_reconstruct")
        self.name("numpy", "ndarray")
        self.integer(0)
        self.op(b"\x85")
        self.memo()
        self.string(b"b")
        self.op(b"\x87")
        self.memo()
        self.op(b"R")
        self.memo()
        self.op(b"(")
        self.integer(1)  # version of the state
        self.integer(rows)
        self.integer(columns)
        self.op(b"\x86")
        self.memo()
        self.name("numpy", "dtype")
        self.string(b"u1")
        self.integer(0)
        self.integer(1)
        self.op(b"\x87")
        self.memo()
        self.op(b"R")
        self.memo()
        self.op(b"(")
        self.integer(3)  # version of the data type's state
        self.string(b"|")
        self.op(b"NNN")
        self.integer(-1)
        self.integer(-1)
        self.integer(0)
        self.op(b"t")
        self.memo()
        self.op(b"b")
        self.op(b"\x89")  # row-major
        self.string(content)
        self.op(b"t")
        self.memo()
        self.op(b"b")

    def dict(self, entries):
        self.op(b"}")
        self.memo()
        self.op(b"(")
        for key, write in entries:
            self.string(key)
            write()
        self.op(b"u")

    def finish(self):
        self.op(b".")
        return self.out.getvalue()


def python_file(dataset, title, labels, images):
    """The pickled dictionary of one file."""
    pickle = Pickle()
    names = [f"synthetic_{label:02}_{i:06}.png".encode() for i, label in enumerate(labels)]
    entries = [
        (b"filenames", lambda: pickle.list(names, pickle.string)),
        (b"batch_label", lambda: pickle.string(title.encode())),
    ]
    if dataset == "cifar100":
        coarse = [label // 5 for label in labels]
        entries.append((b"fine_labels", lambda: pickle.list(labels, pickle.integer)))
        entries.append((b"coarse_labels", lambda: pickle.list(coarse, pickle.integer)))
    else:
        entries.append((b"labels", lambda: pickle.list(labels, pickle.integer)))
    planes = b"".join(images)
    entries.append((b"data", lambda: pickle.array(len(labels), 3 * SIZE * SIZE, planes)))
    pickle.dict(entries)
    return pickle.finish()


def members(options):
    """Name and content of each file, training files first. Both formats hold the same images."""
    layout = LAYOUTS[options.dataset]
    rng = random.Random(options.seed)
    train = part(rng, options.train, layout.classes)
    test = part(rng, options.test, layout.classes)
    files = len(layout.train)
    cuts = [options.train * i // files for i in range(files + 1)]
    parts = [
        (stem, train[0][start:end], train[1][start:end])
        for stem, start, end in zip(layout.train, cuts, cuts[1:])
    ]
    for stem, labels, images in [*parts, (layout.test, *test)]:
        if options.format == "binary":
            yield f"{stem}.bin", binary_file(options.dataset, labels, images)
        else:
            title = f"synthetic {stem.replace('_', ' ')}"
            yield stem, python_file(options.dataset, title, labels, images)


def write_archive(options):
    folder = tarfile.TarInfo(LAYOUTS[options.dataset].folders[options.format])
    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
    with open(options.out, "wb") as file:
        # Neither a name nor a time in the header: the same options, the same bytes.
        compressed = options.out.endswith(".gz")
        stream = gzip.GzipFile("", "wb", 6, file, mtime=0) if compressed else file
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            tar.addfile(folder)
            for name, content in members(options):
                info = tarfile.TarInfo(f"{folder.name}/{name}")
                info.size, info.mode = len(content), 0o644
                tar.addfile(info, io.BytesIO(content))
        if compressed:
            stream.close()


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--dataset", choices=sorted(LAYOUTS), default="cifar100", help="default: cifar100"
    )
    parser.add_argument(
        "--format",
        choices=["binary", "python"],
        default="binary",
        help="fixed-length records, or pickled numpy arrays as Python 2 wrote them (default: binary)",
    )
    parser.add_argument("--train", type=int, default=2000, metavar="N", help="training images (2000)")
    parser.add_argument("--test", type=int, default=500, metavar="M", help="test images (500)")
    parser.add_argument("--seed", type=int, default=0, help="other images for another seed (0)")
    parser.add_argument(
        "--out", required=True, help="the archive; compressed if the name ends in .gz"
    )
    options = parser.parse_args(arguments)
    least = len(LAYOUTS[options.dataset].train)
    if options.train < least or options.test < 1:
        parser.error(f"--train must be {least} or more and --test 1 or more: no file may be empty")
    return options


if __name__ == "__main__":
    write_archive(parse(sys.argv[1:]))
