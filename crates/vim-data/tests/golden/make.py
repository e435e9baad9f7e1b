#!/usr/bin/env python3
"""Make odd/ and more.json beside this file, by Pillow itself.

manifest.json was measured by the original's own programs (timm 0.4.12, torchvision 0.16.1, Pillow 10.1.0);
more.json adds what those did not cover: other arguments, blur, luma, other crops and sizes, and the small
files of odd/. Where Pillow refuses a file, its sha256 is null. Needs pillow==10.1.0 and numpy.
"""

import hashlib
import io
import json
import random
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

HERE = Path(__file__).parent
FILL = (124, 116, 104)


def sha256(image):
    """Of the pixels as red, green and blue."""
    return hashlib.sha256(np.asarray(image.convert("RGB")).tobytes()).hexdigest()


def raw(name, side):
    return Image.fromarray(np.fromfile(HERE / name, np.uint8).reshape(side, side, 3))


def affine(image, matrix):
    return image.transform(image.size, Image.AFFINE, matrix, resample=Image.BICUBIC, fillcolor=FILL)


def solarize_add(image, add):
    return image.point([min(255, v + add) if v < 128 else v for v in range(256)] * 3)


OPS = {
    "auto_contrast": lambda image: ImageOps.autocontrast(image),
    "equalize": lambda image: ImageOps.equalize(image),
    "invert": lambda image: ImageOps.invert(image),
    "rotate": lambda image, a: image.rotate(a, resample=Image.BICUBIC, fillcolor=FILL),
    "posterize": lambda image, a: image if a >= 8 else ImageOps.posterize(image, a),
    "solarize": lambda image, a: ImageOps.solarize(image, a),
    "solarize_add": lambda image, a: solarize_add(image, a),
    "color": lambda image, a: ImageEnhance.Color(image).enhance(a),
    "contrast": lambda image, a: ImageEnhance.Contrast(image).enhance(a),
    "brightness": lambda image, a: ImageEnhance.Brightness(image).enhance(a),
    "sharpness": lambda image, a: ImageEnhance.Sharpness(image).enhance(a),
    "shear_x": lambda image, a: affine(image, (1, a, 0, 0, 1, 0)),
    "shear_y": lambda image, a: affine(image, (1, 0, 0, a, 1, 0)),
    "translate_x_rel": lambda image, a: affine(image, (1, 0, a * image.width, 0, 1, 0)),
    "translate_y_rel": lambda image, a: affine(image, (1, 0, 0, 0, 1, a * image.height)),
    "grayscale": lambda image: image.convert("L"),
    "blur": lambda image, a: image.filter(ImageFilter.GaussianBlur(a)),
    "affine": lambda image, *map: affine(image, map),
}


def arguments(op, rng):
    """What RandAugment can draw, its ends included; for those it does not have, what ThreeAugment can."""
    if op in ("auto_contrast", "equalize", "invert", "grayscale"):
        return [[]]
    if op == "affine":
        # Turned and scaled, mirrored, shrunk, enlarged, squeezed to a line, seen from afar.
        return [
            [0.9, 0.25, 5.0, -0.2, 1.1, -7.5],
            [-1.0, 0.0, 32.0, 0.0, 1.0, 0.0],
            [3.7, 0.0, -9.0, 0.0, 2.9, 1.25],
            [0.13, 0.0, 3.3, 0.0, 0.21, 4.4],
            [0.0, 0.0, 7.7, 0.0, 1.0, 0.0],
            [1.0, 0.0, 1000.0, 0.0, 1.0, 0.0],
        ]
    if op == "posterize":
        return [[bits] for bits in (3, 5, 6, 7, 8)]
    if op == "solarize":
        return [[1], [77], [255], [rng.randrange(256)]]
    if op == "solarize_add":
        return [[0], [1], [rng.randrange(110)]]
    if op == "blur":
        return [[radius] for radius in (0.1, 0.5, 0.8164, 1.0, 1.414, 1.7, 2.0, rng.uniform(0.1, 2), 4.5)]
    if op in ("color", "contrast", "brightness", "sharpness"):
        return [[0.0], [0.7], [1.3], [rng.uniform(0.1, 1.9)]]
    if op == "rotate":
        return [[0.0], [30.0], [-30.0], [rng.uniform(-30, 30)], [rng.uniform(-30, 30)]]
    if op.startswith("shear"):
        return [[0.0], [0.3], [-0.3], [rng.uniform(-0.3, 0.3)]]
    return [[0.0], [0.45], [-0.45], [rng.uniform(-0.45, 0.45)]]


