#!/usr/bin/env python3
"""Feed vim-train what is broken, and watch how it ends.

    scripts/attack.py BINARY                        every group, 40 attempts each
    scripts/attack.py BINARY --count 400 --seed 7   more, at other places
    scripts/attack.py BINARY --only pickles,tars    some groups

An attempt fails the program if it ends by a signal or with an exit code that docs/resume.md does not list, says that
it panicked or met an internal error, writes more than 8 KiB of messages or a control character, takes over 30
seconds, or over 1 GiB of memory; or if it accepts what must be refused.

  configs      configurations with bytes, lines and values changed: train --dry-run
  checkpoints  files of a checkpoint cut, changed or exchanged: eval, which checks every file against the manifest;
               and a paused run's metrics.jsonl, which resuming checks: then it goes on to the same bytes
  pickles      a .pth file with bytes changed, or cut: import
  images       PNG and JPEG files with bytes changed, cut, or with sizes that lie: predict
  tars         an image archive with bytes changed, or cut: data scan
  bombs        gzip members, PNG files and strings that grow when they are read: predict, train --dry-run
  streams      outputs closed, full or broken, limits of files and memory: train to its end, to the same bytes
  disks        a tmpfs with too few bytes or inodes: train ends with 74 or well, then goes on to the same bytes
               (mounts, so it needs root; without root the group is not run, and the exit code is 3)

Exit code: 0 nothing broke; 1 something did; 3 nothing broke, but a group could not be run.
Needs Python alone. The Linux kernel measures the memory of a process.
"""

import argparse
import contextlib
import gzip
import io
import os
import pathlib
import random
import resource
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zlib

HERE = pathlib.Path(__file__).resolve().parent.parent
DEBUG = HERE / "configs/debug.toml"
CODES = {0, 1, 2, 65, 69, 71, 73, 74, 75, 76, 78, 79, 130}
SECONDS, MEMORY_MIB, TEXT = 30, 1024, 8192


class Storm:
    def __init__(self, binary, work, count, seed):
        self.binary, self.work, self.count = binary, work, count
        self.random = random.Random(seed)
        self.attempts, self.refused, self.wrong = 0, 0, []
        self.slowest, self.largest = 0.0, 0

    def run(self, what, *arguments, refuse=False, prepare=None, quiet=False, **streams):
        """Runs the program; notes what is wrong with its end. Returns the exit code."""
        self.attempts += 1
        start = time.monotonic()
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
        environment = os.environ | {"XDG_CACHE_HOME": str(self.work / "cache"), "NO_COLOR": "1"}
        child = subprocess.Popen(
            [self.binary, *map(str, arguments)], env=environment, preexec_fn=prepare, cwd=self.work, **streams
        )
        timer = threading.Timer(SECONDS, child.kill)
        timer.start()
        text = b""
        readers = [stream for stream in (child.stdout, child.stderr) if stream]
        threads = []
        pieces = []
        for stream in readers:
            thread = threading.Thread(target=lambda stream=stream: pieces.append(stream.read()))
            thread.start()
            threads.append(thread)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        timer.cancel()
        for thread in threads:
            thread.join()
        text = b"".join(pieces)
        seconds, mib = time.monotonic() - start, usage.ru_maxrss // 1024
        self.slowest, self.largest = max(self.slowest, seconds), max(self.largest, mib)
        code = child.returncode
        self.refused += code != 0
        faults = []
        if code not in CODES:
            faults.append(f"exit code {code}")
        if b"panicked" in text or b"internal error" in text:
            faults.append("a panic")
        if not quiet and len(text) > TEXT:
            faults.append(f"{len(text)} bytes of messages")
        if any(byte < 32 and byte not in b"\n\t" or byte == 127 for byte in text):
            faults.append("a control character")
        if seconds >= SECONDS:
            faults.append(f"{seconds:.0f} s")
        if mib > MEMORY_MIB:
            faults.append(f"{mib} MiB")
        if refuse and code == 0:
            faults.append("accepted")
        if faults:
            first = text.decode(errors="replace").strip().splitlines()[-1:]
            self.wrong.append(f"{what}: {', '.join(faults)}: {' '.join(first)[:200]!r}")
        return code

    def mutated(self, content):
        """`content` cut, or with some bytes changed, moved or repeated."""
        content, place = bytearray(content), self.random.randrange(len(content))
        kind = self.random.randrange(5)
        if kind == 0:
            return bytes(content[:place])
        if kind == 1:
            for _ in range(self.random.randint(1, 8)):
                content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)
        elif kind == 2:
            content[place] = self.random.choice([0, 0x7F, 0x80, 0xFF])
        elif kind == 3:
            end = min(len(content), place + self.random.randint(1, 64))
            content[place:end] = content[place:end] * 2
        else:
            end = min(len(content), place + self.random.randint(1, 64))
            content[place:end] = self.random.randbytes(end - place)
        return bytes(content)


