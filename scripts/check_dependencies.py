#!/usr/bin/env python3
"""Check the licences of all dependencies, where they come from, and their texts that this repository matches.

    scripts/check_dependencies.py                exit 1 if a licence or a source is not allowed, or a text is gone
    scripts/check_dependencies.py --duplicates   also list the crates that are there in several versions

Reads `cargo metadata` of every feature on Linux. A licence expression is allowed if one of its alternatives has
allowed licences only. Security advisories are not checked: they need a database that is fetched by git. The files of
TEXTS have tables, each row a crate and a text of its panics or errors, which must be in that crate's code.
"""

import re
import sys
from pathlib import Path

from cargo_packages import host, licence, packages

ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    # Only files of such a crate that somebody changes have to be published.
    "MPL-2.0",
}

# Files with constants of pairs, ("crate", "text").
TEXTS = ["crates/vim-engine/src/device/fault/foreign.rs", "crates/vim-data/src/decode/turbo.rs"]
CONSTANT = re.compile(r"^(?:pub\S* )?const \w+: [^=]*\(&str, &str\)[^=]*=(.*?);$", re.MULTILINE | re.DOTALL)


def allowed(expression):
    """Whether an SPDX expression can be met: an exception only permits more."""
    words = re.findall(r"[()]|[^\s()]+", re.sub(r" WITH [\w.-]+", "", expression))
    logic = {"OR": "or", "AND": "and", "(": "(", ")": ")"}
    return eval(" ".join(logic.get(word) or str(word in ALLOWED) for word in words))


def code(package):
    """The code of a package in small letters, without lines of comments."""
    files = [path for path in Path(package["manifest_path"]).parent.rglob("*") if path.suffix in {".c", ".h", ".rs"}]
    lines = (line for path in files for line in path.read_text(errors="replace").lower().splitlines())
    return "\n".join(line for line in lines if not line.lstrip().startswith("//"))


def gone(all_packages):
    """What is wrong with the rows of TEXTS: texts that their crates do not have, and files without rows."""
    wrong, known = [], {}
    for file in TEXTS:
        constants = CONSTANT.findall((Path(__file__).parent.parent / file).read_text())
        rows = [row for constant in constants for row in re.findall(r'\("([\w-]+)",\s*"([^"]+)"\)', constant)]
        if not rows:
            wrong.append(f"{file}: no rows of a crate and its text are found")
        for name, text in rows:
            found = [package for package in all_packages if package["name"] == name]
            if name not in known:
                known[name] = [code(package) for package in found]
            if not found or any(text.lower() not in own for own in known[name]):
                versions = ", ".join(package["version"] for package in found) or "which is no dependency"
                wrong.append(f"{file}: {text!r} is not in {name} {versions}")
    return wrong


def main():
    """Print what is not allowed."""
    if set(sys.argv[1:]) - {"--duplicates"}:
        sys.exit(__doc__)
    found = packages(f"--filter-platform={host()}")
    wrong, versions = gone(found), {}
    for package in found:
        name = f"{package['name']} {package['version']}"
        versions.setdefault(package["name"], []).append(package["version"])
        expression = licence(package)
        if package["source"] is None:
            continue
        if not package["source"].startswith("registry+https://github.com/rust-lang/crates.io-index"):
            wrong.append(f"{name}: comes from {package['source']}")
        if expression is None or not allowed(expression):
            wrong.append(f"{name}: its licence is {expression or package['license_file']}")
    if "--duplicates" in sys.argv[1:]:
        for name, several in sorted(versions.items()):
            if len(several) > 1:
                print(f"{name}: {', '.join(sorted(several))}")
    print("\n".join([*wrong, f"check_dependencies: {len(versions)} crates, {len(wrong) or 'nothing'} wrong"]))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