def ops(rng):
    images = {"in0.rgb": raw("in0.rgb", 224), "in2.rgb": raw("in2.rgb", 32)}
    for file, image in images.items():
        for op, apply in OPS.items():
            for args in arguments(op, rng):
                yield {"input": file, "op": op, "args": args, "sha256": sha256(apply(image, *args))}


def resizes(rng):
    """Crops of every kind, to squares and rectangles."""
    image = Image.open(HERE / "src0_png.JPEG")
    cases = [
        ((0, 0, 1, 1), (7, 5)), ((10, 20, 1, 300), (224, 224)), ((0, 0, 375, 500), (1, 1)),
        ((0, 0, 375, 500), (256, 341)), ((370, 490, 5, 10), (224, 224)), ((3, 5, 224, 300), (224, 224)),
        ((3, 5, 300, 224), (224, 224)), ((0, 0, 375, 500), (32, 32)), ((100, 100, 40, 30), (320, 300)),
    ]
    for _ in range(12):
        height, width = rng.randint(20, 375), rng.randint(20, 500)
        crop = (rng.randint(0, 375 - height), rng.randint(0, 500 - width), height, width)
        cases.append((crop, (rng.randint(1, 400), rng.randint(1, 400))))
    for (top, left, height, width), (to_height, to_width) in cases:
        crop = image.crop((left, top, left + width, top + height))
        yield {
            "crop": [top, left, height, width],
            "size": [to_height, to_width],
            "sha256": sha256(crop.resize((to_width, to_height), Image.BICUBIC)),
        }


