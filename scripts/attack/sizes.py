"""Files that are larger than memory, and devices without an end, as each file that is read whole."""

import resource

from .made import TRIANGLE, annotations, classes_folder, detections, pairs, png, segmenter, sparse
from .storm import DEBUG, limit

SIZE, SPACE = 6 << 30, 3 << 30
# Of a file whose length tells that it is too large, nothing is kept. A device is read as far as its kind goes.
MIB, MIB_OF_DEVICE = 400, 3072


def cases(storm):
    """What is read: the start of such a file, its name, and the command line that reads it at a path."""
    work, image = storm.work, png(48, 40)
    whole = work / "debug/checkpoints/last"
    good, found = work / "good.json", work / "found.json"
    good.write_text(annotations(TRIANGLE))
    found.write_text(detections())
    csv = work / "predictions.csv"
    assert storm.run("sizes: predictions", "eval", work / "debug", "--predictions", csv, "--force", codes=(0,)) == 0
    rows = csv.read_bytes()
    segment, names = segmenter(storm)
    maps = work / "sizes-maps"
    for name, content in pairs().items():
        path = maps / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    plain = ["--set", "data.dataset=pairs", "--set", f"data.path={maps}", "--set", f"data.index_cache={work}/indexes"]
    side = work / "sizes-flat"
    classes_folder(side, 1)
    (side / "flat").mkdir(exist_ok=True)
    (side / "flat/0.png").write_bytes(png(32, 32))
    flat = ["--set", "data.dataset=folder", "--set", f"data.path={side}/train", "--set", f"data.val_path={side}/flat"]
    return {
        "image of predict": (image, "x.png", lambda path: ["predict", path, "--checkpoint", whole]),
        "image of features": (image, "x.png", lambda path: ["features", path, "--checkpoint", whole, "-o", work / "x.npz"]),
        "classes of data": (b"a\nb\n", "c.txt", lambda path: ["data", "scan", segment, *plain, "--set", f"data.classes={path}"]),
        "classes of predict": (b"a\nb\n", "c.txt", lambda path: ["predict", side / "flat/0.png", "--checkpoint", whole, "--classes", path]),
        "labels": (b"a\n", "l.txt", lambda path: ["data", "scan", *flat, "--set", f"data.val_labels={path}"]),
        "annotations": (good.read_bytes(), "a.json", lambda path: ["eval", "--coco", path, found]),
        "detections": (found.read_bytes(), "d.json", lambda path: ["eval", "--coco", good, path]),
        "script": (b"python main.py\n", "s.sh", lambda path: ["config", "migrate", path]),
        "predictions": (rows, "p.csv", lambda path: ["eval", "compare", csv, path]),
        "first predictions": (rows, "p.csv", lambda path: ["eval", "compare", path, csv]),
        "measurements": (b"{}\n", "b.json", lambda path: ["bench", "compare", path, "-o", work / "compared"]),
        "weights": (b"PK\x03\x04", "w.pth", lambda path: ["import", path]),
        "weights of eval": (b"\x80", "w.safetensors", lambda path: ["eval", DEBUG, "--checkpoint", path]),
    }


def sizes(storm):
    prepare = limit(resource.RLIMIT_AS, SPACE)
    for what, (start, name, command) in cases(storm).items():
        path = sparse(storm.work / name, start, SIZE)
        storm.run(f"sizes: {what} of 6 GiB", *command(path), codes=(65,), memory=MIB, names=[name], prepare=prepare)
        path.unlink()
        # 74: the address space ends before the most that annotations may have.
        storm.run(f"sizes: {what} of /dev/zero", *command("/dev/zero"), codes=(65, 74), memory=MIB_OF_DEVICE,
                  names=["/dev/zero"], prepare=prepare)
    # In a folder of data, where the others are good.
    root = classes_folder(storm.work / "sizes")
    sparse(root / "train/a/huge.png", png(32, 32), SIZE)
    data = ["--set", "data.dataset=folder", "--set", f"data.path={root}", "--set", f"data.index_cache={storm.work}/indexes"]
    once = ["--set", f"run.root={storm.work}/sizes-runs", "--set", "devices.threads=1", "--set", "data.bad_train=fail",
            "--fresh"]
    small = ["--set", "train.batch_size=4", "--set", "train.epochs=1", "--set", "optim.warmup=1st"]
    segment, names = segmenter(storm)
    maps = ["--set", "data.dataset=pairs", "--set", f"data.path={storm.work}/sizes-maps", "--set", f"data.classes={names}"]
    sparse(storm.work / "sizes-maps/annotations/training/03.png", png(48, 40, value=1), SIZE)
    both = {"memory": MIB, "quiet": True, "prepare": prepare}
    for what, name, arguments in (
        ("verify", "huge.png", ["data", "verify", *data]),
        ("pack", "huge.png", ["data", "pack", "-o", storm.work / "sizes-pack", *data]),
        ("train", "huge.png", ["train", DEBUG, *data, *once, *small]),
        ("verify of maps", "03.png", ["data", "verify", segment, *maps]),
        ("train of maps", "03.png", ["train", segment, *maps, *once]),
    ):
        storm.run(f"sizes: {what}", *arguments, codes=(65,), names=[name], **both)
    storm.run("sizes: scan", "data", "scan", *data, codes=(0, 65), **both)
    # Annotations of a dataset.
    coco = storm.work / "sizes-coco"
    for part in ("train2017", "val2017"):
        (coco / part).mkdir(parents=True)
        (coco / part / "1.png").write_bytes(png(64, 64))
    (coco / "annotations").mkdir()
    text = annotations(TRIANGLE).encode()
    (coco / "annotations/instances_val2017.json").write_bytes(text)
    sparse(coco / "annotations/instances_train2017.json", text, SIZE)
    storm.run("sizes: annotations of data", "data", "scan", "--set", "data.dataset=coco", "--set", f"data.path={coco}",
              codes=(65,), names=["instances_train2017.json"], **both)
