"""Files with bytes changed, cut, exchanged, or with sizes that lie."""

import io
import tarfile

from .made import png
from .storm import DEBUG, compare, train

ODD = ["-1", "0", "1e400", "nan", '""', '"\\u001b[31mred"', "[]", "{}", "99999999999999999999", "4294967295", "true", '"../.."', "[1, [2]]"]


def configs(storm):
    lines = DEBUG.read_text().splitlines()
    for i in range(storm.count):
        path = storm.work / "odd.toml"
        if i % 3 == 0:
            path.write_bytes(storm.mutated(DEBUG.read_bytes()))
        else:
            changed = list(lines)
            keys = [n for n, line in enumerate(changed) if " = " in line and not line.startswith("#")]
            place = storm.random.choice(keys)
            changed[place] = changed[place].split(" = ")[0] + " = " + storm.random.choice(ODD)
            path.write_text("\n".join(changed) + "\n")
        storm.run(f"configs {i}", "train", path, "--dry-run", "--set", f"run.root={storm.work}/runs")


def checkpoints(storm):
    run = storm.work / "debug"
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    files = [path for path in sorted(newest.iterdir()) if path.is_file()]
    for i in range(storm.count):
        path = storm.random.choice(files)
        good = path.read_bytes()
        bad = storm.mutated(good)
        path.write_bytes(bad)
        # A file that eval does not need may be damaged, as the optimizer's.
        needed = path.name.startswith("model") and bad != good
        storm.run(f"checkpoints {i}: {path.name}", "eval", DEBUG, "--set", f"run.root={storm.work}", "--set",
                  "run.name=debug", "--checkpoint", newest, refuse=needed)
        path.write_bytes(good)
    train(storm, "checkpoints: a run paused at step 12", "paused", options=("--steps", "12"))
    path = storm.work / "paused/metrics.jsonl"
    good = path.read_bytes()
    for i in range(storm.count):
        bad = storm.mutated(good)
        # Records behind those that the checkpoint knows are written again.
        if not bad.startswith(good):
            path.write_bytes(bad)
            train(storm, f"checkpoints {i}: {path.name}", "paused", codes=(74,))
            if path.read_bytes() != bad:
                storm.wrong.append(f"checkpoints {i}: {path.name} was written though it was refused")
    path.write_bytes(good + b"{}\n")
    train(storm, "checkpoints: resumed with its records", "paused")
    compare(storm, "checkpoints: resumed with its records", storm.work, "paused")


def pickles(storm):
    good = storm.work / "good.pth"
    assert storm.run("pickles: export", "export", storm.work / "debug", "--checkpoint", "last", "-o", good) == 0
    content = good.read_bytes()
    for i in range(storm.count):
        path = storm.work / "bad.pth"
        path.write_bytes(storm.mutated(content))
        storm.run(f"pickles {i}", "import", path)


def images(storm):
    good = png(64, 48)
    for i in range(storm.count):
        path = storm.work / "bad.png"
        path.write_bytes(storm.mutated(good))
        storm.run(f"images {i}", "predict", path, "--checkpoint", storm.work / "debug/checkpoints/last", quiet=True)
    for name, content in {
        "huge.png": png(100_000, 100_000, [b"\0" * 1000]),
        "none.png": b"",
        "text.jpg": b"hello",
        "header.jpg": b"\xff\xd8\xff\xc0\x00\x11\x08\xff\xff\xff\xff\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01",
        "e\x1b[31mvil\n.png": b"bad",
    }.items():
        path = storm.work / name
        path.write_bytes(content)
        storm.run(f"images {name!r}", "predict", path, "--checkpoint", storm.work / "debug/checkpoints/last", refuse=True)


def tars(storm):
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w") as archive:
        for part in ("train", "val"):
            for name in ("a", "b"):
                for i in range(4):
                    entry = tarfile.TarInfo(f"{part}/{name}/{i}.png")
                    content = png(16 + i, 16)
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
    for i in range(storm.count):
        path = storm.work / "bad.tar"
        path.write_bytes(storm.mutated(memory.getvalue()))
        storm.run(f"tars {i}", "data", "scan", "--set", "data.dataset=folder", "--set", f"data.path={path}", quiet=True)
