"""File systems without room."""

import contextlib
import subprocess

from .outputs import emptied, folder, judge, outputs, undisturbed
from .storm import compare, train


@contextlib.contextmanager
def tmpfs(folder, options):
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def disks(storm):
    root = storm.work / "disk"
    sizes = [f"size={kib}k" for kib in range(64, 2048, max(64, 2048 // max(1, storm.count // 2)))]
    inodes = [f"size=16m,nr_inodes={n}" for n in range(3, 3 + storm.count // 2)]
    for options in sizes + inodes:
        with tmpfs(root, options):
            train(storm, f"disks {options}", "run", root, codes=(0, 74))
            subprocess.run(["mount", "-o", "remount,size=64m,nr_inodes=10k", root], check=True)
            train(storm, f"disks {options}, with room again", "run", root)
            compare(storm, f"disks {options}", root, "run")
    written(storm)


def written(storm):
    """What commands write is whole or absent on disks of 4 to 600 KiB."""
    commands = outputs(storm)
    expected = undisturbed(storm, commands)
    emptied(storm)
    for output in commands:
        for kib in storm.random.sample([4, 16, 64, 200, 600], min(5, max(2, storm.count // 8))):
            what = f"disks of {kib} KiB: {output.name}"
            with tmpfs(folder(storm), f"size={kib}k"):
                code = storm.run(what, *output.arguments, codes=(0, 74), quiet=True)
                judge(storm, what, output, code, expected[output.name])
