"""What the program is given to read, made by Python alone; and where files lie in a checkout."""

import json
import struct
import zlib

from .storm import HERE

# JPEGs of all usual kinds, which Pillow wrote.
JPEGS = HERE / "crates/vim-data/tests/golden/odd"


def png(width, height, rows=None, depth=8, value=None):
    """A PNG file, grey; `rows` may hold fewer bytes than the header promises, `value` is that of all pixels."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    if rows is None:
        row = bytes(i % 256 for i in range(width)) if value is None else bytes([value]) * width
        rows = [b"\0" + row] * height
    # Piece by piece: what this process has allocated counts as its children's memory.
    packer = zlib.compressobj()
    packed = b"".join([packer.compress(row) for row in rows]) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def bmp(width, height, seed):
    """A BMP file, of colours: no checksum of its own tells that a byte of it was changed."""
    rows = b"".join(bytes((x * 5 + y + seed) % 256 for x in range(3 * width)) + bytes(-3 * width % 4) for y in range(height))
    start = struct.pack("<2sIHHI", b"BM", 54 + len(rows), 0, 0, 54)
    return start + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(rows), 0, 0, 0, 0) + rows


def classes_folder(root, each=4):
    """A folder of images in two classes, a training and a validation part."""
    for part in ("train", "val"):
        for name in ("a", "b"):
            folder = root / part / name
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(each):
                (folder / f"{i}.png").write_bytes(png(32 + i, 32))
    return root


# A segmenter that trains in a moment.
SEGMENT = """task = "segmentation"
[run]
name = "segment"
[model]
image_size = 32
patch_size = 8
depth = 4
d_model = 16
d_state = 4
class_token = "none"
drop_path = 0.0
[segmentation]
out_indices = [0, 1, 2, 3]
channels = 8
aux_channels = 8
dropout = 0.0
[pairs]
scale = [64, 32]
inference = "whole"
photometric = false
[data]
workers = 2
[train]
steps = 2
batch_size = 4
[optim]
schedule = "poly"
warmup = "1st"
min_lr = 0.0
"""


def segmenter(storm):
    """Its configuration, and a file of the two classes."""
    config, names = storm.work / "segment.toml", storm.work / "names.txt"
    config.write_text(SEGMENT)
    names.write_text("background\nred\n")
    return config, names


def pairs():
    """The files of a dataset of pairs, 8 to learn and 4 to see."""
    files = {}
    for part, number in (("training", 8), ("validation", 4)):
        for i in range(number):
            files[f"images/{part}/{i:02}.bmp"] = bmp(48, 40, i)
            files[f"annotations/{part}/{i:02}.png"] = png(48, 40, value=i % 2)
    return files


def annotations(segmentation, width=64, height=64, pad=0):
    """COCO's annotations of one object in one image, as text of JSON."""
    left = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 9, 9], "area": 81, "iscrowd": 0}
    content = {
        "images": [{"id": 1, "file_name": "1.png", "width": width, "height": height}],
        "categories": [{"id": 1, "name": "a"}],
        "annotations": [left | {"segmentation": segmentation}],
    }
    return json.dumps(content) + " " * pad


TRIANGLE = [[1, 1, 9, 1, 9, 9]]


def detections(segmentation=None):
    """Detections in that image."""
    found = {"image_id": 1, "category_id": 1, "score": 0.5, "bbox": [1, 1, 8, 8]}
    return json.dumps([found | ({"segmentation": segmentation} if segmentation else {})])


def sparse(path, content, size):
    """A file with this content and zeros behind it, which take no room on the disk."""
    with open(path, "wb") as file:
        file.write(content)
        file.truncate(size)
    return path
