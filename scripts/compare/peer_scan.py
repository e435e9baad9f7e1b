#!/usr/bin/env python3
"""Time the selective scan of PyTorch programs: mamba-ssm's, to compare `vim-train profile scan` with, and vim_scan's.

--scan says which: mamba-ssm is mamba_ssm's own CUDA kernel (selective_scan_fn: zoh, with z, D, the bias of
delta and its softplus, channels first as it wants them); vim_scan is vim_scan.selective_scan_fn on the same
tensors, which it transposes; vim_scan_last is vim_scan.selective_scan on tensors that have channels last
already. Prints one line of JSON for each scan, shape and type. Times are of CUDA events around one call,
after a warm-up: median, least, 10th and 90th percentile of the trials; and per call of several queued one
behind the other between two waits. "both" is a forward and a backward pass. "different" counts the
different outputs and gradients, by their bytes, of --repeats calls on one input.

Needs Python 3.9 or later, a CUDA GPU, torch, and mamba-ssm or vim_scan. There is no fallback: another
implementation would be another peer.

Examples:
  peer_scan.py --shape 128x384x197
  peer_scan.py --shape 128x384x197 --shape 8x384x1025 --dtype bf16 --trials 50 > theirs.jsonl
  peer_scan.py --scan mamba-ssm,vim_scan,vim_scan_last --repeats 50
"""

import argparse
import hashlib
import json
import sys
import time

SHAPE = "128x384x197"
SCANS = ("mamba-ssm", "vim_scan", "vim_scan_last")
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


def scans(text):
    """Names of SCANS, from A,B."""
    names = text.split(",")
    if not set(names) <= set(SCANS):
        raise argparse.ArgumentTypeError(f"{text!r}: one or more of {', '.join(SCANS)}, joined by commas")
    return names


def parser():
    """The command line."""
    summary, rest = __doc__.split("\n\n", 1)
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shape", dest="shapes", action="append", type=shape, metavar="BxDxL", help=f"may be repeated; {SHAPE}"
    )
    parser.add_argument("--scan", type=scans, default=SCANS[:1], metavar="A,B", help=f"{', '.join(SCANS)}; the first")
    parser.add_argument("--repeats", type=count, metavar="N", help="calls whose bytes are compared; none")
    parser.add_argument("--dstate", type=count, default=16, metavar="N", help="states per channel; 16")
    parser.add_argument("--dtype", choices=("f32", "bf16", "all"), default="f32", help="of the activations; f32")
    parser.add_argument("--trials", type=count, default=30, metavar="N", help="calls timed one by one; 30")
    parser.add_argument("--queued", type=count, default=8, metavar="N", help="calls queued between two waits; 8")
    parser.add_argument("--device", type=int, default=0, metavar="N", help="number of the CUDA GPU; 0")
    return parser


def load(name):
    """torch and a scan, or the end with one line that says what to install."""
    try:
        import torch
    except ImportError:
        sys.exit(f"error: torch is not installed; {INSTALL}")
    if not torch.cuda.is_available():
        sys.exit("error: torch finds no CUDA GPU; the kernels run on nothing else")
    try:
        if name == "mamba-ssm":
            from mamba_ssm.ops.selective_scan_interface import selective_scan_fn as scan
        else:
            import vim_scan

            scan = vim_scan.selective_scan_fn if name == "vim_scan" else vim_scan.selective_scan
    except ImportError as error:
        how = INSTALL if name == "mamba-ssm" else "docs/pytorch.md says how to install it"
        sys.exit(f"error: {name} cannot be imported ({error}); {how}")
    return torch, scan


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


def time_scan(torch, name, scan, sizes, args, dtype):
    """Times of one shape and type, forward and backward."""
    batch, dim, seqlen = sizes
    torch.manual_seed(0)
    activations = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]

    def tokens(*size):
        made = torch.randn(*size, device="cuda", dtype=activations)
        made = made.transpose(1, 2).contiguous() if name == "vim_scan_last" else made
        return made.requires_grad_()

    def weight(*size):
        return torch.rand(*size, device="cuda").requires_grad_()

    u, delta, z = (tokens(batch, dim, seqlen) for _ in range(3))
    b, c = (tokens(batch, args.dstate, seqlen) for _ in range(2))
    a = (-1 - 15 * torch.rand(dim, args.dstate, device="cuda")).requires_grad_()
    d, bias = weight(dim), weight(dim)

    def forward():
        return scan(u, delta, a, b, c, D=d, z=z, delta_bias=bias, delta_softplus=True)

    y = forward()
    grad = torch.ones_like(y)
    inputs = (u, delta, a, b, c, d, z, bias)
    both = lambda: torch.autograd.grad(forward(), inputs, grad)
    backward = lambda: torch.autograd.grad(y, inputs, grad, retain_graph=True)
    times = {
        "forward": measure(torch, forward, args.trials, args.queued),
        "backward": measure(torch, backward, args.trials, args.queued),
        "both": measure(torch, both, args.trials, args.queued),
    }
    if args.repeats:
        bytes_of = lambda t: hashlib.sha256(t.detach().contiguous().view(torch.uint8).cpu().numpy()).digest()
        names = ("y", "u", "delta", "a", "b", "c", "d", "z", "bias")
        calls = [[bytes_of(t) for t in (forward(), *both())] for _ in range(args.repeats)]
        times["different"] = {name: len(set(column)) for name, column in zip(names, zip(*calls))}
    return times


def main():
    """Measure what is asked for."""
    args = parser().parse_args()
    for sizes in args.shapes or [shape(SHAPE)]:
        for dtype in ("f32", "bf16") if args.dtype == "all" else (args.dtype,):
            for name in args.scan:
                torch, scan = load(name)
                torch.cuda.set_device(args.device)
                batch, dim, seqlen = sizes
                record = {
                    "peer": name,
                    "version": version(name.removesuffix("_last")),
                    "torch": torch.__version__,
                    "hardware": torch.cuda.get_device_name(),
                    "batch": batch,
                    "dim": dim,
                    "seqlen": seqlen,
                    "dstate": args.dstate,
                    "dtype": dtype,
                    "method": "zoh",
                }
                record.update(time_scan(torch, name, scan, sizes, args, dtype))
                print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
