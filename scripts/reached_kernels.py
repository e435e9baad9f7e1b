#!/usr/bin/env python3
"""Compares, without a GPU, the CUDA kernels that training launches with those that `verify --quick` checks.

    cargo build --release --features cuda
    scripts/reached_kernels.py target/release/vim-train
    scripts/reached_kernels.py BINARY --methods zoh,foh --precisions bf16 --out DIR

A kernel is the CUDA that CubeCL makes of it, all of it but for the number behind its name: one for another number of channels,
another tile or another vector is another kernel. Nothing is compiled (without_gpu_nvrtc.c). The steps are those of Vim-Ti and Vim-S
with 128 and 512 images, of a segmenter and of a detector, by each method in each precision, as an H200 would launch them
(without_gpu_driver.c). `verify` runs in --jobs shards at once. Its numbers are all 0 here, so its checks fail; a check that ends with
an error is an error here too.

Kernels of ours are those whose function in crates/ has #[cube(launch...)]; Burn's have other names, and are counted alone.

Prints each kernel of ours that a step launches and no check does, with the steps and the last of what CubeCL says that it is compiled
for (tile, planes, terms, stages and types of a product), and ends with 1 if there is one. With --out the kernels stay there. Needs a
C compiler.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import without_gpu
from without_gpu import HERE, METHODS, fail

CONFIGS = HERE.parent / "configs"
# The configurations of steps, and their images.
STEPS = {
    "vim_tiny_imagenet": "128,512",
    "vim_small_imagenet": "128,512",
    "vim_tiny_ade20k_60k": "8",
    "vim_tiny_coco_100ep": "4",
}
# A kernel's units, name and parameters.
ENTRY = re.compile(r"__global__\s+void\s+__launch_bounds__\((?P<units>\d+)[^)]*\)\s+(?P<name>\w+)\((?P<parameters>[^)]*)\)")
# Of device memory, of which no page is touched.
GIB = "4096"


def own_kernels():
    """What the names of our kernels look like: a function's, then each of its types and sizes behind its letters."""
    launched = re.compile(r"#\[cube\(launch[^\]]*\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?fn\s+(\w+)\s*(<[^>(]*>)?\s*\(")
    names = set()
    for path in (HERE.parent / "crates").glob("*/src/**/*.rs"):
        for function, generics in launched.findall(path.read_text()):
            idents = re.findall(r"(\w+)\s*:\s*(?:Float|Numeric|Int|Scalar|Size)\b", generics)
            names.add(function + "".join(f"_{'_?'.join(ident.lower())}_\\w+?" for ident in idents))
    return re.compile("|".join(sorted(names)))


def kernel(path, own):
    """The name of a kernel with its types, its text's digest, and whether it is ours."""
    text = path.read_text()
    entry = ENTRY.search(text).group("name")
    # Behind the name is a number of all that it is compiled for, the sizes of a launch's cubes included.
    name = re.sub(r"_[0-9a-f]{8}$", "", entry)
    # Variables have another number in each process.
    order = {}
    text = re.sub(r"(?<![a-zA-Z0-9])v\d+\b", lambda number: f"v{order.setdefault(number[0], len(order))}", text.replace(entry, name))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return (name, digest), own.fullmatch(name) is not None


def variables(folder):
    """Of device memory as much as any step takes; CubeCL writes each kernel there, under the end of what it is compiled for."""
    return {"STAND_IN_GIB": GIB, "CUBECL_CUDA_DUMP_PTX": str(folder / "named")}


def compiled_for(folder, own):
    """The names that CubeCL gave the files of kernels."""
    return {kernel(path, own)[0]: re.sub("_+", " ", path.stem).strip() for path in folder.glob("*/named/*.ptx")}


def launched(folder, own):
    """Our kernels within `folder`, with a file of each, and the number of others."""
    ours, others = {}, set()
    for path in sorted(folder.glob("**/ptx/*.ptx")):
        key, is_own = kernel(path, own)
        if is_own:
            ours.setdefault(key, path)
        else:
            others.add(key)
    return ours, others


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--precisions", default="bf16,f32")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        out = arguments.out or pathlib.Path(temporary)
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            fail(f"{out} is not empty: give another folder")
        sys.exit(compare(arguments, out.resolve()))


def compare(arguments, out):
    stand_in, wheels, own = without_gpu.driver(out / "driver"), without_gpu.no_compiler(out / "no-wheels"), own_kernels()
    binary, pool = arguments.binary.resolve(), concurrent.futures.ThreadPoolExecutor(arguments.jobs)

    def step(name):
        config, precision, method = name
        settings = {"devices.backend": "cuda", "train.precision": precision, "model.discretization": method}
        sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        words = ["bench", "phases", CONFIGS / f"{config}.toml", "--batch", STEPS[config], "--warmup", "1", "--steps", "1", *sets, "--json"]
        folder = out / "-".join(name)
        printed, _, _ = without_gpu.run([binary, *words], folder, stand_in, wheels, more=variables(folder))
        for row in json.loads(printed)["results"]:
            if row.get("error"):
                fail(f"{' '.join(name)}: {row['error']}")
        return name, launched(folder, own)

    def checks(shard):
        dtypes = arguments.precisions if "," not in arguments.precisions else "all"
        words = ["verify", "--device", "cuda:0", "--quick", "--dtype", dtypes, "--methods", arguments.methods,
                 "--implementations", "kernel", "--shard", f"{shard + 1}/{arguments.jobs}", "--json"]
        folder = out / f"verify-{shard + 1}"
        printed, _, _ = without_gpu.run([binary, *words], folder, stand_in, wheels, (0, 1), variables(folder))
        for check in json.loads(printed)["checks"]:
            if check["error"]:
                fail(f"{check['name']}: {check['error']}")
        return launched(folder, own)

    reached, others = {}, set()
    for ours, theirs in pool.map(checks, range(arguments.jobs)):
        reached |= ours
        others |= theirs
    print(f"verify --quick: {len(reached)} kernels of ours, {len(others)} of Burn", flush=True)

    missing, files = collections.defaultdict(list), {}
    names = [(config, precision, method) for config in STEPS for precision in arguments.precisions.split(",")
             for method in arguments.methods.split(",")]
    for name, (ours, theirs) in pool.map(step, names):
        if not any(entry.startswith("scan_forward") for entry, _ in ours):
            fail(f"{' '.join(name)}: no kernel of ours is among {len(theirs)}: does CubeCL name them in another way?")
        absent = [key for key in ours if key not in reached]
        print(f"{' '.join(name)}: {len(ours)} kernels of ours, {len(theirs)} of Burn, {len(absent)} in no check", flush=True)
        for key in absent:
            missing[key].append(" ".join(name))
            files.setdefault(key, ours[key])
    names = compiled_for(out, own)
    for (entry, digest), steps in sorted(missing.items()):
        found = ENTRY.search(files[entry, digest].read_text())
        cube = f" of {found['parameters'].count(',') + 1} parameters in cubes of {found['units']}"
        others_named = sum(1 for other, _ in reached if other == entry)
        print(f"MISSING {entry}{cube}, {digest[:8]} ({others_named} others of this name are checked): {'; '.join(steps)}")
        print(f"        ... {names.get((entry, digest), 'not told')}")
        if arguments.out:
            print(f"        {files[entry, digest]}")
    print(f"{len(missing)} kernels of training are in no check of verify --quick")
    return 1 if missing else 0


if __name__ == "__main__":
    main()
