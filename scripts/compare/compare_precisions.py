#!/usr/bin/env python3
"""Train the same runs in f32 on the CPU, and in f32 and bf16 on a GPU, and compare the losses.

For each method: configs/quickstart.toml to its end, from the same seed, three times. The losses of the first
500 steps (means of 20) must stay within a band of the CPU's, and the three final accuracies on 10,000 test
images within two points of each other. The first mean is of runs that still differ only by rounding; later
the trajectories diverge, as they do between any two orders of summation, and only their means are comparable.

Needs Python 3.9 or later, a GPU, and vim-train built for it. Exit code 1 if anything is out of its band.

Examples:
  compare_precisions.py target/release/vim-train
  compare_precisions.py target/release/vim-train --methods zoh,rk4 --cpu-jobs 1 --keep runs > table.md
"""

import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile

METHODS = "zoh,foh,bilinear,poly,highorder,rk4"
STEPS = 500
# Largest differences from f32 on the CPU: of the first mean of 20 losses, of the mean over 500 steps' means, and
# of any single one. bf16 keeps 8 bits of a product's factors.
BANDS = {"f32": (0.002, 0.03, 0.15), "bf16": (0.02, 0.04, 0.2)}
POINTS = 2.0


def train(binary, config, root, method, backend, precision, threads, extra):
    """One run; its folder."""
    name = f"{method}-{backend}-{precision}"
    sets = {
        "run.root": root,
        "run.name": name,
        "model.discretization": method,
        "train.precision": precision,
        "devices.backend": backend,
        "devices.threads": threads,
        "data.shapes.test": 10000,
        "log.every": "20st",
    }
    command = [binary, "train", config]
    for key, value in list(sets.items()) + [pair.split("=", 1) for pair in extra]:
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: {name} ended with exit code {done.returncode}: {done.stderr.strip().splitlines()[-1]}")
    print(f"{name}: {done.stdout.strip().splitlines()[-1]}", file=sys.stderr, flush=True)
    return pathlib.Path(root, name)


def read(folder):
    """Losses up to step 500, and the accuracy on the test images in per cent."""
    losses, top1 = [], None
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["kind"] == "train" and record["step"] <= STEPS:
            losses.append(record["loss"])
        elif record["kind"] == "eval" and record["split"] == "test":
            top1 = 100 * record["top1"]
            images = record["images"]
    if top1 is None or images < 10000:
        sys.exit(f"error: {folder} has no accuracy on 10,000 test images")
    return losses, top1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", help="a vim-train built for the GPU")
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--gpu", default="cuda", help="devices.backend of the GPU (cuda)")
    parser.add_argument("--cpu-jobs", type=int, default=2, help="runs on the CPU at a time (2)")
    parser.add_argument("--gpu-jobs", type=int, default=2, help="runs on the GPU at a time (2)")
    parser.add_argument("--threads", type=int, default=2, help="threads of a run (2)")
    parser.add_argument("--keep", help="folder for the runs, which then stay")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE for every run")
    args = parser.parse_args()
    config = str(pathlib.Path(__file__).resolve().parents[2] / "configs/quickstart.toml")
    kinds = [("cpu", "f32"), (args.gpu, "f32"), (args.gpu, "bf16")]
    methods = args.methods.split(",")

    with tempfile.TemporaryDirectory() as scratch:
        root = args.keep or scratch
        pools = {"cpu": concurrent.futures.ThreadPoolExecutor(args.cpu_jobs)}
        pools[args.gpu] = concurrent.futures.ThreadPoolExecutor(args.gpu_jobs)
        jobs = {
            (method, kind): pools[kind[0]].submit(
                train, args.binary, config, root, method, *kind, args.threads, args.set
            )
            for method in methods
            for kind in kinds
        }
        runs = {which: read(job.result()) for which, job in jobs.items()}

    bad = []
    print("| method | run | first 20 steps: loss, difference | 500 steps: mean, largest difference | test top-1 % |")
    print("|---|---|---|---|---|")
    for method in methods:
        wanted, _ = runs[method, kinds[0]]
        for kind in kinds:
            losses, top1 = runs[method, kind]
            away = [abs(one - two) for one, two in zip(losses, wanted)]
            found = (away[0], sum(away) / len(away), max(away))
            print(
                f"| {method} | {kind[1]} {kind[0]} | {losses[0]:.4f}, {found[0]:.1e} "
                f"| {found[1]:.4f}, {found[2]:.4f} | {top1:.2f} |"
            )
            if len(losses) != STEPS // 20 or any(x > band for x, band in zip(found, BANDS[kind[1]])):
                bad.append(f"{method} {kind[1]} {kind[0]}: {found} beyond {BANDS[kind[1]]}")
        tops = [runs[method, kind][1] for kind in kinds]
        if max(tops) - min(tops) > POINTS:
            bad.append(f"{method}: accuracies {tops} are more than {POINTS} points apart")
    print(f"\nbands (first, mean, largest): {BANDS}, accuracies within {POINTS} points")
    if bad:
        sys.exit("error: " + "; ".join(bad))


if __name__ == "__main__":
    main()