def picture(height, width):
    """Smooth waves, hard edges and noise."""
    y, x, channel = np.mgrid[:height, :width, :3]
    noise = np.random.default_rng(5).normal(0, 12, (height, width, 3))
    waves = 128 + 90 * np.sin((x * (channel + 1) + y * (3 - channel)) / 17) + noise
    waves[(y // 9 + x // 13) % 5 == 0] = 255
    return Image.fromarray(waves.clip(0, 255).astype(np.uint8))


def exif(orientation):
    data = Image.Exif()
    data[0x0112] = orientation
    return data.tobytes()


def saved(image, format, **options):
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def sixteen_bit(image):
    """A 16-bit PNG of red, green and blue, which Pillow reads but does not write."""
    import struct
    import zlib

    pixels = np.asarray(image).astype(np.uint16) * 257 - 100 * (np.asarray(image) > 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", image.width, image.height, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def adobe(jpeg, transform):
    """With Adobe's segment, which says what the channels are, in place of JFIF's or with another code."""
    at = jpeg.find(b"\xff\xee")
    if at < 0:
        assert jpeg[2:4] == b"\xff\xe0" and jpeg[5] == 16
        return jpeg[:2] + b"\xff\xee\0\x0eAdobe\0d\0\0\0\0" + bytes([transform]) + jpeg[20:]
    return jpeg[: at + 15] + bytes([transform]) + jpeg[at + 16 :]


def ycck(image):
    """As CMYK whose first three channels are luma and chroma: Adobe's code 2 then says so."""
    rgb, black = image.convert("YCbCr"), Image.fromarray((np.mgrid[:75, :101][0] * 2 + 90).astype(np.uint8))
    channels = [255 - np.asarray(channel) for channel in (*rgb.split(), black)]  # stored inverted
    return Image.merge("CMYK", [Image.fromarray(channel) for channel in channels])


def between(jpeg):
    """With bytes that belong to nothing before a table, and another after it."""
    at = jpeg.find(b"\xff\xdb")
    end = at + 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
    return jpeg[:at] + b"\0 junk \xff\0" + jpeg[at:end] + b"\0" + jpeg[end:]


def files():
    image = picture(75, 101)
    jpeg = saved(image, "JPEG", quality=90, subsampling=0)
    zeroed = bytearray(jpeg)
    zeroed[len(jpeg) * 6 // 10 : len(jpeg) * 6 // 10 + 64] = bytes(64)
    alpha = image.copy()
    alpha.putalpha(Image.fromarray((np.mgrid[:75, :101][1] * 2).astype(np.uint8)))
    return {
        "444.jpg": jpeg,
        "422.jpg": saved(image, "JPEG", quality=90, subsampling=1),
        "420.jpg": saved(image, "JPEG", quality=90, subsampling=2),
        "progressive.jpg": saved(image, "JPEG", quality=90, subsampling=2, progressive=True),
        "gray.jpg": saved(image.convert("L"), "JPEG", quality=90),
        "cmyk.jpg": saved(image.convert("CMYK"), "JPEG", quality=90),
        "ycck.jpg": adobe(saved(ycck(image), "JPEG", quality=60), 2),
        "ycck_420.jpg": adobe(saved(ycck(image), "JPEG", quality=80, subsampling=2), 2),
        "ycck_progressive.jpg": adobe(saved(ycck(image), "JPEG", quality=50, progressive=True), 2),
        "adobe_rgb.jpg": adobe(saved(image, "JPEG", quality=80, subsampling=0), 0),
        "between.jpg": between(saved(image, "JPEG", quality=80)),
        "exif6.jpg": saved(image, "JPEG", quality=90, exif=exif(6)),
        "exif_bad.jpg": saved(image, "JPEG", quality=90, exif=exif(6)[:-9]),
        "trailing.jpg": jpeg + bytes(500),
        "zeroed.jpg": bytes(zeroed),
        "half.jpg": jpeg[: len(jpeg) // 2],
        "99.jpg": jpeg[: len(jpeg) * 99 // 100],
        "no_eoi.jpg": jpeg[:-2],
        "no_eoi_progressive.jpg": saved(image, "JPEG", progressive=True)[:-2],
        "header.jpg": jpeg[:200],
        "empty.jpg": b"",
        "tiny.jpg": jpeg[:12],
        "text.jpg": b"<html>404 Not Found</html>",
        "png.JPEG": saved(image, "PNG", optimize=True),
        "half.png": (png := saved(image, "PNG", optimize=True))[: len(png) // 2],
        "rgba.png": saved(alpha, "PNG", optimize=True),
        "la.png": saved(alpha.convert("LA"), "PNG", optimize=True),
        "gray.png": saved(image.convert("L"), "PNG", optimize=True),
        "bits1.png": saved(image.convert("1"), "PNG"),
        "palette.png": saved(image.convert("P", palette=Image.ADAPTIVE, colors=13), "PNG", transparency=3),
        "rgb16.png": sixteen_bit(image),
        "rgb.bmp": saved(picture(21, 30), "BMP"),
        "palette.gif": saved(picture(21, 30), "GIF"),
        "lossless.webp": saved(image, "WEBP", lossless=True),
    }


def decoded(data):
    try:
        return sha256(Image.open(io.BytesIO(data)))
    except OSError:
        return None


def main():
    rng = random.Random(2024)
    (HERE / "odd").mkdir(exist_ok=True)
    odd = []
    for name, data in files().items():
        (HERE / "odd" / name).write_bytes(data)
        odd.append({"file": name, "sha256": decoded(data)})
    more = {"ops": list(ops(rng)), "resize": list(resizes(rng)), "odd": odd}
    lines = (f'"{kind}": [\n' + ",\n".join(map(json.dumps, cases)) + "\n]" for kind, cases in more.items())
    (HERE / "more.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