def png(width, height, rows=None, depth=8):
    """A PNG file, grey; `rows` may hold fewer bytes than the header promises."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    if rows is None:
        rows = [b"\0" + bytes(i % 256 for i in range(width))] * height
    # Piece by piece: what this process has allocated counts as its children's memory.
    packer = zlib.compressobj()
    packed = b"".join([packer.compress(row) for row in rows]) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


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


RESULT = ("metrics.jsonl", "checkpoints/step-00000024/model.safetensors")


def train(storm, what, name, root=None, codes=(0,), options=(), **more):
    code = storm.run(what, "train", DEBUG, "--set", f"run.root={root or storm.work}", "--set", f"run.name={name}",
                     "--set", "devices.threads=1", "--set", "data.workers=1", "--resume", "auto", *options, quiet=True,
                     **more)
    if code not in codes:
        storm.wrong.append(f"{what}: exit code {code}, not one of {codes}")
    return code


def compare(storm, what, root, name):
    for file in RESULT:
        try:
            same = (storm.work / "debug" / file).read_bytes() == (root / name / file).read_bytes()
        except FileNotFoundError as error:
            storm.wrong.append(f"{what}: {error.filename} is missing")
            return
        if not same:
            storm.wrong.append(f"{what}: {file} differs from the undisturbed run's")


def streams(storm):
    full, null = open("/dev/full", "wb"), subprocess.DEVNULL
    reader, broken = os.pipe()
    os.close(reader)

    def limit(kind, value):
        return lambda: resource.setrlimit(kind, (value, value))

    def closed(*numbers):
        return lambda: [os.close(number) for number in numbers]

    cases = {
        "stdout full": {"stdout": full},
        "stderr full": {"stderr": full},
        "both full": {"stdout": full, "stderr": full},
        "stdout broken": {"stdout": broken},
        "stderr broken": {"stderr": broken},
        "both closed": {"stdout": null, "stderr": null, "prepare": closed(1, 2)},
        "stdin closed": {"prepare": closed(0)},
        "64 open files": {"prepare": limit(resource.RLIMIT_NOFILE, 64)},
        "no core, 1 MiB stack": {"prepare": limit(resource.RLIMIT_STACK, 1 << 20)},
    }
    for i, (what, more) in enumerate(cases.items()):
        if train(storm, f"streams: {what}", f"stream{i}", **more) == 0:
            compare(storm, f"streams: {what}", storm.work, f"stream{i}")
    os.close(broken)
    full.close()
    # Files may grow to 64 KiB: a checkpoint may not. Then the limit is lifted, and the run goes on.
    train(storm, "streams: files of 64 KiB", "small", codes=(74,), prepare=limit(resource.RLIMIT_FSIZE, 65536))
    train(storm, "streams: resumed after that", "small")
    compare(storm, "streams: files of 64 KiB", storm.work, "small")


@contextlib.contextmanager
def tmpfs(folder, options):
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def disks(storm):
    folder = storm.work / "disk"
    sizes = [f"size={kib}k" for kib in range(64, 2048, max(64, 2048 // max(1, storm.count // 2)))]
    inodes = [f"size=16m,nr_inodes={n}" for n in range(3, 3 + storm.count // 2)]
    for options in sizes + inodes:
        with tmpfs(folder, options):
            train(storm, f"disks {options}", "run", folder, codes=(0, 74))
            subprocess.run(["mount", "-o", "remount,size=64m,nr_inodes=10k", folder], check=True)
            train(storm, f"disks {options}, with room again", "run", folder)
            compare(storm, f"disks {options}", folder, "run")


GROUPS = [configs, checkpoints, pickles, images, tars, bombs, streams, disks]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path, help="a vim-train, of any build")
    parser.add_argument("--count", type=int, default=40, help="attempts of a group (default: 40)")
    parser.add_argument("--seed", type=int, default=0, help="chooses the places (default: 0)")
    parser.add_argument("--only", help="groups, separated by commas")
    arguments = parser.parse_args()
    names = [group.__name__ for group in GROUPS]
    chosen = arguments.only.split(",") if arguments.only else names
    for name in chosen:
        if name not in names:
            parser.error(f"no group {name!r}; there are {', '.join(names)}")
    if not os.access(arguments.binary, os.X_OK):
        parser.error(f"{arguments.binary} is no program; name a vim-train, as target/release/vim-train")

    failed, left_out = [], []
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        first = Storm(arguments.binary.resolve(), work, 0, 0)
        if train(first, "the undisturbed run", "debug"):
            sys.exit(f"error: the undisturbed run failed: {first.wrong}")
        print(f"{'group':<12}{'attempts':>9}{'refused':>9}{'wrong':>7}{'slowest':>10}{'memory':>10}")
        for group in GROUPS:
            name = group.__name__
            if name not in chosen:
                continue
            if group is disks and os.geteuid() != 0:
                left_out.append(name)
                print(f"{name:<12} not run: it mounts file systems, which needs root")
                continue
            storm = Storm(arguments.binary.resolve(), work, arguments.count, f"{name} {arguments.seed}")
            group(storm)
            print(f"{name:<12}{storm.attempts:>9}{storm.refused:>9}{len(storm.wrong):>7}{storm.slowest:>8.1f} s"
                  f"{storm.largest:>6} MiB", flush=True)
            failed += storm.wrong
    for line in failed:
        print(f"WRONG {line}")
    sys.exit(1 if failed else 3 if left_out else 0)


if __name__ == "__main__":
    main()
