#!/usr/bin/env python3
"""Check what no compiler checks: import circles, sizes of files and pages, long lines, links, words.

    scripts/check_tree.py             print what is wrong; exit 1 if anything is
    scripts/check_tree.py --report    the same, and exit 0

Of every crate: no circle of imports with more than three files, and no folder directly under src/ in a circle
of such folders and files. Imports are `use` items and inline paths that begin with `crate::`, `self::` or
`super::`; `mod tests` does not count, nor does the crate's root, which everything may re-export from.
Needs Python 3.9 and git.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LARGEST_CIRCLE = 3
RUST_COLUMNS, RUST_LINES = 100, 400
PAGE_COLUMNS, PAGE_LINES = 120, 250
# As long as there are keys: a command prints it.
PRINTED = "docs/config-reference.md"

# Words with no meaning outside this project, and what the field says instead.
WORDS = {
    r"\bretreat\w*|\breadvance\w*": "backward step, recompute",
    r"\babreast\b": "in vectors of N",
    r"\bway back\b": "backward pass",
    r"\bforesee\w*": "preflight, dry run",
    r"\bwhat is of it\b": "name the thing",
    r"\blives in a row\b|\bof all lives\b|\bnext life\b": "attempt of the job",
    r"\b(?:struct|enum|trait|type) (?:Given|Kept\w*|Parts|OfToken|Life|Lives|Surroundings|Misfit|Misshapen|Shelf|Slab)\b": "the field's name",
    r"\bmod (?:given|parts|retreat|many|keep|life|surroundings|flex)\b": "the field's name",
}


def tracked(*patterns):
    """The files of the repository that match."""
    listed = subprocess.run(["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, check=True, capture_output=True)
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def shown(path):
    """A path as messages have it."""
    return str(path.relative_to(ROOT))


# Imports.


def module_of(path, source):
    """`a::b` for src/a/b.rs and src/a/b/mod.rs; empty for the root of the library."""
    names = list(path.relative_to(source).with_suffix("").parts)
    if names[-1] == "mod":
        names.pop()
    return "" if names == ["lib"] else "::".join(names)


def leaves(tree, prefix=""):
    """The paths of a use tree: `a::{b, c::{d}}` has `a::b` and `a::c::d`."""
    depth, start, items = 0, 0, []
    for place, letter in enumerate(tree):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            items.append(tree[start:place])
            start = place + 1
    for item in [*items, tree[start:]]:
        head, brace, rest = item.strip().partition("{")
        if brace:
            yield from leaves(rest.rpartition("}")[0], prefix + head)
        elif head:
            yield (prefix + head).split(" as ")[0].strip()


def imports(text):
    """All paths into the crate that a source names, tests aside."""
    text = re.split(r"#\[cfg\(test\)\]\s*mod tests\s*\{", text)[0]
    text = re.sub(r"//.*", "", text)
    for tree in re.findall(r"\buse\s+([^;]+);", text):
        yield from leaves(re.sub(r"\s+", " ", tree))
    yield from re.findall(r"\b(?:crate|super)(?:::\w+)+", text)


def absolute(path, module):
    """The names of a path from the crate's root, or None where it leads to another crate."""
    names = [name.strip() for name in path.split("::")]
    base = module.split("::") if module else []
    if names[0] == "crate":
        return names[1:]
    if names[0] == "self":
        return base + names[1:]
    if names[0] != "super":
        return None
    while names and names[0] == "super":
        base, names = base[:-1], names[1:]
    return base + names


def graph_of(source):
    """Which module of a crate imports which others."""
    texts = {module_of(path, source): path.read_text() for path in sorted(source.rglob("*.rs"))}
    graph = {module: set() for module in texts}
    for module, text in texts.items():
        for path in imports(text):
            names = absolute(path, module)
            if names is None:
                continue
            while names and "::".join(names) not in texts:
                names.pop()
            target = "::".join(names)
            if target and target != module:
                graph[module].add(target)
    return graph


