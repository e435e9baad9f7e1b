#!/usr/bin/env python3
"""Feed vim-train what is broken, and watch how it ends.

    scripts/attack.py BINARY                        every group, 40 attempts each
    scripts/attack.py BINARY --count 400 --seed 7   more, at other places
    scripts/attack.py BINARY --only pickles,tars    some groups

An attempt fails the program if it ends by a signal or with an exit code that docs/resume.md does not list, says that
it panicked or met an internal error, writes more than 8 KiB of messages or a control character, takes over 30
seconds, or over 1 GiB of memory; if it ends with an error and not one line begins with `error: `, or more do; or if it
accepts what must be refused. Some groups allow less.

  configs      configurations with bytes, lines and values changed: train --dry-run
  checkpoints  files of a checkpoint cut, changed or exchanged: eval, which checks every file against the manifest;
               and a paused run's metrics.jsonl, which resuming checks: then it goes on to the same bytes
  pickles      a .pth file with bytes changed, or cut: import
  images       PNG and JPEG files with bytes changed, cut, or with sizes that lie: predict
  jpegs        JPEGs with damaged headers between good ones: data verify names these and no others
  tars         an image archive with bytes changed, or cut: data scan
  zips         zips of pairs that lie about checksums, lengths, places, names: data verify, data scan and train refuse
               them or name the entry, in 500 MiB, and accept unusual ones that are right
  bombs        gzip members, zips, PNG files, polygons and strings that grow when they are read: predict, train
               --dry-run, data scan, eval --coco
  sizes        sparse files of 6 GiB and /dev/zero as each file that is read whole, in an address space of 3 GiB:
               named, and not read to their end
  streams      outputs closed, full or broken, limits of files and memory: train to its end, to the same bytes
  writers      commands that write one output at once end well, and leave what one of them leaves; they follow no link;
               16 commands that write, killed at random moments and, where strace is there and may trace, at a write,
               sync or rename, leave files whole or absent, and the next one leaves nothing besides
  disks        a tmpfs with too few bytes or inodes: train ends with 74 or well, then goes on to the same bytes; the
               16 commands end with 74 or well and leave files whole or absent
               (mounts, so it needs root; without root the group is not run, and the exit code is 3)

Exit code: 0 nothing broke; 1 something did; 3 nothing broke, but a group could not be run.
Needs Python alone. The Linux kernel measures the memory of a process. The groups are in scripts/attack/.
"""

import argparse
import os
import pathlib
import sys
import tempfile

from attack.bombs import bombs
from attack.damaged import checkpoints, configs, images, pickles, tars
from attack.disks import disks
from attack.jpegs import jpegs
from attack.sizes import sizes
from attack.storm import Storm, train
from attack.streams import streams
from attack.writers import writers
from attack.zips import zips

GROUPS = [configs, checkpoints, pickles, images, jpegs, tars, zips, bombs, sizes, streams, writers, disks]


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
        # One below, so that what is written outside is seen, and removed.
        work = pathlib.Path(folder).resolve() / "work"
        work.mkdir()
        first = Storm(arguments.binary.resolve(), work, 0, 0)
        train(first, "the undisturbed run", "debug")
        if first.wrong:
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
            for note in storm.notes:
                print(f"  {note}")
            failed += storm.wrong
    for line in failed:
        print(f"WRONG {line}")
    sys.exit(1 if failed else 3 if left_out else 0)


if __name__ == "__main__":
    main()
