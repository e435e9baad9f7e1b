#!/usr/bin/env python3
"""Put the times of `vim-train profile scan --json` and of peer_scan.py side by side.

Records are joined by batch, channels, tokens, states and type. The peer has zoh alone: every method of ours
is compared with it. Records that only one side has are listed, not dropped. Ratios are theirs over ours
(above 1: ours is faster), of the medians of single calls by device events and of calls queued back to back.

Needs Python 3.9 or later and nothing else.

Examples:
  join_scan.py ours.json theirs.jsonl
  join_scan.py --selftest
"""

import argparse
import json
import sys

KEY = ("batch", "dim", "seqlen", "dstate", "dtype")
# What training runs, on our side and on theirs: forward with what the backward pass needs, and backward.
PASSES = (("forward_saving", "forward", "forward"), ("backward", "backward", "backward"))
HEAD = ("shape", "N", "type", "method", "pass", "ours ms", "theirs ms", "ratio", "queued", "theirs", "ratio")


def key(record):
    """What a record is joined by."""
    return tuple(record[name] for name in KEY)


def join(ours, theirs):
    """Rows for the table, and lines about what has no partner."""
    kernels = [record for record in ours["results"] if record["implementation"] == "kernel"]
    peers = {key(record): record for record in theirs}
    rows, alone = [], []
    for record in kernels:
        peer = peers.get(key(record))
        if peer is None:
            alone.append(f"no peer for {describe(record)} {record['method']}")
            continue
        for our_pass, their_pass, name in PASSES:
            one, two = record[our_pass], peer[their_pass]
            rows.append(
                (
                    f"{record['batch']}x{record['dim']}x{record['seqlen']}",
                    str(record["dstate"]),
                    record["dtype"],
                    record["method"],
                    name,
                    *compare(one["median_ms"], two["median_ms"]),
                    *compare(one["back_to_back_ms"], two["back_to_back_ms"]),
                )
            )
    known = {key(record) for record in kernels}
    alone += [f"no kernel of ours for {describe(peer)}" for peer in theirs if key(peer) not in known]
    return rows, alone


def describe(record):
    """A record's sizes for people."""
    return f"{record['batch']}x{record['dim']}x{record['seqlen']} N={record['dstate']} {record['dtype']}"


def compare(ours, theirs):
    """Two times in milliseconds and their ratio, as text."""
    return f"{ours:.3f}", f"{theirs:.3f}", f"{theirs / ours:.2f}"


def table(rows):
    """Rows in columns, words to the left and numbers to the right."""
    rows = [HEAD, *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column < 5 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def read(ours, theirs):
    """Both documents; the end with one line if one of them is not what it should be."""
    try:
        with open(ours, encoding="utf-8") as file:
            one = json.load(file)
        with open(theirs, encoding="utf-8") as file:
            two = [json.loads(line) for line in file if line.strip()]
        if "results" not in one:
            raise ValueError(f"{ours} has no `results`: is it from vim-train profile scan --json?")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    return one, two


def selftest():
    """Check the join on records made by hand."""

    def times(median, queued):
        return {"median_ms": median, "back_to_back_ms": queued}

    def ours(seqlen, method, implementation):
        sizes = {"batch": 8, "dim": 384, "seqlen": seqlen, "dstate": 16, "dtype": "bf16"}
        passes = {"forward": times(9, 9), "forward_saving": times(0.5, 0.4), "backward": times(1.0, 0.8)}
        return {**sizes, **passes, "method": method, "implementation": implementation}

    def theirs(seqlen):
        sizes = {"batch": 8, "dim": 384, "seqlen": seqlen, "dstate": 16, "dtype": "bf16"}
        return {**sizes, "method": "zoh", "forward": times(1.0, 1.2), "backward": times(3.0, 3.2)}

    results = [ours(197, "zoh", "kernel"), ours(197, "foh", "kernel"), ours(197, "zoh", "reference")]
    rows, alone = join({"results": [*results, ours(5, "zoh", "kernel")]}, [theirs(197), theirs(1025)])
    assert len(rows) == 4, rows
    assert rows[0] == (
        "8x384x197", "16", "bf16", "zoh", "forward", "0.500", "1.000", "2.00", "0.400", "1.200", "3.00",
    ), rows[0]  # fmt: skip
    assert rows[3][3:8] == ("foh", "backward", "1.000", "3.000", "3.00"), rows[3]
    assert alone == [
        "no peer for 8x384x5 N=16 bf16 zoh",
        "no kernel of ours for 8x384x1025 N=16 bf16",
    ], alone
    lines = table(rows).split("\n")
    assert len(lines) == 5 and lines[0].startswith("shape"), lines
    assert len({len(line) for line in lines}) == 1, lines
    print("join_scan: ok")


def main():
    """Print the table."""
    summary, rest = __doc__.split("\n\n", 1)
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ours", nargs="?", help="document of vim-train profile scan --json")
    parser.add_argument("theirs", nargs="?", help="lines of peer_scan.py")
    parser.add_argument("--selftest", action="store_true", help="check this script and end")
    args = parser.parse_args()
    if args.selftest:
        selftest()
        return
    if args.theirs is None:
        parser.error("two files are needed, or --selftest")
    ours, theirs = read(args.ours, args.theirs)
    rows, alone = join(ours, theirs)
    hardware = {record.get("hardware") for record in theirs}
    print(f"ours: vim-train {ours.get('version')} on {ours.get('hardware')}, {ours.get('date')}")
    for peer in sorted({f"{record.get('peer')} {record.get('version')}, torch {record.get('torch')}" for record in theirs}):
        print(f"theirs: {peer} on {', '.join(sorted(str(name) for name in hardware))}")
    print(table(rows))
    for line in alone:
        print(line)
    if not rows:
        sys.exit("error: nothing to compare: no kernel and peer at the same shape and type")


if __name__ == "__main__":
    main()
