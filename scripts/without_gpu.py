#!/usr/bin/env python3
"""Compiles every CUDA kernel of a training step and of inference on a machine without a GPU, and measures what a step costs the host.

    cargo build --release --features cuda
    scripts/without_gpu.py target/release/vim-train
    scripts/without_gpu.py BINARY --methods zoh,foh --precisions bf16 --wheels DIR --out DIR
    cargo build --release -p vim-kernels --example heads --features cuda
    scripts/without_gpu.py --heads target/release/examples/heads     the operations of segmentation's heads alone
    scripts/without_gpu.py --vim-scan SITE       what vim_scan records and launches, of a wheel with CUDA unpacked there
    scripts/without_gpu.py --memory BINARY       the memory that a detector holds, and how it ends without any
    scripts/without_gpu.py --order BINARY        that no kernel of training adds in an order of chance
    scripts/without_gpu.py --compare OLD NEW     what differs between the PTX of two folders that --out left
    scripts/without_gpu.py --self-test           the comparison, of files that it writes

The driver is a stand-in (without_gpu_driver.c): launches do nothing, so every number of the model is 0, and the time of a step is
that of its launches on the host. NVRTC, the headers and ptxas are NVIDIA's, from PyPI (130 MB, once, into --wheels).

Prints for each precision and method: kernels compiled; launches of a step, or of a graph of one image's forward pass; milliseconds
of the host for a step (the median, with nothing to wait for: on a GPU a step takes this or the kernels' time, whichever is more); and
the result of ptxas for an H100 or H200: the most registers of a thread, and bytes that spill to memory. With --out the PTX and ptxas'
output stay there.
Ends with 1 if a kernel does not compile, or a forward pass is not recorded. Needs a C compiler and pip.

--compare pairs kernels by their text. Behind an entry's name is a number of all that it is compiled for, the names of crates and
modules included; it is left out. Lists the kernels that only one folder has, and ends with 1 if there are any.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WHEELS = [
    "nvidia-cuda-nvrtc==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-nvcc==13.0.88",
]
# Of NVIDIA's headers those that vim-train looks for.
NO_HEADERS = ["cuda_fp16.h", "cuda_bf16.h", "mma.h", "crt/mma.h", "cooperative_groups.h", "cuda_runtime.h", "nv/target"]
METHODS = "zoh,foh,bilinear,poly,highorder,rk4,zoh_exact,exp_trapezoidal,foh_linear,tustin"
STEPS = 50


def fail(text):
    sys.exit(f"error: {text}")


def wheels(folder):
    """The toolkit within `folder`, installed there if it is not yet."""
    toolkit = folder / "nvidia" / "cu13"
    if not (toolkit / "bin" / "ptxas").exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, *WHEELS]
        if subprocess.run(install).returncode != 0:
            fail(f"pip could not install {' '.join(WHEELS)} into {folder}")
    return toolkit


def driver(folder):
    """Builds the stand-in."""
    folder.mkdir()
    source, library = HERE / "without_gpu_driver.c", folder / "libcuda.so"
    build = ["cc", "-shared", "-fPIC", "-O2", "-Wl,-soname,libcuda.so", "-o", library, source]
    if subprocess.run(build).returncode != 0:
        fail("the stand-in driver does not build: is there a C compiler (gcc, libc6-dev)?")
    return folder


def no_compiler(folder):
    """Builds the NVRTC that compiles nothing, among empty headers, where wheels are looked for."""
    toolkit = folder / "nvidia" / "cu13"
    (toolkit / "lib").mkdir(parents=True)
    for header in NO_HEADERS:
        (toolkit / "include" / header).parent.mkdir(parents=True, exist_ok=True)
        (toolkit / "include" / header).touch()
    (toolkit / "include" / "cuda.h").write_text("#define CUDA_VERSION 13000\n")
    # Whose name has the version; it is opened, too.
    for name in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0"):
        build = ["cc", "-shared", "-fPIC", "-O2", f"-Wl,-soname,{name}", "-o", toolkit / "lib" / name, HERE / "without_gpu_nvrtc.c"]
        if subprocess.run(build).returncode != 0:
            fail("the stand-in for NVRTC does not build: is there a C compiler (gcc, libc6-dev)?")
    return folder


def run(command, folder, stand_in, wheels_folder, codes=(0,), more=()):
    """What `command` printed, the stand-in's counts, and the PTX that it loaded; it must end with one of `codes`."""
    ptx = folder / "ptx"
    ptx.mkdir(parents=True)
    log = folder / "counts.json"
    toolkit = wheels_folder / "nvidia" / "cu13"
    libraries = [str(stand_in), str(toolkit / "lib"), os.environ.get("LD_LIBRARY_PATH")]
    environment = os.environ | {
        "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
        "VIM_CUDA_WHEELS": str(wheels_folder),
        # An example does not search for the toolkit as vim-train does.
        "CUDA_PATH": str(toolkit),
        "STAND_IN_PTX": str(ptx),
        "STAND_IN_LOG": str(log),
        **dict(more),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode not in codes:
        (folder / "error").write_text(done.stderr)
        fail(f"{' '.join(map(str, command))}\n{done.stderr[-3000:]}")
    return done.stdout, json.loads(log.read_text()), sorted(ptx.iterdir())


def assemble(ptxas, path):
    """Registers and spilled bytes of a kernel, by name."""
    command = [ptxas, "-v", "--gpu-name", "sm_90a", "--output-file", path.with_suffix(".cubin"), path]
    done = subprocess.run(command, capture_output=True, text=True)
    path.with_suffix(".txt").write_text(done.stderr)
    if done.returncode != 0:
        fail(f"ptxas refuses {path}: {done.stderr}")
    name = re.search(r"Compiling entry function '(\w+)'", done.stderr).group(1)
    registers = int(re.search(r"Used (\d+) registers", done.stderr).group(1))
    spilled = sum(map(int, re.findall(r"(\d+) bytes spill", done.stderr)))
    return name, registers, spilled


def kernels(folder):
    """The names of the kernels whose PTX is below `folder`, by their texts."""
    found = {}
    for path in sorted(folder.glob("**/ptx/*")):
        if path.suffix in (".cubin", ".txt"):
            continue
        text = path.read_text()
        entry = re.search(r"\.entry\s+(\w+)", text)
        if entry is None:
            fail(f"{path} has no entry: is it PTX?")
        name = re.sub(r"_[0-9a-f]{8}$", "", entry[1])
        # Names of what is within the kernel have the number as bytes.
        number = ",".join(str(ord(one)) for one in entry[1][-8:])
        # Parameters and local memory have the entry's name before theirs.
        text = re.sub(rf"{entry[1]}(?![0-9a-zA-Z])", name, text).replace(number, "")
        # Shared arrays have numbers that CubeCL counted when it wrote the kernel.
        arrays = {}
        found[re.sub(r"\bv\d+\b", lambda array: arrays.setdefault(array[0], f"v{len(arrays)}"), text)] = name
    if not found:
        fail(f"{folder} has no PTX below it: give a folder that --out left")
    return found


def compare(old, new):
    """Prints which kernels differ between two folders; their number."""
    olds, news = kernels(old), kernels(new)
    print(f"{len(olds.keys() & news.keys())} kernels are the same in {old} and {new}")
    wrong = 0
    for folder, texts, others in ((old, olds, news), (new, news, olds)):
        names = collections.Counter(name for text, name in texts.items() if text not in others)
        wrong += names.total()
        for name, count in sorted(names.items()):
            print(f"only in {folder}: {name}" + (f", {count} of them" if count > 1 else ""))
    return wrong


def self_test():
    """Kernels whose numbers alone differ are the same, and others are not."""
    ptx = ".visible .entry {0}(\n.param .u64 {0}_param_0\n)\n{{ {1}; }}\n"
    folders = {
        "old": [("scan_f_f32_0123abcd", "mov v12, v7, v12"), ("norm_00000001", "ret"), ("norm_00000002", "trap")],
        "moved": [("norm_0000000a", "trap"), ("norm_0000000b", "ret"), ("scan_f_f32_ffffffff", "mov v9, v31, v9")],
        "changed": [("scan_f_f32_0123abcd", "mov v12, v7, v7"), ("norm_00000001", "ret"), ("norm_00000002", "exit")],
        "fewer": [("scan_f_f32_0123abcd", "mov v12, v7, v12"), ("norm_00000001", "ret")],
    }
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        for folder, entries in folders.items():
            (root / folder / "bf16-zoh" / "ptx").mkdir(parents=True)
            for number, (entry, body) in enumerate(entries):
                (root / folder / "bf16-zoh" / "ptx" / f"{number}.ptx").write_text(ptx.format(entry, body))
        for folder, wrong in (("old", 0), ("moved", 0), ("changed", 4), ("fewer", 1)):
            found = compare(root / "old", root / folder)
            if found != wrong:
                fail(f"self-test: {found} kernels differ between old and {folder}, not {wrong}")
    print("without_gpu: the self-test passed")


def memory(binary):
    """A detector gives back what its growing pages outgrew, and ends with 71 without memory, with 69 without its GPU."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        toolkit, stand_in, runs = no_compiler(folder / "wheels"), driver(folder / "driver"), folder / "runs"

        def train(name, codes=(0,), more=()):
            # The processor would train in f32 alone.
            sets = ["devices.backend=auto"] if name == "absent" else ["devices.backend=cuda", "train.precision=bf16"]
            sets += ["log.every=2st", f"run.root={runs}", f"run.name={name}"]
            sets = [word for one in sets for word in ("--set", one)]
            command = [binary.resolve(), "train", HERE.parent / "configs/detect_shapes.toml", "--steps", "12", *sets]
            return run(command, folder / name, stand_in, toolkit, codes, more)[1]

        counts = train("whole")
        reserved = json.loads((runs / "whole/timing.jsonl").read_text().splitlines()[-1])["device_memory_bytes"]
        # CubeCL's thread is still at work as the driver ends, unless a backtrace takes its time.
        train("full", (71,), [("STAND_IN_GIB", "0.05"), ("RUST_BACKTRACE", "0")])
        # An MPS server that is not ready is a GPU, and no reason to take the processor.
        train("absent", (69,), [("STAND_IN_INIT", "807")])
    most, held = counts["memory"], counts["memory_at_end"]
    print(f"the process held {most / 1e6:.0f} MB at most and {held / 1e6:.0f} at the end; its pools have {reserved / 1e6:.0f}")
    if held > 1.1 * reserved:
        fail("the process keeps memory that its pools do not have")


# Of a gather's gradient: this program takes one number of each row, and to its place one is added.
ATOMIC_AND_RIGHT = {"scatter_add_atomic_kernel"}


def order(binary):
    """Steps and evaluations of every task have no kernel that adds floats atomically, where more than one unit adds to a place."""
    found = set()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        toolkit, stand_in = no_compiler(folder / "wheels"), driver(folder / "driver")
        for config, precision in itertools.product(("quickstart", "segment_shapes", "detect_shapes"), ("bf16", "f32")):
            name = f"{config}-{precision}"
            sets = ["devices.backend=cuda", f"train.precision={precision}", f"run.root={folder / 'runs'}", f"run.name={name}"]
            sets = [word for one in sets for word in ("--set", one)]
            command = [binary.resolve(), "train", HERE.parent / f"configs/{config}.toml", "--steps", "3", *sets]
            _, _, sources = run(command, folder / name, stand_in, toolkit)
            texts = [path.read_text() for path in sources]
            atomic = [text for text in texts if re.search(r"\b(atom|red)\.[\w.]*\badd\.[\w.]*f(16|32|64)", text)]
            names = {re.search(r"(\w+?)(_t_\w+)?_[0-9a-f]{8}\(|$", text)[1] or "a kernel" for text in atomic}
            print(f"{name}: {len(sources)} kernels, of which {', '.join(sorted(names)) or 'none'} add atomically")
            found |= names
    # The text that is searched for is CubeCL's: where it changes, nothing is found.
    if missing := ATOMIC_AND_RIGHT - found:
        fail(f"{', '.join(sorted(missing))} not found: is this how an atomic addition is written?")
    if wrong := found - ATOMIC_AND_RIGHT:
        fail(f"{', '.join(sorted(wrong))} add in an order of chance: two runs differ")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path, nargs="?")
    parser.add_argument("--heads", type=pathlib.Path, metavar="EXAMPLE")
    parser.add_argument("--vim-scan", type=pathlib.Path, metavar="SITE")
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--precisions", default="bf16,f32")
    parser.add_argument("--config", default=HERE.parent / "configs/vim_tiny_imagenet.toml")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--wheels", type=pathlib.Path, default=HERE.parent / "target/cuda-wheels")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--compare", type=pathlib.Path, nargs=2, metavar=("OLD", "NEW"))
    parser.add_argument("--memory", type=pathlib.Path, metavar="BINARY")
    parser.add_argument("--order", type=pathlib.Path, metavar="BINARY")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    if arguments.memory:
        return memory(arguments.memory)
    if arguments.order:
        return order(arguments.order)
    if arguments.compare:
        sys.exit(1 if compare(*arguments.compare) else 0)
    if not arguments.binary and not arguments.heads and not arguments.vim_scan:
        parser.error("give BINARY, --heads EXAMPLE or --vim-scan SITE")
    with tempfile.TemporaryDirectory() as temporary:
        out = arguments.out or pathlib.Path(temporary)
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            fail(f"{out} is not empty: give another folder")
        measure(arguments, out.resolve(), arguments.wheels.resolve())


def measure(arguments, out, wheels_folder):
    toolkit, stand_in = wheels(wheels_folder), driver(out / "driver")
    seen = {}
    pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())

    def assembled(ptx):
        """Name, registers and spilled bytes of each of these files; of the same one once."""
        new = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in ptx}
        missing = {digest: path for digest, path in new.items() if digest not in seen}
        made = pool.map(lambda path: assemble(toolkit / "bin" / "ptxas", path), missing.values())
        seen.update(zip(missing, made))
        return [seen[digest] for digest in new]

    if arguments.vim_scan:
        command = [sys.executable, HERE.parent / "crates/vim-scan-py/tests/record_calls.py"]
        more = {"PYTHONPATH": arguments.vim_scan.resolve(), "STAND_IN_CALLS": out / "calls"}
        printed, _, ptx = run(command, out / "vim-scan", stand_in, wheels_folder, more=more)
        assembled(ptx)
        print(printed, end="")
    if arguments.binary:
        steps(arguments, out, stand_in, wheels_folder, assembled)
    if arguments.heads:
        for precision in arguments.precisions.split(","):
            command = [arguments.heads.resolve(), "cuda", precision]
            _, counts, ptx = run(command, out / f"heads-{precision}", stand_in, wheels_folder)
            kernels = assembled(ptx)
            print(f"{precision}: {len(kernels)} kernels, {counts['launches']} launches")
            print(f"{'registers':>9}{'spilled':>9}")
            for kernel, registers, spilled in sorted(kernels, key=lambda kernel: -kernel[1]):
                print(f"{registers:>9}{spilled:>9}  {kernel}")
    print(f"{len(seen)} kernels, all of them compiled; median {statistics.median(k[1] for k in seen.values()):.0f} registers")


def steps(arguments, out, stand_in, wheels_folder, assembled):
    """The kernels of training steps and of inference, launched and recorded."""
    print(f"{'':<6}{'':<11}{'kernels':>9}{'launches':>10}{'host ms':>9}{'registers':>11}{'spilled':>9}")
    for precision in arguments.precisions.split(","):
        for method in arguments.methods.split(","):
            settings = {
                "data.dataset": "shapes",
                "devices.backend": "cuda",
                "train.precision": precision,
                "model.discretization": method,
            }
            sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
            runs = {
                method: ["bench", "phases", "--batch", str(arguments.batch), "--warmup", "3", "--steps", str(STEPS)],
                f"{method} eval": ["bench", "--mode", "infer", "--batch", "1,8", "--image-size", "1248"],
                f"{method} graph": ["bench", "--mode", "infer", "--batch", "1", "--graph"],
            }
            for name, words in runs.items():
                is_step = name == method
                split = 2 if is_step else 1
                folder = out / f"{precision}-{name.replace(' ', '-')}"
                output = [] if is_step else ["--output", str(folder.with_suffix(".json"))]
                command = [arguments.binary.resolve(), *words[:split], arguments.config, *words[split:], *sets, "--json", *output]
                printed, counts, ptx = run(command, folder, stand_in, wheels_folder)
                results = json.loads(printed)["results"]
                for row in results:
                    if row.get("error"):
                        fail(f"{precision} {name}: {row['error']}")
                kernels = assembled(ptx)
                registers, spilled = max(k[1] for k in kernels), sum(k[2] for k in kernels)
                line = f"{precision:<6}{name:<16}{len(kernels):>4}"
                if is_step:
                    # Three steps to warm up; those timed one by one, queued, and by phases. Making the model adds 1 %.
                    line += f"{counts['launches'] / (3 * STEPS + 3):>10.0f}{results[0]['step_ms']:>9.1f}"
                else:
                    line += f"{counts['recorded'] or '':>10}{'':>9}"
                print(f"{line}{registers:>11}{spilled:>9}", flush=True)
                for kernel, _, bytes_spilled in kernels:
                    if bytes_spilled:
                        print(f"      {kernel} spills {bytes_spilled} bytes")


if __name__ == "__main__":
    main()
