"""What is small and grows when it is read."""

import gzip
import resource
import tarfile
import zlib

from .made import TRIANGLE, annotations, detections, png
from .storm import DEBUG, limit
from .zips import DEFLATED, STORED, Zip


def bombs(storm):
    def start(path):
        return ["train", DEBUG, "--dry-run", "--set", f"run.root={storm.work}/runs",
                "--set", "data.dataset=cifar100", "--set", f"data.path={path}"]

    for mib in (64, 1024, 4096):
        path = storm.work / f"zeros{mib}.tar.gz"
        with gzip.open(path, "wb", compresslevel=9) as archive:
            entry = tarfile.TarInfo("cifar-100-binary/train.bin")
            entry.size = mib << 20
            archive.write(entry.tobuf())
            for _ in range(mib):
                archive.write(bytes(1 << 20))
        storm.run(f"bombs gzip {mib} MiB", *start(path), refuse=True)
        path.unlink()
    for side, depth in ((8000, 16), (20_000, 8), (60_000, 8)):
        rows = (b"\0" + bytes(side * depth // 8) for _ in range(min(side, 8000)))
        path = storm.work / "large.png"
        path.write_bytes(png(side, side, rows, depth))
        storm.run(f"bombs png {side} px", "predict", path, "--checkpoint", storm.work / "debug/checkpoints/last")
    sets = {
        "threads": "devices.threads=4294967296",
        "workers": "data.workers=4294967296",
        "shapes": "data.shapes.train=100000000",
        "depth": "model.depth=100000000",
        "d_model": "model.d_model=4294967296",
        "batch": "train.batch_size=18446744073709551615",
        "epochs": "train.epochs=18446744073709551615",
        "image": "model.image_size=4294967296",
    }
    for name, value in sets.items():
        storm.run(f"bombs {name}", "train", DEBUG, "--dry-run", "--set", value, "--set", f"run.root={storm.work}/runs")
    for name, text in {
        "device": 'extends = "/dev/zero"\n',
        "itself": 'extends = "loop.toml"\n',
        "twice": None,
        "deep": "a = " + "[" * 100_000 + "\n",
        "long": "[model]\n" + "x" * 2_000_000 + " = 1\n",
    }.items():
        path = storm.work / "loop.toml"
        if text is None:
            for level in range(30):
                below = f"level{level - 1}.toml"
                (storm.work / f"level{level}.toml").write_text(f'extends = ["{below}", "{below}"]\n' if level else "")
            path = storm.work / "level29.toml"
        else:
            path.write_text(text)
        storm.run(f"bombs extends {name}", "train", path, "--dry-run", refuse=True)
    unpacked(storm)
    texts(storm)


def unpacked(storm):
    """3 MiB of a zip that unpack to 3 GiB of annotations."""
    root = storm.work / "unpacked"
    for part in ("train2017", "val2017"):
        (root / part).mkdir(parents=True)
        (root / part / "1.png").write_bytes(png(64, 64))
    text, blanks, gib = annotations(TRIANGLE).encode(), b" " * (1 << 20), 3
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    start, block = (packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH) for piece in (text, blanks))
    # A block that is flushed so refers to none before it: all of them are the same bytes.
    packed, crc = start + block * (gib << 10) + packer.flush(), zlib.crc32(text)
    for _ in range(gib << 10):
        crc = zlib.crc32(blanks, crc)
    names = [f"annotations/instances_{part}2017.json" for part in ("train", "val")]
    made = Zip(STORED, files={names[0]: packed, names[1]: text})
    made.both(names[0], method=lambda _: DEFLATED, crc=lambda _: crc, size=lambda _: len(text) + (gib << 30))
    path = root / "annotations_trainval2017.zip"
    path.write_bytes(made.bytes)
    storm.run("bombs annotations of 3 GiB", "data", "scan", "--set", "data.dataset=coco", "--set", f"data.path={root}",
              codes=(65,), memory=500, names=["instances_train2017.json"])
    path.unlink()


def texts(storm):
    """JSON whose polygons and depth cost more than its length."""

    def zigzag(points, side):
        return [[value for i in range(points) for value in (side * (i % 2), i * 7 % side)]]

    good, found = annotations(TRIANGLE), detections([[0, 0, 9, 0, 9, 9]])
    for what, (left, right) in {
        "a zigzag over 65 535 pixels": (annotations(zigzag(4000, 65535), 65535, 65535), found),
        "a detected zigzag": (annotations(TRIANGLE, 65535, 65535), detections(zigzag(4000, 65535))),
        "a zigzag of 20 000 points": (annotations(zigzag(20_000, 640), 640, 640), found),
        "one run of 65 535²": (annotations({"size": [65535, 65535], "counts": [1, 65535**2 - 1]}, 65535, 65535), found),
        "deep annotations": ('{"images": ' + "[" * 100_000, found),
        "a deep polygon": (annotations("deep").replace('"deep"', "[" * 100_000 + "]" * 100_000), found),
        "deep detections": (good, "[" * 100_000),
    }.items():
        ours, theirs = storm.work / "annotations.json", storm.work / "detections.json"
        ours.write_text(left)
        theirs.write_text(right)
        storm.run(f"bombs {what}", "eval", "--coco", ours, theirs, codes=(65,) if "deep" in what else (0, 65),
                  prepare=limit(resource.RLIMIT_AS, 3 << 30), quiet=True)
