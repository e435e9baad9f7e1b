#!/usr/bin/env python3
"""Histograms of what timm and torchvision draw, to compare our draws with.

    python3 -m venv venv
    venv/bin/pip install timm==0.4.12 torch==2.1.1 torchvision==0.16.1 numpy==1.26.2 Pillow==10.1.0
    venv/bin/python scripts/reference_draws.py > crates/vim-data/tests/fixtures/reference_draws.json

Every histogram is a list of counts over bins of equal width: `bins(values, low, high, count)`, values outside
in the first or last bin. crates/vim-data/tests/it/draws.rs has the same bins and says which draws they are of.
The draws are seeded, so that the same versions print the same table.
"""

import json
import random
import re

import numpy as np
import torch
from timm.data.auto_augment import rand_augment_transform
from timm.data.mixup import Mixup, cutmix_bbox_and_lam
from timm.data.random_erasing import RandomErasing
from timm.data.transforms import RandomResizedCropAndInterpolation
from torchvision.transforms import ColorJitter

DRAWS = 300_000


def bins(values, low, high, count):
    counts = [0] * count
    for value in values:
        place = int((value - low) / (high - low) * count) if value > low else 0
        counts[min(place, count - 1)] += 1
    return counts


def places(starts, rooms):
    """Where boxes begin, as a share of the room that they have."""
    return bins((start / room for start, room in zip(starts, rooms) if room > 0), 0.0, 1.0, 10)


def crop(height, width):
    class Sized:
        size = (width, height)

    drawn = [
        RandomResizedCropAndInterpolation.get_params(Sized, (0.08, 1.0), (3 / 4, 4 / 3))
        for _ in range(DRAWS)
    ]
    return {
        "source": [height, width],
        "area": bins((h * w / (height * width) for _, _, h, w in drawn), 0.0, 1.0, 20),
        "ratio": bins((w / h for _, _, h, w in drawn), 0.7, 1.4, 20),
        "top": places((i for i, _, _, _ in drawn), (height - h for _, _, h, _ in drawn)),
        "left": places((j for _, j, _, _ in drawn), (width - w for _, _, _, w in drawn)),
    }


def erase(size, count):
    class Canvas:
        boxes = []

        def __setitem__(self, index, _):
            _, rows, columns = index
            self.boxes.append((rows.start, columns.start, rows.stop - rows.start, columns.stop - columns.start))

    erasing = RandomErasing(0.25, mode="const", max_count=count, device="cpu")
    per_image, drawn = [], []
    for _ in range(DRAWS):
        canvas = Canvas()
        canvas.boxes = []
        erasing._erase(canvas, 3, size, size, torch.float32)
        per_image.append(len(canvas.boxes))
        drawn += canvas.boxes
    return {
        "size": size,
        "count": count,
        "boxes": bins(per_image, -0.5, count + 0.5, count + 1),
        "area": bins((h * w / (size * size) for _, _, h, w in drawn), 0.0, 0.4, 20),
        "ratio": bins((h / w for _, _, h, w in drawn), 0.2, 3.8, 20),
        "top": places((i for i, _, _, _ in drawn), (size - h for _, _, h, _ in drawn)),
        "left": places((j for _, j, _, _ in drawn), (size - w for _, _, _, w in drawn)),
    }


def rand_augment(config):
    transform = rand_augment_transform(config, {"interpolation": 3, "img_mean": (124, 116, 104)})
    names = [op.aug_fn.__name__ for op in transform.ops]
    applied = []
    for place, op in enumerate(transform.ops):
        op.aug_fn = lambda img, *args, place=place, **_: applied.append((place, *args))
    chosen, counts, values = [], [], {}
    for _ in range(DRAWS):
        applied.clear()
        transform(None)
        counts.append(len(applied))
        for place, *args in applied:
            chosen.append(place)
            if args:
                values.setdefault(names[place], []).append(args[0])
    layers = transform.num_layers
    widest = {"rotate": 30, "shear_x": 0.3, "shear_y": 0.3, "translate_x_rel": 0.45, "translate_y_rel": 0.45}
    ranges = {name: (-most, most) for name, most in widest.items()}
    ranges |= {"posterize": (-0.5, 4.5), "solarize": (0, 257), "solarize_add": (0, 111)}
    return {
        "config": config,
        "names": names,
        "chosen": bins(chosen, -0.5, 14.5, 15),
        "applied": bins(counts, -0.5, layers + 0.5, layers + 1),
        "values": {
            name: bins(found, *ranges.get(name, (0.1, 1.9)), 5 if name == "posterize" else 24)
            for name, found in sorted(values.items())
        },
    }


def jitter(most):
    factors, orders = [[], [], []], []
    transform = ColorJitter(most, most, most)
    for _ in range(DRAWS // 3):
        order, *drawn, _ = transform.get_params(
            transform.brightness, transform.contrast, transform.saturation, transform.hue
        )
        for kept, factor in zip(factors, drawn):
            kept.append(factor)
        kept = [place for place in order.tolist() if place < 3]  # 3 is the hue, which is off
        orders.append(kept[0] * 2 + (kept[1] > kept[2]))
    return {
        "most": most,
        "factors": [bins(drawn, 1 - most, 1 + most, 12) for drawn in factors],
        "orders": bins(orders, -0.5, 5.5, 6),
    }


def mix(size, minmax):
    mixup = Mixup(0.8, 1.0, minmax, prob=0.9, switch_prob=0.4)
    lambdas = {"mixup": [], "cutmix": []}
    kinds = []
    tops, heights = [], []
    for _ in range(DRAWS):
        lam, cut = mixup._params_per_batch()
        if lam == 1.0:
            kinds.append(0)
            continue
        kinds.append(2 if cut else 1)
        if cut:
            (yl, yh, _, _), lam = cutmix_bbox_and_lam((3, size, size), lam, ratio_minmax=minmax)
            tops.append(yl)
            heights.append(yh - yl)
        lambdas["cutmix" if cut else "mixup"].append(lam)
    return {
        "size": size,
        "minmax": minmax,
        "kinds": bins(kinds, -0.5, 2.5, 3),
        "mixup": bins(lambdas["mixup"], 0.0, 1.0, 20),
        "cutmix": bins(lambdas["cutmix"], 0.0, 1.0, 20),
        "top": bins((top / size for top in tops), 0.0, 1.0, 16),
        "height": bins((height / size for height in heights), 0.0, 1.0, 16),
    }


def main():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    table = {
        "draws": DRAWS,
        "crop": [crop(375, 500), crop(500, 333), crop(32, 32), crop(90, 600), crop(600, 61)],
        "erase": [erase(224, 1), erase(32, 1), erase(32, 3)],
        "rand_augment": [rand_augment(c) for c in ("rand-m9-mstd0.5-inc1", "rand-m5-n3-mstd2.0-w0", "rand-m7")],
        "jitter": [jitter(0.3)],
        "mix": [mix(224, None), mix(32, None), mix(224, (0.2, 0.8))],
    }
    # A number's line break and indentation go, so that a histogram is one line.
    text = re.sub(r"\s+(-?[\d.]+,?)(?=\s)", r" \1", json.dumps(table, indent=1))
    print(re.sub(r"(\d)\s+\]", r"\1]", text).replace("[ ", "["))


if __name__ == "__main__":
    main()