def circles(graph):
    """The strongly connected components of more than one node (Tarjan 1972, without recursion)."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []
    for root in graph:
        work = [(root, iter(sorted(graph[root])))] if root not in index else []
        if work:
            index[root] = low[root] = len(index)
            stack.append(root)
            on_stack.add(root)
        while work:
            node, rest = work[-1]
            step = next(rest, None)
            if step is not None:
                if step not in index:
                    index[step] = low[step] = len(index)
                    stack.append(step)
                    on_stack.add(step)
                    work.append((step, iter(sorted(graph[step]))))
                elif step in on_stack:
                    low[node] = min(low[node], index[step])
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                circle = []
                while not circle or circle[-1] != node:
                    circle.append(stack.pop())
                    on_stack.discard(circle[-1])
                if len(circle) > 1:
                    found.append(sorted(circle))
    return found


def check_imports():
    """Circles of files, and of what lies directly under src/."""
    for source in sorted((ROOT / "crates").glob("*/src")):
        graph, crate = graph_of(source), source.parent.name
        for circle in circles(graph):
            if len(circle) > LARGEST_CIRCLE:
                yield f"{crate}: a circle of {len(circle)} files: {', '.join(circle)}"
        top = {}
        for module, targets in graph.items():
            room = module.split("::")[0]
            top.setdefault(room, set()).update(target.split("::")[0] for target in targets)
        for room, targets in top.items():
            targets.discard(room)
        for circle in circles(top):
            if any((source / room).is_dir() for room in circle):
                yield f"{crate}: folders in a circle: {', '.join(circle)}"


# Lines and words.


def check_sources():
    """Rust sources: lines of a file, columns of a comment."""
    for path in tracked("crates/*.rs"):
        lines = path.read_text().splitlines()
        if len(lines) > RUST_LINES and "/src/" in shown(path):
            yield f"{shown(path)}: {len(lines)} lines, more than {RUST_LINES}"
        for number, line in enumerate(lines, 1):
            if line.lstrip().startswith("//") and len(line) > RUST_COLUMNS:
                yield f"{shown(path)}:{number}: a comment of {len(line)} columns, more than {RUST_COLUMNS}"


def pages():
    """The Markdown pages that users read."""
    return tracked("*.md", "docs/*.md", ":!crates/*/fuzz/*", ":!crates/*/tests/*")


def prose(text):
    """The numbered lines of a page outside its code blocks."""
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code:
            yield number, line


def anchor(title):
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower().replace("`", "")).replace(" ", "-")


def anchors(path):
    """All anchors of a page."""
    return {anchor(line.lstrip("#")) for _, line in prose(path.read_text()) if re.match(r"#+ ", line)}


def check_pages():
    """Pages: lines, columns of prose, links and names of files."""
    for path in pages():
        text = path.read_text()
        count = len(text.splitlines())
        if count > PAGE_LINES and shown(path) != PRINTED:
            yield f"{shown(path)}: {count} lines, more than {PAGE_LINES}"
        for number, line in prose(text):
            if len(line) > PAGE_COLUMNS and not line.lstrip().startswith(("|", "<", ">")):
                yield f"{shown(path)}:{number}: {len(line)} columns, more than {PAGE_COLUMNS}"
            for name in re.findall(r"`((?:crates|scripts|docs|\.ci|vim-\w+)/[\w./-]*\w)`", line):
                if not (ROOT / name).exists() and not (ROOT / "crates" / name).exists():
                    yield f"{shown(path)}:{number}: {name} does not exist"
            for link in re.findall(r"\]\(([^)\s]+)\)", line):
                if re.match(r"[a-z]+:", link):
                    continue
                name, _, section = link.partition("#")
                target = (path.parent / name).resolve() if name else path
                if not target.exists():
                    yield f"{shown(path)}:{number}: a link to {name}, which does not exist"
                elif section and target.suffix == ".md" and section not in anchors(target):
                    yield f"{shown(path)}:{number}: {name or 'this page'} has no section #{section}"


def check_words():
    """Words that only this project understood."""
    for path in tracked("*.rs", "*.md", "*.sh", "*.py", "*.toml"):
        if path == pathlib.Path(__file__).resolve():
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for pattern, instead in WORDS.items():
                found = re.search(pattern, line)
                if found:
                    yield f"{shown(path)}:{number}: `{found[0]}`: say {instead}"


def main():
    """Print everything that is wrong."""
    if set(sys.argv[1:]) - {"--report"}:
        sys.exit(__doc__)
    wrong = 0
    for check in (check_imports, check_sources, check_pages, check_words):
        for message in check():
            print(message)
            wrong += 1
    print(f"check_tree: {wrong or 'nothing'} wrong")
    sys.exit(1 if wrong and "--report" not in sys.argv[1:] else 0)


if __name__ == "__main__":
    main()
