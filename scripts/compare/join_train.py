#!/usr/bin/env python3
"""Put what `vim-train bench -o` and peer_vim.py measured side by side, as a Markdown table.

Rows are joined by size (tiny, small), mode, image size, batch and type. A peer has no discretizations: every
method of ours stands against it. What only one side has, and what did not run, is listed with its reason.
Ratios of img/s are ours over theirs, of ms theirs over ours: above 1, ours is faster. Ratios of memory are
ours over theirs: below 1, ours needs less.

Needs Python 3.9 or later and nothing else.

Examples:
  join_train.py ours-tiny-224.json theirs.jsonl
  join_train.py ours-*.json theirs.jsonl
  join_train.py --selftest
"""

import argparse
import json
import sys

HEAD = (
    "ours", "peer", "mode", "px", "batch", "type", "ours img/s", "theirs", "ratio",
    "ours ms", "theirs", "ratio", "ours GiB", "theirs", "ratio",
)  # fmt: skip


def key(record, size):
    """What a record is joined by."""
    return (size, record["mode"], record["image_size"], record["batch"], record["dtype"])


def describe(name, record):
    """A record for people."""
    return f"{name} {record['mode']} {record['image_size']} px batch {record['batch']} {record['dtype']}"


def peer_name(record):
    """The model of a peer's record, and how its steps are taken where that is not kernel by kernel."""
    way = record.get("way", "eager")
    return record["model"] if way == "eager" else f"{record['model']}, {way}"


def memory(record):
    """Peak memory in GiB, or None."""
    peak = record.get("peak_memory_bytes")
    return None if peak is None else peak / 2**30


def ratio(one, two):
    """Of two numbers, as text."""
    return "–" if one is None or not two else f"{one / two:.2f}"


def number(value, digits):
    """A number, or a dash."""
    return "–" if value is None else f"{value:.{digits}f}"


def join(documents, theirs):
    """Rows for the table, and lines about what is not in it."""
    rows, alone, known = [], [], set()
    peers = {}
    for record in theirs:
        if record.get("error"):
            alone.append(f"{describe(peer_name(record), record)}: {record['error']}")
        peers.setdefault(key(record, record["model"].split("_")[-1]), []).append(record)
    for document in documents:
        size = document["model"]
        for record in document["results"]:
            name = f"{size} {record['method']}"
            known.add(key(record, size))
            if record.get("error"):
                alone.append(f"{describe(name, record)}: {record['error']}")
                continue
            matches = peers.get(key(record, size), [])
            if not matches:
                alone.append(f"no peer for {describe(name, record)}")
            rows += [row(name, record, peer) for peer in matches if not peer.get("error")]
    for joined, records in peers.items():
        if joined not in known:
            alone += [f"none of ours for {describe(peer_name(record), record)}" for record in records]
    return rows, alone


def row(name, ours, peer):
    """A row of the table."""
    speeds = ours["throughput"]["img_s"], peer["throughput"]["img_s"]
    times = ours["latency"]["median_ms"], peer["latency"]["median_ms"]
    sizes = memory(ours), memory(peer)
    return (
        name,
        peer_name(peer),
        ours["mode"],
        str(ours["image_size"]),
        str(ours["batch"]),
        ours["dtype"],
        *(number(speed, 1) for speed in speeds),
        ratio(*speeds),
        *(number(time, 2) for time in times),
        ratio(times[1], times[0]),
        *(number(size, 2) for size in sizes),
        ratio(*sizes),
    )


