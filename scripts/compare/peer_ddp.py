#!/usr/bin/env python3
"""Time peer_vim.py's models under PyTorch's DistributedDataParallel, to compare `vim-train bench scaling` with.

torchrun starts it once for each GPU. A step is peer_vim.py's training step, on --batch synthetic images on each GPU;
DDP sums gradients in buckets, beside the backward pass. Rank 0 prints a line of JSON for each measurement: times of
its steps, images a second on all GPUs together, the most memory that the allocator of any GPU handed out.

With --table it measures nothing and needs no torch: it prints both sides' rows with the columns of `bench scaling`.

Needs what peer_vim.py needs, and NCCL, which torch brings along. Not measured yet by anybody here.

Examples:
  torchrun --standalone --nproc-per-node 2 scripts/compare/peer_ddp.py --model vim_tiny,deit_tiny --batch 128,512 >> theirs.jsonl
  scripts/compare/peer_ddp.py --table ours.json theirs.jsonl
  scripts/compare/peer_ddp.py --selftest
"""

import argparse
import gc
import json
import os
import sys

HEAD = ("what", "gpus", "batch", "ms", "p10", "p90", "img/s", "img/s each", "efficiency", "MiB each")


def measure(peer, name, batch, args, world):
    """One measurement on all ranks; the record is the same on every rank but for the times."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    device = torch.cuda.current_device()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.backends.cuda.matmul.allow_tf32 = args.dtype == "tf32"
    model = peer.make(name, args.image_size, peer.Parts(fused=True), args.drop_path).cuda()
    model = DistributedDataParallel(model, device_ids=[device], gradient_as_bucket_view=True)
    images = torch.randn(batch, 3, args.image_size, args.image_size, device="cuda")
    labels = torch.randint(peer.CLASSES, (batch,), device="cuda")
    step = peer.step_of(model, "train", images, labels, args.dtype, args)
    record = peer.clock(step, batch * world, args.warmup, args.steps, torch.cuda.synchronize)
    peak = torch.tensor([torch.cuda.max_memory_allocated()], device="cuda")
    torch.distributed.all_reduce(peak, op=torch.distributed.ReduceOp.MAX)
    record["peak_memory_bytes"] = int(peak.item())
    return record


def run(args):
    """Measures as one of torchrun's processes."""
    import peer_vim as peer
    import torch

    if "LOCAL_RANK" not in os.environ:
        sys.exit("error: start it by torchrun --standalone --nproc-per-node N, which names the ranks")
    local, world = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    if not torch.cuda.is_available() or local >= torch.cuda.device_count():
        sys.exit(f"error: rank {local} has no GPU: torch finds {torch.cuda.device_count()}")
    parts = peer.Parts(fused=True)
    if parts.missing and any(name in peer.SIZES for name in args.model):
        sys.exit(f"error: mamba-ssm cannot be imported ({parts.missing}); install it with: {peer.INSTALL}")
    torch.cuda.set_device(local)
    torch.distributed.init_process_group("nccl")
    around = {**peer.environment(parts), "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    for name in args.model:
        for batch in args.batch:
            record = {"model": name, "gpus": world, "batch": batch, "dtype": args.dtype}
            record.update(measure(peer, name, batch, args, world))
            gc.collect()
            if local == 0:
                print(json.dumps({**record, **around}), flush=True)
    torch.distributed.destroy_process_group()


def rows(what, records):
    """Cells of records of one model or method."""
    one = {record["batch"]: record["throughput"]["img_s"] for record in records if record["gpus"] == 1}
    cells = []
    for record in sorted(records, key=lambda record: (record["batch"], record["gpus"])):
        gpus, batch, times = record["gpus"], record["batch"], record["latency"]
        speed = record["throughput"]["img_s"]
        base, peak = one.get(batch), record.get("peak_memory_bytes")
        numbers = [f"{times[key]:.3f}" for key in ("median_ms", "p10_ms", "p90_ms")]
        efficiency = f"{speed / (gpus * base):.4f}" if base else "-"
        memory = str(peak >> 20) if peak else "-"
        cells.append((what, str(gpus), str(batch), *numbers, f"{speed:.0f}", f"{speed / gpus:.0f}", efficiency, memory))
    return cells


def table(ours, theirs):
    """Both sides' rows as Markdown, and what did not run."""
    measured = [row for row in ours["results"] if not row.get("error")]
    failed = [f"- ours, {row['gpus']} GPUs, batch {row['batch']}: {row['error']}" for row in ours["results"] if row.get("error")]
    cells = rows(f"vim-train {ours['model']} {ours['method']} {ours['dtype']}", measured)
    for name in dict.fromkeys(record["model"] for record in theirs):
        records = [record for record in theirs if record["model"] == name]
        cells += rows(f"DDP {name} {records[0]['dtype']}", records)
    lines = ["| " + " | ".join(HEAD) + " |", "|---" + "|--:" * (len(HEAD) - 1) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join(lines + failed)


def selftest():
    """Check the table on records made by hand."""

    def record(gpus, batch, img_s, **more):
        times = {"median_ms": 1e3 * gpus * batch / img_s, "p10_ms": 1.0, "p90_ms": 2.0}
        return {"gpus": gpus, "batch": batch, "latency": times, "throughput": {"img_s": img_s}, **more}

    results = [record(2, 8, 190.0, peak_memory_bytes=3 << 20), record(1, 8, 100.0), record(2, 16, 1.0, error="no room")]
    ours = {"model": "tiny", "method": "zoh", "dtype": "bf16", "results": results}
    theirs = [record(2, 8, 50.0, model="vim_tiny", dtype="bf16")]
    lines = table(ours, theirs).splitlines()
    assert len({line.count("|") for line in lines[:-1]}) == 1, lines
    assert lines[2:] == [
        "| vim-train tiny zoh bf16 | 1 | 8 | 80.000 | 1.000 | 2.000 | 100 | 100 | 1.0000 | - |",
        "| vim-train tiny zoh bf16 | 2 | 8 | 84.211 | 1.000 | 2.000 | 190 | 95 | 0.9500 | 3 |",
        "| DDP vim_tiny bf16 | 2 | 8 | 320.000 | 1.000 | 2.000 | 50 | 25 | - | - |",
        "- ours, 2 GPUs, batch 16: no room",
    ], lines
    print("peer_ddp: ok")


def count(text):
    """A number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def main():
    """Measure, or print the table."""
    summary, rest = __doc__.split("\n\n", 1)
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = lambda text: text.split(",")
    counts = lambda text: [count(part) for part in text.split(",")]
    parser.add_argument("--model", type=names, default=["vim_tiny"], metavar="A,B", help="as of peer_vim.py; vim_tiny")
    parser.add_argument("--image-size", type=count, default=224, metavar="N", help="px a side; 224")
    parser.add_argument("--batch", type=counts, default=[128], metavar="N,M", help="images a step on each GPU; 128")
    parser.add_argument("--dtype", choices=("f32", "tf32", "bf16"), default="bf16", help="bf16")
    parser.add_argument("--warmup", type=count, default=10, metavar="N", help="steps before the clock starts; 10")
    parser.add_argument("--steps", type=count, default=50, metavar="N", help="steps timed; 50")
    parser.add_argument("--drop-path", type=float, default=0.0, metavar="P", help="stochastic depth; 0")
    parser.add_argument("--lr", type=float, default=1e-4, metavar="X", help="learning rate; 1e-4")
    parser.add_argument("--clip", type=float, default=1.0, metavar="X", help="largest norm of the gradient; 1")
    parser.add_argument("--ema", type=float, default=0.99996, metavar="X", help="decay of the moving average; 0.99996")
    parser.add_argument("--table", nargs=2, metavar=("OURS", "THEIRS"), help="print what was measured")
    parser.add_argument("--selftest", action="store_true", help="check this script's table and end")
    args = parser.parse_args()
    if args.selftest:
        selftest()
    elif args.table:
        try:
            with open(args.table[0], encoding="utf-8") as file:
                ours = json.load(file)
            with open(args.table[1], encoding="utf-8") as file:
                theirs = [json.loads(line) for line in file if line.strip()]
        except (OSError, ValueError) as error:
            sys.exit(f"error: {error}")
        print(table(ours, theirs))
    else:
        run(args)


if __name__ == "__main__":
    main()
