#!/usr/bin/env python3
"""Make images and plans, and time Pillow and PyTorch on them, to compare vim-data's transform with.

  make FOLDER            48 synthetic JPEGs of about 500 x 375, 4:4:4 at quality 90, 103 KB in the mean
                         (ImageNet's: 115), and plans.json: crops, flips and RandAugment operations, three
                         per file, drawn as timm draws them
  time FOLDER            images per second of CPU time, one line of JSON per case: Pillow with those plans,
                         timm's transform and torch's DataLoader with draws of their own
  table OURS THEIRS      the lines of both side by side, the best of each case, and the ratios

Everything runs in one thread, the DataLoader's workers apart, and is measured in CPU time (of the process
and its children), as other programs may run beside it. "full" is the whole training transform: theirs ends
with floating point, normalised and erased; ours with bytes, as vim-train does the rest on the device.
`--no-torch` leaves out what needs torch.

Needs Python 3.9 or later, numpy and pillow; for all cases torch, torchvision and timm. scripts/compare/compare_loader.sh
installs them from PyPI.
"""

import argparse
import io
import json
import math
import os
import random
import resource
import sys
from pathlib import Path

SIDE = 224
FILL = (124, 116, 104)
IMAGES = 48
REPEATS = 3
WORKERS = (0, 1, 2)


def photo(rng, height, width):
    """Pink noise, shapes and sensor noise: what compresses like a photograph."""
    import numpy as np

    frequencies = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    frequencies[0, 0] = 1
    planes = []
    for _ in range(3):
        noise = rng.normal(size=frequencies.shape) + 1j * rng.normal(size=frequencies.shape)
        plane = np.fft.irfft2(noise / frequencies**1.35, s=(height, width))
        planes.append(plane / plane.std())
    # Channels of photographs are alike.
    image = 118 + 50 * (0.8 * planes[0][..., None] + 0.2 * np.stack(planes, -1))
    y, x = np.mgrid[:height, :width]
    for _ in range(12):
        middle = rng.uniform((0, 0), (height, width))
        radii = rng.uniform(10, 90, 2)
        inside = ((y - middle[0]) / radii[0]) ** 2 + ((x - middle[1]) / radii[1]) ** 2 < 1
        image[inside] = 0.6 * image[inside] + 0.4 * rng.uniform(0, 255, 3)
    image += rng.normal(0, 12, (height, width, 1)) + rng.normal(0, 2.0, image.shape)
    return image.clip(0, 255).astype(np.uint8)


def crop(rng, height, width):
    """A random resized crop as timm draws it."""
    for _ in range(10):
        area = rng.uniform(0.08, 1.0) * height * width
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if w <= width and h <= height:
            top, left = rng.randint(0, height - h), rng.randint(0, width - w)
            return {"top": top, "left": left, "height": h, "width": w}
    side = min(height, width)
    return {"top": (height - side) // 2, "left": (width - side) // 2, "height": side, "width": side}


def operations(rng):
    """Two slots of rand-m9-mstd0.5-inc1, each used with probability 0.5."""
    drawn = []
    for _ in range(2):
        op = rng.choice(
            "auto_contrast equalize invert rotate posterize solarize solarize_add color contrast brightness"
            " sharpness shear_x shear_y translate_x translate_y".split()
        )
        if rng.random() > 0.5:
            continue
        level = min(max(rng.gauss(9, 0.5), 0), 10) / 10
        sign = rng.choice((-1, 1))
        arguments = {
            "rotate": {"degrees": 30 * level * sign},
            "posterize": {"bits": 4 - int(4 * level)},
            "solarize": {"threshold": 256 - int(256 * level)},
            "solarize_add": {"add": int(110 * level)},
        }
        for name in ("color", "contrast", "brightness", "sharpness"):
            arguments[name] = {"factor": 1 + 0.9 * level * sign}
        for name in ("shear_x", "shear_y"):
            arguments[name] = {"factor": 0.3 * level * sign}
        for name in ("translate_x", "translate_y"):
            arguments[name] = {"pixels": 0.45 * level * sign * SIDE}
        drawn.append({"op": op, **arguments.get(op, {})})
    return drawn


def make(folder):
    """Write the images and the plans."""
    import numpy as np
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    noise, rng = np.random.default_rng(1), random.Random(1)
    plans, total = [], 0
    for number in range(IMAGES):
        height, width = rng.choice(((375, 500), (333, 500), (500, 375), (375, 500)))
        file = folder / f"{number:02}.jpg"
        Image.fromarray(photo(noise, height, width)).save(file, quality=90, subsampling=0)
        total += file.stat().st_size
        draws = [
            {"crop": crop(rng, height, width), "flip": rng.random() < 0.5, "ops": operations(rng)}
            for _ in range(REPEATS)
        ]
        plans.append({"file": file.name, "draws": draws})
    (folder / "plans.json").write_text(json.dumps(plans))
    print(f"{IMAGES} files of {total / IMAGES / 1000:.0f} KB in the mean in {folder}", file=sys.stderr)


def cpu_seconds():
    """CPU time of this process and of those of its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def best(rounds, case):
    """Images per second of CPU time in the best round."""
    rates = []
    for _ in range(rounds):
        start = cpu_seconds()
        images = case()
        rates.append(images / (cpu_seconds() - start))
    return max(rates)


def report(who, case, rate):
    """One line of the result."""
    print(json.dumps({"who": who, "case": case, "images_per_cpu_second": round(rate, 1)}), flush=True)


def time_pillow(folder, rounds):
    """Decoding, and decoding with the plans' crops and flips."""
    import PIL
    from PIL import Image

    plans = json.loads((folder / "plans.json").read_text())
    files = [((folder / plan["file"]).read_bytes(), plan["draws"]) for plan in plans]
    who = f"pillow {PIL.__version__}"

    def decode():
        for data, _ in files:
            Image.open(io.BytesIO(data)).convert("RGB")
        return len(files)

    def crop_flip():
        count = 0
        for data, draws in files:
            for draw in draws:
                box = draw["crop"]
                image = Image.open(io.BytesIO(data)).convert("RGB")
                edges = (box["left"], box["top"], box["left"] + box["width"], box["top"] + box["height"])
                image = image.crop(edges).resize((SIDE, SIDE), Image.BICUBIC)
                if draw["flip"]:
                    image = image.transpose(Image.FLIP_LEFT_RIGHT)
                count += 1
        return count

    report(who, "decode", best(rounds, decode))
    report(who, "decode + crop + flip", best(rounds, crop_flip))


class Folder:
    """The files as a dataset of torch: encoded bytes in memory, decoded and transformed one by one."""

    def __init__(self, folder, transform):
        self.files = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))] * REPEATS
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        from PIL import Image

        return self.transform(Image.open(io.BytesIO(self.files[index])).convert("RGB")), 0


