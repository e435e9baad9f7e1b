#!/usr/bin/env python3
"""Check what no compiler checks: import circles, the task seam, sizes of files and pages, links, walks, words.

    scripts/check_tree.py                    print what is wrong; exit 1 if anything is
    scripts/check_tree.py --report           the same, and exit 0
    scripts/check_tree.py --sizes            print the lines of each crate
    scripts/check_tree.py --sizes --write    put them into docs/architecture.md

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
RUST_COLUMNS, LONGEST_FILE, LONGEST_FUNCTION = 100, 600, 80
# Functions that are longer, with their lines. The list only shrinks: one that is short by now, or gone, is an error in it, and
# so is one that has grown.
LONGER = {
    "crates/vim-kernels-ops/src/conv/cube/bidirectional/kernel.rs bidirectional_forward": 85,
    "crates/vim-kernels-ops/src/conv/cube/bidirectional/kernel.rs bidirectional_backward": 144,
    "crates/vim-kernels-ops/src/conv/cube/kernel.rs conv_backward": 113,
    "crates/vim-kernels-ops/src/matmul/cube/bf16.rs accumulate_bf16": 95,
    "crates/vim-kernels-ops/src/matmul/cube/registers.rs multiply_rows": 109,
    "crates/vim-kernels-ops/src/matmul/cube/tf32.rs accumulate_tf32": 108,
    "crates/vim-kernels-ops/src/matmul/cube/weight_stationary.rs weight_stationary": 85,
    "crates/vim-kernels-ops/src/resize_nll/cube.rs nll_forward": 94,
    "crates/vim-kernels-ops/src/resize_nll/cube.rs nll_backward": 85,
    "crates/vim-kernels-scan/src/norm/cube/kernel.rs norm_backward": 101,
    "crates/vim-kernels-scan/src/scan/complex/cube/forward.rs complex_forward": 95,
    "crates/vim-kernels-scan/src/scan/complex/cube/mod.rs backward": 101,
    "crates/vim-kernels-scan/src/scan/cube/forward_step.rs scan_forward": 98,
    "crates/vim-kernels-scan/src/scan/cube/mod.rs scan_passes": 109,
    "crates/vim-kernels-scan/src/scan/native/backward.rs run": 84,
    "crates/vim-model/src/cost.rs components": 127,
    "crates/vim-model/src/weights/infer.rs inferred": 103,
    "crates/vim-slurm/src/request.rs request": 109,
    "crates/vim-torch/src/pickle/machine.rs step": 119,
    "crates/vim-verify/src/bidirectional.rs rows": 86,
}
PAGE_COLUMNS, PAGE_LINES = 120, 250
# A command prints the first, which has a line for each key; to the others entries are added, and none is removed.
UNLIMITED = {"docs/config-reference.md", "docs/log.md", "CHANGELOG.md"}

ARCHITECTURE = "docs/architecture.md"
# The walks of that page, and the most files that each may lead through.
WALKS = {
    "A training batch, from a file to the update": 26,
    "A discretization, from TOML to a kernel": 16,
    "A checkpoint, saved and resumed": 15,
    "A backward scan on a GPU": 23,
    "A segmentation's loss": 22,
    "Several GPUs, from `train` to the sum of gradients": 28,
}
# A size in that page may be off by as many lines, or by this part of itself: else each change would rewrite the page.
STALE_LINES, STALE_PART = 100, 0.01

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
    r"\b[Ss]o many\b": "a number of, this many, or the name of the number",
    r"\b[Pp]uts? up with\b": "allow",
    r"\bfound\s+again\b": "recognized, or who finds what",
    r"\b(?:of|is) no use\b": "not needed, or what is wrong with it",
    r"\bOf an? (?:classification|segmentation|detection):": "Segmentation only:",
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


def without_tests(text):
    """A source without its modules of tests, which are at its foot."""
    return re.split(r"#\[cfg\((?:all\()?test\b.*\]\s*mod \w+\s*\{", text)[0]


def imports(text):
    """All paths into the crate that a source names, tests aside."""
    text = re.sub(r"//.*", "", without_tests(text))
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


# The task seam.


def code_of(text):
    """A source without tests, comments and the insides of strings; lines keep their numbers."""
    literal = r"""//[^\n]*|/\*.*?\*/|\br(#*)".*?"\1|"(?:\\.|[^"\\])*"|'(?:\\.[^']*|[^'\\])'"""
    blank = lambda found: re.sub(r"[^\n]", " ", found[0])
    return re.sub(literal, blank, without_tests(text), flags=re.DOTALL)


