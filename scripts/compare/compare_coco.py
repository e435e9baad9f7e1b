#!/usr/bin/env python3
"""COCO's twelve numbers by `vim-train eval --coco` beside pycocotools', on random annotations and detections.

    scripts/compare/compare_coco.py BINARY                  52 sets, by boxes and by masks
    scripts/compare/compare_coco.py BINARY --sets 400       more
    scripts/compare/compare_coco.py BINARY --files A.json D.json   these files

The sets have crowds, equal scores, over 100 detections an image, boxes outside of the image and of no area, scores
below 0, large ids, and masks as polygons and as run lengths in both spellings. Annotations have numbers from 1 on:
pycocotools takes a match with annotation 0 for none.

Exit code: 0 every number is within 1e-9; 1 one is not. Needs pycocotools and NumPy.
"""

import argparse
import contextlib
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np
from pycocotools import mask as masks
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

SIDE = 64


def polygon(rng, x, y, w, h):
    """A triangle or a quadrangle within the box."""
    points = [(x, y), (x + w, y + rng.random() * h), (x + w * rng.random(), y + h)]
    if rng.random() < 0.5:
        points.append((x, y + h * rng.random()))
    return [[round(v, 2) for point in points for v in point]]


def runs(rng, x, y, w, h, compressed):
    """Run lengths of a box's pixels, some of them left out."""
    grid = np.zeros((SIDE, SIDE), dtype=np.uint8, order="F")
    grid[max(int(y), 0) : int(y + h) + 1, max(int(x), 0) : int(x + w) + 1] = 1
    if rng.random() < 0.5:
        grid[:, rng.randrange(SIDE)] = 0
    if compressed:
        coded = masks.encode(grid)
        return {"size": [SIDE, SIDE], "counts": coded["counts"].decode()}
    flat = grid.flatten(order="F")
    ends = np.flatnonzero(np.diff(flat)) + 1
    counts = np.diff(np.concatenate(([0], ends, [flat.size]))).tolist()
    return {"size": [SIDE, SIDE], "counts": [0] + counts if flat[0] else counts}


def box(rng):
    """One within the image, across its edge, or of no width."""
    kind = rng.random()
    w, h = (rng.random() * SIDE * 0.6 + 1 for _ in range(2))
    x, y = (rng.random() * (SIDE - 2) for _ in range(2))
    if kind < 0.05:
        w = 0.0
    elif kind > 0.1:
        w, h = min(w, SIDE - x), min(h, SIDE - y)
    return [round(v, 2) for v in (x, y, w, h)]


def random_set(seed):
    """Annotations and detections. Every second set's detections have masks."""
    rng = random.Random(seed)
    images = [{"id": rng.choice([n, 10**9 + n]), "width": SIDE, "height": SIDE, "file_name": f"{n}.png"}
              for n in range(1, rng.randrange(3, 12))]
    categories = [{"id": n * 7, "name": f"class {n}"} for n in range(1, rng.randrange(2, 6))]
    annotations, detections = [], []
    for image in images:
        for _ in range(rng.randrange(0, 8)):
            bbox, crowd = box(rng), rng.random() < 0.15
            mask = runs(rng, *bbox, rng.random() < 0.5) if crowd or rng.random() < 0.3 else polygon(rng, *bbox)
            annotations.append({
                "id": len(annotations) + 1, "image_id": image["id"], "category_id": rng.choice(categories)["id"],
                "bbox": bbox, "area": round(bbox[2] * bbox[3], 2), "iscrowd": int(crowd), "segmentation": mask,
            })
        of_image = [one for one in annotations if one["image_id"] == image["id"]]
        for _ in range(150 if rng.random() < 0.1 else rng.randrange(0, 12)):
            truth = rng.choice(of_image) if of_image and rng.random() < 0.7 else None
            bbox = [round(v + rng.gauss(0, 2), 2) for v in truth["bbox"]] if truth else box(rng)
            bbox[2:] = [max(v, 0.0) for v in bbox[2:]]
            found = {
                "image_id": image["id"], "bbox": bbox,
                "category_id": truth["category_id"] if truth and rng.random() < 0.9 else rng.choice(categories)["id"],
                "score": rng.choice([0.5, -0.25, round(rng.random(), 3)]),
            }
            if seed % 2:
                del found["bbox"]
                found["segmentation"] = runs(rng, *bbox, True)
            detections.append(found)
    return {"images": images, "categories": categories, "annotations": annotations}, detections


def theirs(annotations, detections, kind):
    """pycocotools' numbers; None for -1."""
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(annotations))
        compared = COCOeval(truth, truth.loadRes(str(detections)), kind)
        compared.evaluate()
        compared.accumulate()
        compared.summarize()
    return [None if number == -1 else float(number) for number in compared.stats]


def ours(binary, annotations, detections):
    """The numbers of each kind that the program compares by."""
    run = subprocess.run([binary, "eval", "--coco", annotations, detections, "--json"], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{annotations}: {run.stderr.strip()}")
    report = json.loads(run.stdout)
    names = ["AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large",
             "AR1", "AR10", "AR100", "AR_small", "AR_medium", "AR_large"]
    return {kind: [report[kind][name] for name in names] for kind in ("bbox", "segm") if kind in report}


def compare(binary, annotations, detections):
    """The number of comparisons, and the largest difference; None on one side alone counts as 1."""
    count, worst = 0, 0.0
    for kind, found in ours(binary, annotations, detections).items():
        for one, other in zip(found, theirs(annotations, detections, kind), strict=True):
            difference = abs(one - other) if None not in (one, other) else float(one is not other)
            worst = max(worst, difference)
        count += 1
    return count, worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--sets", type=int, default=52)
    parser.add_argument("--files", nargs=2, metavar=("ANNOTATIONS", "DETECTIONS"))
    arguments = parser.parse_args()
    count, worst = 0, 0.0
    with tempfile.TemporaryDirectory() as work:
        def pairs():
            if arguments.files:
                yield arguments.files
                return
            for seed in range(arguments.sets):
                paths = [pathlib.Path(work) / name for name in ("annotations.json", "detections.json")]
                for path, content in zip(paths, random_set(seed)):
                    path.write_text(json.dumps(content))
                if json.loads(paths[1].read_text()):
                    yield paths
        for annotations, detections in pairs():
            compared, difference = compare(arguments.binary, annotations, detections)
            if difference > 1e-9:
                print(f"{annotations}, set {count}: off by {difference:.3e}")
            count, worst = count + compared, max(worst, difference)
    print(f"{count} comparisons of twelve numbers, the largest difference {worst:.1e}")
    sys.exit(worst > 1e-9 or count == 0)


main()