def time_torch(folder, rounds):
    """The whole training transform, alone and in a DataLoader."""
    try:
        import timm
        import torch
        from timm.data import create_transform
    except ImportError as error:
        sys.exit(f"error: {error}; install torch, torchvision and timm, or pass --no-torch")
    torch.set_num_threads(1)
    transform = create_transform(
        input_size=SIDE,
        is_training=True,
        color_jitter=0.3,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="bicubic",
        re_prob=0.25,
        re_mode="pixel",
        re_count=1,
    )
    data = Folder(folder, transform)
    who = f"timm {timm.__version__}"

    def alone():
        for index in range(len(data)):
            data[index]
        return len(data)

    report(who, "full", best(rounds, alone))
    for workers in WORKERS:
        loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True, num_workers=workers)

        def epoch(loader=loader):
            return sum(len(labels) for _, labels in loader)

        who = f"torch {torch.__version__} DataLoader, {workers} workers"
        report(who, "full", best(rounds, epoch))


def read(path):
    """The best line of each program and case."""
    found = {}
    for line in Path(path).read_text().splitlines():
        record = json.loads(line)
        if "case" in record:
            key = (record["who"], record["case"])
            found[key] = max(found.get(key, 0), record["images_per_cpu_second"])
    return found


def table(ours, theirs):
    """Every case of ours against every one of theirs that does as much or less."""
    print(f"{'images per CPU-second':34} {'ours':>8}  {'against':44} {'theirs':>8} {'ratio':>6}")
    for (_, case), rate in read(ours).items():
        for (who, their_case), their_rate in read(theirs).items():
            if their_case == case.removesuffix(", repeated"):
                print(f"{case:34} {rate:8.0f}  {who:44} {their_rate:8.0f} {rate / their_rate:6.2f}")


def parser():
    """The command line."""
    summary, rest = __doc__.split("\n\n", 1)
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("make", help="write images and plans")
    command.add_argument("folder", type=Path)
    command = commands.add_parser("time", help="time the peers")
    command.add_argument("folder", type=Path)
    command.add_argument("--rounds", type=int, default=8, metavar="N", help="the best of N counts; 8")
    command.add_argument("--no-torch", action="store_true", help="Pillow alone")
    command = commands.add_parser("table", help="ours against theirs")
    command.add_argument("ours", type=Path)
    command.add_argument("theirs", type=Path)
    return parser


def main():
    """Do what is asked for."""
    # Before numpy or torch start threads of their own.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    args = parser().parse_args()
    if args.command == "make":
        make(args.folder)
    elif args.command == "table":
        table(args.ours, args.theirs)
    else:
        time_pillow(args.folder, args.rounds)
        if not args.no_torch:
            time_torch(args.folder, args.rounds)


if __name__ == "__main__":
    main()
