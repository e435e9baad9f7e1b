#!/usr/bin/env python3
"""Reads a run's TensorBoard events with TensorBoard's own reader, and compares them with metrics.jsonl.

Needs `pip install tensorboard`. Every number of metrics.jsonl must be there, once, rounded to f32, also where the
run was interrupted and did steps again. Prints the tags; ends with 1 at a difference.

    python3 scripts/check_events.py data/runs/zoh-s0
"""

import json
import math
import struct
import sys
from pathlib import Path

from tensorboard.backend.event_processing import event_accumulator


def expected(run):
    """Scalars by tag and step, as metrics.jsonl has them."""
    scalars = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        group = record.get("split", record["kind"])
        if record.get("weights", "model") != "model":
            group += "/" + record["weights"]
        for key, value in record.items():
            if key in ("step", "epoch", "images") or isinstance(value, str):
                continue
            scalars[f"{group}/{key}", record["step"]] = math.nan if value is None else value
    return scalars


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    run = Path(sys.argv[1])
    everything = {event_accumulator.SCALARS: 0}
    events = event_accumulator.EventAccumulator(str(run), size_guidance=everything)
    events.Reload()
    tags = events.Tags()["scalars"]
    found = {}
    problems = []
    for tag in tags:
        points = events.Scalars(tag)
        print(f"{tag:<24} {len(points):>6} points, steps {points[0].step} to {points[-1].step}")
        for point in points:
            # The test may be made twice, on the same weights, if a run is killed within it.
            if (tag, point.step) in found and not tag.startswith("test/"):
                problems.append(f"{tag} at step {point.step} is there twice")
            found[tag, point.step] = point.value
    wanted = expected(run)
    for (tag, step), value in wanted.items():
        single = struct.unpack("<f", struct.pack("<f", value))[0]
        got = found.pop((tag, step), None)
        same = got is not None and (got == single or (math.isnan(got) and math.isnan(single)))
        if not same:
            problems.append(f"{tag} at step {step}: metrics.jsonl has {single}, the events {got}")
    for tag, step in found:
        if tag not in ("train/img_s", "train/data_wait") and not tag.startswith("memory/"):
            problems.append(f"{tag} at step {step} is in the events alone")
    print(f"{len(wanted)} numbers of metrics.jsonl, {len(problems)} differ")
    for problem in problems[:20]:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
