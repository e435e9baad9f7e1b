#!/usr/bin/env python3
"""Draw docs/figures/resolution.svg from docs/figures/resolution.json: pixels a second against resolution.

    scripts/compare/draw_resolution.py --from DIR    take what compare_resolution.sh measured, then draw
    scripts/compare/draw_resolution.py               draw
    scripts/compare/draw_resolution.py --check       change nothing; exit 1 if the figure is out of date

A model whose time grows with the number of pixels is a level line, one whose time grows with their square falls.
"""

import json
import math
import pathlib
import sys
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "docs/figures/resolution.json"
FIGURE = ROOT / "docs/figures/resolution.svg"

PANEL, GAP, TOP, HEIGHT, LEFT, RIGHT = 290, 142, 34, 270, 48, 100
# Mid-tones: a contrast of about 4 on white and on GitHub's dark background (#0d1117).
TEXT, GRID = "#768390", "#76839040"
COLORS = {
    "zoh": "#d4711b", "bilinear": "#b8860b", "rk4": "#c2557a", "foh": "#3f8f5f", "highorder": "#3d83c4",
    "poly": "#8a63d2", "DeiT": "#8b949e", "DeiT, compiled": "#8b949e",
}  # fmt: skip


def taken(folder):
    """The figures of a folder that compare_resolution.sh filled."""
    points, around = [], {}
    theirs = folder / "theirs.jsonl"
    if not theirs.is_file() or not any(folder.glob("ours-*.json")):
        sys.exit(f"error: {folder} has no ours-PX.json and theirs.jsonl, which compare_resolution.sh writes")
    for path in sorted(folder.glob("ours-*.json")):
        document = json.loads(path.read_text())
        made = document["environment"]
        around = {"date": made["started"][:10], "commit": made["commit"][:8], "hardware": document["hardware"]}
        points += [(record["method"], record) for record in document["results"] if not record.get("error")]
    for line in theirs.read_text().splitlines():
        record = json.loads(line)
        name = "DeiT" if record["way"] == "eager" else "DeiT, compiled"
        if not record.get("error"):
            points.append((name, record))
    rows = [
        {"what": name, "img/s": round(record["throughput"]["img_s"], 1)}
        | {key: record[key] for key in ("mode", "image_size", "batch")}
        for name, record in points
    ]
    rows.sort(key=lambda row: row["image_size"])
    return {**around, "command": "scripts/compare/compare_resolution.sh --out DIR", "precision": "bf16", "rows": rows}


def drawing(data):
    """The SVG: a panel for each mode, a line for each method and peer, both axes logarithmic."""
    parts, width = [], LEFT + 2 * PANEL + GAP + RIGHT

    def text(x, y, content, color=TEXT, anchor="start", size=12, weight="normal"):
        parts.append(
            f'<text x="{x:.0f}" y="{y:.0f}" fill="{color}" text-anchor="{anchor}" font-size="{size}" '
            f'font-weight="{weight}">{escape(content)}</text>'
        )

    for panel, (mode, title) in enumerate((("infer", "Inference"), ("train", "Training"))):
        rows = [row for row in data["rows"] if row["mode"] == mode]
        rows = [{**row, "y": row["img/s"] * row["image_size"] ** 2 / 1e6} for row in rows]
        if not rows:
            continue
        left = LEFT + panel * (PANEL + GAP)
        sides = sorted({row["image_size"] for row in rows})
        low, high = (math.log(edge(row["y"] for row in rows)) for edge in (min, max))
        low, high = low - 0.08, high + 0.08
        span = math.log(sides[-1] / sides[0]) or 1.0
        across = lambda side: left + PANEL * math.log(side / sides[0]) / span
        up = lambda value: TOP + HEIGHT * (1 - (math.log(value) - low) / (high - low))
        text(left, 16, f"{title}, megapixels a second", size=13, weight="600")
        for side in sides:
            parts.append(f'<path d="M{across(side):.0f} {TOP}v{HEIGHT}" stroke="{GRID}"/>')
            text(across(side), TOP + HEIGHT + 16, str(side), anchor="middle")
        for value in (20, 50, 100, 200, 500, 1000, 2000, 5000):
            if low < math.log(value) < high:
                parts.append(f'<path d="M{left} {up(value):.0f}h{PANEL}" stroke="{GRID}"/>')
                text(left - 6, up(value) + 4, str(value), anchor="end")
        ends = []
        for name, color in COLORS.items():
            line = sorted((row["image_size"], row["y"]) for row in rows if row["what"] == name)
            if not line:
                continue
            points = " ".join(f"{across(side):.1f},{up(value):.1f}" for side, value in line)
            dash = ' stroke-dasharray="5 4"' if name.endswith("compiled") else ""
            parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"{dash}/>')
            ends.append([up(line[-1][1]), name, color])
        if not ends:
            continue
        ends.sort()
        for one, two in zip(ends, ends[1:]):
            two[0] = max(two[0], one[0] + 14)
        ends[-1][0] = min(ends[-1][0], TOP + HEIGHT - 4)
        for two, one in zip(ends[::-1], ends[-2::-1]):
            one[0] = min(one[0], two[0] - 14)
        for y, name, color in ends:
            text(left + PANEL + 6, y + 4, name, color)
    foot = f"{data['precision']}, {data['hardware']}, {data['date']}, commit {data['commit']}; px a side, log scales"
    text(LEFT, TOP + HEIGHT + 38, foot, size=11)
    body = "\n".join(f"  {part}" for part in parts)
    height = TOP + HEIGHT + 48
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="Megapixels a second of Vim-Ti and DeiT-Ti against resolution" '
        f'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">\n{body}\n</svg>\n'
    )


def main():
    """Write the figure, or say that it is out of date."""
    words = sys.argv[1:]
    if words[:1] == ["--from"] and len(words) == 2:
        rows = taken(pathlib.Path(words[1]))
        lines = ",\n".join(f"    {json.dumps(row)}" for row in rows.pop("rows"))
        head = json.dumps(rows, indent=2)[:-2]
        DATA.write_text(f'{head},\n  "rows": [\n{lines}\n  ]\n}}\n')
    elif words not in ([], ["--check"]):
        sys.exit(__doc__)
    if not DATA.is_file():
        sys.exit(f"error: there is no {DATA.relative_to(ROOT)} yet: measure, and take it with --from")
    wanted = drawing(json.loads(DATA.read_text()))
    if not FIGURE.exists() or FIGURE.read_text() != wanted:
        if words == ["--check"]:
            sys.exit("out of date: docs/figures/resolution.svg; run scripts/compare/draw_resolution.py")
        FIGURE.write_text(wanted)
        print("wrote: docs/figures/resolution.svg")


if __name__ == "__main__":
    main()