def task_words(text):
    """The numbered lines of a source that say which tasks there are, and what says it."""
    code = code_of(text)
    tasks = "classification|segmentation|detection"
    names = (
        r"\b(?:Classification|Segmentation|Detection)\b",
        rf"\btask::(?:{tasks})\b",
        r"\b(?:is|has|of)_(?:dense|classif|segment|detect)\w*",
    )
    for found in re.finditer("|".join(names), code):
        yield code.count("\n", 0, found.start()) + 1, found[0]
    for tree in re.finditer(r"\buse\s+([^;]+);", code):
        line = code.count("\n", 0, tree.start()) + 1
        for path in leaves(re.sub(r"\s+", " ", tree[1])):
            if "{" in tree[1] and re.search(rf"\btask::(?:{tasks})\b", path):
                yield line, path
    # Names of tasks that are compared as texts.
    for found in re.finditer(rf'"(?:{tasks})"', re.sub(r"//.*", "", without_tests(text))):
        yield text.count("\n", 0, found.start()) + 1, found[0]


def check_seam():
    """Outside of config/ and task/, vim-engine and vim-train do not know which tasks there are."""
    for path in tracked("crates/vim-engine/src/*.rs", "crates/vim-train/src/*.rs"):
        name = shown(path).removeprefix("crates/vim-engine/src/")
        if name.startswith(("config/", "task/")) or path.name == "tests.rs":
            continue
        for line, what in task_words(path.read_text()):
            yield f"{shown(path)}:{line}: `{what}`: which tasks there are is the business of task/ and config/"


# Lines and words.


def functions(text):
    """The name, the first line and the number of lines of each function of a source that has a body, tests aside."""
    code = code_of(text)
    for found in re.finditer(r"\bfn (\w+)", code):
        # A signature ends at the body, or, in a trait or an extern block, at a semicolon; `[T; 2]` has one too.
        end = re.compile(r"\{|;(?![^\[\]]*\])").search(code, found.end())
        if end is None or end[0] == ";":
            continue
        depth = 0
        for brace in re.finditer(r"[{}]", code[end.start() :]):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                first = code.count("\n", 0, found.start()) + 1
                yield found[1], first, 1 + code.count("\n", found.start(), end.start() + brace.start())
                break


def check_functions(sources, longer):
    """Functions are short, but those of a list, which has none that is short, gone or longer than it says."""
    left = dict(longer)
    for name, text in sources:
        for function, line, length in functions(text):
            if length <= LONGEST_FUNCTION:
                continue
            known = left.pop(f"{name} {function}", None)
            if known is None:
                yield f"{name}:{line}: `{function}` has {length} lines, more than {LONGEST_FUNCTION}"
            elif length > known:
                yield f"{name}:{line}: `{function}` has {length} lines, {length - known} more than LONGER of this script says"
    for entry in left:
        yield f"LONGER of scripts/check_tree.py: {entry} is not longer than {LONGEST_FUNCTION} lines, or gone: remove the entry"


def check_sources():
    """Rust sources: lines of a file and of its functions, columns of a comment."""
    sources = []
    for path in tracked("crates/*.rs"):
        text = path.read_text()
        lines = text.splitlines()
        if "/src/" in shown(path):
            if path.name != "tests.rs":
                sources.append((shown(path), text))
            if len(lines) > LONGEST_FILE:
                yield f"{shown(path)}: {len(lines)} lines, more than {LONGEST_FILE}"
        for number, line in enumerate(lines, 1):
            if line.lstrip().startswith("//") and len(line) > RUST_COLUMNS:
                yield f"{shown(path)}:{number}: a comment of {len(line)} columns, more than {RUST_COLUMNS}"
    yield from check_functions(sources, LONGER)


def self_test():
    """The list of longer functions only shrinks."""
    body = "    x();\n" * (LONGEST_FUNCTION + 4)
    sources = [("a.rs", f"fn long() {{\n{body}}}\n\nfn short() -> [u8; 2] {{\n    [0; 2]\n}}\n")]
    length = LONGEST_FUNCTION + 6
    for longer, wrong in (
        ({"a.rs long": length}, 0),
        ({"a.rs long": length + 1}, 0),
        ({"a.rs long": length - 1}, 1),
        ({}, 1),
        ({"a.rs long": length, "a.rs short": 90}, 1),
        ({"a.rs long": length, "b.rs gone": 90}, 1),
    ):
        found = list(check_functions(sources, longer))
        if len(found) != wrong:
            sys.exit(f"check_tree: the self-test of {longer} found {found}")


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
        # A walk is as long as its value's way, and has a limit of its own.
        count = sum(1 for line in text.splitlines() if not re.match(r"\d+\. `[\w/-]+\.rs`: ", line))
        if count > PAGE_LINES and shown(path) not in UNLIMITED:
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


# The page of the architecture.


