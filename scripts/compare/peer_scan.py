#!/usr/bin/env python3
"""Time the selective scan of mamba-ssm, to compare `vim-train profile scan` with.

Runs mamba_ssm's own CUDA kernel (selective_scan_fn: zoh, with z, D, the bias of delta and its softplus,
channels first as it wants them) and prints one line of JSON for each shape and type. Times are of CUDA
events around one call, after a warm-up: median, least, 10th and 90th percentile of the trials; and per
call of several queued one behind the other between two waits.

Needs Python 3.9 or later, a CUDA GPU, torch and mamba-ssm. There is no fallback: another implementation
would be another peer.

Examples:
  peer_scan.py --shape 128x384x197
  peer_scan.py --shape 128x384x197 --shape 8x384x1025 --dtype bf16 --trials 50 > theirs.jsonl
"""

import argparse
import json
import sys
import time

SHAPE = "128x384x197"
WARM_UP = 5
INSTALL = "install it with: pip install torch && pip install --no-build-isolation mamba-ssm"


def shape(text):
    """A batch, channels and tokens, from BxDxL."""
    try:
        batch, dim, seqlen = (int(part) for part in text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no BxDxL such as {SHAPE}") from None
    if min(batch, dim, seqlen) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} has a size below 1")
    return batch, dim, seqlen


def count(text):
    """A number from 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return number


def parser():
    """The command line."""
    summary, rest = __doc__.split("\n\n", 1)
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shape", dest="shapes", action="append", type=shape, metavar="BxDxL", help=f"may be repeated; {SHAPE}"
    )
    parser.add_argument("--dstate", type=count, default=16, metavar="N", help="states per channel; 16")
    parser.add_argument("--dtype", choices=("f32", "bf16", "all"), default="f32", help="of the activations; f32")
    parser.add_argument("--trials", type=count, default=30, metavar="N", help="calls timed one by one; 30")
    parser.add_argument("--queued", type=count, default=8, metavar="N", help="calls queued between two waits; 8")
    parser.add_argument("--device", type=int, default=0, metavar="N", help="number of the CUDA GPU; 0")
    return parser


def load():
    """torch and selective_scan_fn, or the end with one line that says what to install."""
    try:
        import torch
    except ImportError:
        sys.exit(f"error: torch is not installed; {INSTALL}")
    if not torch.cuda.is_available():
        sys.exit("error: torch finds no CUDA GPU; mamba-ssm's kernel runs on nothing else")
    try:
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
    except ImportError as error:
        sys.exit(f"error: mamba-ssm cannot be imported ({error}); {INSTALL}")
    return torch, selective_scan_fn


def version(package):
    """The installed version of a package, or None."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def quantile(values, share):
    """The value below which a share of the values lies, between two of them by their distance."""
    values = sorted(values)
    at = share * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def measure(torch, call, trials, queued):
    """Times of a call in milliseconds, as `vim-train profile scan --json` has them."""
    for _ in range(WARM_UP):
        call()
    times = []
    for _ in range(trials):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    rounds = []
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(queued):
            call()
        torch.cuda.synchronize()
        rounds.append((time.perf_counter() - start) * 1e3 / queued)
    return {
        "timer": "device",
        "trials": trials,
        "median_ms": quantile(times, 0.5),
        "min_ms": min(times),
        "p10_ms": quantile(times, 0.1),
        "p90_ms": quantile(times, 0.9),
        "back_to_back_ms": min(rounds),
        "queued": queued,
    }


def time_scan(torch, scan, sizes, dstate, dtype, trials, queued):
    """Times of one shape and type, forward and backward."""
    batch, dim, seqlen = sizes
    torch.manual_seed(0)
    activations = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]

    def normal(*size):
        return torch.randn(*size, device="cuda", dtype=activations).requires_grad_()

    def weight(*size):
        return torch.rand(*size, device="cuda").requires_grad_()

    u, delta, z = (normal(batch, dim, seqlen) for _ in range(3))
    b, c = (normal(batch, dstate, seqlen) for _ in range(2))
    a = (-1 - 15 * torch.rand(dim, dstate, device="cuda")).requires_grad_()
    d, bias = weight(dim), weight(dim)

    def forward():
        return scan(u, delta, a, b, c, D=d, z=z, delta_bias=bias, delta_softplus=True)

    times = {"forward": measure(torch, forward, trials, queued)}
    y = forward()
    grad = torch.ones_like(y)
    inputs = (u, delta, a, b, c, d, z, bias)
    times["backward"] = measure(
        torch, lambda: torch.autograd.grad(y, inputs, grad, retain_graph=True), trials, queued
    )
    return times


def main():
    """Measure what is asked for."""
    args = parser().parse_args()
    torch, scan = load()
    torch.cuda.set_device(args.device)
    for sizes in args.shapes or [shape(SHAPE)]:
        for dtype in ("f32", "bf16") if args.dtype == "all" else (args.dtype,):
            batch, dim, seqlen = sizes
            record = {
                "peer": "mamba-ssm",
                "version": version("mamba-ssm"),
                "torch": torch.__version__,
                "hardware": torch.cuda.get_device_name(),
                "batch": batch,
                "dim": dim,
                "seqlen": seqlen,
                "dstate": args.dstate,
                "dtype": dtype,
                "method": "zoh",
            }
            record.update(time_scan(torch, scan, sizes, args.dstate, dtype, args.trials, args.queued))
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
