#!/usr/bin/env python3
"""Check the licences of all dependencies, and where they come from.

    scripts/check_dependencies.py                exit 1 if a licence or a source is not allowed
    scripts/check_dependencies.py --duplicates   also list the crates that are there in several versions

Reads `cargo metadata` of every feature on Linux. A licence expression is allowed if one of its alternatives has
allowed licences only. Security advisories are not checked: they need a database that is fetched by git.
"""

import re
import sys

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


def allowed(expression):
    """Whether an SPDX expression can be met: an exception only permits more."""
    words = re.findall(r"[()]|[^\s()]+", re.sub(r" WITH [\w.-]+", "", expression))
    logic = {"OR": "or", "AND": "and", "(": "(", ")": ")"}
    return eval(" ".join(logic.get(word) or str(word in ALLOWED) for word in words))


def main():
    """Print what is not allowed."""
    if set(sys.argv[1:]) - {"--duplicates"}:
        sys.exit(__doc__)
    wrong, versions = [], {}
    for package in packages(f"--filter-platform={host()}"):
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