def check_walks():
    """Each walk is a numbered list of files that exist, each once; it says how many they are."""
    page = (ROOT / ARCHITECTURE).read_text()
    walks = re.split(r"^### ", re.split(r"^## ", page.partition("\n## Walks\n")[2], flags=re.MULTILINE)[0], flags=re.MULTILINE)
    walks = {title: body for title, _, body in (walk.partition("\n") for walk in walks[1:])}
    for title in walks.keys() ^ WALKS.keys():
        yield f"{ARCHITECTURE}: the walk “{title}” is either there or in WALKS of this script, not in both"
    for title in walks.keys() & WALKS.keys():
        items = re.findall(r"^(\d+)\. (?:`([^`]+)`)?", walks[title], flags=re.MULTILINE)
        files = [path for _, path in items]
        said = re.search(r"^(\d+) files", walks[title], flags=re.MULTILINE)
        for number, (item, path) in enumerate(items, 1):
            if int(item) != number:
                yield f"{ARCHITECTURE}: “{title}”: item {item} is number {number}"
            if not path.endswith(".rs") or not (ROOT / "crates" / path).is_file():
                yield f"{ARCHITECTURE}: “{title}”: {path or f'item {item}'} is not a file below crates/"
        for path in {path for path in files if files.count(path) > 1}:
            yield f"{ARCHITECTURE}: “{title}”: {path} is there twice"
        if said is None or int(said[1]) != len(files):
            yield f"{ARCHITECTURE}: “{title}” does not begin with `{len(files)} files`"
        if len(files) > WALKS[title]:
            yield f"{ARCHITECTURE}: “{title}” leads through {len(files)} files, more than {WALKS[title]}"


def sizes():
    """Of each crate, of folders of the largest, and of all: number of files, lines of source, lines of tests."""
    rooms = {"vim-engine/src/" + room: [0, 0, 0] for room in ("config", "task", "train", "work")}
    crates = {path.parent.name: [0, 0, 0] for path in tracked("crates/*/Cargo.toml") if path.parent.parent.name == "crates"}
    for path in tracked("crates/*.rs"):
        name = path.relative_to(ROOT / "crates")
        text = path.read_text()
        lines = len(text.splitlines())
        is_source = name.parts[1] in ("src", "examples", "build.rs") and name.name != "tests.rs"
        source = len(without_tests(text).splitlines()) if is_source else 0
        for row in (crates[name.parts[0]], rooms.get("/".join(name.parts[:3]))):
            if row is not None:
                for column, number in enumerate((1, source, lines - source)):
                    row[column] += number
    rows = {}
    for crate, row in crates.items():
        rows[crate] = row
        rows.update({room: row for room, row in rooms.items() if room.startswith(crate + "/")})
    return {**rows, "all": [sum(column) for column in zip(*crates.values())]}


def table_of_sizes():
    """The Markdown table of all sizes."""
    lines = ["| crate, folder | files | lines of source | lines of tests |", "|---|--:|--:|--:|"]
    for name, row in sizes().items():
        lines.append("| `{}` | {} | {} | {} |".format(name, *row) if name != "all" else "| all | {} | {} | {} |".format(*row))
    return "\n".join(lines)


SIZES = re.compile(r"(?<=<!-- sizes -->\n).*?(?=\n<!-- /sizes -->)", re.DOTALL)


def check_sizes():
    """The table of the page says what is there, but for a few lines."""
    found = SIZES.search((ROOT / ARCHITECTURE).read_text())
    said = dict(re.findall(r"^\| `?([\w/-]+)`? \| (\d+ \| \d+ \| \d+) \|$", found[0] if found else "", flags=re.MULTILINE))
    for name, row in sizes().items():
        old = [int(number) for number in said.pop(name, "0 | 0 | 0").split(" | ")]
        off = [abs(is_now - was) > max(STALE_LINES, STALE_PART * is_now) for is_now, was in zip(row[1:], old[1:])]
        if any(off):
            yield f"{ARCHITECTURE}: sizes of {name} are {row}, not {old}: run scripts/check_tree.py --sizes --write"
    for name in said:
        yield f"{ARCHITECTURE}: there is no {name}: run scripts/check_tree.py --sizes --write"


def write_sizes():
    """Puts the table into the page."""
    path = ROOT / ARCHITECTURE
    path.write_text(SIZES.sub(lambda _: table_of_sizes(), path.read_text()))


def check_words():
    """Words that only this project understood."""
    words = re.compile("|".join(WORDS))
    for path in tracked("*.rs", "*.md", "*.sh", "*.py", "*.toml"):
        if path == pathlib.Path(__file__).resolve():
            continue
        text = path.read_text()
        if not words.search(text):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, instead in WORDS.items():
                found = re.search(pattern, line)
                if found:
                    yield f"{shown(path)}:{number}: `{found[0]}`: say {instead}"


def main():
    """Print everything that is wrong, or the sizes."""
    flags = set(sys.argv[1:])
    if flags - {"--report", "--sizes", "--write"} or ("--write" in flags and "--sizes" not in flags):
        sys.exit(__doc__)
    if "--sizes" in flags:
        if "--write" in flags:
            write_sizes()
        print(table_of_sizes())
        return
    self_test()
    wrong = 0
    for check in (check_imports, check_seam, check_sources, check_pages, check_walks, check_sizes, check_words):
        for message in check():
            print(message)
            wrong += 1
    print(f"check_tree: {wrong or 'nothing'} wrong")
    sys.exit(1 if wrong and "--report" not in flags else 0)


if __name__ == "__main__":
    main()
