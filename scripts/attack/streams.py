"""Outputs that are closed, full or broken, and limits of the system."""

import os
import resource
import subprocess

from .storm import compare, limit, train


def streams(storm):
    full, null = open("/dev/full", "wb"), subprocess.DEVNULL
    reader, broken = os.pipe()
    os.close(reader)

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