def table(rows):
    """Rows as Markdown: words to the left, numbers to the right."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * 3 + "--:|" * 2 + "---|" + "--:|" * (len(HEAD) - 6)]
    return "\n".join(lines + ["| " + " | ".join(cells) + " |" for cells in rows])


def read(paths):
    """Our documents and their lines; the end with one line if one of them is not what it should be."""
    documents, theirs = [], []
    try:
        for path in paths[:-1]:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
            if not {"results", "model"} <= set(document):
                raise ValueError(f"{path} has no `results`: is it from vim-train bench -o?")
            documents.append(document)
        with open(paths[-1], encoding="utf-8") as file:
            theirs = [json.loads(line) for line in file if line.strip()]
        if not all({"model", "mode"} <= set(record) for record in theirs):
            raise ValueError(f"{paths[-1]} is not from peer_vim.py: the peer's lines come last")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    return documents, theirs


def about(documents, theirs):
    """Lines that say what was measured with what."""
    lines = set()
    for document in documents:
        made = document.get("environment", {})
        lines.add(
            f"ours: vim-train {made.get('version')} (commit {made.get('commit')}) on "
            f"{made.get('backend')}, {document.get('hardware')}, {made.get('started')}"
        )
    for record in theirs:
        versions = ", ".join(f"{name} {number}" for name, number in record.get("versions", {}).items() if number)
        tf32 = record.get("tf32", {})
        parts = ""
        if record["model"].startswith("vim"):
            parts = "; " + ", ".join(f"{part}: {by}" for part, by in record.get("parts", {}).items())
        lines.add(
            f"{record['model']}: {record.get('peer')} on {record.get('hardware')}; {versions}; "
            f"TF32 in products {tf32.get('matmul')}, in convolutions {tf32.get('conv')}{parts}"
        )
    return sorted(lines)


def selftest():
    """Check the join on records made by hand."""

    def ours(method, batch, img_s, **more):
        sizes = {"mode": "train", "image_size": 224, "batch": batch, "dtype": "f32", "method": method}
        times = {"latency": {"median_ms": 1e3 * batch / img_s}, "throughput": {"img_s": img_s}}
        return {**sizes, **times, "peak_memory_bytes": 2**30, **more}

    def theirs(model, batch, img_s, **more):
        record = ours("", batch, img_s, peak_memory_bytes=2**32)
        return {**record, "model": model, "peer": "p", **more}

    document = {"model": "tiny", "results": [ours("zoh", 8, 400.0), ours("foh", 8, 200.0), ours("zoh", 512, 1.0)]}
    document["results"][2]["error"] = "out of memory"
    lines = [theirs("vim_tiny", 8, 100.0), theirs("deit_tiny", 8, 800.0, way="compiled"), theirs("vim_small", 8, 50.0)]
    lines.append(theirs("vim_tiny", 512, 1.0, error="out of memory too"))
    rows, alone = join([document], lines)
    assert [(cells[0], cells[1], cells[8], cells[11], cells[14]) for cells in rows] == [
        ("tiny zoh", "vim_tiny", "4.00", "4.00", "0.25"),
        ("tiny zoh", "deit_tiny, compiled", "0.50", "0.50", "0.25"),
        ("tiny foh", "vim_tiny", "2.00", "2.00", "0.25"),
        ("tiny foh", "deit_tiny, compiled", "0.25", "0.25", "0.25"),
    ], rows
    assert alone == [
        "vim_tiny train 224 px batch 512 f32: out of memory too",
        "tiny zoh train 224 px batch 512 f32: out of memory",
        "none of ours for vim_small train 224 px batch 8 f32",
    ], alone
    lines = table(rows).split("\n")
    assert len(lines) == 6 and len({line.count("|") for line in lines}) == 1, lines
    assert ratio(None, 1.0) == "–" and number(None, 1) == "–"
    print("join_train: ok")


def main():
    """Print the table."""
    summary, rest = __doc__.split("\n\n", 1)
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", help="documents of vim-train bench -o, and last the lines of peer_vim.py")
    parser.add_argument("--selftest", action="store_true", help="check this script and end")
    args = parser.parse_args()
    if args.selftest:
        selftest()
        return
    if len(args.files) < 2:
        parser.error("at least two files are needed, ours and last theirs, or --selftest")
    documents, theirs = read(args.files)
    rows, alone = join(documents, theirs)
    for line in about(documents, theirs):
        print(f"- {line}")
    print(f"\n{table(rows)}\n")
    for line in alone:
        print(f"- {line}")


if __name__ == "__main__":
    main()
