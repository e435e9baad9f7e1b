#!/usr/bin/env python3
"""Draw docs/figures/speed.svg from docs/figures/speed.json, and put its table into the pages that show it.

    scripts/compare/draw_speed.py            write the figure and the tables
    scripts/compare/draw_speed.py --check    change nothing; exit 1 if one of them is out of date

speed.json holds measured figures with their date, commit, hardware and command. A figure with two numbers is
the range of several runs, or of two ways to launch; bars and ratios take the larger one, which is the less
favourable for vim-train. In a page the table stands between `<!-- speed -->` and `<!-- /speed -->`.
"""

import json
import pathlib
import re
import sys
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "docs/figures/speed.json"
FIGURE = ROOT / "docs/figures/speed.svg"
PAGES = [ROOT / "README.md", ROOT / "docs/benchmarks.md"]

WIDTH, LEFT, BAR, PITCH, TOP = 760, 205, 18, 58, 12
LONGEST = 330
# Mid-tones: a contrast of about 4 on white and on GitHub's dark background (#0d1117).
TEXT, OURS, PEER = "#768390", "#d4711b", "#8b949e"


def number(value):
    """An integer with narrow spaces between groups of three digits, from four digits on."""
    return f"{value:,}".replace(",", "\u202f") if value >= 10_000 else str(value)


def figure(values):
    """A figure, or the range of several runs."""
    return "–".join(number(value) for value in values) if values else "–"


def table(data):
    """The Markdown table of all rows, in images a second."""
    lines = [
        "| images a second | vim-train | PyTorch's Vim | | DeiT | DeiT, compiled |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for row in data["rows"]:
        ratio = f"{row['ours'] / max(row['vim']):.1f}×" if row["vim"] else ""
        lines.append(
            f"| {row['what']} | {number(row['ours'])} | {figure(row['vim'])} | {ratio} "
            f"| {figure(row['deit'])} | {number(row['compiled'])} |"
        )
    return "\n".join(lines)


def drawing(data):
    """The SVG: a pair of bars for each row that has a `bar`, each pair on its own scale."""
    rows = [row for row in data["rows"] if "bar" in row]
    height = TOP + PITCH * len(rows) + 22
    parts = []

    def text(x, y, content, color=TEXT, anchor="start", weight="normal", size=13):
        parts.append(
            f'<text x="{x}" y="{y}" fill="{color}" text-anchor="{anchor}" font-weight="{weight}" '
            f'font-size="{size}">{escape(content)}</text>'
        )

    for index, row in enumerate(rows):
        y = TOP + PITCH * index
        peer = max(row["vim"])
        text(LEFT - 14, y + BAR + 5, row["bar"], anchor="end", weight="600")
        for offset, value, shown, name, color in (
            (0, row["ours"], number(row["ours"]), "vim-train", OURS),
            (BAR + 3, peer, figure(row["vim"]), "PyTorch", PEER),
        ):
            length = round(LONGEST * value / max(row["ours"], peer))
            parts.append(
                f'<rect x="{LEFT}" y="{y + offset}" width="{length}" height="{BAR}" rx="2" fill="{color}"/>'
            )
            text(LEFT + length + 8, y + offset + BAR - 4, f"{shown} img/s  {name}", color if offset == 0 else TEXT)
        text(WIDTH - 8, y + BAR + 5, f"{row['ours'] / peer:.1f}×", OURS, "end", "700", 17)
    text(
        LEFT,
        height - 8,
        f"{data['precision']}, {data['hardware']}, {data['date']}, commit {data['commit']}; each pair on its own scale",
        size=11,
    )
    body = "\n".join(f"  {part}" for part in parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Images a second: vim-train and PyTorch\'s Vim" '
        f'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">\n{body}\n</svg>\n'
    )


def main():
    """Write what is out of date, or name it."""
    if set(sys.argv[1:]) - {"--check"}:
        sys.exit(__doc__)
    check = "--check" in sys.argv[1:]
    data = json.loads(DATA.read_text())
    wanted = {FIGURE: drawing(data)}
    for page in PAGES:
        inside = re.compile(r"(<!-- speed -->\n).*?(<!-- /speed -->)", re.DOTALL)
        text, found = inside.subn(lambda match: match[1] + table(data) + "\n" + match[2], page.read_text())
        if not found:
            sys.exit(f"error: {page.relative_to(ROOT)} has no `<!-- speed -->` … `<!-- /speed -->`")
        wanted[page] = text
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if not check:
            path.write_text(wanted[path])
        print(f"{'out of date' if check else 'wrote'}: {path.relative_to(ROOT)}")
    if check and stale:
        sys.exit("run scripts/compare/draw_speed.py")


if __name__ == "__main__":
    main()
